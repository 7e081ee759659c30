# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with a file, in one sentence, and the error that carries all such sentences."""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from monai.config import PathLike

_SHOWN = 20
_FEW = 3  # files with the same problem that are named one by one
_REMEDIES = {
    "missing": "Give the folder that has all files; the paths of your own data are in dataset.yaml.",
    "extra": "Move it elsewhere.",
    "unmatched": "Add the missing file, or move this one elsewhere.",
    "unreadable": "Copy the file again from its source.",
    "size": "Copy both again from their source, or draw the mask again.",
    "values": "Correct the mask, or copy it again from its source.",
}


@dataclasses.dataclass(frozen=True)
class Problem:
    """One thing that is wrong with one file, and what to do about it.

    Args:
        kind: ``"missing"``, ``"extra"``, ``"unmatched"``, ``"unreadable"``, ``"size"`` or ``"values"``.
        file: the file or folder.
        problem: what is wrong, to be read after the file's name.
        remedy: what to do about it, one or more sentences; by default what helps with most problems of this kind.

    Example:
        >>> print(Problem("unreadable", "001.png", "the file is empty"))
        001.png: the file is empty. Copy the file again from its source.
    """

    kind: str
    file: str
    problem: str
    remedy: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "remedy", self.remedy or _REMEDIES[self.kind])

    def __str__(self) -> str:
        sentence = f"{self.file}: {self.problem}. {self.remedy}"
        # file names may contain line breaks, and bytes that are not text
        return sentence.replace("\n", "\\n").encode("utf-8", "backslashreplace").decode("utf-8")


def in_lines(problems: Sequence[Problem]) -> list[str]:
    """Return one line per problem; files of a folder with the same problem share one.

    Example:
        >>> in_lines([Problem("unreadable", f"labels/{i}.png", "the file is empty") for i in range(4)])
        ['labels: 4 files, such as 0.png: the file is empty. Copy the file again from its source.']
    """
    alike: dict[tuple[str, str, str], list[Problem]] = {}
    for problem in problems:
        alike.setdefault((os.path.dirname(problem.file), problem.problem, problem.remedy), []).append(problem)
    lines = []
    for (folder, text, _), group in alike.items():
        if len(group) <= _FEW:
            lines += [str(problem) for problem in group]
        else:
            named = f"{len(group)} files, such as {os.path.basename(group[0].file)}: {text}"
            lines.append(str(dataclasses.replace(group[0], file=folder or ".", problem=named)))
    return lines


class DataError(ValueError):
    """Data that cannot be used, with every problem found so far in ``problems``."""

    def __init__(self, *problems: Problem) -> None:
        self.problems = problems
        lines = in_lines(problems)
        if len(lines) > _SHOWN:
            lines[_SHOWN:] = [f"... and {len(lines) - _SHOWN} more; `monai-iels data check` lists them all."]
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep the problems when a data loader's worker passes the error to its parent process."""
        return type(self), self.problems


class Problems(list[Problem]):
    """Problems that are collected first, so that the user sees all of them at once."""

    def add(self, kind: str, file: PathLike, problem: str, remedy: str = "") -> None:
        """Add one problem; see :class:`Problem`."""
        self.append(Problem(kind, str(file), problem, remedy))

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Add the problems of a :class:`DataError` that is raised inside this block, and go on behind the block."""
        try:
            yield
        except DataError as error:
            self.extend(error.problems)

    def raise_if_any(self) -> None:
        """Raise a :class:`DataError` with all problems, if there are some."""
        if self:
            raise DataError(*self)


@contextmanager
def opening(path: PathLike) -> Iterator[None]:
    """Say why a file or folder cannot be opened: turn an ``OSError`` of this block into a :class:`DataError`."""
    try:
        yield
    except OSError as error:
        kind = "missing" if isinstance(error, FileNotFoundError) else "unreadable"
        problem = f"cannot be opened ({os.strerror(error.errno).lower() if error.errno else error})"
        raise DataError(Problem(kind, str(path), problem, "Check the path and your permissions.")) from error
