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

"""Pictures that explain a training and its predictions; every function writes one PNG file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

__all__ = [
    "Panel",
    "contact_sheet",
    "curves",
    "layer_sheet",
    "most_of",
    "panel",
    "study_curves",
    "study_panels",
    "upright",
    "upright_image",
]

_CLASSES = ListedColormap(["black", "deepskyblue", "gold", "tomato", "limegreen", "orchid"])
_LARGEST = 256
_NAMES_AS_THEY_ARE = rc_context({"text.parse_math": False})  # a name with two $ is no formula
_STYLES = ("-", "--", ":")


@dataclasses.dataclass(frozen=True)
class Panel:
    """One case of a contact sheet: image ``(H, W)`` or ``(H, W, 3)`` in 0..1, truth and prediction as classes."""

    name: str
    score: float
    image: np.ndarray
    truth: np.ndarray
    prediction: np.ndarray


def panel(name: str, score: float, image: np.ndarray, truth: np.ndarray, prediction: np.ndarray) -> Panel:
    """Make a panel of a case in MONAI's axes: ``(C, W, H)``, or the slice of a volume that shows most of the truth.

    Args:
        name: name of the case.
        score: what the cases are sorted by.
        image: ``(C, *spatial)``.
        truth: classes, ``spatial``.
        prediction: classes, ``spatial``.
    """
    index = most_of(truth)
    step = max(1, -(-max(truth.shape) // _LARGEST))
    labels = [upright(classes, index)[::step, ::step].astype(np.uint8) for classes in (truth, prediction)]
    return Panel(name, score, upright_image(image, index)[::step, ::step].astype(np.float16), *labels)


def most_of(truth: np.ndarray) -> int:
    """Return the slice of a volume that shows most of the truth; of an image there is only one."""
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
    ordered = sorted(panels, key=lambda p: p.score)
    each = max(1, min(each, len(ordered) // 3))
    middle = (len(ordered) - each) // 2
    groups = {"worst": ordered[:each], "median": ordered[middle : middle + each], "best": ordered[-each:]}
    rows = {id(case): (group, case) for group, cases in groups.items() for case in cases}
    chosen = sorted(rows.values(), key=lambda row: row[1].score)
    titles = ("image", "truth", "prediction", "error (white)")
    figure = Figure(figsize=(8.4, 2.1 * len(chosen) + 0.8), layout="constrained")
    axes = figure.subplots(len(chosen), 4, squeeze=False)
    for row, (group, case) in zip(axes, chosen, strict=True):
        row[0].imshow(case.image.astype(np.float32), cmap="gray", vmin=0, vmax=1)
        for axis, pixels in zip(row[1:3], (case.truth, case.prediction), strict=True):
            axis.imshow(pixels, cmap=_CLASSES, vmin=0, vmax=_CLASSES.N - 1, interpolation="nearest")
        row[3].imshow(case.truth != case.prediction, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        row[0].set_ylabel(f"{group}\nDice {case.score:.3f}", fontsize=9)
        row[0].set_xlabel(case.name[:24], fontsize=7)
        for axis in row:
            axis.set(xticks=[], yticks=[])
        for axis in row:
            _zoom(axis, (case.truth > 0) | (case.prediction > 0))
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=10)
    legend = ", ".join(f"{name} {_color(index)}" for index, name in enumerate(classes) if index)
    figure.suptitle(f"{len(panels)} case{'s' if len(panels) > 1 else ''}, sorted by Dice: {legend}", fontsize=10)
    figure.savefig(file, dpi=100)


@_NAMES_AS_THEY_ARE
def layer_sheet(rows: Sequence[Mapping[str, np.ndarray]], title: str, file: Path) -> None:
    """Show what goes into a layer and what comes out: a row a case, a column a step, as the paper's figures do.

    Args:
        rows: to each case, the titles and pixels of its columns: an image first, then classes.
        title: what the sheet shows.
        file: the PNG file.
    """
    columns = list(rows[0])
    figure = Figure(figsize=(2.0 * len(columns), 2.1 * len(rows) + 0.7), layout="constrained")
    axes = figure.subplots(len(rows), len(columns), squeeze=False)
    for line, row in zip(axes, rows, strict=True):
        for axis, (name, pixels) in zip(line, row.items(), strict=True):
            if name == columns[0]:
                axis.imshow(pixels, cmap="gray", vmin=0, vmax=1)
            else:
                axis.imshow(pixels, cmap=_CLASSES, vmin=0, vmax=_CLASSES.N - 1, interpolation="nearest")
            axis.set(xticks=[], yticks=[])
    for axis, name in zip(axes[0], columns, strict=True):
        axis.set_title(name, fontsize=9)
    figure.suptitle(title, fontsize=10)
    figure.savefig(file, dpi=100)


def _zoom(axis: Axes, inside: np.ndarray) -> None:
    """Show only the surroundings of a structure that is small in its image."""
    rows, columns = (np.flatnonzero(inside.any(axis=other)) for other in (1, 0))
    if not rows.size or max(np.ptp(rows) / inside.shape[0], np.ptp(columns) / inside.shape[1]) > 0.5:
        return
    half = 0.75 * max(np.ptp(rows), np.ptp(columns)) + 2
    row, column = (rows[0] + rows[-1]) / 2, (columns[0] + columns[-1]) / 2
    axis.set(xlim=(column - half, column + half), ylim=(row + half, row - half), facecolor="black")


def _color(index: int) -> str:
    return ("black", "blue", "yellow", "red", "green", "violet")[index % 6]


def curves(history: Sequence[Mapping[str, float]], file: Path) -> None:
    """Plot loss and Dice, roughness and convexity over the epochs, with the truth's own values dashed."""
    figure = Figure(figsize=(11, 3), layout="constrained")
    epochs = [row["epoch"] for row in history]
    plots = {"loss": "loss", "Dice": "val_mean_dice", "roughness": "val_roughness", "convexity": "val_convexity"}
    for axis, (title, name) in zip(figure.subplots(1, len(plots)), plots.items(), strict=True):
        _plot(axis, epochs, history, name, "-")
        _plot(axis, epochs, history, f"{name}_of_truth", "--")
        axis.set(title=title, xlabel="epoch")
        axis.grid(alpha=0.3)
        axis.xaxis.get_major_locator().set_params(integer=True)
    figure.savefig(file, dpi=100)


