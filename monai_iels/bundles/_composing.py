# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""A bundle's files, from what all bundles share and what its ``dataset.yaml`` changes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from monai.bundle import ConfigParser

from monai_iels._yaml import read_mapping
from monai_iels.data import SOURCES, describe_pairs
from monai_iels.settings import NETWORK, Rule, check_rules, each, is_text, unknown_key

_CONFIGS = ("train", "evaluate", "inference", "multi_gpu_train")
_WIDTH = 116
_OF_LAYER = {
    "iel_gain": "strength of the layer: the largest amplification of a detail; null: the network alone",
    "iel_reach": "strength of the layer: how far outlines move, in the unit of `spacing`; null: the network alone",
    "iel_warmup": "epochs until the layer works fully",
}
_FREE_FORM = "#required_packages_version"
_SAMPLE = "Without `dataset_dir` the bundle uses synthetic images and says so."
_NO_SAMPLE = "There are no synthetic images of it: set `dataset_dir`."
_RULES = {
    "source": Rule(lambda value, _: is_text(value), "a word"),
    **dict.fromkeys(("metadata", "inference"), Rule(lambda value, _: isinstance(value, dict), "keys and values")),
    "quality": Rule(lambda value, _: is_text(value), "text"),
    "spatial_dims": NETWORK["spatial_dims"],
    "classes": Rule(
        lambda value, _: str(value).startswith(("$", "@")) or each(is_text, value),
        "a list of words (yes, no, on and off only in quotes)",
    ),
}
"""What the value of a key must be, as a condition and in words."""


def compose(folder: Path, shared: Path) -> dict[str, str]:
    """Merge the shared files with what a bundle's ``dataset.yaml`` changes.

    Args:
        folder: the bundle.
        shared: the folder of shared configs.

    Returns:
        the text of each file of the bundle, by its path.

    Raises:
        ValueError: for a key that no shared config has, with the nearest one, and for a value that does not fit.
    """
    file = folder / "dataset.yaml"
    changes = read_mapping(file, "the keys of a bundle")
    configs = {name: read_mapping(shared / f"{name}.yaml", "shared keys") for name in _CONFIGS}
    _check_changes(file, changes, configs)
    quality = changes.pop("quality", "").strip() or "Nothing was measured."
    metadata = read_mapping(shared / "metadata.yaml", "shared metadata")
    _merge(metadata, changes.pop("metadata", {}), f"{file}: metadata")
    of_inference = changes.pop("inference", {})
    configs = {name: _changed(config, changes) for name, config in configs.items()}
    configs["inference"] = _changed(configs["inference"], of_inference)
    train = configs["train"]
    for strength in ("iel_gain", "iel_reach"):  # heat has a gain, curve motion a reach
        if f"@{strength}" not in str(train["layer"]):
            train.pop(strength)
    about = _about_data(file, train["source"], changes, metadata)
    resolver = ConfigParser({**train, "classes": about["classes"], "metadata": metadata})
    configs["metadata"] = resolver.get_parsed_content("metadata")
    rows = [f"| `{key}` | {train[key]} | {meaning} |\n" for key, meaning in _OF_LAYER.items() if key in train]
    about |= {"name": folder.name, "quality": quality, "layer": "".join(rows), **_about_network(train)}
    texts = {f"configs/{name}.json": _as_json(config) + "\n" for name, config in configs.items()}
    page = (shared / "README.md").read_text("utf-8")
    texts["docs/README.md"] = page.format(**about, metadata=configs["metadata"])
    texts["docs/data_license.txt"] = "{title}\n\n{terms}\n\nThe data are not part of this bundle.\n".format(**about)
    texts["configs/logging.conf"] = (shared / "logging.conf").read_text("utf-8")
    texts["LICENSE"] = (shared / "LICENSE").read_text("utf-8")
    return texts


