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

"""DRIVE: retinal vessels in fundus photographs, by two observers, inside a field of view."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from monai.config import PathLike
from PIL import Image

from monai_iels.data.cache import write_image
from monai_iels.data.files import Datalists, folder_below, pair
from monai_iels.data.problems import DataError, Problem
from monai_iels.data.source import Source, generator
from monai_iels.data.synthetic.drive import draw_drive

__all__ = ["DRIVE", "read_drive"]

_FILES = {
    "training": (
        "training",
        {
            "image": "images/{id}_training.tif",
            "label": "1st_manual/{id}_manual1.gif",
            "fov": "mask/{id}_training_mask.gif",
        },
    ),
    "validation": (
        "test",
        {
            "image": "images/{id}_test.tif",
            "label": "1st_manual/{id}_manual1.gif",
            "fov": "mask/{id}_test_mask.gif",
            "second": "2nd_manual/{id}_manual2.gif",
        },
    ),
}
"""To each section, its official folder, and in it the file of each key."""

_BRIGHT = {"label": 255, "fov": 255}


def read_drive(root: PathLike, seed: int = 0, cache_dir: PathLike | None = None) -> Datalists:
    """List the photographs of DRIVE: the official 20 for training and 20 for testing, which the paper validates on.

    Args:
        root: the folder that has ``training`` and ``test``.
        seed: not used, since the split is the official one.
        cache_dir: where an archive is unpacked, if ``root`` holds one instead of the folder.

    Returns:
        ``{"training": [...], "validation": [...]}`` of ``{"image": "....tif", "label": "....gif", "fov": "....gif"}``,
        where ``fov`` is the field of view outside which nothing counts; where the release has the second observer's
        vessels, they are under ``second``. Masks are 0 and 255, the second observer's 0 and 1.
    """
    return DRIVE.read(root, seed, cache_dir)


def _find(root: Path, seed: int, cache_dir: PathLike | None, problems: list[Problem]) -> Datalists:
    datalists: Datalists = {}
    for section, (name, files) in _FILES.items():
        datalists[section] = []
        try:
            folder = folder_below(root, name, files["image"].format(id="*"), cache_dir)
            datalists[section] = pair(folder, files, problems, optional=("second",))
        except DataError as error:
            known = {problem.file for problem in problems}
            problems.extend(problem for problem in error.problems if problem.file not in known)
    return datalists


def _sample(folder: Path, count: int, seed: int, size: int) -> Iterator[None]:
    shape = (size, max(24, round(size * 565 / 584)))
    for index in range(count):
        section = "training" if index % 2 == 0 else "validation"
        name, files = _FILES[section]
        identity = f"{index // 2 + (21 if section == 'training' else 1):02}"
        drawn = dict(zip(("image", "label", "fov", "second"), draw_drive(generator(seed, index), shape), strict=True))
        for key, file in files.items():
            path = folder / name / file.format(id=identity)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_image(Image.fromarray(drawn[key] * np.uint8(_BRIGHT.get(key, 1))), path)
        yield


DRIVE = Source(
    name="drive",
    title="DRIVE",
    layout="\n".join(
        f"{name}/{file.format(id='21' if name == 'training' else '01')}"
        for name, files in _FILES.values()
        for file in files.values()
    ),
    terms=(
        "Free for research after registration, not to be passed on; cite Staal et al., IEEE TMI 23(4), 2004.\n"
        "Register at https://drive.grand-challenge.org, join the challenge, download `training.zip` and `test.zip`.\n"
        "Recent downloads withhold the labels of the test images (1st_manual, 2nd_manual): ask the organizers for them."
    ),
    classes=("background", "vessel"),
    values=(0, (1, 255)),
    counts={"training": 20, "validation": 20},
    find=_find,
    sample=_sample,
    size=584,
)
