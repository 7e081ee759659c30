# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""Registered versions: which one is the champion, and back to a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import mlflow

from monai_iels._files import save_weights
from monai_iels.measures import deciding_metric

SAME_DATA = ("dataset_fingerprint", "section")
"""Tags that two versions must share to be compared."""


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
