# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Errors that people make when they draw labels, and those that papers compare methods on.

Each depends only on the seed, the label's file name and its values, not on the order of calls or the process. So it may
come before a cache.

Distances are in the unit of the label's spacing: millimeters if its file has them, otherwise pixels. Where outlines are
changed one by one, the outline of the whole foreground comes first, and what it gains gets the nearest class. Then come
the borders between classes: that between class ``k`` or higher and the lower ones, for each ``k``.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from monai.utils import optional_import
from scipy import ndimage

from monai_iels.grid import check_number, check_whole
from monai_iels.operators.hulls import components_of
from monai_iels.transforms.array import LabelError, LabelTransform, identity_of, nearest

measure, _ = optional_import("skimage.measure")
draw, _ = optional_import("skimage.draw")

_Change = Callable[[np.ndarray], np.ndarray]


@dataclass
class WobbleLabel(LabelError):
    r"""Move outlines by a smooth random field: a hand that wobbles, a label that is shifted, slices that disagree.

    The label is read at :math:`x + d(x)`. Each component of :math:`d` is Gaussian noise, smoothed over ``length``, and
    the root of its mean square over the image is ``size``. So classes move together, and nothing tears where ``length``
    is several times ``size``.

    Args:
        size: how far outlines move along each axis, as a root mean square.
        length: over which length neighboring points move alike; ``math.inf`` shifts the label as a whole.
        slices: the axis of slices, such as -1, if each slice has a field of its own, within its plane. Slices then
            disagree, as those do that were drawn one by one.
        seed: another seed gives another field.
        ignore_index: label value of pixels without a class; they keep it.

    Raises:
        ValueError: if ``size`` is negative, or ``length`` is not positive.

    Example:
        >>> import torch
        >>> from monai_iels import WobbleLabel
        >>> label = torch.zeros(1, 32, 32)
        >>> label[:, 8:24, 8:24] = 1
        >>> wobbled = WobbleLabel(size=2.0, length=6.0)(label)
        >>> int((wobbled != label).sum())
        51
    """

    size: float = 2.0
    length: float = 10.0
    slices: int | None = None
    seed: int = 0
    ignore_index: int | None = None

    def __post_init__(self) -> None:
        check_number("size", self.size, 0)
        if not self.length > 0:
            raise ValueError(f"`length` must be above 0, got {self.length}: math.inf shifts the label as a whole.")

    def _changed(self, values: np.ndarray, file: str, spacing: tuple[float, ...]) -> np.ndarray:
        label = values[0]
        random = self._random("wobble", identity_of(values, file))
        across = None if self.slices is None else _axis(self.slices, label.ndim)
        moved = np.indices(label.shape).astype(float)
        fields = {
            axis: self._field(label.shape, spacing, across, random) for axis in range(label.ndim) if axis != across
        }
        scale = self.size / math.sqrt(max(np.mean([(field**2).mean() for field in fields.values()]), 1e-30))
        for axis, field in fields.items():
            moved[axis] += field * (scale / spacing[axis])
        return ndimage.map_coordinates(label, moved, order=0, mode="nearest")[None]

    def _field(
        self, shape: tuple[int, ...], spacing: tuple[float, ...], across: int | None, random: np.random.RandomState
    ) -> np.ndarray:
        """Return smooth noise; along an axis that is shorter than the length it is constant."""
        sigma = [0.0 if axis == across else self.length / h for axis, h in enumerate(spacing)]
        drawn = [1 if s > n else n for s, n in zip(sigma, shape, strict=True)]
        noise = random.standard_normal(drawn)
        return np.broadcast_to(
            ndimage.gaussian_filter(noise, [min(s, n) for s, n in zip(sigma, drawn, strict=True)]), shape
        )


class _RegionError(LabelError):
    """An error of each outline by itself: that of the foreground, and the borders between its classes."""

    def _changed(self, values: np.ndarray, file: str, spacing: tuple[float, ...]) -> np.ndarray:
        change = self._change(self._random(type(self).__name__, identity_of(values, file)), spacing)
        return _painted(values, lambda region, counts: change(region))

    @abstractmethod
    def _change(self, random: np.random.RandomState, spacing: tuple[float, ...]) -> _Change:
        """Return the function that changes the mask of each region."""


