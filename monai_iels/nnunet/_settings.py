# Copyright the monai_iels contributors
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#     http://www.apache.org/licenses/LICENSE-2.0
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""Settings of the trainers for nnU-Net: a file beside the plans, and variables of the environment."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from monai_iels._yaml import read_mapping, read_value

FILE = "iel.yaml"
PREFIX = "nnUNet_iel_"


def _is_above(value: Any, limit: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and limit < value < float("inf")


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _are(holds: Callable[[Any], bool], value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(holds, value))


def _is_name(value: Any) -> bool:
    return isinstance(value, str)


# For each key, what must hold of it and all settings, and the same in words.
# `monai_iels._prediction` has such rules for bundles; it needs packages that the extra `nnunet` does not have.
_RULES: dict[str, tuple[Callable[[Any, Mapping[str, Any]], bool], str]] = {
    "gain": (lambda gain, _: gain is None or _is_above(gain, 1), "a number above 1, or null for no layer"),
    "reach": (
        lambda reach, _: reach is None or _is_above(reach, 0),
        "a number of millimeters above 0, or null for no layer",
    ),
    "radii": (
        lambda radii, _: _are(lambda radius: _is_above(radius, 0), radii),
        "a list of millimeters above 0, such as [5, 10, 15]",
    ),
    "regions": (
        lambda groups, _: groups is None or _are(lambda group: _are(_is_name, group), groups),
        "groups of labels of dataset.json, such as [[liver, tumor], [tumor]]",
    ),
    "epochs": (lambda epochs, _: _is_whole(epochs, 1), "a whole number, at least 1"),
    "iterations": (lambda iterations, _: _is_whole(iterations, 1), "a whole number, at least 1"),
    "threads": (lambda threads, _: threads is None or _is_whole(threads, 1), "a whole number, at least 1, or null"),
    "warmup": (
        lambda warmup, settings: _is_whole(warmup, 0) and warmup < settings["epochs"],
        "a whole number of epochs, at least 0 and below the {epochs} epochs of the training",
    ),
}


def read_settings(folder: str, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Read the settings for a data set; a variable such as ``nnUNet_iel_gain`` replaces the key of the file.

    Args:
        folder: the folder of the preprocessed data set, which holds the plans.
        defaults: values of the keys that are set nowhere. The warm-up's is a third of the epochs.

    Raises:
        ValueError: for an unknown key, or a value that is not one for it, with the file or variable that has it.
    """
    file = Path(folder) / FILE
    found = {key: (value, str(file)) for key, value in _mapping(file).items()}
    for name in sorted(os.environ):
        if name.startswith(PREFIX):
            found[name.removeprefix(PREFIX)] = (read_value(os.environ[name], name), f"the variable {name}")
    for key, (_, place) in found.items():
        if key not in _RULES:
            nearest = difflib.get_close_matches(key, _RULES, 1, 0.0)[0]
            raise ValueError(f"{place}: unknown key '{key}': did you mean '{nearest}'?")
    settings = {**defaults, **{key: value for key, (value, _) in found.items()}}
    for key, (value, place) in sorted(found.items()):  # epochs before warmup
        holds, words = _RULES[key]
        if not holds(value, settings):
            raise ValueError(f"{place}: {key} must be {words.format(**settings)}, got {value!r}")
    settings.setdefault("warmup", settings["epochs"] // 3)
    return settings


def _mapping(file: Path) -> dict[str, Any]:
    return read_mapping(file, "settings of the layer, such as `gain: 15`") if file.exists() else {}


def channels_of(labels: Mapping[str, Any], has_regions: bool) -> dict[str, int]:
    """Return the channel of each foreground label of ``dataset.json``, or of each region if it has regions."""
    names = [name for name, value in labels.items() if name != "ignore" and value not in (0, [0])]
    if has_regions:
        return {name: channel for channel, name in enumerate(names)}
    return {name: labels[name][0] if isinstance(labels[name], list) else labels[name] for name in names}


def regions_of(groups: list[list[str]] | None, channels: Mapping[str, int]) -> tuple[tuple[int, ...], ...]:
    """Return the channels of each group of labels; by default each label is a group.

    Raises:
        ValueError: for a name that is not a label's.
    """
    groups = [[name] for name in channels] if groups is None else groups
    for name in (name for group in groups for name in group):
        if name not in channels:
            raise ValueError(f"regions: there is no label '{name}' in dataset.json; it has {', '.join(channels)}")
    return tuple(tuple(channels[name] for name in group) for group in groups)
