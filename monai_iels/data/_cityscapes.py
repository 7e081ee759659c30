# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Cityscapes: street scenes of many cities, with 19 classes and pixels that do not count."""

from pathlib import Path

from monai_iels.data._cache import write_image
from monai_iels.data._cases import Case, Datalists, complete
from monai_iels.data._problems import Problems
from monai_iels.data._search import Search, walk
from monai_iels.data._source import Source, generator
from monai_iels.drawings import draw_cityscapes

_FOLDERS = {"training": "train", "validation": "val"}
_ENDINGS = {"image": "_leftImg8bit.png", "label": "_gtFine_labelIds.png"}


def _find(search: Search) -> Datalists:
    """List the official training and validation images, whose cities differ.

    The official test set is left out: its labels are withheld, and its label files only mark all pixels as ignored.
    """
    folders = {
        "image": search.folder("leftImg8bit", f"*/*/*{_ENDINGS['image']}"),
        "label": search.folder("gtFine", f"*/*/*{_ENDINGS['label']}"),
    }
    return {
        section: _pair({key: folder / name for key, folder in folders.items()}, search.problems)
        for section, name in _FOLDERS.items()
    }


def _pair(folders: dict[str, Path], problems: Problems) -> list[Case]:
    """Match the images and labels of a section by city and name; the release has other files beside them."""
    found: dict[str, dict[str, str]] = {}
    for key, folder in folders.items():
        ending = _ENDINGS[key]
        paths = [path for path in walk(folder, problems) if path.name.lower().endswith(ending.lower())]
        found[key] = {f"{path.parent.name}/{path.name[: -len(ending)]}": str(path) for path in paths}
        if not paths:
            problems.add("missing", folder, f"there are no files named <city>/<id>{ending}")
    return complete(found, {key: f"{{id}}{ending}" for key, ending in _ENDINGS.items()}, problems)


def _sample(folder: Path, index: int, seed: int, size: int) -> None:
    """Draw a case of one of four invented cities."""
    section, city = ("train", "val")[index % 2], f"drawn{1 + index % 4}"
    image, label = draw_cityscapes(generator(seed, index), (size, 2 * size))
    name = f"{section}/{city}/{city}_{index // 4:06}_000019"
    write_image(image, folder / "leftImg8bit" / f"{name}{_ENDINGS['image']}")
    write_image(label, folder / "gtFine" / f"{name}{_ENDINGS['label']}")


CITYSCAPES = Source.from_page("cityscapes", find=_find, sample=_sample)
