# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Dictionary-based versions of the transforms in ``array.py``."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import reduce
from typing import Any, TypeAlias

from monai.config import KeysCollection, NdarrayOrTensor
from monai.transforms import MapTransform

from monai_iels.evolutions.base import Evolution
from monai_iels.transforms.array import BiteLabel, CorruptLabel, Evolve, FillHull, LabelTransform, OpenCloseLabel
from monai_iels.transforms.label_errors import (
    CocoLabel,
    CutLabel,
    GrowLabel,
    MarkovLabel,
    MixAnnotators,
    OmitObjects,
    PolygonLabel,
    ScaleLabel,
    WobbleLabel,
)

__all__ = [
    "BiteLabelD",
    "BiteLabelDict",
    "BiteLabeld",
    "CocoLabelD",
    "CocoLabelDict",
    "CocoLabeld",
    "CorruptLabelD",
    "CorruptLabelDict",
    "CorruptLabeld",
    "CutLabelD",
    "CutLabelDict",
    "CutLabeld",
    "EvolveD",
    "EvolveDict",
    "Evolved",
    "FillHullD",
    "FillHullDict",
    "FillHulld",
    "GrowLabelD",
    "GrowLabelDict",
    "GrowLabeld",
    "LabelErrord",
    "MarkovLabelD",
    "MarkovLabelDict",
    "MarkovLabeld",
    "MixAnnotatorsD",
    "MixAnnotatorsDict",
    "MixAnnotatorsd",
    "OmitObjectsD",
    "OmitObjectsDict",
    "OmitObjectsd",
    "OpenCloseLabelD",
    "OpenCloseLabelDict",
    "OpenCloseLabeld",
    "PolygonLabelD",
    "PolygonLabelDict",
    "PolygonLabeld",
    "ScaleLabelD",
    "ScaleLabelDict",
    "ScaleLabeld",
    "WobbleLabelD",
    "WobbleLabelDict",
    "WobbleLabeld",
]


_Error: TypeAlias = Callable[[NdarrayOrTensor], NdarrayOrTensor]


class _EachKey(MapTransform):
    """A transform of the item of each key by itself."""

    transform: Callable[[NdarrayOrTensor], NdarrayOrTensor]

    def __call__(self, data: Mapping[Hashable, NdarrayOrTensor]) -> dict[Hashable, NdarrayOrTensor]:
        """Return the dictionary with the items of the keys transformed."""
        return {**data, **{key: self.transform(data[key]) for key in self.key_iterator(data)}}


class Evolved(_EachKey):
    """Dictionary-based version of :class:`Evolve`.

    Args:
        keys: keys of the items to transform.
        evolution: the equation, such as ``HeatDiffusion()``.
        dt: time step; its sign is the direction of time.
        steps: number of steps; 0 returns the input.
        use_pixdim: take the spacing from the input, which must then be a MetaTensor, and not from the evolution.
        allow_missing_keys: do not raise an exception if a key is missing.
    """

    backend = Evolve.backend

    def __init__(
        self,
        keys: KeysCollection,
        evolution: Evolution,
        dt: float,
        steps: int,
        use_pixdim: bool = False,
        allow_missing_keys: bool = False,
    ) -> None:
        super().__init__(keys, allow_missing_keys)
        self.transform = Evolve(evolution, dt, steps, use_pixdim)


class CorruptLabeld(_EachKey):
    """Dictionary-based version of :class:`CorruptLabel`.

    Args:
        keys: keys of the labels to corrupt.
        num_classes: number of classes, the background included.
        window: side of a window in pixels.
        fraction: share of the area to replace, from 0 to 1.
        seed: another seed gives other noise.
        shared: whether all images of a size have their windows at the same places.
        ignore_index: a number that stands for no class; pixels that have it keep it.
        allow_missing_keys: do not raise an exception if a key is missing.
    """

    backend = CorruptLabel.backend

    def __init__(
        self,
        keys: KeysCollection,
        num_classes: int,
        window: int = 2,
        fraction: float = 0.1,
        seed: int = 0,
        shared: bool = True,
        ignore_index: int | None = None,
        allow_missing_keys: bool = False,
    ) -> None:
        super().__init__(keys, allow_missing_keys)
        self.transform = CorruptLabel(num_classes, window, fraction, seed, shared, ignore_index)


