# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The retina that the DRIVE and REFUGE drawings share: a branching vessel tree, the fundus behind it and the light.

Lengths are in radii of the circular field of view, with the origin at its center.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw
from scipy import interpolate, ndimage

from monai_iels.drawings._shapes import Array, Canvas, Numbers

_STEP = 0.022  # length of one segment of a vessel
_FINEST = 0.0042  # width at which growth ends, about one pixel in DRIVE
_CROSSING = 0.014  # width above which a branch crosses vessels in its way
_FINER = 4  # vessels are drawn on an image so many times finer, so that their walls lie between pixels

# The trunks in one quarter of the retina: waypoints (up, toward the macula) from the disc, relative width and chance.
# Temporal arcade, nasal arcade, small vessels to the macula.
_TRUNKS = (
    (((0, -0.03), (0.16, 0.0), (0.36, 0.15), (0.53, 0.45), (0.56, 0.85), (0.45, 1.25), (0.3, 1.7)), 1.0, 1.0),
    (((0, -0.03), (0.11, -0.1), (0.27, -0.2), (0.5, -0.28), (0.8, -0.4), (1.1, -0.5)), 0.72, 1.0),
    (((0.02, 0.03), (0.05, 0.15), (0.09, 0.28), (0.1, 0.4), (0.07, 0.52)), 0.35, 0.4),
)


class Vessel(NamedTuple):
    """One unbranched vessel: its center line (n, 2), its width at each point and whether it is an artery."""

    points: Array
    widths: Array
    artery: bool


@dataclass(frozen=True, kw_only=True)
class Eye(Canvas):
    """An empty photograph of an eye.

    Attributes:
        disc: row and column of the optic disc.
        fovea: row and column of the center of the macula.
        temporal: side of the disc on which the macula lies: -1 for left, 1 for right.
    """

    disc: Array
    fovea: Array
    temporal: float


def grow_vessels(eye: Eye, caliber: float, density: float) -> list[Vessel]:
    """Grow the arteries and veins of a retina from its optic disc, main trunks first.

    Args:
        eye: where optic disc and fovea lie.
        caliber: factor for all widths.
        density: factor for the number of side branches.
    """
    rng, tree = eye.rng, _Tree(eye, _FINEST * caliber, 0.14 / density)
    for up in (-1.0, 1.0):  # the lower half of the retina mirrors the upper one
        frame = np.array([up * rng.uniform(0.85, 1.1), eye.temporal])
        for waypoints, share, chance in _TRUNKS:
            veer = rng.choice([-0.1, 0.1])  # the artery runs inside or outside of its vein
            for artery, side in ((False, -1), (True, 1)):
                way = np.array(waypoints) * [1.0 + side * veer + rng.normal(0, 0.06), 1.0] + [0.0, 0.02 * side]
                way[1:] += rng.normal(0, 0.02, way[1:].shape)  # all leave the disc from one place
                # The widest is a vein at the disc.
                width = caliber * 0.034 * share * (0.74 if artery else 1.0) * rng.uniform(0.85, 1.08)
                if rng.random() < chance:
                    tree.add(_trunk(eye, eye.disc + frame * way, width, artery), bare=0.12)  # none branches on the disc
    tree.grow()
    return tree.vessels


def _trunk(eye: Eye, way: Array, width: float, artery: bool) -> Vessel:
    """Return a gently meandering vessel along waypoints, tapering and ending at the rim of the field of view."""
    position = np.cumsum(np.hypot(*np.diff(way, axis=0, prepend=way[:1]).T))
    along = np.arange(0.0, position[-1], _STEP)
    meander = ndimage.gaussian_filter1d(eye.rng.standard_normal((len(along), 2)), 3.0, axis=0)
    points = interpolate.CubicSpline(position, way)(along) + 0.02 * meander * np.minimum(1.0, along / 0.2)[:, None]
    # It emerges from the depth of the cup and becomes thinner from there.
    widths = width * np.minimum(1.0, 0.7 + along / 0.2) * (1.0 - 0.3 * along) * eye.rng.normal(1.0, 0.04, len(along))
    inside = max(2, int(np.argmax(np.append(np.hypot(*points.T) > 1.02, True))) + 1)
    return Vessel(points[:inside], np.maximum(widths[:inside], _FINEST), artery)


