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

"""What the settings of a training must be: one rule per key, and what several keys must be together."""

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from monai.utils import ensure_tuple

from monai_iels.errors import first_line

__all__ = ["CHECKED", "Rule", "check_values"]


class Rule(NamedTuple):
    """A condition on one value, and its name in a sentence."""

    holds: Callable[[Any], bool]
    words: str


def _whole(least: int) -> Rule:
    return Rule(lambda value: type(value) is int and value >= least, f"a whole number from {least}")


def _none_or(rule: Rule) -> Rule:
    return Rule(lambda value: value is None or rule.holds(value), rule.words)


def _per_axis(rule: Rule) -> Rule:
    return Rule(lambda value: all(map(rule.holds, ensure_tuple(value))), f"{rule.words}, or one per axis")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < float("inf")


def _is_name(value: Any) -> bool:
    return value is None or (isinstance(value, str) and bool(value) and not set(value) & set("/:"))


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and not value.startswith("~")


def _is_regions(value: Any) -> bool:
    return value is None or (
        isinstance(value, list) and all(isinstance(group, list) and all(map(_whole(0).holds, group)) for group in value)
    )


_TEXT = Rule(lambda value: isinstance(value, str) and bool(value), "text in quotes")
_POSITIVE = Rule(lambda value: _is_number(value) and value > 0, "a number above 0")

_RULES: dict[str, Rule] = {
    **dict.fromkeys(("epochs", "batch_size", "val_interval", "repeats", "lr_step", "in_channels"), _whole(1)),
    **dict.fromkeys(("seed", "split_seed", "iel_warmup", "iel_steps", "num_workers"), _whole(0)),
    **dict.fromkeys(("learning_rate", "iel_dt"), _POSITIVE),
    "bundle_root": Rule(os.path.isdir, "a folder that exists"),
    **dict.fromkeys(("experiment_name", "run_name", "section", "dataset_dir"), _TEXT),
    **dict.fromkeys(("output_dir", "cache_dir"), Rule(_is_path, "a path that is written out, without ~")),
    "register_model": Rule(_is_name, "a name without / and :"),
    "regions": Rule(_is_regions, "groups of classes such as [[1,2],[2]]"),
    "run_tags": Rule(lambda value: isinstance(value, dict), "names with values such as \"{'reader':'A'}\""),
    "dice_weight": Rule(lambda value: _is_number(value) and value >= 0, "a number from 0"),
    "iel_spacing": _per_axis(_POSITIVE),
    "noise_fraction": Rule(lambda value: _is_number(value) and 0 <= value <= 1, "a number from 0 to 1"),
    "noise_window": _per_axis(_whole(1)),
    "num_classes": _whole(2),
    "sample_count": _whole(4),
    "sample_size": _none_or(_whole(24)),
    "spatial_dims": Rule(lambda value: value in (2, 3), "2 or 3"),
    "training_cases": _none_or(_whole(1)),
}
CHECKED = (*_RULES, "device", "features", "image_size", "label_values", "track")


def check_values(values: Mapping[str, Any]) -> None:
    """Refuse values that would fail late, or go wrong without a word.

    Args:
        values: the value of each key in ``CHECKED``.

    Raises:
        ValueError: for the first one, with its value.
    """
    for key, rule in _RULES.items():
        if not rule.holds(values[key]):
            raise ValueError(f"--{key} must be {rule.words}, got {values[key]!r}")
    if values["val_interval"] > values["epochs"]:
        raise ValueError(f"--val_interval must be at most the {values['epochs']} epochs, got {values['val_interval']}")
    for key, length in (("features", 6), ("image_size", values["spatial_dims"])):
        value = values[key]
        if not isinstance(value, list) or len(value) != length or not all(map(_whole(1).holds, value)):
            raise ValueError(f"--{key} must be {length} whole numbers from 1 in brackets, got {value!r}")
    if min(values["image_size"]) < 17:
        size = values["image_size"]
        raise ValueError(f"--image_size must be at least 17 along each axis, for a network of 5 levels, got {size}")
    labels = values["label_values"]
    if not isinstance(labels, list) or len(labels) != values["num_classes"]:
        raise ValueError(
            f"--label_values must have one entry per class (--num_classes {values['num_classes']}), got {labels!r}"
        )
    for key in ("iel_spacing", "noise_window"):
        if isinstance(values[key], list) and len(values[key]) != values["spatial_dims"]:
            raise ValueError(f"--{key} must be one number or {values['spatial_dims']}, one per axis, got {values[key]}")
    classes = {number for group in values["regions"] or [] for number in group}
    if classes and max(classes) >= values["num_classes"]:
        raise ValueError(f"--regions must be of the classes 0 to {values['num_classes'] - 1}, got {values['regions']}")
    if values["register_model"] and not values["track"]:
        raise ValueError("--register_model needs a tracked training: leave out --track false")
    _check_device(values["device"])


def _check_device(device: Any) -> None:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise ValueError(f"--device {device} cannot be used here ({first_line(error)[:120]})") from None
