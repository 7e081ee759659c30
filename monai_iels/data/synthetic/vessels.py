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

"""The retina that the DRIVE and REFUGE drawings share: a branching vessel tree, its raster and the fundus' texture.

Geometry is measured in radii of the circular field of view, with the origin at its center, so that it fits any image.
"""

import heapq
import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import interpolate, ndimage

from monai_iels.data.synthetic.shapes import smooth_noise

__all__ = [
    "Eye",
    "Raster",
    "Vessel",
    "absorb",
    "add_vessels",
    "grow_vessels",
    "illumination",
    "paint_fundus",
    "paint_vessels",
    "texture",
]

_STEP = 0.022  # length of one segment
_SHORTEST = 2.6  # pixels; a small image needs no finer polylines
_COARSE = 4.0  # pixels; to sum up bumps is faster than to filter where details are larger than this
_CELL = 0.045  # side of the cells that keep vessels apart
_FINEST = 0.0042  # width at which growth ends, about one pixel in DRIVE
_WIDEST = 0.034  # a vein at the disc
_CROSSING = 0.014  # width above which a branch crosses vessels in its way
_BARE = 0.12  # length of a trunk that does not branch, as it crosses the disc
_AVASCULAR = 0.11  # radius around the fovea that no vessel enters

# waypoints (up, toward the macula) from the disc; the lower half of the retina mirrors them
_TEMPORAL_ARCADE = ((0, -0.03), (0.16, 0.0), (0.36, 0.15), (0.53, 0.45), (0.56, 0.85), (0.45, 1.25), (0.3, 1.7))
_NASAL_ARCADE = ((0, -0.03), (0.11, -0.1), (0.27, -0.2), (0.5, -0.28), (0.8, -0.4), (1.1, -0.5))
_CILIORETINAL = ((0.02, 0.03), (0.05, 0.15), (0.09, 0.28), (0.1, 0.4), (0.07, 0.52))

_MOTTLE = ((0.2, 0.5), (0.06, 0.35), (0.025, 0.3), (0.01, 0.25))  # scale and weight of the choroid's texture
_REFLEX = (0.15, 0.23, 0.15)  # what the reflex of an artery adds, in nepers
_PIGMENT = (0.34, 0.48, 0.42)  # absorption of the macula in nepers


class Eye(NamedTuple):
    """Where things lie in a photograph of an eye.

    Attributes:
        shape: height and width of the image.
        center: row and column of the center of the field of view in pixels.
        radius: radius of the field of view in pixels.
        disc: row and column of the optic disc, in radii of the field of view from its center.
        fovea: row and column of the center of the macula, in the same unit.
    """

    shape: tuple[int, int]
    center: tuple[float, float]
    radius: float
    disc: tuple[float, float]
    fovea: tuple[float, float]

    def grid(self, origin: Sequence[float] | np.ndarray = (0.0, 0.0)) -> tuple[np.ndarray, np.ndarray]:
        """Return how far every row and column lies from ``origin``, both in radii of the field of view."""
        rows, columns = np.ogrid[: self.shape[0], : self.shape[1]]
        y = (rows - self.center[0]) / self.radius - origin[0]
        x = (columns - self.center[1]) / self.radius - origin[1]
        return y.astype(np.float32), x.astype(np.float32)


@dataclass(frozen=True)
class Vessel:
    """One unbranched vessel.

    Attributes:
        points: rows and columns of its center line, of shape (n, 2), in radii of the field of view.
        widths: its full width at each of the points, in the same unit.
        artery: whether it is an artery rather than a vein.
    """

    points: np.ndarray
    widths: np.ndarray
    artery: bool


class Raster(NamedTuple):
    """Vessels drawn into an image.

    Attributes:
        depth: signed distance to the nearest vessel wall in pixels, positive inside, at least -2.
        density: how much light the vessels take, from 0 (none) to about 1 (a thick vein).
    """

    depth: np.ndarray
    density: np.ndarray


class _Sprout(NamedTuple):
    """A branch that waits to grow; the first two fields put the thickest one first in the queue."""

    minus_width: float
    number: int
    start: tuple[float, float]
    heading: float
    artery: bool
    parent: int


