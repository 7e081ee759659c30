# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""What settings may be: the sentence about a mistyped key, and one rule per key.

Bundles, prediction, studies and nnU-Net use it. It imports nothing that takes time to load.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

_ADDRESS = r"(https?|sqlite|postgresql|mysql|mssql|databricks(-uc)?)(\+\w+)?:|databricks$"
_WORDS = {"true": True, "false": False, "null": None, "none": None}


class Rule(NamedTuple):
    """What a setting must be: a condition on its value and on all settings, and the same in words."""

    holds: Callable[[Any, Mapping[str, Any]], bool]
    words: str

    def or_none(self, words: str = "") -> Rule:
        """Return a rule that None fulfills, too."""
        return Rule(lambda value, settings: value is None or self.holds(value, settings), self.words + words)


def unknown_key(key: str, known: Iterable[str]) -> str:
    """Return a sentence about a key that nothing defines, with the nearest one that exists, if it is near.

    Example:
        >>> unknown_key("epoch", ["epochs", "seed"])
        "unknown key 'epoch': did you mean 'epochs'?"
    """
    nearest = difflib.get_close_matches(key, sorted(known), 1)
    return f"unknown key '{key}'" + (f": did you mean '{nearest[0]}'?" if nearest else "")


def check_rules(
    rules: Mapping[str, Rule], values: Mapping[str, Any], name: Callable[[str], str] = "--{}".format
) -> None:
    """Refuse a value that would fail late, or go wrong without a word.

    Args:
        rules: one per key; those of keys without a value hold.
        values: all settings.
        name: returns what people call a key.

    Raises:
        ValueError: for the first one.
    """
    for key, rule in rules.items():
        if key in values and not rule.holds(values[key], values):
            raise ValueError(f"{name(key)} must be {rule.words.format(**values)}, got {values[key]!r}")


def as_typed(value: Any) -> Any:
    """Return a value as configs have it: paths as text, tuples as lists, and no text for true, false, null and none."""
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    value = list(value) if isinstance(value, tuple) else value
    return _WORDS.get(value.lower(), value) if isinstance(value, str) else value


def is_text(value: Any) -> bool:
    """Return whether a value is text, and not empty."""
    return isinstance(value, str) and bool(value)


def is_whole(value: Any, least: int) -> bool:
    """Return whether a value is a whole number that is large enough; true and false are not numbers."""
    return type(value) is int and value >= least


def is_number(value: Any, least: float, below: float = float("inf")) -> bool:
    """Return whether a value is a number from ``least`` to below another one."""
    return type(value) in (int, float) and least <= value < below


def is_above(value: Any, limit: float) -> bool:
    """Return whether a value is a finite number above a limit."""
    return is_number(value, limit) and value > limit


def each(holds: Callable[[Any], bool], value: Any) -> bool:
    """Return whether a value is a list that is not empty, and each of its entries is as it must be."""
    return isinstance(value, list) and bool(value) and all(map(holds, value))


def whole_number(least: int, words: str = "a whole number from {}") -> Rule:
    """Return the rule of a whole number."""
    return Rule(lambda value, _: is_whole(value, least), words.format(least))


def number(above: float, words: str = "a number above {}") -> Rule:
    """Return the rule of a finite number above a limit."""
    return Rule(lambda value, _: is_above(value, above), words.format(above))


def _are_whole(values: Any, count: int, least: int) -> bool:
    return each(lambda value: is_whole(value, least), values) and len(values) == count


def _is_device(value: Any, _: Mapping[str, Any]) -> bool:
    import torch

    try:
        torch.empty(0, device=value)
    except (RuntimeError, AssertionError, TypeError):
        return False
    return True


def _are_regions(value: Any, settings: Mapping[str, Any]) -> bool:
    """Return whether these are groups of classes that exist."""
    return each(lambda group: each(lambda one: is_whole(one, 0) and one < settings["num_classes"], group), value)


