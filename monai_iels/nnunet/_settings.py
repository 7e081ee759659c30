# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Settings of the trainers for nnU-Net: a file beside the plans, and variables of the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from monai.utils import ensure_tuple

from monai_iels._yaml import read_mapping, read_value
from monai_iels.settings import Rule, check_rules, each, is_above, is_text, is_whole, number, unknown_key, whole_number

PREFIX = "nnUNet_iel_"
_OFF = ", or null for no layer"
_COUNT = whole_number(1, "a whole number, at least {}")
_RULES = {
    "epochs": _COUNT,
    "evolution": Rule(lambda name, _: name in ("guided", "heat"), "guided or heat"),
    "gain": number(1).or_none(_OFF),
    "iterations": _COUNT,
    "radii": Rule(
        lambda radii, _: each(lambda radius: is_above(radius, 0), radii),
        "a list of millimeters above 0, such as [5, 10, 15]",
    ),
    "reach": number(0, "a number of millimeters above {}").or_none(_OFF),
    "regions": Rule(
        lambda groups, _: each(lambda group: each(is_text, group), groups),
        "groups of labels of dataset.json, such as [[liver, tumor], [tumor]]",
    ).or_none(),
    "threads": _COUNT.or_none(", or null"),
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
    file = Path(folder) / "iel.yaml"
    given = read_mapping(file, "settings of the layer, such as `gain: 15`") if file.exists() else {}
    places = dict.fromkeys(given, str(file))
    for name in sorted(os.environ):
        if name.startswith(PREFIX):
            key = name.removeprefix(PREFIX)
            given[key], places[key] = read_value(os.environ[name], name), f"the variable {name}"
    for key, place in places.items():
        if key not in _RULES:
            raise ValueError(f"{place}: {unknown_key(key, _RULES)}")
    settings = {**defaults, **given}
    check_rules({key: _RULES[key] for key in sorted(given)}, settings, lambda key: f"{places[key]}: {key}")
    settings.setdefault("warmup", settings["epochs"] // 3)
    return settings


def regions_of(
    groups: list[list[str]] | None, labels: Mapping[str, Any], has_regions: bool
) -> tuple[tuple[int, ...], ...]:
    """Return the channels of each group of labels of ``dataset.json``; by default each foreground label is a group.

    Raises:
        ValueError: for a name that is not a label's.
    """
    names = [name for name, value in labels.items() if name != "ignore" and value not in (0, [0])]
    values = range(len(names)) if has_regions else [ensure_tuple(labels[name])[0] for name in names]
    channels = dict(zip(names, values, strict=True))
    groups = [[name] for name in channels] if groups is None else groups
    for name in chain(*groups):
        if name not in channels:
            raise ValueError(f"regions: there is no label '{name}' in dataset.json; it has {', '.join(channels)}")
    return tuple(tuple(channels[name] for name in group) for group in groups)
