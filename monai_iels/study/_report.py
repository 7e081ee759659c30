# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""What a study leaves: the page as JSON, CSV, Markdown, pictures and HTML, and what the terminal shows of it."""

import base64
import html
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import jinja2
import pandas as pd

from monai_iels._files import write_table, write_text
from monai_iels._terminal import bundle_command, shown
from monai_iels.measures import KEY_METRIC, deciding_metric, how_to_read
from monai_iels.pictures import Sheet, study_curves
from monai_iels.settings import RUN
from monai_iels.study._comparison import compare_variants
from monai_iels.study._definition import by_group
from monai_iels.study._folder import StudyFolder
from monai_iels.study._methods import merged
from monai_iels.study._results import LAST_EPOCHS, Results, save_results
from monai_iels.study._table import main_finding, make_tables
from monai_iels.tracking import Journal, how_to_look

_PANELS = "Validation images after the last epoch. Dice is best at 1, roughness at the value of the truth"


def write_report(
    results: Results, folder: Path, trainings: Path | None = None, comparison: pd.DataFrame | None = None
) -> Path:
    """Write the study as JSON, CSV, Markdown, PNG, and as one HTML page that contains its pictures.

    Args:
        results: the numbers of all trainings.
        folder: where to write.
        trainings: folder of the study, for pictures of the data; by default the page has none.
        comparison: one row per variant, if :func:`compare_variants` was called already.

    Returns:
        the HTML page.
    """
    files = StudyFolder(folder)
    comparison = compare_variants(results) if comparison is None else comparison
    save_results(results, files.results)
    write_table(comparison, files.table)
    for old in files.all_panels():
        old.unlink()
    if histories := _histories(results):
        study_curves(histories, files.curves)
    content = {
        "results": results,
        "title": f"{results.bundle}: {results.study.replace('_', ' ')}",
        "finding": main_finding(comparison),
        "tables": make_tables(results, comparison),
        "settings": list(_settings(results)),
        "other_measures": how_to_read(m for m in results.measures if m.one_per != "set" and m.name != KEY_METRIC),
        "panels": {} if trainings is None else dict(_draw_panels(results, files, StudyFolder(trainings))),
        "curves": files.curves if histories else None,
    }
    for kind in ("warnings", "notes"):
        content[kind] = _TEMPLATES.get_template(f"{kind}.txt").render(content).splitlines()
    write_text(_TEMPLATES.get_template("report.md").render(content), files.report)
    write_text(_TEMPLATES.get_template("report.html").render(content), files.page)
    return files.page


def _histories(results: Results) -> dict[str, dict[str, list[pd.DataFrame]]]:
    """Return the metrics per epoch of all finished trainings, by group and variant."""
    found: dict[str, dict[str, list[pd.DataFrame]]] = {}
    for run in results.runs:
        group, _, name = run.variant.rpartition(" / ")
        if run.finished:
            found.setdefault(group, {}).setdefault(name, []).append(run.history)
    return found


def _draw_panels(results: Results, files: StudyFolder, trainings: StudyFolder) -> Iterator[tuple[str, Path]]:
    """Draw what the first seed of each variant predicts, side by side, and yield each group and its picture."""
    for group, variants in by_group(results.variants).items():
        runs = {name: results.of_variant(variant)[0] for name, variant in variants.items()}
        saved = {name: trainings.training(run.variant, run.seed).panels for name, run in runs.items() if run.finished}
        sheets = {name: Sheet.load(file) for name, file in saved.items() if file.exists()}
        if sheets:
            title, file = f"{group}. {_PANELS}" if group else _PANELS, files.panels(group)
            Sheet.side_by_side(sheets).draw(title, file)
            yield group, file


def _settings(results: Results) -> Iterator[str]:
    """Yield the settings that all variants share, without expressions and what concerns the run alone."""
    variants = [merged(results.settings, overrides) for overrides in results.variants.values()]
    for key, value in variants[0].items():
        is_plain = key not in RUN and not str(value).startswith("$")
        if is_plain and all(variant.get(key) == value for variant in variants):
            yield f"its own {key}" if "{" in str(value) else f"{key} {value}"


def closing_words(results: Results, comparison: pd.DataFrame, folder: Path) -> str:
    """Return what the terminal shows of a study that has ended: the findings, the tables, and what to type next.

    Args:
        results: the numbers of all trainings.
        comparison: one row per variant, from :func:`compare_variants`.
        folder: where the page of the study is.
    """
    files = StudyFolder(folder)
    lines = ["", textwrap.fill(main_finding(comparison), 100)]
    for table in make_tables(results, comparison):
        names, *cells = zip(*([cell.split("\n")[0] for cell in row] for row in table.rows), strict=True)
        columns = dict(zip(table.header[1:], cells, strict=True))
        lines += ["", *filter(None, [table.group]), pd.DataFrame(columns, index=names).to_string()]
    lines += [f"{'; '.join(how_to_read(m for m in results.measures if m.one_per != 'set'))}.", ""]
    lines.append(f"{shown(files.page)}  (everything on one page: open it in a browser)")
    lines += [f"{shown(file)}  (image, truth and the predictions of all variants)" for file in files.all_panels()]
    return "\n".join([*lines, "", *_next_steps(results, files)])


def _next_steps(results: Results, files: StudyFolder) -> list[str]:
    """Return the commands that follow, where the study has its trainings beside it."""
    arguments = {run: files.training(run.variant, run.seed).inference_arguments for run in results.runs if run.finished}
    trained = [run for run, file in arguments.items() if file.exists()]
    if not trained:
        return []
    decides = deciding_metric(trained[0].history)
    best = max(trained, key=lambda run: run.history[decides].tail(LAST_EPOCHS).mean())
    tracked = Journal(files.tracking).progress()
    return [
        f"Predict more images of this kind ({best.variant}):",
        f"  {bundle_command(arguments[best])} --dataset_dir YOUR_IMAGES",
        "Compare all trainings in the browser:",
        how_to_look(tracked.address, tracked.experiment_id),
    ]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _as_text(text: str) -> str:
    """Return Markdown that shows a text as it is: no HTML, no formatting, no links, on one line."""
    escaped = html.escape(_one_line(text), quote=False)
    return re.sub(r"([\\`*\[\]|~]|(?<!\w)_|_(?!\w)|:(?=//)|@|(?<=www)\.)", r"\\\1", escaped)


def _as_address(file: Path) -> str:
    """Return a picture as an address that contains it."""
    return f"data:image/png;base64,{base64.b64encode(file.read_bytes()).decode()}"


_TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("monai_iels.study"),
    autoescape=jinja2.select_autoescape(),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=jinja2.StrictUndefined,
)
_TEMPLATES.filters.update(one_line=_one_line, as_text=_as_text, as_address=_as_address)
