# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Show a synthetic hippocampus from the side: slices and surfaces of its label, clean, noisy, and smoothed by heat.

Run ``python docs/gallery/volume.py``.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LightSource, to_rgb
from matplotlib.patches import Patch

from monai_iels import CorruptLabel, Evolve, HeatDiffusion
from monai_iels.drawings import draw_hippocampus
from monai_iels.pictures import save_figure

FIGURES = Path(__file__).parents[1] / "figures"
COLORS = {1: "deepskyblue", 2: "gold"}
SLAB = 4


def main() -> None:
    """Write the picture: slices above, surfaces below."""
    volume, truth = draw_hippocampus(np.random.default_rng(3))
    noisy = np.asarray(CorruptLabel(num_classes=3, window=2, fraction=0.2)(torch.from_numpy(truth)[None].float()))[0]
    classes = torch.nn.functional.one_hot(torch.from_numpy(noisy).long(), 3).movedim(-1, 0).float()
    smooth = np.asarray(Evolve(HeatDiffusion(), dt=0.1, steps=10)(classes)).argmax(0)

    middle = int(np.median(np.nonzero(truth)[0]))
    slab = slice(middle - SLAB // 2, middle + SLAB // 2)
    labels = {"truth": truth, "noisy label": noisy, "noisy label, smoothed by heat in 3-D": smooth}
    figure, axes = plt.subplots(2, 3, figsize=(10, 5.2), layout="constrained")
    for (above, below), (name, label) in zip(axes.T, labels.items(), strict=True):
        show_slice(above, volume[middle], label[middle])
        below.imshow(surface(label[slab]))
        above.set_title(name, fontsize=11)
        for axis in (above, below):
            axis.set(xticks=[], yticks=[])
    axes[0, 0].set_ylabel("one slice")
    axes[1, 0].set_ylabel(f"{SLAB} slices, as a solid")
    parts = [Patch(color=COLORS[number], label=f"{name} part") for number, name in ((2, "posterior"), (1, "anterior"))]
    figure.legend(handles=parts, loc="outside lower center", ncols=2, frameon=False)
    FIGURES.mkdir(exist_ok=True)
    save_figure(figure, FIGURES / "volume.png")
    plt.close(figure)
    print(f"Wrote {FIGURES / 'volume.png'}")


def show_slice(axis: Axes, image: np.ndarray, label: np.ndarray) -> None:
    """Show one slice in gray, with the outline of each part."""
    axis.imshow(np.rot90(image), cmap="gray")
    for number, color in COLORS.items():
        axis.contour(np.rot90(label == number), levels=[0.5], colors=color, linewidths=1.5)


def surface(label: np.ndarray) -> np.ndarray:
    """Return the picture of a label that is looked at from the side and lit from above."""
    inside = np.rot90(label, axes=(1, 2)).repeat(6, 1).repeat(6, 2)
    hit = inside.any(0)
    depth = (inside > 0).argmax(0)
    colors = np.ones((*hit.shape, 3))
    for number, color in COLORS.items():
        colors[hit & (np.take_along_axis(inside, depth[None], 0)[0] == number)] = to_rgb(color)
    height = np.where(hit, -depth, -len(label)).astype(float)
    shaded = LightSource(azdeg=0, altdeg=55).shade_rgb(colors, height, vert_exag=2.0, blend_mode="soft")
    return np.where(hit[..., None], shaded, 1.0)


if __name__ == "__main__":
    main()
