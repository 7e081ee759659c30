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

"""What a data set is: where its files lie, what its labels mean, where it comes from, and how to draw a stand-in."""

import dataclasses
import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from monai.config import PathLike
from monai.data import partition_dataset
from tqdm import tqdm

from monai_iels.data.cache import complete_or_nothing
from monai_iels.data.files import Case, Datalists
from monai_iels.data.problems import DataError, Problem

__all__ = ["Archive", "Source", "case_files", "fingerprint", "generator", "name_empty", "split"]


@dataclasses.dataclass(frozen=True)
class Archive:
    """The official download of a data set.

    Args:
        url: where it is.
        folder: folder that it is unpacked into, below the user's root.
        sha256: SHA-256 of the archive, where the same file was at hand.
        md5: MD5 of the archive, where that is what its publisher states.
        contents: :func:`fingerprint` of the files inside, for archives that are packed anew at every download.
    """

    url: str
    folder: str
    sha256: str | None = None
    md5: str | None = None
    contents: str | None = None


@dataclasses.dataclass(frozen=True)
class Source:
    """A data set.

    Args:
        name: the name on the command line and of the bundle.
        title: the name in a sentence.
        layout: the official folders and files, as text.
        terms: licence, what to cite, where to register.
        classes: names of the classes, background first.
        values: to each class, the value or values that stand for it in a label file.
        counts: cases per section in the official release.
        find: lists the files: ``find(root, seed, cache_dir, problems)``, where a label may still be several files.
        sample: writes drawn cases into a folder in the official layout: ``sample(folder, count, seed, size)``, an
            iterator that yields after each case.
        size: height of the drawn images unless another is asked for.
        archive: what can be downloaded without registering.
        prepare: turns what ``find`` found into files that a network can be fed with, ``prepare(cases, cache_dir)``.
    """

    name: str
    title: str
    layout: str
    terms: str
    classes: tuple[str, ...]
    values: tuple[int | tuple[int, ...], ...]
    counts: dict[str, int]
    find: Callable[[Path, int, PathLike | None, list[Problem]], Datalists]
    sample: Callable[[Path, int, int, int], Any]
    size: int
    archive: Archive | None = None
    prepare: Callable[[Datalists, PathLike | None], Datalists] = lambda datalists, cache_dir: datalists

    def read(self, root: PathLike, seed: int = 0, cache_dir: PathLike | None = None) -> Datalists:
        """Turn a root folder into MONAI's datalists, one a section.

        Args:
            root: the folder that the data set was unpacked into.
            seed: seed of the split, where the release has none.
            cache_dir: where to keep what is made once from the data; the user's cache folder by default.

        Raises:
            DataError: naming each file that is missing, unmatched or in the wrong place.
        """
        problems: list[Problem] = []
        datalists = self.list_files(root, seed, cache_dir, problems)
        if problems:
            raise DataError(problems)
        return self.prepare(datalists, cache_dir)

    def list_files(self, root: PathLike, seed: int, cache_dir: PathLike | None, problems: list[Problem]) -> Datalists:
        """List the files of each section, and add to ``problems`` what is wrong with their names and places."""
        datalists = self.find(Path(root).expanduser(), seed, cache_dir, problems)
        name_empty(datalists, root, problems)
        return datalists

    def synthesize(self, root: PathLike, count: int = 60, seed: int = 0, size: int | None = None) -> Path:
        """Draw a small set in the official layout and file formats, completely or not at all.

        Args:
            root: a folder that does not exist yet, or is empty.
            count: number of cases over all sections.
            seed: the same seed gives the same bytes.
            size: height of the images; widths follow the originals' proportions.
        """
        root = Path(os.path.realpath(Path(root).expanduser()))
        if root.exists() and (not root.is_dir() or any(root.iterdir())):
            problem = Problem("extra", str(root), "a new or empty folder", "files in it", "Choose another folder.")
            raise DataError([problem])
        with complete_or_nothing(root, "--root") as folder:
            folder.mkdir()
            self.draw(folder, count, seed, size)
        return root

    def draw(self, folder: Path, count: int = 60, seed: int = 0, size: int | None = None) -> None:
        """Draw a small set into an empty folder.

        Raises:
            ValueError: for a number that is too small.
        """
        smallest = 2 * len(self.counts)
        if count < smallest:
            raise ValueError(f"Expected `count` >= {smallest} for {self.title}, got {count}.")
        if seed < 0:
            raise ValueError(f"Expected `seed` >= 0, got {seed}.")
        size = self.size if size is None else size
        if size < 24:
            raise ValueError(f"Expected `size` >= 24, got {size}: the drawings have no room for their structures.")
        drawn = self.sample(folder, count, seed, size)
        for _ in tqdm(drawn, desc=f"Drawing {self.title}", total=count, unit="image", disable=None):
            pass


def name_empty(datalists: Datalists, root: PathLike, problems: list[Problem]) -> None:
    """Add to ``problems`` which of the sections that a training needs has no cases, if nothing else explains it."""
    for name in ("training", "validation"):
        if not datalists[name] and not problems:
            found = f"{sum(map(len, datalists.values()))} cases in all"
            problems.append(Problem("missing", str(root), f"cases for {name}", found, "Add some more."))


def split(cases: Sequence[Case], fraction: float, seed: int) -> Datalists:
    """Shuffle ``cases`` by ``seed`` and keep a ``fraction`` of them for validation; both sections are sorted again.

    Example:
        >>> sections = split([{"image": f"{i:03}.bmp"} for i in range(300)], 0.1, seed=0)
        >>> {name: len(cases) for name, cases in sections.items()}
        {'training': 270, 'validation': 30}
    """
    names = ("training", "validation")
    if not cases:
        return {name: [] for name in names}
    kept = max(1, round(len(cases) * fraction))
    parts = partition_dataset(list(cases), ratios=[len(cases) - kept, kept], shuffle=True, seed=seed)
    return {name: sorted(part, key=lambda case: case["image"]) for name, part in zip(names, parts, strict=True)}


def case_files(case: Case) -> list[str]:
    """Return every file of a case."""
    return [file for value in case.values() for file in ([value] if isinstance(value, str) else value)]


def fingerprint(datalists: Datalists) -> str:
    """Return a SHA-256 of the names and contents of all files, wherever they lie and however they are split."""
    digests = []
    for cases in datalists.values():
        for case in cases:
            for file in case_files(case):
                digests.append(f"{Path(file).name} {hashlib.sha256(Path(file).read_bytes()).hexdigest()}")
    return hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()


def generator(seed: int, index: int) -> np.random.Generator:
    """Return the random numbers of one drawn case, the same however many others are drawn."""
    return np.random.default_rng([seed, index])
