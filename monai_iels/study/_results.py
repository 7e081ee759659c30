# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""What a study found: the numbers of its trainings, from their folders or from ``results.json``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from monai_iels._files import write_json
from monai_iels.measures import KEY_METRIC, MEASURES, Measure, compared
from monai_iels.run_folder import RunFolder
from monai_iels.study._folder import StudyFolder, StudySummary
from monai_iels.tracking import Journal

LAST_EPOCHS = 3
_TABLES = ("history", "cases", "cases_stopped_early")
_DIGITS = 5


@dataclass(frozen=True, eq=False)
class RunResult:
    """The numbers of one training; without tables if it did not finish.

    Args:
        variant: its variant.
        seed: its seed.
        status: ``FINISHED``, ``FAILED``, ``KILLED``, ``RUNNING`` or ``MISSING``.
        stopped: why it did not finish.
        stopped_early_at: the epoch with the best Dice on labels that are as noisy as those of the training.
        history: one row per epoch, one column per metric; NaN where an epoch was not validated.
        cases: one row per validation case, one column per metric: means over the last three validated epochs.
        cases_stopped_early: the same at the epoch ``stopped_early_at``.
    """

    variant: str
    seed: int
    status: str
    stopped: str = ""
    stopped_early_at: int | None = None
    history: pd.DataFrame = field(default_factory=pd.DataFrame)
    cases: pd.DataFrame = field(default_factory=pd.DataFrame)
    cases_stopped_early: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def finished(self) -> bool:
        """Whether the training finished."""
        return self.status == "FINISHED"

    @property
    def ending(self) -> str:
        """How the training ended, and why."""
        return f"{self.status} ({self.stopped})" if self.stopped else self.status


@dataclass(frozen=True, eq=False)
class Results(StudySummary):
    """What a study compares, and the numbers of all its trainings.

    Args:
        versions: of the packages that were used.
        runs: one per variant and seed.
    """

    versions: dict[str, str]
    runs: list[RunResult]

    def of_variant(self, variant: str) -> list[RunResult]:
        """Return all trainings of a variant."""
        return [run for run in self.runs if run.variant == variant]

    @property
    def last_epochs(self) -> list[int]:
        """The epochs that the means are over, or none if they differ between trainings."""
        validated = {tuple(run.history[KEY_METRIC].dropna().index[-LAST_EPOCHS:]) for run in self.runs if run.finished}
        return list(validated.pop()) if len(validated) == 1 else []

    @property
    def measures(self) -> list[Measure]:
        """What the trainings have measured, in the order of the page; if none has finished, what they would measure."""
        measured = {name for run in self.runs for name in run.history}
        return [m for m in compared() if (m.name in measured if measured else m.one_per != "set")]

    def finished(self, variant: str) -> list[RunResult]:
        """Return the trainings of a variant that finished."""
        return [run for run in self.of_variant(variant) if run.finished]


def read_results(folder: Path) -> Results:
    """Read the results of a study from the folders of its trainings, or from ``results.json`` if there are none.

    Args:
        folder: output folder of a study, or a folder with its ``results.json``.

    Raises:
        FileNotFoundError: if the folder has no results.
        ValueError: if a file is damaged.
    """
    files = StudyFolder(folder)
    if files.summary.exists():
        summary = StudySummary.read(files.summary)
        trainings = {key: files.training(*key) for key in product(summary.variants, summary.seeds)}
        if any(training.path.exists() for training in trainings.values()):
            runs = [_read_run(*key, training) for key, training in trainings.items()]
            return Results(**vars(summary), versions=_versions(trainings.values()), runs=runs)
    if not files.results.exists():
        raise FileNotFoundError(f"{folder} has neither trainings nor a results.json; run the study first")
    saved = Results.read(files.results)
    return replace(saved, runs=[_run_from_json(content) for content in vars(saved)["runs"]])


def _read_run(variant: str, seed: int, folder: RunFolder) -> RunResult:
    journal = Journal(folder.tracking)
    status = journal.status()
    if status != "FINISHED":
        running = "RUNNING" if journal.entries() else "MISSING"
        return RunResult(variant, seed, status or running, journal.tags_and_parameters().get("stopped", ""))
    table, cases = folder.read_history(), folder.read_cases()
    if table.empty or cases.empty:
        raise ValueError(f"{folder.path} lacks {folder.history.name} or {folder.cases.name}; train it again")
    kept = _kept()
    columns = [*(m.name for m in kept), *(m.truth for m in kept if m.has_truth), "loss", "seconds"]
    history = table[[name for name in columns if name in table]].round(_DIGITS)
    history.index = table["epoch"].astype(int)
    stopping_metric = next((m.name for m in kept if m.on_noisy_labels and m.name in history), KEY_METRIC)
    stopped_early_at = int(history[stopping_metric].fillna(-1.0).idxmax())
    return RunResult(
        variant,
        seed,
        status,
        stopped_early_at=stopped_early_at,
        history=history,
        cases=_case_means(cases, sorted(cases["epoch"].unique())[-LAST_EPOCHS:]),
        cases_stopped_early=_case_means(cases, [stopped_early_at]),
    )


def _kept() -> list[Measure]:
    """Return the measures that a study keeps: first those of each case."""
    kept = (measure for measure in MEASURES.values() if measure.in_study or measure.on_noisy_labels)
    return sorted(kept, key=lambda measure: measure.one_per == "set")


def _case_means(cases: pd.DataFrame, epochs: Sequence[float]) -> pd.DataFrame:
    """Return the metrics of each case as means over some epochs."""
    metrics = [measure.name for measure in _kept() if measure.name in cases]
    return cases[cases["epoch"].isin(epochs)].groupby("case")[metrics].mean().round(_DIGITS)


def _versions(folders: Iterable[RunFolder]) -> dict[str, str]:
    """Return the versions that the trainings recorded; several where they differ."""
    found: dict[str, set[str]] = {}
    for folder in folders:
        for tag, value in Journal(folder.tracking).tags_and_parameters().items():
            if value and ("version" in tag or tag == "git_revision"):
                found.setdefault(tag, set()).add(str(value))
    return {tag: ", ".join(sorted(found[tag])) for tag in sorted(found)}


def save_results(results: Results, file: Path) -> None:
    """Write ``results.json``; NaN becomes null."""
    write_json({**vars(results), "runs": [_run_to_json(run) for run in results.runs]}, file, indent=None)


def _run_to_json(run: RunResult) -> dict[str, Any]:
    return {**vars(run), **{name: json.loads(getattr(run, name).to_json()) for name in _TABLES}}


def _run_from_json(content: dict[str, Any]) -> RunResult:
    tables = {name: pd.DataFrame(content[name], dtype=float) for name in _TABLES}
    tables["history"] = tables["history"].rename(index=int).sort_index()
    return RunResult(**{**content, **tables})
