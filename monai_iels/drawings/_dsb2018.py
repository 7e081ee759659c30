# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Micrographs of cell nuclei, modeled on the kinds of microscopy in stage 1 of the 2018 Data Science Bowl."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import ndimage

from monai_iels.drawings._shapes import Array, Canvas, Rng, polar, ridge, soft_step, to_bytes, union

_LEAST = 3  # nuclei per image, as far as there is room
_MIN_AREA = 12  # a visible scrap of a covered nucleus below this many pixels is not annotated
_FULL_SIZE = 256  # nuclei have their original size in images with at least this many rows and columns
_TRIES = 12  # to place one nucleus


class _Nucleus(NamedTuple):
    """Where a nucleus lies: its center, its half axes (the longer one first), their mean and its rotation."""

    center: Array
    radii: Array
    radius: float
    angle: float


def _plain(canvas: Canvas, direction: float, nuclei: list[_Nucleus]) -> Array:
    """Return the dark ground of fluorescence with a little uneven glow."""
    return 0.012 * canvas.rng.uniform() * (1.0 + canvas.noise(0.3 * max(canvas.shape)))


def _processes(canvas: Canvas, direction: float, nuclei: list[_Nucleus]) -> Array:
    """Return the faint cell bodies and processes around fluorescent nuclei."""
    bodies = np.zeros(canvas.shape)
    for nucleus in nuclei:
        bodies[canvas.window(nucleus.center, nucleus.radius)] = 0.5
    bodies = ndimage.gaussian_filter(bodies, 12.0, truncate=2.5)
    strands = np.clip(_fibers(canvas, direction, 3.5), 0.0, None) ** 2
    return canvas.rng.uniform(0.2, 2.0) * (strands * (0.01 + 0.3 * bodies.clip(0, 0.2)) + 0.1 * bodies)


def _tissue(canvas: Canvas, direction: float, nuclei: list[_Nucleus]) -> Array:
    """Return stained tissue: light and shade of wrinkled fibers in places, grains and broad stain differences."""
    width = canvas.rng.uniform(2.0, 4.5)
    relief = 0.6 * _fibers(canvas, direction, width) + canvas.noise(1.5 * width)
    wrinkles = ndimage.sobel(relief, axis=int(abs(np.sin(direction)) > np.sqrt(0.5)))
    presence = soft_step(canvas.noise(0.15 * max(canvas.shape)) + canvas.rng.uniform(-1, 1), 1.5)
    fine = 0.13 * presence * wrinkles / wrinkles.std() + 0.04 * canvas.noise(1.2)
    return 0.48 + fine + 0.12 * canvas.noise(45.0)


def _flat_cells(canvas: Canvas, direction: float, nuclei: list[_Nucleus]) -> Array:
    """Return thin angular cells that lie over each other on a white slide, one around each nucleus."""
    rng, clouds = canvas.rng, canvas.noise(4.0)
    texture = 1.0 + 0.06 * canvas.noise(1.0) + 0.1 * clouds + 0.25 * _fibers(canvas, direction, 8.0)
    passed = np.ones(canvas.shape)
    for nucleus in nuclei:
        reach = float(np.clip(nucleus.radius * rng.uniform(5.0, 8.0), 12.0, 70.0))
        center = nucleus.center + rng.normal(0.0, 0.15 * reach, 2)
        window = canvas.window(center, 1.3 * reach)
        field = canvas.blob(center, (reach, 0.85 * reach), rng.uniform(0, np.pi), 0.12, window)
        y, x = canvas.offsets(center, window)
        for turn in rng.uniform(0.0, 2 * np.pi, rng.integers(2, 6)):  # sides that are cut straight
            field = np.minimum(field, rng.uniform(0.55, 0.9) * reach - np.sin(turn) * y - np.cos(turn) * x)
        field += 1.5 * clouds[window]
        body = texture[window] + 0.15 * ridge(field - 1.0, 1.4)
        passed[window] *= 1.0 - rng.uniform(0.06, 0.4) * soft_step(field, 1.5) * body.clip(0.0)
    return 1.0 - passed


