# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Transforms of one channel-first image or label, ``(C, *spatial)``."""

from __future__ import annotations

import copy
import hashlib
import math
import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from os import PathLike

import numpy as np
from monai.config import NdarrayOrTensor
from monai.data import MetaTensor, get_track_meta
from monai.transforms import Transform
from monai.utils import ImageMetaKey, TransformBackends, convert_to_dst_type, convert_to_numpy, convert_to_tensor
from scipy import ndimage

from monai_iels.evolutions.base import Evolution, check_evolution
from monai_iels.grid import check_dt, check_number, check_regions, check_spacing, check_steps, check_whole
from monai_iels.operators.hulls import components_of, fill_hull


@dataclass
class Evolve(Transform):
    """Run an evolution on an image or a one-hot label: forward if ``dt`` > 0, backward if ``dt`` < 0.

    Integers and half precision are computed and returned in float32.

    Args:
        evolution: the equation, such as ``HeatDiffusion()``.
        dt: time step; its sign is the direction of time.
        steps: number of steps; 0 changes nothing.
        use_pixdim: take the spacing from the input, which must then be a MetaTensor, and not from the evolution.

    Example:
        The paper's label pre-processing smooths the one-hot label, and its post-processing the predicted
        probabilities; both then take the largest class.

        >>> import torch
        >>> from monai.transforms import Activations, AsDiscrete, Compose
        >>> from monai_iels import Evolve, HeatDiffusion
        >>> smooth = Evolve(HeatDiffusion(spacing=2.0), dt=0.1, steps=100)
        >>> clean_label = Compose([AsDiscrete(to_onehot=2), smooth, AsDiscrete(argmax=True)])
        >>> clean_prediction = Compose([Activations(softmax=True), smooth, AsDiscrete(argmax=True)])
        >>> label = torch.zeros(1, 16, 16)
        >>> label[:, :, 8:] = 1
        >>> noisy = label.clone()
        >>> noisy[:, 4, 4] = 1
        >>> torch.equal(clean_label(noisy), label)
        True
        >>> torch.equal(clean_prediction(4 * torch.cat([1 - noisy, noisy])), label)
        True
    """

    backend = [TransformBackends.TORCH]  # noqa: RUF012

    evolution: Evolution
    dt: float
    steps: int
    use_pixdim: bool = False

    def __post_init__(self) -> None:
        check_evolution(self.evolution)
        check_dt(self.dt)
        check_steps(self.steps)

    def __call__(self, img: NdarrayOrTensor) -> NdarrayOrTensor:
        """Return the evolved image, of the type and shape of ``img``."""
        tensor = convert_to_tensor(img, track_meta=get_track_meta())
        evolution = self._with_pixdim_of(img) if self.use_pixdim else self.evolution
        field = tensor if tensor.is_floating_point() else tensor.float()
        out = evolution.evolve(field.unsqueeze(0), self.dt, self.steps).squeeze(0)
        return convert_to_dst_type(out, img, dtype=out.dtype)[0]

    def _with_pixdim_of(self, img: NdarrayOrTensor) -> Evolution:
        if not isinstance(img, MetaTensor):
            raise TypeError(f"`use_pixdim=True` takes the spacing from a MetaTensor, got {type(img).__name__}.")
        evolution = copy.copy(self.evolution)
        evolution.spacing = check_spacing(img.pixdim.tolist())
        return evolution


