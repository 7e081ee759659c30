# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Draw what a layer shows the loss while a network trains.

Run ``python docs/gallery/layers.py``.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from torch import Tensor

from monai_iels import ConvexCurveMotion, Evolution, HeatDiffusion
from monai_iels.pictures import save_figure

FIGURES = Path(__file__).parents[1] / "figures"
SIZE = 96


def main() -> None:
    """Draw a row for each evolution: the logits, backward, forward."""
    Y, X = torch.meshgrid(*[torch.arange(SIZE) - SIZE / 2] * 2, indexing="ij")
    disk = 30 - (X**2 + Y**2).sqrt()
    noise = torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    bite = ((X - 3) ** 2 + (Y + 34) ** 2).sqrt() - 10
    rows: list[tuple[str, Evolution, int, Tensor]] = [
        ("Heat diffusion\nagainst noise", HeatDiffusion(spacing=2.0), 20, disk / 6 + 0.2 * noise),
        (
            "Convex curve motion\nagainst concave outlines",
            ConvexCurveMotion(regions=((0,),), activation="sigmoid"),
            50,
            torch.minimum(disk, bite) / 2,
        ),
    ]
    titles = (
        "The network's logits;\npredictions are made from these",
        "After the inverse layer;\nwhat the loss sees in training",
        "The same equation forward;\nwhere training pushes the network",
    )
    figure, axes = plt.subplots(2, 3, figsize=(9.6, 6.8), constrained_layout=True)
    for line, (name, evolution, steps, logits) in zip(axes, rows, strict=True):
        for axis, dt in zip(line, (0.0, -0.1, 0.1), strict=True):
            draw(axis, evolution.evolve(logits[None, None], dt, steps)[0, 0])
        line[0].set_ylabel(f"{name}\n({steps} steps of 0.1)", fontsize=11)
    figure.supxlabel("Red is inside, blue outside, and the outline black.", fontsize=10)
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=11)
    FIGURES.mkdir(exist_ok=True)
    save_figure(figure, FIGURES / "layers.png", dpi=110)
    print(f"Wrote {FIGURES / 'layers.png'}")


def draw(axis: Axes, phi: Tensor) -> None:
    """Show logits, red inside and blue outside the segmented region, whose outline is black."""
    axis.imshow(phi, cmap="RdBu_r", vmin=-6, vmax=6, interpolation="nearest")
    axis.contour(phi, levels=[0.0], colors="black", linewidths=1.0)
    axis.set(xticks=[], yticks=[])


if __name__ == "__main__":
    main()
