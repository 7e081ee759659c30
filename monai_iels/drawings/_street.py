# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""A three-dimensional street, seen by a camera that looks along it: solid things are painted and labeled at once.

World coordinates are in meters: ``across`` to the right of the camera, ``up`` from the road, ``ahead`` of the camera.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import spatial

from monai_iels.drawings._shapes import Array, Canvas, Numbers, Rng, blend, soft_step

# All lengths on the picture are in pixels of a picture of this height.
REFERENCE_HEIGHT = 256.0
FOCAL_LENGTH = 520.0
CAMERA = 1.35  # meters above the road

# The official label ids. The first ones, and parking and rail track, are ignored in training.
UNLABELED, EGO, RECTIFICATION, OUT_OF_ROI, STATIC, DYNAMIC, GROUND, ROAD, SIDEWALK, PARKING, RAILS = range(11)
BUILDING, WALL, FENCE, POLE, LIGHT, SIGN = 11, 12, 13, 17, 19, 20
VEGETATION, TERRAIN, SKY, PERSON, RIDER = range(21, 26)
CAR, TRUCK, BUS, TRAIN, MOTORCYCLE, BICYCLE = 26, 27, 28, 31, 32, 33


@dataclass
class Street:
    """A picture in the making, its label, and the camera's view of the street.

    Attributes:
        canvas: the empty picture, in reference pixels.
        horizon: row of the horizon.
        center: column of the vanishing point.
        edges: where the road ends to the left (negative) and to the right.
        walks: where the sidewalks end and the facades begin.
        haze: color of far things and of the lower sky.
        sun: brightness of a surface that faces right, relative to one that faces the camera.
    """

    canvas: Canvas
    horizon: float
    center: float
    edges: tuple[float, float]
    walks: tuple[float, float]
    haze: Array
    sun: float
    image: Array = field(init=False)
    label: Array = field(init=False)
    leaves: Array = field(init=False)

    def __post_init__(self) -> None:
        self.image = np.zeros((*self.canvas.shape, 3), np.float32)
        self.label = np.zeros(self.canvas.shape, np.uint8)
        self.leaves = self.canvas.noise(2.5) + 0.8 * self.canvas.noise(6.0)

    @property
    def rng(self) -> Rng:
        """Return what draws everything that varies."""
        return self.canvas.rng

    def project(self, points: Array) -> Array:
        """Return the rows and columns of points (across, up, ahead)."""
        scale = FOCAL_LENGTH / points[:, 2]
        return np.stack([self.horizon + (CAMERA - points[:, 1]) * scale, self.center + points[:, 0] * scale], 1)

    def veil(self, color: float | Numbers, ahead: float | Array) -> Array:
        """Return a color as it looks from afar."""
        clear = np.exp(-np.asarray(ahead) / 160.0)[..., None]
        return np.asarray(color) * clear + self.haze * (1 - clear)

    def fill(
        self,
        points: Sequence[Numbers] | Array,
        color: Numbers,
        label: int | None,
        opacity: float = 1.0,
        ring: float | None = None,
        void: float = 0.0,
    ) -> None:
        """Paint the convex hull of some points, at least a pixel wide.

        Args:
            points: (across, up, ahead) of each point.
            color: its color from near.
            label: its label id; nothing leaves the label as it is, as for a shadow.
            opacity: 1 hides what is behind.
            ring: paint only the outline, this wide in meters; the label is of all of it.
            void: width of an unlabeled border around it.
        """
        world = np.asarray(points, float)
        pixel = 1 / float(self.canvas.unit)
        corners = pixel / 2 * np.array([(-1, -1), (-1, 1), (1, -1), (1, 1)])
        outline = (self.project(world)[:, None] + corners).reshape(-1, 2)
        middle = (outline.min(0) + outline.max(0)) / 2
        window = self.canvas.window(middle, np.ptp(outline, axis=0) / 2 + 3 * pixel + void)
        rows, columns = self.canvas.offsets(0.0, window)
        if rows.size == 0 or columns.size == 0:
            return
        edges = [a * rows + b * columns + c for a, b, c in spatial.ConvexHull(outline).equations]
        inside = -np.maximum.reduce(edges)
        cover = opacity * soft_step(inside, 1.2 * pixel)
        if ring is not None:
            cover *= soft_step(max(ring * FOCAL_LENGTH / world[:, 2].mean(), pixel) - inside, 1.2 * pixel)
        blend(self.image[window], self.veil(color, world[:, 2].mean()), cover)
        if label is not None:
            part = self.label[window]
            part[(inside > -void) & (inside <= 0) & (part != label)] = UNLABELED  # not between parts of one thing
            part[inside > 0] = label

    def box(self, low: Numbers, high: Numbers, color: Numbers, label: int, void: float = 0.0) -> None:
        """Paint a box from its lowest to its highest (across, up, ahead): the face to the camera, and one side."""
        corners = np.array([(x, y, z) for x in (low[0], high[0]) for y in (low[1], high[1]) for z in (low[2], high[2])])
        light = self.sun if low[0] + high[0] < 0 else 2 - self.sun
        self.fill(corners, np.multiply(color, light), label, void=void)
        self.fill(corners[corners[:, 2] == low[2]], color, label)


def face(left: float, right: float, bottom: float, top: float, ahead: float) -> list[tuple[float, float, float]]:
    """Return the corners of a rectangle that faces the camera."""
    return [(left, bottom, ahead), (right, bottom, ahead), (right, top, ahead), (left, top, ahead)]


def side(across: float, bottom: float, top: float, near: float, far: float) -> list[tuple[float, float, float]]:
    """Return the corners of a rectangle that faces left or right."""
    return [(across, bottom, near), (across, top, near), (across, top, far), (across, bottom, far)]


def disk(across: float, up: float, ahead: float, radius: float, heading: float = 0.0) -> Array:
    """Return the outline of an upright disk; ``heading`` turns it from facing the camera to facing right."""
    angle = np.linspace(0, 2 * np.pi, 14, endpoint=False)
    along = radius * np.cos(angle)
    return np.stack(
        [across + np.cos(heading) * along, up + radius * np.sin(angle), ahead + np.sin(heading) * along], axis=1
    )
