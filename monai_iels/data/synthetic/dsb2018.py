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

"""Draw synthetic microscopy of cell nuclei that resembles stage 1 of the 2018 Data Science Bowl."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from monai_iels.data.synthetic.microscopy import (
    KINDS,
    Kind,
    Nucleus,
    Range,
    Window,
    broad_noise,
    window_around,
    window_position,
    window_shape,
)
from monai_iels.data.synthetic.shapes import blob, smooth_noise, soft_step

__all__ = ["draw_dsb2018"]

_MIN_NUCLEI = 3
_MIN_AREA = 12  # a visible scrap of a covered nucleus below this many pixels is not annotated
_FULL_SIZE = 256  # nuclei have their original size in images with at least this many rows and columns
_MAX_SHRINK = 0.5
_PLACING_TRIES = 12


@dataclass(frozen=True)
class _Layout:
    """Where nuclei may lie and how they are turned: fields over the image and its common direction."""

    density: np.ndarray
    angles: np.ndarray
    direction: float


def _choose_kind(rng: np.random.Generator) -> Kind:
    """Draw a kind with the proportions of the original data set."""
    weights = np.array([kind.weight for kind in KINDS])
    return KINDS[int(rng.choice(len(KINDS), p=weights / weights.sum()))]


def _log_uniform(rng: np.random.Generator, bounds: Range) -> float:
    """Draw a number whose logarithm is uniform between ``bounds``."""
    return float(np.exp(rng.uniform(*np.log(bounds))))


def _plan_layout(rng: np.random.Generator, kind: Kind, shape: tuple[int, int], radius: float) -> _Layout:
    """Draw the density and the directions of the nuclei."""
    direction = rng.uniform(0.0, np.pi)
    relief = broad_noise(rng, shape, max(6.0, 0.13 * max(shape)))
    angles = direction + (1.0 - kind.alignment) * rng.uniform(-1.5, 1.5, shape)
    if rng.random() < kind.rows:
        slope = np.gradient(relief)
        # The level lines of the relief are the rows; nuclei stand across them.
        angles = np.arctan2(slope[1], slope[0]) + rng.normal(0.0, 0.2, shape)
        relief = 3.0 * np.exp(-((relief / (0.6 * radius * np.hypot(*slope).mean() + 1e-6)) ** 2)) - 1.5
    return _Layout(np.exp(kind.clumping * relief), angles, direction)


def _draw_radii(rng: np.random.Generator, kind: Kind, radius: float) -> Range:
    """Draw the half axes of a nucleus, the longer one first."""
    size = radius * np.exp(0.5 * kind.area_spread * rng.standard_normal())
    if rng.random() < kind.fragments:
        size = max(2.2, size * rng.uniform(0.3, 0.65))
    stretch = np.exp(0.5 * min(1.2, abs(rng.normal(kind.elongation, 0.5 * kind.elongation))))
    return float(size * stretch), float(size / stretch)


def _unit_vector(angle: float) -> np.ndarray:
    """Return the row and column of the point at ``angle`` on the unit circle."""
    return np.array([np.cos(angle), np.sin(angle)])


def _scatter(rng: np.random.Generator, kind: Kind, layout: _Layout, radius: float, count: int) -> list[Nucleus]:
    """Place up to ``count`` nuclei by the density of ``layout``; they touch but hardly cover each other."""
    shape = layout.density.shape
    chances = np.cumsum(layout.density)
    nuclei: list[Nucleus] = []
    centers = np.empty((count, 2))
    sizes = np.empty(count)
    for _ in range(count * _PLACING_TRIES):
        placed = len(nuclei)
        if placed == count:
            break
        radii = _draw_radii(rng, kind, radius)
        size = float(np.sqrt(radii[0] * radii[1]))
        if placed and rng.random() < kind.pairing:
            partner = int(rng.integers(placed))
            gap = (1.0 - kind.overlap) * (sizes[partner] + size) * rng.uniform(1.0, 1.15)
            center = centers[partner] + gap * _unit_vector(rng.uniform(0.0, 2 * np.pi))
        else:
            pixel = np.searchsorted(chances, rng.uniform(0.0, chances[-1]))
            center = np.array(divmod(int(pixel), shape[1])) + rng.uniform(-0.8 * size, 0.8 * size, 2)
        if np.any(center < -0.7 * size) or np.any(center > np.array(shape) + 0.7 * size):
            continue
        if np.any(np.hypot(*(centers[:placed] - center).T) < (1.0 - kind.overlap) * (sizes[:placed] + size)):
            continue
        centers[placed], sizes[placed] = center, size
        nuclei.append(_make_nucleus(rng, kind, layout, center, radii))
    return nuclei


def _make_nucleus(rng: np.random.Generator, kind: Kind, layout: _Layout, center: np.ndarray, radii: Range) -> Nucleus:
    """Return a nucleus at ``center`` that is turned by the layout, with a random strength."""
    pixel = tuple(np.clip(center.astype(int), 0, np.subtract(layout.angles.shape, 1)))
    strength = float(np.exp(kind.strength_spread * rng.standard_normal()))
    if rng.random() < kind.flashes:
        strength *= rng.uniform(1.7, 3.0)
        radii = (0.8 * radii[0], 0.7 * radii[1])
    softness = float(np.exp(kind.defocus * abs(rng.standard_normal())))
    return Nucleus(center, radii, float(layout.angles[pixel]), strength, softness)


def _smooth_maximum(first: np.ndarray, second: np.ndarray, width: float) -> np.ndarray:
    """Return the maximum of two fields with the crease rounded over about ``width``."""
    return width * np.logaddexp(first / width, second / width)


def _outline(rng: np.random.Generator, kind: Kind, nucleus: Nucleus, window: Window) -> np.ndarray:
    """Return the signed distance to the outline of ``nucleus`` in ``window``, positive inside."""
    extent, center = window_shape(window), window_position(nucleus.center, window)
    field = blob(rng, extent, center, nucleus.radii, nucleus.angle, kind.roughness)
    if rng.random() < kind.beans:
        # The second axis of the ellipse points to the long side, where a bean has its dent.
        side = _unit_vector(nucleus.angle + np.pi / 2) * rng.choice([-1.0, 1.0])
        dent = blob(rng, extent, center + rng.uniform(1.3, 1.6) * nucleus.radii[1] * side, (0.65 * nucleus.radius,) * 2)
        field = -_smooth_maximum(-field, dent, 0.15 * nucleus.radius)
    return field


def _spots(rng: np.random.Generator, kind: Kind, nucleus: Nucleus, window: Window) -> np.ndarray:
    """Return the nucleoli or bright bodies of ``nucleus`` as a sum of small bumps."""
    rows, columns = (np.arange(n, dtype=float) for n in window_shape(window))
    bumps = np.zeros(window_shape(window))
    for _ in range(rng.poisson(kind.spots)):
        row, column = window_position(nucleus.center, window) + rng.uniform(-0.55, 0.55, 2) * nucleus.radii[1]
        width = nucleus.radius * rng.uniform(0.1, 0.22)
        bump = np.exp(-(((rows - row) / width) ** 2) / 2)[:, None] * np.exp(-(((columns - column) / width) ** 2) / 2)
        bumps += rng.uniform(0.5, 1.5) * bump
    return bumps


class _Canvas:
    """Stain, instances and the depth by which every pixel lies inside its instance."""

    def __init__(self, shape: tuple[int, int], chromatin: np.ndarray) -> None:
        self.shape = shape
        self.chromatin = chromatin
        self.stain = np.zeros(shape)
        self.depth = np.zeros(shape)
        self.instances = np.zeros(shape, dtype=np.int32)

    def paint(self, rng: np.random.Generator, kind: Kind, nucleus: Nucleus, number: int) -> None:
        """Paint ``nucleus``; a pixel in several nuclei belongs to the one it lies deepest in."""
        window = window_around(nucleus.center, 1.35 * max(nucleus.radii) + 2.0, self.shape)
        if 0 in window_shape(window):
            return
        field = _outline(rng, kind, nucleus, window)
        inner = np.clip(field / min(nucleus.radii), 0.0, 1.0)
        tone = 1.0 + kind.dome * (np.sqrt(inner) - 0.6) + kind.grain * self.chromatin[window]
        tone += kind.spot_strength * _spots(rng, kind, nucleus, window)
        amount = nucleus.strength * soft_step(field, 1.5 * nucleus.softness) * tone.clip(0.1)
        below = self.stain[window]
        # Stains add up where nuclei lie over each other, though less than fully.
        self.stain[window] = np.maximum(below, amount) + 0.3 * np.minimum(below, amount)
        front = field > self.depth[window]
        self.depth[window][front] = field[front]
        self.instances[window][front] = number


def _number_instances(instances: np.ndarray) -> np.ndarray:
    """Return ``instances`` without scraps, numbered from 1 without gaps."""
    areas = np.bincount(instances.ravel())
    kept = areas >= _MIN_AREA
    kept[0] = False
    return np.where(kept, np.cumsum(kept), 0)[instances].astype(np.int32)


def _paint_nuclei(
    rng: np.random.Generator, kind: Kind, layout: _Layout, nuclei: Sequence[Nucleus], radius: float
) -> _Canvas:
    """Paint all nuclei, and more in the largest gaps if fewer than the least number are visible."""
    shape = (layout.density.shape[0], layout.density.shape[1])
    canvas = _Canvas(shape, smooth_noise(rng, shape, float(np.clip(0.08 * radius, 0.8, 1.6))))
    for number, nucleus in enumerate(nuclei, start=1):
        canvas.paint(rng, kind, nucleus, number)
    number = len(nuclei)
    while _number_instances(canvas.instances).max() < _MIN_NUCLEI:
        number += 1
        room = ndimage.distance_transform_edt(np.pad(canvas.instances == 0, 1))[1:-1, 1:-1]
        center = np.array(np.unravel_index(room.argmax(), shape), dtype=float)
        size = float(np.clip(0.7 * room.max(), 3.0, radius))
        canvas.paint(rng, kind, _make_nucleus(rng, kind, layout, center, (size, 0.9 * size)), number)
    return canvas


def _draw_ghosts(rng: np.random.Generator, kind: Kind, shape: tuple[int, int], radius: float, count: int) -> np.ndarray:
    """Return the stain of nuclei far out of focus."""
    stain = np.zeros(shape)
    for _ in range(rng.poisson(kind.ghosts * count)):
        center, radii = rng.uniform(0.0, shape), _draw_radii(rng, kind, 1.1 * radius)
        window = window_around(center, 2.2 * max(radii), shape)
        field = blob(rng, window_shape(window), window_position(center, window), radii, rng.uniform(0.0, np.pi))
        stain[window] += kind.ghost_strength * rng.uniform(0.3, 1.0) * soft_step(field, 0.9 * radius)
    return stain


def _draw_debris(rng: np.random.Generator, kind: Kind, shape: tuple[int, int], count: int) -> np.ndarray:
    """Return the stain of specks, which lie in small swarms."""
    stain = np.zeros(shape)
    for _ in range(rng.poisson(kind.debris * count)):
        swarm = rng.uniform(0.0, shape) + rng.normal(0.0, 4.0, (rng.integers(1, 7), 2))
        for center in swarm:
            window = window_around(center, 4.0, shape)
            field = blob(rng, window_shape(window), window_position(center, window), rng.uniform(0.5, 1.8, 2), 0.0, 0.3)
            stain[window] += rng.uniform(0.2, 0.9) * soft_step(field, 1.0)
    return stain


def _develop(
    rng: np.random.Generator, kind: Kind, stain: np.ndarray, ghosts: np.ndarray, scenery: np.ndarray
) -> np.ndarray:
    """Turn stain and scenery into a picture: optics, colors, light and noise of the camera."""
    sharp = ndimage.gaussian_filter(stain, rng.uniform(*kind.blur))
    haze = kind.haze * rng.uniform(0.3, 1.7) * ndimage.gaussian_filter(stain, 7.0, truncate=2.5)
    amount = (sharp + haze + ghosts * (1.0 - sharp).clip(0.0))[..., None]
    stops = np.linspace(0.0, 1.0, len(kind.ramp))
    ground = np.stack([np.interp(scenery, stops, levels) for levels in zip(*kind.ramp, strict=True)], axis=-1)
    ground *= np.exp(kind.ground_spread * rng.standard_normal())
    contrast = np.exp(kind.contrast_spread * rng.standard_normal())
    amount = kind.limit * np.tanh(contrast * amount / kind.limit)
    # Beyond full strength a nucleus hides its ground, so the excess no longer depends on it.
    nucleus, base = np.array(kind.nucleus), ground.mean(axis=(0, 1))
    picture = ground + np.minimum(amount, 1.0) * (nucleus - ground) + np.maximum(amount - 1.0, 0.0) * (nucleus - base)
    light = 1.0 + rng.uniform(*kind.shading) * broad_noise(rng, stain.shape, 0.4 * max(stain.shape)).clip(-2, 2)
    picture *= light.clip(0.3)[..., None]
    grain = rng.uniform(*kind.noise) * rng.standard_normal(stain.shape)[..., None]
    return np.clip(np.rint(picture + grain), 0, 255).astype(np.uint8)


def draw_dsb2018(rng: np.random.Generator, shape: tuple[int, int] = (256, 256)) -> tuple[np.ndarray, np.ndarray]:
    """Draw a microscopy image of cell nuclei and its instances.

    The kinds of the original data set occur with their proportions: fluorescence of several magnifications and
    densities, stained histology and bright field.

    Args:
        rng: draws everything; the same state gives the same image.
        shape: height and width of the image. Nuclei shrink moderately in images of less than 256 pixels.

    Returns:
        The RGB image (height, width, 3) as uint8 and the instances (height, width) as int32: 0 is background,
        1 to n are the nuclei.
    """
    kind = _choose_kind(rng)
    zoom = float(np.clip(np.sqrt(min(shape) / _FULL_SIZE), _MAX_SHRINK, 1.0))
    radius = zoom * np.sqrt(_log_uniform(rng, kind.area) / np.pi)
    fraction = _log_uniform(rng, kind.fraction)
    count = max(_MIN_NUCLEI, round(fraction * shape[0] * shape[1] / (np.pi * radius**2)))

    layout = _plan_layout(rng, kind, shape, radius)
    nuclei = _scatter(rng, kind, layout, radius, count)
    canvas = _paint_nuclei(rng, kind, layout, nuclei, radius)
    stain = canvas.stain + _draw_debris(rng, kind, shape, count)
    ghosts = _draw_ghosts(rng, kind, shape, radius, count)
    scenery = kind.scenery(rng, shape, layout.direction, nuclei)
    return _develop(rng, kind, stain, ghosts, scenery), _number_instances(canvas.instances)
