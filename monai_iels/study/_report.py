# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The page of a study: JSON, CSV, Markdown, pictures and HTML."""

import base64
import html
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from monai_iels._files import write_table, write_text
from monai_iels.measures import KEY_METRIC, MEASURES, how_to_read
from monai_iels.pictures import Sheet, study_curves
from monai_iels.study._comparison import compare_variants
from monai_iels.study._definition import by_group
from monai_iels.study._folder import StudyFolder
from monai_iels.study._results import LAST_EPOCHS, Results, save_results

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
    panels = {} if trainings is None else dict(_draw_panels(results, files, StudyFolder(trainings)))
    columns = dict(_columns(results))
    truth = {f"{column}_of_truth": column for column in columns}
    content = {
        "results": results,
        "title": f"{results.bundle}: {results.study.replace('_', ' ')}",
        "settings": list(_settings(results)),
        "last_epochs": LAST_EPOCHS,
        "groups": {group: rows.to_dict("records") for group, rows in comparison.groupby("group", sort=False)},
        "columns": columns,
        "truth": comparison.reindex(columns=["group", *truth]).groupby("group").mean().rename(columns=truth),
        "other_measures": how_to_read(m for m in results.measures if m.one_per != "set" and m.name != KEY_METRIC),
        "panels": panels,
        "curves": _draw_curves(results, files),
    }
    for kind in ("warnings", "notes"):
        content[kind] = _TEMPLATES.get_template(f"{kind}.txt").render(content).splitlines()
    write_text(_TEMPLATES.get_template("report.md").render(content), files.report)
    write_text(_TEMPLATES.get_template("report.html").render(content), files.page)
    return files.page


def _columns(results: Results) -> Iterator[tuple[str, str]]:
    """Yield the columns of the tables and their titles."""
    for measure in results.measures:
        yield measure.column, measure.title
        if measure.name == KEY_METRIC:
            yield f"{measure.column}_stopped_early", f"{measure.title}, stopped early"
            yield f"{measure.column}_best", f"{measure.title}, best epoch"


def _draw_curves(results: Results, files: StudyFolder) -> Path | None:
    """Draw the metrics over the epochs; if nothing has finished, return None."""
    groups = {}
    for group, variants in by_group(results.variants).items():
        runs = {name: results.finished(variant) for name, variant in variants.items()}
        if any(runs.values()):
            groups[group] = {name: [run.history for run in finished] for name, finished in runs.items() if finished}
    if not groups:
        return None
    study_curves(groups, files.curves)
    return files.curves


def _draw_panels(results: Results, files: StudyFolder, trainings: StudyFolder) -> Iterator[tuple[str, Path]]:
    """Draw the predictions of each group side by side, and yield the group and the picture."""
    groups = by_group(results.variants)
    for number, (group, variants) in enumerate(groups.items()):
        sheets = _finished_sheets(results, variants, trainings)
        if sheets:
            file = files.panels_of_group(number) if len(groups) > 1 else files.panels
            _side_by_side(sheets).draw(f"{group}. {_PANELS}" if group else _PANELS, file)
            yield group, file


def _finished_sheets(results: Results, variants: Mapping[str, str], trainings: StudyFolder) -> dict[str, Sheet]:
    """Return the validation cases of each variant that has finished with its first seed, by its short name."""
    runs = {name: results.of_variant(variant)[0] for name, variant in variants.items()}
    files = {name: trainings.training(run.variant, run.seed).panels for name, run in runs.items() if run.finished}
    return {name: Sheet.load(file) for name, file in files.items() if file.exists()}


def _side_by_side(sheets: Mapping[str, Sheet]) -> Sheet:
    """Return image, truth and noisy label of each case, then the predictions of the variants."""
    first = next(iter(sheets.values()))
    rows = []
    for row, *others in zip(first.rows, *(sheet.rows for sheet in sheets.values()), strict=True):
        same = {name: row[name] for name in ("image", "truth", "noisy label") if name in row}
        rows.append(same | {name: other["prediction"] for name, other in zip(sheets, others, strict=True)})
    return Sheet(rows, first.classes, first.colors)


def _settings(results: Results) -> Iterator[str]:
    """Yield the settings that all variants share, and which settings of the preset they do not share."""
    preset, variants = results.settings, list(results.variants.values())
    for key in dict.fromkeys([*preset, *variants[0]]):
        values = [variant.get(key, preset.get(key)) for variant in variants]
        if all(value == values[0] for value in values):
            yield f"its own {key}" if isinstance(values[0], dict) else f"{key} {values[0]}"
        elif key in preset:
            yield f"{key} set by each variant"


def _number(value: float, form: str = ".3f") -> str:
    return "" if pd.isna(value) else format(value, form)


def _mean(row: dict[str, Any], name: str) -> str:
    if not row["seeds"]:
        return (row["not_finished"] or "missing") if name == MEASURES[KEY_METRIC].column else ""
    deviation = row[f"{name}_deviation"]
    return _number(row[name]) + ("" if pd.isna(deviation) else f" ± {deviation:.3f}")


def _change(row: dict[str, Any], name: str) -> str:
    """Return the difference to the baseline and its interval."""
    if not row["seeds"] or pd.isna(row.get(f"{name}_gain")):
        return ""
    return f"{row[f'{name}_gain']:+.3f}, {row[f'{name}_gain_low']:+.3f} to {row[f'{name}_gain_high']:+.3f}"


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
_TEMPLATES.filters.update(number=_number, mean=_mean, change=_change, one_line=_one_line)
_TEMPLATES.filters.update(as_text=_as_text, as_code=_as_code, as_address=_as_address)
