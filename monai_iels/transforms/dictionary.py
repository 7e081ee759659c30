# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Dictionary-based versions of the transforms: ``keys``, then the arguments of the array version."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping
from typing import Any, ClassVar, TypeAlias

from monai.config import KeysCollection, NdarrayOrTensor
from monai.transforms import MapTransform, Transform

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

_Error: TypeAlias = Callable[[NdarrayOrTensor], NdarrayOrTensor]


class _EachKey(MapTransform):
    """Apply the array version to the item of each key."""

    _array: ClassVar[type[Transform]]
    __signature__: ClassVar[inspect.Signature]
    transform: Callable[[NdarrayOrTensor], NdarrayOrTensor]

    def __init_subclass__(cls, array: type[Transform]) -> None:
        """Take backend and arguments from the array version."""
        cls._array, cls.backend = array, array.backend
        own, arguments = inspect.signature(_EachKey.__init__).parameters, inspect.signature(array).parameters
        cls.__signature__ = inspect.Signature([own["keys"], *arguments.values(), own["allow_missing_keys"]])

    def __init__(self, keys: KeysCollection, *args: Any, allow_missing_keys: bool = False, **kwargs: Any) -> None:
        super().__init__(keys, allow_missing_keys)
        self.transform = self._array(*args, **kwargs)

    def __call__(self, data: Mapping[Hashable, NdarrayOrTensor]) -> dict[Hashable, NdarrayOrTensor]:
        """Return the dictionary with the items of the keys transformed."""
        return {**data, **{key: self.transform(data[key]) for key in self.key_iterator(data)}}


class BiteLabeld(_EachKey, array=BiteLabel):
    """Dictionary-based version of :class:`BiteLabel`."""


class CocoLabeld(_EachKey, array=CocoLabel):
    """Dictionary-based version of :class:`CocoLabel`."""


class CorruptLabeld(_EachKey, array=CorruptLabel):
    """Dictionary-based version of :class:`CorruptLabel`."""


class CutLabeld(_EachKey, array=CutLabel):
    """Dictionary-based version of :class:`CutLabel`."""


class Evolved(_EachKey, array=Evolve):
    """Dictionary-based version of :class:`Evolve`."""


class FillHulld(_EachKey, array=FillHull):
    """Dictionary-based version of :class:`FillHull`."""


class GrowLabeld(_EachKey, array=GrowLabel):
    """Dictionary-based version of :class:`GrowLabel`."""


class MarkovLabeld(_EachKey, array=MarkovLabel):
    """Dictionary-based version of :class:`MarkovLabel`."""


class MixAnnotatorsd(_EachKey, array=MixAnnotators):
    """Dictionary-based version of :class:`MixAnnotators`."""


class OmitObjectsd(_EachKey, array=OmitObjects):
    """Dictionary-based version of :class:`OmitObjects`."""


class OpenCloseLabeld(_EachKey, array=OpenCloseLabel):
    """Dictionary-based version of :class:`OpenCloseLabel`."""


class PolygonLabeld(_EachKey, array=PolygonLabel):
    """Dictionary-based version of :class:`PolygonLabel`."""


class ScaleLabeld(_EachKey, array=ScaleLabel):
    """Dictionary-based version of :class:`ScaleLabel`."""


class WobbleLabeld(_EachKey, array=WobbleLabel):
    """Dictionary-based version of :class:`WobbleLabel`."""


class LabelErrord(MapTransform):
    """Apply one label error, or several in order, to each key; bundles apply their ``label_error`` with it.

    Args:
        keys: keys of the labels.
        error: None for no error, a transform of a label ``(1, *spatial)`` such as ``CorruptLabel``, any other callable,
            or a list of them.
        ignore_index: label value of pixels without a class. The transforms of this package keep these pixels; any other
            callable is called with the label as it is.
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

    def __init__(
        self,
        keys: KeysCollection,
        error: _Error | list[_Error] | None,
        ignore_index: int | None = None,
        allow_missing_keys: bool = False,
    ) -> None:
        super().__init__(keys, allow_missing_keys)
        errors = [] if error is None else error if isinstance(error, list) else [error]
        for each in errors:
            if not callable(each):
                raise TypeError(
                    f"`error` must be a transform such as CorruptLabel, a list of them, or None, got {each!r}."
                )
        self.errors = [each.keeping(ignore_index) if isinstance(each, LabelTransform) else each for each in errors]

    def __call__(self, data: Mapping[Hashable, NdarrayOrTensor]) -> dict[Hashable, NdarrayOrTensor]:
        """Return the dictionary with all errors in the labels.

        Raises:
            ValueError: if an error fails, with its own words.
        """
        changed = dict(data)
        for key in self.key_iterator(changed):
            for error in self.errors:
                try:
                    changed[key] = error(changed[key])
                except Exception as problem:
                    name, shape = getattr(error, "__name__", type(error).__name__), tuple(changed[key].shape)
                    reason = " ".join(str(problem).split())[:300]
                    raise ValueError(
                        f"the label error {name} failed on a label of shape {shape}: {reason}; `label_error` must be "
                        "made of transforms of one label, such as monai_iels.CorruptLabel"
                    ) from problem
        return changed
