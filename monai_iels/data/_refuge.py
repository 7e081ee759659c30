# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""REFUGE: optic disc and cup in fundus photographs."""

from pathlib import Path

import numpy as np

from monai_iels.data._cache import write_image
from monai_iels.data._cases import Datalists, pair
from monai_iels.data._search import Search
from monai_iels.data._source import Source, generator
from monai_iels.drawings import draw_refuge

_LAYOUT = (
    ("training", "Training400/Glaucoma/g{id}.jpg", "Annotation-Training400/Disc_Cup_Masks/Glaucoma/g{id}.bmp"),
    ("validation", "REFUGE-Validation400/V{id}.jpg", "REFUGE-Validation400-GT/Disc_Cup_Masks/V{id}.bmp"),
    ("test", "REFUGE-Test400/T{id}.jpg", "REFUGE-Test-GT/Disc_Cup_Masks/T{id}.bmp"),
    ("training", "Training400/Non-Glaucoma/n{id}.jpg", "Annotation-Training400/Disc_Cup_Masks/Non-Glaucoma/n{id}.bmp"),
)
"""The official sections with the paths of an image and its mask."""


def _find(search: Search) -> Datalists:
    """List the photographs of the official sections; the test section may be missing."""
    datalists: Datalists = {"training": [], "validation": [], "test": []}
    for section, *paths in _LAYOUT:
        names = [path.split("/", 1) for path in paths]
        wanted = [(folder, file.format(id="*")) for folder, file in names]
        if section != "test" or search.find(*wanted[0]):
            image, label = (str(search.folder(*each) / file) for each, (_, file) in zip(wanted, names, strict=True))
            datalists[section] += pair(search.root, {"image": image, "label": label}, search.problems)
    return datalists


def _sample(folder: Path, index: int, seed: int, size: int) -> None:
    """Draw a case of one of the three sections, in turn."""
    number, section = divmod(index, 3)
    glaucoma = number % 4 == 0
    image, label = draw_refuge(generator(seed, index), (size, size), glaucoma, traced=section == 0)
    _, *paths = _LAYOUT[section if section or glaucoma else 3]
    image_file, label_file = (folder / path.format(id=f"{number + 1:04}") for path in paths)
    write_image(image, image_file, quality=95, subsampling=0)
    write_image(np.asarray(REFUGE.values, np.uint8)[label], label_file)


REFUGE = Source.from_page("refuge", find=_find, sample=_sample)
