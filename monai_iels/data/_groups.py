# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""Groups of cases that must not be divided between sections: mostly the images of one patient."""

import csv
import logging
import re
from collections import Counter
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
        ValueError: if the column cannot be used, or names another section.
        DataError: if the table cannot be read.
    """
    datalists: Datalists = {"training": [], "validation": []}
    for case, file, name in zip(cases, files, _by_column(files, "section", section, table), strict=True):
        if name not in _SECTIONS:
            raise ValueError(f"section of {file} in {table} must be one of {', '.join(_SECTIONS)}, got '{name}'")
        datalists.setdefault(name, []).append(case)
    return datalists


def _check_all(files: Sequence[str], values: Sequence[str], fails: str, remedy: str) -> None:
    """Raise an error that names the images without a value."""
    if missing := [file for file, value in zip(files, values, strict=True) if not value]:
        shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise ValueError(f"{fails} {len(missing)} of {len(files)} images: {shown}; {remedy}")


def _by_expression(files: Sequence[str], expression: str) -> list[str]:
    try:
        groups = [match[1] or "" if (match := re.search(expression, file)) else "" for file in files]
    except (re.error, IndexError) as error:
        rule = "a regular expression with parentheses around the patient, such as '^(.+)_'"
        raise ValueError(f"group must be {rule}, got '{expression}' ({error})") from None
    remedy = "correct it in dataset.yaml: '(.+)' if each image is of another patient"
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
    matches = [match for name in names if (match := re.match(_SEVERAL, name))]
    patients = Counter(match[1] for match in matches)
    if len(patients) > 1 and len(patients) < len(matches):
        patient, count = patients.most_common(1)[0]
        logger.warning(
            f"{count} images whose names begin with {patient} look like images of one patient, and may now be in "
            "training and in validation. Keep patients together: set `group` in dataset.yaml, such as "
            f"group: '^(.+){matches[0][2]}'. If each image is of another patient, set group: '(.+)'."
        )