def grow_vessels(rng: np.random.Generator, eye: Eye, caliber: float = 1.0, density: float = 1.0) -> list[Vessel]:
    """Grow the arteries and veins of a retina from its optic disc.

    Args:
        rng: draws the tree.
        eye: where optic disc and fovea lie.
        caliber: factor for all widths.
        density: factor for the number of side branches.

    Returns:
        The vessels, main trunks first.
    """
    tree = _Tree(rng, eye.fovea, caliber, density)
    for trunk in _trunks(rng, eye.disc, eye.fovea, caliber):
        tree.add(trunk, bare=_BARE)
    tree.grow()
    return tree.vessels


def _trunks(rng: np.random.Generator, disc: Sequence[float], fovea: Sequence[float], caliber: float) -> list[Vessel]:
    """Return the vessels that leave the disc: artery and vein in each quadrant, and small ones to the macula."""
    temporal = math.copysign(1.0, fovea[1] - disc[1])
    trunks = []
    for up in (-1.0, 1.0):
        frame = np.array([up * rng.uniform(0.85, 1.1), temporal])
        for arcade, share in ((_TEMPORAL_ARCADE, 1.0), (_NASAL_ARCADE, 0.72)):
            veer = rng.choice([-0.1, 0.1])  # the artery runs inside or outside of its vein
            for artery in (False, True):
                width = caliber * _WIDEST * share * (0.74 if artery else 1.0) * rng.uniform(0.85, 1.08)
                spread = 1.0 + (veer if artery else -veer) + rng.normal(0, 0.06)
                stray = rng.normal(0, 0.02, (len(arcade), 2))
                stray[0] = 0.0  # all leave the disc from one place
                way = np.array(arcade) * [spread, 1.0] + stray
                way += [0.0, 0.02 if artery else -0.02]  # side by side where they leave the disc
                trunks.append(_along(rng, disc + frame * way, width, artery))
        if rng.random() < 0.8:
            way = np.array(_CILIORETINAL) * [rng.uniform(0.2, 1.6), rng.uniform(0.8, 1.1)]
            trunks.append(_along(rng, disc + frame * way, caliber * 0.011, bool(rng.random() < 0.6)))
    return trunks


def _along(rng: np.random.Generator, way: np.ndarray, width: float, artery: bool) -> Vessel:
    """Return a gently meandering vessel along waypoints, tapering and ending at the rim of the field of view."""
    lengths = np.hypot(*np.diff(way, axis=0).T)
    position = np.concatenate([[0.0], np.cumsum(lengths)])
    along = np.arange(0.0, position[-1], _STEP)
    points = interpolate.CubicSpline(position, way)(along)
    meander = ndimage.gaussian_filter1d(rng.standard_normal(points.shape), 3.0, axis=0)
    points = points + 0.02 * meander * np.minimum(1.0, along / 0.2)[:, None]
    widths = width * (1.0 - 0.55 * along / 1.8) * (1.0 + 0.04 * rng.standard_normal(len(along)))
    widths *= np.minimum(1.0, 0.7 + along / 0.2)  # emerges from the depth of the cup
    outside = np.flatnonzero(np.hypot(*points.T) > 1.02)
    end = max(2, outside[0] + 1) if len(outside) else len(points)
    return Vessel(points[:end], np.maximum(widths[:end], _FINEST), artery)


