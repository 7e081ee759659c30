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

"""Steps of curve motion for the CPU, compiled by numba.

The balls of the first step are counted as everywhere; after each step only the balls around the pixels that changed
sides are counted anew, and slopes are computed only where something moves. Arrays are ``(images, depth, height,
width)``; missing axes have length 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from monai_iels.operators.balls import ball_size, chords, count_within

__all__ = ["march", "march_back"]

Array = NDArray[Any]

# If more than this share of the pixels changes sides in a step, all balls are counted again.
_MANY = 1 / 64


def march(
    phi: Tensor,
    dt: float,
    steps: int,
    radii: Sequence[float],
    band: float,
    spacing: Sequence[float],
    scheme: str,
    kept_every: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return by how much all steps move, the level sets kept for the backward pass, and where each step moved."""
    moves = torch.zeros(steps, *phi.shape, dtype=torch.bool)
    kept = phi.new_empty(((steps - 1) // kept_every, *phi.shape))
    start, phi = phi, phi.clone(memory_format=torch.contiguous_format)
    before = torch.empty_like(phi)
    balls, table_of_band = [_chord_table(radius, spacing) for radius in radii], _chord_table(band, spacing)
    flipped = np.empty((math.ceil(phi.numel() * _MANY), 4), np.int64)
    counts = _count(phi, radii, spacing)
    halves = np.array([ball_size(radius, spacing) // 2 for radius in radii], counts.dtype)
    settings = dt, _per_distance(phi.dtype, spacing), scheme == "both"
    for step, move in enumerate(moves):
        if step and step % kept_every == 0:
            kept[step // kept_every - 1] = phi
        _mark_moving(_images(phi), counts, halves, table_of_band, _images(move))
        before.copy_(phi)
        found = _advance(_images(before), _images(move), *settings, _images(phi), flipped)
        if step == steps - 1:
            break
        if found > len(flipped):
            counts = _count(phi, radii, spacing)
        else:
            for count, ball in zip(counts, balls, strict=True):
                _count_again(_images(phi), flipped[:found], ball, count)
    return phi.sub_(start).nan_to_num_(0, 0, 0), kept, moves


def march_back(
    phi: Tensor,
    kept: Tensor,
    moves: Tensor,
    grad: Tensor,
    dt: float,
    spacing: Sequence[float],
    scheme: str,
    kept_every: int,
) -> Tensor:
    """Return the derivative by ``phi`` of the sum of ``grad`` times the movement."""
    settings = dt, _per_distance(phi.dtype, spacing), scheme == "both"
    total = grad.clone(memory_format=torch.contiguous_format)
    before, states = torch.empty_like(total), phi.new_empty(kept_every, *phi.shape)
    nowhere = np.empty((0, 4), np.int64)
    for start, segment in reversed(list(zip([phi, *kept], moves.split(kept_every), strict=True))):
        states[0] = start
        for step in range(1, len(segment)):
            states[step] = states[step - 1]
            _advance(_images(states[step - 1]), _images(segment[step - 1]), *settings, _images(states[step]), nowhere)
        for step in reversed(range(len(segment))):
            before.copy_(total)
            _retreat(_images(states[step]), _images(segment[step]), *settings, _images(before), _images(total))
    return total.sub_(grad)


def _count(phi: Tensor, radii: Sequence[float], spacing: Sequence[float]) -> Array:
    """Count the pixels of the region in the balls of each radius."""
    counts = [count_within(phi > 0, radius, spacing) for radius in radii]
    widest = max((count.dtype for count in counts), key=lambda dtype: dtype.itemsize)
    return np.stack([_images(count.to(widest).contiguous()) for count in counts])


def _images(x: Tensor) -> Array:
    """Return the memory of a contiguous tensor as an array of images."""
    spatial = x.shape[2:]
    return x.detach().view(-1, *(1,) * (3 - len(spatial)), *spatial).numpy()


def _per_distance(dtype: torch.dtype, spacing: Sequence[float]) -> Array:
    return torch.tensor([0.0] * (3 - len(spacing)) + [1 / h for h in spacing], dtype=dtype).numpy()


def _chord_table(radius: float, spacing: Sequence[float]) -> Array:
    """Return the chords of a ball as rows: offsets along depth and height, and the pixels to each side."""
    missing = (0,) * (3 - len(spacing))
    return np.array([[*missing, *offsets, reach] for offsets, reach in chords(radius, spacing)])


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile at the first call, and keep the result on disk where there is a place for it."""
    try:
        return numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # neither this folder nor the user's can be written to
        return numba.njit(nogil=True)(function)


@_compiled
def _mark_moving(phi: Array, counts: Array, halves: Array, band: Array, found: Array) -> None:
    """Mark the band around each pixel outside of the region for which one of its balls is more than half full."""
    images, depth, height, width = phi.shape
    is_concave = np.zeros(width, np.bool_)
    for image in range(images):
        for z in range(depth):
            for y in range(height):
                is_concave[:] = False
                for ball in range(len(halves)):
                    count, half = counts[ball, image, z, y], halves[ball]
                    for x in range(width):
                        is_concave[x] |= count[x] > half
                row = phi[image, z, y]
                for x in range(width):
                    is_concave[x] &= (row[x] <= 0) & (row[x] > -math.inf)
                if is_concave.any():
                    _mark_around(z, y, is_concave, band, found[image])


@_compiled
def _mark_around(z: int, y: int, is_concave: Array, band: Array, found: Array) -> None:
    """Mark the band around the concave pixels of one row."""
    depth, height, width = found.shape
    for chord in range(len(band)):
        zz, yy, reach = z + band[chord, 0], y + band[chord, 1], band[chord, 2]
        if 0 <= zz < depth and 0 <= yy < height:
            for shift in range(-reach, reach + 1):
                first, last = max(0, -shift), min(width, width - shift)
                source, target = is_concave[first:last], found[zz, yy, first + shift : last + shift]
                for x in range(last - first):
                    target[x] |= source[x]


@_compiled
def _count_again(phi: Array, flipped: Array, ball: Array, counts: Array) -> None:
    """Correct the counts of all balls that hold a pixel which joined or left the region."""
    _, depth, height, width = phi.shape
    for image, z, y, x in flipped:
        change = 1 if phi[image, z, y, x] > 0 else -1
        for chord in range(len(ball)):
            zz, yy, reach = z + ball[chord, 0], y + ball[chord, 1], ball[chord, 2]
            if 0 <= zz < depth and 0 <= yy < height:
                for xx in range(max(x - reach, 0), min(x + reach + 1, width)):
                    counts[image, zz, yy, xx] += change


@_compiled
def _differences(
    phi: Array, z: int, y: int, x: int, per_distance: Array
) -> tuple[float, float, float, float, float, float]:
    """Return the differences to the pixel before and after along each axis; none across the border."""
    depth, height, width = phi.shape
    here = phi[z, y, x]
    return (
        (here - phi[max(z - 1, 0), y, x]) * per_distance[0],
        (phi[min(z + 1, depth - 1), y, x] - here) * per_distance[0],
        (here - phi[z, max(y - 1, 0), x]) * per_distance[1],
        (phi[z, min(y + 1, height - 1), x] - here) * per_distance[1],
        (here - phi[z, y, max(x - 1, 0)]) * per_distance[2],
        (phi[z, y, min(x + 1, width - 1)] - here) * per_distance[2],
    )


@_compiled
def _square(before: float, after: float, both: bool) -> float:
    """Return the square of the slope that two differences make."""
    if both:
        return max(before * before, after * after)
    return (before + after) * (before + after) / 4


@_compiled
def _advance(phi: Array, moves: Array, dt: float, per_distance: Array, both: bool, moved: Array, flipped: Array) -> int:
    """Write the next level set to ``moved``, clear ``moves`` where no slope is known, and list what changed sides.

    Returns:
        How many pixels did, which may be more than ``flipped`` has place for.
    """
    images, depth, height, width = phi.shape
    found = 0
    for image in range(images):
        for z in range(depth):
            for y in range(height):
                for x in range(width):
                    if moves[image, z, y, x]:
                        b0, a0, b1, a1, b2, a2 = _differences(phi[image], z, y, x, per_distance)
                        norm = math.sqrt(_square(b0, a0, both) + _square(b1, a1, both) + _square(b2, a2, both))
                        if not norm < math.inf:
                            moves[image, z, y, x] = False
                            continue
                        moved[image, z, y, x] += dt * norm
                        if (moved[image, z, y, x] > 0) != (phi[image, z, y, x] > 0):
                            if found < len(flipped):
                                flipped[found] = image, z, y, x
                            found += 1
    return found


@_compiled
def _shares(before: float, after: float, both: bool) -> tuple[float, float]:
    """Return half of the derivatives of the squared slope by its two differences."""
    if not both:
        return (before + after) / 4, (before + after) / 4
    if abs(before) == abs(after):
        return before / 2, after / 2
    return (before, 0 * after) if abs(before) > abs(after) else (0 * before, after)


@_compiled
def _retreat(phi: Array, moves: Array, dt: float, per_distance: Array, both: bool, grad: Array, total: Array) -> None:
    images, depth, height, width = phi.shape
    for image in range(images):
        for z in range(depth):
            for y in range(height):
                for x in range(width):
                    if not moves[image, z, y, x]:
                        continue
                    b0, a0, b1, a1, b2, a2 = _differences(phi[image], z, y, x, per_distance)
                    norm = math.sqrt(_square(b0, a0, both) + _square(b1, a1, both) + _square(b2, a2, both))
                    if norm > 0:
                        weight = dt * grad[image, z, y, x] / norm
                        b0, a0 = _shares(b0, a0, both)
                        b1, a1 = _shares(b1, a1, both)
                        b2, a2 = _shares(b2, a2, both)
                        w0, w1, w2 = weight * per_distance[0], weight * per_distance[1], weight * per_distance[2]
                        total[image, z, y, x] += w0 * (b0 - a0) + w1 * (b1 - a1) + w2 * (b2 - a2)
                        total[image, max(z - 1, 0), y, x] -= w0 * b0
                        total[image, min(z + 1, depth - 1), y, x] += w0 * a0
                        total[image, z, max(y - 1, 0), x] -= w1 * b1
                        total[image, z, min(y + 1, height - 1), x] += w1 * a1
                        total[image, z, y, max(x - 1, 0)] -= w2 * b2
                        total[image, z, y, min(x + 1, width - 1)] += w2 * a2
