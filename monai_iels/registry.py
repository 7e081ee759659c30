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

"""The registry: a trained network as a registered model that loads without pickle and without this package.

``python -m monai_iels.registry register|list|promote|export``. A name has two models: NAME is the network, logits out;
NAME-predict takes raw pixels and returns labels.
"""

import argparse
import base64
import contextlib
import io
import json
import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mlflow
import monai
import nibabel
import numpy as np
import pandas as pd
import PIL
import torch
from mlflow.models import ModelSignature
from mlflow.types import ParamSchema, ParamSpec, Schema, TensorSpec
from monai.bundle import ConfigParser, create_workflow
from PIL import Image
from sqlalchemy.exc import SQLAlchemyError
from torch import nn
from torch.nn.functional import interpolate

from monai_iels.errors import first_line
from monai_iels.handlers.addresses import remember, signed_in
from monai_iels.handlers.journal import Journal, deliver
from monai_iels.handlers.reports import read_csv
from monai_iels.handlers.training import is_first_rank, save_complete

__all__ = ["export_version", "main", "promote", "register"]

logger = logging.getLogger(__name__)

_REQUIREMENTS = [
    f"monai=={monai.__version__}",
    f"numpy=={np.__version__}",
    f"torch=={torch.__version__.split('+')[0]}",
]
_FILES = ["matplotlib", "mlflow", f"nibabel=={nibabel.__version__}", f"pillow=={PIL.__version__}"]
_TOLERANCE = 1e-5
_LARGEST = 64_000_000
_ABOUT = {
    "input": "an array (height, width, 3) of bytes or (x, y, z), or a table with one base64 file per row in 'image': "
    "PNG, JPEG, TIFF, BMP or GIF in 2-D, NIfTI in 3-D",
    "output": "an array of labels, or a table with the column 'label' or 'probabilities'",
}


def register(output_dir: str, name: str) -> bool:
    """Register the best weights of a training as new versions of ``name`` and ``name-predict``.

    Both get the alias ``candidate``. ``champion`` moves to them only if there is none, or if the key metric is better
    than the champion's on the same data.

    Args:
        output_dir: folder of a tracked training.
        name: name of the registered model.

    Returns:
        whether it was registered; if not, a warning says why, and nothing else stops.
    """
    if not is_first_rank():
        return False
    folder = Path(output_dir)
    journal = Journal(folder / "tracking")
    entries = journal.entries()
    status = journal.status()
    if status != "FINISHED" or not (folder / "model.pt").exists():
        found = f"one that was {status}" if status else "none"
        logger.warning(
            f"{name} was not registered. {folder}: expected a tracked training that finished, found {found}."
        )
        return False
    try:
        run_id = deliver(journal)
        with _tracking(journal.address()):
            versions = _log_models(folder, name, str(run_id), entries)
    except Exception as error:
        logger.warning(
            f"{name} was not registered ('{first_line(error)}'). "
            f"Later: python -m monai_iels.registry register {name} --root {folder}"
        )
        return False
    for model, version, champion in versions:
        logger.info(f"Registered {model} version {version}{', the new champion' if champion else ''}.")
    return True