def _fibers(canvas: Canvas, angle: float, width: float) -> Array:
    """Return wavy strands along ``angle`` (mean 0, deviation 1) that are about ``width`` pixels thick."""
    size = int(sum(canvas.shape) / width) + 8
    strands = Canvas(canvas.rng, (size, size // 8 + 8)).noise(0.8)
    y, x = canvas.offsets([count / 2 for count in canvas.shape])
    across = (np.cos(angle) * y - np.sin(angle) * x) / width + 4.0 * canvas.noise(12 * width) + size / 2
    along = (np.cos(angle) * x + np.sin(angle) * y) / (8 * width) + strands.shape[1] / 2
    return ndimage.map_coordinates(strands, [across, along], order=1, mode="reflect")


class _Kind(NamedTuple):
    """One kind of microscopy image; colors are RGB or one level of gray."""

    weight: float  # images of this kind in the original training set
    area: tuple[float, float]  # median area of a nucleus in pixels
    fraction: tuple[float, float]  # part of the image that nuclei are asked to cover
    ground: tuple[tuple[float, ...], ...]  # colors of the scenery from value 0 to 1
    nucleus: tuple[float, ...]  # color of a nucleus of strength 1
    scenery: Callable[[Canvas, float, list[_Nucleus]], Array] = _plain
    spread: float = 0.3  # of the logarithm of the area between nuclei; their strength varies nearly as much
    elongation: float = 0.35  # mean logarithm of the ratio of the axes
    clumping: float = 0.8  # contrast of the density of nuclei
    rows: float = 0.0  # chance that nuclei stand in rows (epithelium)
    overlap: float = 0.05  # how far nuclei may reach into each other; negative keeps them apart
    dome: float = 0.4  # how much stronger the middle is than the rim; negative for a dark rim
    spots: float = 0.0  # strength of nucleoli or bright bodies
    blur: float = 1.1
    haze: float = 0.08  # stray light around nuclei and from nuclei out of focus

    @property
    def stained(self) -> bool:
        """Return whether nuclei are darker than their ground, as in all microscopy but fluorescence."""
        return self.nucleus[0] < self.ground[0][0]


_LILAC = ((167, 143, 201), (180, 161, 205), (193, 176, 208))
_PALE = ((198, 199, 196), (212, 214, 215), (232, 230, 230))
_PINK = ((196, 96, 176), (210, 132, 196), (240, 206, 232))

# In this order: small nuclei of spread-out cells; small bright cells, many of them dying; round nuclei with bright
# bodies, crowded and partly out of focus; large dim nuclei; dense cultures; few large bright nuclei; large round nuclei
# in several depths; thick fluorescent tissue. Then stained: lilac histology at low and at high magnification; smears on
# a nearly white ground; pink histology; bright field with flat gray cells.
_KINDS = (
    _Kind(150, (110, 250), (0.014, 0.1), ((4,), (60,)), (57,), _processes, clumping=0.5, overlap=-0.05, dome=0.7),
    _Kind(95, (55, 110), (0.015, 0.14), ((13,), (130,)), (108,), spread=0.5, clumping=1.3, spots=0.6, blur=0.7),
    _Kind(65, (250, 430), (0.08, 0.36), ((4,), (60,)), (31,), elongation=0.15, clumping=1.2, spots=0.5, haze=0.25),
    _Kind(91, (1800, 2800), (0.3, 0.5), ((5.5,), (40,)), (25,), spread=0.25, clumping=0.6, dome=0.25, spots=-0.06),
    _Kind(70, (480, 820), (0.13, 0.45), ((5,), (70,)), (41,), clumping=0.6, overlap=0.08, spots=-0.06, haze=0.12),
    _Kind(28, (1800, 2700), (0.06, 0.22), ((13,), (120,)), (66,), spots=0.15, blur=0.9, haze=0.12),
    _Kind(14, (1000, 2400), (0.09, 0.24), ((1,), (60,)), (24,), spread=0.45, clumping=1.2, spots=0.15, blur=1.6),
    _Kind(18, (120, 220), (0.09, 0.22), ((23,), (120,)), (98,), _processes, spread=0.45, spots=0.2, haze=0.3),
    _Kind(42, (150, 370), (0.06, 0.42), _LILAC, (116, 66, 192), _tissue, 0.4, 0.6, 1.2, 0.5, dome=-0.25, spots=0.15),
    _Kind(26, (700, 2200), (0.15, 0.55), _LILAC, (100, 48, 186), _tissue, 0.4, 0.55, 1.1, 0.5, dome=-0.35, spots=0.2),
    _Kind(38, (310, 560), (0.13, 0.42), _PALE, (118, 46, 158), _tissue, 0.5, 0.25, 1.1, dome=0.0, spots=0.15),
    _Kind(9, (800, 1500), (0.12, 0.22), _PINK, (150, 58, 164), _tissue, 0.3, 0.4, dome=-0.4, spots=0.2),
    _Kind(16, (180, 340), (0.008, 0.022), ((229,), (60,)), (78,), _flat_cells, 0.5, 0.25, overlap=-1.5, haze=0.0),
)


def draw_dsb2018(rng: Rng, shape: tuple[int, int] = (256, 256)) -> tuple[Array, Array]:
    """Draw a microscopy image of cell nuclei and its instances.

    The kinds of the original data set occur with their proportions: fluorescence of several magnifications and
    densities, stained histology and bright field.

    Args:
        rng: draws everything that varies; the same state gives the same image.
        shape: height and width of the image. Nuclei shrink moderately in images of less than 256 pixels.

    Returns:
        The RGB image (height, width, 3) as uint8 and the instances (height, width) as int32: 0 is background,
        1 to n are the nuclei.
    """
    canvas = Canvas(rng, shape)
    weights = np.array([kind.weight for kind in _KINDS])
    kind = _KINDS[rng.choice(len(_KINDS), p=weights / weights.sum())]
    zoom = np.clip(np.sqrt(min(shape) / _FULL_SIZE), 0.5, 1.0)
    radius = float(zoom * np.sqrt(np.exp(rng.uniform(*np.log(kind.area))) / np.pi))
    covered = np.exp(rng.uniform(*np.log(kind.fraction))) * shape[0] * shape[1]
    direction = rng.uniform(0.0, np.pi)
    nuclei = _scatter(canvas, kind, radius, max(_LEAST, round(covered / (np.pi * radius**2))), direction)
    stain, instances = _paint_nuclei(canvas, kind, nuclei, radius)
    # Nobody annotates specks and nuclei far out of focus.
    specks = canvas.spots(rng.uniform(0.0, shape, (rng.poisson(0.3 * len(nuclei)), 2)), 1.2, 1.0)
    ghosts = canvas.spots(rng.uniform(0.0, shape, (rng.poisson(0.2 * len(nuclei)), 2)), 1.2 * radius, 0.9 * radius)
    ghosts *= 0.7 if kind.stained else 1.8 * kind.haze
    scenery = kind.scenery(canvas, direction, nuclei)
    return _develop(canvas, kind, stain + 0.7 * specks, ghosts, scenery), instances


def _scatter(canvas: Canvas, kind: _Kind, radius: float, count: int, direction: float) -> list[_Nucleus]:
    """Place up to ``count`` nuclei, dense in some parts of the image; they touch but hardly cover each other."""
    rng, shape = canvas.rng, np.array(canvas.shape)
    relief = canvas.noise(max(6.0, 0.13 * max(shape)))
    angles = direction + (0.5 if kind.stained else 1.1) * rng.uniform(-1.0, 1.0, shape)
    if rng.random() < kind.rows:
        slope = np.gradient(relief)
        # The level lines of the relief are the rows; nuclei stand across them.
        angles = np.arctan2(slope[1], slope[0]) + rng.normal(0.0, 0.2, shape)
        relief = 3.0 * ridge(relief, 0.6 * radius * np.hypot(*slope).mean() + 1e-6) - 1.5
    chances = np.cumsum(np.exp(kind.clumping * relief))
    nuclei: list[_Nucleus] = []
    taken = np.zeros((count, 3))  # center and radius of each nucleus
    for attempt in range(_TRIES * (count + 50)):
        if len(nuclei) >= (count if attempt < _TRIES * count else _LEAST):
            break
        # If there is no room for the least number, nuclei shrink and come closer until there is.
        room = max(0.4, 0.97 ** max(0, attempt - _TRIES * count))
        size = radius * room * np.exp(0.5 * kind.spread * rng.standard_normal())
        if rng.random() < 0.08:  # a fragment
            size = max(2.2, size * rng.uniform(0.3, 0.65))
        size, margin = (size, 0.7 * size) if len(nuclei) >= _LEAST else (max(3.0, size), -2.0)
        pixel = int(np.searchsorted(chances, rng.uniform(0.0, chances[-1])))
        center = np.array(divmod(pixel, shape[1])) + rng.uniform(-0.8 * size, 0.8 * size, 2)
        if nuclei and rng.random() < 0.15:
            partner = nuclei[rng.integers(len(nuclei))]
            gap = (1.0 - kind.overlap) * (partner.radius + size) * rng.uniform(1.0, 1.15)
            center = polar(partner.center, gap, rng.uniform(0.0, 2 * np.pi))
        y, x, radii = (taken[: len(nuclei)] - [*center, -size]).T
        apart = np.all(np.hypot(y, x) >= (1.0 - kind.overlap) * room * radii)
        if apart and np.all(center > -margin) and np.all(center < shape + margin):
            taken[len(nuclei)] = *center, size
            stretch = np.exp(0.5 * min(1.2, abs(rng.normal(kind.elongation, 0.5 * kind.elongation))))
            angle = angles[tuple(np.clip(center.astype(int), 0, shape - 1))]
            nuclei.append(_Nucleus(center, np.array([size * stretch, size / stretch]), size, angle))
    return nuclei


def _paint_nuclei(canvas: Canvas, kind: _Kind, nuclei: list[_Nucleus], radius: float) -> tuple[Array, Array]:
    """Return the stain and the numbers of all nuclei; a pixel in several nuclei belongs to the one it is deepest in."""
    rng = canvas.rng
    stain, depth, instances = np.zeros(canvas.shape), np.zeros(canvas.shape), np.zeros(canvas.shape, np.int32)
    wobble, grain, defocus = (0.14, 0.2, 0.75) if kind.stained else (0.09, 0.11, 0.4)
    texture = grain * canvas.noise(np.clip(0.08 * radius, 0.8, 1.6))
    texture += kind.spots * np.clip(canvas.noise(np.clip(0.16 * radius, 0.8, 4.0)) - 0.5, 0.0, 3.0)
    for number, (center, radii, _, angle) in enumerate(nuclei, start=1):
        window = canvas.window(center, 1.35 * radii[0] + 9.0)
        field = canvas.blob(center, radii, angle, wobble, window)
        if rng.random() < 0.15:  # a bean has a dent in its long side
            place = polar(center, rng.uniform(1.3, 1.6) * radii[1], angle + rng.choice([-0.5, 0.5]) * np.pi)
            dent = canvas.blob(place, 0.65 * radii[[1, 1]], 0.0, 0.1, window)
            field = -union([-field, dent], 0.15 * radii[1])
        strength = np.exp(0.8 * kind.spread * rng.standard_normal())
        if not kind.stained and rng.random() < 0.04:  # dividing or dying
            strength *= rng.uniform(1.7, 3.0)
        tone = 1.0 + kind.dome * (np.sqrt(np.clip(field / radii[1], 0.0, 1.0)) - 0.6) + texture[window]
        edge = 1.5 * np.exp(defocus * abs(rng.standard_normal()))
        amount = strength * soft_step(field, edge) * tone.clip(0.1)
        # Stains add up where nuclei lie over each other, though less than fully.
        stain[window] = np.maximum(stain[window], amount) + 0.3 * np.minimum(stain[window], amount)
        instances[window] = np.where(field > depth[window], number, instances[window])
        depth[window] = np.maximum(field, depth[window])
    kept = np.bincount(instances.ravel()) >= _MIN_AREA
    kept[0] = False
    return stain, np.where(kept, np.cumsum(kept), 0)[instances].astype(np.int32)


def _develop(canvas: Canvas, kind: _Kind, stain: Array, ghosts: Array, scenery: Array) -> Array:
    """Turn stain and scenery into a picture: optics, colors, light and noise of the camera."""
    rng = canvas.rng
    # Fluorescence differs far more between and within images, and saturates later.
    uneven, limit = (0.15, 1.8) if kind.stained else (1.0, 5.0)
    sharp = ndimage.gaussian_filter(stain, kind.blur * rng.uniform(0.7, 1.3))
    haze = kind.haze * rng.uniform(0.3, 1.7) * ndimage.gaussian_filter(stain, 7.0, truncate=2.5)
    amount = np.exp((0.1 + 0.2 * uneven) * rng.standard_normal()) * (sharp + haze + ghosts * (1.0 - sharp).clip(0.0))
    amount = limit * np.tanh(amount / limit)[..., None]
    colors = np.broadcast_to(np.array(kind.ground), (len(kind.ground), 3))
    stops = np.linspace(0.0, 1.0, len(colors))
    ground = np.stack([np.interp(scenery, stops, levels) for levels in colors.T], axis=-1)
    ground *= np.exp(0.25 * uneven * rng.standard_normal())
    # Beyond full strength a nucleus hides its ground, so the excess no longer depends on it.
    picture = ground + np.minimum(amount, 1.0) * (kind.nucleus - ground)
    picture += np.maximum(amount - 1.0, 0.0) * (kind.nucleus - ground.mean(axis=(0, 1)))
    light = 1.0 + rng.uniform(0.0, 0.25) * uneven * canvas.noise(0.4 * max(canvas.shape)).clip(-2, 2)
    picture *= light.clip(0.3)[..., None]
    return to_bytes(picture + rng.uniform(0.2, 1.3) * rng.standard_normal(canvas.shape)[..., None])
