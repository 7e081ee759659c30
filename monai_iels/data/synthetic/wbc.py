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

"""Synthetic micrographs of stained white blood cells, modeled on the two stains of the public WBC data set."""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy import ndimage

from monai_iels.data.synthetic.shapes import blob, smooth_noise, soft_step

__all__ = ["draw_wbc"]

_Shape = tuple[int, int]
_NucleusPainter = Callable[[np.random.Generator, _Shape, "_Frame"], np.ndarray]

# All lengths in this file are in pixels of an image of this size, and scale with the image.
_REFERENCE_SIZE = 120.0

# Annotators draw their outline a little outside of where half of the stain is reached.
_MARGIN = 1.2

# Mean and deviation over the pictures of the background's, the cytoplasm's and the nucleus' RGB color, per stain.
_YELLOW_COLORS = (
    ((255, 249, 156), (186, 140, 112), (106, 26, 85)),
    ((3, 9, 18), (24, 31, 18), (28, 22, 14)),
)
_WASHED_OUT_COLORS = (
    ((257, 257, 258), (190, 126, 168), (86, 12, 118)),
    ((2, 4, 3), (21, 23, 20), (17, 9, 11)),
)


class _Frame(NamedTuple):
    """Where the white cell lies: its center in pixels, its radius in pixels and the pixels per reference pixel."""

    center: np.ndarray
    radius: float
    unit: float


class _Stain(NamedTuple):
    """Colors (RGB, 0 to 255) of one picture and whether its background is washed out to white."""

    background: np.ndarray
    cytoplasm: np.ndarray
    nucleus: np.ndarray
    washed_out: bool


class _Kind(NamedTuple):
    """A kind of white cell: radius, tint of the cytoplasm (RGB), lightness of the nucleus (deviations), its outline."""

    radius: tuple[float, float]
    tint: tuple[float, float, float]
    lightness: float
    nucleus: _NucleusPainter


def draw_wbc(rng: np.random.Generator, shape: tuple[int, int] = (120, 120)) -> tuple[np.ndarray, np.ndarray]:
    """Draw one stained white blood cell among faint red cells and debris.

    Args:
        rng: draws everything that varies; the same state gives the same picture.
        shape: height and width in pixels.

    Returns:
        The RGB picture (H, W, 3) and its label (H, W) with 0 background, 1 cytoplasm and 2 nucleus, both ``uint8``.
    """
    washed_out = bool(rng.random() < 1 / 3)
    kind = _draw_kind(rng, washed_out)
    stain = _draw_stain(rng, washed_out, kind)
    frame = _draw_frame(rng, shape, kind.radius)
    cell = _cell_outline(rng, shape, frame)
    # The nucleus never leaves its cell, and a sliver of cytoplasm always surrounds it.
    nucleus = np.minimum(kind.nucleus(rng, shape, frame), cell - rng.uniform(1.5, 3.0) * frame.unit)

    image = _paint_background(rng, shape, stain, frame.unit)
    _paint_red_cells(rng, image, stain, frame)
    _paint_debris(rng, image, stain, frame)
    _paint_cytoplasm(rng, image, stain, cell, frame.unit)
    _paint_nucleus(rng, image, stain, nucleus, frame.unit)
    label = (cell > 0).astype(np.uint8) + (nucleus > 0).astype(np.uint8)
    return _expose(rng, image, frame.unit), label


def _draw_kind(rng: np.random.Generator, washed_out: bool) -> _Kind:
    """Choose the kind of cell; the washed out stain shows hardly anything but granulocytes."""
    odds = (0.04, 0.08, 0.28, 0.56, 0.04) if washed_out else (0.24, 0.19, 0.21, 0.30, 0.06)
    return _KINDS[rng.choice(len(_KINDS), p=odds)]


def _draw_stain(rng: np.random.Generator, washed_out: bool, kind: _Kind) -> _Stain:
    """Draw the colors of a picture: all three share its exposure, and each has a lightness and hue of its own."""
    means, deviations = _WASHED_OUT_COLORS if washed_out else _YELLOW_COLORS
    exposure, depth = rng.standard_normal(2)
    colors = []
    for mean, deviation, own in zip(means, deviations, (0.3, 0.8, 0.8), strict=True):
        shift = (1 - own) * exposure + own * (0.8 * depth + 0.6 * rng.standard_normal())
        hue = 0.35 * rng.standard_normal(3)
        colors.append(np.array(mean) + np.array(deviation) * np.clip(shift + hue, -2.0, 2.0))
    nucleus = colors[2] + kind.lightness * np.array(deviations[2])
    return _Stain(colors[0], colors[1] + np.array(kind.tint), np.clip(nucleus, 8, 190), washed_out)


