# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Pictures that explain a training and its predictions; every function that draws writes one PNG with a palette."""

from __future__ import annotations

import dataclasses
import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.rcsetup import cycler
from monai.metrics import compute_dice
from monai.networks.utils import one_hot
from PIL import Image

from monai_iels.images import IGNORED
from monai_iels.measures import Measure, compared
from monai_iels.metrics import RoughnessMetric

_MOST_COLUMNS = 5  # with more, the text of a sheet is too small on a page
_NAMES_AS_THEY_ARE = rc_context({"text.parse_math": False})  # a name with two $ is no formula
_LINE_COLORS = ("#7f7f7f", "#d95f02", "#1b9e77", "#7570b3", "#386cb0", "#a6761d", "#e7298a", "#66a61e", "#e6ab02")
_LINES = cycler(linestyle=("-", "--", ":")) * cycler(color=_LINE_COLORS)
_COLORS = ("deepskyblue", "gold", "tomato", "limegreen", "orchid")

Colors = Sequence[Sequence[int]] | None
"""Red, green and blue of each class from 0 to 255. Without them the first class is background, and has no color."""


@dataclasses.dataclass(frozen=True, eq=False)
class Tile:
    """One field of a sheet.

    Args:
        pixels: an image ``(H, W)`` or ``(H, W, 3)`` from 0 to 1, classes ``(H, W)``, or a mask of what to mark.
        note: a line of text below it.
    """

    pixels: np.ndarray
    note: str = ""


