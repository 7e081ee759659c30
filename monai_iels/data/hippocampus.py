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
from collections.abc import Iterator
from pathlib import Path

import nibabel
import numpy as np
from monai.config import PathLike
from monai.data import load_decathlon_datalist

from monai_iels.data.files import Case, Datalists, folder_below, listing
from monai_iels.data.problems import DataError, Problem
from monai_iels.data.source import Archive, Source, generator, split
from monai_iels.data.synthetic.hippocampus import draw_hippocampus

__all__ = ["HIPPOCAMPUS", "read_hippocampus"]

_LABELS = {"0": "background", "1": "Anterior", "2": "Posterior"}


def read_hippocampus(root: PathLike, seed: int = 0, cache_dir: PathLike | None = None) -> Datalists:
    """List the labeled volumes of Task 4: 208 for training, 52 for validation.

    The release labels its 260 training volumes only. They are shuffled by ``seed``, and the last of five folds is kept
    for validation.

    Args:
        root: the folder that has ``Task04_Hippocampus``.
        seed: seed of the split.
        cache_dir: where an archive is unpacked, if ``root`` holds one instead of the folder.

    Returns:
        ``{"training": [...], "validation": [...]}`` of ``{"image": "....nii.gz", "label": "....nii.gz"}``; in a label
        0 is background, 1 anterior, 2 posterior.
    """
    return HIPPOCAMPUS.read(root, seed, cache_dir)


def _find(root: Path, seed: int, cache_dir: PathLike | None, problems: list[Problem]) -> Datalists:
    folder = folder_below(root, "Task04_Hippocampus", "dataset.json", cache_dir)
    try:
        listed = load_decathlon_datalist(folder / "dataset.json", data_list_key="training")
        cases: list[Case] = [{key: os.path.normpath(item[key]) for key in ("image", "label")} for item in listed]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        expected = "a Decathlon data list with images and labels under 'training'"
        problem = Problem(
            "unreadable", str(folder / "dataset.json"), expected, f"'{error}'", "Copy the file again from its source."
        )
        raise DataError([problem]) from error
    for path in sorted({Path(str(path)) for case in cases for path in case.values()}):
        if not path.is_relative_to(folder):
            remedy = "Copy the file there, or take the case out of dataset.json."
            problems.append(Problem("extra", str(path), f"only files below {folder} in dataset.json", "it", remedy))
    known = [path for case in cases for path in case.values()]
    for repeated in sorted({str(path) for path in known if known.count(path) > 1}):
        remedy = "Keep one of them in dataset.json: a case may not be in training and validation."
        problems.append(Problem("extra", repeated, "one mention in dataset.json", "several", remedy))
    for path in (p for name in ("imagesTr", "labelsTr") if (folder / name).is_dir() for p in listing(folder / name)):
        if str(path) not in known:
            problems.append(
                Problem("extra", str(path), "what dataset.json lists", "another", "List the file there, or move it.")
            )
    complete = []
    for case in sorted(cases, key=lambda case: case["image"]):
        missing = [file for file in case.values() if not os.path.lexists(str(file))]
        for file in missing:
            remedy = "Copy it from the source, or take the case out of dataset.json."
            problems.append(Problem("missing", str(file), "the file that dataset.json lists", "none", remedy))
        if not missing:
            complete.append(case)
    return split(complete, 0.2, seed)


def _sample(folder: Path, count: int, seed: int, size: int) -> Iterator[None]:
    folder = folder / "Task04_Hippocampus"
    affine = np.eye(4)
    affine[:3, 3] = 1.0
    names = [f"hippocampus_{index + 1:03}.nii.gz" for index in range(count)]
    for name in ("imagesTr", "labelsTr"):
        (folder / name).mkdir(parents=True)
    for index, name in enumerate(names):
        rng = generator(seed, index)
        around = rng.integers(-size // 15, size // 15 + 1, 3)
        x, y, z = (int(n) for n in np.round([size * 0.7, size, size * 0.7]) + around)
        volume, label = draw_hippocampus(rng, (x, y, z))
        for directory, array in (("imagesTr", volume), ("labelsTr", label)):
            image = nibabel.Nifti1Image(array, affine)
            image.header.set_xyzt_units("mm", "sec")
            nibabel.save(image, folder / directory / name)
        yield
    description = {
        "name": "Hippocampus",
        "description": "Synthetic volumes that stand in for left and right hippocampus",
        "tensorImageSize": "3D",
        "modality": {"0": "MRI"},
        "labels": _LABELS,
        "numTraining": count,
        "numTest": 0,
        "training": [{"image": f"./imagesTr/{name}", "label": f"./labelsTr/{name}"} for name in names],
        "test": [],
    }
    (folder / "dataset.json").write_text(json.dumps(description, indent=1))


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
        md5="9d24dba78a72977dbd1d2e110310f31b",
        contents="b3291b6e64ece6296e31c80b33ac43f3f251719ff97eb81715924ab151f394a5",
    ),
)
