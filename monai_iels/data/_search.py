# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""Searching a user's folder, and the archives in it, for the files of a data set."""

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

from monai.config import PathLike

from monai_iels.data._archives import is_archive, unpack
from monai_iels.data._problems import DataError, Problem, Problems, opening

_LITTER = {"thumbs.db", "desktop.ini", "__macosx"}
_REMEDY = "Pass the folder that the data set was unpacked into."


def listing(folder: Path) -> list[Path]:
    """Return what is in ``folder``, sorted, without hidden files and what operating systems leave behind.

    If there is no such folder, the list is empty.

    Raises:
        DataError: if the folder cannot be read.
    """
    with opening(folder):
        paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in paths if not path.name.startswith(".") and path.name.lower() not in _LITTER]


def contents(folder: Path) -> str:
    """Say what is in a folder, after a sentence about what is not."""
    names = [path.name for path in listing(folder)]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"only {', '.join(names[:5])}{more}" if names else "it is empty"


def walk(folder: Path, problems: Problems, above: frozenset[str] = frozenset()) -> Iterator[Path]:
    """Yield every file below ``folder``, sorted; links are followed, but not one that leads back to its own parent."""
    above |= {os.path.realpath(folder)}
    for path in listing(folder):
        if not path.is_dir():
            yield path
        elif os.path.realpath(path) in above:
            problems.add("extra", path, "this link leads back to a folder above it")
        else:
            yield from walk(path, problems, above)


@dataclasses.dataclass(frozen=True)
class Search:
    """What a reader needs to find the files of a data set.

    Args:
        root: the folder that the user points at.
        seed: seed of the split, for releases without one.
        cache_dir: where archives are unpacked; the user's cache folder by default.
        problems: where to put what is wrong with the names and places of files.
    """

    root: Path
    seed: int
    cache_dir: PathLike | None
    problems: Problems

    def places(self) -> Iterator[Path]:
        """Yield the folders to look in: ``root``, then, if the search goes on, the contents of its archives.

        Raises:
            DataError: if ``root`` is no folder that can be opened, or if one of the archives is broken.
        """
        with opening(self.root):
            os.listdir(self.root)
        yield self.root
        broken = Problems()
        for path in listing(self.root):
            if is_archive(path) and path.is_file():
                with broken.collect():
                    yield unpack(path, self.cache_dir)
        broken.raise_if_any()

    def folder(self, name: str, inside: str) -> Path:
        """Return the folder of a data set, as :meth:`find` finds it.

        Raises:
            DataError: if there is no such folder.
        """
        if folder := self.find(name, inside):
            return folder
        problem = f"no folder '{name}' with {inside} here, {contents(self.root)}"
        raise DataError(Problem("missing", str(self.root), problem, _REMEDY))

    def find(self, name: str, inside: str) -> Path | None:
        """Return the folder of a data set: ``root/name``, ``root`` itself, or ``name`` up to two levels below.

        Args:
            name: name of the official folder.
            inside: glob pattern of files that the folder must have.
        """
        any_case = "".join(f"[{c.lower()}{c.upper()}]" if c.isalpha() else c for c in inside)
        for place in self.places():
            for folder in (place / name, place, *sorted(place.glob(f"*/{name}")), *sorted(place.glob(f"*/*/{name}"))):
                if folder.is_dir() and any(folder.glob(any_case)):
                    return folder
        return None
