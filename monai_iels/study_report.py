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

"""What a study found: its numbers from the tracked runs, and the page that shows them."""

from __future__ import annotations

import base64
import html
import json
import logging
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mlflow.exceptions import MlflowException

from monai_iels.errors import first_line
from monai_iels.handlers.reports import read_csv, write_csv
from monai_iels.handlers.tracking import embedded
from monai_iels.handlers.training import complete_file
from monai_iels.pictures import study_curves, study_panels

__all__ = ["by_group", "collect", "difference", "read_json", "slug", "table", "write_report"]

logger = logging.getLogger(__name__)

_LAST = 3
_RESAMPLES = 4000
_KEPT = ("val_mean_dice", "val_dice_on_noisy_labels", "val_roughness", "val_convexity")


def slug(name: str) -> str:
    """Return a variant's name as a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def read_json(file: Path, *expected: str) -> dict[str, Any]:
    """Read a file that a study has written.

    Raises:
        ValueError: if it is broken, or lacks what is expected.
    """
    try:
        content = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{file}: expected what a study writes, found '{error}'. Run the study again.") from None
    if not isinstance(content, dict) or not content.keys() >= set(expected):
        raise ValueError(f"{file}: expected {', '.join(expected)}, found no such keys. Run the study again.")
    return content


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
        "cases": _cases(rows, history["epochs"][-_LAST:]),
        "cases_stopped_early": _cases(rows, [stop]),
    }


def _cases(rows: Sequence[Mapping[str, Any]], epochs: Sequence[float]) -> dict[str, dict[str, float]]:
    """Return the metrics of each case, a mean over some epochs."""
    chosen = [row for row in rows if row["epoch"] in epochs]
    names = sorted({row["case"] for row in chosen})
    metrics = [metric for metric in _KEPT if metric in chosen[0]]
    mine = {name: [row for row in chosen if row["case"] == name] for name in names}
    return {
        metric: {name: round(_mean([row.get(metric, np.nan) for row in mine[name]]), 5) for name in names}
        for metric in metrics
    }


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return nested tables and lists with every value in them changed."""
    if isinstance(value, Mapping):
        return {key: _each(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_each(item, change) for item in value]
    return change(value)


def _none_for_nan(value: Any) -> Any:  # which JSON does not have
    return None if isinstance(value, float) and value != value else value


def _nan_for_none(value: Any) -> Any:
    return float("nan") if value is None else value


def _mean(values: Sequence[float] | np.ndarray) -> float:
    finite = np.asarray(values, dtype=float)
    finite = finite[np.isfinite(finite)]
    return float(finite.mean()) if finite.size else float("nan")


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


def by_group(variants: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return variants by group: to each group, the full name of each variant by its short one, the baseline first."""
    groups: dict[str, dict[str, str]] = {}
    for variant in variants:
        group, _, name = variant.rpartition(" / ")
        groups.setdefault(group, {})[name] = variant
    return groups


def _runs(results: Mapping[str, Any], variant: str) -> dict[int, dict[str, Any]]:
    return {run["seed"]: run for run in results["runs"] if run["variant"] == variant and run["status"] == "FINISHED"}


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


def table(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row a variant: mean and deviation over seeds, and the paired difference to the group's baseline.

    The deviation is of the seeds' means, and left out for a single seed.
    """
    rows = []
    for group, variants in by_group(results["variants"]).items():
        first = next(iter(variants.values()))
        baseline = _runs(results, first)
        for name, variant in variants.items():
            runs = _runs(results, variant)
            ended = [run["status"] for run in results["runs"] if run["variant"] == variant]
            row: dict[str, Any] = {"group": group, "variant": name, "seeds": len(runs)}
            row["not_finished"] = ", ".join(status for status in ended if status != "FINISHED")
            for cases, suffix in (("cases", ""), ("cases_stopped_early", "_stopped_early")):
                row.update(_columns(runs, baseline, cases, suffix, variant == first))
            for name_of_truth in ("val_roughness_of_truth", "val_convexity_of_truth"):
                values = [run["history"][name_of_truth][-1] for run in runs.values() if name_of_truth in run["history"]]
                row[name_of_truth.removeprefix("val_")] = _mean(values)
            fastest = [min(run["history"]["seconds"]) for run in runs.values()]
            row.update(seconds_of_fastest_epoch=min(fastest, default=np.nan), of_seeds=len(ended))
            rows.append(row)
    return rows


def _columns(
    runs: Mapping[int, dict[str, Any]], baseline: Mapping[int, dict[str, Any]], cases: str, suffix: str, first: bool
) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for metric, title in (("val_mean_dice", "dice"), ("val_roughness", "roughness"), ("val_convexity", "convexity")):
        means = [_mean(list(run[cases][metric].values())) for run in runs.values()]
        row[f"{title}{suffix}"] = _mean(means)
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


def write_report(results: Mapping[str, Any], folder: Path, panels: Path | None = None) -> Path:
    """Write the study as JSON, CSV, Markdown, PNG and one HTML page with everything in it.

    Args:
        results: what :func:`collect` returned.
        folder: where to write.
        panels: folder with the arrays of the pictures of the data; without it there are none.

    Returns:
        the page.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = table(results)
    with complete_file(folder / "results.json") as part:
        part.write_text(json.dumps(_each(results, _none_for_nan), separators=(",", ":")) + "\n", encoding="utf-8")
    with complete_file(folder / "table.csv") as part:
        write_csv(part, rows)
    for old in folder.glob("panels*.png"):
        old.unlink()
    pictures = []
    groups = by_group(results["variants"])
    histories = {
        group: {name: [run["history"] for run in _runs(results, full).values()] for name, full in variants.items()}
        for group, variants in groups.items()
    }
    if any(seeds for variants in histories.values() for seeds in variants.values()):
        study_curves(histories, folder / "curves.png")
        pictures.append("curves.png")
    for number, (group, variants) in enumerate(groups.items()):
        rows_of_pictures = _panels(variants, panels) if panels is not None else []
        if rows_of_pictures:
            name = f"panels-{number}.png" if len(groups) > 1 else "panels.png"
            study_panels(rows_of_pictures, group, folder / name)
            pictures.append(name)
    markdown = "\n".join(_markdown(results, rows, pictures))
    with complete_file(folder / "report.md") as part:
        part.write_text(markdown + "\n", encoding="utf-8")
    page = folder / "report.html"
    with complete_file(page) as part:
        part.write_text(_html(results, rows, [folder / name for name in pictures]), encoding="utf-8")
    return page


def _panels(variants: Mapping[str, str], folder: Path) -> list[dict[str, np.ndarray]]:
    """Return a row a case: image, truth, and what each variant predicts."""
    rows: list[dict[str, np.ndarray]] = []
    for name, full in variants.items():
        file = folder / f"{slug(full)}.npz"
        if not file.exists():
            continue
        with np.load(file) as arrays:
            count = len({key.split("/")[0] for key in arrays})
            for index in range(count):
                if len(rows) == index:
                    rows.append({"image": arrays[f"{index}/image"], "truth": arrays[f"{index}/truth"]})
                rows[index][name] = arrays[f"{index}/evaluation"]
    return rows


def _notes(results: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a reader must know before the numbers."""
    if results["synthetic"]:
        yield "The images are drawn: this is the embedded sample, not the real data set."
    size = (
        "the bundle's own settings" if results["preset"] == "paper" else "smaller than the paper's setting, for a CPU"
    )
    first, *others = results["variants"].values()
    common = {key: value for key, value in first.items() if all(other.get(key) == value for other in others)}
    settings = ", ".join(
        f"{key} {'its own' if isinstance(value, dict) else value}"
        for key, value in {**results["settings"], **common}.items()
    )
    yield f"Preset {results['preset']}: {size}" + (f" ({settings})." if settings else ".")
    count = len(results["seeds"])
    seeds, over = ("1 seed", "cases") if count == 1 else (f"{count} seeds", "seeds and cases")
    yield (
        f"{seeds}. Numbers are of the validation cases against clean labels: means over the last {_LAST} epochs that "
        "were judged, ± the standard deviation over seeds; in brackets the paired difference to the first variant with "
        f"its 95 % bootstrap interval over {over}. 'Stopped early' takes the epoch with the best Dice on validation "
        "labels that are as noisy as those of the training."
    )
    for variant in results["variants"]:
        bad = [run for run in results["runs"] if run["variant"] == variant and run["status"] != "FINISHED"]
        if bad:
            why = {run["status"] + (f" ({run['stopped']})" if run.get("stopped") else "") for run in bad}
            seeds = ", ".join(str(run["seed"]) for run in bad)
            yield f"Not finished: {variant}, seed {seeds}: {'; '.join(sorted(why))}."


_HEADINGS = ("", "Dice", "Dice, stopped early", "roughness", "convexity", "fastest epoch, s")


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    if not row["seeds"]:
        return row["variant"], row["not_finished"] or "missing", "", "", "", ""
    dice = (_value(row, "dice") + _gain(row, ""), _value(row, "dice_stopped_early") + _gain(row, "_stopped_early"))
    name = row["variant"] + (f" ({row['seeds']} of {row['of_seeds']} seeds)" if row["seeds"] < row["of_seeds"] else "")
    return name, *dice, _value(row, "roughness"), _value(row, "convexity"), f"{row['seconds_of_fastest_epoch']:.1f}"


def _value(row: Mapping[str, Any], name: str) -> str:
    deviation = row[f"{name}_deviation"]
    return f"{row[name]:.3f}" + (f" ± {deviation:.3f}" if deviation == deviation else "")


def _gain(row: Mapping[str, Any], suffix: str) -> str:
    mean, low, high = (row[f"dice{suffix}_gain{part}"] for part in ("", "_low", "_high"))
    return f" ({mean:+.3f}, {low:+.3f} to {high:+.3f})" if mean == mean else ""


def _tables(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """Yield the cells of each group's table; the truth's own roughness and convexity close it."""
    for group in dict.fromkeys(row["group"] for row in rows):
        mine = [row for row in rows if row["group"] == group]
        truth = [_mean([row[name] for row in mine]) for name in ("roughness_of_truth", "convexity_of_truth")]
        cells = [_cells(row) for row in mine]
        yield group, [*cells, ("truth", "", "", *(f"{v:.3f}" if v == v else "" for v in truth), "")]


def _markdown(results: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], pictures: Sequence[str]) -> Iterator[str]:
    yield f"# {results['bundle']}: {results['study'].replace('_', ' ')}\n"
    for note in _notes(results):
        yield f"{note}\n"
    for group, cells in _tables(rows):
        if group:
            yield f"## {group}\n"
        yield "| " + " | ".join(_HEADINGS) + " |"
        yield "|---" * len(_HEADINGS) + "|"
        for row in cells:
            yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
        yield ""
    for name in pictures:
        yield f"![{name.split('.')[0]}]({name})\n"
    yield f"Command: `{results.get('command', '')}`\n"
    yield _versions(results)


def _versions(results: Mapping[str, Any]) -> str:
    return "Versions: " + ", ".join(f"{key} {value}" for key, value in results["versions"].items())


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid #ccc; text-align: left; white-space: nowrap; }
tr:last-child td { color: #666; font-style: italic; }
img { max-width: 100%; } code { font-size: .85em; overflow-wrap: anywhere; }
.note { border-left: 4px solid #d90; padding-left: .8rem; }
@media print { body { margin: 0; max-width: none; font-size: 10px; } img, table { break-inside: avoid; }
  table { display: table; } th, td { white-space: normal; padding: .2rem .4rem; } }
"""


def _html(results: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], pictures: Sequence[Path]) -> str:
    title = html.escape(f"{results['bundle']}: {results['study'].replace('_', ' ')}")
    parts = [f"<h1>{title}</h1>", *(f'<p class="note">{html.escape(note)}</p>' for note in _notes(results))]
    for group, cells in _tables(rows):
        parts.append(f"<h2>{html.escape(group)}</h2>" if group else "")
        head = "".join(f"<th>{heading}</th>" for heading in _HEADINGS)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in cells)
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
    for file in pictures:
        encoded = base64.b64encode(file.read_bytes()).decode()
        parts.append(f'<p><img alt="{file.stem}" src="data:image/png;base64,{encoded}"></p>')
    parts.append(f"<p>Command: <code>{html.escape(results.get('command', ''))}</code></p>")
    parts.append(f"<p>{html.escape(_versions(results))}</p>")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>'
        f"<body>{''.join(parts)}</body></html>\n"
    )
