# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Draw each label error on synthetic cells, nuclei and a hippocampus.

Run ``python docs/gallery/label_errors.py``.
"""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from monai.transforms import Transform

from monai_iels import (
    BiteLabel,
    CocoLabel,
    CorruptLabel,
    CutLabel,
    GrowLabel,
    MarkovLabel,
    MixAnnotators,
    OmitObjects,
    PolygonLabel,
    ScaleLabel,
    WobbleLabel,
)
from monai_iels.drawings import draw_hippocampus, draw_wbc
from monai_iels.pictures import save_figure

FIGURES = Path(__file__).parents[1] / "figures"
COLORS = {1: "deepskyblue", 2: "gold"}
ERRORS: dict[str, Transform | None] = {
    "truth": None,
    "WobbleLabel(4, 10)\na hand that wobbles": WobbleLabel(4, 10),
    "WobbleLabel(2, 3)\na hand that trembles": WobbleLabel(2, 3),
    "WobbleLabel(5, inf)\nshifted": WobbleLabel(5, math.inf, seed=1),
    "GrowLabel(4)\nover-segmented": GrowLabel(4),
    "GrowLabel(-4)\nunder-segmented": GrowLabel(-4),
    "PolygonLabel(25)\nfew clicks": PolygonLabel(25),
    "BiteLabel(3, 8)\nbites": BiteLabel(3, 8),
    "CutLabel(2, 5)\nvessels left out": CutLabel(2, 5),
    "OmitObjects(0.5)\nobjects left out": OmitObjects(0.5, seed=1),
    "CorruptLabel(3, 3, 0.1)\nwindows": CorruptLabel(3, 3, 0.1),
    "MarkovLabel(100, 0.5, 0.1)\nragged": MarkovLabel(100, 0.5, 0.1),
    "MarkovLabel(200, 0.8, 0.05)\nthe preset S_R": MarkovLabel(*MarkovLabel.presets["S_R"]),
    "ScaleLabel(1, 0.5)\nbeta = 0.5": ScaleLabel(1, 0.5, seed=1),
    "MixAnnotators([..., ...])\none of two annotators": MixAnnotators([GrowLabel(4), GrowLabel(-4)]),
    "CocoLabel('easy', scale=0.4)": CocoLabel("easy", scale=0.4, seed=2),
    "CocoLabel('medium', scale=0.4)": CocoLabel("medium", scale=0.4, seed=2),
    "CocoLabel('hard', scale=0.4)": CocoLabel("hard", scale=0.4, seed=2),
}


def main() -> None:
    """Write both pictures."""
    FIGURES.mkdir(exist_ok=True)
    for name, figure in (("label_errors", in_2d()), ("label_errors_slices", in_3d())):
        save_figure(figure, FIGURES / f"{name}.png", colors=64)
        plt.close(figure)
        print(f"Wrote {FIGURES / f'{name}.png'}")


def in_2d() -> plt.Figure:
    """Draw every error on the same two cells, with the true outline behind it."""
    cells = [draw_wbc(np.random.default_rng(seed)) for seed in (4, 9)]
    image, truth = (np.concatenate([cell[part] for cell in cells], 1) for part in (0, 1))
    truth = np.searchsorted(np.unique(truth), truth)
    figure, axes = plt.subplots(6, 3, figsize=(9.6, 12), layout="constrained")
    for axis, (name, error) in zip(axes.flat, ERRORS.items(), strict=True):
        axis.imshow(image)
        outline(axis, truth, {1: "0.25", 2: "0.25"}, linestyles="dotted")
        outline(axis, apply(error, truth), COLORS)
        axis.set_title(name, fontsize=10)
        axis.set(xticks=[], yticks=[])
    legend(figure, "cytoplasm and nucleus", "nucleus")
    return figure


def in_3d() -> plt.Figure:
    """Draw a hippocampus across its slices: a label of one hand, and one whose slices disagree."""
    volume, truth = draw_hippocampus(np.random.default_rng(3))
    middle = int(np.median(np.nonzero(truth)[0]))
    error = WobbleLabel(2, math.inf, slices=1)
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.2), layout="constrained")
    drawn = {"truth": truth, "WobbleLabel(2, inf, slices=1)\nslices (columns here) that disagree": apply(error, truth)}
    for axis, (name, label) in zip(axes, drawn.items(), strict=True):
        axis.imshow(np.rot90(volume[middle]), cmap="gray")
        outline(axis, np.rot90(label[middle]), COLORS)
        axis.set_title(name, fontsize=10)
        axis.set(xticks=[], yticks=[])
    legend(figure, "anterior and posterior part", "posterior part")
    return figure


def apply(error: Transform | None, label: np.ndarray) -> np.ndarray:
    """Return the label with the error."""
    tensor = torch.from_numpy(label)[None].float()
    return np.asarray(tensor if error is None else error(tensor))[0]


def outline(axis: Axes, label: np.ndarray, colors: dict[int, str], linestyles: str = "solid") -> None:
    """Draw where each class, or a higher one, ends."""
    for number, color in colors.items():
        if (label >= number).any():
            axis.contour(label >= number, levels=[0.5], colors=color, linewidths=1.5, linestyles=linestyles)


def legend(figure: plt.Figure, first: str, second: str) -> None:
    """Say what the colors are."""
    lines = [Line2D([], [], color=COLORS[n], label=name) for n, name in ((1, first), (2, second))]
    figure.legend(handles=lines, loc="outside lower center", ncols=2, frameon=False)


if __name__ == "__main__":
    main()
