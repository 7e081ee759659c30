# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Plot how much a heat layer amplifies each frequency, its gain over the number of steps, and what gains look like.

Run ``python docs/gallery/gain.py``.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure

from monai_iels import HeatDiffusion
from monai_iels.pictures import save_figure

FIGURES = Path(__file__).parents[1] / "figures"
SETTINGS = {  # spacing, steps of 0.1, color
    "DRIVE (bundle, paper)": (2.0, 10, "tab:green"),
    "WBC, DSB2018 (bundles)": (2.0, 15, "tab:blue"),
    "WBC in the paper's code": (2.0, 20, "tab:orange"),
    "DSB2018 in the paper": (2.0, 30, "tab:red"),
    "WBC in the paper's text": (1.0, 20, "tab:purple"),
}


def main() -> None:
    """Write both pictures."""
    FIGURES.mkdir(exist_ok=True)
    for name, draw in (("gain", curves), ("gain_seen", layers_at_work)):
        figure = draw()
        save_figure(figure, FIGURES / f"{name}.png")
        plt.close(figure)
        print(f"Wrote {FIGURES / f'{name}.png'}")


def layers_at_work() -> Figure:
    """Show a slightly noisy disk as the loss sees it behind layers of several gains."""
    Y, X = torch.meshgrid(*[torch.arange(64) - 32.0] * 2, indexing="ij")
    noise = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    logits = (20 - (X**2 + Y**2).sqrt()).clamp(-4, 4) + 0.3 * noise
    heat = HeatDiffusion(spacing=2.0)
    figure, axes = plt.subplots(1, 6, figsize=(11, 2.6), layout="constrained")
    for axis, steps in zip(axes, (0, 10, 15, 20, 30, 50), strict=True):
        shown = heat.evolve(logits[None, None], -0.1, steps)[0, 0]
        wrong = ((shown > 0) != (X**2 + Y**2 < 400)).float().mean()
        axis.imshow(shown, cmap="RdBu_r", vmin=-8, vmax=8, interpolation="nearest")
        gain = heat.gain(dt=-0.1, steps=steps, spatial_dims=2)
        name = f"gain {gain:,.0f}\n({steps} steps)" if steps else "the network's logits\n(no layer)"
        axis.set(title=name, xlabel=f"{wrong:.0%} of pixels wrong", xticks=[], yticks=[])
    return figure


def curves() -> Figure:
    """Plot the amplification of stripes, and the gain over the number of steps; a setting has one color in both."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    frequency, counts = np.linspace(0.0, 1.0, 200), np.arange(0, 61)
    for spacing, style in ((1.0, ":"), (2.0, "-")):
        gains = [HeatDiffusion(spacing).gain(dt=-0.1, steps=int(count), spatial_dims=2) for count in counts]
        right.semilogy(counts, gains, style, color="gray", label=f"spacing {spacing:g}")
    for name, (spacing, steps, color) in SETTINGS.items():
        # a stripe pattern of this frequency along one axis; 1 changes sign from pixel to pixel
        eigenvalue = -(2.0 - 2.0 * np.cos(np.pi * frequency)) / spacing**2
        amplification = (1.0 - 0.1 * eigenvalue) ** steps
        left.semilogy(frequency, amplification, color=color)
        left.text(1.02, amplification[-1], name, color=color, va="center", fontsize=10)
        gain = HeatDiffusion(spacing).gain(dt=-0.1, steps=steps, spatial_dims=2)
        right.semilogy(steps, gain, "o", color=color)
        right.annotate(
            f"{name}: {gain:,.0f}",
            (steps, gain),
            xytext=(7, -2),
            textcoords="offset points",
            color=color,
            fontsize=10,
            va="top",
        )
    right.set(ylim=(1, 1e9), xlabel="steps of dt = 0.1", ylabel="gain", title="checkerboard, by number of steps")
    right.axhspan(1e3, 1e9, color="black", alpha=0.06, lw=0)
    right.text(59, 1e7, "too strong to train: layers warn", ha="right", fontsize=10)
    right.legend(fontsize=10, loc="upper left")
    left.set(
        xlabel="frequency of the stripes (1 = they change at every pixel)",
        ylabel="amplification",
        title="stripes along one axis, by frequency",
        xlim=(0, 1.85),
        xticks=[0, 0.25, 0.5, 0.75, 1],
    )
    for axis in (left, right):
        axis.grid(alpha=0.3)
    return figure


if __name__ == "__main__":
    main()
