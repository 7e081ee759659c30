# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The page of a study: JSON, CSV, Markdown, pictures and HTML."""

import base64
import html
import re
from collections.abc import Iterator
from pathlib import Path

import jinja2
import pandas as pd

from monai_iels._files import write_table, write_text
from monai_iels.measures import KEY_METRIC, how_to_read
from monai_iels.pictures import Sheet, study_curves
from monai_iels.study._comparison import compare_variants
from monai_iels.study._definition import by_group
from monai_iels.study._folder import StudyFolder
from monai_iels.study._results import LAST_EPOCHS, Results, save_results
from monai_iels.study._table import main_finding, make_tables

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
    if comparison is None:
        comparison = compare_variants(results)
    save_results(results, files.results)
    write_table(comparison, files.table)
    for old in files.all_panels():
        old.unlink()
    content = {
        "results": results,
        "title": f"{results.bundle}: {results.study.replace('_', ' ')}",
        "finding": main_finding(comparison),
        "tables": make_tables(results, comparison),
        "settings": list(_settings(results)),
        "last_epochs": LAST_EPOCHS,
        "other_measures": how_to_read(m for m in results.measures if m.one_per != "set" and m.name != KEY_METRIC),
        "panels": {} if trainings is None else dict(_draw_panels(results, files, StudyFolder(trainings))),
        "curves": _draw_curves(results, files),
        "measured": ", ".join(measure.title for measure in results.measures),
        "versions": ", ".join(f"{name} {version}" for name, version in results.versions.items()),
    }
    for kind in ("warnings", "notes"):
        content[kind] = _TEMPLATES.get_template(f"{kind}.txt").render(content).splitlines()
    write_text(_TEMPLATES.get_template("report.md").render(content), files.report)
    write_text(_TEMPLATES.get_template("report.html").render(content), files.page)
    return files.page


def _draw_curves(results: Results, files: StudyFolder) -> Path | None:
    """Draw the metrics over the epochs; if nothing has finished, return None."""
    groups: dict[str, dict[str, list[pd.DataFrame]]] = {}
    for group, variants in by_group(results.variants).items():
        for name, variant in variants.items():
            if runs := results.finished(variant):
                groups.setdefault(group, {})[name] = [run.history for run in runs]
    if not groups:
        return None
    study_curves(groups, files.curves)
    return files.curves


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
    """Yield the settings that all variants share, and which settings of the preset they do not share."""
    preset, variants = results.settings, list(results.variants.values())
    for key in dict.fromkeys([*preset, *variants[0]]):
        values = [variant.get(key, preset.get(key)) for variant in variants]
        if all(value == values[0] for value in values):
            yield f"its own {key}" if "{" in str(values[0]) else f"{key} {values[0]}"
        elif key in preset:
            yield f"{key} set by each variant"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _as_text(text: str) -> str:
    """Return Markdown that shows a text as it is: no HTML, no formatting, no links, on one line."""
    escaped = html.escape(_one_line(text), quote=False)
    return re.sub(r"([\\`*\[\]|~]|(?<!\w)_|_(?!\w)|:(?=//)|@|(?<=www)\.)", r"\\\1", escaped)


def _as_code(text: str) -> str:
    """Return Markdown that shows a text as code, between more backticks than it has in a row."""
    longest = max((len(ticks) for ticks in re.findall("`+", text)), default=0)
    space = " " if "`" in text else ""
    return "`" * (longest + 1) + space + _one_line(text) + space + "`" * (longest + 1)


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
_TEMPLATES.filters.update(one_line=_one_line, as_text=_as_text, as_code=_as_code, as_address=_as_address)
