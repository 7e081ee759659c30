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
"""The checker: finds what is broken in a data set before a training does."""

import dataclasses
import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from monai.config import PathLike
from PIL import Image
from tqdm import tqdm

from monai_iels.data._cases import Case, Datalists, all_cases, all_files, case_files
from monai_iels.data._images import Header, explained, in_words, open_header, open_image, open_mask
from monai_iels.data._labels import LabelValues
from monai_iels.data._problems import Problem, Problems
from monai_iels.data._source import Source


@dataclasses.dataclass(frozen=True)
class Report:
    """What a check found.

    Args:
        dataset: name of the data set.
        root: folder that was checked.
        counts: cases per section, sound or damaged.
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
        lines = [str(problem) for problem in self.problems]
        found = _list_counts(self.counts) or "no cases"
        lines.append(f"{self.dataset} in {self.root}: {self.files} files opened; {found}.")
        if self.counts and self.counts != self.official:
            official = _list_counts(self.official)
            lines.append(f"The official release has {official}: if you did not choose a part of it, some are missing.")
        count = len(self.problems)
        lines.append(f"{count or 'No'} problem{'s' if count > 1 else ''} found.")
        return "\n".join(lines)


def _list_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {section}" for section, count in counts.items())


def check_source(source: Source, root: PathLike, cache_dir: PathLike | None = None) -> Report:
    """Open every file of a data set and report all that is wrong."""
    problems = Problems()
    datalists = source.list_files(root, 0, cache_dir, problems)
    cases, values = all_cases(datalists), LabelValues(source.values)
    for case in tqdm(cases, desc=f"Checking {source.title}", unit="case", disable=None if cases else True):
        problems += _check_contents(case, values)
    return Report(
        dataset=source.name,
        root=str(root),
        counts={name: len(section) for name, section in datalists.items()},
        official=dict(source.counts),
        files=len(all_files(datalists)),
        problems=tuple(problems),
    )


def check_headers(datalists: Datalists) -> None:
    """Open the header of every file, and compare images and masks: fast enough for the start of a training.

    Raises:
        DataError: naming all files that are not sound.
    """
    problems = Problems()
    for case in all_cases(datalists):
        problems += _check_headers(case, {})
    problems.raise_if_any()


def _check_headers(case: Case, headers: dict[str, Header]) -> Problems:
    """Compare the size and affine of each mask with the image's; ``headers`` gets those that can be read."""
    problems = Problems()
    for file in case_files(case):
        with problems.collect():
            headers[file] = open_header(file)
    image = str(case["image"])
    for file, header in headers.items():
        reference = headers.get(image, header)
        if header.shape != reference.shape:
            problem = f"its size is {in_words(header.shape)}, but {Path(image).name} has {in_words(reference.shape)}"
            problems.add("size", file, problem)
        elif not np.allclose(header.affine, reference.affine, atol=1e-3):  # orienting them would move them apart
            problems.add("size", file, f"its affine (position and axes) differs from that of {Path(image).name}")
    return problems


def _check_contents(case: Case, values: LabelValues) -> Problems:
    """Read all pixels of a case, as far as the headers can be read, and compare its masks with the label values."""
    headers: dict[str, Header] = {}
    problems = _check_headers(case, headers)
    for file in headers:
        with problems.collect():
            if file != case["image"]:
                values.check(open_mask(file), file)
            elif not np.isfinite(open_image(file)).all():
                problems.add("values", file, "the image has NaN or infinite values", "Repair the image.")
    if not problems:
        for file in headers:
            with problems.collect():
                _check_checksum(file)
    return problems


def _check_checksum(file: str) -> None:
    """Compare the checksums that gzip and PNG files carry."""
    with explained(file):
        if file.lower().endswith(".gz"):
            gzip.decompress(Path(file).read_bytes())
        elif file.lower().endswith(".png"):
            with Image.open(file) as image:
                image.verify()
