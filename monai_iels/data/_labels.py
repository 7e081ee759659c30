# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""Label values: which values of a mask stand for which class, and what to do about others."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from monai.config import KeysCollection
from monai.transforms import MapTransform, Transform
from monai.utils import ensure_tuple

from monai_iels.data._problems import DataError, Problem
from monai_iels.images import IGNORED

_FEW = 5  # more values than these are not classes, and not all named
Values = Sequence[int | Sequence[int]]
"""For each class, background first, the value or values that stand for it in a label file."""


class LabelValues(Transform):
    """Replace the values of a label file by class numbers, and refuse any other value.

    Args:
        values: for each class, background first, the value or list of values that stand for it: ``[0, [1, 255]]``.
        ignored: values of pixels to leave out; they become :data:`IGNORED`.

    Raises:
        ValueError: if a value is not a whole number, stands for several classes, or for a class and is ignored; or if
            there are more classes than :data:`IGNORED`.

    Example:
        >>> LabelValues([0, [1, 255]], ignored=[7])(torch.tensor([0, 1, 255, 7]))
        tensor([  0,   1,   1, 255])
    """

    def __init__(self, values: Values, ignored: Sequence[int] = ()) -> None:
        self.classes = [ensure_tuple(value) for value in values] if isinstance(values, Sequence) else []
        self.known, self.ignored = list(chain(*self.classes)), list(ensure_tuple(ignored))
        if not self.known or not all(type(value) is int for value in self.known):
            rule = "one whole number or list of them per class, such as [0, [1, 255]]"
            raise ValueError(f"label_values must be {rule}, got {values!r}")
        if not all(type(value) is int for value in self.ignored):
            raise ValueError(f"ignored_values must be a list of whole numbers, such as [255], got {ignored!r}")
        if len(self.classes) > IGNORED:
            rule = f"at most {IGNORED} classes, since {IGNORED} marks ignored pixels"
            raise ValueError(f"label_values must have {rule}, got {len(self.classes)}")
        for value, count in Counter([*self.known, *self.ignored]).items():
            if count > 1:
                raise ValueError(f"label_values: {value} is there {count} times; keep it once, or in ignored_values")

    def __call__(self, label: Any) -> Any:
        """Return a label of ``0 .. classes - 1``, and :data:`IGNORED`.

        Raises:
            DataError: with the name of the file and its other values.
        """
        if others := self._others(np.unique(label).tolist()):
            file = getattr(label, "meta", {}).get("filename_or_obj", "label")
            problem = f"the mask has the values {_first_few(others)}, but only {self} stand for classes"
            raise DataError(Problem("values", str(file), problem))
        classes = torch.zeros_like(label)
        for number, values in [*enumerate(self.classes), (IGNORED, self.ignored)]:
            classes[torch.isin(torch.as_tensor(label), torch.tensor(values))] = number
        return classes

    def __str__(self) -> str:
        ignored = f" and, for ignored pixels, {', '.join(map(str, self.ignored))}" if self.ignored else ""
        return ", ".join(map(str, self.known)) + ignored

    def problems_of(self, found: Mapping[str, set[float]]) -> list[Problem]:
        """Return, as one problem, which label files have values that stand for no class, and what accepts these.

        Args:
            found: the values in each file.
        """
        others = {file: strays for file, values in found.items() if (strays := self._others(values))}
        if not others:
            return []
        folder = os.path.commonpath([os.path.dirname(file) for file in others])
        present = set().union(*found.values())
        absent = [value for value in self.known if value not in present]
        if len(others) == len(found) > 1 and absent and (numbers := _as_classes(present.difference(self.ignored))):
            problem = f"all {len(found)} files have values other than {self}"
            remedy = (
                f"The files have the values {', '.join(map(str, numbers))}; {_first_few(absent)} is in no file. List "
                f"them in the order of the classes, for example label_values: {numbers}, num_classes: {len(numbers)}."
            )
        else:
            named = ", ".join(f"{os.path.relpath(file, folder)} ({_first_few(few)})" for file, few in others.items())
            problem = f"{len(others)} of {len(found)} files have values other than {self}: {named}"
            remedy = self._how_to_accept(set().union(*others.values()))
        return [Problem("values", folder, problem, remedy)]

    def _others(self, values: Iterable[float]) -> list[float]:
        """Return the values that stand for no class and are not ignored, sorted."""
        return sorted(set(values).difference(self.known, self.ignored))

    def _how_to_accept(self, strays: set[float]) -> str:
        """Say which options accept stray values; many different values mean that a mask was smoothed."""
        numbers = _as_classes(strays)
        if not numbers:
            return (
                f"These are {len(strays)} different values, as in a mask that was resized with interpolation or saved "
                "as JPEG: save the masks again with only their own values."
            )
        known = [list(group) if len(group) > 1 else group[0] for group in self.classes]
        return (
            "Correct the files, or say what the values stand for: as part of a class, here the last, "
            f'--label_values "{[*known[:-1], [*self.classes[-1], *numbers]]}"; '
            f'as pixels to leave out, --ignored_values "{[*self.ignored, *numbers]}".'
        )


def _as_classes(values: Collection[float]) -> list[int]:
    """Return values as sorted whole numbers if they can be classes: if they are few, and none is a fraction."""
    is_possible = len(values) <= _FEW and not any(value % 1 for value in values)
    return sorted(map(int, values)) if is_possible else []


def _first_few(values: Sequence[float]) -> str:
    """Return the first few numbers as text.

    Example:
        >>> _first_few([1.0, 2.5, 3.0, 4.0, 5.0, 6.0])
        '1, 2.5, 3, 4, 5, ...'
    """
    return ", ".join(f"{value:g}" for value in values[:_FEW]) + (", ..." if len(values) > _FEW else "")


class LabelValuesd(MapTransform):
    """Replace the values of label files by class numbers; see :class:`LabelValues`.

    Args:
        keys: keys of the labels.
        values: for each class, background first, the value or values that stand for it: ``[0, 128, 255]``.
        ignored: values of pixels to leave out; they become :data:`IGNORED`.
        allow_missing_keys: whether a case may lack a key.

    Raises:
        DataError: with the name of the file and its other values.
    """

    def __init__(
        self, keys: KeysCollection, values: Values, ignored: Sequence[int] = (), allow_missing_keys: bool = False
    ) -> None:
        super().__init__(keys, allow_missing_keys)
        self.values = LabelValues(values, ignored)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Return the case with class numbers for labels."""
        case = dict(data)
        for key in self.key_iterator(case):
            case[key] = self.values(case[key])
        return case


class SetAsideIgnoredd(MapTransform):
    """Mark which pixels have a class, and give the others the first one, so that labels can be made one-hot.

    Args:
        keys: keys of the labels; the first says which pixels have a class.
        mask_key: where to put the mask.
        allow_missing_keys: whether a case may lack a key.
    """

    def __init__(self, keys: KeysCollection, mask_key: str, allow_missing_keys: bool = False) -> None:
        super().__init__(keys, allow_missing_keys)
        self.mask_key = mask_key

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Return the case with the mask."""
        case = {**data, self.mask_key: data[self.keys[0]] != IGNORED}
        for key in self.key_iterator(case):
            case[key] = torch.where(case[key] != IGNORED, case[key], 0)
        return case