@contextlib.contextmanager
def _tracking(uri: str) -> Iterator[None]:
    """Use a tracking server, and the registry in it, for a while; MLflow notes both in the environment."""
    names = ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI")
    environment = {name: os.environ.get(name) for name in names}
    before = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else ""
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    try:
        with signed_in(remember(uri)) as reachable:
            mlflow.set_tracking_uri(reachable)
            mlflow.set_registry_uri(reachable)
            yield
    finally:
        mlflow.set_tracking_uri(before)
        mlflow.set_registry_uri("")
        for name, value in environment.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _log_models(folder: Path, name: str, run_id: str, entries: list[dict[str, Any]]) -> list[tuple[str, str, bool]]:
    config = _inference_config(folder)
    network = ConfigParser(config).get_parsed_content("network_def")
    network.load_state_dict(torch.load(folder / "model.pt", map_location="cpu", weights_only=True))
    tags = _tags(folder, entries, run_id)
    client = mlflow.MlflowClient()
    before = client.get_run(run_id).info
    try:
        with mlflow.start_run(run_id=run_id):
            uris = {name: _log_network(network.eval(), config), f"{name}-predict": _log_predictor(folder, config)}
    finally:
        client.set_terminated(run_id, before.status, end_time=before.end_time)
    registered = {model: str(mlflow.register_model(uri, model).version) for model, uri in uris.items()}
    versions = []
    for model, version in registered.items():
        for key, value in tags.items():
            client.set_model_version_tag(model, version, key, value)
        client.set_registered_model_alias(model, "candidate", version)
        better = _is_champion(client, model, tags)
        if better:
            client.set_registered_model_alias(model, "champion", version)
        versions.append((model, version, better))
    return versions


def _inference_config(folder: Path) -> dict[str, Any]:
    """Return the inference config with this training's settings, of which only the paths are left out."""
    arguments = json.loads((folder / "inference.json").read_text("utf-8"))
    config = ConfigParser.load_config_file(arguments.pop("config_file"))
    config.update({key: value for key, value in arguments.items() if key not in ("bundle_root", "output_dir")})
    return config


def _tags(folder: Path, entries: list[dict[str, Any]], run_id: str) -> dict[str, str]:
    scores = [row["val_mean_dice"] for row in read_csv(folder / "history.csv") if "val_mean_dice" in row]
    best = max((score for score in scores if score == score), default=0.0)
    known: dict[str, Any] = {}
    for entry in entries:
        if entry["kind"] in ("params", "tags"):  # where a training was resumed with other settings, those count
            known.update({key.removeprefix("resumed."): value for key, value in entry["values"].items()})
    wanted = ("source", "section", "dataset_fingerprint", "dataset_synthetic", "bundle", "bundle_version")
    return {"val_mean_dice": repr(best), "run_id": run_id, **{key: str(known.get(key, "")) for key in wanted}}


def _is_champion(client: mlflow.MlflowClient, model: str, tags: dict[str, str]) -> bool:
    if "champion" not in client.get_registered_model(model).aliases:
        return True
    champion = client.get_model_version_by_alias(model, "champion").tags
    same = all(champion.get(key) == tags[key] for key in ("dataset_fingerprint", "section"))
    return same and float(tags["val_mean_dice"]) > float(champion.get("val_mean_dice", "-inf"))


