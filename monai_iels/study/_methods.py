# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Overrides of a bundle's config, one after another, and methods that stand for some of them."""

import copy
import difflib
from pathlib import Path
from typing import Any, TypeAlias

from monai.bundle import ReferenceResolver
from monai.bundle.utils import ID_SEP_KEY
from monai.utils import ensure_tuple

from monai_iels._yaml import read_mapping

Overrides: TypeAlias = dict[str, Any]
"""Values for keys of a bundle's config."""

_METHODS = read_mapping(Path(__file__).with_name("methods.yaml"), "methods")


def with_methods(overrides: Overrides) -> Overrides:
    """Return overrides with ``method``, a name or a list of names, replaced by what these methods override.

    The methods come first, so that the overrides beside them can change their numbers, in whatever order they are.

    Raises:
        ValueError: if there is no such method, or two of them override the same key.

    Example:
        >>> with_methods({"layer#steps": 0, "method": "label_smoothing"})
        {'loss#loss#label_smoothing': 0.1, 'layer#steps': 0}
    """
    own, found = dict(overrides), {}
    for name in ensure_tuple(own.pop("method", ())):
        if name not in _METHODS:
            nearest = difflib.get_close_matches(str(name), _METHODS, 1, 0.0)[0]
            raise ValueError(f"unknown method '{name}': did you mean '{nearest}'?")
        if both := [key for key in _METHODS[name] if key in found]:
            raise ValueError(f"method '{name}' and one before it both set '{both[0]}': keep one of them")
        found.update(_METHODS[name])
    return merged(found, own)


def merged(*several: Overrides) -> Overrides:
    """Return overrides one after another: a later one replaces a key together with all that was changed inside of it.

    Example:
        >>> merged({"loss#weight": 2, "epochs": 4}, {"loss": {"weight": 1}}, {"loss#weight": 3})
        {'epochs': 4, 'loss': {'weight': 1}, 'loss#weight': 3}
    """
    result: Overrides = {}
    for overrides in several:
        for key, value in copy.deepcopy(overrides).items():
            result = {old: result[old] for old in result if not _path(old).startswith(_path(key))}
            result[key] = value
    return result


def _path(key: str) -> str:
    return ReferenceResolver.normalize_id(key) + ID_SEP_KEY
