# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""What a study found, as text: sentences and tables, the same for Markdown, HTML and the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from monai_iels.measures import KEY_METRIC, MEASURES
from monai_iels.study._comparison import BEST
from monai_iels.study._results import KEY, STOPPED_EARLY, Results

_DICE, _GAIN = MEASURES[KEY_METRIC].title, f"{KEY}_gain"


@dataclass(frozen=True)
class Table:
    """The variants of one group.

    Args:
        group: its name; empty if the study has no groups.
        finding: what was found.
        header: titles of the columns.
        rows: the name of a variant, then its numbers; the last row is the truth. Where a cell has two lines, the second
            one is the difference to the first variant, in brackets.
    """

    group: str
    finding: str
    header: list[str]
    rows: list[list[str]]


def make_tables(results: Results, comparison: pd.DataFrame) -> list[Table]:
    """Return one table per group.

    Args:
        results: the numbers of all trainings.
        comparison: one row per variant, from :func:`~monai_iels.study.compare_variants`.
    """
    columns = {}
    for measure in results.measures:
        columns[measure.column] = measure.title
        if measure.name == KEY_METRIC:
            columns |= {STOPPED_EARLY: f"{measure.title}, stopped early", BEST: f"{measure.title}, best epoch"}
    tables = []
    for group, rows in comparison.groupby("group", sort=False):
        records = _records(rows)
        lines = [[_name(row), *(_cell(row, column) for column in columns)] for row in records]
        truth = rows.reindex(columns=[f"{column}_of_truth" for column in columns]).mean()
        lines.append(["truth", *map(_number, truth)])
        tables.append(Table(str(group), _finding(records), ["", *columns.values()], lines))
    return tables


def main_finding(comparison: pd.DataFrame) -> str:
    """Return what a study found: its largest gain and loss in Dice, and how many variants differ from the baseline."""
    return _finding([row for _, rows in comparison.groupby("group", sort=False) for row in _records(rows)])


def _records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the variants of one group, each with the name of their baseline."""
    return rows.assign(baseline=rows["variant"].iloc[0]).to_dict("records")


def _finding(rows: Sequence[dict[str, Any]]) -> str:
    compared = sorted((row for row in rows if not pd.isna(row[_GAIN])), key=lambda row: row[_GAIN])
    differ = [row for row in compared if _difference(row, KEY)]
    better, worse = ([row for row in differ if row[_GAIN] * sign > 0] for sign in (1, -1))
    surely = "surely " if any(row["seeds"] > 1 for row in compared) else ""
    baseline = " or ".join(dict.fromkeys(row["baseline"] for row in rows))
    groups = len({row["group"] for row in rows})
    if not compared:
        return f"No variant has finished that can be compared with {baseline}."
    if len(compared) == 1:
        sentence = _sentence(compared[0], groups > 1)
        return sentence[0].upper() + sentence[1:]
    first = f"The largest gain: {_sentence(better[-1], groups > 1)}" if better else ""
    sentences = [first or f"No variant has a {surely}higher {_DICE} than {baseline}."]
    if worse:
        sentences.append(f"The largest loss: {_sentence(worse[0], groups > 1)}")
    if groups == 1:
        counts = f"{len(better) or 'none'} {'are' if len(better) > 1 else 'is'} {surely}better than {baseline}"
        sentences.append(f"Of {len(compared)} variants, {counts}, {len(worse) or 'none'} {surely}worse.")
    elif differ:
        listed = f"{surely}better than {baseline}: {_in_rows(better)}; {surely}worse: {_in_rows(worse)}"
        sentences.append(f"Of {groups} rows, {listed}.")
    return " ".join(sentences)


def _in_rows(rows: Sequence[dict[str, Any]]) -> str:
    """Return the names of the variants, and in how many groups each is listed."""
    counts = Counter(row["variant"] for row in rows).most_common()
    return ", ".join(f"{name} in {count}" for name, count in counts) or "none"


def _sentence(row: dict[str, Any], has_groups: bool) -> str:
    """Return how a variant differs from its baseline, at the end and stopped early."""
    place = (f"for '{row['group']}', " if row["group"] else "in the first row, ") if has_groups else ""
    found, early = (_difference(row, column) for column in (KEY, STOPPED_EARLY))
    if found:
        text = f"{_DICE} is {found} with {row['variant']} than with {row['baseline']}"
        return f"{place}{text}; stopped early, {f'it is {early}' if early else 'no difference was found'}."
    text = f"no difference in {_DICE} was found ({row[f'{_GAIN}_low']:+.3f} to {row[f'{_GAIN}_high']:+.3f})"
    early = f"it is {early}" if early else "none either"
    return f"{place}between {row['variant']} and {row['baseline']}, {text}; stopped early, {early}."


def _difference(row: dict[str, Any], column: str) -> str:
    """Return how a variant differs from the baseline, or nothing if the interval over several seeds includes zero."""
    gain, low, high = (row[f"{column}_{end}"] for end in ("gain", "gain_low", "gain_high"))
    if pd.isna(gain) or gain == 0 or (row["seeds"] > 1 and low <= 0 <= high):
        return ""
    nearest, farthest = sorted((abs(low), abs(high)))
    interval = f" ({nearest:.3f} to {farthest:.3f})" if row["seeds"] > 1 else ""
    return f"{abs(gain):.3f} {'higher' if gain > 0 else 'lower'}{interval}"


def _name(row: dict[str, Any]) -> str:
    partly = 0 < row["seeds"] < row["of_seeds"]
    return f"{row['variant']} ({row['seeds']} of {row['of_seeds']} seeds)" if partly else row["variant"]


def _cell(row: dict[str, Any], column: str) -> str:
    """Return a mean and its deviation over the seeds, and below it the difference to the baseline and its interval."""
    if not row["seeds"]:
        return (row["not_finished"] or "missing") if column == KEY else ""
    text, deviation = _number(row[column]), row[f"{column}_deviation"]
    if not pd.isna(deviation):
        text += f" ± {deviation:.3f}"
    if not pd.isna(row.get(f"{column}_gain")):
        gain, low, high = (row[f"{column}_{end}"] for end in ("gain", "gain_low", "gain_high"))
        text += f"\n({gain:+.3f}, {low:+.3f} to {high:+.3f})"
    return text


def _number(value: float) -> str:
    return "" if pd.isna(value) else f"{value:.3f}"
