# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Draw what curve motion finds in a region with dents, and where it moves the outline.

Run ``python docs/gallery/curve_motion.py``.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from torch import Tensor

from monai_iels import ConvexCurveMotion
from monai_iels.pictures import save_figure

FIGURES = Path(__file__).parents[1] / "figures"
DENTS, BAND, OUTLINE = "#d95f02", "#fdc086", "black"


def main() -> None:
    """Write the picture."""
    Y, X = torch.meshgrid(*[torch.arange(96) - 48.0] * 2, indexing="ij")
    disk = 34 - (X**2 + Y**2).sqrt()
    bite = ((X - 30) ** 2 + (Y + 16) ** 2).sqrt() - 12
    notch = torch.maximum((X + 6).abs() - 5, 16 - Y)
    phi = torch.minimum(torch.minimum(disk, bite), notch)[None, None]
    motion = ConvexCurveMotion(regions=((0,),), activation="sigmoid", gradient="both")

    figure, (found, *moves) = plt.subplots(1, 3, figsize=(9.6, 4.2), layout="constrained")
    figure.get_layout_engine().set(h_pad=0.12)
    found.imshow(torch.where(phi > 0, 0.75, 1.0)[0, 0], cmap="gray", vmin=0, vmax=1)
    paint(found, motion.moving(phi), BAND)
    paint(found, motion.concave(phi), DENTS)
    found.contour(phi[0, 0], levels=[0.0], colors=OUTLINE, linewidths=1.2)
    found.set_title("1. The dents (dark orange)\nand the band around them")
    for axis, dt, title in (
        (moves[0], -0.1, "2. Backward, in the layer:\nthe dents deepen, the loss rises"),
        (moves[1], 0.1, "3. Forward, where training leads:\nfilled up to a straight edge"),
    ):
        moved = motion.evolve(phi, dt, 60)
        axis.imshow(torch.where(moved > 0, 0.75, 1.0)[0, 0], cmap="gray", vmin=0, vmax=1)
        axis.contour(phi[0, 0], levels=[0.0], colors=OUTLINE, linewidths=0.8, linestyles=":")
        axis.contour(moved[0, 0], levels=[0.0], colors="#b3261e" if dt < 0 else "#1a7f37", linewidths=1.6)
        axis.set_title(title)
    figure.supxlabel(
        "A reach of 6 pixels. Dotted: the outline before. The round parts do not move.\n"
        "Filling ends where no disk around a background pixel is more than half full: a wide bite has a straight edge.",
        fontsize=10,
    )
    for axis in (found, *moves):
        axis.set(xticks=[], yticks=[])
    FIGURES.mkdir(exist_ok=True)
    save_figure(figure, FIGURES / "curve_motion.png")
    plt.close(figure)
    print(f"Wrote {FIGURES / 'curve_motion.png'}")


def paint(axis: Axes, mask: Tensor, color: str) -> None:
    """Fill a mask with a color."""
    axis.contourf(mask[0, 0].float(), levels=[0.5, 1.5], colors=[color], alpha=0.8)


if __name__ == "__main__":
    main()