def _draw_frame(rng: np.random.Generator, shape: _Shape, radius: tuple[float, float]) -> _Frame:
    """Place the white cell near the center of the picture."""
    unit = min(shape) / _REFERENCE_SIZE
    center = np.array(shape) / 2 + rng.uniform(-5, 5, 2) * unit
    return _Frame(center, rng.uniform(*radius) * unit, unit)


def _cell_outline(rng: np.random.Generator, shape: _Shape, frame: _Frame) -> np.ndarray:
    """Return the white cell as a signed distance: a wobbly ellipse with a finely scalloped border."""
    stretch = rng.uniform(0.94, 1.06)
    radii = (frame.radius * stretch, frame.radius / stretch)
    cell = blob(rng, shape, frame.center, radii, rng.uniform(0, np.pi), roughness=0.02 + rng.exponential(0.05))
    return cell + rng.uniform(0.2, 0.7) * frame.unit * smooth_noise(rng, shape, 2.2 * frame.unit)


def _round_nucleus(rng: np.random.Generator, shape: _Shape, frame: _Frame) -> np.ndarray:
    """Return the large round nucleus of a lymphocyte, often pressed against one side of the cell."""
    radius = frame.radius * rng.uniform(0.72, 0.95)
    center = _polar(frame.center, frame.radius - radius, rng.uniform(0, 2 * np.pi))
    stretch = rng.uniform(0.9, 1.1)
    radii = (radius * stretch, radius / stretch)
    return blob(rng, shape, center, radii, rng.uniform(0, np.pi), roughness=0.08)


def _bean_nucleus(rng: np.random.Generator, shape: _Shape, frame: _Frame) -> np.ndarray:
    """Return the bean shaped nucleus of a monocyte: an ellipse with a bay."""
    radius, angle = frame.radius * rng.uniform(0.66, 0.82), rng.uniform(0, 2 * np.pi)
    center = _polar(frame.center, frame.radius * rng.uniform(0.05, 0.2), angle)
    body = blob(rng, shape, center, (radius * 0.9, radius * 1.1), angle, roughness=0.15)
    # The bay opens on the side away from the wall that the nucleus leans on.
    mouth = _polar(center, radius * rng.uniform(0.75, 1.1), angle + np.pi)
    radii = (radius * rng.uniform(0.3, 0.6), radius * rng.uniform(0.2, 0.4))
    bay = blob(rng, shape, mouth, radii, angle, roughness=0.2)
    return -_smooth_union([-body, bay], 3 * frame.unit)


def _band_nucleus(rng: np.random.Generator, shape: _Shape, frame: _Frame) -> np.ndarray:
    """Return the horseshoe or S shaped nucleus of a band cell: lobes that have not come apart."""
    return _lobes(rng, shape, frame, count=int(rng.integers(3, 6)), size=0.29, bridge=(0.17, 0.26), turn=1.1)


def _segmented_nucleus(rng: np.random.Generator, shape: _Shape, frame: _Frame) -> np.ndarray:
    """Return the nucleus of a granulocyte: two to five lobes, joined by thin bridges or apart."""
    count = int(rng.choice([2, 3, 4, 5], p=[0.2, 0.4, 0.3, 0.1]))
    return _lobes(rng, shape, frame, count, size=0.50 / count**0.4, bridge=(-0.08, 0.14), turn=1.5)


def _pale_nucleus(rng: np.random.Generator, shape: _Shape, frame: _Frame) -> np.ndarray:
    """Return the large nucleus of an immature or damaged cell, irregular and nearly filling the cell."""
    radius = frame.radius * rng.uniform(0.68, 0.84)
    center = _polar(frame.center, 0.7 * (frame.radius - radius), rng.uniform(0, 2 * np.pi))
    return blob(rng, shape, center, (radius, radius), roughness=0.2)


def _lobes(
    rng: np.random.Generator,
    shape: _Shape,
    frame: _Frame,
    count: int,
    size: float,
    bridge: tuple[float, float],
    turn: float,
) -> np.ndarray:
    """Return a chain of lobes on an arc about the cell's center as an approximate signed distance.

    Args:
        rng: draws place, size and shape of each lobe.
        shape: height and width of the field.
        frame: place and size of the cell.
        count: number of lobes.
        size: radius of a lobe relative to that of the cell.
        bridge: range of the half width of the bridges relative to the cell's radius; not positive means none.
        turn: largest angle between neighboring lobes in radians.
    """
    steps = rng.uniform(0.75, 1.0, count) * min(turn * (1.5 if count == 2 else 1.0), 5.6 / count)
    angles = rng.uniform(0, 2 * np.pi) + rng.choice([-1, 1]) * np.cumsum(steps)
    centers = [_polar(frame.center, frame.radius * rng.uniform(0.36, 0.62), angle) for angle in angles]
    fields = []
    for center, angle in zip(centers, angles, strict=True):
        radius, stretch = frame.radius * size * rng.uniform(0.8, 1.15), rng.uniform(0.85, 1.25)
        radii = (radius / stretch, radius * stretch)
        fields.append(blob(rng, shape, center, radii, angle + rng.normal(0, 0.4), roughness=0.12))
    for start, end in pairwise(centers):
        fields.append(_capsule(shape, start, end, frame.radius * rng.uniform(*bridge)))
    return _smooth_union(fields, 2 * frame.unit)