def _painted(values: np.ndarray, change: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
    """Change the outline of the foreground, then the borders between its classes, from the lowest to the highest.

    ``change`` gets a region, and where it counts: everywhere, or inside of the changed foreground.

    Outside of the foreground a pixel counts as its nearest class. So borders between classes continue there instead of
    ending, and no class appears around an object of another.
    """
    label = values[0]
    lowest, *higher = np.unique(label[label > 0]) if label.any() else (0,)
    foreground = change(label > 0, np.ones(label.shape, bool))
    classes = nearest(label, label > 0)
    out = np.where(foreground, lowest, 0).astype(values.dtype)
    for number in higher:
        out[foreground & change(classes >= number, foreground)] = number
    return out[None]


@dataclass
class GrowLabel(_RegionError):
    """Draw every outline too far outside, or too far inside: systematic over- or under-segmentation.

    Args:
        distance: how far outlines move outward, or inward if negative; Euclidean.
        ignore_index: label value of pixels without a class; they keep it.

    Raises:
        ValueError: if ``distance`` is not finite.

    Example:
        >>> import torch
        >>> from monai_iels import GrowLabel
        >>> label = torch.tensor([[0.0, 0, 0, 1, 1, 1, 0, 0]])
        >>> GrowLabel(2.0)(label), GrowLabel(-1.0)(label)
        (tensor([[0., 1., 1., 1., 1., 1., 1., 1.]]), tensor([[0., 0., 0., 0., 1., 0., 0., 0.]]))
    """

    distance: float = 2.0
    ignore_index: int | None = None

    def __post_init__(self) -> None:
        check_number("distance", self.distance)

    def _change(self, random: np.random.RandomState, spacing: tuple[float, ...]) -> _Change:
        return lambda region: signed_distance(region, spacing) <= self.distance


@dataclass
class ScaleLabel(LabelError):
    """Dilate or erode the labels of some images until their area has changed by a share of itself.

    These are the two numbers of robust-loss papers such as T-Loss (MICCAI 2023): alpha, the share of images with an
    error, and beta, how strong it is. The papers do not say in pixels what beta means; here it is the share of a
    region's area that it gains or loses, the pixels nearest to its outline first, and of equally near ones any.

    Args:
        share: alpha, the share of images with an error; the papers have 0.3, 0.5 and 0.7.
        strength: beta, the share of the area; the papers have 0.5 and 0.7.
        seed: another seed chooses other images, and other directions.
        ignore_index: label value of pixels without a class; they keep it.

    Raises:
        ValueError: if ``share`` or ``strength`` is not from 0 to 1.

    Example:
        >>> import torch
        >>> from monai_iels import ScaleLabel
        >>> label = torch.zeros(1, 32, 32)
        >>> label[:, 11:21, 11:21] = 1
        >>> int(ScaleLabel(share=1.0, strength=0.5)(label).sum()) in (50, 150)
        True
    """

    share: float = 0.5
    strength: float = 0.5
    seed: int = 0
    ignore_index: int | None = None

    def __post_init__(self) -> None:
        check_number("share", self.share, 0, 1)
        check_number("strength", self.strength, 0, 1)

    def _changed(self, values: np.ndarray, file: str, spacing: tuple[float, ...]) -> np.ndarray:
        random = self._random("scale", identity_of(values, file))
        is_wrong, direction = random.uniform() < self.share, random.choice([-1, 1])

        def scaled(region: np.ndarray, counts: np.ndarray) -> np.ndarray:
            distance = np.where(counts, signed_distance(region, spacing), math.inf)
            if np.isinf(distance).all():  # nothing, or everything: there is no outline
                return region
            area = (region & (values[0] > 0)).sum()
            order = np.lexsort((random.permutation(distance.size), distance.ravel()))  # of equally near ones, any
            changed = np.zeros_like(region)
            changed.flat[order[: round(area * (1 + direction * self.strength))]] = True
            return changed

        return _painted(values, scaled) if is_wrong else values.copy()


@dataclass
class PolygonLabel(_RegionError):
    """Replace outlines by polygons through every n-th of their points: labels drawn with few clicks.

    In 3-D each slice has polygons of its own. Needs scikit-image.

    Args:
        every: distance between corners along the outline, in points of the outline, which are about a pixel apart.
        slices: the axis of slices in 3-D.
        seed: another seed begins each polygon at another point.
        ignore_index: label value of pixels without a class; they keep it.

    Raises:
        ValueError: if ``every`` is not at least 1.

    Example:
        >>> import torch
        >>> from monai_iels import PolygonLabel
        >>> y, x = torch.meshgrid(torch.arange(64), torch.arange(64), indexing="ij")
        >>> disc = ((y - 32) ** 2 + (x - 32) ** 2 < 400)[None].float()
        >>> coarse = PolygonLabel(every=40)(disc)
        >>> int(disc.sum()), int(coarse.sum())
        (1245, 765)
    """

    every: int = 10
    slices: int = -1
    seed: int = 0
    ignore_index: int | None = None

    def __post_init__(self) -> None:
        check_whole("every", self.every, 1)

    def _change(self, random: np.random.RandomState, spacing: tuple[float, ...]) -> _Change:
        def corners(outline: np.ndarray) -> np.ndarray:
            step = min(self.every, max(1, len(outline) // 3))  # at least a triangle
            return np.roll(outline, random.randint(step), axis=0)[::step]

        def coarse(region: np.ndarray) -> np.ndarray:
            margin = [(0, 0) if axis == flat else (self.every, self.every) for axis in range(region.ndim)]
            inside = tuple(slice(before, size + before) for (before, _), size in zip(margin, region.shape, strict=True))
            wide = np.pad(region, margin, mode="edge")  # the edge of the image is no outline
            return redrawn(wide, corners, self.slices)[inside]

        flat = _axis(self.slices, len(spacing)) if len(spacing) == 3 else None
        return coarse


@dataclass
class OmitObjects(LabelError):
    """Leave out objects: connected components of the foreground become background.

    Args:
        fraction: the share of objects that are left out, by chance, from 0 to 1.
        seed: another seed leaves out others.
        ignore_index: label value of pixels without a class; they keep it.

    Raises:
        ValueError: if ``fraction`` is not from 0 to 1.

    Example:
        >>> import torch
        >>> from monai_iels import OmitObjects
        >>> OmitObjects(fraction=0.5)(torch.tensor([[1.0, 0, 2, 0, 1, 0, 1, 0, 2]]))
        tensor([[0., 0., 2., 0., 0., 0., 0., 0., 0.]])
    """

    fraction: float = 0.2
    seed: int = 0
    ignore_index: int | None = None

    def __post_init__(self) -> None:
        check_number("fraction", self.fraction, 0, 1)

    def _changed(self, values: np.ndarray, file: str, spacing: tuple[float, ...]) -> np.ndarray:
        random = self._random("omit", identity_of(values, file))
        out = values.copy()
        for box, component in components_of(values[0] > 0):
            if random.uniform() < self.fraction:
                out[0][box][component] = 0
        return out


@dataclass
class CutLabel(LabelError):
    """Leave out strips of objects, as where a vessel crosses them.

    A strip is all that lies within half of ``width`` of a straight line through a random pixel of the object, in a
    random direction; in 3-D it is a tube.

    Args:
        count: number of strips per object, a connected component of the foreground.
        width: width of a strip.
        seed: another seed gives other strips.
        ignore_index: label value of pixels without a class; they keep it.

    Raises:
        ValueError: if ``count`` or ``width`` is negative.

    Example:
        >>> import torch
        >>> from monai_iels import CutLabel
        >>> label = torch.zeros(1, 16, 16)
        >>> label[:, 2:14, 2:14] = 1
        >>> int(label.sum() - CutLabel(count=1, width=2.0)(label).sum())
        6
    """

    count: int = 1
    width: float = 3.0
    seed: int = 0
    ignore_index: int | None = None

    def __post_init__(self) -> None:
        check_whole("count", self.count)
        check_number("width", self.width, 0)

    def _changed(self, values: np.ndarray, file: str, spacing: tuple[float, ...]) -> np.ndarray:
        random = self._random("cut", identity_of(values, file))
        out = values.copy()
        for box, component in components_of(values[0] > 0):
            pixels = np.argwhere(component)
            places = pixels * spacing
            for center in places[random.randint(len(places), size=self.count)]:
                direction = random.standard_normal(len(spacing))
                direction /= np.linalg.norm(direction)
                along = (places - center) @ direction
                beside = ((places - center) ** 2).sum(1) - along**2
                out[0][box][tuple(pixels[beside <= (self.width / 2) ** 2].T)] = 0
        return out


@dataclass
class MarkovLabel(_RegionError):
    r"""Let outlines grow and shrink in many small random steps: the Markov noise :math:`M(T, \theta_1, \theta_2)`.

    In each step the region grows with the probability ``expand`` and otherwise shrinks; then each pixel beside its
    outline, on the outer or the inner side, changes with the probability ``flip``. At the end the region is smoothed by
    a Gaussian and thresholded at one half. The model is that of SpatialCorrection (Yao et al., ICLR 2023); its
    parameters and those of GSD-Net (arXiv 2509.02419) are in :attr:`presets`. They are for images of about 256 pixels;
    take fewer steps for smaller ones. Its released code also flips pixels anywhere before it smooths; this is left out,
    and :class:`CorruptLabel` can do it. The Gaussian ends at one standard deviation, in 3-D, too.

    Args:
        steps: the number of steps, :math:`T`.
        expand: the probability that a step grows, :math:`\theta_1`; one half moves outlines neither out nor in.
        flip: the probability that a pixel changes, :math:`\theta_2`.
        smoothing: standard deviation of the Gaussian, in pixels; the released code has 2 in 2-D and 1 in 3-D.
        seed: another seed gives other noise.
        ignore_index: label value of pixels without a class; they keep it.

    Raises:
        ValueError: if ``steps`` or ``smoothing`` is negative, or a probability is not from 0 to 1.

    Example:
        >>> import torch
        >>> from monai_iels import MarkovLabel
        >>> label = torch.zeros(1, 64, 64)
        >>> label[:, 20:44, 20:44] = 1
        >>> grown = MarkovLabel(*MarkovLabel.presets["S_R"])(label)
        >>> bool(grown.sum() > 1.5 * label.sum())
        True
    """

    presets = {  # noqa: RUF012
        "S_R": (200, 0.8, 0.05),
        "S_E": (200, 0.2, 0.05),
        "S_E, BraTS": (50, 0.4, 0.05),
        "JSRT heart": (250, 0.8, 0.05),
        "JSRT clavicle": (100, 0.8, 0.02),
    }

    steps: int = 200
    expand: float = 0.8
    flip: float = 0.05
    smoothing: float = 2.0
    seed: int = 0
    ignore_index: int | None = None

    def __post_init__(self) -> None:
        check_whole("steps", self.steps)
        check_number("expand", self.expand, 0, 1)
        check_number("flip", self.flip, 0, 1)
        check_number("smoothing", self.smoothing, 0)

    def _change(self, random: np.random.RandomState, spacing: tuple[float, ...]) -> _Change:
        def changed(region: np.ndarray) -> np.ndarray:
            region = region.copy()
            for grows in random.uniform(size=self.steps) < self.expand:
                beside = ndimage.binary_dilation(region if grows else ~region) & (region != grows)
                beside[beside] = random.uniform(size=beside.sum()) < self.flip
                region ^= beside
            return ndimage.gaussian_filter(region.astype(float), self.smoothing, truncate=1) > 0.5

        return changed


@dataclass
class CocoLabel(LabelError):
    """The spatial errors of COCO-N and CityScapes-N (arXiv 2406.10891), at their three levels.

    Each object's outline becomes a polygon within a tolerance, the corners are moved by Gaussian noise, and the
    polygon is dilated or eroded with a square. One object in twenty is left out, and one in twenty gets another class,
    if there is another. An object is a connected component of one class; its holes are filled, as they are in the
    benchmark. Levels are the means of the authors' code for low, mid and high intensity; each object draws its own
    values around them. They are in pixels, for photographs of about 640 pixels: give ``scale`` for smaller images. In
    3-D each slice is drawn by itself. Needs scikit-image.

    Args:
        level: "easy", "medium" or "hard".
        scale: factor for all distances, such as 112 / 640 for images of 112 pixels.
        slices: the axis of slices in 3-D.
        seed: another seed gives other errors.
        ignore_index: label value of pixels without a class; they keep it.

    Raises:
        ValueError: if there is no such level, or ``scale`` is not positive.

    Example:
        >>> import torch
        >>> from monai_iels import CocoLabel
        >>> label = torch.zeros(1, 64, 64)
        >>> label[:, 16:48, 16:48] = 1
        >>> wrong = [int((CocoLabel(level)(label) != label).sum()) for level in ("easy", "hard")]
        >>> 0 < wrong[0] < wrong[1]
        True
    """

    levels = {  # noqa: RUF012
        "easy": ((5.0, 2.5), (2.0, 0.5), (3.0, 1.0)),
        "medium": ((10.0, 2.5), (3.0, 0.5), (5.0, 1.0)),
        "hard": ((15.0, 10.0), (4.0, 2.0), (7.0, 4.0)),
    }
    """Mean and standard deviation of the polygon's tolerance, the corners' noise and the square's side."""
    probability = 0.05  # that an object is left out, and that it gets another class

    level: Literal["easy", "medium", "hard"] = "medium"
    scale: float = 1.0
    slices: int = -1
    seed: int = 0
    ignore_index: int | None = None

    def __post_init__(self) -> None:
        if self.level not in self.levels:
            raise ValueError(f"`level` must be one of {', '.join(self.levels)}, got {self.level!r}.")
        check_number("scale", self.scale, 0, above=True)

    def _changed(self, values: np.ndarray, file: str, spacing: tuple[float, ...]) -> np.ndarray:
        random = self._random("coco", identity_of(values, file))
        classes = np.unique(values[values > 0])
        out = np.zeros_like(values)
        for number in classes:
            for box, component in components_of(values[0] == number):
                is_left_out, is_another = random.uniform(size=2) < self.probability
                if is_left_out:
                    continue
                others = classes[classes != number]
                drawn = number if not (is_another and len(others)) else random.choice(others)
                self._draw(out[0], box, component, drawn, random)
        return out

    def _draw(
        self,
        out: np.ndarray,
        box: tuple[slice, ...],
        component: np.ndarray,
        number: float,
        random: np.random.RandomState,
    ) -> None:
        """Paint an object with its errors, in its box and as far around as they reach."""
        tolerance, noise, side = (max(0.0, self.scale * random.normal(*level)) for level in self.levels[self.level])
        grows = random.uniform() < 0.5

        def corners(outline: np.ndarray) -> np.ndarray:
            polygon = measure.approximate_polygon(outline, tolerance)
            if len(polygon) < 4:  # the first corner is the last one, too
                return outline
            return polygon[:-1] + random.normal(0, noise, polygon[:-1].shape)

        margin = math.ceil(4 * noise + side) + 1
        wide = np.pad(component, margin)
        region = redrawn(ndimage.binary_fill_holes(wide), corners, self.slices)
        size = max(1, round(side))
        filtered = ndimage.grey_dilation if grows else ndimage.grey_erosion
        flat = _axis(self.slices, wide.ndim) if wide.ndim == 3 else None
        square = tuple(1 if axis == flat else size for axis in range(wide.ndim))
        region = filtered(region.astype(np.uint8), size=square) > 0
        inside = np.argwhere(region) + [part.start - margin for part in box]
        inside = inside[((inside >= 0) & (inside < out.shape)).all(1)]
        out[tuple(inside.T)] = number


@dataclass
class MixAnnotators(LabelError):
    """Let each image be drawn by one of several annotators, each with errors of its own.

    Args:
        annotators: label transforms, or None for one without errors.
        shares: how many of the images each draws, in proportion; by default equally many.
        seed: another seed gives the images to others.
        ignore_index: label value of pixels without a class; they keep it.

    Raises:
        ValueError: if there is no annotator, one is no label transform, or the shares do not fit.

    Example:
        One draws too far outside, the other too far inside:

        >>> import torch
        >>> from monai_iels import GrowLabel, MixAnnotators
        >>> mixed = MixAnnotators([GrowLabel(1.0), GrowLabel(-1.0)])
        >>> [int(mixed(torch.tensor([[0, 1, 1, 1, 0] + [0] * n])).sum()) for n in range(4)]
        [5, 5, 1, 1]
    """

    annotators: Sequence[LabelTransform | None]
    shares: Sequence[float] | None = None
    seed: int = 0
    ignore_index: int | None = None

    def __post_init__(self) -> None:
        annotators = self.annotators
        if not annotators or not all(each is None or isinstance(each, LabelTransform) for each in annotators):
            raise ValueError(f"`annotators` must be label errors such as GrowLabel(1.0), or None, got {annotators}.")
        self.weights = [1.0] * len(annotators) if self.shares is None else list(self.shares)
        if len(self.weights) != len(annotators) or min(self.weights) < 0 or not 0 < sum(self.weights) < math.inf:
            raise ValueError(f"`shares` must be {len(annotators)} numbers, at least 0, got {self.shares}.")
        given = [self.ignore_index, *(each.ignore_index for each in annotators if each is not None)]
        ignored = {number for number in given if number is not None}
        if len(ignored) > 1:
            raise ValueError(f"`ignore_index` must be the same for all annotators, got {sorted(ignored)}.")
        self.ignore_index = next(iter(ignored), None)

    def _check(self, dtype: np.dtype, found: np.ndarray, where: str) -> None:
        super()._check(dtype, found, where)
        for each in self.annotators:
            if each is not None:
                each._check(dtype, found, where)

    def _changed(self, values: np.ndarray, file: str, spacing: tuple[float, ...]) -> np.ndarray:
        random = self._random("annotator", identity_of(values, file))
        ends = np.cumsum(self.weights) / sum(self.weights)
        annotator = self.annotators[int(np.searchsorted(ends, random.uniform(), side="right"))]
        return values.copy() if annotator is None else annotator._changed(values, file, spacing)


def signed_distance(region: np.ndarray, spacing: tuple[float, ...]) -> np.ndarray:
    """Return the distance of each pixel to the region, or, inside of it, minus that to the outside; a tiny bit smaller.

    So ``<= d`` grows a region by ``d``, and for a negative ``d`` takes away all that is within ``-d`` of the outside,
    also where sums of a spacing such as 1.1 are not exact.
    """
    if region.all() or not region.any():
        return np.where(region, -math.inf, math.inf)
    outside = ndimage.distance_transform_edt(~region, sampling=spacing)
    inside = ndimage.distance_transform_edt(region, sampling=spacing)
    return np.where(region, -inside, outside) + np.where(region, 1, -1) * 1e-6 * min(spacing)


def redrawn(region: np.ndarray, corners: Callable[[np.ndarray], np.ndarray], slices: int) -> np.ndarray:
    """Return the inside of the polygons through the corners of a region's outlines, slice by slice in 3-D."""
    if region.ndim == 3:
        planes = np.moveaxis(region, slices, 0)
        return np.moveaxis(np.stack([redrawn(plane, corners, slices) for plane in planes]), 0, slices)
    if region.ndim != 2:
        raise ValueError(f"the label must be 2-D or 3-D, got {region.ndim}-D.")
    out = np.zeros_like(region)
    outlines = [line[:-1] for line in measure.find_contours(np.pad(region, 1).astype(float), 0.5)]
    areas = [_signed_area(line) for line in outlines]
    for number in np.argsort(np.abs(areas))[::-1]:  # what is inside of a hole comes after the hole
        rows, columns = draw.polygon(*(corners(outlines[number]) - 1).T, region.shape)
        out[rows, columns] = areas[number] > 0
    return out


def _signed_area(outline: np.ndarray) -> float:
    """Return the area inside of an outline, negative for that of a hole, which runs the other way round."""
    y, x = outline.T
    return float(y @ np.roll(x, 1) - x @ np.roll(y, 1)) / 2


def _axis(slices: int, dims: int) -> int:
    if not -dims <= slices < dims:
        raise ValueError(f"`slices` must be an axis of a {dims}-D label, got {slices}.")
    return slices % dims
