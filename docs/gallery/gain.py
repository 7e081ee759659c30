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

"""Plot how much a heat layer amplifies each frequency, and its gain over the number of steps.

Run ``python docs/gallery/gain.py``.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from monai_iels import HeatDiffusion

FIGURES = Path(__file__).parents[1] / "figures"
SETTINGS = {"WBC": (2.0, 20), "DSB2018": (2.0, 30), "DRIVE": (2.0, 10), "the paper's text, WBC": (1.0, 20)}


def main() -> None:
    """Write the picture."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), constrained_layout=True)
    frequency = np.linspace(0.0, 1.0, 200)
    for name, (spacing, steps) in SETTINGS.items():
        # a stripe pattern of this frequency along one axis; 1 changes sign from pixel to pixel
        eigenvalue = -(2.0 - 2.0 * np.cos(np.pi * frequency)) / spacing**2
        left.semilogy(frequency, (1.0 - 0.1 * eigenvalue) ** steps, label=f"{name}: spacing {spacing:g}, {steps} steps")
        counts = np.arange(0, 61)
        gains = [HeatDiffusion(spacing).gain(dt=-0.1, steps=int(count), spatial_dims=2) for count in counts]
        right.semilogy(counts, gains, color="C3" if spacing == 1.0 else "C0")
        gain = HeatDiffusion(spacing).gain(dt=-0.1, steps=steps, spatial_dims=2)
        right.semilogy(steps, gain, "o", color="black")
        right.annotate(f"{name}: {gain:,.0f}", (steps, gain), xytext=(4, -12), textcoords="offset points", fontsize=8)
    right.axhspan(1e3, right.get_ylim()[1], color="tab:red", alpha=0.1)
    right.axhline(1e3, color="tab:red", lw=1)
    right.text(1, 1e15, "layers warn: too strong to train", color="tab:red", va="top", fontsize=9)
    left.set(
        xlabel="frequency of a stripe pattern (1 = pixel to pixel)",
        ylabel="amplification",
        title="stripes along one axis, by frequency",
    )
    right.set(xlabel="steps of dt = 0.1", ylabel="gain", title="the checkerboard in 2-D; blue spacing 2, red 1")
    left.legend(fontsize=8)
    for axis in (left, right):
        axis.grid(alpha=0.3)
    FIGURES.mkdir(exist_ok=True)
    figure.savefig(FIGURES / "gain.png", dpi=100)
    plt.close(figure)
    print(f"Wrote {FIGURES / 'gain.png'}")


if __name__ == "__main__":
    main()
