# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

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
    """Return the movement of all steps, the logits stored for the backward pass, and where each step moved."""
    start, u = u, u.clone(memory_format=torch.contiguous_format)
    phi = log_odds(u, groups).clone(memory_format=torch.contiguous_format)
    moves = torch.zeros(steps, *phi.shape, dtype=torch.bool)
    kept = u.new_empty(((steps - 1) // kept_every, *u.shape))
    balls, table_of_band = [_chord_table(radius, spacing) for radius in radii], _chord_table(band, spacing)
    flipped = np.empty((math.ceil(phi.numel() * _MANY), 4), np.int64)
    counts = _count(phi, radii, spacing)
    halves = np.array([ball_size(radius, spacing) // 2 for radius in radii], counts.dtype)
    bits, settings = np.array(groups), _settings(dt, u.dtype, spacing, scheme)
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
    bits, settings = np.array(groups), _settings(dt, u.dtype, spacing, scheme)
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


def _settings(dt: float, dtype: torch.dtype, spacing: Sequence[float], scheme: str) -> tuple[Any, Array, bool]:
    """Return the time step, the factors from differences to slopes (central ones are half a sum), and the scheme."""
    share = 1.0 if scheme == "both" else 0.5
    per_distance = torch.tensor([0.0] * (3 - len(spacing)) + [share / h for h in spacing], dtype=dtype).numpy()
    return per_distance.dtype.type(dt), per_distance, scheme == "both"


def _chord_table(radius: float, spacing: Sequence[float]) -> Array:
    """Return the chords of a ball, short ones first: offsets along depth and height, and the pixels to each side."""
    missing = (0,) * (3 - len(spacing))
    by_reach = sorted(chords(radius, spacing), key=lambda chord: chord[1])
    return np.array([[*missing, *offsets, reach] for offsets, reach in by_reach])


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile at the first call, and cache the result on disk if a folder can be written to."""
    try:
        return numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:  # neither this folder nor the user's can be written to
        return numba.njit(nogil=True, error_model="numpy")(function)


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
    """Mark the band around the concave pixels of one row; each chord of the band begins with the one before."""
    depth, height, width = found.shape
    spread, reached = is_concave.copy(), 0
    for chord in range(len(band)):
        zz, yy, reach = z + band[chord, 0], y + band[chord, 1], band[chord, 2]
        for shift in range(reached + 1, min(reach + 1, width)):
            to_right, to_left = spread[shift:], spread[: width - shift]
            for x in range(width - shift):
                to_right[x] |= is_concave[x]
            from_right = is_concave[shift:]
            for x in range(width - shift):
                to_left[x] |= from_right[x]
        reached = reach
        if 0 <= zz < depth and 0 <= yy < height:
            target = found[zz, yy]
            for x in range(width):
                target[x] |= spread[x]


@_compiled
def _count_again(phi: Array, flipped: Array, ball: Array, counts: Array) -> None:
    """Correct the counts of all balls that hold a pixel which joined or left the region."""
    _, depth, height, width = phi.shape
    for image, z, y, x in flipped:
        change = 1 if phi[image, z, y, x] > 0 else -1
        for chord in range(len(ball)):
            zz, yy, reach = z + ball[chord, 0], y + ball[chord, 1], ball[chord, 2]
            if 0 <= zz < depth and 0 <= yy < height:
                chord_counts = counts[image, zz, yy, max(x - reach, 0) : min(x + reach + 1, width)]
                for i in range(len(chord_counts)):
                    chord_counts[i] += change


@_compiled
def _is_any_set(row: Array) -> bool:
    count = 0
    for x in range(len(row)):
        count += row[x]
    return count > 0


@_compiled
def _add_squares(before: Array, here: Array, after: Array, per_distance: float, both: bool, total: Array) -> None:
    """Add the squared slopes along one axis to ``total``."""
    if both:
        for i in range(len(total)):
            left, right = (here[i] - before[i]) * per_distance, (after[i] - here[i]) * per_distance
            left, right = left * left, right * right
            total[i] += (right if left <= right else left) + (right - right)  # NaN if one of them is
    else:
        for i in range(len(total)):
            slope = (here[i] - before[i]) * per_distance + (after[i] - here[i]) * per_distance
            total[i] += slope * slope


@_compiled
def _measure(phi: Array, z: int, y: int, per_distance: Array, both: bool, padded: Array, norms: Array) -> None:
    """Write the slopes of a row to ``norms``, and the row with a neighbor on each side to ``padded``."""
    depth, height, width = phi.shape
    here = phi[z, y]
    padded[0], padded[width + 1] = here[0], here[-1]
    padded[1:-1] = here
    norms[:] = 0
    if depth > 1:
        _add_squares(phi[max(z - 1, 0), y], here, phi[min(z + 1, depth - 1), y], per_distance[0], both, norms)
    _add_squares(phi[z, max(y - 1, 0)], here, phi[z, min(y + 1, height - 1)], per_distance[1], both, norms)
    _add_squares(padded[:-2], here, padded[2:], per_distance[2], both, norms)
    for x in range(width):
        norms[x] = math.sqrt(norms[x])


@_compiled
def _advance(phi: Array, moves: Array, groups: Array, dt: float, per_distance: Array, both: bool, u: Array) -> None:
    """Add the motion of each level set to the channels of its group; clear ``moves`` where no slope is known."""
    images, regions, depth, height, width = phi.shape
    padded, norms = np.empty(width + 2, u.dtype), np.empty(width, u.dtype)
    for image, region, z, y in np.ndindex(images, regions, depth, height):
        move = moves[image, region, z, y]
        if not _is_any_set(move):
            continue
        _measure(phi[image, region], z, y, per_distance, both, padded, norms)
        for x in range(width):
            move[x] &= norms[x] < math.inf
        for k in range(u.shape[1]):
            if groups[region] >> k & 1:
                row = u[image, k, z, y]
                for x in range(width):
                    row[x] = row[x] + dt * norms[x] if move[x] else row[x]


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
def _share(
    before: Array, here: Array, after: Array, per_distance: float, both: bool, weights: Array, left: Array, right: Array
) -> None:
    """Write the derivatives by the differences to the pixel before and after to ``left`` and ``right``."""
    nothing, half, whole = weights.dtype.type(0), weights.dtype.type(0.5), weights.dtype.type(1)
    for i in range(len(weights)):
        to_left, to_right = (here[i] - before[i]) * per_distance, (after[i] - here[i]) * per_distance
        if both:
            distance = abs(to_left) - abs(to_right)
            to_left *= whole if distance > 0 else half if distance == 0 else nothing
            to_right *= whole if distance < 0 else half if distance == 0 else nothing
        else:
            to_left = to_right = to_left + to_right
        weight = weights[i] * per_distance
        left[i], right[i] = to_left * weight if weight != 0 else weight, to_right * weight if weight != 0 else weight


@_compiled
def _retreat(
    phi: Array, moves: Array, groups: Array, dt: float, per_distance: Array, both: bool, total: Array, flow: Array
) -> None:
    """Add the derivative of a step's motion by each level set, weighted by ``total``, to ``flow``."""
    images, regions, depth, height, width = phi.shape
    padded, norms, weights = np.empty(width + 2, phi.dtype), np.empty(width, phi.dtype), np.empty(width, phi.dtype)
    left, right = np.empty(width, phi.dtype), np.empty(width, phi.dtype)
    for image, region, z, y in np.ndindex(images, regions, depth, height):
        move = moves[image, region, z, y]
        if not _is_any_set(move):
            continue
        level_set, into = phi[image, region], flow[image, region]
        _measure(level_set, z, y, per_distance, both, padded, norms)
        weights[:] = 0
        for k in range(total.shape[1]):
            if groups[region] >> k & 1:
                row = total[image, k, z, y]
                for x in range(width):
                    weights[x] += row[x]
        for x in range(width):
            weights[x] = dt * weights[x] / norms[x] if move[x] & (norms[x] > 0) else dt * 0
        here, target = level_set[z, y], into[z, y]
        if depth > 1:
            below, above = max(z - 1, 0), min(z + 1, depth - 1)
            _share(level_set[below, y], here, level_set[above, y], per_distance[0], both, weights, left, right)
            _hand_on(left, right, into[below, y], target, into[above, y])
        below, above = max(y - 1, 0), min(y + 1, height - 1)
        _share(level_set[z, below], here, level_set[z, above], per_distance[1], both, weights, left, right)
        _hand_on(left, right, into[z, below], target, into[z, above])
        _share(padded[:-2], here, padded[2:], per_distance[2], both, weights, left, right)
        padded[:] = 0
        _hand_on(left, right, padded[:-2], padded[1:-1], padded[2:])
        for x in range(width):
            target[x] += padded[x + 1]
        target[0] += padded[0]
        target[-1] += padded[-1]


@_compiled
def _hand_on(left: Array, right: Array, before: Array, here: Array, after: Array) -> None:
    """Add the derivative by each difference to its two pixels."""
    for i in range(len(left)):
        before[i] -= left[i]
    for i in range(len(left)):
        here[i] += left[i] - right[i]
    for i in range(len(left)):
        after[i] += right[i]


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
