# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""What a study is: a bundle, rows and columns of overrides of the bundle's config, and seeds."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from monai.bundle import ConfigParser, ReferenceResolver
from monai.bundle.utils import ID_SEP_KEY
from monai.utils import ensure_tuple

from monai_iels._yaml import read_mapping
from monai_iels.runs import known_keys, training_config
from monai_iels.settings import unknown_key
from monai_iels.study._methods import Overrides, merged, with_methods

_CPU: Overrides = {"features": [8, 16, 32, 64, 128, 8], "epochs": 10, "learning_rate": 0.001}
_KEYS = ("bundle", "seeds", "settings", "rows", "columns")
_OF_THE_PICTURES = {"image", "truth", "noisy label"}
_SET_BY_THE_STUDY = {"bundle_root", "dataset_dir", "experiment_name", "output_dir", "resume", "run_name", "run_tags"}
_SET_BY_THE_STUDY |= {"seed", "track", "tracking_uri", "workflow_name", f"datalists{ID_SEP_KEY}cache_dir"}


@dataclass(frozen=True)
class Study:
    """A comparison of variants of one bundle.

    Args:
        name: name of the study.
        bundle: folder of the bundle.
        variants: the overrides of each variant. ``GROUP / VARIANT`` puts a variant in a group. The first variant of
            each group is its baseline.
        seeds: each variant is trained once with each of them.
        file: the YAML file of the study.
    """

    name: str
    bundle: Path
    variants: dict[str, Overrides]
    seeds: list[int]
    file: Path


def read_study(file: Path, seeds: int | None = None) -> Study:
    """Read the YAML file of a study.

    Every row, such as an error of labels, is crossed with every column, such as a method, into the variant
    ``ROW / COLUMN``. Its overrides are the settings of the study, then the column's, then the row's: what a row says
    holds in all of its variants, so that those which are compared differ in their columns alone. A column that is
    called ``ROW / COLUMN`` belongs to this row only. Without rows the columns are the variants.

    Args:
        file: has ``bundle``, ``seeds`` (how many) and ``columns`` (overrides by name), and may have ``settings``
            (overrides of all variants) and ``rows`` (overrides by name). Overrides may name a ``method``, or several.
        seeds: how many seeds, instead of the number in the file.

    Raises:
        ValueError: if the file is not a study.
    """
    content = read_mapping(file, "a study")
    if "variants" in content:
        raise ValueError(f"{file}: 'variants' is called 'columns' now; rename it")
    for key in content:
        if key not in _KEYS:
            raise ValueError(f"{file}: {unknown_key(key, _KEYS)}")
    if not {"bundle", "seeds", "columns"} <= set(content):
        raise ValueError(f"{file} must have the keys bundle, seeds and columns, got {', '.join(content) or 'none'}")
    settings = _expanded(f"{file}: 'settings'", content.get("settings", {}))
    columns = _by_name(file, "columns", content["columns"])
    rows = _by_name(file, "rows", content["rows"]) if "rows" in content else {}
    variants = list(_crossed(file, settings, rows, columns))
    names = [name for name, _ in variants]
    if taken := _OF_THE_PICTURES.intersection(name.rpartition(" / ")[2] for name in names):
        raise ValueError(f"{file}: a variant cannot be called '{min(taken)}', since the pictures have such a column")
    if len({slug(name) for name in names} - {""}) < len(names):
        raise ValueError(f"{file}: the names of the variants must differ in letters or digits, got {names}")
    count = content["seeds"] if seeds is None else seeds
    if not isinstance(count, int) or count < 1:
        place = f"{file}: 'seeds'" if seeds is None else "--seeds"
        raise ValueError(f"{place} must be at least 1, got {count}")
    return Study(file.stem, _find_bundle(file, str(content["bundle"])), dict(variants), list(range(count)), file)


def _by_name(file: Path, kind: str, found: Any) -> dict[str, Overrides]:
    """Return the overrides of each row or column, by its name."""
    if not isinstance(found, dict) or not found:
        raise ValueError(
            f"{file}: '{kind}' must list at least one name with overrides, such as U-Net: {{}}, got {found}"
        )
    if unnamed := [name for name in found if not isinstance(name, str)]:
        raise ValueError(f"{file}: names in '{kind}' must be words, got {unnamed[0]}; put it in quotes")
    return {name: _expanded(f"{file}: '{name}' in '{kind}'", overrides) for name, overrides in found.items()}


