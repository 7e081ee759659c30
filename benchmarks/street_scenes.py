# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Measure a heat layer and label noise at the size of Cityscapes, per pixel against a small image.

Prints a Markdown table of ratios from one run, on the CPU with one thread. Times are those of the processor, so that
other programs do not count.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from layers import by, markdown, medians, peak_memory
from torch import Tensor

from monai_iels import CorruptLabel, HeatDiffusion, InverseEvolutionLayer
from monai_iels.operators.extension import extend

LARGE, SMALL = (2, 19, 512, 1024), (2, 2, 256, 256)


def main() -> None:
    """Print the table, and write it to the file that is given."""
    torch.set_num_threads(1)
    rows = [["what", "per value", "per value in a small image", "ratio"]]
    for steps in (15, 35):
        layer = InverseEvolutionLayer(HeatDiffusion(2.0), 0.1, steps)
        large, small = torch.randn(LARGE), torch.randn(SMALL)
        times = cpu_times(*(partial(there_and_back, layer, u, torch.randn_like(u)) for u in (large, small)))
        what = f"heat of {steps} steps, {by(LARGE)} and {by(SMALL)}"
        rows.append(compared(f"{what}, forward and backward", times, [large.numel(), small.numel()], 1e9, "ns"))
        peaks = [peak_memory(u, layer) for u in (large, small)]
        rows.append(compared(f"{what}, peak extra memory", peaks, [large.numel(), small.numel()], 1, "bytes"))
    known = [torch.rand(2, 1, *shape[2:]) > 0.1 for shape in (LARGE, SMALL)]
    fields = [torch.randn(shape) for shape in (LARGE, SMALL)]
    fillings = [partial(extend, known=k) for k in known]
    times = cpu_times(
        *(partial(there_and_back, f, u, torch.randn_like(u)) for f, u in zip(fillings, fields, strict=True))
    )
    what = f"filling ignored pixels, {by(LARGE)} and {by(SMALL)}, forward and backward"
    rows.append(compared(what, times, [u.numel() for u in fields], 1e9, "ns"))
    labels = [torch.randint(0, 19, (1, *shape), dtype=torch.uint8) for shape in ((1024, 2048), (256, 256))]
    noise = CorruptLabel(19, window=5, fraction=0.1, ignore_index=255)
    times = cpu_times(*(lambda x=x: noise(x) for x in labels))
    sizes = [x.numel() for x in labels]
    rows.append(compared("noise of 5x5 windows, 10 %, a label of 1024x2048 and of 256x256", times, sizes, 1e9, "ns"))
    table = markdown(rows) + "\n"
    print(table)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(table)


cpu_times = partial(medians, repeats=9, clock=time.process_time)


def there_and_back(function: Callable[[Tensor], Tensor], u: Tensor, gradient: Tensor) -> None:
    """Run a function forward, and backward from a given gradient: no loss takes part, whose large arrays cost more."""
    u = u.detach().requires_grad_()
    torch.autograd.grad(function(u), u, gradient)


def compared(what: str, values: list[float], sizes: list[int], factor: float, unit: str) -> list[str]:
    """Return a row with two numbers per value and their ratio."""
    large, small = (factor * value / size for value, size in zip(values, sizes, strict=True))
    return [what, f"{large:.3g} {unit}", f"{small:.3g} {unit}", f"{large / small:.2f}"]


if __name__ == "__main__":
    main()
