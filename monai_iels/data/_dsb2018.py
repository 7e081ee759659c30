# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""2018 Data Science Bowl: nuclei in images of many kinds, one label file per nucleus."""

import hashlib
from pathlib import Path

import numpy as np

from monai_iels.data._cache import write_image
from monai_iels.data._cases import Case, Datalists, split
from monai_iels.data._search import Search, listing
from monai_iels.data._source import Source, generator
from monai_iels.drawings import draw_dsb2018

_PROPORTIONS = ((1.0, 1.0), (1.0, 1.0), (1.0, 1.25), (1.0, 1.0), (1.4, 1.4), (2.0, 2.7))
"""Height and width of the synthetic images, in turn, relative to their nominal size: the originals have nine sizes."""


def _find(search: Search) -> Datalists:
    """List the images of stage 1, a tenth of them for validation.

    The paper states 607 and 67, together 674, but the official training set has 670 images: its split cannot be
    reproduced.
    """
    cases: list[Case] = []
    for folder in listing(search.folder("stage1_train", "*/images/*.png")):
        images, masks = listing(folder / "images"), listing(folder / "masks")
        if masks and [image.name for image in images] == [f"{folder.name}.png"]:
            cases.append({"image": str(images[0]), "label": list(map(str, masks))})
        else:
            search.problems.add("extra", folder, "it must have images/<id>.png, named like it, and masks/*.png")
    return split(cases, 0.1, search.seed)


def _sample(folder: Path, index: int, seed: int, size: int) -> None:
    scale = _PROPORTIONS[index % len(_PROPORTIONS)]
    image, nuclei = draw_dsb2018(generator(seed, index), (round(size * scale[0]), round(size * scale[1])))
    identity = hashlib.sha256(f"{seed} {index}".encode()).hexdigest()
    directory = folder / "stage1_train" / identity
    opaque = np.full(image.shape[:2], 255, np.uint8)
    write_image(np.dstack([image, opaque]), directory / "images" / f"{identity}.png")
    for nucleus in range(1, int(nuclei.max()) + 1):
        name = hashlib.sha256(f"{identity} {nucleus}".encode()).hexdigest()
        mask = np.where(nuclei == nucleus, np.uint8(255), np.uint8(0))
        write_image(mask, directory / "masks" / f"{name}.png")


DSB2018 = Source.from_page("dsb2018", find=_find, sample=_sample)
