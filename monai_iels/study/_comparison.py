# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""How the variants of a study compare: means over seeds, and paired differences to the baseline."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from monai_iels.measures import KEY_METRIC
from monai_iels.study._definition import by_group
from monai_iels.study._results import KEY, LAST_EPOCHS, STOPPED_EARLY, Results, RunResult

BEST = f"{KEY}_best"


def compare_variants(results: Results) -> pd.DataFrame:
    """Return one row per variant: means and standard deviations over seeds, and the difference to the group's baseline.

    The standard deviation is that of the means of the seeds; it is NaN for a single seed. ``dice_stopped_early`` is of
    the epoch that early stopping would choose, ``dice_best`` of the epoch that clean validation labels would choose.
    """
    rows = []
    for group, variants in by_group(results.variants).items():
        baseline = next(iter(variants.values()))
        for name, variant in variants.items():
            rows.append({"group": group, "variant": name, **_compare(results, variant, baseline)})
    return pd.DataFrame(rows)


def _compare(results: Results, variant: str, baseline: str) -> dict[str, Any]:
    runs, all_runs = results.finished(variant), results.of_variant(variant)
    row: dict[str, Any] = {"seeds": len(runs), "of_seeds": len(all_runs)}
    row["not_finished"] = ", ".join(run.status for run in all_runs if not run.finished)
    columns = [measure.column for measure in results.measures if measure.one_per != "set"] + [STOPPED_EARLY]
    scores, reference = (_all_cases(results.finished(name), columns) for name in (variant, baseline))
    for column in columns:
        row |= _over_seeds(column, scores[column].groupby("seed").mean())
    for column in (KEY, STOPPED_EARLY):
        found = (np.nan,) * 3 if variant == baseline else _gain(scores[column], reference[column])
        row |= zip((f"{column}_gain", f"{column}_gain_low", f"{column}_gain_high"), found, strict=True)
    row |= _over_seeds(BEST, [run.history[KEY_METRIC].max() for run in runs])
    for measure in results.measures:
        if measure.one_per == "set":
            row |= _over_seeds(measure.column, _means_of_last(runs, measure.name, LAST_EPOCHS))
        if measure.has_truth:
            row[f"{measure.column}_of_truth"] = pd.Series(_means_of_last(runs, measure.truth, 1), dtype=float).mean()
    return row


def _over_seeds(column: str, values: Iterable[float]) -> dict[str, float]:
    """Return the mean and the standard deviation of one value per seed."""
    seeds = pd.Series(values, dtype=float)
    return {column: seeds.mean(), f"{column}_deviation": seeds.std(ddof=1)}


def _all_cases(runs: Sequence[RunResult], columns: list[str]) -> pd.DataFrame:
    """Return one row per seed and case, one column per metric."""
    if not runs:
        return pd.DataFrame(columns=columns, index=pd.MultiIndex.from_tuples([], names=["seed", "case"]))
    return pd.concat({run.seed: run.cases for run in runs}, names=["seed", "case"]).reindex(columns=columns)


def _gain(scores: pd.Series, baseline: pd.Series) -> tuple[float, float, float]:
    """Return the paired difference over the seeds and cases that all trainings have."""
    values, reference = scores.unstack("case").align(baseline.unstack("case"), join="inner")
    complete = (values - reference).notna().all()
    if values.empty or not complete.any():
        return (np.nan,) * 3
    return paired_difference(values.loc[:, complete].to_numpy(), reference.loc[:, complete].to_numpy())


def _means_of_last(runs: Sequence[RunResult], metric: str, epochs: int) -> list[float]:
    """Return the mean of a metric over the last validated epochs of each training that has it."""
    return [float(run.history[metric].dropna().tail(epochs).mean()) for run in runs if metric in run.history]


def paired_difference(values: np.ndarray, baseline: np.ndarray) -> tuple[float, float, float]:
    """Return the mean paired difference of two arrays, and both ends of its 95 % bootstrap interval.

    Seeds and cases are both resampled, because another training and another case would both have given other numbers.

    Args:
        values: shape ``(seeds, cases)``.
        baseline: the same seeds and cases of the baseline.
    """
    paired = values - baseline
    seeds, cases = paired.shape
    drawn = np.random.default_rng(0).integers([seeds] * seeds + [cases] * cases, size=(4000, seeds + cases))
    over_seeds = paired[drawn[:, :seeds]].mean(1)
    means = np.take_along_axis(over_seeds, drawn[:, seeds:], axis=1).mean(1)
    low, high = np.percentile(means, (2.5, 97.5))
    return float(paired.mean()), float(low), float(high)
