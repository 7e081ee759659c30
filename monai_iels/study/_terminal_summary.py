# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""What a study says in the terminal when it has ended: what was found, its files, and what to type next."""

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from monai_iels._terminal import bundle_command, shown
from monai_iels.measures import deciding_metric, how_to_read
from monai_iels.study._folder import StudyFolder
from monai_iels.study._results import LAST_EPOCHS, Results
from monai_iels.study._table import Table, main_finding, make_tables
from monai_iels.tracking import Journal, how_to_look


def closing_words(results: Results, comparison: pd.DataFrame, folder: Path) -> str:
    """Return what was found, the tables, the pictures and pages in the folder, and what to type next.

    Args:
        results: the numbers of all trainings.
        comparison: one row per variant, from :func:`compare_variants`.
        folder: where the page of the study is.
    """
    files = StudyFolder(folder)
    lines = ["", textwrap.fill(main_finding(comparison), 100)]
    for table in make_tables(results, comparison):
        lines += ["", table.group, _as_lines(table)] if table.group else ["", _as_lines(table)]
    measures = [measure for measure in results.measures if measure.one_per != "set"]
    lines += [f"{'; '.join(how_to_read(measures))}.", ""]
    lines += [f"{shown(file)}  ({meaning})" for file, meaning in _files(results, files) if file.exists()]
    return "\n".join([*lines, "", *_next_steps(results, files)])


def _as_lines(table: Table) -> str:
    """Return a table without the differences, which the page shows."""
    names, *cells = zip(*([cell.split("\n")[0] for cell in row] for row in table.rows), strict=True)
    columns = dict(zip(table.header[1:], cells, strict=True))
    return pd.DataFrame(columns, index=names).to_string()


def _files(results: Results, files: StudyFolder) -> Iterator[tuple[Path, str]]:
    """Yield the pictures and pages that a person would open, and what each shows."""
    yield files.page, "everything on one page: open it in a browser"
    for panels in files.all_panels():
        yield panels, "image, truth and the predictions of all variants"
    yield files.curves, "the same numbers epoch by epoch"
    for run in results.runs:
        yield files.training(run.variant, run.seed).last_picture, f"training images of {run.variant}"


def _next_steps(results: Results, files: StudyFolder) -> Iterator[str]:
    """Yield the commands that follow, where the study has its trainings beside it."""
    arguments = {run: files.training(run.variant, run.seed).inference_arguments for run in results.runs if run.finished}
    trained = [run for run, file in arguments.items() if file.exists()]
    if not trained:
        return
    decides = deciding_metric(trained[0].history)
    best = max(trained, key=lambda run: run.history[decides].tail(LAST_EPOCHS).mean())
    tracked = Journal(files.tracking).progress()
    yield f"Predict more images of this kind ({best.variant}):"
    yield f"  {bundle_command(arguments[best])} --dataset_dir YOUR_IMAGES"
    yield "Train with your own data:\n  docs/start/tutorial.md"
    yield "Compare all trainings in the browser:"
    yield how_to_look(tracked.address, tracked.experiment_id)
