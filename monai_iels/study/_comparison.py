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

"""How the variants of a study compare: means over seeds, and paired differences to the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from monai_iels.run_folder import KEY_METRIC
from monai_iels.study._definition import by_group
from monai_iels.study._results import LAST_EPOCHS, SET_METRIC, Results, RunResult

_METRICS = {KEY_METRIC: "dice", "val_roughness": "roughness", "val_convexity": "convexity"}


class Difference(NamedTuple):
    """A mean difference, and the ends of its 95 % interval."""

    mean: float
    low: float
    high: float


_NO_DIFFERENCE = Difference(np.nan, np.nan, np.nan)


def compare_variants(results: Results) -> pd.DataFrame:
    """Return one row per variant: means and standard deviations over seeds, and the difference to the group's baseline.

    The standard deviation is that of the means of the seeds; it is NaN for a single seed. Columns that contain
    ``_stopped_early`` are of the epoch that early stopping would choose; those that contain ``_best`` of the epoch that
    clean validation labels would choose.
    """
    rows = []
    for group, variants in by_group(results.variants).items():
        baseline = next(iter(variants.values()))
        for name, variant in variants.items():
            rows.append({"group": group, "variant": name, **_compare(results, variant, baseline)})
    return pd.DataFrame(rows)


def _compare(results: Results, variant: str, baseline: str) -> dict[str, Any]:
    runs, all_runs = results.finished(variant), results.of_variant(variant)
    row: dict[str, Any] = {"seeds": len(runs)}
    row["not_finished"] = ", ".join(run.status for run in all_runs if not run.finished)
    for tables, suffix in (("cases", ""), ("cases_stopped_early", "_stopped_early")):
        scores = _all_cases(runs, tables)
        for metric, title in _METRICS.items():
            means = scores[metric].groupby("seed").mean()
            row[f"{title}{suffix}"] = means.mean()
            row[f"{title}{suffix}_deviation"] = means.std(ddof=1)
        gain = _NO_DIFFERENCE
        if variant != baseline:
            gain = _gain(scores[KEY_METRIC], _all_cases(results.finished(baseline), tables)[KEY_METRIC])
        row[f"dice{suffix}_gain"], row[f"dice{suffix}_gain_low"], row[f"dice{suffix}_gain_high"] = gain
    best = pd.Series([run.history[KEY_METRIC].max() for run in runs], dtype=float)
    row["dice_best"], row["dice_best_deviation"] = best.mean(), best.std(ddof=1)
    of_sets = pd.Series([_mean_of_last(run, SET_METRIC) for run in runs if SET_METRIC in run.history])
    if len(of_sets):
        row["set_iou"], row["set_iou_deviation"] = of_sets.mean(), of_sets.std(ddof=1)
    row["roughness_of_truth"] = _last_value(runs, "val_roughness_of_truth")
    row["convexity_of_truth"] = _last_value(runs, "val_convexity_of_truth")
    row["seconds_of_fastest_epoch"] = min((run.history["seconds"].min() for run in runs), default=np.nan)
    row["of_seeds"] = len(all_runs)
    return row


def _all_cases(runs: Sequence[RunResult], tables: str) -> pd.DataFrame:
    """Return one row per seed and case."""
    if not runs:
        return pd.DataFrame(columns=list(_METRICS), index=pd.MultiIndex.from_tuples([], names=["seed", "case"]))
    return pd.concat({run.seed: getattr(run, tables) for run in runs}, names=["seed", "case"])


def _gain(scores: pd.Series, baseline: pd.Series) -> Difference:
    """Return the paired difference over the seeds and cases that all trainings have."""
    values, reference = scores.unstack("case").align(baseline.unstack("case"), join="inner")
    complete = (values - reference).notna().all()
    if values.empty or not complete.any():
        return _NO_DIFFERENCE
    return paired_difference(values.loc[:, complete].to_numpy(), reference.loc[:, complete].to_numpy())


def _mean_of_last(run: RunResult, metric: str) -> float:
    """Return the mean over the last validated epochs of a metric of all cases together."""
    return float(run.history[metric].dropna().tail(LAST_EPOCHS).mean())


def _last_value(runs: Sequence[RunResult], metric: str) -> float:
    """Return the mean over the seeds of a metric's last value."""
    values = [run.history[metric].dropna().tail(1) for run in runs if metric in run.history]
    return float(pd.concat(values).mean()) if values else float("nan")


def paired_difference(values: np.ndarray, baseline: np.ndarray, resamples: int = 4000) -> Difference:
    """Return the mean paired difference of two arrays, and its 95 % bootstrap interval.

    Seeds and cases are both resampled, because another training and another case would both have given other numbers.

    Args:
        values: shape ``(seeds, cases)``.
        baseline: the same seeds and cases of the baseline.
        resamples: number of bootstrap samples.
    """
    paired = values - baseline
    seeds, cases = paired.shape
    drawn = np.random.default_rng(0).integers([seeds] * seeds + [cases] * cases, size=(resamples, seeds + cases))
    over_seeds = paired[drawn[:, :seeds]].mean(1)
    means = np.take_along_axis(over_seeds, drawn[:, seeds:], axis=1).mean(1)
    low, high = np.percentile(means, (2.5, 97.5))
    return Difference(float(paired.mean()), float(low), float(high))
