# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Cityscapes: street scenes of many cities, with 19 classes and pixels that do not count."""

from pathlib import Path

from monai_iels.data._cache import write_image
from monai_iels.data._cases import Datalists, complete
from monai_iels.data._search import Search, walk
from monai_iels.data._source import Source, generator
from monai_iels.drawings import draw_cityscapes

_SECTIONS = {"training": "train", "validation": "val"}
_FILES = {"image": ("leftImg8bit", "_leftImg8bit.png"), "label": ("gtFine", "_gtFine_labelIds.png")}
"""The folder and the ending of the files of each key."""


def _find(search: Search) -> Datalists:
    """List the official training and validation images, whose cities differ; the release has other files beside them.

    The official test set is left out: its labels are withheld, and its label files only mark all pixels as ignored.
    """
    datalists: Datalists = {}
    names = {key: f"{{id}}{ending}" for key, (_, ending) in _FILES.items()}
    for section, inner in _SECTIONS.items():
        found: dict[str, dict[str, str]] = {}
        for key, (name, ending) in _FILES.items():
            folder = search.folder(name, f"*/*/*{ending}") / inner
            paths = [path for path in walk(folder, search.problems) if path.name.lower().endswith(ending.lower())]
            found[key] = {f"{path.parent.name}/{path.name[: -len(ending)]}": str(path) for path in paths}
            if not paths:
                search.problems.add("missing", folder, f"there are no files named <city>/<id>{ending}")
        datalists[section] = complete(found, names, search.problems)
    return datalists


def _sample(folder: Path, index: int, seed: int, size: int) -> None:
    """Draw a case of one of four invented cities."""
    section, city = ("train", "val")[index % 2], f"drawn{1 + index % 4}"
    image, label = draw_cityscapes(generator(seed, index), (size, 2 * size))
    name = f"{section}/{city}/{city}_{index // 4:06}_000019"
    for (top, ending), pixels in zip(_FILES.values(), (image, label), strict=True):
        write_image(pixels, folder / top / f"{name}{ending}")


CITYSCAPES = Source.from_page("cityscapes", find=_find, sample=_sample)
