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
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
from monai.config import PathLike
from PIL import Image
from tqdm import tqdm

from monai_iels.data.files import Case, Datalists
from monai_iels.data.images import explain, foreign_values, open_image, open_mask, open_shape, per_class
from monai_iels.data.problems import DataError, Problem
from monai_iels.data.source import Source, case_files

__all__ = ["Report", "check_contents", "check_headers", "check_source"]


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
    """Compare the checksums that gzip and PNG files carry, and the axes of a volume with its label's."""
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
    volumes = [file for file in case_files(case) if file.lower().endswith((".nii", ".nii.gz"))]
    for file in volumes[1:] if not problems else []:
        if not np.allclose(nibabel.nifti1.load(file).affine, nibabel.nifti1.load(volumes[0]).affine, atol=1e-3):
            expected = f"the position and axes of {Path(volumes[0]).name}"
            problems.append(Problem("size", file, expected, "another affine", "Copy both again from their source."))
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
