# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""The checker: finds what is broken in a data set before a training does."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from monai.config import PathLike
from monai.data import ImageReader
from tqdm import tqdm

from monai_iels.data._cases import Datalists, all_cases, all_files, case_files
from monai_iels.data._images import read_file, read_headers
from monai_iels.data._labels import Values, find_strays
from monai_iels.data._problems import Problem, Problems, in_lines
from monai_iels.data._source import Source
from monai_iels.images import format_of


@dataclasses.dataclass(frozen=True)
class Report:
    """What a check found.

    Args:
        dataset: name of the data set.
        root: folder that was checked.
        counts: cases per section, sound or damaged.
        official: cases per section in the official release; nothing for data of your own.
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
        lines = in_lines(self.problems)
        found = _list_counts(self.counts) or "no cases"
        lines.append(f"{self.dataset} in {self.root}: {self.files} files opened; {found}.")
        if self.counts and self.official not in ({}, self.counts):
            official = _list_counts(self.official)
            lines.append(f"The official release has {official}: if you did not choose a part of it, some are missing.")
        count = len(self.problems)
        lines.append(f"{count or 'No'} problem{'s' if count > 1 else ''} found.")
        return "\n".join(lines)


def _list_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {section}" for section, count in counts.items())


def check_source(source: Source, root: PathLike, cache_dir: PathLike | None = None) -> Report:
    """Open every file of one of the six data sets and report all that is wrong."""
    problems = Problems()
    datalists = source.list_files(root, 0, cache_dir, problems)
    keys = {key for case in all_cases(datalists) for key in case} - {"image"}
    file = next(iter(all_files(datalists)), "")
    reader_of = format_of(file).reader
    readers = reader_of(lambda image: image.convert("RGB")), reader_of(source.convert)
    problems += check_files(datalists, keys, *readers, source.values, source.ignored)
    return make_report(source.name, root, datalists, problems, source.counts)


def make_report(
    name: str, root: PathLike, datalists: Datalists, problems: Problems, official: Mapping[str, int]
) -> Report:
    """Return what a check of these cases found."""
    counts = {section: len(cases) for section, cases in datalists.items()}
    return Report(name, str(root), counts, dict(official), len(all_files(datalists)), tuple(problems))


def check_files(
    datalists: Datalists,
    keys: Collection[str],
    image_reader: ImageReader,
    label_reader: ImageReader,
    values: Values,
    ignored: Sequence[int] = (),
) -> Problems:
    """Read every file as a training does, and return what is wrong.

    Args:
        datalists: the cases of each section.
        keys: keys of the labels.
        image_reader: reads an image.
        label_reader: reads a label.
        values: for each class, background first, the value or values that stand for it in a label.
        ignored: values of pixels to leave out.
    """
    problems = Problems()
    labels: list[str] = []
    cases = all_cases(datalists)
    for case in tqdm(cases, desc="Checking cases", unit="case", disable=None if cases else True):
        headers = read_headers(case, problems)
        labels += [file for file in case_files(case, keys) if file in headers]
        if case["image"] in headers:
            with problems.collect():
                read_file(case["image"], image_reader)
    problems += find_strays(labels, label_reader, values, ignored)
    return problems
