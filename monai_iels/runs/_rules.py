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

"""What the settings of a training must be: one rule per key."""

from collections.abc import Mapping
from typing import Any

from monai.utils import ensure_tuple

from monai_iels._prediction import NETWORK_RULES, Rule, is_whole, whole_number


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < float("inf")


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_side(value: Any) -> bool:
    return is_whole(value, 1)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _are_regions(value: Any, settings: Mapping[str, Any]) -> bool:
    """Return whether these are groups of classes that exist."""
    if not isinstance(value, list) or not all(isinstance(group, list) for group in value):
        return False
    numbers = [number for group in value for number in group]
    return all(is_whole(number, 0) and number < settings["num_classes"] for number in numbers)


def _are_colors(value: Any, settings: Mapping[str, Any]) -> bool:
    """Return whether each class has a color."""
    if not isinstance(value, list) or len(value) != settings["num_classes"]:
        return False
    return all(isinstance(c, list) and len(c) == 3 and all(is_whole(x, 0) and x < 256 for x in c) for c in value)


def _is_model_name(value: Any, settings: Mapping[str, Any]) -> bool:
    return settings["track"] and _is_text(value) and not set(value) & set("/:")


def _or_none(rule: Rule) -> Rule:
    return Rule(lambda value, settings: value is None or rule.holds(value, settings), rule.words)


def _one_or_per_axis(holds: Any, words: str) -> Rule:
    def fits(value: Any, settings: Mapping[str, Any]) -> bool:
        is_short = isinstance(value, list) and len(value) != settings["spatial_dims"]
        return not is_short and all(map(holds, ensure_tuple(value)))

    return Rule(fits, f"{words}, or {{spatial_dims}} of them, one per axis")


_TEXT = Rule(lambda value, _: _is_text(value), "text in quotes")
_PATH = Rule(lambda value, _: _is_text(value) and not value.startswith("~"), "a path that is written out, without ~")
_POSITIVE = Rule(lambda value, _: _is_positive(value), "a number above 0")

RULES = NETWORK_RULES | {
    **dict.fromkeys(("epochs", "batch_size", "repeats", "lr_step", "in_channels"), whole_number(1)),
    **dict.fromkeys(("seed", "split_seed", "iel_warmup", "iel_steps", "num_workers", "bite_count"), whole_number(0)),
    **dict.fromkeys(("learning_rate", "iel_dt"), _POSITIVE),
    "colors": _or_none(Rule(_are_colors, "{num_classes} lists of red, green and blue, from 0 to 255")),
    "iel_gain": _or_none(Rule(lambda value, _: _is_number(value) and value > 1, "a number above 1")),
    "iel_reach": _or_none(_POSITIVE),
    "ema_decay": _or_none(Rule(lambda value, _: _is_number(value) and 0 <= value < 1, "a number from 0 to below 1")),
    **dict.fromkeys(("experiment_name", "run_name", "section", "dataset_dir"), _TEXT),
    **dict.fromkeys(("output_dir", "cache_dir"), _PATH),
    "val_interval": Rule(
        lambda value, settings: is_whole(value, 1) and value <= settings["epochs"],
        "a whole number from 1 to the {epochs} epochs",
    ),
    "register_model": _or_none(Rule(_is_model_name, "a name without / and :, and the training must be tracked")),
    "pretrained": _or_none(_PATH),
    "regions": _or_none(Rule(_are_regions, "groups of classes below {num_classes}, such as [[1,2],[2]]")),
    "run_tags": Rule(lambda value, _: isinstance(value, dict), "names with values such as \"{{'reader':'A'}}\""),
    **dict.fromkeys(
        ("dice_weight", "bite_radius", "hull_radius", "repair_radius"),
        Rule(lambda value, _: _is_number(value) and value >= 0, "a number from 0"),
    ),
    "iel_spacing": _one_or_per_axis(_is_positive, "a number above 0"),
    "noise_fraction": Rule(lambda value, _: _is_number(value) and 0 <= value <= 1, "a number from 0 to 1"),
    "noise_window": _one_or_per_axis(_is_side, "a whole number from 1"),
    "sample_count": whole_number(4),
    "sample_size": _or_none(whole_number(24)),
    "training_cases": _or_none(whole_number(1)),
}
