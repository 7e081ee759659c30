# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""The keys of a config: which there are, and which values are plain."""

from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from monai.bundle import ConfigParser, ReferenceResolver
from monai.bundle.utils import ID_SEP_KEY

from monai_iels.settings import RUN, unknown_key

NOT_SETTINGS = {ConfigParser.meta_key, "finalize", "imports", "initialize", "run"}
"""Keys that say how MONAI runs a config, not what is trained."""


def training_config(bundle: Path) -> Path:
    """Return the file of a bundle's training config."""
    return bundle / "configs" / "train.json"


def key_paths(config: Mapping[str, Any], parent: str = "") -> Iterator[str]:
    """Yield all keys of a config, nested ones as ``train::trainer``; components check their arguments themselves."""
    for key, value in config.items():
        if key == ConfigParser.meta_key:
            continue
        path = ReferenceResolver.normalize_id(f"{parent}{key.removeprefix('+')}")
        yield path
        if isinstance(value, Mapping) and "_target_" not in value:
            yield from key_paths(value, f"{path}{ID_SEP_KEY}")


def known_keys(bundle: Path) -> set[str]:
    """Return all keys that a bundle's trainings know, and the parameters of their workflow."""
    return keys_of(bundle, ("train", "multi_gpu_train")) | RUN.keys()


def keys_of(bundle: Path, configs: Iterable[str]) -> set[str]:
    """Return all keys of some configs of a bundle."""
    files = [bundle / "configs" / f"{name}.json" for name in configs]
    return {key for file in files if file.is_file() for key in key_paths(ConfigParser.load_config_file(file))}


def check_keys(config: Mapping[str, Any], known: Iterable[str], others: Iterable[str] = ()) -> None:
    """Refuse a key that nothing defines: MONAI would add a mistyped override and train with the default.

    Args:
        config: the config of a run.
        known: the keys that it may have.
        others: what else the user may have meant.

    Raises:
        ValueError: for the first unknown key, with the nearest known one.
    """
    known = {ReferenceResolver.normalize_id(key) for key in known}
    for key in key_paths(config):
        if key not in known and key in RUN:
            raise ValueError(f"'{key}' is a parameter of monai_iels.Training alone; leave it out")
        if key not in known:
            raise ValueError(unknown_key(key, known.union(others)))


def check_strength(config: Mapping[str, Any], changed: Container[str]) -> None:
    """Refuse a strength that was changed, but that the layer does not use.

    Args:
        config: the config of a training.
        changed: the keys that were changed.

    Raises:
        ValueError: with what to change instead.
    """
    for strength in ("iel_gain", "iel_reach"):
        if strength in changed and f"@{strength}" not in str(config["layer"]):
            raise ValueError(
                f"--{strength} has no effect, since the layer has a strength of its own; change layer#gain, "
                "layer#reach or layer#steps instead"
            )


def is_plain(value: Any) -> bool:
    """Return whether a value is a number, a text, None, or a list of these: no component, expression or reference."""
    if isinstance(value, list):
        return all(map(is_plain, value))
    if isinstance(value, str):
        return not value.startswith(("$", "@", "%"))
    return isinstance(value, bool | int | float | None)


def self_contained(value: Any, config: Mapping[str, Any], known: Container[str]) -> Any:
    """Return a value of a config with references to keys that another config does not have replaced by what they name.

    Args:
        value: the value.
        config: its config.
        known: the keys of the other config.
    """
    if isinstance(value, Mapping):
        return {key: self_contained(part, config, known) for key, part in value.items()}
    if isinstance(value, list):
        return [self_contained(part, config, known) for part in value]
    name = value[1:] if isinstance(value, str) and value.startswith("@") else ""
    return self_contained(config[name], config, known) if name in config and name not in known else value
