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

"""The page of a study: JSON, CSV, Markdown, pictures and HTML."""

import base64
import html
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from monai_iels.handlers.reports import write_csv
from monai_iels.handlers.training import complete_file
from monai_iels.pictures import study_curves, study_panels
from monai_iels.study.comparison import finished_runs, table
from monai_iels.study.definition import by_group, slug
from monai_iels.study.results import LAST_EPOCHS, finite_mean, save_results

__all__ = ["write_report"]


def write_report(results: Mapping[str, Any], folder: Path, panels: Path | None = None) -> Path:
    """Write the study as JSON, CSV, Markdown, PNG and one HTML page with everything in it.

    Args:
        results: what :func:`~monai_iels.study.collect` returned.
        folder: where to write.
        panels: folder with the arrays of the pictures of the data; without it there are none.

    Returns:
        the page.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = table(results)
    save_results(results, folder / "results.json")
    with complete_file(folder / "table.csv") as part:
        write_csv(part, rows)
    for old in folder.glob("panels*.png"):
        old.unlink()
    pictures = []
    groups = by_group(results["variants"])
    histories = {
        group: {
            name: [run["history"] for run in finished_runs(results, full).values()] for name, full in variants.items()
        }
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


def _settings(results: Mapping[str, Any]) -> Iterator[str]:
    """Yield what all variants have in common, and which of the preset's settings they do not."""
    preset, variants = results["settings"], list(results["variants"].values())
    for key in dict.fromkeys([*preset, *variants[0]]):
        values = [variant.get(key, preset.get(key)) for variant in variants]
        if all(value == values[0] for value in values):
            yield f"{key} {'its own' if isinstance(values[0], dict) else values[0]}"
        elif key in preset:
            yield f"{key} as each variant says"


def _notes(results: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a reader must know before the numbers."""
    if results["synthetic"]:
        yield "The images are drawn: this is the embedded sample, not the real data set."
    size = (
        "the bundle's own settings" if results["preset"] == "paper" else "smaller than the paper's setting, for a CPU"
    )
    settings = ", ".join(_settings(results))
    yield f"Preset {results['preset']}: {size}" + (f" ({settings})." if settings else ".")
    count = len(results["seeds"])
    seeds, over = ("1 seed", "cases") if count == 1 else (f"{count} seeds", "seeds and cases")
    yield (
        f"{seeds}. Numbers are of the validation cases against clean labels: means over the last {LAST_EPOCHS} epochs "
        "that were judged, ± the standard deviation over seeds; in brackets the paired difference to the first variant "
        f"with its 95 % bootstrap interval over {over}. 'Stopped early' takes the epoch with the best Dice on "
        "validation labels that are as noisy as those of the training."
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
        truth = [finite_mean([row[name] for row in mine]) for name in ("roughness_of_truth", "convexity_of_truth")]
        cells = [_cells(row) for row in mine]
        yield group, [*cells, ("truth", "", "", *(f"{v:.3f}" if v == v else "" for v in truth), "")]


def _markdown(results: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], pictures: Sequence[str]) -> Iterator[str]:
    yield f"# {_plain(results['bundle'] + ': ' + results['study'].replace('_', ' '))}\n"
    for note in _notes(results):
        yield f"{_plain(note)}\n"
    for group, cells in _tables(rows):
        if group:
            yield f"## {_plain(group)}\n"
        yield "| " + " | ".join(_HEADINGS) + " |"
        yield "|---" * len(_HEADINGS) + "|"
        for row in cells:
            yield "| " + " | ".join(map(_plain, row)) + " |"
        yield ""
    for name in pictures:
        yield f"![{name.split('.')[0]}]({name})\n"
    yield f"Command: {_code(results.get('command', ''))}\n"
    yield _plain(_versions(results))


def _plain(text: str) -> str:
    """Return a text as Markdown that shows it as it is: no HTML, no formatting, no links, on one line."""
    escaped = html.escape(" ".join(text.split()), quote=False)
    return re.sub(r"([\\`*\[\]|~]|(?<!\w)_|_(?!\w)|:(?=//)|@|(?<=www)\.)", r"\\\1", escaped)


def _code(text: str) -> str:
    """Return a text as Markdown's code, in more backticks than it has in a row."""
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    space = " " if "`" in text else ""
    return f"{ticks}{space}{' '.join(text.split())}{space}{ticks}"


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