@_NAMES_AS_THEY_ARE
def study_curves(groups: Mapping[str, Mapping[str, Sequence[Mapping[str, Sequence[float]]]]], file: Path) -> None:
    """Plot Dice, roughness and convexity over the epochs: a row a group, a line a variant, its seeds' range shaded.

    Args:
        groups: to each group and variant, one dictionary a seed: ``epochs``, and the values of each metric then.
        file: the PNG file.
    """
    metrics = {"Dice": "val_mean_dice", "roughness": "val_roughness", "convexity": "val_convexity"}
    groups = {group: variants for group, variants in groups.items() if any(variants.values())}
    figure = Figure(figsize=(13, 3.4 * len(groups) + 0.3), layout="constrained")
    axes = figure.subplots(len(groups), len(metrics), squeeze=False)
    for line, (group, variants) in zip(axes, groups.items(), strict=True):
        for axis, (title, metric) in zip(line, metrics.items(), strict=True):
            for number, (name, histories) in enumerate(variants.items()):
                shortest = min((len(history[metric]) for history in histories), default=0)
                if not shortest:
                    continue
                values = np.array([history[metric][:shortest] for history in histories], dtype=float)
                epochs = histories[0]["epochs"][:shortest]
                (drawn,) = axis.plot(epochs, values.mean(0), label=name, linestyle=_STYLES[number // 10 % 3])
                axis.fill_between(epochs, values.min(0), values.max(0), color=drawn.get_color(), alpha=0.15, lw=0)
            truth = [h[f"{metric}_of_truth"][-1] for hs in variants.values() for h in hs if f"{metric}_of_truth" in h]
            if truth:
                axis.axhline(truth[0], color="black", linestyle="--", lw=1, label="truth")
            axis.set_title(f"{group}: {title}" if group else title, fontsize=10)
            axis.set_xlabel("epoch")
            axis.grid(alpha=0.3)
            axis.xaxis.get_major_locator().set_params(integer=True)
        line[-1].legend(fontsize=8, loc="center left", bbox_to_anchor=(1.02, 0.5))
    figure.savefig(file, dpi=90)


def study_panels(rows: Sequence[Mapping[str, np.ndarray]], title: str, file: Path) -> None:
    """Show validation cases: image, truth, and the prediction of each variant."""
    layer_sheet(rows, f"{title}: after the last epoch" if title else "After the last epoch", file)


def _plot(axis: Axes, epochs: Sequence[float], history: Sequence[Mapping[str, float]], name: str, style: str) -> None:
    values = [row.get(name, float("nan")) for row in history]
    if any(value == value for value in values):
        axis.plot(epochs, values, style, marker="." if style == "-" and len(epochs) < 30 else None)
        if style == "--":
            axis.text(epochs[0], values[-1], "truth", fontsize=8, va="bottom")