def _expanded(place: str, overrides: Any) -> Overrides:
    """Return overrides with their methods, or refuse what is none."""
    if not isinstance(overrides, dict) or not all(isinstance(key, str) for key in overrides):
        raise ValueError(f"{place} must hold overrides, such as {{layer#steps: 0}}, got {overrides}")
    try:
        return with_methods(overrides)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def _crossed(
    file: Path, settings: Overrides, rows: dict[str, Overrides], columns: dict[str, Overrides]
) -> Iterator[tuple[str, Overrides]]:
    """Yield names and overrides of all variants, row by row; without rows, group by group."""
    groups = {name: name.rpartition(" / ")[0] for name in columns}
    if rows and (unknown := set(groups.values()) - rows.keys() - {""}):
        raise ValueError(f"{file}: a column begins with '{min(unknown)} / ', but there is no such row")
    for row in rows or dict.fromkeys(groups.values()):
        for name, overrides in columns.items():
            if groups[name] == row:
                yield name, merged(settings, overrides, rows.get(row, {}))
            elif not groups[name] and rows:
                yield f"{row} / {name}", merged(settings, overrides, rows[row])


def _find_bundle(file: Path, name: str) -> Path:
    """Find a bundle by its name beside the study's own bundle, or by its path relative to the study's file."""
    home = Path(os.path.abspath(file)).parent
    for folder in (home.parent.parent / name, Path(os.path.abspath(home / name))):
        if training_config(folder).exists():
            return folder
    raise ValueError(f"{file}: there is no bundle '{name}'; give its name or its path relative to this file")


def slug(name: str) -> str:
    """Return a variant's name in a form that can be a file name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def by_group(variants: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return, for each group, the full names of its variants by their short names; the baseline is first."""
    groups: dict[str, dict[str, str]] = {}
    for variant in variants:
        group, _, name = variant.rpartition(" / ")
        groups.setdefault(group, {})[name] = variant
    return groups


def select_variants(study: Study, names: Sequence[str]) -> Study:
    """Return a study with only some of its variants, and the baselines of their groups.

    Raises:
        ValueError: if the study does not have one of the names.
    """
    for name in names:
        if name not in study.variants:
            raise ValueError(f"--variants: there is no variant '{name}'; choose from {', '.join(study.variants)}")
    selected = set(names)
    for group in by_group(study.variants).values():
        baseline, *others = group.values()
        if selected.intersection(others):
            selected.add(baseline)
    return replace(study, variants={name: study.variants[name] for name in study.variants if name in selected})


def presets(bundle: Path) -> dict[str, Overrides]:
    """Return the settings that a bundle's studies can run with, by name.

    Unless ``presets.yaml`` says otherwise, ``full`` is the bundle as it is, and ``cpu`` a small and short training.
    """
    file = bundle / "presets.yaml"
    found = read_mapping(file, "presets") if file.exists() else {}
    for name, overrides in found.items():
        if not isinstance(overrides, dict):
            raise ValueError(f"{file}: '{name}' must hold overrides, such as {{epochs: 10}}, got {overrides}.")
    return {"full": {}, "cpu": _short(bundle), **found}


def _short(bundle: Path) -> Overrides:
    """Return the settings of a small and short training, with a warm-up as long in proportion as the bundle's own."""
    config = ConfigParser(ConfigParser.load_config_file(training_config(bundle)))
    warmup, epochs = (config.get_parsed_content(key) for key in ("iel_warmup", "epochs"))
    return {**_CPU, "iel_warmup": min(warmup, warmup * _CPU["epochs"] // epochs)}


def preset_for_a_gpu(bundle: Path) -> str:
    """Return the preset for a GPU: the paper's settings if the bundle has them, otherwise the bundle as it is."""
    return "paper" if "paper" in presets(bundle) else "full"


def check_overrides(study: Study) -> None:
    """Check that a training knows every key that a variant or a preset overrides, or the key that holds it.

    Raises:
        ValueError: for the first key that is unknown, or that the study sets itself.
    """
    known = known_keys(study.bundle)
    places = {f"preset '{name}'": overrides for name, overrides in presets(study.bundle).items()}
    places.update({f"variant '{name}'": overrides for name, overrides in study.variants.items()})
    for place, overrides in places.items():
        own = {"known_keys", *ensure_tuple(overrides.get("known_keys", ()))}
        for key in overrides:
            path = ReferenceResolver.normalize_id(key)
            if path in _SET_BY_THE_STUDY:
                raise ValueError(f"{study.name}, {place}: '{key}' is set by the study itself; remove it")
            if path.split(ID_SEP_KEY)[0] not in known | own:
                raise ValueError(f"{study.name}, {place}: {unknown_key(key, known)}")
