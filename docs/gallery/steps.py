# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Animate noise and a bite while a layer amplifies them.

Run ``python docs/gallery/steps.py``.
"""

from __future__ import annotations

import io
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from PIL import Image

from monai_iels import ConvexCurveMotion, HeatDiffusion

FIGURES = Path(__file__).parents[1] / "figures"
FRAMES = 10
EACH = {"heat diffusion": 2, "convex curve motion": 5}  # steps a frame


def main() -> None:
    """Write one GIF of both evolutions; red is inside, blue outside, the outline black."""
    Y, X = torch.meshgrid(*[torch.arange(80) - 40.0] * 2, indexing="ij")
    disk = 24 - (X**2 + Y**2).sqrt()
    noise = torch.randn(80, 80, generator=torch.Generator().manual_seed(0))
    bite = ((X - 2) ** 2 + (Y + 20) ** 2).sqrt() - 10
    heat, curve = HeatDiffusion(spacing=2.0), ConvexCurveMotion(regions=((0,),), activation="sigmoid")
    fields = {"heat diffusion": disk / 6 + 0.1 * noise, "convex curve motion": torch.minimum(disk, bite) / 2}
    evolutions = {"heat diffusion": heat, "convex curve motion": curve}
    frames = []
    for number in range(FRAMES + 1):
        figure, axes = plt.subplots(1, 2, figsize=(6.4, 3.5), constrained_layout=True)
        for axis, (name, phi) in zip(axes, fields.items(), strict=True):
            steps = EACH[name] * number
            shown = evolutions[name].evolve(phi[None, None], -0.1, steps)[0, 0]
            axis.imshow(shown, cmap="RdBu_r", vmin=-6, vmax=6, interpolation="nearest")
            axis.contour(shown, levels=[0.0], colors="black", linewidths=1.0)
            axis.set(xticks=[], yticks=[], title=f"{name} run backward,\n{steps:>2} steps of 0.1")
        figure.suptitle("What the loss sees: red inside, blue outside, black the outline", fontsize=10)
        stream = io.BytesIO()
        figure.savefig(stream, dpi=80)
        plt.close(figure)
        frames.append(Image.open(stream).convert("P", palette=Image.Palette.ADAPTIVE, colors=64))
    FIGURES.mkdir(exist_ok=True)
    durations = [1200, *[350] * (FRAMES - 1), 2000]
    frames[0].save(FIGURES / "steps.gif", save_all=True, append_images=frames[1:], duration=durations, loop=0)
    print(f"Wrote {FIGURES / 'steps.gif'}")


if __name__ == "__main__":
    main()
