# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""What a study found, as text: sentences and tables, the same for Markdown, HTML and the terminal."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
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
        lines = [[_name(row), *(_cell(row, column) for column in columns)] for row in rows.to_dict("records")]
        truth = rows.reindex(columns=[f"{column}_of_truth" for column in columns]).mean()
        lines.append(["truth", *map(_number, truth)])
        tables.append(Table(str(group), main_finding(rows.assign(group="")), ["", *columns.values()], lines))
    return tables


def main_finding(comparison: pd.DataFrame) -> str:
    """Return what a study found: the largest gain and loss, and which variants differ from their baselines.

    Only a variant whose interval leaves out zero is called better or worse; with one seed it is an interval over cases.
    """
    groups = comparison.groupby("group", sort=False)["variant"]
    rows = (
        comparison.assign(baseline=groups.transform("first")).dropna(subset=_GAIN).sort_values(_GAIN, ascending=False)
    )
    if rows.empty:
        return "No variant has finished that can be compared with the first one."
    found = rows.to_dict("records")
    if len(found) == 1:
        return _sentence(found[0])
    better, worse = ([row for row in found if _sign(row) == sign] for sign in (1, -1))
    if not better and not worse:
        return f"No variant is surely better or worse. {_sentence(found[0])}"
    best = f"The largest gain: {_sentence(better[0])} " if better else ""
    worst = f"The largest loss: {_sentence(worse[-1])} " if worse else ""
    return f"{best}{worst}Better: {_listed(better)}; worse: {_listed(worse)}."


def _listed(rows: list[dict[str, Any]]) -> str:
    """Return the names of variants, and in how many groups each is listed."""
    variants = Counter(row["variant"] for row in rows).most_common()
    return ", ".join(f"{name} ({n} times)" if n > 1 else name for name, n in variants) or "none"


def _sentence(row: dict[str, Any]) -> str:
    """Return how a variant differs from its baseline, at the end and stopped early."""
    names = f"with {row['variant']} than with {row['baseline']}" + (f" for '{row['group']}'" if row["group"] else "")
    return f"{_DICE} is {_difference(row, KEY)} {names}; stopped early, it is {_difference(row, STOPPED_EARLY)}."


def _difference(row: dict[str, Any], column: str) -> str:
    gain, low, high = (row[f"{column}_{end}"] for end in ("gain", "gain_low", "gain_high"))
    if not _sign(row, column):
        return f"not surely different ({low:+.3f} to {high:+.3f})"
    nearest, farthest = sorted((abs(low), abs(high)))
    interval = f" ({nearest:.3f} to {farthest:.3f})" if row["seeds"] > 1 else ""
    return f"{abs(gain):.3f} {'higher' if gain > 0 else 'lower'}{interval}"


def _sign(row: dict[str, Any], column: str = KEY) -> float:
    """Return 1 for a gain, -1 for a loss, and 0 if the interval includes zero."""
    includes_zero = row[f"{column}_gain_low"] <= 0 <= row[f"{column}_gain_high"]
    return 0.0 if includes_zero else float(np.sign(row[f"{column}_gain"]))


def _name(row: dict[str, Any]) -> str:
    partly = row["seeds"] < row["of_seeds"]
    return f"{row['variant']} ({row['seeds']} of {row['of_seeds']} seeds)" if partly else row["variant"]


def _cell(row: dict[str, Any], column: str) -> str:
    """Return a mean and its deviation over the seeds, and below it the difference to the baseline and its interval."""
    text, deviation = _number(row[column]), row[f"{column}_deviation"]
    if not pd.isna(deviation):
        text += f" ± {deviation:.3f}"
    if not pd.isna(row.get(f"{column}_gain")):
        gain, low, high = (row[f"{column}_{end}"] for end in ("gain", "gain_low", "gain_high"))
        text += f"\n({gain:+.3f}, {low:+.3f} to {high:+.3f})"
    return text


def _number(value: float) -> str:
    return "" if pd.isna(value) else f"{value:.3f}"