@dataclasses.dataclass(frozen=True, eq=False)
class Sheet:
    """Cases side by side: in each row an image, and what is known of its classes, outlined on the image.

    Args:
        rows: the tiles of each case by the title of their column; the first is the image.
        classes: names of the classes, background first.
        colors: their colors.
    """

    rows: Sequence[Mapping[str, Tile]]
    classes: Sequence[str]
    colors: Colors = None

    def save(self, file: Path) -> None:
        """Write the sheet as arrays."""
        arrays = {"classes": np.array(self.classes), "colors": np.array(self.colors or [])}
        for index, row in enumerate(self.rows):
            arrays |= {f"{index}/{name}/{tile.note}": tile.pixels for name, tile in row.items()}
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type] # numpy's stub takes no mapping

    @classmethod
    def load(cls, file: Path) -> Sheet:
        """Read the arrays of a sheet."""
        rows: dict[str, dict[str, Tile]] = {}
        with np.load(file) as arrays:
            for key in arrays.files:
                index, *words = key.split("/", 2)
                if words:
                    rows.setdefault(index, {})[words[0]] = Tile(arrays[key], words[1])
            return cls(list(rows.values()), arrays["classes"].tolist(), arrays["colors"].tolist() or None)

    @classmethod
    def side_by_side(cls, sheets: Mapping[str, Sheet]) -> Sheet:
        """Return what sheets of the same cases share, then the predictions of each under its name."""
        first, rows = next(iter(sheets.values())), []
        for row, *others in zip(first.rows, *(sheet.rows for sheet in sheets.values()), strict=True):
            same = {name: row[name] for name in ("image", "truth", "noisy label") if name in row}
            rows.append(same | {name: other["prediction"] for name, other in zip(sheets, others, strict=True)})
        return cls(rows, first.classes, first.colors)

    @_NAMES_AS_THEY_ARE
    def draw(self, title: str, file: Path, names: Sequence[str] = ()) -> None:
        """Draw one row per case, or several if it has many tiles, with the colors of the classes below.

        Args:
            title: what the sheet shows.
            file: the PNG file.
            names: what to write beside each row.
        """
        count, windows = len(self.rows[0]), [_window(row) for row in self.rows]
        lines = math.ceil(count / _MOST_COLUMNS)
        columns, title_height = math.ceil(count / lines), 0.4 if lines > 1 else 0
        heights = [2.3 * (bottom - top) / (right - left) + 0.2 + title_height for left, right, top, bottom in windows]
        figure = Figure(figsize=(2.3 * columns + 0.2, lines * sum(heights) + 0.9), layout="constrained")
        ratios = np.repeat(heights, lines).tolist()
        axes = figure.subplots(lines * len(self.rows), columns, squeeze=False, height_ratios=ratios)
        fields = axes.reshape(len(self.rows), -1)
        for number, row in enumerate(self.rows):
            self._draw_row(row, fields[number], has_titles=number == 0 or lines > 1)
        for line, name in zip(fields, names, strict=False):
            line[0].set_ylabel(name, fontsize=9.5)
        named = [(number, name) for number, name in enumerate(self.classes) if number > 0 or self.colors is not None]
        handles = [Patch(color=color_of(number, self.colors), label=name) for number, name in named]
        ncols = min(len(handles), 1 + 3 * columns // 2)
        figure.legend(handles=handles, loc="outside lower center", ncols=ncols, fontsize=10, frameon=False)
        figure.suptitle(textwrap.fill(title, 22 * columns), fontsize=11)
        save_figure(figure, file, dpi=110)

    def _draw_row(self, row: Mapping[str, Tile], fields: Sequence[Axes], has_titles: bool) -> None:
        """Draw the tiles of one case, and nothing into the fields that are left."""
        left, right, top, bottom = _window(row)
        image = row["image"].pixels.astype(np.float32)
        for axis, (name, tile) in zip(fields, row.items(), strict=False):
            if name == "image":
                axis.imshow(image, cmap="gray", vmin=0, vmax=1)
            else:
                _mark(axis, image, tile.pixels, self.colors)
            axis.set(xlim=(left, right), ylim=(bottom, top), facecolor="black", xticks=[], yticks=[])
            axis.set_xlabel(tile.note, fontsize=9.5)
            if has_titles:
                axis.set_title(textwrap.fill(name, 30), fontsize=10.5)
        for axis in fields[len(row) :]:
            axis.set_axis_off()


def save_figure(figure: Figure, file: Path, dpi: int = 100, colors: int = 128) -> None:
    """Write a figure as a PNG with a palette, which needs a third of the space.

    Args:
        figure: what to write.
        file: the PNG file.
        dpi: pixels per inch.
        colors: how many colors the palette has, at most 256.
    """
    with io.BytesIO() as stream:
        figure.savefig(stream, dpi=dpi)
        pixels = Image.open(stream).convert("RGB")
    # This method keeps thin lines in their own colors, the default one merges them.
    palette = pixels.quantize(colors, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)
    palette.save(file, format="png", optimize=True)


def tiles(image: np.ndarray, classes: Mapping[str, np.ndarray], largest: int | None = None) -> dict[str, Tile]:
    """Return a row of a sheet: of a volume, the slice from the side that shows most of the truth, its top above.

    Notes are of the whole case.

    Args:
        image: ``(C, *spatial)``, in MONAI's axes.
        classes: the truth under ``truth``, and whatever else is known; each of shape ``spatial``.
        largest: leave out pixels of images that have more along an axis.
    """
    truth = classes["truth"]
    index = int(np.argmax((truth > 0).sum(axis=(1, 2)))) if truth.ndim == 3 else 0
    step = math.ceil(max(truth.shape) / (largest or max(truth.shape)))
    row = {"image": Tile(_upright_image(image, index)[::step, ::step].astype(np.float16))}
    for name, values in classes.items():
        pixels = _upright(values, index)[::step, ::step].astype(np.uint8)
        row[name] = Tile(pixels, _note(values, truth))
    return row


def _upright(classes: np.ndarray, index: int) -> np.ndarray:
    """Turn classes in MONAI's axes, or one slice of a volume that points upward, into rows and columns."""
    return classes[index].T[::-1] if classes.ndim == 3 else classes.T


def _upright_image(image: np.ndarray, index: int) -> np.ndarray:
    """Turn an image ``(C, *spatial)`` in MONAI's axes into rows and columns of gray or RGB from 0 to 1."""
    channels = image[:3] if len(image) >= 3 else image[:1]
    pixels = np.stack([_upright(channel, index) for channel in channels], axis=-1).astype(np.float32)
    low, high = np.percentile(pixels, (0.5, 99.5))
    return np.clip((pixels - low) / max(high - low, 1e-6), 0, 1).squeeze(-1 if len(channels) == 1 else ())


def _note(classes: np.ndarray, truth: np.ndarray) -> str:
    """Return the roughness of classes, and their Dice if they are not the truth itself and it has any class."""
    labeled = torch.from_numpy((classes != IGNORED) & (truth != IGNORED))
    found = [torch.from_numpy(values.astype(np.int64)) * labeled for values in (classes, truth)]
    count = max(2, *(int(values.max()) + 1 for values in found))
    regions, expected = (one_hot(values[None, None], count) * labeled for values in found)
    dice = compute_dice(regions, expected, include_background=False).nanmean()
    words = [] if classes is truth or dice.isnan() else [f"Dice {dice:.3f}"]
    return ", ".join([*words, f"roughness {float(RoughnessMetric().measure(regions.bool())):.3f}"])


def classes_of(one_hot_classes: torch.Tensor, has_background: bool = True) -> torch.Tensor:
    """Return the class of each pixel of one-hot ``(C, *spatial)``; where it has none, background or ``IGNORED``."""
    return torch.where(one_hot_classes.any(0), one_hot_classes.argmax(0), 0 if has_background else IGNORED)


def color_of(number: int, colors: Colors = None) -> Any:
    """Return the color of a class in all pictures; without colors of their own, they begin again after five."""
    return _COLORS[(number - 1) % len(_COLORS)] if colors is None else tuple(np.array(colors[number]) / 255)


def outline(image: torch.Tensor, classes: torch.Tensor, colors: Sequence[Sequence[int]] | None = None) -> torch.Tensor:
    """Draw the outline of each class on an image in the color of the class; with colors of their own, fill them.

    Args:
        image: gray or RGB from 0 to 1, ``(C, H, W)``.
        classes: ``(1, H, W)``.
        colors: red, green and blue of each class; by default the first class is background and has none.

    Returns:
        RGB from 0 to 1, ``(3, H, W)``.
    """
    drawn = (image[:3] if len(image) >= 3 else image[:1].repeat(3, 1, 1)).clone()
    if colors is not None:
        return (drawn + torch.tensor(colors, dtype=drawn.dtype)[classes[0].long().cpu()].movedim(-1, 0) / 255) / 2
    width = max(1, round(min(drawn.shape[1:]) / 250))
    for number in torch.unique(classes[classes > 0]).int().tolist():
        inside = (classes == number).float().cpu()
        core = -torch.nn.functional.max_pool2d(-inside, 2 * width + 1, stride=1, padding=width)
        drawn[:, (inside > core)[0]] = torch.tensor(to_rgb(color_of(number)), dtype=drawn.dtype)[:, None]
    return drawn


def _mark(axis: Axes, image: np.ndarray, pixels: np.ndarray, colors: Colors) -> None:
    """Show each class in its color on an image that is made gray and dark, or mark a mask in white.

    Without colors of their own, classes lie on a background, and are outlined; with colors, they cover the image.
    """
    axis.imshow(image.mean(-1) if image.ndim == 3 else image, cmap="gray", vmin=-0.2, vmax=1.6)
    if pixels.dtype == bool:
        axis.imshow(np.ones((*pixels.shape, 3)), alpha=pixels.astype(float))
        return
    fill = np.zeros((IGNORED + 1, 4))
    shown = (pixels != IGNORED) & ((pixels > 0) | (colors is not None))
    for number in np.unique(pixels[shown]).tolist():
        color, inside = color_of(number, colors), pixels == number
        fill[number] = to_rgba(color, 0.25 if colors is None else 0.7)
        if colors is None and not inside.all():
            axis.contour(inside, levels=[0.5], colors=[color], linewidths=1.4)
    axis.imshow(fill[pixels])


def contact_sheet(
    cases: Sequence[tuple[str, float, Mapping[str, Tile]]], classes: Sequence[str], file: Path, colors: Colors = None
) -> None:
    """Show image, truth, prediction and error of the worst, the median and the best cases, up to three of each.

    Args:
        cases: name, score and tiles of all cases.
        classes: names of the classes, background first.
        file: the PNG file.
        colors: colors of the classes.
    """
    ordered = sorted(cases, key=lambda case: case[1])
    each = max(1, min(3, len(cases) // 3))
    starts = {"worst": 0, "median": (len(cases) - each) // 2, "best": len(cases) - each}
    groups = {index: group for group, start in starts.items() for index in range(start, start + each)}
    rows = []
    for index in groups:
        row = ordered[index][2]
        differs = row["truth"].pixels != row["prediction"].pixels
        rows.append({**row, "where they differ": Tile(differs, f"{differs.mean():.1%} of this image")})
    names = [f"{group}\n{ordered[index][0][:24]}" for index, group in groups.items()]
    Sheet(rows, classes, colors).draw(f"Worst, median and best by Dice (cases: {len(cases)})", file, names)


def _window(row: Mapping[str, Tile]) -> tuple[float, float, float, float]:
    """Return the left, right, top and bottom of what to show: all, or the surroundings of small structures."""
    labels = [tile.pixels for name, tile in row.items() if name != "image"]
    inside = np.any([(label > 0) & (label != IGNORED) for label in labels], axis=0)
    rows, columns = np.flatnonzero(inside.any(axis=1)), np.flatnonzero(inside.any(axis=0))
    if not rows.size or max(np.ptp(rows) / inside.shape[0], np.ptp(columns) / inside.shape[1]) > 0.5:
        return -0.5, inside.shape[1] - 0.5, -0.5, inside.shape[0] - 0.5
    half = 0.75 * max(np.ptp(rows), np.ptp(columns)) + 2
    y, x = (rows[0] + rows[-1]) / 2, (columns[0] + columns[-1]) / 2
    return x - half, x + half, y - half, y + half


@_NAMES_AS_THEY_ARE
def study_curves(groups: Mapping[str, Mapping[str, Sequence[pd.DataFrame]]], file: Path) -> None:
    """Plot what all trainings have over the epochs: the loss, and the metrics.

    There is one row of plots per group, and one line per variant, in one color everywhere. The first variant is gray.

    Args:
        groups: for each group and variant, one table per seed, with metrics as columns and epochs as index.
        file: the PNG file.
    """
    tables = [table for variants in groups.values() for seeds in variants.values() for table in seeds]
    measures = [m for m in (Measure("loss", "loss"), *compared()) if all(m.name in table for table in tables)]
    names = list(dict.fromkeys(name for variants in groups.values() for name in variants))
    styles = dict(zip(names, _LINES(), strict=False))  # after the last one they begin again
    size = (3.6 * len(measures), 3.0 * len(groups) + 0.3 * math.ceil((len(names) + 1) / 3))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(groups), len(measures), squeeze=False)
    legend: dict[str, Any] = {}
    for line, (group, variants) in zip(axes, groups.items(), strict=True):
        for axis, measure in zip(line, measures, strict=True):
            _plot_variants(axis, variants, measure, styles)
            axis.set_title(f"{group}\n{measure.title}" if group else measure.title, fontsize=10)
            axis.set_xlabel("epoch")
            axis.grid(alpha=0.3)
            axis.locator_params(axis="x", integer=True)
            legend |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    figure.legend(legend.values(), legend, loc="outside lower center", ncols=3, fontsize=10, frameon=False)
    save_figure(figure, file)


def _plot_variants(
    axis: Axes, variants: Mapping[str, Sequence[pd.DataFrame]], measure: Measure, styles: Mapping[str, Any]
) -> None:
    """Plot the mean of each variant, with the range of its seeds shaded, over the epochs that all seeds have."""
    for name, histories in variants.items():
        seeds = pd.concat([history[measure.name] for history in histories], axis="columns").dropna()
        marker = "." if len(seeds) < 30 else None  # the curve of a single epoch has no line
        (line,) = axis.plot(seeds.mean(axis="columns"), label=name, marker=marker, **styles[name])
        low, high = seeds.min(axis="columns"), seeds.max(axis="columns")
        axis.fill_between(seeds.index, low, high, color=line.get_color(), alpha=0.15, lw=0)
    if truths := [h[measure.truth].dropna() for hs in variants.values() for h in hs if measure.truth in h]:
        axis.axhline(truths[0].iloc[-1], color="black", linestyle="--", lw=1, label="truth")