class BiteLabeld(_EachKey):
    """Dictionary-based version of :class:`BiteLabel`.

    Args:
        keys: keys of the labels to bite dents into.
        count: number of bites per object.
        radius: radius of a bite in pixels.
        seed: another seed gives other bites.
        ignore_index: a number that stands for no class; pixels that have it keep it.
        allow_missing_keys: do not raise an exception if a key is missing.
    """

    backend = BiteLabel.backend

    def __init__(
        self,
        keys: KeysCollection,
        count: int = 1,
        radius: float = 3.0,
        seed: int = 0,
        ignore_index: int | None = None,
        allow_missing_keys: bool = False,
    ) -> None:
        super().__init__(keys, allow_missing_keys)
        self.transform = BiteLabel(count, radius, seed, ignore_index)


class FillHulld(_EachKey):
    """Dictionary-based version of :class:`FillHull`.

    Args:
        keys: keys of the labels to fill.
        regions: groups of classes that are one region each; each class above 0 by itself if None.
        radius: radius of the closing in pixels; 0 leaves gaps to the hull.
        components: whether each connected component has its own hull; otherwise the whole region has one.
        ignore_index: a number that stands for no class; pixels that have it keep it.
        allow_missing_keys: do not raise an exception if a key is missing.
    """

    backend = FillHull.backend

    def __init__(
        self,
        keys: KeysCollection,
        regions: Sequence[Sequence[int]] | None = None,
        radius: float = 0.0,
        components: bool = True,
        ignore_index: int | None = None,
        allow_missing_keys: bool = False,
    ) -> None:
        super().__init__(keys, allow_missing_keys)
        self.transform = FillHull(regions, radius, components, ignore_index)


class _LabelErrord(_EachKey):
    """A label error of each key: ``keys``, then the arguments of the array transform."""

    backend = LabelTransform.backend
    array: type[LabelTransform]

    def __init__(self, keys: KeysCollection, *args: Any, allow_missing_keys: bool = False, **kwargs: Any) -> None:
        super().__init__(keys, allow_missing_keys)
        self.transform = self.array(*args, **kwargs)


class LabelErrord(_EachKey):
    """Apply one error, or several in order, to the labels of each key; this is what ``label_error`` of a bundle means.

    Args:
        keys: keys of the labels.
        error: None for no error, a transform of a label ``(1, *spatial)`` such as ``CorruptLabel``, any other callable,
            or a list of them.
        ignore_index: a number that stands for no class. The transforms of this package keep pixels that have it; any
            other callable is called with the label as it is.
        allow_missing_keys: do not raise an exception if a key is missing.

    Raises:
        TypeError: if an error is not callable.

    Example:
        >>> import torch
        >>> from monai_iels import GrowLabel, LabelErrord
        >>> label = torch.tensor([[0, 0, 1, 1, 1, 0, 0, 255]])
        >>> LabelErrord("label", [GrowLabel(1.0), lambda x: 2 * x], ignore_index=255)({"label": label})
        {'label': tensor([[  0,   2,   2,   2,   2,   2,   0, 510]])}
    """

    backend = LabelTransform.backend

    def __init__(
        self,
        keys: KeysCollection,
        error: _Error | Sequence[_Error] | None,
        ignore_index: int | None = None,
        allow_missing_keys: bool = False,
    ) -> None:
        super().__init__(keys, allow_missing_keys)
        errors = [] if error is None else error if isinstance(error, list | tuple) else [error]
        for each in errors:
            if not callable(each):
                raise TypeError(
                    f"`error` must be a transform such as CorruptLabel, a list of them, or None, got {each!r}."
                )
        self.errors = [each.keeping(ignore_index) if isinstance(each, LabelTransform) else each for each in errors]

    def transform(self, label: NdarrayOrTensor) -> NdarrayOrTensor:
        """Return the label with all errors."""
        return reduce(lambda wrong, error: error(wrong), self.errors, label)


