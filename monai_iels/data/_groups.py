# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""Groups of cases that must not be divided between sections: mostly the images of one patient."""

import csv
import logging
import re
from collections.abc import Sequence
from pathlib import Path

from monai_iels.data._cases import Case, Datalists
from monai_iels.data._problems import opening

logger = logging.getLogger(__name__)

_SECTIONS = ("training", "validation", "test")
_SEVERAL = r"(.*\d.*)([-_ ])"  # p07_slice3.png: what stands before the last separator has a digit


def groups_of(files: Sequence[str], group: str, table: Path | None) -> list[str]:
    """Return the group of each image.

    Args:
        files: the names of the image files.
        group: a regular expression, whose first group in a name is the patient; or a column of ``table``.
        table: a file of values separated by commas, semicolons or tabs. Its first column holds the names of the image
            files, with or without their endings.

    Raises:
        ValueError: if the expression or the column cannot be used, or leaves only one group.
        DataError: if the table cannot be read.
    """
    groups = _by_expression(files, group) if table is None else _by_column(files, "group", group, table)
    if len(set(groups)) == 1 < len(files):
        raise ValueError(f"group '{group}' puts all {len(files)} images into one group, '{groups[0]}'; correct it")
    return groups


def divide(cases: Sequence[Case], files: Sequence[str], section: str, table: Path) -> Datalists:
    """Put each case into the section that a column of a table names for its image.

    Raises:
        ValueError: if the column cannot be used, names another section, or nothing for training or validation.
        DataError: if the table cannot be read.
    """
    datalists: Datalists = {"training": [], "validation": []}
    for case, file, name in zip(cases, files, _by_column(files, "section", section, table), strict=True):
        if name not in _SECTIONS:
            raise ValueError(f"section of {file} in {table} must be one of {', '.join(_SECTIONS)}, got '{name}'")
        datalists.setdefault(name, []).append(case)
    for name, chosen in datalists.items():
        if not chosen:
            raise ValueError(f"the column '{section}' of {table} names no image for {name}; correct it")
    return datalists


def _check_all(files: Sequence[str], values: Sequence[str], fails: str, remedy: str) -> None:
    """Raise an error that names the images without a value."""
    if missing := [file for file, value in zip(files, values, strict=True) if not value]:
        shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise ValueError(f"{fails} {len(missing)} of {len(files)} images: {shown}; {remedy}")


def _by_expression(files: Sequence[str], expression: str) -> list[str]:
    try:
        pattern = re.compile(expression)
    except re.error as error:
        raise ValueError(f"group must be a regular expression, got '{expression}' ({error})") from None
    if not pattern.groups:
        raise ValueError(f"group must have parentheses around the patient, such as '^(.+)_', got '{expression}'")
    matches = [pattern.search(file) for file in files]
    groups = [match[1] or "" if match else "" for match in matches]
    several = next(filter(None, (re.match(_SEVERAL, file) for file in files)), None)
    proposal = f"for example '^(.+){several[2]}', or " if several else ""
    remedy = f"correct it in dataset.yaml: {proposal}'(.+)' if each image is of another patient"
    _check_all(files, groups, f"group '{expression}' does not match", remedy)
    return groups


def _by_column(files: Sequence[str], key: str, column: str, table: Path) -> list[str]:
    with opening(table), table.open(newline="", encoding="utf-8-sig") as stream:
        first = stream.readline()
        separator = max(",;\t", key=first.count)  # spreadsheets write what is usual in their country
        rows = list(csv.DictReader([first, *stream], delimiter=separator))
    columns = list(rows[0]) if rows else []
    if column not in columns[1:]:
        raise ValueError(f"{key} must be a column of {table} after the first ({', '.join(columns)}), got '{column}'")
    of_file = {row[columns[0]]: row[column] or "" for row in rows}
    values = [of_file.get(file) or of_file.get(Path(file.removesuffix(".gz")).stem) or "" for file in files]
    _check_all(files, values, f"{key} '{column}' has no value in {table} for", "add it to the table")
    return values


def warn_of_several(names: Sequence[str]) -> None:
    """Log a warning if file names look as if there were several images per patient."""
    groups: dict[str, list[str]] = {}
    matches = [match for match in (re.match(_SEVERAL, name) for name in names) if match]
    for match in matches:
        groups.setdefault(match[1], []).append(match.string)
    several = [files for files in groups.values() if len(files) > 1]
    if several and len(groups) > 1:
        logger.warning(
            f"{several[0][0]} and {several[0][1]} look like images of one patient, and may now be in training and in "
            f"validation. Keep patients together: set `group` in dataset.yaml, such as group: '^(.+){matches[0][2]}'. "
            "If each image is of another patient, set group: '(.+)'."
        )