class _Tree:
    """Vessels that branch into the free space between them."""

    def __init__(self, rng: np.random.Generator, fovea: Sequence[float], caliber: float, density: float) -> None:
        self.vessels: list[Vessel] = []
        self._random = random.Random(int(rng.integers(2**32)))  # faster than numpy for single numbers
        self._fovea = (float(fovea[0]), float(fovea[1]))
        self._finest = _FINEST * caliber
        self._spacing = 0.14 / density
        self._numbers = itertools.count()
        self._sprouts: list[_Sprout] = []
        self._owners: dict[tuple[int, int], int] = {}

    def add(self, vessel: Vessel, bare: float = 0.0) -> None:
        """Add a vessel, claim the space it fills and let it sprout beyond a ``bare`` length."""
        self.vessels.append(vessel)
        own = len(self.vessels) - 1
        for y, x in vessel.points.tolist():
            self._owners.setdefault(_cell(y, x), own)
        self._sprout(vessel, own, bare)

    def grow(self) -> None:
        """Grow the waiting sprouts, thickest first, and theirs in turn."""
        while self._sprouts:
            sprout = heapq.heappop(self._sprouts)
            points, width = self._walk(sprout), -sprout.minus_width
            if len(points) > 4 + 250.0 * width:  # a thick stump would look torn off
                widths = np.linspace(width, max(self._finest, 0.55 * width), len(points))
                self.add(Vessel(np.array(points), widths, sprout.artery))

    def _sprout(self, vessel: Vessel, own: int, bare: float) -> None:
        """Queue side branches along a vessel and the fork at its end."""
        draw = self._random
        headings = np.arctan2(*np.diff(vessel.points, axis=0).T).tolist()
        side = draw.choice((-1.0, 1.0))
        at = bare + draw.uniform(0.3, 1.0) * self._spacing
        while (index := int(at / _STEP)) < len(headings) - 1:
            share = draw.uniform(0.32, 0.65) if draw.random() < 0.75 else draw.uniform(0.62, 0.85)
            self._queue(vessel, own, index, headings[index] + side * draw.uniform(0.45, 1.05), share)
            side = -side if draw.random() < 0.75 else side
            at += self._spacing * draw.uniform(0.6, 1.5)
        for turn in (-1.0, 1.0):
            self._queue(vessel, own, -1, headings[-1] + turn * draw.uniform(0.2, 0.6), draw.uniform(0.65, 0.9))

    def _queue(self, vessel: Vessel, own: int, index: int, heading: float, share: float) -> None:
        width = share * float(vessel.widths[index])
        if width > self._finest:
            y, x = vessel.points[index].tolist()
            sprout = _Sprout(-width, next(self._numbers), (y, x), heading, vessel.artery, own)
            heapq.heappush(self._sprouts, sprout)

    def _walk(self, sprout: _Sprout) -> list[tuple[float, float]]:
        """Return the center line of a branch that winds along until space, length or width runs out."""
        (y, x), heading, width = sprout.start, sprout.heading, -sprout.minus_width
        steps = int(self._random.uniform(0.6, 1.4) * (0.16 + 26.0 * width) / _STEP)
        bend = self._random.gauss(0.0, 0.03)
        points = [(y, x)]
        for i in range(steps):
            heading += self._random.gauss(bend, 0.11) + self._pull(y, x, heading)
            heading = self._evade(y, x, heading, sprout.parent, i)
            y, x = y + _STEP * math.sin(heading), x + _STEP * math.cos(heading)
            if (i > 2 and self._blocked(y, x, sprout)) or self._barren(y, x):
                break
            points.append((y, x))
        return points

    def _blocked(self, y: float, x: float, sprout: _Sprout) -> bool:
        """Return whether a vessel is in the way: only thick ones cross others, and only those of the other kind."""
        owner = self._owners.get(_cell(y, x), sprout.parent)
        crosses = -sprout.minus_width > _CROSSING and self.vessels[owner].artery != sprout.artery
        return owner != sprout.parent and not crosses

    def _barren(self, y: float, x: float) -> bool:
        """Return whether nothing grows here: outside the field of view or at the fovea."""
        return math.hypot(y, x) > 1.02 or math.hypot(y - self._fovea[0], x - self._fovea[1]) < _AVASCULAR

    def _pull(self, y: float, x: float, heading: float) -> float:
        """Return a small turn: toward the fovea within the arcades, outward beyond them."""
        dy, dx = self._fovea[0] - y, self._fovea[1] - x
        within = math.hypot(dy, dx) < 0.5
        goal = math.atan2(dy, dx) if within else math.atan2(y, x)
        return (0.05 if within else 0.03) * math.sin(goal - heading)

    def _evade(self, y: float, x: float, heading: float, parent: int, step: int) -> float:
        """Return the heading, turned aside where the way ahead belongs to another vessel."""
        for turn in (0.0, 0.3, -0.3):
            ahead = _cell(y + 2.5 * _STEP * math.sin(heading + turn), x + 2.5 * _STEP * math.cos(heading + turn))
            owner = self._owners.get(ahead)
            if owner is None or (owner == parent and step < 3):
                return heading + turn
        return heading