def _check_changes(file: Path, changes: Mapping[str, Any], configs: Mapping[str, Mapping[str, Any]]) -> None:
    known = {"inference", "metadata", "quality"}.union(*configs.values())
    for key in changes:
        if key.partition("#")[0] not in known:
            raise ValueError(f"{file}: {unknown_key(key, known)}")
    check_rules({key: _RULES[key] for key in changes if key in _RULES}, changes, f"{file}: '{{}}'".format)


def _changed(config: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config with those changes that concern it."""
    parser = ConfigParser(config)
    parser.update({key: value for key, value in changes.items() if key.partition("#")[0] in config})
    return {key: value for key, value in parser.get().items() if key != ConfigParser.meta_key}


def _as_json(value: Any, indent: int = 0) -> str:
    """Return a value as JSON, each part on one line where it fits, as a person would write it."""
    flat = json.dumps(value)
    is_short = len(flat) + indent <= _WIDTH and not (indent == 0 and isinstance(value, Mapping))
    if is_short or not isinstance(value, Mapping | list):
        return flat
    inner = indent + 2
    if isinstance(value, Mapping):
        parts = [f"{json.dumps(str(key))}: {_as_json(part, inner)}" for key, part in value.items()]
    else:
        parts = [_as_json(part, inner) for part in value]
    begin, end = "{}" if isinstance(value, Mapping) else "[]"
    return begin + "\n" + ",\n".join(" " * inner + part for part in parts) + "\n" + " " * indent + end


def _about_network(train: Mapping[str, Any]) -> dict[str, str]:
    """Return what the page says about the network: MONAI's U-Net, or another."""
    target = train["network_def"]["_target_"]
    if target.endswith(".BasicUNet"):
        row = f"| `features` | {train['features']} | widths of the U-Net; narrower ones train faster |\n"
        return {"network": "a plain MONAI `BasicUNet`; prediction does not need monai_iels", "features": row}
    is_ours = target.startswith("monai_iels.")
    needs = "needs this package, too, or the exported network" if is_ours else "does not need monai_iels"
    row = f"| `network_def` | `{target}` | the network |\n"
    return {"network": f"made by `{target}`, without the layer; prediction {needs}", "features": row}


def _about_data(file: Path, name: str, changes: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the pages say about the data: a data set that this package knows, or the user's own."""
    for key, value in metadata.items():
        if value is None:
            raise ValueError(f"{file}: metadata#{key} is missing; add it")
    if name in SOURCES:
        source = SOURCES[name]
        layout = f"```text\n{source.layout}\n```"
        about = {"title": source.title, "terms": source.terms, "classes": list(source.classes)}
        return {**about, "layout": layout, "sample": _SAMPLE}
    for key in ("datalists", "classes"):
        if key not in changes:
            raise ValueError(f"{file}: {key} is missing, since '{name}' is none of {', '.join(SOURCES)}; add it")
    layout = _layout(file, changes["datalists"])
    about = {"title": metadata["name"], "terms": metadata["data_source"], "classes": changes["classes"]}
    return {**about, "layout": layout, "sample": _NO_SAMPLE}


def _layout(file: Path, datalists: Any) -> str:
    """Say in words where the user's own files are."""
    arguments = dict(datalists) if isinstance(datalists, Mapping) else {"_target_": datalists}
    target = str(arguments.pop("_target_", None))
    if not target.endswith(".paired_datalists"):
        return f"the files that `{target}` lists."
    try:
        return describe_pairs(**arguments)
    except TypeError as error:
        raise ValueError(f"{file}: datalists: {error}") from None


def _merge(config: dict[str, Any], changes: Mapping[str, Any], place: str) -> None:
    for key, value in changes.items():
        if key not in config and not place.endswith(_FREE_FORM):
            raise ValueError(f"{place}: {unknown_key(key, config)}")
        if isinstance(value, Mapping) and isinstance(config[key], dict):
            _merge(config[key], value, f"{place}#{key}")
        else:
            config[key] = value
