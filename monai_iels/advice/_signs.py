# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Signs of errors in labels: numbers that a program can read from labels alone, without their images."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy import ndimage
from scipy.integrate import trapezoid
from skimage.measure import label as connected_parts

from monai_iels.operators.hulls import components_of, fill_hull

_LARGEST_SPECK = {2: 5**2, 3: 4**3}  # a window of noise has a side of up to five pixels in papers, four voxels in 3-D
_LARGEST_SIDE = {2: 1024, 3: 160}  # of the part of a label whose outlines are measured: more takes long and adds little
_SMALLEST_OBJECT = 40  # pixels; the hull of fewer says nothing about dents
_LARGEST_FACTOR = 8  # by which a label may have been enlarged
_FINEST_SMOOTHING = 1.0  # pixels; less, and the steps between pixels count as corners


@dataclasses.dataclass(frozen=True)
class Signs:
    """What can be read from one label; NaN where it cannot be measured.

    Args:
        specks: share of the image in tiny islands and holes.
        breadth: twice the area of the objects by the length of their outlines, in pixels; a disc's radius.
        wiggles: how much outlines turn inward, per length, times ``breadth``; 0 for convex objects.
        straightness: the Gini coefficient of the curvature along outlines: low for a disc, high if few places turn.
        corners: the skewness of that curvature: high if outlines turn sharply outward, and slowly or never inward.
        dents: share of the outline of the objects' convex hulls that is far away from the objects.
        gaps: share of the objects' area that smoothing would add to them.
        slices: in 3-D, how much more neighbors differ along one axis than along the others.
        axis: that axis, of slices.
    """

    specks: float
    breadth: float = math.nan
    wiggles: float = math.nan
    straightness: float = math.nan
    corners: float = math.nan
    dents: float = math.nan
    gaps: float = math.nan
    slices: float = math.nan
    axis: int = -1


def reduced(label: np.ndarray) -> tuple[np.ndarray, int]:
    """Return a label that was enlarged by a whole number as it was before, and this number.

    Enlarged outlines are stairs, which would look ragged.

    Example:
        >>> import numpy as np
        >>> small = np.eye(4, dtype=int)
        >>> again, factor = reduced(np.kron(small, np.ones((3, 3), int)))
        >>> np.array_equal(again, small), factor
        (True, 3)
    """
    for factor in range(min(_LARGEST_FACTOR, *label.shape), 1, -1):
        small, block = label[(slice(None, None, factor),) * label.ndim], np.ones((factor,) * label.ndim, label.dtype)
        if small.any() and np.array_equal(np.kron(small, block), label):  # never if the sizes are no multiples
            return small, factor
    return label, 1


def measure(label: np.ndarray, spacing: Sequence[float], specks: np.ndarray | None = None) -> Signs:
    """Return the signs of one label.

    Args:
        label: class numbers in 2-D or 3-D; 0 is the background.
        spacing: distance between pixels along each axis.
        specks: what :func:`specks_of` returns, if it is known already.

    Example:
        >>> import numpy as np
        >>> y, x = np.ogrid[:64, :64]
        >>> disc = ((y - 32) ** 2 + (x - 32) ** 2 < 400).astype(np.uint8)
        >>> found = measure(disc, (1.0, 1.0))
        >>> found.specks, abs(found.breadth - 20) < 1, found.dents
        (0.0, True, 0.0)
    """
    specks = specks_of(label) if specks is None else specks
    share = float(specks.mean())
    objects = objects_of(label, specks)
    if not objects.any() or objects.all():
        return Signs(share)
    axes = range(objects.ndim if objects.ndim == 3 else 0)  # an image has no slices
    jags = [float(odd_slices(objects, spacing, axis).sum() / objects.sum()) for axis in axes]
    axis = _slice_axis(jags, spacing)
    planes = _planes_of(objects, axis)
    _, length = _bends(planes, _FINEST_SMOOTHING)
    breadth = 2 * float(planes.sum()) / max(float(length.sum()), 1.0)
    bend, length = _bends(planes, max(_FINEST_SMOOTHING, breadth / 16))
    return Signs(
        share,
        breadth,
        breadth * _mean(np.clip(-bend, 0, None), length),
        _gini(np.abs(bend), length),
        _mean(bend**3, length) / max(_mean(bend**2, length), 1e-12) ** 1.5,
        _dents(planes),
        float((smoothed(objects) & ~objects).sum() / objects.sum()),
        _disagreement(jags),
        axis,
    )


