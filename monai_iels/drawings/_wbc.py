# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Micrographs of stained white blood cells, modeled on the two stains of the public WBC data set."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy import ndimage

from monai_iels.drawings._shapes import Array, Canvas, Rng, blend, polar, ridge, soft_step, to_bytes

# All lengths in this file are in pixels of an image of this size.
_REFERENCE_SIZE = 120.0

# Annotators draw their outline a little outside of where half of the stain is reached.
_MARGIN = 1.2

# Mean RGB color of background, cytoplasm and nucleus and its deviation between pictures, for both stains.
_YELLOW = (((255, 249, 156), (3, 9, 18)), ((186, 140, 112), (24, 31, 18)), ((106, 26, 85), (28, 22, 14)))
_WASHED_OUT = (((257, 257, 258), (2, 4, 3)), ((190, 126, 168), (21, 23, 20)), ((86, 12, 118), (17, 9, 11)))


class _Kind(NamedTuple):
    """A kind of white cell; lengths of the nucleus are relative to the radius of the cell."""

    odds: tuple[float, float]  # in the yellow and in the washed-out stain
    radius: tuple[float, float]
    tint: tuple[float, float, float]  # of the cytoplasm
    lightness: float  # of the nucleus, in deviations of its color
    lobes: tuple[int, int]  # fewest and most
    size: tuple[float, float]  # radius of a single lobe; several lobes are smaller
    bridge: tuple[float, float] = (0.0, 0.0)  # half width of the bridges between lobes; not positive means none
    turn: float = 0.0  # largest angle between neighboring lobes in radians


_KINDS = (
    # Lymphocyte, monocyte, band cell, segmented granulocyte, immature cell.
    _Kind((0.24, 0.04), (23, 34), (-10, 4, 10), 0.0, (1, 1), (0.72, 0.95)),
    _Kind((0.19, 0.08), (32, 43), (-10, 6, 10), 0.5, (3, 4), (0.62, 0.8), (0.25, 0.4), 0.9),
    _Kind((0.21, 0.28), (34, 43), (5, -4, -4), 0.0, (3, 5), (0.4, 0.57), (0.17, 0.26), 1.1),
    _Kind((0.30, 0.56), (34, 44), (8, 0, -4), -0.3, (2, 5), (0.42, 0.61), (-0.2, 0.14), 1.65),
    _Kind((0.06, 0.04), (38, 48), (0, 0, 0), 1.6, (1, 1), (0.68, 0.84)),
)


def draw_wbc(rng: Rng, shape: tuple[int, int] = (120, 120)) -> tuple[Array, Array]:
    """Draw one stained white blood cell among faint red cells and debris.

    Args:
        rng: draws everything that varies; the same state gives the same picture.
        shape: height and width in pixels.

    Returns:
        The RGB picture (H, W, 3) and its label (H, W) with 0 background, 1 cytoplasm and 2 nucleus, both ``uint8``.
    """
    canvas = Canvas(rng, shape, min(shape) / _REFERENCE_SIZE)
    washed_out = bool(rng.random() < 1 / 3)
    kind = _KINDS[rng.choice(len(_KINDS), p=[kind.odds[washed_out] for kind in _KINDS])]
    ground, plasma, chromatin = _draw_colors(rng, kind, _WASHED_OUT if washed_out else _YELLOW)
    center = np.array(shape) / canvas.unit / 2 + rng.uniform(-5, 5, 2)
    radius, stretch = rng.uniform(*kind.radius), rng.uniform(0.94, 1.06)
    radii = (radius * stretch, radius / stretch)
    cell = canvas.blob(center, radii, rng.uniform(0, np.pi), 0.02 + rng.exponential(0.05))
    cell += rng.uniform(0.2, 0.7) * canvas.noise(2.2)
    # The nucleus never leaves its cell, and a sliver of cytoplasm always surrounds it.
    nucleus = np.minimum(_nucleus(canvas, kind, center, radius), cell - rng.uniform(1.5, 3.0))

    texture = rng.uniform(1, 6) * canvas.noise(30) + rng.uniform(0.5, 3.5) * canvas.noise(3)
    image = ground + np.multiply.outer(texture, (0.4, 1.0, 0.8))
    # The washed-out stain bleaches most red cells away.
    count = int(rng.integers(0, 4) if washed_out else rng.integers(2, 10))
    _paint_red_cells(canvas, image, ground, center, radius, count)
    _paint_debris(canvas, image, ground)
    _paint_cytoplasm(canvas, image, plasma, cell)
    _paint_nucleus(canvas, image, chromatin, nucleus)
    return _expose(canvas, image), (cell > 0).astype(np.uint8) + (nucleus > 0)


