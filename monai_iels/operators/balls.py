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

"""How many pixels of a mask lie in a ball around each pixel, counted exactly."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["ball_size", "count_within"]

# A pixel whose distance is the radius belongs to the ball, also where the product of index and spacing is rounded.
_ROUNDING = 1e-9


def ball_size(radius: float, spacing: Sequence[float]) -> int:
    """Return the number of pixels in a ball of ``radius``, its center included."""
    return sum(2 * reach + 1 for _, reach in _chords(radius, spacing))


def count_within(mask: Tensor, radius: float, spacing: Sequence[float]) -> Tensor:
    """Count, for each pixel, the set pixels at a Euclidean distance of at most ``radius``; outside there are none.

    A ball is a bundle of chords along the last axis. From one pixel to the next each chord gains a pixel at its front
    and loses one at its back, so the counts are the running sum of those gains and losses, in small integers: exact,
    and the cost of a pixel grows with the number of chords, not with the volume of the ball. All images stand in one
    line, with enough background between their rows, and a chord is an offset in that line.

    Args:
        mask: boolean tensor of shape ``(B, C, *spatial)``.
        radius: radius of the ball, in the unit of ``spacing``.
        spacing: distance between pixels, one per spatial axis.

    Returns:
        An integer tensor of the shape of ``mask``.
    """
    spatial = mask.shape[2:]
    gap = [_reach(radius, h) for h in spacing]
    padded = F.pad(mask, [side for width in reversed(gap) for side in (0, width)])
    strides = [math.prod(padded.shape[axis + 3 :]) for axis in range(len(spatial))]

    chords = [
        (sum(offset * stride for offset, stride in zip(offsets, strides[:-1], strict=True)), reach)
        for offsets, reach in _chords(radius, spacing)
    ]
    margin = max(abs(offset) + reach for offset, reach in chords) + 1
    # The sum begins a margin before the first pixel, where every chord is still empty.
    line = F.pad(padded.flatten(), (2 * margin, margin)).to(_smallest_integer(len(chords)))
    change = line.new_zeros(margin + padded.numel())
    for offset, reach in chords:
        change += line.narrow(0, margin + offset + reach, change.numel())
        change -= line.narrow(0, margin + offset - reach - 1, change.numel())

    counts = change.cumsum(0, dtype=_smallest_integer(ball_size(radius, spacing)))[margin:].view(padded.shape)
    for axis, size in enumerate(spatial, start=2):
        counts = counts.narrow(axis, 0, size)
    return counts


def _chords(radius: float, spacing: Sequence[float]) -> list[tuple[tuple[int, ...], int]]:
    """List the chords of a ball along the last axis: offsets along the other axes, and pixels to each side."""
    *others, last = spacing
    reaches = [_reach(radius, h) for h in others]
    chords = []
    for offsets in itertools.product(*(range(-reach, reach + 1) for reach in reaches)):
        remainder = radius**2 - sum((k * h) ** 2 for k, h in zip(offsets, others, strict=True))
        if remainder >= -_ROUNDING * radius**2:
            chords.append((offsets, _reach(math.sqrt(max(remainder, 0.0)), last)))
    return chords


def _reach(length: float, h: float) -> int:
    """Return how many pixels fit into ``length``."""
    return math.floor(length / h * (1 + _ROUNDING))


def _smallest_integer(maximum: int) -> torch.dtype:
    """Return the smallest signed integer type that holds ``maximum``."""
    return next(dtype for dtype in (torch.int8, torch.int16, torch.int32) if maximum <= torch.iinfo(dtype).max)