def specks_of(label: np.ndarray) -> np.ndarray:
    """Return where a label has tiny islands of a class, or tiny holes; what is small beside it is no speck.

    Example:
        >>> import numpy as np
        >>> label = np.zeros((8, 8), int)
        >>> label[2:7, 2:7] = 1
        >>> label[4, 4], label[0, 0] = 0, 1
        >>> np.argwhere(specks_of(label)).tolist()
        [[0, 0], [4, 4]]
    """
    connectivity = 2 if label.ndim == 2 else 1  # in 3-D, corners would join most noise
    parts = connected_parts(label, background=-1, connectivity=connectivity)
    sizes = np.bincount(parts.ravel())
    largest = np.bincount(parts[label > 0], minlength=1).max()
    return (sizes <= min(_LARGEST_SPECK[label.ndim], largest / 10))[parts]


def objects_of(label: np.ndarray, specks: np.ndarray) -> np.ndarray:
    """Return the foreground without specks, or the part around its center if the label is huge."""
    window = middle_of(label)
    objects, specks = (label > 0)[window], specks[window]
    if not specks.any() or specks.all():
        return objects
    nearest = ndimage.distance_transform_edt(specks, return_distances=False, return_indices=True)
    return objects[tuple(nearest)]


def middle_of(label: np.ndarray) -> tuple[slice, ...]:
    """Return the part of a label whose outlines are measured: all, or what is around its center if it is huge."""
    side, middle = _LARGEST_SIDE[label.ndim], [0.0] * label.ndim
    if label.any():
        middle = ndimage.center_of_mass(label > 0)
    starts = [max(0, min(int(at) - side // 2, size - side)) for at, size in zip(middle, label.shape, strict=True)]
    return tuple(slice(start, start + side) for start in starts)


def odd_slices(objects: np.ndarray, spacing: Sequence[float], axis: int) -> np.ndarray:
    """Return which voxels differ from both of their neighbors along an axis.

    The neighbors along all axes are as far away as those along the coarsest one.
    """
    step = max(1, round(max(spacing) / spacing[axis]))
    width = [(step, step) if other == axis else (0, 0) for other in range(objects.ndim)]
    wide = np.moveaxis(np.pad(objects, width, mode="edge"), axis, 0)
    before, here, after = wide[: -2 * step], wide[step:-step], wide[2 * step :]
    return np.moveaxis((here != before) & (here != after), 0, axis)


def _slice_axis(jags: Sequence[float], spacing: Sequence[float]) -> int:
    """Return along which axis slices lie: the most jagged axis if one clearly is, else the thickest, or the last."""
    if jags and _disagreement(jags) > 2:
        return int(np.argmax(jags))
    return int(np.argmax(spacing)) if jags and max(spacing) > 1.5 * min(spacing) else -1


def _disagreement(jags: Sequence[float]) -> float:
    """Return how many times more jagged the first axis is than the second; 0.01 keeps the ratio of tiny ones low."""
    if not jags:
        return math.nan
    *_, second, first = sorted(jags)
    return (first + 0.01) / (second + 0.01)


def _planes_of(objects: np.ndarray, axis: int) -> np.ndarray:
    """Return an image, or the slices of a volume with much of its objects, as ``(slices, height, width)``."""
    if objects.ndim == 2:
        return objects[None]
    planes = np.moveaxis(objects, axis, 0)
    areas = planes.sum((1, 2))
    return planes[2 * areas >= areas.max()]


def _bends(planes: np.ndarray, sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """Return curvature, positive where convex, and length at points of the outlines.

    The outlines are those of the slices smoothed by a Gaussian, at levels from a quarter to three quarters.
    """
    u = ndimage.gaussian_filter(planes.astype(np.float32), (0, sigma, sigma), mode="nearest")
    dy, dx = _gradient(u)
    (dyy, dyx), (_, dxx) = _gradient(dy), _gradient(dx)
    steep = np.sqrt(dx**2 + dy**2)
    on_outline = (np.abs(u - 0.5) < 0.25) & (steep > 0.02 / sigma)
    dy, dx, dyy, dyx, dxx, steep = (values[on_outline] for values in (dy, dx, dyy, dyx, dxx, steep))
    bend = -(dxx * dy**2 - 2 * dx * dy * dyx + dyy * dx**2) / steep**3
    return np.clip(bend, -1 / sigma, 1 / sigma), 2 * steep


def _gradient(planes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return central differences along the last two axes, with replicated edges, also for a single row."""
    return tuple(ndimage.correlate1d(planes, [-0.5, 0, 0.5], axis=axis, mode="nearest") for axis in (1, 2))


def _mean(values: np.ndarray, weights: np.ndarray) -> float:
    return float((values * weights).sum() / max(float(weights.sum()), 1e-12))


def _gini(values: np.ndarray, weights: np.ndarray) -> float:
    """Return 0 if all values are equal, and nearly 1 if few hold nearly all of their sum."""
    order = np.argsort(values)
    values, weights = values[order].astype(float), weights[order].astype(float)
    share, held = (np.concatenate([[0], np.cumsum(each)]) for each in (weights, values * weights))
    return float(1 - 2 * trapezoid(held, share) / (held[-1] * share[-1])) if held[-1] else math.nan


def _dents(planes: np.ndarray) -> float:
    """Return the share of the hulls' outlines that is an eighth of their radius, or two pixels, from the objects."""
    far = []
    for plane in planes:
        for _, component in components_of(plane):
            if component.sum() >= _SMALLEST_OBJECT:
                padded = np.pad(component, 1)
                hull = fill_hull(padded)
                outline = hull & ~ndimage.binary_erosion(hull)
                distance = ndimage.distance_transform_edt(~padded)[outline]
                far.append(distance >= max(2, math.sqrt(hull.sum() / math.pi) / 8))
    return float(np.concatenate(far).mean()) if far else math.nan


def smoothed(objects: np.ndarray) -> np.ndarray:
    """Return objects after a Gaussian of a quarter of their breadth, which fills notches, slits and holes."""
    area = sum(int(np.abs(np.diff(objects.astype(np.int8), axis=axis)).sum()) for axis in range(objects.ndim))
    breadth = objects.ndim * float(objects.sum()) / max(1.0, 0.75 * area)  # a staircase is a third longer, or more
    sigma = min(max(1.5, breadth / 4), max(objects.shape))  # objects that fill an image have hardly any outline
    smooth: np.ndarray = ndimage.gaussian_filter(objects.astype(np.float32), sigma, mode="nearest") > 0.5
    return smooth


class Repeats:
    """Whether specks lie at the same places in labels of the same size: their correlation, 0 if by chance."""

    def __init__(self) -> None:
        self._sums: dict[tuple[int, ...], np.ndarray] = {}
        self._shares: dict[tuple[int, ...], list[float]] = {}

    def add(self, specks: np.ndarray) -> None:
        """Add the specks of one label."""
        total = self._sums.setdefault(specks.shape, np.zeros(specks.shape, np.uint16))
        total += specks
        self._shares.setdefault(specks.shape, []).append(float(specks.mean()))

    def correlation(self) -> float:
        """Return the mean correlation between the specks of two labels; NaN if no two have specks and the same size."""
        both = expected = largest = 0.0
        for shape, total in self._sums.items():
            shares, counts = np.array(self._shares[shape]), total.astype(float)
            both += float((counts * (counts - 1)).sum())
            expected += _over_pairs(shares) * total.size
            largest += _over_pairs(np.sqrt(shares * (1 - shares))) * total.size
        return (both - expected) / largest if largest else math.nan


def _over_pairs(values: np.ndarray) -> float:
    """Return the sum of the products of each value and each other one."""
    return float(values.sum() ** 2 - (values**2).sum())