class _Tree:
    """Vessels that branch into the free space between them."""

    def __init__(self, eye: Eye, finest: float, spacing: float) -> None:
        self.rng, self.fovea, self.finest, self.spacing = eye.rng, eye.fovea, finest, spacing
        self.vessels: list[Vessel] = []
        self.sprouts: list[tuple] = []  # width, start, heading and parent of each branch that waits to grow
        self.owners: dict[tuple[int, int], int] = {}

    def add(self, vessel: Vessel, bare: float = 0.0) -> None:
        """Add a vessel, claim its space, and queue side branches beyond a ``bare`` length and the fork at its end."""
        rng, own = self.rng, len(self.vessels)
        self.vessels.append(vessel)
        for point in vessel.points:
            self.owners.setdefault(_cell(point), own)
        headings = np.arctan2(*np.diff(vessel.points, axis=0).T)
        branches = [(-1, turn * rng.uniform(0.2, 0.6), rng.uniform(0.65, 0.9)) for turn in (-1.0, 1.0)]
        side, at = rng.choice((-1.0, 1.0)), bare + rng.uniform(0.3, 1.0) * self.spacing
        while (index := int(at / _STEP)) < len(headings) - 1:
            share = rng.uniform(0.32, 0.65) if rng.random() < 0.75 else rng.uniform(0.62, 0.85)
            branches.append((index, side * rng.uniform(0.45, 1.05), share))
            side = -side if rng.random() < 0.75 else side
            at += self.spacing * rng.uniform(0.6, 1.5)
        for index, turn, share in branches:
            if share * vessel.widths[index] > self.finest:
                self.sprouts.append((share * vessel.widths[index], vessel.points[index], headings[index] + turn, own))

    def grow(self) -> None:
        """Grow the waiting branches, thickest first, and theirs in turn."""
        while self.sprouts:
            self.sprouts.sort(key=lambda sprout: sprout[0])
            width, start, heading, parent = self.sprouts.pop()
            points = self._walk(start, heading, width, parent)
            if len(points) > 4 + 250.0 * width:  # a thick stump would look torn off
                widths = np.linspace(width, max(self.finest, 0.55 * width), len(points))
                self.add(Vessel(np.array(points), widths, self.vessels[parent].artery))

    def _walk(self, point: Array, heading: float, width: float, parent: int) -> list[Array]:
        """Return the center line of a branch that winds along until space or length runs out."""
        rng, points = self.rng, [point]
        steps = int(rng.uniform(0.6, 1.4) * (0.16 + 26.0 * width) / _STEP)
        for number, turn in enumerate(rng.normal(rng.normal(0.0, 0.03), 0.11, steps)):
            # Branches tend toward the fovea within the arcades, and outward beyond them.
            toward = self.fovea - point
            goal, pull = (toward, 0.05) if math.hypot(*toward) < 0.5 else (point, 0.03)
            heading += turn + pull * math.sin(math.atan2(*goal) - heading)
            for aside in (0.3, -0.6):
                if number > 2 and self._taken(_ahead(point, heading, 2.5), parent, 0.0):
                    heading += aside
            point = _ahead(point, heading, 1.0)
            # Nothing grows outside the field of view and at the fovea.
            barren = math.hypot(*point) > 1.02 or math.hypot(*(point - self.fovea)) < 0.11
            if barren or (number > 2 and self._taken(point, parent, width)):
                break
            points.append(point)
        return points

    def _taken(self, point: Array, parent: int, width: float) -> bool:
        """Return whether another vessel is in the way: only thick branches cross others, and only the other kind."""
        owner = self.owners.get(_cell(point), parent)
        crosses = width > _CROSSING and self.vessels[owner].artery != self.vessels[parent].artery
        return owner != parent and not crosses


def _cell(point: Array) -> tuple[int, int]:
    """Return the cell that ``point`` lies in: vessels keep out of each other's cells."""
    return math.floor(point[0] / 0.045), math.floor(point[1] / 0.045)


def _ahead(point: Array, heading: float, steps: float) -> Array:
    """Return the point so many ``steps`` farther."""
    return point + steps * _STEP * np.array([math.sin(heading), math.cos(heading)])