def _draw_colors(rng: Rng, kind: _Kind, stain: tuple) -> list[Array]:
    """Draw the colors of a picture: all three share its exposure, and each has a lightness and hue of its own."""
    exposure, depth = rng.standard_normal(2)
    colors = []
    for (mean, deviation), own in zip(stain, (0.3, 0.8, 0.8), strict=True):
        shift = (1 - own) * exposure + own * (0.8 * depth + 0.6 * rng.standard_normal())
        shift += 0.35 * rng.standard_normal(3)
        colors.append(mean + np.array(deviation) * np.clip(shift, -2.0, 2.0))
    colors[1] += kind.tint
    colors[2] = np.clip(colors[2] + kind.lightness * np.array(stain[2][1]), 8, 190)
    return colors


def _nucleus(canvas: Canvas, kind: _Kind, center: Array, radius: float) -> Array:
    """Return the nucleus as a signed distance: one round lobe near the wall, or a chain of lobes on an arc."""
    rng = canvas.rng
    count = kind.lobes[0] + rng.binomial(kind.lobes[1] - kind.lobes[0], 0.45)
    if count == 1:
        size, stretch = radius * rng.uniform(*kind.size), rng.uniform(0.9, 1.1)
        place = polar(center, rng.uniform(0.6, 1.0) * (radius - size), rng.uniform(0, 2 * np.pi))
        return canvas.blob(place, (size * stretch, size / stretch), rng.uniform(0, np.pi), 0.12)
    steps = rng.uniform(0.75, 1.0, count) * min(kind.turn * (1.5 if count == 2 else 1.0), 5.6 / count)
    angles = rng.uniform(0, 2 * np.pi) + np.cumsum(steps)
    places = [polar(center, radius * rng.uniform(0.36, 0.62), angle) for angle in angles]
    fields = []
    for place, angle in zip(places, angles, strict=True):
        size, stretch = radius * rng.uniform(*kind.size) / count**0.4, rng.uniform(0.85, 1.25)
        fields.append(canvas.blob(place, (size / stretch, size * stretch), angle + rng.normal(0, 0.4), 0.12))
    for start, end in pairwise(places):
        dy, dx = end - start
        width = radius * rng.uniform(*kind.bridge)
        if width > 0:
            fields.append(canvas.blob((start + end) / 2, (0.7 * np.hypot(dy, dx), width), np.arctan2(dx, dy), 0.0))
    # Their union, with its creases rounded off over about 1.5.
    return 1.5 * np.logaddexp.reduce(np.stack(fields) / 1.5, axis=0)


def _paint_red_cells(canvas: Canvas, image: Array, ground: Array, center: Array, radius: float, count: int) -> None:
    """Paint red cells in place: pale disks with a broken outline, at the picture's edge or against the white cell."""
    rng = canvas.rng
    # Outlines fade and break up where this field is low.
    gaps = soft_step(canvas.noise(5) + 0.5, 1.5) * (1 + 0.25 * canvas.noise(1.5))
    for _ in range(count):
        size = rng.uniform(14, 24)
        reach = radius + size * (rng.uniform(0.85, 1.0) if rng.random() < 0.35 else rng.uniform(1.0, 2.2))
        place = polar(center, reach, rng.uniform(0, 2 * np.pi))
        disk = canvas.blob(place, (size, size * rng.uniform(0.75, 1.0)), rng.uniform(0, np.pi), 0.12)
        color = ground * rng.normal((0.76, 0.60, 0.72), 0.05)
        blend(image, color, rng.uniform(0.15, 0.9) * ridge(disk, rng.uniform(1.2, 3.2)) * gaps)
        blend(image, ground * 0.94, rng.uniform(0.0, 0.7) * soft_step(disk, 3))


