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

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from monai_iels._yaml import read_mapping, read_value
from monai_iels.settings import Rule, check_rules, each, is_above, is_text, is_whole, number, unknown_key, whole_number

FILE = "iel.yaml"
PREFIX = "nnUNet_iel_"
_OFF = ", or null for no layer"
_RULES = {
    "epochs": whole_number(1, "a whole number, at least {}"),
    "gain": number(1).or_none(_OFF),
    "iterations": whole_number(1, "a whole number, at least {}"),
    "radii": Rule(
        lambda radii, _: each(lambda radius: is_above(radius, 0), radii),
        "a list of millimeters above 0, such as [5, 10, 15]",
    ),
    "reach": number(0, "a number of millimeters above {}").or_none(_OFF),
    "regions": Rule(
        lambda groups, _: each(lambda group: each(is_text, group), groups),
        "groups of labels of dataset.json, such as [[liver, tumor], [tumor]]",
    ).or_none(),
    "threads": whole_number(1, "a whole number, at least {}").or_none(", or null"),
    "warmup": Rule(
        lambda warmup, settings: is_whole(warmup, 0) and warmup < settings["epochs"],
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
    places = {key: place for key, (_, place) in found.items()}
    for key, place in places.items():
        if key not in _RULES:
            raise ValueError(f"{place}: {unknown_key(key, _RULES)}")
    settings = {**defaults, **{key: value for key, (value, _) in found.items()}}
    rules = {key: rule for key, rule in _RULES.items() if key in places}
    check_rules(rules, settings, lambda key: f"{places[key]}: {key}")
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
