# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""Register the best weights of a training: log both models, check them, tag them, choose the champion."""

from __future__ import annotations

import contextlib
import importlib.metadata
import logging
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import mlflow
import numpy as np
from mlflow.models import ModelSignature
from mlflow.types import ParamSchema, ParamSpec, Schema, TensorSpec
from monai.bundle import ConfigParser

from monai_iels._files import read_json
from monai_iels._terminal import first_line
from monai_iels.prediction import Predictor
from monai_iels.registry._self_check import check_network, check_predictor
from monai_iels.registry._versions import SAME_DATA, beats_champion
from monai_iels.run_folder import RunFolder
from monai_iels.settings import is_model_name
from monai_iels.torchvision_operators import make_importable
from monai_iels.tracking import Journal, deliver, environment

logger = logging.getLogger(__name__)

_NETWORK_NEEDS = ("monai", "numpy", "torch")
_FILES_NEED = ("matplotlib", "mlflow", "nibabel", "pillow", "scipy")
_LARGEST_REQUEST = 64_000_000
_SERVING = Path(__file__).with_name("_serving.py")
_NOT_IN_THE_MODEL = ("workflow_name", "known_keys", "bundle_root", "checkpoint", "output_dir")
_TAGS = ("source", *SAME_DATA, "dataset_synthetic", "bundle", "bundle_version")


def register(output_dir: str, name: str, tracking_uri: str | None = None) -> bool:
    """Register the best weights of a training as new versions of ``name`` and ``name-predict``.

    Both get the alias ``candidate``. They also get ``champion`` if there is none yet, or if their key metric is better
    than the champion's on the same data.

    Args:
        output_dir: folder of a tracked training.
        name: name of the registered model.
        tracking_uri: address of the server; by default ``MLFLOW_TRACKING_URI``, or where the training was tracked.

    Returns:
        whether it was registered; if not, a warning says why, and nothing else stops.

    Raises:
        ValueError: for a name that MLflow would refuse.
    """
    if idist.get_rank() > 0:
        return False
    if not is_model_name(name):
        raise ValueError(f"the name of a model must be a word without / and :, got '{name}'")
    folder = RunFolder(output_dir)
    journal = Journal(folder.tracking)
    status = journal.status()
    if status != "FINISHED" or not folder.best_weights.exists():
        ended = f"its tracked training ended as {status}" if status else "it has no tracked training that finished"
        logger.warning(f"{name} was not registered from {folder.path}: {ended}.")
        return False
    try:
        address = journal.address(tracking_uri)
        run_id = str(deliver(journal, address))
        with server_in_use(address), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # hints of MLflow and MONAI to whoever writes a model
            _register(folder, name, run_id, _tags(folder, journal, run_id))
    except Exception as error:
        logger.warning(
            f"{name} was not registered ({first_line(error)}). "
            f"Later: monai-iels registry register {name} --root {folder.path}"
        )
        return False
    return True


@contextlib.contextmanager
def server_in_use(uri: str) -> Iterator[None]:
    """Use a tracking server, and the registry in it, for a while; MLflow notes both in the environment."""
    variables = {"MLFLOW_TRACKING_URI": uri, "MLFLOW_REGISTRY_URI": uri}
    before = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else ""
    with environment({**variables, "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false"}):
        mlflow.set_tracking_uri(uri)
        mlflow.set_registry_uri(uri)
        try:
            yield
        finally:
            mlflow.set_tracking_uri(before)
            mlflow.set_registry_uri("")


def _register(folder: RunFolder, name: str, run_id: str, tags: dict[str, str]) -> None:
    client = mlflow.MlflowClient()
    models = _log_models(client, folder, name, run_id)
    versions = {model: str(mlflow.register_model(uri, model, tags=tags).version) for model, uri in models.items()}
    for model, version in versions.items():
        client.set_registered_model_alias(model, "candidate", version)
        is_champion = beats_champion(client, model, tags)
        if is_champion:
            client.set_registered_model_alias(model, "champion", version)
        logger.info(f"Registered {model} version {version}{', the new champion' if is_champion else ''}.")