def _cell(y: float, x: float) -> tuple[int, int]:
    return math.floor(y / _CELL), math.floor(x / _CELL)


def paint_vessels(vessels: Sequence[Vessel], eye: Eye, finest: float = 0.0) -> Raster:
    """Draw vessels segment by segment; none becomes thinner than a pixel, but the thin ones become faint.

    Args:
        vessels: what to draw.
        eye: shape of the image and place of the field of view.
        finest: width in pixels below which a vessel is left out.
    """
    shape, center, radius = eye.shape, eye.center, eye.radius
    depth = np.full(shape[0] * shape[1], -2.0, np.float32)
    density = np.zeros(shape[0] * shape[1], np.float32)
    starts, ends, widths = _segments(vessels, center, radius)
    keep = widths >= finest
    starts, ends, widths = starts[keep], ends[keep], widths[keep]
    half = np.maximum(widths, 1.0) / 2
    strength = _strength(widths / radius) * np.minimum(1.0, widths) ** 0.5
    reach = np.ceil(half + 2.0 + np.hypot(*(ends - starts).T) / 2).astype(int)
    for window in np.unique(reach):
        chosen = reach == window
        pixels, owner, distance = _near_segments(starts[chosen], ends[chosen], int(window), shape)
        inside = half[chosen][owner] - distance
        close = inside > -1.5
        pixels, owner, inside = pixels[close], owner[close], inside[close].astype(np.float32)
        np.maximum.at(depth, pixels, inside)
        cover = np.clip(inside + 0.5, 0.0, 1.0)
        np.maximum.at(density, pixels, (strength[chosen][owner] * cover).astype(np.float32))
    return Raster(depth.reshape(shape), density.reshape(shape))


def _strength(widths: np.ndarray) -> np.ndarray:
    """Return the share of light that vessels of these widths take: capillaries are faint."""
    return np.clip(0.2 + 0.8 * (widths - _FINEST) / (0.022 - _FINEST), 0.16, 1.0)


