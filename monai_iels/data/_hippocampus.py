# Copyright the monai_iels contributors
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#     http://www.apache.org/licenses/LICENSE-2.0
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""Hippocampus: anterior and posterior hippocampus in MRI, Task 4 of the Medical Segmentation Decathlon."""

import json
import os
from collections import Counter
from itertools import chain
from pathlib import Path

import nibabel
import numpy as np
from monai.data import load_decathlon_datalist

from iels_drawings.hippocampus import draw_hippocampus
from monai_iels.data._cases import Case, Datalists, case_files, split
from monai_iels.data._problems import DataError, Problem
from monai_iels.data._search import Search, listing
from monai_iels.data._source import Archive, Source, generator


def _find(search: Search) -> Datalists:
    """List the 260 volumes that have labels, a fifth of them for validation."""
    folder = search.folder("Task04_Hippocampus", "dataset.json")
    cases = _read_list(folder / "dataset.json")
    files = Counter(chain.from_iterable(map(case_files, cases)))
    absent = [file for file in files if not os.path.lexists(file)]
    remedy = "Correct dataset.json, or copy the data set again from its source."
    for file, count in sorted(files.items()):
        if not Path(file).is_relative_to(folder):
            search.problems.add("extra", file, f"dataset.json lists this file, but it is not below {folder}", remedy)
        if count > 1:  # a case must not be in both training and validation
            search.problems.add("extra", file, f"dataset.json lists this file {count} times", remedy)
        if file in absent:
            search.problems.add("missing", file, "dataset.json lists this file, but it does not exist", remedy)
    for path in [*listing(folder / "imagesTr"), *listing(folder / "labelsTr")]:
        if str(path) not in files:
            search.problems.add("extra", path, "dataset.json does not list this file")
    complete = [case for case in cases if not set(absent).intersection(case_files(case))]
    return split(sorted(complete, key=lambda case: case["image"]), 0.2, search.seed)


def _read_list(file: Path) -> list[Case]:
    try:
        listed = load_decathlon_datalist(file, data_list_key="training")
        return [{key: os.path.normpath(item[key]) for key in ("image", "label")} for item in listed]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        problem = f"this is not a Decathlon data list with images and labels under 'training' ({error})"
        raise DataError(Problem("unreadable", str(file), problem)) from error


def _sample(folder: Path, index: int, seed: int, size: int) -> None:
    folder = folder / "Task04_Hippocampus"
    rng = generator(seed, index)
    around = rng.integers(-size // 15, size // 15 + 1, 3)
    x, y, z = (int(n) for n in np.round([size * 0.7, size, size * 0.7]) + around)
    volume, label = draw_hippocampus(rng, (x, y, z))
    affine = np.eye(4)
    affine[:3, 3] = 1.0
    names = [f"hippocampus_{number:03}.nii.gz" for number in range(1, index + 2)]
    for directory, array in (("imagesTr", volume), ("labelsTr", label)):
        image = nibabel.Nifti1Image(array, affine)
        image.header.set_xyzt_units("mm", "sec")
        (folder / directory).mkdir(parents=True, exist_ok=True)
        nibabel.save(image, folder / directory / names[-1])
    description = {
        "name": "Hippocampus",
        "description": "Synthetic volumes that stand in for left and right hippocampus",
        "tensorImageSize": "3D",
        "modality": {"0": "MRI"},
        "labels": {"0": "background", "1": "Anterior", "2": "Posterior"},
        "numTraining": len(names),
        "training": [{"image": f"./imagesTr/{name}", "label": f"./labelsTr/{name}"} for name in names],
    }
    (folder / "dataset.json").write_text(json.dumps(description, indent=1))  # grows with each case


HIPPOCAMPUS = Source(
    name="hippocampus",
    title="hippocampus",
    layout=(
        "Task04_Hippocampus/dataset.json                       the data list\n"
        "Task04_Hippocampus/imagesTr/hippocampus_001.nii.gz    a volume\n"
        "Task04_Hippocampus/labelsTr/hippocampus_001.nii.gz    its label: 0 background, 1 anterior, 2 posterior"
    ),
    terms="CC-BY-SA 4.0; cite the Medical Segmentation Decathlon, Antonelli et al., Nature Communications 13, 2022.",
    classes=("background", "anterior", "posterior"),
    values=(0, 1, 2),
    counts={"training": 208, "validation": 52},
    find=_find,
    sample=_sample,
    size=50,
    archive=Archive(
        url="https://msd-for-monai.s3-us-west-2.amazonaws.com/Task04_Hippocampus.tar",
        folder="Task04_Hippocampus",
        checksum="md5:9d24dba78a72977dbd1d2e110310f31b",
        contents="b3291b6e64ece6296e31c80b33ac43f3f251719ff97eb81715924ab151f394a5",
    ),
)
