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
    for key in content:
        if key not in _KEYS:
            raise ValueError(f"{file}: {unknown_key(key, _KEYS)}")
    if missing := [key for key in ("bundle", "seeds", "columns") if content.get(key) in (None, {})]:
        raise ValueError(f"{file} must have a bundle, seeds and columns; '{missing[0]}' is missing")
    settings = _expanded(f"{file}: 'settings'", content.get("settings") or {})
    rows, columns = (_by_name(file, kind, content.get(kind) or {}) for kind in ("rows", "columns"))
    variants = [(name, merged(settings, overrides)) for name, overrides in _crossed(file, rows, columns)]
    names = [name for name, _ in variants]
    if taken := _OF_THE_PICTURES.intersection(name.rpartition(" / ")[2] for name in names):
        raise ValueError(f"{file}: a variant cannot be called '{min(taken)}', since the pictures have such a column")
    if len({slug(name) for name in names} - {""}) < len(names):
        raise ValueError(f"{file}: the names of the variants must differ in letters or digits, got {names}")
    count = content["seeds"] if seeds is None else seeds
    if not isinstance(count, int) or count < 1:
        raise ValueError(f"{file}: the number of seeds must be at least 1, got {count}")
    return Study(file.stem, _find_bundle(file, str(content["bundle"])), dict(variants), list(range(count)), file)


def _by_name(file: Path, kind: str, found: Any) -> dict[str, Overrides]:
    """Return the overrides of each row or column, by its name."""
    if not isinstance(found, dict):
        raise ValueError(f"{file}: '{kind}' must be names with overrides, such as U-Net: {{}}, got {found}")
    return {str(name): _expanded(f"{file}: '{name}' in '{kind}'", overrides) for name, overrides in found.items()}


def _expanded(place: str, overrides: Any) -> Overrides:
    """Return overrides with their methods, or refuse what is none."""
    if not isinstance(overrides, dict) or not all(isinstance(key, str) for key in overrides):
        raise ValueError(f"{place} must hold overrides, such as {{layer#steps: 0}}, got {overrides}")
    try:
        return with_methods(overrides)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def _crossed(file: Path, rows: dict[str, Overrides], columns: dict[str, Overrides]) -> Iterator[tuple[str, Overrides]]:
    """Yield names and overrides of all variants, row by row."""
    if not rows:
        yield from columns.items()
    for row, of_row in rows.items():
        for name, overrides in columns.items():
            only, _, short = name.rpartition(" / ")
            if only and only not in rows:
                raise ValueError(f"{file}: a column begins with '{only} / ', but there is no such row")
            if only in ("", row):
                yield f"{row} / {short}", merged(overrides, of_row)


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
    groups = by_group(study.variants).values()
    baselines = {variant: next(iter(group.values())) for group in groups for variant in group.values()}
    selected = {*names, *(baselines[name] for name in names)}
    return replace(study, variants={name: study.variants[name] for name in study.variants if name in selected})


def presets(bundle: Path) -> dict[str, Overrides]:
    """Return the settings that a bundle's studies can run with, by name.

    Unless ``presets.yaml`` says otherwise, ``full`` is the bundle as it is, and ``cpu`` a small and short training.
    """
    file = bundle / "presets.yaml"
    found = read_mapping(file, "presets") if file.exists() else {}
    own = {name: _expanded(f"{file}: '{name}'", overrides) for name, overrides in found.items()}
    return {"full": {}, "cpu": _short(bundle), **own}


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
    for name, overrides in [*presets(study.bundle).items(), *study.variants.items()]:
        own = {"known_keys", *ensure_tuple(overrides.get("known_keys", ()))}
        for key in overrides:
            path = ReferenceResolver.normalize_id(key)
            if path in _SET_BY_THE_STUDY:
                raise ValueError(f"{study.name}, '{name}': '{key}' is set by the study itself; remove it")
            if path.split(ID_SEP_KEY)[0] not in known | own:
                raise ValueError(f"{study.name}, '{name}': {unknown_key(key, known | own | {'method'})}")