class LabelTransform(Transform):
    """A transform of a label ``(1, *spatial)`` of class numbers, in NumPy."""

    backend = [TransformBackends.NUMPY]  # noqa: RUF012
    ignore_index: int | None = None

    def __call__(self, label: NdarrayOrTensor) -> NdarrayOrTensor:
        """Return the changed label, of the type, shape and dtype of ``label``, which is ``(1, *spatial)``."""
        values = convert_to_numpy(label)
        name = label.meta.get(ImageMetaKey.FILENAME_OR_OBJ) if isinstance(label, MetaTensor) else None
        where = f" in {name}" if name else ""
        if values.ndim < 2 or values.shape[0] != 1 or not values.size:
            raise ValueError(f"the label must have shape (1, *spatial), with class numbers, got {values.shape}{where}.")
        ignored = np.zeros_like(values, bool) if self.ignore_index is None else values == self.ignore_index
        known = self._without(ignored, values)
        self._check(values.dtype, np.unique(known), where)
        file = re.split(r"[/\\]", str(name))[-1] if isinstance(name, (str, PathLike)) else ""
        like = label.as_tensor() if isinstance(label, MetaTensor) and not get_track_meta() else label
        pixdim = label.pixdim.tolist() if isinstance(label, MetaTensor) else []
        spacing = tuple(pixdim[: values.ndim - 1]) if len(pixdim) >= values.ndim - 1 else (1.0,) * (values.ndim - 1)
        return convert_to_dst_type(np.where(ignored, values, self._changed(known, file, spacing)), like)[0]

    def keeping(self, ignore_index: int | None) -> LabelTransform:
        """Return a copy with this ``ignore_index``, or the transform itself if it has one of its own."""
        if ignore_index is None or self.ignore_index is not None:
            return self
        copied = copy.copy(self)
        copied.ignore_index = ignore_index
        return copied

    def _without(self, ignored: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return the label with some class at ignored pixels."""
        return np.where(ignored, 0, values)

    @abstractmethod
    def _changed(self, values: np.ndarray, file: str, spacing: tuple[float, ...]) -> np.ndarray:
        """Return the changed values of a label, in a new array.

        Args:
            values: class numbers, of shape ``(1, *spatial)``.
            file: the name of the label's file, if it has one.
            spacing: distance between pixels along each axis, 1 where the label has no meta data.
        """

    def _check(self, dtype: np.dtype, found: np.ndarray, where: str) -> None:
        """Raise a ValueError if the transform cannot take a label of this type with these values."""
        if not ((found >= 0) & (found == np.floor(found))).all():
            raise ValueError(f"the label must have class numbers from 0, got the values {_shown(found)}{where}.")


class LabelError(LabelTransform):
    """An artificial label error; it depends only on the seed, the label's file name and its values."""

    seed: int = 0

    def _random(self, purpose: str, identity: str) -> np.random.RandomState:
        # RandomState's stream is frozen for good, that of numpy's newer generators is not.
        digest = hashlib.sha256(f"{self.seed} {purpose} {identity}".encode()).digest()
        return np.random.RandomState(np.frombuffer(digest, dtype="<u4"))


@dataclass
class CorruptLabel(LabelError):
    """Replace windows of a label by random classes: the paper's label noise, the same for a label every time.

    Windows tile the image. They are drawn until they cover ``fraction`` of it, as nearly as whole windows can, and each
    gets one class, drawn uniformly for each image. The noise depends only on the arguments, the label's file name and
    its values, not on the order of calls, the worker, the process or the folder. So the transform may come before a
    cache. A label that has lost its meta data gets other noise, because its file name is missing.

    In the released code the locations of the windows are the same for all images (on WBC and DRIVE), and a network then
    overfits to them within 20 epochs; with locations of its own for each image, as the text can be read, it does not.
    A result must say which of the two it used.

    Args:
        num_classes: number of classes, the background included.
        window: side of a window in pixels.
        fraction: share of the area to replace, from 0 to 1.
        seed: another seed gives other noise.
        shared: whether all images of a size have their windows at the same places.
        ignore_index: label value of pixels without a class; they keep it.

    Raises:
        ValueError: if an argument is out of its range, or a label has a class outside of 0 to ``num_classes - 1``.

    Example:
        >>> import torch
        >>> from monai_iels import CorruptLabel
        >>> CorruptLabel(num_classes=5, window=2, fraction=0.5, seed=1)(torch.zeros(1, 2, 8))
        tensor([[[1., 1., 0., 0., 2., 2., 0., 0.],
                 [1., 1., 0., 0., 2., 2., 0., 0.]]])
    """

    num_classes: int
    window: int = 2
    fraction: float = 0.1
    seed: int = 0
    shared: bool = True
    ignore_index: int | None = None

    def __post_init__(self) -> None:
        check_whole("num_classes", self.num_classes, 2)
        check_whole("window", self.window, 1)
        check_number("fraction", self.fraction, 0, 1)
        check_whole("seed", self.seed)

    def _changed(self, values: np.ndarray, file: str, spacing: tuple[float, ...]) -> np.ndarray:
        identity = identity_of(values, file, self.num_classes)
        window_of = [np.arange(size) // self.window for size in values.shape]
        areas = reduce(np.multiply.outer, [np.bincount(windows) for windows in window_of])
        chosen = self._draw(areas.ravel(), "" if self.shared else identity)
        classes = np.full(areas.size, -1)
        classes[chosen] = self._random("classes", identity).randint(self.num_classes, size=len(chosen))
        noise = classes.reshape(areas.shape)[np.ix_(*window_of)]
        return np.where(noise < 0, values, noise)

    def _check(self, dtype: np.dtype, found: np.ndarray, where: str) -> None:
        if np.array(self.num_classes - 1).astype(dtype) != self.num_classes - 1:
            raise ValueError(
                f"the label must have a type that holds {self.num_classes} classes, got {dtype}{where}: "
                "convert it first, for example to uint8."
            )
        if not ((found >= 0) & (found < self.num_classes) & (found == np.floor(found))).all():
            raise ValueError(
                f"the label must have the classes 0 to {self.num_classes - 1}, "
                f"got the values {_shown(found)}{where}: map them to classes first, or correct `num_classes`."
            )

    def _draw(self, areas: np.ndarray, identity: str) -> np.ndarray:
        """Draw windows until they cover the fraction, as nearly as they can."""
        order = self._random("windows", identity).permutation(len(areas))
        covered = np.concatenate([[0], np.cumsum(areas[order])])
        return order[: np.abs(covered - self.fraction * areas.sum()).argmin()]


@dataclass
class BiteLabel(LabelError):
    """Bite dents into the objects of a label, the same for a label every time.

    Labels have such dents where a tool stops at an edge, or where vessels that cross an optic disc are left out.
    An object is a connected component of the foreground, all classes above 0 together; pixels that touch in a
    corner are connected. Each bite is a ball around a random pixel of the object's outline; what the object has in it
    becomes background. Small objects may vanish. The edge of the image is no outline.

    As in :class:`CorruptLabel`, the bites depend only on the arguments, the label's file name and its values, so the
    transform may come before a cache.

    Args:
        count: number of bites per object; an outline of fewer pixels has one bite at each of them.
        radius: radius of a bite in pixels.
        seed: another seed gives other bites.
        ignore_index: label value of pixels without a class; they keep it.

    Raises:
        ValueError: if ``count`` or ``radius`` is negative, or a label has values that are no class numbers.

    Example:
        >>> import torch
        >>> from monai_iels import BiteLabel
        >>> label = torch.zeros(1, 6, 8)
        >>> label[:, 1:5, 1:7] = 1
        >>> BiteLabel(count=1, radius=1.5)(label)
        tensor([[[0., 0., 0., 0., 0., 0., 0., 0.],
                 [0., 1., 1., 1., 1., 1., 1., 0.],
                 [0., 1., 1., 1., 1., 1., 1., 0.],
                 [0., 0., 0., 0., 1., 1., 1., 0.],
                 [0., 0., 0., 0., 1., 1., 1., 0.],
                 [0., 0., 0., 0., 0., 0., 0., 0.]]])
    """

    count: int = 1
    radius: float = 3.0
    seed: int = 0
    ignore_index: int | None = None

    def __post_init__(self) -> None:
        check_whole("count", self.count)
        check_number("radius", self.radius, 0)
        check_whole("seed", self.seed)

    def _changed(self, values: np.ndarray, file: str, spacing: tuple[float, ...]) -> np.ndarray:
        random = self._random("bites", identity_of(values, file))
        bitten = values.copy()
        foreground = values[0] > 0
        outline = foreground & ~ndimage.binary_erosion(foreground, border_value=1)
        for box, component in components_of(foreground):
            pixels = np.argwhere(component)
            edge = np.argwhere(component & outline[box])
            for center in edge[random.permutation(len(edge))[: self.count]]:
                bite = pixels[((pixels - center) ** 2).sum(1) <= self.radius**2]
                bitten[0][box][tuple(bite.T)] = 0
        return bitten


@dataclass
class FillHull(LabelTransform):
    """Close gaps of a label's regions, then fill their convex hulls: the cheapest way to convex regions.

    A region is first closed with a Euclidean ball: what is nowhere wide enough for the ball is filled. Nothing is lost
    at the edge of the image. Then each of its connected components (corners touching count as connected) is filled up
    to the convex hull of its pixels' centers, so that what is convex stays as it is. Pixels that the region gains get
    the class of its nearest pixel; others keep theirs. Regions are filled in the order given, and a later one may take
    pixels from an earlier one, so give outer regions before those inside of them. 2-D and 3-D.

    Use it on labels before training, or on predictions. It joins objects that touch into one.

    Args:
        regions: groups of classes that are one region each, such as ``((1, 2), (2,))`` for disc and cup; each class
            above 0 by itself if None.
        radius: radius of the closing in pixels; 0 leaves gaps to the hull.
        components: whether each connected component has its own hull; otherwise the whole region has one.
        ignore_index: label value of pixels without a class; they keep it.

    Raises:
        ValueError: if ``radius`` is negative, a region is empty, or a label is not of class numbers in 2-D or 3-D.

    Example:
        >>> import torch
        >>> from monai_iels import FillHull
        >>> corner = torch.tensor([[[1, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0]]])
        >>> FillHull()(corner)
        tensor([[[1, 0, 0, 0],
                 [1, 1, 0, 0],
                 [1, 1, 1, 0]]])
    """

    regions: Sequence[Sequence[int]] | None = None
    radius: float = 0.0
    components: bool = True
    ignore_index: int | None = None

    def __post_init__(self) -> None:
        self.regions = None if self.regions is None else check_regions(self.regions)
        check_number("radius", self.radius, 0)

    def _changed(self, values: np.ndarray, file: str, spacing: tuple[float, ...]) -> np.ndarray:
        if values.ndim not in (3, 4):
            raise ValueError(f"the label must be 2-D or 3-D, of shape (1, *spatial), got {values.shape}.")
        filled = values.copy()
        for region in self.regions or [(number,) for number in np.unique(values[values > 0])]:
            mask = np.isin(values[0], region)
            if mask.any():
                gained = self._filled(mask) & ~np.isin(filled[0], region)
                nearest = ndimage.distance_transform_edt(~mask, return_distances=False, return_indices=True)
                filled[0][gained] = values[0][tuple(nearest[:, gained])]
        return filled

    def _filled(self, mask: np.ndarray) -> np.ndarray:
        closed = _closed(mask, self.radius)
        if not self.components:
            return fill_hull(closed)
        hulls = np.zeros_like(closed)
        for box, component in components_of(closed):
            hulls[box] |= fill_hull(component)
        return hulls


@dataclass
class OpenCloseLabel(LabelTransform):
    """Remove specks of a label and fill gaps in it: open each class with a Euclidean ball, then close it.

    First, parts of a class that are too narrow for the ball are removed; then gaps that are too narrow for it are
    filled. A pixel that exactly one class claims afterwards gets that class; all others get that of the nearest such
    pixel, or stay if there is none. Of a part that the edge of the image cuts off, only the visible width counts.
    Structures thinner than the ball vanish, vessels for example. 2-D and 3-D.

    Args:
        radius: radius of the ball in pixels; with 1 it is a pixel and its neighbors along the axes, with 1.5 a square
            of 3x3 pixels, both of which remove specks of 2x2. Large balls lose regions with many holes.
        ignore_index: label value of pixels without a class; they keep it.

    Raises:
        ValueError: if ``radius`` is negative, or a label has values that are no class numbers.

    Example:
        >>> import torch
        >>> from monai_iels import OpenCloseLabel
        >>> label = torch.zeros(1, 9, 18)
        >>> label[:, :, 9:] = 2
        >>> noisy = label.clone()
        >>> noisy[:, 4:6, 4] = 1
        >>> noisy[:, 4, 13:15] = 0
        >>> torch.equal(OpenCloseLabel()(noisy), label)
        True
    """

    radius: float = 1.5
    ignore_index: int | None = None

    def __post_init__(self) -> None:
        check_number("radius", self.radius, 0)

    def _without(self, ignored: np.ndarray, values: np.ndarray) -> np.ndarray:
        return nearest(values, ~ignored)

    def _changed(self, values: np.ndarray, file: str, spacing: tuple[float, ...]) -> np.ndarray:
        label, classes = values[0], np.unique(values)
        claims = np.stack([self._claimed(label == number) for number in classes])
        is_claimed = claims.sum(0) == 1
        return nearest(np.where(is_claimed, classes[claims.argmax(0)], label), is_claimed)[None]

    def _claimed(self, mask: np.ndarray) -> np.ndarray:
        opened = _opened(mask, self.radius)
        return _closed(opened, self.radius) if opened.any() else opened


def nearest(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return values, unknown ones replaced by that of the nearest known pixel; all stay if none is known."""
    if known.all() or not known.any():
        return values.copy()
    return values[tuple(ndimage.distance_transform_edt(~known, return_distances=False, return_indices=True))]


def _opened(mask: np.ndarray, radius: float) -> np.ndarray:
    """Return a mask after erosion and dilation with a Euclidean ball; it never gains a pixel."""
    eroded = ndimage.distance_transform_edt(np.pad(mask, 1)) > radius
    if not eroded.any():  # no distances
        return np.zeros_like(mask)
    return (ndimage.distance_transform_edt(~eroded) <= radius)[(slice(1, -1),) * mask.ndim]


def _closed(mask: np.ndarray, radius: float) -> np.ndarray:
    """Return a mask after dilation and erosion with a Euclidean ball; it never loses a pixel."""
    margin = math.ceil(radius) + 1  # the outermost pixels stay background, so that distances exist
    dilated = ndimage.distance_transform_edt(~np.pad(mask, margin)) <= radius
    return (ndimage.distance_transform_edt(dilated) > radius)[(slice(margin, -margin),) * mask.ndim]


def identity_of(values: np.ndarray, file: str, num_classes: int | None = None) -> str:
    """Return an identifier of a label: its file name without the folder, and a checksum of its values."""
    smallest = values.astype(np.min_scalar_type(int(values.max()) if num_classes is None else num_classes - 1))
    return f"{file} {hashlib.sha256(smallest.tobytes()).hexdigest()}"


def _shown(found: np.ndarray) -> str:
    return ", ".join(f"{value:g}" for value in found[:8]) + (", ..." if len(found) > 8 else "")
