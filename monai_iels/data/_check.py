# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""The checker: finds what is broken in a data set before a training does."""

import dataclasses
import os
from collections.abc import Hashable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from monai.config import PathLike
from monai.data import ImageReader
from tqdm import tqdm

from monai_iels.data._cases import Case, Datalists, all_cases, all_files, case_files
from monai_iels.data._images import LoadFiled, read_file, read_headers
from monai_iels.data._labels import LabelValues, LabelValuesd, first_few
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
    keys = sorted({key for case in all_cases(datalists) for key in case} - {"image"}) or "label"
    reader_of = format_of(next(iter(all_files(datalists)), "")).reader
    image = LoadFiled("image", reader_of(lambda image: image.convert("RGB")))
    label = LoadFiled(keys, reader_of(source.convert))
    problems += check_files(datalists, [image, label, LabelValuesd(keys, source.values, source.ignored)])
    return make_report(source.name, root, datalists, problems, source.counts)


def make_report(
    name: str, root: PathLike, datalists: Datalists, problems: Problems, official: Mapping[str, int]
) -> Report:
    """Return what a check of these cases found."""
    counts = {section: len(cases) for section, cases in datalists.items()}
    return Report(name, str(root), counts, dict(official), len(all_files(datalists)), tuple(problems))


def check_files(datalists: Datalists, loading: Sequence[Any], *former: Any) -> Problems:  # noqa: D417
    """Read every file as a training does, and return what is wrong.

    Args:
        datalists: the cases of each section.
        loading: the transforms that load a case, as in a bundle's config. :class:`LoadFiled` says which reader reads
            the files of a key, :class:`LabelValuesd` which values its labels may have.
    """
    if former:  # until bundles pass on their `loading`
        image, label, *values = former
        loading = [LoadFiled("image", image), LoadFiled(loading, label), LabelValuesd(loading, *values)]
    problems = Problems()
    sound: list[Case] = []
    labels = label_readers(loading)
    others = {key: reader for key, reader in _readers(loading).items() if key not in labels}
    cases = all_cases(datalists)
    for case in tqdm(cases, desc="Checking cases", unit="case", disable=None if cases else True):
        headers = read_headers(case, problems)
        sound.append({key: [file for file in case_files(case, [key]) if file in headers] for key in case})
        for key, reader in others.items():
            for file in case_files(sound[-1], [str(key)]):
                with problems.collect():
                    read_file(file, reader)
    return Problems([*problems, *_find_strays({"": sound}, labels)])


def check_labels(datalists: Datalists, loading: Sequence[Any], *former: Any) -> None:  # noqa: D417
    """Read every label as a training does, and name all files with values that stand for no class.

    Args:
        datalists: the cases of each section.
        loading: the transforms that load a case, as in a bundle's config.

    Raises:
        DataError: with all these files, their values, and the ``label_values`` that would accept them.
    """
    if former:  # until bundles pass on their `loading`
        loading = [LoadFiled(loading, former[0]), LabelValuesd(loading, *former[1:])]
    _find_strays(datalists, label_readers(loading)).raise_if_any()


def label_readers(loading: Sequence[Any]) -> dict[Hashable, tuple[ImageReader, LabelValues]]:
    """Return the reader and the values of each key that is a label for the transforms that load a case."""
    readers = _readers(loading)
    values = {key: each.values for each in loading if isinstance(each, LabelValuesd) for key in each.keys}
    return {key: (readers[key], known) for key, known in values.items() if key in readers}


def _readers(loading: Sequence[Any]) -> dict[Hashable, ImageReader]:
    return {key: each.reader for each in loading if isinstance(each, LoadFiled) for key in each.keys}


def _find_strays(datalists: Datalists, labels: Mapping[Hashable, tuple[ImageReader, LabelValues]]) -> Problems:
    """Return which labels cannot be read, and, one problem per key, which have values that stand for no class."""
    problems = Problems()
    for key, (reader, known) in labels.items():
        files = all_files(datalists, [str(key)])
        strays: dict[str, list[float]] = {}
        present: set[float] = set()
        for file in tqdm(files, desc="Checking labels", unit="file", disable=None if files else True):
            with problems.collect():
                pixels = read_file(file, reader).numpy()
                if found := known.strays(pixels):
                    strays[file] = found
                    present.update(np.unique(pixels).tolist())
        if strays:
            folder = os.path.commonpath([os.path.dirname(file) for file in strays])
            named = ", ".join(f"{os.path.relpath(file, folder)} ({first_few(found)})" for file, found in strays.items())
            problem = f"{len(strays)} of {len(files)} files have values other than {known}: {named}"
            remedy = known.how_to_accept(sorted(set(chain(*strays.values()))))
            if len(strays) == len(files) > 1 and (guess := known.how_to_correct(sorted(present))):
                problem, remedy = f"all {len(files)} files have values other than {known}", guess
            problems.add("values", folder, problem, remedy)
    return problems
