# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""How many pixels of a mask lie in a ball around each pixel, counted exactly."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache, reduce

import torch
import torch.nn.functional as F
from torch import Tensor

# A pixel whose distance is the radius belongs to the ball, also where the product of index and spacing is rounded.
_ROUNDING = 1e-9
# On a CPU, sums along this many chords take about as long as Fourier transforms.
_CHORDS_OF_A_TRANSFORM = 100
# Balls of at most this many pixels, such as the band's, are convolved with directly: one operation.
_LARGEST_CONVOLUTION = 500
# In transforms of float32, counts up to this were measured to be off by less than 0.01.
_LARGEST_COUNT_IN_FLOAT32 = 20_000


def ball_size(radius: float, spacing: Sequence[float]) -> int:
    """Return the number of pixels in a ball of ``radius``, its center included."""
    return sum(2 * reach + 1 for _, reach in chords(radius, spacing))


def count_within(mask: Tensor, radius: float, spacing: Sequence[float]) -> Tensor:
    """Count, for each pixel, the set pixels at a Euclidean distance of at most ``radius``; outside there are none.

    Balls of few chords are counted by sums along them on a CPU, all others by Fourier transforms, which take few
    operations whatever the radius. Both are exact.

    Args:
        mask: boolean tensor of shape ``(B, C, *spatial)``.
        radius: radius of the ball, in the unit of ``spacing``.
        spacing: distance between pixels, one per spatial axis.

    Returns:
        An integer tensor of the shape of ``mask``.
    """
    if not _takes_transforms(mask, [radius], spacing):
        return _count_along_chords(mask, radius, spacing)
    size = ball_size(radius, spacing)
    return (_shares(mask, (radius,), spacing)[:, :, 0] * size).round_().to(_smallest_integer(size))


def share_around(x: Tensor, radii: Sequence[float], spacing: Sequence[float]) -> Tensor:
    """Return for each pixel the share of the ball around it where ``x > 0``, the largest of several radii.

    A pixel where ``x > 0`` itself gets a share below 0.5. So ``> 0.5`` tells, exactly, whether more than half of a ball
    around a pixel outside is filled.
    """
    if _takes_transforms(x, radii, spacing):
        return _shares(x, radii, spacing, at_center=-1.0).amax(2)
    is_set = x > 0
    counts = [_count_along_chords(is_set, radius, spacing) / ball_size(radius, spacing) for radius in radii]
    return reduce(torch.maximum, counts).masked_fill_(is_set, -1)


def near(x: Tensor, radius: float, spacing: Sequence[float]) -> Tensor:
    """Return a number above 0.5 within ``radius`` of pixels where ``x`` is 1, and below elsewhere; ``x`` is 0 or 1."""
    if _is_on_cpu(x) or ball_size(radius, spacing) > _LARGEST_CONVOLUTION:
        return count_within(x > 0, radius, spacing)
    ball = _ball(radius, tuple(spacing), x.dtype, x.device)
    convolve = (F.conv1d, F.conv2d, F.conv3d)[len(spacing) - 1]
    return convolve(x.flatten(0, 1)[:, None], ball, padding="same").view(x.shape)


