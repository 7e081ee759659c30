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

"""The data sets by name, and what a training asks for: checked datalists, from a folder or drawn on the spot."""

import dataclasses
from pathlib import Path

from monai.config import PathLike

import monai_iels
from monai_iels.data.cache import cache_folder, made_once
from monai_iels.data.check import check_headers
from monai_iels.data.drive import DRIVE
from monai_iels.data.dsb2018 import DSB2018
from monai_iels.data.files import Case, Datalists, pair
from monai_iels.data.hippocampus import HIPPOCAMPUS
from monai_iels.data.problems import DataError, Problem
from monai_iels.data.refuge import REFUGE
from monai_iels.data.source import Source, name_empty, split
from monai_iels.data.wbc import WBC

__all__ = ["SOURCES", "SYNTHETIC", "cases_of", "checked_datalists", "paired_datalists"]

SYNTHETIC = "synthetic"
SOURCES: dict[str, Source] = {source.name: source for source in (WBC, DSB2018, DRIVE, REFUGE, HIPPOCAMPUS)}


def checked_datalists(
    name: str,
    root: PathLike = SYNTHETIC,
    seed: int = 0,
    cache_dir: PathLike | None = None,
    count: int = 60,
    size: int | None = None,
) -> Datalists:
    """List a data set's files after a look at each header.

    Args:
        name: one of ``wbc``, ``dsb2018``, ``drive``, ``refuge``, ``hippocampus``.
        root: the folder of the data set, or ``"synthetic"`` for a drawn sample.
        seed: seed of the split, and of the drawing.
        cache_dir: where to keep what is made once from the data; the user's cache folder by default.
        count: number of cases of a drawn sample.
        size: height of a drawn sample's images.

    Returns:
        a datalist a section, as MONAI's data sets take them.

    Raises:
        DataError: with the list of all files that are missing, unmatched, mis-sized or unreadable from their headers.
    """
    if name not in SOURCES:
        raise ValueError(f"Expected a data set of {', '.join(SOURCES)}, got '{name}'.")
    source = SOURCES[name]
    if str(root) != SYNTHETIC:
        return _read(source, root, seed, cache_dir)
    drawing = f"{SYNTHETIC}-{name}-{count}-{size or source.size}-seed{seed}-v{monai_iels.__version__}"
    root = made_once(cache_folder(cache_dir) / drawing, lambda folder: source.draw(folder, count, seed, size))
    try:
        return _read(source, root, seed, cache_dir)
    except DataError as error:
        remedy = f"This was drawn and has changed since: delete {root}, and it is drawn again."
        raise DataError([dataclasses.replace(problem, remedy=remedy) for problem in error.problems]) from error


def _read(source: Source, root: PathLike, seed: int, cache_dir: PathLike | None) -> Datalists:
    datalists = source.read(root, seed, cache_dir)
    check_headers(datalists)
    return datalists


def paired_datalists(
    root: PathLike,
    image: str = "images/{id}.png",
    label: str = "labels/{id}.png",
    validation: float = 0.1,
    seed: int = 0,
) -> Datalists:
    """List data of your own, in which the names of an image and its label have a part in common.

    Args:
        root: the folder of the data.
        image: path of an image from there, with ``{id}`` for that part.
        label: path of its label.
        validation: fraction of the cases that is kept for validation.
        seed: seed of the split.

    Returns:
        a datalist a section, as MONAI's data sets take them.

    Raises:
        DataError: with the list of all files that are missing, unmatched, mis-sized or unreadable from their headers.
    """
    if str(root) == SYNTHETIC:
        raise ValueError("--dataset_dir: expected the folder of your data, found none. There is no sample of them.")
    for pattern in (image, label):
        if pattern.count("{id}") != 1:
            raise ValueError(f"Expected {{id}} once in the path of an image or label, got '{pattern}'.")
    if not 0 < validation < 1:
        raise ValueError(f"Expected `validation` between 0 and 1, got {validation}.")
    folder = Path(root).expanduser()
    if not folder.is_dir():
        expected = f"a folder with {image} and {label}"
        raise DataError([Problem("missing", str(folder), expected, "no such folder", "Check the path for a typo.")])
    problems: list[Problem] = []
    cases = pair(folder, {"image": image, "label": label}, problems)
    if len(cases) < 2 and not problems:
        expected = f"at least two {image} with a {label}"
        problems.append(Problem("missing", str(folder), expected, str(len(cases)), "Add some more."))
    datalists = split(cases, validation, seed)
    name_empty(datalists, folder, problems)
    if problems:
        raise DataError(problems)
    check_headers(datalists)
    return datalists


def cases_of(datalists: Datalists, section: str) -> list[Case]:
    """Return the cases of one section.

    Raises:
        ValueError: for a section that the data do not have.
    """
    if not datalists.get(section):
        sections = ", ".join(name for name, cases in datalists.items() if cases)
        raise ValueError(f"--section must be one of {sections}, got '{section}'")
    return datalists[section]
