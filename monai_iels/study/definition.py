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

"""What a study is: a bundle, variants as dictionaries of overrides, and seeds."""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from monai.bundle import ReferenceResolver
from monai.bundle.utils import ID_SEP_KEY

from monai_iels.bundle.config import unknown_key
from monai_iels.bundle.reading import read_mapping, read_yaml

__all__ = ["Study", "by_group", "check_overrides", "choose", "presets", "read_study", "slug"]

_KEYS = {"bundle", "variants", "seeds"}
_OWNED = {"bundle_root", "cache_dir", "dataset_dir", "experiment_name", "output_dir", "resume"}
_OWNED |= {"run_name", "run_tags", "seed", "track", "tracking_uri"}


class Study(NamedTuple):
    """A comparison: the first variant of a group is its baseline; ``GROUP / VARIANT`` puts a variant in a group."""

    name: str
    bundle: Path
    variants: dict[str, dict[str, Any]]
    seeds: list[int]
    file: Path


def read_study(file: Path, seeds: int | None = None) -> Study:
    """Read a study's file.

    Args:
        file: YAML with ``bundle``, ``variants`` (a dictionary of overrides each) and ``seeds``.
        seeds: how many seeds, if not as many as the file says.

    Raises:
        ValueError: if it is no study, with what was expected.
    """
    content = read_yaml(file, "a study")
    found = sorted(map(str, content)) if isinstance(content, dict) else type(content).__name__
    if not isinstance(content, dict) or set(content) != _KEYS:
        raise ValueError(f"{file}: expected bundle, variants and seeds, found {found}.")
    variants = content["variants"]
    if not isinstance(variants, dict) or not variants or not all(map(_is_variant, variants.items())):
        raise ValueError(
            f"{file}: expected variants that are a name and a dictionary of overrides each, found {variants}."
        )
    count = content["seeds"] if seeds is None else seeds
    if not isinstance(count, int) or count < 1:
        place = file if seeds is None else "--seeds"
        raise ValueError(f"{place}: expected a number of seeds from 1, found {count}.")
    if len({slug(name) for name in variants}) < len(variants):
        raise ValueError(f"{file}: expected variants whose names differ in letters or digits, found {list(variants)}.")
    return Study(file.stem, _bundle(file, str(content["bundle"])), variants, list(range(count)), file)


def _is_variant(item: tuple[Any, Any]) -> bool:
    """Return whether this is a name with overrides that a JSON file of arguments can hold."""
    name, overrides = item
    try:
        json.dumps(overrides)
    except (TypeError, ValueError):
        return False
    return isinstance(name, str) and isinstance(overrides, dict) and all(isinstance(key, str) for key in overrides)


def _bundle(file: Path, name: str) -> Path:
    """Find a bundle by its name, beside the study's own, or by a path from the study's file."""
    home = Path(os.path.abspath(file)).parent
    for folder in (home.parent.parent / name, Path(os.path.abspath(home / name))):
        if (folder / "configs" / "train.json").exists():
            return folder
    raise ValueError(f"{file}: expected the name of a bundle or a path to one, found '{name}'.")


def slug(name: str) -> str:
    """Return a variant's name as a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def by_group(variants: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return variants by group: to each group, the full name of each variant by its short one, the baseline first."""
    groups: dict[str, dict[str, str]] = {}
    for variant in variants:
        group, _, name = variant.rpartition(" / ")
        groups.setdefault(group, {})[name] = variant
    return groups


def choose(study: Study, names: Sequence[str]) -> Study:
    """Return a study with only some of its variants; the baselines of their groups stay.

    Raises:
        ValueError: for a name that the study does not have.
    """
    for name in names:
        if name not in study.variants:
            raise ValueError(f"--variants: expected one of {', '.join(study.variants)}, found '{name}'.")
    groups = [list(group.values()) for group in by_group(study.variants).values()]
    kept = {*names, *(group[0] for group in groups if set(group) & set(names))}
    return study._replace(variants={name: value for name, value in study.variants.items() if name in kept})


def presets(bundle: Path) -> dict[str, dict[str, Any]]:
    """Return the settings that a bundle's studies may run with, by name: ``paper`` is as the bundle is."""
    file = bundle / "presets.yaml"
    found = read_mapping(file, "presets") if file.exists() else {}
    for name, overrides in found.items():
        if not isinstance(overrides, dict):
            raise ValueError(f"{file}: '{name}' must hold overrides, such as {{epochs: 10}}, got {overrides}.")
    return {"paper": {}, **found}


def check_overrides(study: Study, config: Mapping[str, Any]) -> None:
    """Refuse a study with an override that its bundle does not know, also in a preset, with the nearest key there is.

    Raises:
        ValueError: for the first one.
    """
    places = {f"preset '{name}'": overrides for name, overrides in presets(study.bundle).items()}
    places.update({f"variant '{name}'": overrides for name, overrides in study.variants.items()})
    for place, overrides in places.items():
        for key in overrides:
            if key in _OWNED:
                raise ValueError(f"{study.name}, {place}: expected no '{key}', found one. A study sets it.")
            name = ReferenceResolver.normalize_id(key)
            if name not in config["known_keys"] and name.split(ID_SEP_KEY)[0] not in config:
                raise ValueError(unknown_key(f"{study.name}, {place}, '{key}'", key, config["known_keys"]))