def paint_vessels(eye: Eye, vessels: list[Vessel], finest: float = 0.0, evenly: bool = False) -> Array:
    """Return what share of light the vessels take; none becomes thinner than a pixel, but the thin ones become faint.

    Args:
        eye: the photograph.
        vessels: what to draw.
        finest: width in pixels below which a vessel is left out.
        evenly: whether all vessels take all light, so that the result is the share of each pixel that they cover.
    """
    fine = Image.new("L", (_FINER * eye.shape[1], _FINER * eye.shape[0]))
    draw = ImageDraw.Draw(fine)
    segments = []
    for points, widths, _ in vessels:
        pixels = ((points * eye.unit + eye.origin + 0.5) * _FINER).tolist()
        segments += list(zip(widths.tolist(), pixels[:-1], pixels[1:], strict=False))
    for caliber, (y, x), (row, column) in sorted(segments):
        across = caliber * float(eye.unit)
        if across >= finest:
            # Capillaries are faint, and so is what is thinner than a pixel.
            strength = 1.0 if evenly else min(1.0, 0.2 + 45.0 * max(0.0, caliber - _FINEST)) * min(1.0, across) ** 0.5
            ink, wide = int(255 * strength), _FINER * max(across, 1.0)
            draw.line((x, y, column, row), ink, round(wide))
            half = (wide - 1.0) / 2
            draw.ellipse((column - half, row - half, column + half, row + half), ink)
    return np.asarray(fine.reduce(_FINER)) / np.float32(255.0)


def absorb(image: Array, density: Array, color: Numbers) -> Array:
    """Return a color image seen through a layer that takes ``color`` (per channel, in nepers) at density 1."""
    return image * np.exp(-np.multiply.outer(density, np.asarray(color, np.float32)))


def add_vessels(eye: Eye, image: Array, vessels: list[Vessel], colors: tuple[Numbers, Numbers], reflex: float) -> Array:
    """Return the image darkened by vessels, with a bright reflex along the center of the thick ones.

    Args:
        eye: the photograph.
        image: what lies behind the vessels.
        vessels: the vessels.
        colors: what thick veins and thick arteries take of the light, as in :func:`absorb`.
        reflex: strength of the reflex, about 1.
    """
    uneven = 1.0 + 0.12 * eye.noise(0.12)
    blur = 0.0025 * float(eye.unit)
    for artery, color in enumerate(colors):
        chosen = [vessel for vessel in vessels if vessel.artery == artery]
        image = absorb(image, uneven * ndimage.gaussian_filter(paint_vessels(eye, chosen), blur), color)
        cores = [vessel._replace(widths=0.3 * vessel.widths) for vessel in chosen if vessel.widths.max() > _CROSSING]
        shine = ndimage.gaussian_filter(paint_vessels(eye, cores, 0.8, evenly=True), blur)
        image = absorb(image, -reflex * (1.0 if artery else 0.25) * shine, (0.15, 0.23, 0.15))
    return image


def paint_fundus(eye: Eye, color: Numbers, mottled: float, macula: float) -> Array:
    """Return the background of an eye in ``color``: the mottle of the choroid and the dark macula."""
    mottle = np.zeros(eye.shape, np.float32)
    for scale, weight in ((0.2, 0.5), (0.06, 0.35), (0.025, 0.3), (0.01, 0.25)):
        mottle += mottled * weight * eye.noise(scale)
    off = np.hypot(*eye.offsets(eye.fovea))
    pigment = macula * (0.55 * np.exp(-((off / 0.21) ** 2)) + 0.45 * np.exp(-((off / 0.077) ** 2)))
    return absorb(absorb(np.asarray(color, np.float32), mottle, (0.45, 0.8, 1.0)), pigment, (0.34, 0.48, 0.42))


def expose(eye: Eye, image: Array, brightness: float) -> Array:
    """Return colors from 0 to 1 under the uneven light of the flash: brighter at the disc, dim toward the rim."""
    y, x = eye.offsets()
    squared = y**2 + x**2
    vignette = 1.0 - eye.rng.uniform(0.08, 0.22) * squared - 0.12 * squared**4
    slope = 1.0 + eye.rng.normal(0.0, 0.09) * y + eye.rng.normal(-0.08 * eye.temporal, 0.09) * x
    light = brightness * np.clip(slope * vignette + 0.05 * eye.noise(0.4), 0.2, 1.25)
    return 1.0 - np.exp(-2.25 * (light[..., None] * image) ** 1.35)  # saturates softly, as the red channel does
