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

import logging
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mlflow.exceptions import MlflowException

from monai_iels.errors import first_line
from monai_iels.handlers.addresses import embedded, remember, signed_in
from monai_iels.handlers.reports import read_csv
from monai_iels.handlers.training import complete_file
from monai_iels.study.definition import slug
from monai_iels.study.files import read_json, write_json

__all__ = ["LAST_EPOCHS", "collect", "finite_mean", "save_results"]

logger = logging.getLogger(__name__)

LAST_EPOCHS = 3
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
    with signed_in(remember(uri or embedded(folder))) as reachable:
        return _read_runs(MlflowClient(tracking_uri=reachable), results, folder)


def _read_runs(client: Any, results: dict[str, Any], folder: Path) -> dict[str, Any]:
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
    failed, ended = results.pop("failed", {}), results.pop("ended", {})
    results["runs"] = [
        _run(client, variant, seed, found.get((variant, seed)), _noted(f"{variant}, seed {seed}", failed, ended))
        for variant in results["variants"]
        for seed in results["seeds"]
    ]
    _keep_pictures(client, results, found, folder)
    return results


def _noted(name: str, failed: Mapping[str, str], ended: Mapping[str, str]) -> dict[str, str]:
    """Return what the study itself saw of a training that did not finish."""
    return {"status": ended.get(name, "FAILED"), "stopped": failed[name]} if name in failed else {}


def _run(client: Any, variant: str, seed: int, run: Any, noted: Mapping[str, str]) -> dict[str, Any]:
    """Return one run's numbers; of a run that did not finish, only how it ended."""
    base: dict[str, Any] = {"variant": variant, "seed": seed}
    if run is None:
        return {**base, "status": "MISSING", "stopped": "", **noted}
    if run.info.status != "FINISHED":
        told = {"status": run.info.status, "stopped": run.data.tags.get("stopped", "")}
        return {**base, **told, **({"status": noted["status"]} if noted else {})}
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


def finite_mean(values: Sequence[float] | np.ndarray) -> float:
    """Return the mean of those values that are finite; NaN if none is."""
    finite = np.asarray(values, dtype=float)
    finite = finite[np.isfinite(finite)]
    return float(finite.mean()) if finite.size else float("nan")


def save_results(results: Mapping[str, Any], file: Path) -> None:
    """Write what :func:`collect` returned as JSON, which has no NaN."""
    write_json(_each(results, _none_for_nan), file, indent=None)


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
