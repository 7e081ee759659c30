# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Labels that the tests of the adviser ask about."""

from pathlib import Path

import numpy as np
import torch
from monai.data import MetaTensor
from PIL import Image

from monai_iels.advice import labels_of_source

_VALUES = np.array([0, 128, 255], np.uint8)


def disc(size=96, radius=30):
    y, x = np.ogrid[:size, :size]
    return ((y - size // 2) ** 2 + (x - size // 2) ** 2 < radius**2).astype(np.int16)


def spoil(root, error, target=None):
    """Apply an error to the label files of cells, in place or as class numbers in another folder."""
    for file in map(Path, labels_of_source("wbc", root).files):
        classes = np.searchsorted(_VALUES, np.array(Image.open(file)))
        label = MetaTensor(torch.from_numpy(classes)[None].float(), meta={"filename_or_obj": file.name})
        changed = np.asarray(error(label) if error else label)[0].astype(np.uint8)
        if target:
            target.mkdir(parents=True, exist_ok=True)
        Image.fromarray(changed if target else _VALUES[changed]).save(target / file.name if target else file)
