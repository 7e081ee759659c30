# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""What a tracked run tells about itself: its settings, the physics, the network, the data and the versions."""

import contextlib
import hashlib
import importlib.metadata
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

import monai_iels
from monai_iels.data import SYNTHETIC, Datalists, case_files, fingerprint
from monai_iels.layers import InverseEvolutionLayer
from monai_iels.run_folder import RunFolder
from monai_iels.runs._keys import is_plain
from monai_iels.tracking import RunDescription


def describe_run(
    settings: Mapping[str, Any],
    metadata: Mapping[str, Any],
    layer: InverseEvolutionLayer,
    network: nn.Module,
    datalists: Datalists,
) -> RunDescription:
    """Return what MLflow gets to know about a run when it begins.

    Args:
        settings: of the run, with absolute paths.
        metadata: of its bundle.
        layer: the physics.
        network: the network that is trained.
        datalists: all cases; those that training and evaluation use are read, to know their contents again.
    """
    used = {name: cases for name, cases in datalists.items() if name in ("training", "validation")}
    digests = {name: fingerprint({name: cases}) for name, cases in used.items()}
    parameters: dict[str, Any] = {}
    for key, value in settings.items():
        parameters[key] = value if is_plain(value) or isinstance(value, str) else json.dumps(value)
    parameters |= {"evolution": repr(layer.evolution), "layer_dt": layer.dt, "layer_steps": layer.steps}
    gain = layer.gains().get(settings["spatial_dims"])
    if gain is not None:
        parameters["gain"] = f"{gain:.3g}"
    parameters["network"] = type(network).__name__
    parameters["network_parameters"] = sum(parameter.numel() for parameter in network.parameters())
    parameters["dataset_fingerprint"] = hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()
    parameters["dataset_synthetic"] = settings["dataset_dir"] == SYNTHETIC
    for name, cases in datalists.items():
        parameters[f"cases_{name}"] = len(cases)
    tags = {
        **_versions(metadata),
        "mlflow.source.name": settings["bundle_root"],
        "mlflow.note.content": _note(parameters),
    }
    data = {"name": settings["source"], "source": settings["dataset_dir"]}
    datasets = [
        {**data, "digest": digests[name][:16], "context": name, "cases": len(cases)} for name, cases in used.items()
    ]
    return RunDescription(parameters, tags, datasets)


def _note(parameters: Mapping[str, Any]) -> str:
    """Return a description of a run in plain words."""
    folder = RunFolder(parameters["output_dir"])
    data = "synthetic images" if parameters["dataset_synthetic"] else parameters["dataset_dir"]
    steps = parameters["layer_steps"]
    strength = f"{steps} steps of {parameters['layer_dt']:.3g}"
    if "gain" in parameters:
        strength += f", gain {parameters['gain']}"
    error = parameters.get("label_error")
    errors = "No errors were added to the labels." if error is None else f"Error in each training label: {error}."
    sentences = [
        f"{parameters['network']} with {parameters['network_parameters']:,} parameters, trained on "
        f"**{parameters['source']}** ({data}; cases: {parameters['cases_training']} for training, "
        f"{parameters['cases_validation']} for validation).",
        errors,
        f"Layer: {parameters['evolution']}, {strength}." if steps else "No layer.",
        f"\n\nPredict: `python -m monai.bundle run --args_file {folder.inference_arguments} --dataset_dir YOUR_IMAGES`",
    ]
    return " ".join(sentences)


def cases_digest(datalists: Datalists) -> str:
    """Return a digest of the names and sizes of all files, wherever they are; it is quick to compute."""
    files = []
    for section, cases in datalists.items():
        for case in cases:
            files += [(section, Path(file).name, Path(file).stat().st_size) for file in case_files(case)]
    return hashlib.sha256(json.dumps(files).encode()).hexdigest()


def _versions(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions of the bundle, of the packages, and of the checkout if there is one."""
    found = {"bundle": metadata.get("name", ""), "bundle_version": metadata.get("version", "")}
    for name in ("monai", "torch", "mlflow", "pytorch-ignite"):
        found[f"version.{name}"] = importlib.metadata.version(name)
    found["version.monai_iels"] = monai_iels.__version__
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(git, capture_output=True, text=True, check=True, timeout=5)
        found["git_revision"] = found["mlflow.source.git.commit"] = done.stdout.strip()
    return found