def _smooth_union(fields: list[np.ndarray], width: float) -> np.ndarray:
    """Return the union of signed distances with its creases rounded off over about ``width`` pixels."""
    return width * np.logaddexp.reduce(np.stack(fields) / width, axis=0)


def _capsule(shape: _Shape, start: np.ndarray, end: np.ndarray, radius: float) -> np.ndarray:
    """Return the signed distance to a thick line from ``start`` to ``end``, positive inside."""
    rows, columns = np.ogrid[: shape[0], : shape[1]]
    y, x = rows - start[0], columns - start[1]
    dy, dx = end - start
    along = np.clip((y * dy + x * dx) / (dy * dy + dx * dx + 1e-12), 0, 1)
    return radius - np.hypot(y - along * dy, x - along * dx)


def _polar(center: np.ndarray, radius: float, angle: float) -> np.ndarray:
    """Return the point at ``radius`` and ``angle`` from ``center``."""
    return center + radius * np.array([np.cos(angle), np.sin(angle)])


def _blend(image: np.ndarray, color: np.ndarray, opacity: np.ndarray) -> None:
    """Lay ``color`` (one color or one per pixel) over ``image`` in place."""
    image += (color - image) * opacity[..., None]


def _paint_background(rng: np.random.Generator, shape: _Shape, stain: _Stain, unit: float) -> np.ndarray:
    """Return the stained plasma: its color with a drift of the lighting and blotches."""
    drift = rng.uniform(1, 6) * smooth_noise(rng, shape, 30 * unit)
    blotches = rng.uniform(0.5, 3.5) * smooth_noise(rng, shape, 3 * unit)
    return stain.background + (drift + blotches)[..., None] * np.array([0.4, 1.0, 0.8])


def _paint_red_cells(rng: np.random.Generator, image: np.ndarray, stain: _Stain, frame: _Frame) -> None:
    """Paint red cells in place: pale disks with a broken outline, at the picture's edge or against the white cell."""
    shape = image.shape[:2]
    # The washed out stain bleaches most red cells away.
    count = rng.integers(0, 4) if stain.washed_out else rng.integers(2, 10)
    # Outlines fade and break up where this field is low.
    gaps = soft_step(smooth_noise(rng, shape, 5 * frame.unit) + 0.5, 1.5)
    gaps *= 1 + 0.25 * smooth_noise(rng, shape, 1.5 * frame.unit)
    for _ in range(count):
        radius = rng.uniform(14, 24) * frame.unit
        touching = rng.random() < 0.35
        reach = frame.radius + radius * (rng.uniform(0.85, 1.0) if touching else rng.uniform(1.0, 2.2))
        center = _polar(frame.center, reach, rng.uniform(0, 2 * np.pi))
        disk = blob(rng, shape, center, (radius, radius * rng.uniform(0.75, 1.0)), rng.uniform(0, np.pi), 0.12)
        outline = np.exp(-((disk / (rng.uniform(1.2, 3.2) * frame.unit)) ** 2)) * gaps
        tint = np.array([0.76, 0.60, 0.72]) + rng.normal(0, 0.05, 3)
        _blend(image, stain.background * tint, rng.uniform(0.15, 0.9) * outline)
        _blend(image, stain.background * 0.94, rng.uniform(0.0, 0.7) * soft_step(disk, 3 * frame.unit))


def _paint_debris(rng: np.random.Generator, image: np.ndarray, stain: _Stain, frame: _Frame) -> None:
    """Paint platelets, stain deposits and smears in place."""
    shape = image.shape[:2]
    for _ in range(rng.poisson(2.5)):
        center = rng.uniform(0, 1, 2) * shape
        radius = (1.5 + rng.exponential(2.0)) * frame.unit
        speck = blob(rng, shape, center, (radius, radius * rng.uniform(0.4, 1.0)), rng.uniform(0, np.pi), 0.3)
        color = stain.background * (np.array([0.62, 0.46, 0.66]) + rng.normal(0, 0.08, 3))
        _blend(image, color, rng.uniform(0.2, 1.0) * soft_step(speck, 2 * frame.unit))
    # Only the peaks of the noise show, as smears of stain.
    smears = soft_step(smooth_noise(rng, shape, 4 * frame.unit) - rng.uniform(1.2, 2.6), 1.0)
    tint = np.array([1.0, 0.82, 0.97]) if stain.washed_out else np.array([0.92, 0.84, 0.86])
    _blend(image, stain.background * tint, rng.uniform(0.2, 0.9) * smears)


