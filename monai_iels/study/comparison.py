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

"""How the variants of a study compare: means over seeds, and paired differences to the first."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from monai_iels.study.definition import by_group
from monai_iels.study.results import finite_mean

__all__ = ["difference", "finished_runs", "table"]

_RESAMPLES = 4000


def finished_runs(results: Mapping[str, Any], variant: str) -> dict[int, dict[str, Any]]:
    """Return the runs of a variant that finished, by seed."""
    return {run["seed"]: run for run in results["runs"] if run["variant"] == variant and run["status"] == "FINISHED"}


def table(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row a variant: mean and deviation over seeds, and the paired difference to the group's baseline.

    The deviation is of the seeds' means, and left out for a single seed.
    """
    rows = []
    for group, variants in by_group(results["variants"]).items():
        first = next(iter(variants.values()))
        baseline = finished_runs(results, first)
        for name, variant in variants.items():
            runs = finished_runs(results, variant)
            ended = [run["status"] for run in results["runs"] if run["variant"] == variant]
            row: dict[str, Any] = {"group": group, "variant": name, "seeds": len(runs)}
            row["not_finished"] = ", ".join(status for status in ended if status != "FINISHED")
            for cases, suffix in (("cases", ""), ("cases_stopped_early", "_stopped_early")):
                row.update(_columns(runs, baseline, cases, suffix, variant == first))
            for name_of_truth in ("val_roughness_of_truth", "val_convexity_of_truth"):
                values = [run["history"][name_of_truth][-1] for run in runs.values() if name_of_truth in run["history"]]
                row[name_of_truth.removeprefix("val_")] = finite_mean(values)
            fastest = [min(run["history"]["seconds"]) for run in runs.values()]
            row.update(seconds_of_fastest_epoch=min(fastest, default=np.nan), of_seeds=len(ended))
            rows.append(row)
    return rows


def _columns(
    runs: Mapping[int, dict[str, Any]], baseline: Mapping[int, dict[str, Any]], cases: str, suffix: str, first: bool
) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for metric, title in (("val_mean_dice", "dice"), ("val_roughness", "roughness"), ("val_convexity", "convexity")):
        means = [finite_mean(list(run[cases][metric].values())) for run in runs.values()]
        row[f"{title}{suffix}"] = finite_mean(means)
        row[f"{title}{suffix}_deviation"] = float(np.std(means, ddof=1)) if len(means) > 1 else float("nan")
    both = sorted(runs.keys() & baseline.keys())
    low = high = mean = float("nan")
    names = _common_cases([side[seed][cases]["val_mean_dice"] for seed in both for side in (runs, baseline)])
    if names and not first:
        mine, other = (
            np.array([[side[seed][cases]["val_mean_dice"][name] for name in names] for seed in both], dtype=float)
            for side in (runs, baseline)
        )
        mean, (low, high) = difference(mine, other)
    row.update({f"dice{suffix}_gain": mean, f"dice{suffix}_gain_low": low, f"dice{suffix}_gain_high": high})
    return row


def _common_cases(tables: Sequence[Mapping[str, float]]) -> list[str]:
    """Return the names of the cases that all tables have: a variant may have trained with others."""
    return [name for name in tables[0] if all(name in table for table in tables)] if tables else []


def difference(
    values: np.ndarray, baseline: np.ndarray, resamples: int = _RESAMPLES
) -> tuple[float, tuple[float, float]]:
    """Return the mean paired difference of two arrays ``(seeds, cases)``, and its 95 % bootstrap interval.

    Seeds and cases are both drawn anew, since another training and another case would both have given other numbers.
    """
    paired = values - baseline
    rng = np.random.default_rng(0)
    seeds, cases = paired.shape
    means = [
        np.nanmean(paired[rng.integers(seeds, size=seeds)][:, rng.integers(cases, size=cases)])
        for _ in range(resamples)
    ]
    low, high = np.percentile(means, (2.5, 97.5))
    return float(np.nanmean(paired)), (float(low), float(high))