def _log_network(network: nn.Module, config: dict[str, Any]) -> str:
    """Log the network in MLflow's pickle-free format, compare it after loading, and return its address."""
    if any(module.training for module in network.modules()):
        raise ValueError("Expected a network in eval mode, found one in train mode. Call network.eval() first.")
    dims, channels = config["spatial_dims"], config["in_channels"]
    shapes = [(-1, count, *([-1] * dims)) for count in (channels, config["num_classes"])]
    inputs, outputs = (Schema([TensorSpec(np.dtype(np.float32), shape)]) for shape in shapes)
    example = np.random.default_rng(0).random((2, channels, *range(32, 32 + 16 * dims, 16)), dtype=np.float32)
    info = mlflow.pytorch.log_model(
        network,
        name="network",
        signature=ModelSignature(inputs, outputs),
        input_example=example,
        pip_requirements=_REQUIREMENTS,
    )
    loaded = mlflow.pytorch.load_model(info.model_uri)
    for shape in (example.shape, (1, channels, *([48] * dims))):
        x = torch.rand(shape, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            difference = float((loaded(x) - network(x)).abs().max())
        if not difference <= _TOLERANCE:
            raise RuntimeError(f"The model differs by {difference:.2g} after loading; it was not announced.")
    return str(info.model_uri)


def _log_predictor(folder: Path, config: dict[str, Any]) -> str:
    """Log the model that takes images, as code with its config and weights, and see that it predicts as the bundle.

    It has no schema of inputs, since MLflow would turn any numbers into bytes without a word; it checks them itself.
    """
    params = [
        ParamSpec("probabilities", "boolean", False),
        ParamSpec("format", "string", "array"),
        ParamSpec("max_values", "long", _LARGEST),
    ]
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "config.json"
        file.write_text(json.dumps(config), encoding="utf-8")
        info = mlflow.pyfunc.log_model(
            name="predict",
            python_model=str(Path(__file__).with_name("serving.py")),
            artifacts={"config": str(file), "weights": str(folder / "model.pt")},
            signature=ModelSignature(params=ParamSchema(params)),
            model_config={"max_values": _LARGEST},
            metadata=_ABOUT,
            pip_requirements=[*_REQUIREMENTS, *_FILES],
        )
        example = _example(config, Path(scratch))
        _compare(mlflow.pyfunc.load_model(info.model_uri), folder, example)
    return str(info.model_uri)


def _example(config: dict[str, Any], folder: Path) -> Path:
    """Draw soft blobs of another size, spacing and orientation than in training, so that a mistake in these shows."""
    generator = torch.Generator().manual_seed(0)
    dims = config["spatial_dims"]
    size = [side * 4 // 3 + 5 * axis for axis, side in enumerate(config["image_size"])]
    noise = torch.rand((1, 3 if dims == 2 else 1, *[6] * dims), generator=generator)
    pixels = interpolate(noise, size, mode="bilinear" if dims == 2 else "trilinear")[0].mul(255).byte().numpy()
    if dims == 2:
        file = folder / "example.png"
        Image.fromarray(np.moveaxis(pixels, 0, -1)).save(file)
    else:
        file = folder / "example.nii.gz"
        nibabel.save(nibabel.Nifti1Image(pixels[0], np.diag([-1.25, 1.0, 0.75, 1.0])), file)
    return file


def _compare(model: Any, folder: Path, example: Path) -> None:
    """Refuse a predictor whose labels or probabilities are not those of the bundle's own inference.

    The probabilities show a difference where all labels are of one class.

    Raises:
        RuntimeError: with how much they differ.
    """
    table = pd.DataFrame({"image": [base64.b64encode(example.read_bytes()).decode("ascii")]})
    labels = model.predict(table)["label"][0]
    probabilities = model.predict(table, params={"probabilities": True})["probabilities"][0]
    differing = float(np.mean(labels != _bundle_labels(folder, example)))
    difference = float(np.abs(probabilities - _bundle_probabilities(folder, example)).max())
    if not (differing <= 0.001 and difference <= 0.001):
        raise RuntimeError(
            f"The model predicts other labels than the bundle ({differing:.2%} of them, probabilities by up to "
            f"{difference:.2g}); it was not announced."
        )


def _bundle_labels(folder: Path, image: Path) -> np.ndarray:
    """Predict an image or a volume with the bundle's own inference, from file to file."""
    _run_inference(folder, image)
    (file,) = image.parent.glob("example_label.*")
    if file.suffix == ".png":
        return np.asarray(Image.open(file))
    return np.asanyarray(nibabel.Nifti1Image.from_filename(file).dataobj)


def _bundle_probabilities(folder: Path, image: Path) -> np.ndarray:
    """Predict the probabilities of each class with the bundle's own inference, in the geometry of the image."""
    only = {"_target_": "Compose", "transforms": "@probabilities"}
    workflow = _run_inference(folder, image, postprocessing=only)
    found = workflow.parser.get_parsed_content("evaluator").state.output[0]["pred"].numpy()
    return found.swapaxes(1, 2) if found.ndim == 3 else found


def _run_inference(folder: Path, image: Path, **overrides: Any) -> Any:
    arguments = json.loads((folder / "inference.json").read_text("utf-8"))
    arguments.update(dataset_dir=str(image), predictions=str(image.parent), checkpoint=str(folder / "model.pt"))
    arguments.update(device="$torch.device('cpu')", amp=False, **overrides)
    with contextlib.redirect_stdout(io.StringIO()):
        workflow = create_workflow(logging_file=False, **arguments)
        try:
            workflow.run()
        except SystemExit as error:  # how inference refuses on the command line
            raise RuntimeError(str(error.code)) from None
    return workflow


def promote(name: str, version: str, alias: str) -> None:
    """Move an alias to a version by hand."""
    mlflow.MlflowClient().set_registered_model_alias(name, alias, version)


def export_version(name: str, version: str, file: Path) -> None:
    """Write the weights of a registered network as a checkpoint that a bundle loads."""
    model = mlflow.pytorch.load_model(f"models:/{name}/{version}")
    file.parent.mkdir(parents=True, exist_ok=True)
    save_complete({key: value.detach().clone() for key, value in model.state_dict().items()}, file)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the result is the exit code."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        uri = options.tracking_uri or Journal(Path(options.root) / "tracking").address()
        database = Path(uri.removeprefix("sqlite:///"))
        if uri.startswith("sqlite:///") and not database.exists():
            raise FileNotFoundError(
                f"{database}: expected the database of a training, found none. Set --root to its output folder, or "
                "--tracking_uri to a server."
            )
        with _tracking(uri):
            return options.run(options)
    except (mlflow.exceptions.MlflowException, SQLAlchemyError, FileNotFoundError, ValueError) as error:
        print(first_line(error), file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m monai_iels.registry", description="Look after registered models.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    listing = commands.add_parser("list", help="show what is registered")
    listing.set_defaults(run=_list)
    adding = commands.add_parser("register", help="register the best weights of a training")
    adding.add_argument("name")
    adding.set_defaults(run=_register)
    moving = commands.add_parser("promote", help="move an alias to a version")
    moving.add_argument("name")
    moving.add_argument("version")
    moving.add_argument("--alias", default="champion")
    moving.set_defaults(run=_promote)
    writing = commands.add_parser("export", help="write a version back as a checkpoint")
    writing.add_argument("name")
    writing.add_argument("version")
    writing.add_argument("file", type=Path)
    writing.set_defaults(run=_export)
    for command in (listing, adding, moving, writing):
        command.add_argument("--root", default=".", help="output folder of a training with an embedded database")
        command.add_argument("--tracking_uri", help="address of the server")
    return parser


def _list(options: argparse.Namespace) -> int:
    client = mlflow.MlflowClient()
    rows = []
    for model in client.search_registered_models():
        aliases: dict[str, list[str]] = {}
        for alias, version in model.aliases.items():
            aliases.setdefault(str(version), []).append(alias)
        for version in sorted(client.search_model_versions(f"name='{model.name}'"), key=lambda v: int(v.version)):
            dice = version.tags.get("val_mean_dice", "")
            data = version.tags.get("source", "") + (
                " (synthetic)" if version.tags.get("dataset_synthetic") == "True" else ""
            )
            rows.append((model.name, version.version, dice[:6], data, ", ".join(aliases.get(str(version.version), []))))
    for row in [("model", "version", "Dice", "data", "aliases"), *rows]:
        print(f"{row[0]:<28}{row[1]:>8}  {row[2]:<8}{row[3]:<24}{row[4]}")
    return 0


def _register(options: argparse.Namespace) -> int:
    return 0 if register(options.root, options.name) else 1


def _promote(options: argparse.Namespace) -> int:
    promote(options.name, options.version, options.alias)
    print(f"{options.alias} of {options.name} is now version {options.version}.")
    return 0


def _export(options: argparse.Namespace) -> int:
    export_version(options.name, options.version, options.file)
    print(f"Wrote {options.file}. Predict: python -m monai.bundle run ... --checkpoint {options.file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