def _are_colors(value: Any, settings: Mapping[str, Any]) -> bool:
    """Return whether each class has a color."""
    colors = each(lambda color: _are_whole(color, 3, 0) and max(color) < 256, value)
    return colors and len(value) == settings["num_classes"]


def is_model_name(value: Any) -> bool:
    """Return whether MLflow takes a value as the name of a model."""
    return is_text(value) and not set(value) & set("/:")


_SWITCH = Rule(lambda value, _: isinstance(value, bool), "true or false")
_TEXT = Rule(lambda value, _: is_text(value), "text in quotes")
_PATH = Rule(lambda value, _: is_text(value) and not value.startswith("~"), "a path that is written out, without ~")

NETWORK: dict[str, Rule] = {
    "spatial_dims": Rule(lambda value, _: value in (2, 3), "2 or 3"),
    "features": Rule(lambda value, _: _are_whole(value, 6, 1), "6 whole numbers from 1 in brackets"),
    "image_size": Rule(
        lambda value, settings: _are_whole(value, settings["spatial_dims"], 17),
        "{spatial_dims} whole numbers from 17 in brackets, since the network has 5 levels",
    ),
    "num_classes": whole_number(2),
    "label_values": Rule(
        lambda value, settings: isinstance(value, list) and len(value) == settings["num_classes"],
        "one entry per class, as --num_classes {num_classes} says",
    ),
    "device": Rule(_is_device, "a device that can be used here, such as cpu"),
    "amp": _SWITCH,
}
"""Keys that training and prediction share."""

TRAINING = NETWORK | {
    **dict.fromkeys(("epochs", "batch_size", "lr_scheduler#step_size", "network_def#in_channels"), whole_number(1)),
    **dict.fromkeys(("seed", "datalists#seed", "iel_warmup", "num_workers"), whole_number(0)),
    **dict.fromkeys(("section", "dataset_dir"), _TEXT),
    **dict.fromkeys(("output_dir", "datalists#cache_dir"), _PATH),
    "learning_rate": number(0),
    "colors": Rule(_are_colors, "{num_classes} lists of red, green and blue, from 0 to 255").or_none(),
    "iel_gain": number(1).or_none(", or null for the network alone"),
    "iel_reach": number(0).or_none(", or null for the network alone"),
    "repair": Rule(lambda value, _: value == [] or each(callable, value), "a list of transforms in brackets"),
    "label_error": Rule(
        lambda value, _: callable(value) or each(callable, value), "a transform of a label, or a list of them"
    ).or_none(),
    "train#average#decay": Rule(lambda value, _: is_number(value, 0, 1), "a number from 0 to below 1").or_none(),
    "val_interval": Rule(
        lambda value, settings: is_whole(value, 1) and value <= settings["epochs"],
        "a whole number from 1 to the {epochs} epochs",
    ),
    "regions": Rule(_are_regions, "groups of classes below {num_classes}, such as [[1,2],[2]]").or_none(),
    "datalists#count": whole_number(4),
    "datalists#size": whole_number(24).or_none(),
}
"""Keys of a training."""

RUN: dict[str, Rule] = {
    **dict.fromkeys(("resume", "pictures", "track", "system_metrics"), _SWITCH),
    "tracking_uri": Rule(
        lambda value, _: is_text(value) and bool(re.match(_ADDRESS, value)), "an address such as http://HOST:5000"
    ).or_none(),
    "experiment_name": _TEXT,
    "run_name": _TEXT.or_none(),
    "run_tags": Rule(lambda value, _: isinstance(value, dict), "names with values, {{'reader':'A'}}").or_none(),
    "pretrained": _PATH.or_none(),
    "register_model": Rule(
        lambda value, settings: settings["track"] and is_model_name(value),
        "a name without / and :, and the training must be tracked",
    ).or_none(),
}
"""Parameters of the workflows: what concerns a run, and not what is trained."""