class CocoLabeld(_LabelErrord):
    """Dictionary-based version of :class:`CocoLabel`: ``keys``, then its arguments, and ``allow_missing_keys``."""

    array = CocoLabel


class CutLabeld(_LabelErrord):
    """Dictionary-based version of :class:`CutLabel`: ``keys``, then its arguments, and ``allow_missing_keys``."""

    array = CutLabel


class GrowLabeld(_LabelErrord):
    """Dictionary-based version of :class:`GrowLabel`: ``keys``, then its arguments, and ``allow_missing_keys``."""

    array = GrowLabel


class MarkovLabeld(_LabelErrord):
    """Dictionary-based version of :class:`MarkovLabel`: ``keys``, then its arguments, and ``allow_missing_keys``."""

    array = MarkovLabel


class MixAnnotatorsd(_LabelErrord):
    """Dictionary-based version of :class:`MixAnnotators`: ``keys``, then its arguments, and ``allow_missing_keys``."""

    array = MixAnnotators


class OmitObjectsd(_LabelErrord):
    """Dictionary-based version of :class:`OmitObjects`: ``keys``, then its arguments, and ``allow_missing_keys``."""

    array = OmitObjects


class PolygonLabeld(_LabelErrord):
    """Dictionary-based version of :class:`PolygonLabel`: ``keys``, then its arguments, and ``allow_missing_keys``."""

    array = PolygonLabel


class ScaleLabeld(_LabelErrord):
    """Dictionary-based version of :class:`ScaleLabel`: ``keys``, then its arguments, and ``allow_missing_keys``."""

    array = ScaleLabel


class WobbleLabeld(_LabelErrord):
    """Dictionary-based version of :class:`WobbleLabel`: ``keys``, then its arguments, and ``allow_missing_keys``."""

    array = WobbleLabel


class OpenCloseLabeld(_EachKey):
    """Dictionary-based version of :class:`OpenCloseLabel`.

    Args:
        keys: keys of the labels to repair.
        radius: radius of the ball in pixels.
        ignore_index: a number that stands for no class; pixels that have it keep it.
        allow_missing_keys: do not raise an exception if a key is missing.
    """

    backend = OpenCloseLabel.backend

    def __init__(
        self,
        keys: KeysCollection,
        radius: float = 1.5,
        ignore_index: int | None = None,
        allow_missing_keys: bool = False,
    ) -> None:
        super().__init__(keys, allow_missing_keys)
        self.transform = OpenCloseLabel(radius, ignore_index)


EvolveD = EvolveDict = Evolved
CorruptLabelD = CorruptLabelDict = CorruptLabeld
BiteLabelD = BiteLabelDict = BiteLabeld
FillHullD = FillHullDict = FillHulld
CocoLabelD = CocoLabelDict = CocoLabeld
CutLabelD = CutLabelDict = CutLabeld
GrowLabelD = GrowLabelDict = GrowLabeld
MarkovLabelD = MarkovLabelDict = MarkovLabeld
MixAnnotatorsD = MixAnnotatorsDict = MixAnnotatorsd
OmitObjectsD = OmitObjectsDict = OmitObjectsd
PolygonLabelD = PolygonLabelDict = PolygonLabeld
ScaleLabelD = ScaleLabelDict = ScaleLabeld
WobbleLabelD = WobbleLabelDict = WobbleLabeld
OpenCloseLabelD = OpenCloseLabelDict = OpenCloseLabeld
