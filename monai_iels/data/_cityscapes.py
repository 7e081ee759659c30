# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Cityscapes: street scenes of many cities, with 19 classes and pixels that do not count."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

from monai_iels.data._cache import write_image
from monai_iels.data._cases import Case, Datalists, complete
from monai_iels.data._problems import Problems
from monai_iels.data._search import Search, walk
from monai_iels.data._source import Source, generator
from monai_iels.drawings import draw_cityscapes
from monai_iels.images import IGNORED, as_mask

_FOLDERS = {"training": "train", "validation": "val"}
_IMAGE, _LABEL_IDS, _TRAIN_IDS = "_leftImg8bit.png", "_gtFine_labelIds.png", "_gtFine_labelTrainIds.png"
_IDS = [7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33]  # of the classes
_TABLE = np.arange(256, dtype=np.uint8)  # what is no label id stays as it is, and is found as a stray value
_TABLE[:34] = IGNORED
_TABLE[_IDS] = np.arange(len(_IDS))


def _as_train_ids(image: Image.Image) -> Image.Image:
    """Return a label with the train ids of the 19 classes, and 255 for all else; by its name it may have label ids."""
    mask = as_mask(image)
    return Image.fromarray(_TABLE[np.asarray(mask)]) if _has_label_ids(getattr(image, "filename", "")) else mask


def _has_label_ids(file: str) -> bool:
    return file.lower().endswith(_LABEL_IDS.lower())


def _find(search: Search) -> Datalists:
    """List the official training and validation images, whose cities differ.

    The official test set is left out: its labels are withheld, and its label files only mark all pixels as ignored.
    """
    images = search.folder("leftImg8bit", f"*/*/*{_IMAGE}")
    labels = search.folder("gtFine", "*/*/*_gtFine_label*Ids.png")
    return {section: _pair(images / name, labels / name, search.problems) for section, name in _FOLDERS.items()}


def _pair(images: Path, labels: Path, problems: Problems) -> list[Case]:
    """Match the images of a section with their train ids, or with their label ids where there are no train ids."""
    paths = list(walk(labels, problems))
    found = {"image": _by_id(walk(images, problems), _IMAGE)}
    found["label"] = _by_id(paths, _LABEL_IDS) | _by_id(paths, _TRAIN_IDS)
    endings = {"image": _IMAGE, "label": _LABEL_IDS}
    for key, folder in (("image", images), ("label", labels)):
        if not found[key]:
            problems.add("missing", folder, f"there are no files named <city>/<id>{endings[key]}")
    return complete(found, {key: f"{{id}}{ending}" for key, ending in endings.items()}, problems)


def _by_id(paths: Iterable[Path], ending: str) -> dict[str, str]:
    """Return the files that end so, by city and name; the release has others beside them, which are passed over."""
    files = [path for path in paths if path.name.lower().endswith(ending.lower())]
    return {f"{path.parent.name}/{path.name[: -len(ending)]}": str(path) for path in files}


def _converted_name(case: Case) -> str:
    """Return the name of the train ids that are made from label ids."""
    section, city, name = Path(str(case["label"])).parts[-3:]
    return f"{section}/{city}/{name[: -len(_LABEL_IDS)]}{_TRAIN_IDS}" if _has_label_ids(name) else ""


def _sample(folder: Path, index: int, seed: int, size: int) -> None:
    """Draw a case of one of four invented cities; every second pair of cases has label ids alone."""
    section, city = ("train", "val")[index % 2], f"drawn{1 + index % 4}"
    image, label = draw_cityscapes(generator(seed, index), (size, 2 * size))
    name = f"{section}/{city}/{city}_{index // 4:06}_000019"
    write_image(image, folder / "leftImg8bit" / f"{name}{_IMAGE}")
    write_image(label, folder / "gtFine" / f"{name}{_LABEL_IDS}")
    if index % 4 < 2:
        write_image(_TABLE[label], folder / "gtFine" / f"{name}{_TRAIN_IDS}")


CITYSCAPES = Source.from_page(
    "cityscapes", find=_find, sample=_sample, convert=_as_train_ids, converted_name=_converted_name
)
