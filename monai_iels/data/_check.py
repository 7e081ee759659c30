# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""The checker: finds what is broken in a data set before a training does."""

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from monai.config import PathLike
from monai.data import ImageReader
from tqdm import tqdm

from monai_iels.data._cases import Case, Datalists, all_cases, all_files, case_files
from monai_iels.data._images import LoadFiled, read_file, read_headers
from monai_iels.data._labels import LabelValues, LabelValuesd
from monai_iels.data._problems import Problem, Problems, in_lines
from monai_iels.data._source import Source
from monai_iels.images import as_mask, format_of


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
        found, official = (
            ", ".join(f"{count} {section}" for section, count in counts.items())
            for counts in (self.counts, self.official)
        )
        lines.append(f"{self.dataset} in {self.root}: {self.files} files opened; {found or 'no cases'}.")
        if found and official not in ("", found):
            lines.append(f"The official release has {official}: if you did not choose a part of it, some are missing.")
        count = len(self.problems)
        lines.append(f"{count or 'No'} problem{'s' if count > 1 else ''} found.")
        return "\n".join(lines)


def make_report(
    name: str, root: PathLike, datalists: Datalists, problems: Problems, official: Mapping[str, int]
) -> Report:
    """Return what a check of these cases found."""
    counts = {section: len(cases) for section, cases in datalists.items()}
    return Report(name, str(root), counts, dict(official), len(all_files(datalists)), tuple(problems))


def check_source(source: Source, root: PathLike, cache_dir: PathLike | None = None) -> Report:
    """Open every file of one of the six data sets and report all that is wrong."""
    problems = Problems()
    datalists = source.list_files(root, 0, cache_dir, problems)
    keys = sorted({key for case in all_cases(datalists) for key in case} - {"image"}) or "label"
    reader_of = format_of(next(iter(all_files(datalists)), "")).reader
    image = LoadFiled("image", reader_of(lambda image: image.convert("RGB")))
    label = LoadFiled(keys, reader_of(as_mask))
    problems += check_files(datalists, [image, label, LabelValuesd(keys, source.values, source.ignored)])
    return make_report(source.name, root, datalists, problems, source.counts)


def check_files(datalists: Datalists, loading: Sequence[Any]) -> Problems:
    """Read every file as a training does, and return what is wrong.

    Args:
        datalists: the cases of each section.
        loading: the transforms that load a case, as in a bundle's config. :class:`LoadFiled` says which reader reads
            the files of a key, :class:`LabelValuesd` which values its labels may have.
    """
    problems = Problems()
    sound: list[Case] = []
    for case in all_cases(datalists):
        headers = read_headers(case, problems)
        sound.append({key: [file for file in case_files(case, [key]) if file in headers] for key in case})
    return Problems([*problems, *_read({"": sound}, _readers(loading))])


def check_labels(datalists: Datalists, loading: Sequence[Any]) -> None:
    """Read every label as a training does, and name all files with values that stand for no class.

    Args:
        datalists: the cases of each section.
        loading: the transforms that load a case, as in a bundle's config.

    Raises:
        DataError: with all these files, their values, and the ``label_values`` that would accept them.
    """
    _read(datalists, label_readers(loading)).raise_if_any()


def label_readers(loading: Sequence[Any]) -> dict[Hashable, tuple[ImageReader, LabelValues]]:
    """Return the reader and the values of each key that is a label for the transforms that load a case."""
    return {key: (reader, values) for key, (reader, values) in _readers(loading).items() if values}


def _readers(loading: Sequence[Any]) -> dict[Hashable, tuple[ImageReader, LabelValues | None]]:
    """Return the reader of each key, and, if it is a label, its values."""
    values = {key: each.values for each in loading if isinstance(each, LabelValuesd) for key in each.keys}
    files = [each for each in loading if isinstance(each, LoadFiled)]
    return {key: (each.reader, values.get(key)) for each in files for key in each.keys}


def _read(datalists: Datalists, readers: Mapping[Hashable, tuple[ImageReader, LabelValues | None]]) -> Problems:
    """Return which files cannot be read, and, one problem per key, which labels have values that stand for no class."""
    problems = Problems()
    for key, (reader, values) in readers.items():
        files = all_files(datalists, [str(key)])
        found: dict[str, set[float]] = {}
        for file in tqdm(files, desc=f"Checking {key} files", unit="file", disable=None if files else True):
            with problems.collect():
                pixels = read_file(file, reader).numpy()
                if values:
                    found[file] = set(np.unique(pixels).tolist())
        if values:
            problems += values.problems_of(found)
    return problems