def _segments(
    vessels: Sequence[Vessel], center: Sequence[float], radius: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return start points, end points and widths of all segments in pixels."""
    if not vessels:
        return np.zeros((0, 2)), np.zeros((0, 2)), np.zeros(0)
    stride = max(1, round(_SHORTEST / (_STEP * radius)))
    kept = [np.append(np.arange(0, len(vessel.points) - 1, stride), len(vessel.points) - 1) for vessel in vessels]
    starts = np.concatenate([vessel.points[index[:-1]] for vessel, index in zip(vessels, kept, strict=True)])
    ends = np.concatenate([vessel.points[index[1:]] for vessel, index in zip(vessels, kept, strict=True)])
    widths = np.concatenate([vessel.widths[index[:-1]] for vessel, index in zip(vessels, kept, strict=True)])
    return starts * radius + center, ends * radius + center, widths * radius


def _near_segments(
    starts: np.ndarray, ends: np.ndarray, window: int, shape: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return flat pixel indices, segment indices and distances in a square of +-``window`` around every segment."""
    corner = np.rint((starts + ends) / 2).astype(int)[:, :, None] + np.arange(-window, window + 1)
    rows, columns = corner[:, 0, :, None], corner[:, 1, None, :]
    y, x = rows - starts[:, 0, None, None], columns - starts[:, 1, None, None]
    dy, dx = ((ends - starts)[:, axis, None, None] for axis in (0, 1))
    along = np.clip((y * dy + x * dx) / (dy * dy + dx * dx + 1e-12), 0.0, 1.0)
    distance = np.hypot(y - along * dy, x - along * dx)
    valid = (rows >= 0) & (rows < shape[0]) & (columns >= 0) & (columns < shape[1])
    return (rows * shape[1] + columns)[valid], np.nonzero(valid)[0], distance[valid]


def texture(rng: np.random.Generator, eye: Eye, scale: float) -> np.ndarray:
    """Return noise with mean 0 and deviation 1, and with details of ``scale`` radii of the field of view."""
    pixels = max(1.0, scale * eye.radius)
    if pixels < _COARSE:
        return smooth_noise(rng, eye.shape, pixels).astype(np.float32)
    down, across = (_bumps(size, pixels) for size in eye.shape)
    field = down @ rng.standard_normal((down.shape[1], across.shape[1]), np.float32) @ across.T
    return (field - field.mean()) / (field.std() + 1e-6)


def _bumps(size: int, scale: float) -> np.ndarray:
    """Return a matrix whose columns are Gaussian bumps, ``scale`` pixels apart, along an axis of ``size`` pixels."""
    knots = np.arange(-2.0 * scale, size + 2.0 * scale, scale)
    return np.exp(-0.5 * ((np.arange(size)[:, None] - knots) / scale) ** 2).astype(np.float32)


def absorb(image: np.ndarray, density: np.ndarray, color: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return a color image seen through a layer that takes ``color`` (per channel, in nepers) at density 1."""
    return image * np.exp(density[..., None].astype(np.float32) * -np.asarray(color, np.float32))


def add_vessels(
    rng: np.random.Generator,
    eye: Eye,
    image: np.ndarray,
    vessels: Sequence[Vessel],
    colors: tuple[Sequence[float], Sequence[float]],
    reflex: float = 1.0,
) -> np.ndarray:
    """Return the image darkened by vessels, with a bright reflex along the center of the thick ones.

    Args:
        rng: draws how visible they are from place to place.
        eye: shape of the image and place of the field of view.
        image: what lies behind the vessels.
        vessels: the vessels.
        colors: what thick veins and arteries take of the light, as in :func:`absorb`.
        reflex: strength of the reflex, about 1.
    """
    uneven = 1.0 + 0.12 * texture(rng, eye, 0.12)
    blur = 0.0025 * eye.radius
    for artery, color in enumerate(colors):
        chosen = [vessel for vessel in vessels if vessel.artery == artery]
        density = ndimage.gaussian_filter(paint_vessels(chosen, eye).density, blur)
        cores = [Vessel(v.points, 0.3 * v.widths, v.artery) for v in chosen if v.widths.max() > _CROSSING]
        shine = np.clip(paint_vessels(cores, eye, 0.8).depth + 0.5, 0.0, 1.0)
        bright = reflex * (1.0 if artery else 0.25) * np.array(_REFLEX)
        image = absorb(image, density * uneven, color)
        image = absorb(image, ndimage.gaussian_filter(shine, blur), -bright)
    return image


def paint_fundus(rng: np.random.Generator, eye: Eye, color: np.ndarray, mottled: float, macula: float) -> np.ndarray:
    """Return the background of an eye in ``color``: the mottle of the choroid and the dark macula.

    Args:
        rng: draws the texture.
        eye: shape of the image and place of the fovea.
        color: red, green and blue.
        mottled: strength of the texture.
        macula: darkness of the macula, about 1.
    """
    mottle = mottled * np.sum([weight * texture(rng, eye, scale) for scale, weight in _MOTTLE], axis=0)
    image = absorb(np.asarray(color, np.float32), mottle, (0.45, 0.8, 1.0))
    y, x = eye.grid(eye.fovea)
    off = y**2 + x**2
    return absorb(image, macula * (0.55 * np.exp(-off / 0.045) + 0.45 * np.exp(-off / 0.006)), _PIGMENT)


def illumination(rng: np.random.Generator, eye: Eye) -> np.ndarray:
    """Return the uneven light of the flash: brighter on the disc's side, dim toward the rim of the field of view."""
    y, x = eye.grid()
    up, aside = rng.normal(0.0, 0.09, 2).tolist()
    aside += math.copysign(0.08, eye.disc[1])
    squared = y**2 + x**2
    vignette = 1.0 - rng.uniform(0.08, 0.22) * squared - 0.12 * squared**4
    wander = 0.05 * texture(rng, eye, 0.4)
    return np.clip((1.0 + up * y + aside * x) * vignette + wander, 0.2, 1.25).astype(np.float32)
