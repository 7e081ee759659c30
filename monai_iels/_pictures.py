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

"""Pictures that explain a training and its predictions; every function that draws writes one PNG file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from monai_iels._run_folder import SHOWN_METRICS

_COLORS = {"black": "black", "deepskyblue": "blue", "gold": "yellow", "tomato": "red"}  # and what the legend calls them
_COLORS |= {"limegreen": "green", "orchid": "violet"}
_AS_IMAGE = {"cmap": "gray", "vmin": 0, "vmax": 1}
_AS_MASK = {**_AS_IMAGE, "interpolation": "nearest"}
_AS_CLASSES = {**_AS_MASK, "cmap": ListedColormap(list(_COLORS)), "vmax": len(_COLORS) - 1}
_LARGEST = 256
_NAMES_AS_THEY_ARE = rc_context({"text.parse_math": False})  # a name with two $ is no formula
_LINE_STYLES = ("-", "--", ":")
_METRICS = {title: name for name, title in SHOWN_METRICS.items() if title != "IoU"}


@dataclasses.dataclass(frozen=True)
class Panel:
    """One case of a contact sheet: image ``(H, W)`` or ``(H, W, 3)`` in 0..1, truth and prediction as classes."""

    name: str
    score: float
    image: np.ndarray
    truth: np.ndarray
    prediction: np.ndarray


def panel(name: str, score: float, image: np.ndarray, truth: np.ndarray, prediction: np.ndarray) -> Panel:
    """Make a panel from a case in MONAI's axes ``(C, W, H)``, or from the fullest slice of a volume.

    Args:
        name: name of the case.
        score: the value that the cases are sorted by.
        image: ``(C, *spatial)``.
        truth: classes, ``spatial``.
        prediction: classes, ``spatial``.
    """
    index = fullest_slice(truth)
    step = max(1, -(-max(truth.shape) // _LARGEST))
    pixels = upright_image(image, index)[::step, ::step].astype(np.float16)
    labels = [upright(classes, index)[::step, ::step].astype(np.uint8) for classes in (truth, prediction)]
    return Panel(name, score, pixels, *labels)


def fullest_slice(truth: np.ndarray) -> int:
    """Return the slice of a volume that shows most of the truth; 0 for an image."""
    return int(np.argmax((truth > 0).sum(axis=(1, 2)))) if truth.ndim == 3 else 0


def upright(classes: np.ndarray, index: int) -> np.ndarray:
    """Turn classes in MONAI's axes, or one slice of a volume, into rows and columns."""
    return (classes[index] if classes.ndim == 3 else classes).T


def upright_image(image: np.ndarray, index: int) -> np.ndarray:
    """Turn an image ``(C, *spatial)`` in MONAI's axes into rows and columns of gray or RGB from 0 to 1."""
    channels = image[:3] if len(image) >= 3 else image[:1]
    pixels = np.stack([upright(channel, index) for channel in channels], axis=-1).astype(np.float32)
    low, high = np.percentile(pixels, (0.5, 99.5))
    return np.clip((pixels - low) / max(high - low, 1e-6), 0, 1).squeeze(-1 if len(channels) == 1 else ())


@_NAMES_AS_THEY_ARE
def contact_sheet(panels: Sequence[Panel], classes: Sequence[str], file: Path, each: int = 3) -> None:
    """Show image, truth, prediction and error of the worst, the median and the best cases.

    Args:
        panels: all cases.
        classes: names of the classes, background first.
        file: the PNG file.
        each: how many of worst, median and best.
    """
    chosen = _worst_median_best(panels, each)
    rows = []
    for case, _ in chosen:
        row = {"image": case.image, "truth": case.truth, "prediction": case.prediction}
        rows.append({**row, "error (white)": case.truth != case.prediction})
    colors = list(_COLORS.values())
    legend = ", ".join(f"{name} {colors[index % len(colors)]}" for index, name in enumerate(classes) if index)
    cases = "1 case" if len(panels) == 1 else f"{len(panels)} cases"
    figure, axes = _draw_grid(rows, f"{cases}, sorted by Dice: {legend}")
    for line, (case, group) in zip(axes, chosen, strict=True):
        line[0].set_ylabel(f"{group}\nDice {case.score:.3f}", fontsize=9)
        line[0].set_xlabel(case.name[:24], fontsize=7)
        for axis in line:
            _zoom(axis, (case.truth > 0) | (case.prediction > 0))
    figure.savefig(file, dpi=100)


