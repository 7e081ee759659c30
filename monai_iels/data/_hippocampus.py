# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Hippocampus: anterior and posterior hippocampus in MRI, Task 4 of the Medical Segmentation Decathlon."""

from pathlib import Path

import nibabel
import numpy as np

from monai_iels.data._cases import Datalists, pair, split
from monai_iels.data._search import Search
from monai_iels.data._source import Source, generator
from monai_iels.drawings import draw_hippocampus

_FILES = {"image": "imagesTr/{id}.nii.gz", "label": "labelsTr/{id}.nii.gz"}


def _find(search: Search) -> Datalists:
    """List the 260 volumes that have labels, a fifth of them for validation."""
    folder = search.folder("Task04_Hippocampus", "imagesTr/*.nii.gz")
    return split(pair(folder, _FILES, search.problems), 0.2, search.seed)


def _sample(folder: Path, index: int, seed: int, size: int) -> None:
    rng = generator(seed, index)
    around = rng.integers(-size // 15, size // 15 + 1, 3)
    x, y, z = (int(n) for n in np.round([size * 0.7, size, size * 0.7]) + around)
    affine = np.eye(4)
    affine[:3, 3] = 1.0
    for pattern, array in zip(_FILES.values(), draw_hippocampus(rng, (x, y, z)), strict=True):
        image = nibabel.Nifti1Image(array, affine)
        image.header.set_xyzt_units("mm", "sec")
        file = folder / "Task04_Hippocampus" / pattern.format(id=f"hippocampus_{index + 1:03}")
        file.parent.mkdir(parents=True, exist_ok=True)
        nibabel.save(image, file)


HIPPOCAMPUS = Source.from_page("hippocampus", find=_find, sample=_sample)
