# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""Registered versions: which there are, which one is the champion, and back to a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import mlflow

from monai_iels._files import save_weights
from monai_iels.measures import KEY_METRIC, deciding_metric

SAME_DATA = ("dataset_fingerprint", "section")
"""Tags that two versions must share to be compared."""


class Version(NamedTuple):
    """One version of a registered model."""

    model: str
    version: str
    dice: str
    data: str
    aliases: tuple[str, ...]


def list_versions() -> list[Version]:
    """Return all registered versions."""
    client = mlflow.MlflowClient()
    found = []
    for model in client.search_registered_models():
        versions = client.search_model_versions(f"name='{model.name}'")
        for version in sorted(versions, key=lambda v: int(v.version)):
            tags, number = version.tags, str(version.version)
            data = tags.get("source", "") + (" (synthetic)" if tags.get("dataset_synthetic") == "True" else "")
            dice = f"{float(tags[KEY_METRIC]):.4f}" if KEY_METRIC in tags else ""
            aliases = tuple(alias for alias, holder in model.aliases.items() if str(holder) == number)
            found.append(Version(model.name, number, dice, data, aliases))
    return found


def beats_champion(client: mlflow.MlflowClient, model: str, tags: Mapping[str, str]) -> bool:
    """Return whether a version should become the champion: the first one, or a better one on the same data."""
    if "champion" not in client.get_registered_model(model).aliases:
        return True
    champion = client.get_model_version_by_alias(model, "champion").tags
    if any(champion.get(key) != tags[key] for key in SAME_DATA):
        return False
    decides = deciding_metric(tags)
    return float(tags[decides]) > float(champion.get(decides, "-inf"))


def promote(name: str, version: str, alias: str) -> None:
    """Move an alias to a version by hand."""
    mlflow.MlflowClient().set_registered_model_alias(name, alias, version)


def export_version(name: str, version: str, file: Path) -> None:
    """Write the weights of a registered network as a checkpoint that a bundle loads."""
    model = mlflow.pytorch.load_model(f"models:/{name}/{version}")
    save_weights({key: value.detach().clone() for key, value in model.state_dict().items()}, file)