def _paint_debris(canvas: Canvas, image: Array, ground: Array) -> None:
    """Paint platelets, stain deposits and smears in place."""
    rng = canvas.rng
    for _ in range(rng.poisson(2.5)):
        place, size = rng.uniform(0, _REFERENCE_SIZE, 2), 1.5 + rng.exponential(2.0)
        speck = canvas.blob(place, (size, size * rng.uniform(0.4, 1.0)), rng.uniform(0, np.pi), 0.3)
        color = ground * rng.normal((0.62, 0.46, 0.66), 0.08)
        blend(image, color, rng.uniform(0.2, 1.0) * soft_step(speck, 2))
    # Only the peaks of the noise show, as smears of stain.
    smears = soft_step(canvas.noise(4) - rng.uniform(1.2, 2.6), 1.0)
    blend(image, ground * (0.95, 0.83, 0.9), rng.uniform(0.2, 0.9) * smears)


def _paint_cytoplasm(canvas: Canvas, image: Array, color: Array, cell: Array) -> None:
    """Paint the white cell's body in place: granules, a shaded side and a rim that may be dark or faint."""
    rng = canvas.rng
    granules = rng.uniform(4, 15) * canvas.noise(rng.uniform(1.0, 2.0))
    # Where the cell is thin it lets the background through, so its border may be faint.
    shading = rng.uniform(6, 24) * canvas.noise(8) + rng.uniform(-5, 45) * (soft_step(cell - 12, 14) - 0.5)
    body = color + np.multiply.outer(granules, (0.8, 1.0, 0.6)) + np.multiply.outer(shading, (1.0, 1.0, 0.5))
    blend(image, body, soft_step(cell - _MARGIN, rng.uniform(2.5, 7.0)))
    # One cell in ten is shrunken, with a nearly black rim.
    darkness = rng.uniform(0.7, 0.95) if rng.random() < 0.1 else rng.uniform(0.0, 0.6)
    uneven = soft_step(canvas.noise(12) + 0.5, 2.0)
    blend(image, color * (0.5, 0.6, 0.8), darkness * ridge(cell - 1.5, 1.8) * uneven)


def _paint_nucleus(canvas: Canvas, image: Array, color: Array, nucleus: Array) -> None:
    """Paint the nucleus in place: a dark bluish border, a redder heart and clumps of chromatin."""
    rng = canvas.rng
    heart = rng.uniform(10, 70) * (soft_step(nucleus - 5, 8) - 0.4)
    clumps = rng.uniform(2, 10) * canvas.noise(rng.uniform(1.3, 2.5)) + rng.uniform(4, 18) * canvas.noise(6)
    body = color + np.multiply.outer(heart, (1.0, 0.3, -0.1)) + np.multiply.outer(clumps, (0.8, 1.0, 0.5))
    blend(image, body, soft_step(nucleus - 0.5 * _MARGIN, rng.uniform(2.0, 6.0)))


def _expose(canvas: Canvas, image: Array) -> Array:
    """Return the picture as the camera takes it: color fringes, focus, sharpening, noise and 8 bits per channel."""
    rng, unit = canvas.rng, float(canvas.unit)
    # Red and blue are displaced against green, mostly along the same diagonal.
    fringe = polar((0.0, 0.0), rng.uniform(0.1, 1.6) * unit, rng.normal(np.pi / 4, 0.7))
    for channel, side in ((0, -1), (2, 1)):
        image[..., channel] = ndimage.shift(image[..., channel], side * fringe, order=1, mode="nearest")
    focus = rng.uniform(0.35, 1.0) * unit
    picture = ndimage.gaussian_filter(image, (focus, focus, 0))
    picture += rng.uniform(0.1, 0.9) * (picture - ndimage.gaussian_filter(picture, (2.5 * unit, 2.5 * unit, 0)))
    grain = np.stack([canvas.noise(0.7) for _ in range(3)], axis=-1) + canvas.noise(0.8)[..., None]
    return to_bytes(picture + rng.uniform(0.5, 1.8) * grain)
