# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""DRIVE: retinal vessels in fundus photographs, inside a field of view."""

from pathlib import Path

from monai_iels.data._cache import write_image
from monai_iels.data._cases import Datalists, pair
from monai_iels.data._search import Search
from monai_iels.data._source import Source, generator
from monai_iels.drawings import draw_drive

_FOLDERS = {"training": "training", "validation": "test"}
_FILES = {"image": "images/{id}_FOLDER.tif", "label": "1st_manual/{id}_manual1.gif", "fov": "mask/{id}_FOLDER_mask.gif"}


def _find(search: Search) -> Datalists:
    """List the official training images, and the official test images, which the paper validates on."""
    datalists: Datalists = {}
    for section, name in _FOLDERS.items():
        folder = search.folder(name, f"images/*_{name}.tif")
        files = {key: file.replace("FOLDER", name) for key, file in _FILES.items()}
        datalists[section] = pair(folder, files, search.problems)
    return datalists


def _sample(folder: Path, index: int, seed: int, size: int) -> None:
    shape = (size, max(24, round(size * 565 / 584)))
    name, number = ("training", 21 + index // 2) if index % 2 == 0 else ("test", 1 + index // 2)
    image, vessels, field = draw_drive(generator(seed, index), shape)
    for file, pixels in zip(_FILES.values(), (image, 255 * vessels, 255 * field), strict=True):
        write_image(pixels, folder / name / file.replace("FOLDER", name).format(id=f"{number:02}"))


DRIVE = Source.from_page("drive", find=_find, sample=_sample)
