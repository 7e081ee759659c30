# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Connected components of pixels, and their convex hulls."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy import ndimage
from scipy.spatial import ConvexHull


def components_of(mask: np.ndarray) -> Iterator[tuple[tuple[slice, ...], np.ndarray]]:
    """Yield the box of each connected component, and the component in it; pixels that touch in a corner are one."""
    if not mask.any():
        return
    (whole,) = ndimage.find_objects(mask.astype(np.uint8))  # most classes of a large image fill a small part of it
    numbers, _ = ndimage.label(mask[whole], np.ones((3,) * mask.ndim))
    for number, box in enumerate(ndimage.find_objects(numbers), start=1):
        place = tuple(slice(w.start + b.start, w.start + b.stop) for w, b in zip(whole, box, strict=True))
        yield place, numbers[box] == number


def hull_volume(component: np.ndarray) -> float:
    """Return the area or volume of the hull through the corners of the pixels."""
    return component.size if component.all() else _hull(component, side=1.0).volume


def fill_hull(component: np.ndarray) -> np.ndarray:
    """Return the pixels whose centers are in the hull of the component's centers; what is convex stays as it is."""
    filled = component.copy()
    outside = np.argwhere(~component)
    if len(outside):
        # A power of two, so that sums are exact, and below the distance of a center from a plane through three others.
        side = 0.5 ** math.ceil(math.log2(4 * max(component.shape) ** 2))
        for *normal, offset in _hull(component, side).equations:
            outside = outside[outside @ normal <= -offset]
        filled[tuple(outside.T)] = True
    return filled


def _hull(component: np.ndarray, side: float) -> ConvexHull:
    """Return the hull of squares or cubes around the pixels' centers; the ends of each row of pixels are enough."""
    *rows, last = component.shape
    filled = np.argwhere(component.any(-1))
    first = component.argmax(-1)[tuple(filled.T)] - side / 2
    end = last - 1 - component[..., ::-1].argmax(-1)[tuple(filled.T)] + side / 2
    corners = side * (np.indices((2,) * len(rows)).reshape(len(rows), -1).T - 0.5)
    sides = (filled[:, None] + corners).reshape(-1, len(rows))
    ends = np.concatenate([first, end]).repeat(len(corners))
    return ConvexHull(np.column_stack([np.tile(sides, (2, 1)), ends]))
