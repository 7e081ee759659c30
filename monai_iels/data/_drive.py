# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""DRIVE: retinal vessels in fundus photographs, by two observers, inside a field of view."""

from pathlib import Path

import numpy as np

from monai_iels.data._cache import write_image
from monai_iels.data._cases import Datalists, pair
from monai_iels.data._search import Search
from monai_iels.data._source import Source, generator
from monai_iels.drawings import draw_drive

_FOLDERS = {"training": "training", "validation": "test"}
_BRIGHT = {"label": 255, "fov": 255}


def _files(folder: str, has_second: bool) -> dict[str, str]:
    """Return the file of each key in one of the official folders, with or without the second observer."""
    files = {
        "image": f"images/{{id}}_{folder}.tif",
        "label": "1st_manual/{id}_manual1.gif",
        "fov": f"mask/{{id}}_{folder}_mask.gif",
    }
    return files | {"second": "2nd_manual/{id}_manual2.gif"} if has_second else files


def _find(search: Search) -> Datalists:
    """List the official training images, and the official test images, which the paper validates on."""
    datalists: Datalists = {section: [] for section in _FOLDERS}
    with search.problems.collect():
        for section, name in _FOLDERS.items():
            folder = search.folder(name, f"images/*_{name}.tif")
            files = _files(name, has_second=(folder / "2nd_manual").is_dir())
            datalists[section] = pair(folder, files, search.problems)
    return datalists


def _sample(folder: Path, index: int, seed: int, size: int) -> None:
    shape = (size, max(24, round(size * 565 / 584)))
    name, number = ("training", 21 + index // 2) if index % 2 == 0 else ("test", 1 + index // 2)
    drawn = dict(zip(_files("test", True), draw_drive(generator(seed, index), shape), strict=True))
    for key, file in _files(name, has_second=name == "test").items():
        write_image(drawn[key] * np.uint8(_BRIGHT.get(key, 1)), folder / name / file.format(id=f"{number:02}"))


DRIVE = Source.from_page("drive", find=_find, sample=_sample)