def _log_models(client: mlflow.MlflowClient, folder: RunFolder, name: str, run_id: str) -> dict[str, str]:
    """Log both models with the training's run, and return the address of each."""
    config = _inference_config(folder)
    parser = ConfigParser({**config, "device": "cpu", "amp": False})
    dims, channels = config["spatial_dims"], parser.get_parsed_content("network_def#in_channels")
    if dims == 3 and channels > 1:
        raise ValueError(f"a registered model takes volumes of one channel, this network {channels}")
    predictor = Predictor(parser, folder.load_best_weights())
    before = client.get_run(run_id).info
    try:
        with mlflow.start_run(run_id=run_id):
            return {
                name: _log_network(predictor.network.eval(), dims, channels, config["num_classes"]),
                f"{name}-predict": _log_predictor(predictor, config, folder.best_weights),
            }
    finally:
        client.set_terminated(run_id, before.status, end_time=before.end_time)


def _inference_config(folder: RunFolder) -> dict[str, Any]:
    """Return the inference config with this training's settings, without its paths."""
    arguments = read_json(folder.inference_arguments, "bundle_root")
    parser = ConfigParser(ConfigParser.load_config_file(Path(arguments["bundle_root"]) / "configs" / "inference.json"))
    parser.update({key: value for key, value in arguments.items() if key not in _NOT_IN_THE_MODEL})
    return dict(parser.get())


def _tags(folder: RunFolder, journal: Journal, run_id: str) -> dict[str, str]:
    """Return the tags of a version: its score, and on which data it was measured."""
    known = journal.tags_and_parameters()
    scores = {name: repr(score) for name, score in folder.best_scores().items()}
    return {**scores, "run_id": run_id, **{key: str(known.get(key, "")) for key in _TAGS}}


def _log_network(network: Any, dims: int, channels: int, classes: int) -> str:
    """Log the network in MLflow's pickle-free format, compare it after loading, and return its address."""
    inputs, outputs = (
        Schema([TensorSpec(np.dtype(np.float32), (-1, count, *[-1] * dims))]) for count in (channels, classes)
    )
    sides = (64, 96) if dims == 2 else (32, 48, 64)  # HRNet takes multiples of 32, and cannot be exported below 64
    example = np.random.default_rng(0).random((2, channels, *sides), dtype=np.float32)
    make_importable()  # MLflow imports Lightning, which imports torchvision, where these are installed
    info = mlflow.pytorch.log_model(
        network,
        name="network",
        signature=ModelSignature(inputs, outputs),
        input_example=example,
        pip_requirements=_pinned(_NETWORK_NEEDS),
        validate_serving_input=False,  # MLflow would load it for that once more; it is compared below
    )
    shapes = [example.shape, (1, channels, *reversed(sides))]
    check_network(mlflow.pytorch.load_model(info.model_uri), network, shapes)
    return str(info.model_uri)


def _pinned(names: Iterable[str]) -> list[str]:
    """Return requirements of the versions that are installed."""
    return sorted(f"{name}=={importlib.metadata.version(name).partition('+')[0]}" for name in names)


def _log_predictor(predictor: Predictor, config: dict[str, Any], weights: Path) -> str:
    """Log the model that takes images, as code with its config and weights, and compare it after loading.

    It has no schema of inputs, since MLflow would turn any numbers into bytes without a word; it checks them itself.
    This package is on no package index: a copy of it goes along, which reads the files.
    """
    distributions = importlib.metadata.packages_distributions()
    packages = {type(module).__module__.partition(".")[0] for module in predictor.network.modules()}
    needed = {name for package in packages - {"monai_iels"} for name in distributions.get(package, ())}
    needed |= {*_NETWORK_NEEDS, *_FILES_NEED, *["itk-io"] * (config["spatial_dims"] == 3)}
    params = ParamSchema([ParamSpec("probabilities", "boolean", False), ParamSpec("format", "string", "array")])
    info = mlflow.pyfunc.log_model(
        name="predict",
        python_model=str(_SERVING),
        artifacts={"weights": str(weights)},
        signature=ModelSignature(params=params),
        model_config={"max_values": _LARGEST_REQUEST, "inference": config},
        pip_requirements=_pinned(needed),
        code_paths=[str(_SERVING.parents[1])],
    )
    check_predictor(mlflow.pyfunc.load_model(info.model_uri), predictor, config["image_size"])
    return str(info.model_uri)