def _worst_median_best(panels: Sequence[Panel], each: int) -> list[tuple[Panel, str]]:
    """Return some cases and the name of their group, sorted by score, each case once."""
    ordered = sorted(panels, key=lambda case: case.score)
    each = max(1, min(each, len(ordered) // 3))
    middle = (len(ordered) - each) // 2
    groups = dict.fromkeys(range(each), "worst")
    groups.update(dict.fromkeys(range(middle, middle + each), "median"))
    groups.update(dict.fromkeys(range(len(ordered) - each, len(ordered)), "best"))
    return [(ordered[index], groups[index]) for index in sorted(groups)]


@_NAMES_AS_THEY_ARE
def layer_sheet(rows: Sequence[Mapping[str, np.ndarray]], title: str, file: Path) -> None:
    """Show what goes into a layer and what comes out, as the paper's figures do: one row per case.

    Args:
        rows: for each case, the titles and pixels of its columns: an image first, then classes.
        title: what the sheet shows.
        file: the PNG file.
    """
    figure, _ = _draw_grid(rows, title)
    figure.savefig(file, dpi=100)


def _draw_grid(rows: Sequence[Mapping[str, np.ndarray]], title: str) -> tuple[Figure, Any]:
    """Draw a row of panels per case: an image first, then classes in color, or masks in black and white."""
    columns = list(rows[0])
    figure = Figure(figsize=(2.1 * len(columns), 2.1 * len(rows) + 0.8), layout="constrained")
    axes = figure.subplots(len(rows), len(columns), squeeze=False)
    for line, row in zip(axes, rows, strict=True):
        for axis, name in zip(line, columns, strict=True):
            pixels = row[name]
            if name == columns[0]:
                axis.imshow(pixels.astype(np.float32), **_AS_IMAGE)
            else:
                axis.imshow(pixels, **(_AS_MASK if pixels.dtype == bool else _AS_CLASSES))
            axis.set(xticks=[], yticks=[])
    for axis, name in zip(axes[0], columns, strict=True):
        axis.set_title(name, fontsize=9)
    figure.suptitle(title, fontsize=10)
    return figure, axes


def _zoom(axis: Axes, inside: np.ndarray) -> None:
    """Show only the surroundings of a structure that is small in its image."""
    rows, columns = np.flatnonzero(inside.any(axis=1)), np.flatnonzero(inside.any(axis=0))
    if not rows.size or max(np.ptp(rows) / inside.shape[0], np.ptp(columns) / inside.shape[1]) > 0.5:
        return
    half = 0.75 * max(np.ptp(rows), np.ptp(columns)) + 2
    row, column = (rows[0] + rows[-1]) / 2, (columns[0] + columns[-1]) / 2
    axis.set(xlim=(column - half, column + half), ylim=(row + half, row - half), facecolor="black")


def curves(history: Sequence[Mapping[str, float]] | pd.DataFrame, file: Path) -> None:
    """Plot loss, Dice, roughness and convexity over the epochs, with dashed lines for the truth.

    Args:
        history: one row per epoch.
        file: the PNG file.
    """
    table = pd.DataFrame(history).set_index("epoch")
    figure = Figure(figsize=(11, 3), layout="constrained")
    plots = {"loss": "loss", **_METRICS}
    for axis, (title, name) in zip(figure.subplots(1, len(plots)), plots.items(), strict=True):
        values = table.get(name, pd.Series(dtype=float)).dropna()
        axis.plot(values, marker="." if len(values) < 30 else None)
        truth = table.get(f"{name}_of_truth", pd.Series(dtype=float)).dropna()
        if len(truth):
            axis.plot(truth, "--")
            axis.text(truth.index[0], truth.iloc[-1], "truth", fontsize=8, va="bottom")
        _label_epochs(axis, title)
    figure.savefig(file, dpi=100)


@_NAMES_AS_THEY_ARE
def study_curves(groups: Mapping[str, Mapping[str, Sequence[pd.DataFrame]]], file: Path) -> None:
    """Plot Dice, roughness and convexity over the epochs: one row of plots per group, one line per variant.

    Args:
        groups: for each group and variant, one table per seed, with metrics as columns and epochs as index.
        file: the PNG file.
    """
    figure = Figure(figsize=(13, 3.4 * len(groups) + 0.3), layout="constrained")
    axes = figure.subplots(len(groups), len(_METRICS), squeeze=False)
    for line, (group, variants) in zip(axes, groups.items(), strict=True):
        for axis, (title, metric) in zip(line, _METRICS.items(), strict=True):
            _plot_variants(axis, variants, metric)
            _label_epochs(axis, f"{group}: {title}" if group else title)
        line[-1].legend(fontsize=8, loc="center left", bbox_to_anchor=(1.02, 0.5))
    figure.savefig(file, dpi=90)


def _plot_variants(axis: Axes, variants: Mapping[str, Sequence[pd.DataFrame]], metric: str) -> None:
    """Plot the mean of each variant, with the range of its seeds shaded, over the epochs that all seeds have."""
    truth = pd.Series(dtype=float)
    for number, (name, histories) in enumerate(variants.items()):
        seeds = pd.concat([history[metric] for history in histories], axis="columns").dropna()
        (drawn,) = axis.plot(seeds.mean(axis="columns"), label=name, linestyle=_LINE_STYLES[number // 10 % 3])
        low, high = seeds.min(axis="columns"), seeds.max(axis="columns")
        axis.fill_between(seeds.index, low, high, color=drawn.get_color(), alpha=0.15, lw=0)
        if truth.empty and f"{metric}_of_truth" in histories[0]:
            truth = histories[0][f"{metric}_of_truth"].dropna()
    if len(truth):
        axis.axhline(truth.iloc[-1], color="black", linestyle="--", lw=1, label="truth")


def _label_epochs(axis: Axes, title: str) -> None:
    axis.set_title(title, fontsize=10)
    axis.set_xlabel("epoch")
    axis.grid(alpha=0.3)
    axis.locator_params(axis="x", integer=True)
