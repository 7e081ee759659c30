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
sides are counted anew, and slopes and log-odds are computed only where something moves. Arrays are ``(images, channels,
depth, height, width)``, or without channels; missing axes have length 1.
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
from monai_iels.operators.odds import log_odds

__all__ = ["march", "march_back"]

Array = NDArray[Any]

# If more than this share of the pixels changes sides in a step, all balls are counted again.
_MANY = 1 / 64


def march(
    u: Tensor,
    groups: Sequence[int],
    dt: float,
    steps: int,
    radii: Sequence[float],
    band: float,
    spacing: Sequence[float],
    scheme: str,
    kept_every: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return by how much all steps move, the logits kept for the backward pass, and where each step moved."""
    start, u = u, u.clone(memory_format=torch.contiguous_format)
    phi = log_odds(u, groups).clone(memory_format=torch.contiguous_format)
    moves = torch.zeros(steps, *phi.shape, dtype=torch.bool)
    kept = u.new_empty(((steps - 1) // kept_every, *u.shape))
    balls, table_of_band = [_chord_table(radius, spacing) for radius in radii], _chord_table(band, spacing)
    flipped = np.empty((math.ceil(phi.numel() * _MANY), 4), np.int64)
    counts = _count(phi, radii, spacing)
    halves = np.array([ball_size(radius, spacing) // 2 for radius in radii], counts.dtype)
    bits, settings = np.array(groups), (dt, _per_distance(u.dtype, spacing), scheme == "both")
    for step, move in enumerate(moves):
        if step and step % kept_every == 0:
            kept[step // kept_every - 1] = u
        _mark_moving(_images(phi), counts, halves, table_of_band, _images(move))
        _advance(_stacks(phi), _stacks(move), bits, *settings, _stacks(u))
        if step == steps - 1:
            break
        found = _follow(_stacks(u), _stacks(move), bits, _stacks(phi), flipped)
        if found > len(flipped):
            counts = _count(phi, radii, spacing)
        else:
            for count, ball in zip(counts, balls, strict=True):
                _count_again(_images(phi), flipped[:found], ball, count)
    return u.sub_(start).nan_to_num_(0, 0, 0), kept, moves


def march_back(
    u: Tensor,
    kept: Tensor,
    moves: Tensor,
    grad: Tensor,
    groups: Sequence[int],
    dt: float,
    spacing: Sequence[float],
    scheme: str,
    kept_every: int,
) -> Tensor:
    """Return the derivative by ``u`` of the sum of ``grad`` times the movement."""
    bits, settings = np.array(groups), (dt, _per_distance(u.dtype, spacing), scheme == "both")
    total = grad.clone(memory_format=torch.contiguous_format)
    states = u.new_empty(kept_every, *u.shape)
    is_alone = u.shape[1] == 1  # then the channel is the level set
    phi = states if is_alone else u.new_empty(kept_every, *moves.shape[1:])
    flow, nowhere = torch.zeros_like(phi[0]), np.empty((0, 4), np.int64)
    for start, segment in reversed(list(zip([u, *kept], moves.split(kept_every), strict=True))):
        states[0] = start
        phi[0] = log_odds(start, groups)
        for step in range(1, len(segment)):
            states[step], phi[step] = states[step - 1], phi[step - 1]
            move = _stacks(segment[step - 1])
            _advance(_stacks(phi[step - 1]), move, bits, *settings, _stacks(states[step]))
            if not is_alone:
                _follow(_stacks(states[step]), move, bits, _stacks(phi[step]), nowhere)
        for step in reversed(range(len(segment))):
            move = _stacks(segment[step])
            if is_alone:
                flow.copy_(total)
                _retreat(_stacks(phi[step]), move, bits, *settings, _stacks(flow), _stacks(total))
            else:
                _retreat(_stacks(phi[step]), move, bits, *settings, _stacks(total), _stacks(flow))
                _pull(_stacks(states[step]), bits, _stacks(flow), _stacks(total))
    return total.sub_(grad)


def _count(phi: Tensor, radii: Sequence[float], spacing: Sequence[float]) -> Array:
    """Count the pixels of the region in the balls of each radius."""
    counts = [count_within(phi > 0, radius, spacing) for radius in radii]
    widest = max((count.dtype for count in counts), key=lambda dtype: dtype.itemsize)
    return np.stack([_images(count.to(widest).contiguous()) for count in counts])


def _stacks(x: Tensor) -> Array:
    """Return a contiguous tensor as an array of images with channels."""
    spatial = x.shape[2:]
    return x.detach().view(*x.shape[:2], *(1,) * (3 - len(spatial)), *spatial).numpy()


def _images(x: Tensor) -> Array:
    """Return a contiguous tensor as an array of images, one for each channel."""
    return _stacks(x.flatten(0, 1)[None])[0]


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
        return max(before * before, after * after) + 0 * (before + after)  # NaN if one of them is
    return (before + after) * (before + after) / 4


@_compiled
def _advance(phi: Array, moves: Array, groups: Array, dt: float, per_distance: Array, both: bool, u: Array) -> None:
    """Add the motion of each level set to the channels of its group; clear ``moves`` where no slope is known."""
    images, regions, depth, height, width = phi.shape
    places, norms = np.empty(width, np.int64), np.empty(width, u.dtype)
    for image in range(images):
        for region in range(regions):
            level_set = phi[image, region]
            for z in range(depth):
                for y in range(height):
                    count = _find(moves[image, region : region + 1, z, y], places)
                    for i in range(count):
                        b0, a0, b1, a1, b2, a2 = _differences(level_set, z, y, places[i], per_distance)
                        norms[i] = math.sqrt(_square(b0, a0, both) + _square(b1, a1, both) + _square(b2, a2, both))
                        if not norms[i] < math.inf:
                            moves[image, region, z, y, places[i]] = False
                            norms[i] = 0
                    for k in range(u.shape[1]):
                        if groups[region] >> k & 1:
                            row = u[image, k, z, y]
                            for i in range(count):
                                row[places[i]] += dt * norms[i]


@_compiled
def _follow(u: Array, where: Array, groups: Array, phi: Array, flipped: Array) -> int:
    """Compute the level sets anew where one of the channels of ``where`` is set, and list what changed sides.

    Returns:
        How many pixels did, which may be more than ``flipped`` has place for.
    """
    images, regions, depth, height, width = phi.shape
    places, logits = np.empty(width, np.int64), np.empty((u.shape[1], width), u.dtype)
    odds, other = np.empty(width, u.dtype), np.empty(width, u.dtype)
    found = 0
    for image in range(images):
        for z in range(depth):
            for y in range(height):
                count = _find(where[image, :, z, y], places)
                _gather(u[image, :, z, y], places[:count], logits)
                for region in range(regions):
                    _log_sum(logits, groups[region], odds[:count])
                    _log_sum(logits, ~groups[region], other[:count])
                    row = phi[image, region, z, y]
                    for i in range(count):
                        was_inside = row[places[i]] > 0
                        row[places[i]] = odds[i] - other[i]
                        if (row[places[i]] > 0) != was_inside:
                            if found < len(flipped):
                                flipped[found] = image * regions + region, z, y, places[i]
                            found += 1
    return found


@_compiled
def _find(where: Array, places: Array) -> int:
    """List the places in a row where one of the channels is not 0, and return how many there are."""
    channels, width = where.shape
    count = 0
    for x in range(width):
        places[count] = x
        is_set = where[0, x] != 0
        for k in range(1, channels):
            is_set |= where[k, x] != 0
        count += is_set
    return count


@_compiled
def _gather(rows: Array, places: Array, gathered: Array) -> None:
    for k in range(len(rows)):
        for i in range(len(places)):
            gathered[k, i] = rows[k, places[i]]


@_compiled
def _log_sum(logits: Array, group: int, total: Array) -> None:
    """Write the logarithm of the summed exponentials of a group to ``total``, or 0 if it has no channel."""
    is_first = True
    total[:] = 0
    for k in range(len(logits)):
        if group >> k & 1:
            for i in range(len(total)):
                if is_first:
                    total[i] = logits[k, i]
                else:
                    distance = abs(total[i] - logits[k, i])
                    total[i] = max(total[i], logits[k, i])
                    if distance < math.inf:
                        total[i] += math.log1p(math.exp(-distance))
            is_first = False


@_compiled
def _shares(before: float, after: float, both: bool) -> tuple[float, float]:
    """Return half of the derivatives of the squared slope by its two differences."""
    if not both:
        return (before + after) / 4, (before + after) / 4
    if abs(before) == abs(after):
        return before / 2, after / 2
    return (before, 0 * after) if abs(before) > abs(after) else (0 * before, after)


@_compiled
def _retreat(
    phi: Array, moves: Array, groups: Array, dt: float, per_distance: Array, both: bool, total: Array, flow: Array
) -> None:
    """Add the derivative of a step's motion by each level set, weighted by ``total``, to ``flow``."""
    images, regions, depth, height, width = phi.shape
    places, weights = np.empty(width, np.int64), np.empty(width, total.dtype)
    for image in range(images):
        for region in range(regions):
            level_set, into = phi[image, region], flow[image, region]
            for z in range(depth):
                for y in range(height):
                    count = _find(moves[image, region : region + 1, z, y], places)
                    weights[:count] = 0
                    for k in range(total.shape[1]):
                        if groups[region] >> k & 1:
                            row = total[image, k, z, y]
                            for i in range(count):
                                weights[i] += dt * row[places[i]]
                    for i in range(count):
                        x = places[i]
                        b0, a0, b1, a1, b2, a2 = _differences(level_set, z, y, x, per_distance)
                        norm = math.sqrt(_square(b0, a0, both) + _square(b1, a1, both) + _square(b2, a2, both))
                        if norm > 0:
                            weight = weights[i] / norm
                            b0, a0 = _shares(b0, a0, both)
                            b1, a1 = _shares(b1, a1, both)
                            b2, a2 = _shares(b2, a2, both)
                            w0, w1, w2 = weight * per_distance[0], weight * per_distance[1], weight * per_distance[2]
                            into[z, y, x] += w0 * (b0 - a0) + w1 * (b1 - a1) + w2 * (b2 - a2)
                            into[max(z - 1, 0), y, x] -= w0 * b0
                            into[min(z + 1, depth - 1), y, x] += w0 * a0
                            into[z, max(y - 1, 0), x] -= w1 * b1
                            into[z, min(y + 1, height - 1), x] += w1 * a1
                            into[z, y, max(x - 1, 0)] -= w2 * b2
                            into[z, y, min(x + 1, width - 1)] += w2 * a2


@_compiled
def _pull(u: Array, groups: Array, flow: Array, total: Array) -> None:
    """Add the derivative by the logits of the level sets, weighted by ``flow``, to ``total``, and clear ``flow``."""
    images, regions, depth, height, width = flow.shape
    places, logits = np.empty(width, np.int64), np.empty((u.shape[1], width), u.dtype)
    inside, outside = np.empty(width, u.dtype), np.empty(width, u.dtype)
    for image in range(images):
        for z in range(depth):
            for y in range(height):
                count = _find(flow[image, :, z, y], places)
                _gather(u[image, :, z, y], places[:count], logits)
                for region in range(regions):
                    weights, group = flow[image, region, z, y], groups[region]
                    _log_sum(logits, group, inside[:count])
                    _log_sum(logits, ~group, outside[:count])
                    for k in range(len(logits)):
                        row, log_sum = total[image, k, z, y], inside if group >> k & 1 else outside
                        for i in range(count):
                            weight = weights[places[i]]
                            if weight != 0:
                                share = math.exp(logits[k, i] - log_sum[i])
                                row[places[i]] += weight * share if group >> k & 1 else -weight * share
                    weights[:] = 0
