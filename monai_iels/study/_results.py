# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""What a study found: the numbers of its trainings, from their folders or from ``results.json.gz``."""

import gzip
import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from monai_iels._files import atomic, read_json
from monai_iels._terminal import first_line
from monai_iels.measures import KEY_METRIC, MEASURES, Measure, compared
from monai_iels.run_folder import RunFolder
from monai_iels.study._folder import StudyFolder
from monai_iels.study._methods import Overrides
from monai_iels.tracking import Journal

LAST_EPOCHS = 3
KEY = MEASURES[KEY_METRIC].column
STOPPED_EARLY = f"{KEY}_stopped_early"
_DIGITS = 5


@dataclass(frozen=True, eq=False)
class RunResult:
    """The numbers of one training; without tables if it did not finish.

    Args:
        variant: its variant.
        seed: its seed.
        status: ``FINISHED``, ``FAILED``, ``KILLED``, ``RUNNING`` or ``MISSING``.
        stopped: why it did not finish.
        history: one row per validated epoch, one column per metric.
        cases: one row per validation case, one column per metric: means over the last three validated epochs. The
            column ``dice_stopped_early`` is of the epoch with the best Dice on labels that are as noisy as those of
            the training.
    """

    variant: str
    seed: int
    status: str
    stopped: str = ""
    history: pd.DataFrame = field(default_factory=pd.DataFrame)
    cases: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def ending(self) -> str:
        """How the training ended, and why."""
        return f"{self.status} ({self.stopped})" if self.stopped else self.status

    @property
    def finished(self) -> bool:
        """Whether the training finished."""
        return self.status == "FINISHED"


@dataclass(frozen=True, eq=False)
class Results:
    """What a study compares, all variants and seeds that were ever asked for in its folder, and their numbers.

    Args:
        study: its name.
        bundle: name of the bundle.
        preset: name of the settings that all variants share.
        settings: these settings.
        synthetic: whether the images are drawn.
        variants: the overrides of each variant.
        seeds: all seeds.
        command: gives the same results.
        versions: of the packages that were used.
        runs: one per variant and seed.
    """

    study: str
    bundle: str
    preset: str
    settings: Overrides
    synthetic: bool
    variants: dict[str, Overrides]
    seeds: list[int]
    command: str
    versions: dict[str, str]
    runs: list[RunResult]

    def of_variant(self, variant: str) -> list[RunResult]:
        """Return all trainings of a variant."""
        return [run for run in self.runs if run.variant == variant]

    def finished(self, variant: str) -> list[RunResult]:
        """Return the trainings of a variant that finished."""
        return [run for run in self.of_variant(variant) if run.finished]

    @property
    def measures(self) -> list[Measure]:
        """What the trainings have measured, in the order of the page; if none has finished, what they would measure."""
        measured = {name for run in self.runs for name in run.history}
        return [m for m in compared() if (m.name in measured if measured else m.one_per != "set")]


def read_results(folder: Path) -> Results:
    """Read the results of a study from the folders of its trainings, or from ``results.json.gz`` if there are none.

    Args:
        folder: output folder of a study, or a folder with its ``results.json.gz``.

    Raises:
        FileNotFoundError: if the folder has no results.
        ValueError: if a file is damaged.
    """
    files = StudyFolder(folder)
    if files.summary.exists():
        # all but the versions and the runs
        about = read_json(files.summary, *(item.name for item in fields(Results)[:-2]))
        trainings = {key: files.training(*key) for key in product(about["variants"], about["seeds"])}
        if any(training.path.exists() for training in trainings.values()):
            runs = [_read_run(*key, training) for key, training in trainings.items()]
            return Results(**about, versions=_versions(trainings.values()), runs=runs)
    if not files.results.exists():
        raise FileNotFoundError(f"{folder} has neither trainings nor {files.results.name}; run the study first")
    try:
        content = json.loads(gzip.decompress(files.results.read_bytes()))
        return Results(**{**content, "runs": [_run_from_json(run) for run in content["runs"]]})
    except (OSError, ValueError, EOFError, zlib.error, KeyError, TypeError) as error:
        raise ValueError(f"{files.results} cannot be read ({first_line(error)})") from None


def _read_run(variant: str, seed: int, folder: RunFolder) -> RunResult:
    journal = Journal(folder.tracking)
    status = journal.status() or ("RUNNING" if journal.entries() else "MISSING")
    if status != "FINISHED":
        return RunResult(variant, seed, status, journal.tags_and_parameters().get("stopped", ""))
    history, cases = folder.read_history(), folder.read_cases()
    if history.empty or cases.empty:
        raise ValueError(f"{folder.path} lacks {folder.history.name} or {folder.cases.name}; train it again")
    history = history.set_index(history["epoch"].astype(int)).dropna(subset=[KEY_METRIC])
    noisy = next((m.name for m in MEASURES.values() if m.on_noisy_labels and m.name in history), KEY_METRIC)
    kept = [name for m in compared() for name in (m.name, m.truth) if name in history]
    means = _case_means(cases, history.index[-LAST_EPOCHS:])
    means[STOPPED_EARLY] = _case_means(cases, [history[noisy].fillna(-1.0).idxmax()])[KEY]
    return RunResult(variant, seed, status, history=history[kept].round(_DIGITS), cases=means.round(_DIGITS))


def _case_means(cases: pd.DataFrame, epochs: Iterable[int]) -> pd.DataFrame:
    """Return the metrics of each case as means over some epochs."""
    columns = {measure.name: measure.column for measure in compared() if measure.name in cases}
    return cases[cases["epoch"].isin(epochs)].groupby("case")[[*columns]].mean().rename(columns=columns)


def _versions(folders: Iterable[RunFolder]) -> dict[str, str]:
    """Return the versions that the trainings recorded; several where they differ."""
    recorded = [Journal(folder.tracking).tags_and_parameters() for folder in folders]
    tags = sorted({tag for tags in recorded for tag in tags if "version" in tag or tag == "git_revision"})
    found = {tag: sorted({str(tags[tag])[:20] for tags in recorded if tags.get(tag)}) for tag in tags}
    return {tag: ", ".join(values) for tag, values in found.items() if values}


def save_results(results: Results, file: Path) -> None:
    """Write ``results.json.gz``; NaN becomes null."""
    content = {**vars(results), "runs": [_run_to_json(run) for run in results.runs]}
    with atomic(file) as part:
        part.write_bytes(gzip.compress(json.dumps(content, separators=(",", ":"), default=str).encode(), mtime=0))


def _run_to_json(run: RunResult) -> dict[str, Any]:
    """Return a training with one list per column of its tables, which compresses well."""
    tables = {name: json.loads(getattr(run, name).T.to_json(orient="split")) for name in ("history", "cases")}
    return {**vars(run), **tables}


def _run_from_json(content: dict[str, Any]) -> RunResult:
    tables = {name: pd.DataFrame(**content[name], dtype=float).T for name in ("history", "cases")}
    return RunResult(**{**content, **tables})
