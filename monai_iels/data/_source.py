# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""What a data set is: where its files lie, what its labels mean, where it comes from, and how it is synthesized."""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from monai.config import PathLike
from PIL import Image
from tqdm import tqdm

from monai_iels._files import atomic
from monai_iels._yaml import read_mapping
from monai_iels.data._cache import made_once, state_of, write_image
from monai_iels.data._cases import Case, Datalists, all_cases
from monai_iels.data._images import check_headers, explained
from monai_iels.data._problems import DataError, Problem, Problems
from monai_iels.data._search import Search
from monai_iels.images import as_mask


@dataclasses.dataclass(frozen=True)
class Source:
    """A data set: what its page ``NAME.yaml`` in this folder says, and functions that read and draw its files.

    Args:
        name: the name of the data set on the command line, and of its bundle.
        title: the name in a sentence.
        layout: the official folders and files, as text.
        terms: license, what to cite, where to register.
        classes: names of the classes, background first.
        values: for each class, the value or values that stand for it in a label file.
        counts: cases per section in the official release.
        size: default height of the drawn images.
        find: lists the files of each section: ``find(search)``. A label may be several masks, which are merged.
        sample: draws one case, number ``index``, into a folder in the official layout:
            ``sample(folder, index, seed, size)``.
        archive: what can be downloaded without registering: its ``url``; the ``folder`` that it is unpacked into, below
            the user's root; and what is verified: its ``checksum``, such as ``"sha256:..."``, and, for an archive that
            the server packs anew for every download, the :func:`fingerprint` of its ``contents``.
        ignored: values of label files that mark pixels to leave out.
    """

    name: str
    title: str
    layout: str
    terms: str
    classes: list[str]
    values: list[int | list[int]]
    counts: dict[str, int]
    size: int
    find: Callable[[Search], Datalists]
    sample: Callable[[Path, int, int, int], None]
    archive: Mapping[str, str] | None = None
    ignored: Sequence[int] = ()

    @classmethod
    def from_page(cls, name: str, **functions: Any) -> "Source":
        """Return the data set of a page in this folder, with its ``find``, its ``sample``, and other functions."""
        page = read_mapping(Path(__file__).with_name(f"{name}.yaml"), "a data set")
        return cls(name=name, **page, **functions)

    def read(self, root: PathLike, seed: int = 0, cache_dir: PathLike | None = None) -> Datalists:
        """List the files of each section, as MONAI's data sets take them.

        Args:
            root: the folder that the data set was unpacked into.
            seed: seed of the split, for releases without one.
            cache_dir: where to put what is made once from the data; the user's cache folder by default.

        Raises:
            DataError: naming each file that is missing, unmatched or in the wrong place, and each mask that cannot be
                merged with the others of its image.
        """
        problems = Problems()
        datalists = self.list_files(root, seed, cache_dir, problems)
        problems.raise_if_any()
        if cases := [case for case in all_cases(datalists) if isinstance(case["label"], list)]:
            state = state_of(chain.from_iterable(case["label"] for case in cases))
            folder = made_once(cache_dir, f"{self.name}-labels-{state}", lambda empty: _merge_masks(cases, empty))
            for case in cases:
                case["label"] = str(folder / _merged_name(case))
        return datalists

    def list_files(self, root: PathLike, seed: int, cache_dir: PathLike | None, problems: Problems) -> Datalists:
        """List the files of each section, and add to ``problems`` what is wrong with their names and places."""
        search = Search(Path(os.path.abspath(Path(root).expanduser())), seed, cache_dir, problems)
        datalists: Datalists = {}
        with problems.collect():
            datalists = self.find(search)
            report_empty_sections(datalists, search.root, problems)
        return datalists

    def synthesize(self, root: PathLike, count: int = 60, seed: int = 0, size: int | None = None) -> Path:
        """Make a small synthetic set in the official layout and file formats, completely or not at all.

        Args:
            root: a folder that does not exist yet, or is empty.
            count: number of cases over all sections.
            seed: the same seed gives the same bytes.
            size: height of the images; widths follow the originals' proportions.
        """
        root = Path(os.path.realpath(Path(root).expanduser()))
        if root.exists() and (not root.is_dir() or any(root.iterdir())):
            raise DataError(Problem("extra", str(root), "this is not a new or empty folder", "Choose another folder."))
        with atomic(root) as folder:
            folder.mkdir()
            self.draw(folder, count, seed, size)
        return root

    def draw(self, folder: Path, count: int = 60, seed: int = 0, size: int | None = None) -> None:
        """Make a small synthetic set in an empty folder.

        Raises:
            ValueError: for a number that is too small.
        """
        size = self.size if size is None else size
        for name, value, least in (("count", count, 2 * len(self.counts)), ("seed", seed, 0), ("size", size, 24)):
            if value < least:
                raise ValueError(f"{name} must be at least {least} for {self.title}, got {value}")
        for index in tqdm(range(count), desc=f"Synthesizing {self.title}", unit="image", disable=None):
            self.sample(folder, index, seed, size)


def _merge_masks(cases: Sequence[Case], folder: Path) -> None:
    """Write the masks of each case, one per object, into one label."""
    check_headers(cases)
    problems = Problems()
    for case in tqdm(cases, desc="Merging masks", unit="image", disable=None):
        merged = np.zeros((1, 1), np.uint8)
        for file in case["label"]:
            with problems.collect(), explained(file), Image.open(file) as image:
                merged = np.maximum(merged, np.asarray(as_mask(image)))
        write_image(merged, folder / _merged_name(case))
    problems.raise_if_any()


def _merged_name(case: Case) -> str:
    return f"{Path(str(case['image'])).stem}.png"


def report_empty_sections(datalists: Datalists, root: Path, problems: Problems) -> None:
    """Add a problem for an empty training or validation section, if no other problem explains it."""
    for name in ("training", "validation"):
        if not datalists[name] and not problems:
            problem = f"there are too few cases ({len(all_cases(datalists))}): none are left for {name}"
            problems.add("missing", root, problem, "Add more cases.")


def generator(seed: int, index: int) -> np.random.Generator:
    """Return the random numbers of one synthetic case, which do not depend on how many others are made."""
    return np.random.default_rng([seed, index])
