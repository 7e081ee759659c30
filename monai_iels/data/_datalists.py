# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""The data sets by name, and checked datalists for a training: from a folder, or synthetic ones."""

import inspect
import os
from pathlib import Path
from typing import Any

from monai.config import PathLike

from monai_iels.data._cache import made_once
from monai_iels.data._cases import Datalists, all_cases, pair, split
from monai_iels.data._cityscapes import CITYSCAPES
from monai_iels.data._drive import DRIVE
from monai_iels.data._dsb2018 import DSB2018
from monai_iels.data._groups import divide, groups_of, warn_of_several
from monai_iels.data._hippocampus import HIPPOCAMPUS
from monai_iels.data._images import check_headers
from monai_iels.data._problems import Problems, opening
from monai_iels.data._refuge import REFUGE
from monai_iels.data._source import Source, report_empty_sections
from monai_iels.data._wbc import WBC

SYNTHETIC = "synthetic"
_DRAWINGS = 3  # raise it when the drawings change, so that no cache shows the old ones
SOURCES: dict[str, Source] = {s.name: s for s in (WBC, DSB2018, DRIVE, REFUGE, HIPPOCAMPUS, CITYSCAPES)}


def checked_datalists(
    name: str,
    root: PathLike = SYNTHETIC,
    seed: int = 0,
    cache_dir: PathLike | None = None,
    count: int = 60,
    size: int | None = None,
) -> Datalists:
    """List a data set's files, after opening the header of each.

    Args:
        name: one of ``wbc``, ``dsb2018``, ``drive``, ``refuge``, ``hippocampus``, ``cityscapes``.
        root: the folder of the data set, or ``"synthetic"`` for a synthetic sample.
        seed: seed of the split, and of the drawing.
        cache_dir: where to put what is made once from the data; the user's cache folder by default.
        count: number of cases of a drawn sample.
        size: height of a drawn sample's images.

    Returns:
        one datalist per section, as MONAI's data sets take them.

    Raises:
        DataError: naming all files that are missing, unmatched, of another size, or whose headers cannot be read.
        OSError: if the cache cannot be written, with the folder as its file name.
    """
    if name not in SOURCES:
        raise ValueError(f"unknown data set '{name}': choose one of {', '.join(SOURCES)}")
    source = SOURCES[name]
    if str(root) == SYNTHETIC:
        folder = f"{SYNTHETIC}-{name}-{count}-{size or source.size}-seed{seed}-drawing{_DRAWINGS}"
        root = made_once(cache_dir, folder, lambda empty: source.draw(empty, count, seed, size))
    datalists = source.read(root, seed, cache_dir)
    check_headers(all_cases(datalists))
    return datalists


def paired_datalists(
    root: PathLike,
    image: str = "images/{id}.png",
    label: str = "labels/{id}.png",
    validation: float = 0.1,
    seed: int = 0,
    test: float = 0.0,
    group: str | None = None,
    table: str | None = None,
    section: str | None = None,
) -> Datalists:
    """List your own data, where the names of an image and its label share a part.

    Args:
        root: the folder of the data.
        image: path of an image relative to ``root``, with ``{id}`` for the shared part.
        label: path of its label.
        validation: fraction of the cases for validation.
        seed: seed of the split.
        test: fraction of the cases for a section ``test``.
        group: keeps all images of one patient in one section: a regular expression whose first group in the name of
            the image file is the patient, such as ``"^(.+)_"``; or, with ``table``, the name of a column.
        table: path of a CSV file relative to ``root``. Its first column names the image files, with or without
            their endings.
        section: a split that exists already: the column of ``table`` that says for each image whether it is for
            ``training``, ``validation`` or ``test``. Then the shares and the seed have no effect.

    Returns:
        one datalist per section, as MONAI's data sets take them.

    Raises:
        DataError: naming all files that are missing, unmatched, of another size, or whose headers cannot be read.
        ValueError: for an argument that cannot be used.
    """
    if str(root) == SYNTHETIC:
        raise ValueError("--dataset_dir must be the folder of your data: there is no synthetic sample of it")
    for pattern in (image, label):
        if pattern.count("{id}") != 1:
            raise ValueError(f"the path of images and labels must contain {{id}} once, got '{pattern}'")
    if validation <= 0 or test < 0 or validation + test >= 1:
        rule = "validation must be above 0, test at least 0, and both together below 1"
        raise ValueError(f"{rule}, got {validation} and {test}")
    if (table and bool(group) == bool(section)) or (section and not table):
        rule = "table must come with group or with section, which name one of its columns, and section with table"
        raise ValueError(f"{rule}, got table {table}, group {group} and section {section}")
    folder = Path(root).expanduser()
    with opening(folder):
        os.listdir(folder)
    problems = Problems()
    cases = pair(folder, {"image": image, "label": label}, problems)
    problems.raise_if_any()
    names = [Path(str(case["image"])).name for case in cases]
    if section and table:
        datalists = divide(cases, names, section, folder / table)
    else:
        groups = groups_of(names, group, folder / table if table else None) if group else None
        datalists = split(cases, validation, seed, test, groups)
    report_empty_sections(datalists, folder, problems)
    problems.raise_if_any()
    check_headers(all_cases(datalists))
    if not group and not section:
        warn_of_several(names)
    return datalists


def describe_pairs(**arguments: Any) -> str:
    """Say in words what :func:`paired_datalists` lists with the same arguments.

    Raises:
        TypeError: for an argument that it does not take.
    """
    bound = inspect.signature(paired_datalists).bind(**arguments)
    bound.apply_defaults()
    _, image, label, validation, _, test, group, table, section = bound.arguments.values()
    files = f"```text\n{image}  an image; {{id}} is the name of the case\n{label}  its label\n```"
    if section:
        return f"{files}\n\nThe section of each case is in the column `{section}` of `{table}`."
    tested = f", {100 * test:g} % for testing" if test else ""
    text = f"{files}\n\n{100 * validation:g} % of the cases are for validation{tested}, chosen by `datalists#seed`."
    place = f" in `{table}`" if table else ""
    return f"{text} Cases with the same `{group}`{place} stay in one section." if group else text