def _paint_cytoplasm(rng: np.random.Generator, image: np.ndarray, stain: _Stain, cell: np.ndarray, unit: float) -> None:
    """Paint the white cell's body in place: granules, a shaded side and a rim that may be dark or faint."""
    shape = image.shape[:2]
    granules = rng.uniform(4, 15) * smooth_noise(rng, shape, rng.uniform(1.0, 2.0) * unit)
    shading = rng.uniform(6, 24) * smooth_noise(rng, shape, 8 * unit)
    body = stain.cytoplasm + granules[..., None] * np.array([0.8, 1.0, 0.6])
    body += shading[..., None] * np.array([1.0, 1.0, 0.4])
    # Where the cell is thin it lets the background through, so its border may be faint.
    body += rng.uniform(-5, 45) * (soft_step(cell - 12 * unit, 14 * unit) - 0.5)[..., None]
    edge = rng.uniform(2.5, 7.0) * unit
    _blend(image, body, soft_step(cell - _MARGIN * unit, edge))
    rim = np.exp(-(((cell - 1.5 * unit) / (1.8 * unit)) ** 2))
    # One cell in ten is shrunken, with a nearly black rim.
    darkness = rng.uniform(0.7, 0.95) if rng.random() < 0.1 else rng.uniform(0.0, 0.6)
    uneven = soft_step(smooth_noise(rng, shape, 12 * unit) + 0.5, 2.0)
    _blend(image, stain.cytoplasm * np.array([0.5, 0.6, 0.8]), darkness * rim * uneven)


def _paint_nucleus(
    rng: np.random.Generator, image: np.ndarray, stain: _Stain, nucleus: np.ndarray, unit: float
) -> None:
    """Paint the nucleus in place: a dark bluish border, a redder heart and clumps of chromatin."""
    shape = image.shape[:2]
    heart = soft_step(nucleus - 5 * unit, 8 * unit) - 0.4
    chromatin = rng.uniform(2, 10) * smooth_noise(rng, shape, rng.uniform(1.3, 2.5) * unit)
    clumps = rng.uniform(4, 18) * smooth_noise(rng, shape, 6 * unit)
    color = stain.nucleus + (rng.uniform(10, 70) * heart)[..., None] * np.array([1.0, 0.3, -0.1])
    color += (chromatin + clumps)[..., None] * np.array([0.8, 1.0, 0.5])
    _blend(image, color, soft_step(nucleus - 0.5 * _MARGIN * unit, rng.uniform(2.0, 6.0) * unit))


def _expose(rng: np.random.Generator, image: np.ndarray, unit: float) -> np.ndarray:
    """Return the picture as the camera takes it: color fringes, focus, sharpening, noise and 8 bits per channel."""
    # Red and blue are displaced against green, mostly along the same diagonal.
    angle, amount = rng.normal(np.pi / 4, 0.7), rng.uniform(0.1, 1.6) * unit
    offset = amount * np.array([np.sin(angle), np.cos(angle)])
    focus = rng.uniform(0.35, 1.0) * unit
    channels = []
    for channel, side in enumerate((-1, 0, 1)):
        moved = ndimage.shift(image[..., channel], side * offset, order=1, mode="nearest") if side else image[..., 1]
        channels.append(ndimage.gaussian_filter(moved, focus))
    picture = np.stack(channels, axis=-1)
    haze = ndimage.gaussian_filter(picture, (2.5 * unit, 2.5 * unit, 0))
    picture += rng.uniform(0.1, 0.9) * (picture - haze)
    shape = picture.shape[:2]
    grain = np.stack([smooth_noise(rng, shape, 0.7 * unit) for _ in range(3)], axis=-1)
    picture += rng.uniform(0.5, 1.8) * (grain + smooth_noise(rng, shape, 0.8 * unit)[..., None])
    return np.clip(np.rint(picture), 0, 255).astype(np.uint8)


_KINDS = (
    _Kind((23.0, 34.0), (-10, 4, 10), 0.0, _round_nucleus),
    _Kind((32.0, 43.0), (-10, 6, 10), 0.5, _bean_nucleus),
    _Kind((34.0, 43.0), (5, -4, -4), 0.0, _band_nucleus),
    _Kind((34.0, 44.0), (8, 0, -4), -0.3, _segmented_nucleus),
    _Kind((38.0, 48.0), (0, 0, 0), 1.6, _pale_nucleus),
)