@lru_cache(maxsize=8)
def _ball(radius: float, spacing: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a ball as the kernel of a convolution of one channel."""
    reaches = [_reach(radius, h) for h in spacing]
    ball = torch.zeros(1, 1, *(2 * reach + 1 for reach in reaches), device="cpu")
    for offsets, reach in chords(radius, spacing):
        row = ball[0, 0][tuple(k + center for k, center in zip(offsets, reaches[:-1], strict=True))]
        row[reaches[-1] - reach : reaches[-1] + reach + 1] = 1
    return ball.to(dtype).to(device)


def _is_on_cpu(x: Tensor) -> bool:
    return x.device.type == "cpu"


def _takes_transforms(x: Tensor, radii: Sequence[float], spacing: Sequence[float]) -> bool:
    return not _is_on_cpu(x) or len(chords(max(radii), spacing)) > _CHORDS_OF_A_TRANSFORM


def _positive(x: Tensor, out: Tensor) -> Tensor:
    """Write 1 where ``x > 0`` and 0 elsewhere to ``out``, in one operation if they have the same type."""
    if x.dtype == out.dtype:
        return torch.heaviside(x, _zero(x.dtype, x.device), out=out)
    return out.copy_(x > 0)


@lru_cache(maxsize=8)
def _zero(dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.zeros((), dtype=dtype, device=device)


def _shares(x: Tensor, radii: Sequence[float], spacing: Sequence[float], at_center: float = 0.0) -> Tensor:
    """Return the share of each ball where ``x > 0``, of shape ``(B, C, radii, *spatial)``.

    A pixel where ``x > 0`` itself has ``at_center`` added to its own.
    """
    spatial = tuple(x.shape[2:])
    precise = x.dtype == torch.float64 or ball_size(max(radii), spacing) > _LARGEST_COUNT_IN_FLOAT32
    dtype = torch.float64 if precise and x.device.type != "mps" else torch.float32  # MPS has no float64
    balls, padded = _transformed_balls(spatial, tuple(radii), tuple(spacing), at_center, dtype, x.device)
    line = torch.zeros(*x.shape[:2], *padded, dtype=dtype, device=x.device)
    _positive(x, _cut(line, spatial))
    axes = tuple(range(2, x.ndim))
    modes = torch.fft.rfftn(line, dim=axes)[:, :, None] * balls
    return _cut(torch.fft.irfftn(modes, s=padded, dim=tuple(axis + 1 for axis in axes)), spatial)


@lru_cache(maxsize=8)
def _transformed_balls(
    spatial: tuple[int, ...],
    radii: tuple[float, ...],
    spacing: tuple[float, ...],
    at_center: float,
    dtype: torch.dtype,
    device: torch.device,
) -> tuple[Tensor, tuple[int, ...]]:
    """Return the transforms of balls that sum up to 1, and the shape, with a margin, that they are transformed in."""
    from scipy.fft import next_fast_len  # layers that need no balls need no SciPy

    padded = tuple(
        next_fast_len(size + _reach(max(radii), h), real=True) for size, h in zip(spatial, spacing, strict=True)
    )
    balls = torch.zeros(len(radii), *padded, dtype=torch.float64, device="cpu")
    for ball, radius in zip(balls, radii, strict=True):
        for offsets, reach in chords(radius, spacing):
            for last in range(-reach, reach + 1):
                ball[tuple(k % size for k, size in zip((*offsets, last), padded, strict=True))] += 1
        ball /= ball_size(radius, spacing)
        ball[(0,) * len(padded)] += at_center
    transforms = torch.fft.rfftn(balls, dim=tuple(range(1, balls.ndim)))
    return transforms.to(dtype.to_complex()).to(device), padded


def _cut(x: Tensor, spatial: Sequence[int]) -> Tensor:
    """Return the first ``spatial`` pixels of the last axes."""
    for axis, size in enumerate(spatial, start=x.ndim - len(spatial)):
        x = x.narrow(axis, 0, size)
    return x


def _count_along_chords(mask: Tensor, radius: float, spacing: Sequence[float]) -> Tensor:
    """Count along the chords of a ball.

    A ball is a bundle of chords along the last axis. From one pixel to the next each chord gains a pixel at its front
    and loses one at its back, so the counts are the running sum of those gains and losses, in small integers: exact,
    and the cost of a pixel grows with the number of chords, not with the volume of the ball. All images stand in one
    line, with enough background between their rows, and a chord is an offset in that line.
    """
    spatial = mask.shape[2:]
    gap = [_reach(radius, h) for h in spacing]
    padded = F.pad(mask, [side for width in reversed(gap) for side in (0, width)])
    strides = [math.prod(padded.shape[axis + 3 :]) for axis in range(len(spatial))]

    lines = [
        (sum(offset * stride for offset, stride in zip(offsets, strides[:-1], strict=True)), reach)
        for offsets, reach in chords(radius, spacing)
    ]
    margin = max(abs(offset) + reach for offset, reach in lines) + 1
    # The sum begins a margin before the first pixel, where every chord is still empty.
    line = F.pad(padded.flatten(), (2 * margin, margin)).to(_smallest_integer(len(lines)))
    change = line.new_zeros(margin + padded.numel())
    for offset, reach in lines:
        change += line.narrow(0, margin + offset + reach, change.numel())
        change -= line.narrow(0, margin + offset - reach - 1, change.numel())

    counts = change.cumsum(0, dtype=_smallest_integer(ball_size(radius, spacing)))[margin:].view(padded.shape)
    return _cut(counts, spatial)


def chords(radius: float, spacing: Sequence[float]) -> list[tuple[tuple[int, ...], int]]:
    """List the chords of a ball along the last axis: offsets along the other axes, and pixels to each side."""
    return _chords(radius, tuple(spacing))


@lru_cache(maxsize=64)
def _chords(radius: float, spacing: tuple[float, ...]) -> list[tuple[tuple[int, ...], int]]:
    *others, last = spacing
    reaches = [_reach(radius, h) for h in others]
    found = []
    for offsets in itertools.product(*(range(-reach, reach + 1) for reach in reaches)):
        remainder = radius**2 - sum((k * h) ** 2 for k, h in zip(offsets, others, strict=True))
        if remainder >= -_ROUNDING * radius**2:
            found.append((offsets, _reach(math.sqrt(max(remainder, 0.0)), last)))
    return found


def _reach(length: float, h: float) -> int:
    """Return how many pixels fit into ``length``."""
    return math.floor(length / h * (1 + _ROUNDING))


def _smallest_integer(maximum: int) -> torch.dtype:
    """Return the smallest signed integer type that holds ``maximum``."""
    return next(dtype for dtype in (torch.int8, torch.int16, torch.int32) if maximum <= torch.iinfo(dtype).max)
