# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Shapes, textures and paint that all drawings share."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

Array = np.ndarray
Rng = np.random.Generator
Numbers = Sequence[float] | np.ndarray
Window = tuple[slice, ...]


@dataclass(frozen=True)
class Canvas:
    """An empty image with a unit of length, so that a drawing need not know how many pixels the image has.

    Attributes:
        rng: draws everything that varies.
        shape: number of pixels along each axis.
        unit: pixels per unit of length, for all axes or for each one.
        origin: position of the coordinates' origin in pixels.
    """

    rng: Rng
    shape: tuple[int, ...]
    unit: float | Array = 1.0
    origin: float | Array = 0.0

    def offsets(self, place: float | Numbers = 0.0, window: Window | None = None) -> list[Array]:
        """Return how far all pixels (or those in ``window``) lie from ``place``, one open array per axis."""
        axes = np.ogrid[window or tuple(map(slice, self.shape))]
        places = np.broadcast_to(np.multiply(place, self.unit) + self.origin, len(axes))
        units = np.broadcast_to(self.unit, len(axes))
        return [np.float32((axis - pixel) / unit) for axis, pixel, unit in zip(axes, places, units, strict=True)]

    def window(self, center: Numbers, reach: float | Numbers) -> Window:
        """Return the part of the image within ``reach`` of ``center``; it may be empty."""
        middle, away = np.multiply(center, self.unit) + self.origin, np.multiply(reach, self.unit)
        low, high = (np.clip(corner, 0, self.shape).astype(int) for corner in (middle - away, middle + away + 2))
        return tuple(map(slice, low, high))

    def noise(self, scale: float | Numbers) -> Array:
        """Return a random field with mean 0, deviation 1 and details of about ``scale``: a sum of Gaussian bumps."""
        widths = np.maximum(np.broadcast_to(np.multiply(scale, self.unit), len(self.shape)), 0.5)
        knots = [np.arange(-2 * width, n + 2 * width, width) for n, width in zip(self.shape, widths, strict=True)]
        field = self.rng.standard_normal([len(places) for places in knots])
        for n, places, width in zip(self.shape, knots, widths, strict=True):
            bumps = np.exp(-0.5 * ((np.arange(n) - places[:, None]) / width) ** 2)
            field = np.tensordot(field, bumps, (0, 0))  # the first axis becomes the last, until all had their turn
        return np.float32((field - field.mean()) / (field.std() + 1e-12))

    def blob(self, center: Numbers, radii: Numbers, angle: float, wobble: float, window: Window | None = None) -> Array:
        """Return a wobbly ellipse as an approximate signed distance, positive inside.

        Args:
            center: row and column of the center.
            radii: the two half axes.
            angle: rotation in radians.
            wobble: depth of its dents relative to the radius.
            window: part of the image to draw; all of it by default.
        """
        y, x = self.offsets(center, window)
        u = (np.cos(angle) * y + np.sin(angle) * x) / radii[0]
        v = (np.cos(angle) * x - np.sin(angle) * y) / radii[1]
        theta = np.arctan2(v, u)
        outline = np.ones_like(theta)
        for k in range(2, 6):
            phase = self.rng.uniform(0, 2 * np.pi)
            outline += wobble * self.rng.standard_normal() / k * np.cos(k * theta + phase)
        return (outline - np.hypot(u, v)) * min(radii)

    def spots(self, places: Array, sizes: float | Array, softness: float) -> Array:
        """Return the opacity of ragged spots with the given centers and radii."""
        cover = np.zeros(self.shape)
        for place, size in zip(places, np.broadcast_to(sizes, len(places)), strict=True):
            window = self.window(place, 2.0 * size + softness)
            radii, angle = (size, size * self.rng.uniform(0.6, 1.0)), self.rng.uniform(0, np.pi)
            spot = soft_step(self.blob(place, radii, angle, 0.25, window), softness)
            cover[window] = np.maximum(cover[window], self.rng.uniform(0.6, 1.0) * spot)
        return cover


def soft_step(field: Array, width: float = 1.0) -> Array:
    """Return a smooth step from 0 (far negative) to 1 (far positive) that rises over about ``width``."""
    return special.expit(4.0 * field / width)


def ridge(field: Array, width: float) -> Array:
    """Return 1 where ``field`` is 0, falling to 0 on both sides within about ``width``."""
    return np.exp(-((field / width) ** 2))


def polar(center: Numbers, radius: float, angle: float) -> Array:
    """Return the point at ``radius`` and ``angle`` from ``center``."""
    return np.add(center, radius * np.array([np.cos(angle), np.sin(angle)]))


def blend(image: Array, color: float | Numbers, opacity: Array) -> None:
    """Lay ``color`` (one for all or one per pixel) over ``image`` in place."""
    image += (color - image) * (opacity if opacity.ndim == image.ndim else opacity[..., None])


def to_bytes(image: Array) -> Array:
    """Return an image with values from 0 to 255 as 8-bit integers."""
    return np.clip(np.rint(image), 0, 255).astype(np.uint8)
