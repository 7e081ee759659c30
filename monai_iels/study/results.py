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

"""What a study found: its numbers, from the tracked runs."""

import json
import logging
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mlflow.exceptions import MlflowException

from monai_iels.errors import first_line
from monai_iels.handlers.reports import read_csv
from monai_iels.handlers.tracking import embedded
from monai_iels.handlers.training import complete_file
from monai_iels.study.definition import by_group, slug
from monai_iels.study.folder import read_json

__all__ = ["LAST_EPOCHS", "collect", "difference", "finished_runs", "finite_mean", "save_results", "table"]

logger = logging.getLogger(__name__)

LAST_EPOCHS = 3
_RESAMPLES = 4000
_KEPT = ("val_mean_dice", "val_dice_on_noisy_labels", "val_roughness", "val_convexity")


def collect(folder: Path) -> dict[str, Any]:
    """Read a study's results from its tracked runs, or from a ``results.json`` where they are not to be had.

    Args:
        folder: output folder of a study.

    Returns:
        the study's settings; and to each run its variant, seed, status, metrics an epoch, and metrics a case: at the
        end, a mean of the last three epochs that were judged, and at the one that looks best on labels as noisy as the
        training's.

    Raises:
        FileNotFoundError: if there is neither.
    """
    saved = folder / "results.json"
    if not (folder / "study.json").exists() and not saved.exists():
        raise FileNotFoundError(
            f"{folder}: expected a study's study.json or results.json, found neither. Run it first."
        )
    if (folder / "study.json").exists():
        try:
            return _collect_runs(folder)
        except (MlflowException, OSError) as error:
            if not saved.exists():
                raise
            logger.warning(f"{folder}: the runs cannot be read ('{first_line(error)}'); {saved} is used.")
    results = read_json(saved, "study", "bundle", "variants", "seeds", "runs")
    return {**results, "runs": _each(results["runs"], _nan_for_none)}


def _collect_runs(folder: Path) -> dict[str, Any]:
    from mlflow import MlflowClient

    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    results = read_json(folder / "study.json", "study", "bundle", "variants", "seeds", "run_id")
    uri = results.pop("tracking_uri")
    if uri is None and not (folder / "mlflow.db").exists():
        raise FileNotFoundError(f"{folder / 'mlflow.db'}: expected the study's tracked runs, found no such file.")
    client = MlflowClient(tracking_uri=uri or embedded(folder))
    parent = client.get_run(results.pop("run_id"))
    found: dict[tuple[str, int], Any] = {}
    where = f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'"
    for run in client.search_runs([parent.info.experiment_id], where, order_by=["start_time"], max_results=50000):
        key = run.data.tags["study.variant"], int(run.data.tags["study.seed"])
        if run.info.status == "FINISHED" or key not in found or found[key].info.status != "FINISHED":
            found[key] = run
    results["versions"] = {
        tag: ", ".join(sorted({run.data.tags.get(tag, "") for run in found.values()} - {""}))
        for tag in sorted({tag for run in found.values() for tag in run.data.tags})
        if "version" in tag or tag == "git_revision"
    }
    failed = results.pop("failed", {})
    results["runs"] = [
        _run(client, variant, seed, found.get((variant, seed)), failed.get(f"{variant}, seed {seed}"))
        for variant in results["variants"]
        for seed in results["seeds"]
    ]
    _keep_pictures(client, results, found, folder)
    return results


def _run(client: Any, variant: str, seed: int, run: Any, failed: str | None) -> dict[str, Any]:
    """Return one run's numbers; of a run that did not finish, only how it ended."""
    base = {"variant": variant, "seed": seed}
    if run is None:
        return {**base, "status": "MISSING" if failed is None else "FAILED", "stopped": failed or ""}
    if run.info.status != "FINISHED":
        return {**base, "status": run.info.status, "stopped": run.data.tags.get("stopped", "")}
    names = [*_KEPT, "val_roughness_of_truth", "val_convexity_of_truth", "loss", "seconds"]
    points = {
        name: sorted(client.get_metric_history(run.info.run_id, name), key=lambda point: point.step)
        for name in names
        if name in run.data.metrics
    }
    history = {name: [round(point.value, 5) for point in found] for name, found in points.items()}
    history["epochs"] = [point.step for point in points["val_mean_dice"]]
    with tempfile.TemporaryDirectory() as scratch:
        rows = read_csv(Path(client.download_artifacts(run.info.run_id, "cases.csv", scratch)))
    judge = history.get("val_dice_on_noisy_labels", history["val_mean_dice"])
    stop = history["epochs"][int(np.argmax(np.nan_to_num(judge, nan=-1.0)))]
    return {
        **base,
        "status": "FINISHED",
        "stopped_early_at": stop,
        "history": history,
        "cases": _cases(rows, history["epochs"][-LAST_EPOCHS:]),
        "cases_stopped_early": _cases(rows, [stop]),
    }


def _cases(rows: Sequence[Mapping[str, Any]], epochs: Sequence[float]) -> dict[str, dict[str, float]]:
    """Return the metrics of each case, a mean over some epochs."""
    chosen = [row for row in rows if row["epoch"] in epochs]
    names = sorted({row["case"] for row in chosen})
    metrics = [metric for metric in _KEPT if metric in chosen[0]]
    mine = {name: [row for row in chosen if row["case"] == name] for name in names}
    return {
        metric: {name: round(finite_mean([row.get(metric, np.nan) for row in mine[name]]), 5) for name in names}
        for metric in metrics
    }


def _keep_pictures(client: Any, results: dict[str, Any], found: Mapping[Any, Any], folder: Path) -> None:
    """Copy the arrays of the pictures beside the study, a variant a file."""
    seed = results["seeds"][0]
    (folder / "panels").mkdir(exist_ok=True)
    for variant in results["variants"]:
        target = folder / "panels" / f"{slug(variant)}.npz"
        run = found.get((variant, seed))
        if run is None or run.info.status != "FINISHED":
            target.unlink(missing_ok=True)
            continue
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(client.download_artifacts(run.info.run_id, "validation.npz", scratch))
            with complete_file(target) as part:
                part.write_bytes(file.read_bytes())


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


def finite_mean(values: Sequence[float] | np.ndarray) -> float:
    """Return the mean of those values that are finite; NaN if none is."""
    finite = np.asarray(values, dtype=float)
    finite = finite[np.isfinite(finite)]
    return float(finite.mean()) if finite.size else float("nan")


def save_results(results: Mapping[str, Any], file: Path) -> None:
    """Write what :func:`collect` returned as JSON, which has no NaN."""
    with complete_file(file) as part:
        part.write_text(json.dumps(_each(results, _none_for_nan), separators=(",", ":")) + "\n", encoding="utf-8")


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return nested tables and lists with every value in them changed."""
    if isinstance(value, Mapping):
        return {key: _each(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_each(item, change) for item in value]
    return change(value)


def _none_for_nan(value: Any) -> Any:
    return None if isinstance(value, float) and value != value else value


def _nan_for_none(value: Any) -> Any:
    return float("nan") if value is None else value
