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

"""Finding what is broken in a data set before training does."""

import dataclasses
import gzip
import os
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
from monai.config import PathLike
from monai.data import ImageReader
from PIL import Image
from tqdm import tqdm

from monai_iels.data.files import Case, Datalists
from monai_iels.data.images import (
    LoadFiled,
    explain,
    foreign_values,
    listed_values,
    open_image,
    open_mask,
    open_shape,
    per_class,
)
from monai_iels.data.problems import DataError, Problem
from monai_iels.data.source import Source, case_files

__all__ = ["Report", "check_contents", "check_headers", "check_labels", "check_source"]

_FEW = 5  # more stray values than these are no classes


@dataclasses.dataclass(frozen=True)
class Report:
    """What a check found.

    Args:
        dataset: name of the data set.
        root: folder that was checked.
        counts: sound and damaged cases per section.
        official: cases per section in the official release.
        files: number of files that were opened.
        problems: everything that is wrong.
    """

    dataset: str
    root: str
    counts: dict[str, int]
    official: dict[str, int]
    files: int
    problems: tuple[Problem, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the report for a machine."""
        return {"ok": not self.problems, **dataclasses.asdict(self)}

    def __str__(self) -> str:
        found = ", ".join(f"{count} {name}" for name, count in self.counts.items())
        lines = [str(problem) for problem in self.problems]
        lines.append(f"{self.dataset} in {self.root}: {self.files} files opened; {found or 'no cases'}.")
        if self.counts and self.counts != self.official:
            official = ", ".join(f"{count} {name}" for name, count in self.official.items())
            lines.append(f"The official release has {official}: if you did not choose a part of it, some are missing.")
        count = len(self.problems)
        lines.append(f"{count} problem{'s' if count > 1 else ''} found." if count else "No problem found.")
        return "\n".join(lines)


def check_source(source: Source, root: PathLike, cache_dir: PathLike | None = None) -> Report:
    """Open every file of a data set and collect all that is wrong."""
    problems: list[Problem] = []
    datalists: Datalists = {}
    try:
        datalists = source.list_files(root, 0, cache_dir, problems)
    except DataError as error:
        problems.extend(error.problems)
    cases = [case for section in datalists.values() for case in section]
    for case in tqdm(cases, desc=f"Checking {source.title}", unit="case", disable=None if cases else True):
        problems.extend(check_contents(case, source))
    return Report(
        dataset=source.name,
        root=str(root),
        counts={name: len(section) for name, section in datalists.items()},
        official=dict(source.counts),
        files=sum(len(case_files(case)) for case in cases),
        problems=tuple(problems),
    )


def check_headers(datalists: Datalists) -> None:
    """Open the header of every file, and compare the sizes of image and masks: what training can afford at its start.

    Raises:
        DataError: with the list of all files that are not sound.
    """
    cases = [case for section in datalists.values() for case in section]
    problems = [problem for case in cases for problem in _sizes(case)]
    if problems:
        raise DataError(problems)


def check_labels(
    datalists: Datalists, keys: Sequence[str], reader: ImageReader, values: Sequence[int | Sequence[int]]
) -> None:
    """Read every label as a training does, and name all files with values that stand for no class.

    Args:
        datalists: the cases of each section.
        keys: keys of the labels.
        reader: reads a label.
        values: to each class, background first, the value or values that stand for it.

    Raises:
        DataError: with all these files, their values, and the ``label_values`` that would accept them.
    """
    load, groups = LoadFiled("label", reader), per_class(values)
    labels = [{key: case[key] for key in keys if key in case} for cases in datalists.values() for case in cases]
    files = list(dict.fromkeys(file for label in labels for file in case_files(label)))
    problems: list[Problem] = []
    strays: dict[str, list[float]] = {}
    for file in files:
        try:
            pixels = load({"label": file})["label"].numpy()
        except DataError as error:
            problems.extend(error.problems)
            continue
        stray = ~np.isin(pixels, np.concatenate(groups))
        if stray.any():
            strays[file] = np.unique(pixels[stray]).tolist()
    if strays:
        problems.append(_name_strays(strays, len(files), groups))
    if problems:
        raise DataError(problems)


def _name_strays(strays: dict[str, list[float]], count: int, values: list[tuple[int, ...]]) -> Problem:
    folder = os.path.commonpath([os.path.dirname(file) for file in strays])
    named = (f"{os.path.relpath(file, folder)} ({listed_values(found)})" for file, found in strays.items())
    found = f"others in {len(strays)} of {count} files: {', '.join(named)}"
    expected = f"only the label values {', '.join(str(v) for group in values for v in group)}"
    return Problem("values", folder, expected, found, _accepting(sorted(set(chain(*strays.values()))), values))


def _accepting(strays: list[float], values: list[tuple[int, ...]]) -> str:
    """Say how to accept stray values, where that can be meant: many are the mark of a mask that was smoothed."""
    if len(strays) > _FEW or any(value % 1 for value in strays):
        return (
            f"These are {len(strays)} different values, as in a mask that was resized with interpolation or saved as "
            "JPEG: save the masks again with only their own values."
        )
    numbers = [int(value) for value in strays]
    known = [list(group) if len(group) > 1 else group[0] for group in values]
    part, own = [*known[:-1], [*values[-1], *numbers]], [*known, *numbers]
    return (
        f"Correct the files, or say what the values stand for: as part of a class, here the last, "
        f'--label_values "{part}"; as classes of their own, --label_values "{own}" --num_classes {len(own)}.'
    )


def check_contents(case: Case, source: Source) -> list[Problem]:
    """Read all pixels of a case, and the values of its masks."""
    problems = _sizes(case)
    unreadable = {problem.file for problem in problems if problem.kind != "size"}
    for key, value in case.items():
        for file in case_files({key: value}):
            if file not in unreadable:
                problems.extend(_values(file, source) if key != "image" else _intensities(file))
    return problems or _integrity(case)


def _integrity(case: Case) -> list[Problem]:
    """Compare the checksums that gzip and PNG files carry."""
    problems = []
    for file in case_files(case):
        try:
            if file.lower().endswith(".gz"):
                with gzip.open(file) as stream:
                    while stream.read(1 << 20):
                        pass
            elif file.lower().endswith(".png"):
                with Image.open(file) as image:
                    image.verify()
        except Exception as error:
            problems.append(explain(file, error))
    return problems


def _sizes(case: Case) -> list[Problem]:
    """Compare each mask's size with the image's, from their headers."""
    problems: list[Problem] = []
    expected: tuple[int, ...] | None = None
    for file in case_files(case):
        try:
            size = open_shape(file)
        except DataError as error:
            problems.extend(error.problems)
            continue
        if file == case["image"]:
            expected = size
        elif expected is not None and size != expected:
            image = Path(str(case["image"])).name
            shown = [" x ".join(map(str, numbers)) for numbers in (expected, size)]
            remedy = "Copy both again from their source, or draw the mask again."
            problems.append(Problem("size", file, f"the size of {image}, {shown[0]}", shown[1], remedy))
    return problems or _places(case)


def _places(case: Case) -> list[Problem]:
    """Compare the affine of a volume's labels with its own: turned by another one, they would not fit any more."""
    problems = []
    volumes = [file for file in case_files(case) if file.lower().endswith((".nii", ".nii.gz"))]
    affines = [nibabel.loadsave.load(file).affine for file in volumes]  # type: ignore[attr-defined]
    for file, affine in list(zip(volumes, affines, strict=True))[1:]:
        if not np.allclose(affine, affines[0], atol=1e-3):
            expected = f"the position and axes of {Path(volumes[0]).name}"
            problems.append(Problem("size", file, expected, "another affine", "Copy both again from their source."))
    return problems


def _values(file: str, source: Source) -> list[Problem]:
    try:
        pixels = open_mask(file)
    except DataError as error:
        return list(error.problems)
    # counting is much faster than sorting, and most masks are bytes
    found = np.flatnonzero(np.bincount(pixels.ravel())) if pixels.dtype == np.uint8 else np.unique(pixels)
    allowed = [value for group in per_class(source.values) for value in group]
    return [] if np.isin(found, allowed).all() else [foreign_values(file, found, source.values)]


def _intensities(file: str) -> list[Problem]:
    try:
        finite = np.isfinite(open_image(file)).all()
    except DataError as error:
        return list(error.problems)
    return [] if finite else [Problem("values", file, "finite values", "NaN or infinite ones", "Repair the image.")]
