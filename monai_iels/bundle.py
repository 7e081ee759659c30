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

"""The bundles: composing their configs, refusing what nobody defined, and saying it in one sentence.

``python -m monai_iels.bundle compose bundles/`` writes each bundle's ``configs`` from ``bundles/shared`` and its
``dataset.yaml``; ``python -m monai_iels.bundle check bundles/`` tells whether they are up to date.
"""

import argparse
import contextlib
import difflib
import hashlib
import importlib.metadata
import inspect
import json
import logging
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import torch
from filelock import FileLock, Timeout
from monai.bundle import ConfigParser, ConfigWorkflow, ReferenceResolver
from monai.bundle.utils import ID_SEP_KEY
from torch import nn

import monai_iels
from monai_iels.data import SOURCES
from monai_iels.data.datalists import SYNTHETIC
from monai_iels.data.files import Datalists
from monai_iels.data.source import fingerprint
from monai_iels.handlers.tracking import public
from monai_iels.handlers.training import is_first_rank
from monai_iels.layers import InverseEvolutionLayer

__all__ = [
    "compose",
    "describe",
    "end_run",
    "existing",
    "local_rank",
    "main",
    "prepare_output",
    "settings",
    "share_of_batch",
    "start_run",
    "tags",
]

logger = logging.getLogger(__name__)

T = TypeVar("T")

_OUTPUTS = {
    "cases.csv",
    "config.json",
    "curves.png",
    "evaluate.json",
    "evaluation",
    "history.csv",
    "inference.json",
    "last.pt",
    "model.pt",
    "pictures",
    "previous.pt",
    "tracking",
    "training.log",
}
_INTERNAL = {ConfigParser.meta_key, "finalize", "initialize", "known_keys", "run", "train", "validate"}
_INTERNAL |= {"device", "imports", "network", "is_not_rank0", "save_execute_config"}
_FREE = "run_tags"
_OCCUPIED: dict[str, FileLock] = {}  # folders that this process trains in; a lock that nobody holds on to is open
_SWITCHES = ("amp", "noise_shared", "resume", "system_metrics", "track")
_CONFIGS = ("train", "evaluate", "inference", "multi_gpu_train")
_OWN = ("datalists", "classes")  # what data that this package does not know have to bring
_GEOMETRY = {
    2: "an image is resized to what the network saw in training, and its labels are resized back. Distances are in\n"
    "pixels of the resized image",
    3: "a volume is turned and resampled as in training and predicted window by window, and its labels are brought\n"
    "back. Distances are in voxels of training",
}


def compose(folder: Path, shared: Path) -> dict[str, str]:
    """Merge the shared files with what a bundle's ``dataset.yaml`` changes.

    Args:
        folder: the bundle.
        shared: the folder of shared configs.

    Returns:
        the text of each file of the bundle, by its path.

    Raises:
        ValueError: for a key that no shared config has, with the nearest one.
    """
    file = folder / "dataset.yaml"
    changes = ConfigParser.load_config_file(file)
    configs = {name: ConfigParser.load_config_file(shared / f"{name}.yaml") for name in (*_CONFIGS, "metadata")}
    known = {key for name in _CONFIGS for key in configs[name]} | {"metadata", "quality"}
    for key in changes:
        if key not in known:
            raise ValueError(_unknown(f"{file}: '{key}'", key, known))
    metadata, quality = configs.pop("metadata"), changes.pop("quality", "")
    _merge(metadata, changes.pop("metadata", {}), f"{file}: 'metadata")
    for config in configs.values():
        parser = ConfigParser(config)
        parser.update({key: value for key, value in changes.items() if key in config})
        config.update({key: value for key, value in parser.get().items() if key != ConfigParser.meta_key})
    for name, config in configs.items():
        base = configs["inference" if name == "inference" else "train"]
        config["known_keys"] = sorted({"known_keys", *_ids(base), *_ids(config)})
    data = _data(file, configs["train"], changes, metadata)
    resolver = ConfigParser({**configs["train"], "classes": data["classes"], "metadata": metadata})
    configs["metadata"] = resolver.get_parsed_content("metadata")
    texts = {f"configs/{name}.json": json.dumps(config, indent=4) + "\n" for name, config in configs.items()}
    texts["configs/logging.conf"] = (shared / "logging.conf").read_text("utf-8")
    texts["docs/README.md"] = (
        (shared / "README.md")
        .read_text("utf-8")
        .format(
            **data,
            name=folder.name,
            metadata=configs["metadata"],
            quality=quality.strip() or "Nothing was measured.",
            config=configs["train"],
            geometry=_GEOMETRY[configs["train"]["spatial_dims"]],
        )
    )
    texts["docs/data_license.txt"] = f"{data['title']}\n\n{data['terms']}\n\nThe data are not part of this bundle.\n"
    texts["LICENSE"] = (shared / "LICENSE").read_text("utf-8")
    return texts


def _data(
    file: Path, config: Mapping[str, Any], changes: Mapping[str, Any], metadata: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what a bundle says about its data: one of the data sets that this package knows, or your own."""
    missing = [f"metadata#{key}" for key, value in metadata.items() if value is None]
    name = config["source"]
    if name in SOURCES:
        source = SOURCES[name]
        sample = "Without `dataset_dir` the bundle draws its embedded sample and says so."
        data = {"title": source.title, "terms": source.terms, "layout": source.layout, "sample": sample}
        classes: Any = list(source.classes)
    else:
        missing += [f"{key}, since '{name}' is none of {', '.join(SOURCES)}" for key in _OWN if key not in changes]
        layout = json.dumps(changes.get("datalists"), indent=1)
        sample = "There is no embedded sample: set `dataset_dir`."
        data = {"title": metadata["name"], "terms": metadata["data_source"], "layout": layout, "sample": sample}
        classes = changes.get("classes")
    if missing:
        raise ValueError(f"{file}: expected {missing[0]}; found nothing. Add it.")
    return {**data, "classes": classes}


def _merge(config: dict[str, Any], changes: Mapping[str, Any], place: str) -> None:
    for key, value in changes.items():
        if key not in config:
            raise ValueError(_unknown(f"{place}#{key}'", key, config))
        if isinstance(value, Mapping) and isinstance(config[key], dict):
            _merge(config[key], value, f"{place}#{key}")
        else:
            config[key] = value


def _unknown(place: str, key: str, known: Any) -> str:
    nearest = difflib.get_close_matches(key, sorted(known), 1, 0.0)
    hint = f" The nearest is '{nearest[0]}'." if nearest else ""
    return f"{place}: expected a key that a config defines, found an unknown one.{hint}"


def start_run(known: Sequence[str], dataset_dir: str, output_dir: str) -> None:
    """Begin a run: refuse a key that the bundle does not define, and say so if the data are only drawn.

    MONAI adds an unknown override silently: with ``--epoch 3`` a bundle trains for its default number of epochs.

    Args:
        known: the keys that the configs define; a config of your own adds to them with ``+known_keys``.
        dataset_dir: the folder of the data set, or ``"synthetic"``.
        output_dir: folder for everything that the run writes.

    Raises:
        ValueError: for an unknown key, with the nearest one that there is.
    """
    if Path(sys.argv[0]).parts[-3:] == ("monai", "bundle", "__main__.py"):
        sys.excepthook = _in_one_sentence
    parser = _evaluating(ConfigParser)
    _track_once(parser)
    _check_settings(parser)
    for key in _ids(parser.get()):
        if key not in known and key not in _INTERNAL:
            raise ValueError(_unknown(f"--{key}", key, known))
    Path(output_dir).mkdir(parents=True, exist_ok=True)
    if str(dataset_dir) == SYNTHETIC and is_first_rank():
        logger.warning(
            "=== EMBEDDED SAMPLE: these images are drawn. Set --dataset_dir to the folder of the real data set. ==="
        )


def _check_settings(parser: ConfigParser) -> None:
    """Refuse what would fail late and at length, and read ``true`` and ``false``, which arrive as words."""
    config = parser.get()
    words = {"true": True, "false": False}
    changed = False
    for key in _SWITCHES:
        value = config.get(key)
        if isinstance(value, str):
            if value.lower() not in words:
                raise ValueError(f"--{key}: expected true or false, found '{value}'.")
            config[key], changed = words[value.lower()], True
    for key in ("epochs", "batch_size", "val_interval", "repeats"):
        if not isinstance(config[key], int) or config[key] < 1:
            raise ValueError(f"--{key}: expected a whole number from 1, found {config[key]}.")
    if config["val_interval"] > config["epochs"]:
        raise ValueError(
            f"--val_interval: expected at most the {config['epochs']} epochs, found {config['val_interval']}."
        )
    for key, length in (("features", 6), ("image_size", config["spatial_dims"])):
        value = config[key]
        if not isinstance(value, list) or len(value) != length or not all(isinstance(v, int) and v > 0 for v in value):
            raise ValueError(f"--{key}: expected {length} whole numbers from 1 in brackets, found {value}.")
    if min(config["image_size"]) < 17:
        raise ValueError(
            f"--image_size: expected at least 17, for a network of 5 levels, found {config['image_size']}."
        )
    if changed:
        parser.parse(reset=True)


def _track_once(parser: ConfigParser) -> None:
    """Take out the handlers that MONAI's ``--tracking mlflow`` has added, since the bundle tracks by itself."""
    sections = {key: parser.get(key, []) for key in ("train::handlers", "validate::handlers")}
    for key, handlers in sections.items():
        kept = [handler for handler in handlers if handler.get("_target_") != "MLFlowHandler"]
        if len(kept) < len(handlers):
            parser[key] = kept
            parser.parse(reset=True)


def _evaluating(kind: type[T]) -> T:
    """Return the workflow or parser whose expression is being evaluated: MONAI does not hand it to its configs."""
    return next(
        frame.frame.f_locals["self"] for frame in inspect.stack() if isinstance(frame.frame.f_locals.get("self"), kind)
    )


def prepare_output(output_dir: str, resume: bool) -> None:
    """Clear the way for a training: move an earlier one aside unless it is resumed, and begin the log.

    Also writes the arguments of an evaluation and of a prediction with what is being trained, for ``--args_file``.

    Raises:
        ValueError: if another process is training in this folder.
    """
    if not is_first_rank():
        return
    folder = Path(output_dir)
    _occupy(folder)
    if not resume:
        _move_aside(folder)
    ours = logging.getLogger("monai_iels")
    for handler in [h for h in ours.handlers if isinstance(h, logging.FileHandler)]:  # of a training before this one
        ours.removeHandler(handler)
        handler.close()
    log = logging.FileHandler(folder / "training.log", encoding="utf-8")
    log.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    ours.addHandler(log)
    workflow = _evaluating(ConfigWorkflow)
    configs = Path(os.path.abspath(workflow.config_root_path))
    chosen = settings()
    evaluation = {"config_file": [str(configs / f"{name}.json") for name in ("train", "evaluate")], **chosen}
    prediction: dict[str, Any] = {"config_file": str(configs / "inference.json")}
    known = ConfigParser.load_config_file(configs / "inference.json")["known_keys"]
    prediction.update({key: value for key, value in chosen.items() if key in known and key != "dataset_dir"})
    for name, content in (("evaluate", evaluation), ("inference", prediction), ("config", workflow.parser.get())):
        file = folder / f"{name}.json"
        if not (resume and file.exists()):  # a training that is resumed has its settings already
            file.write_text(json.dumps(content, indent=1, default=str) + "\n", encoding="utf-8")


def _occupy(folder: Path) -> None:
    """Keep other processes from training in the same folder until this one ends."""
    lock = _OCCUPIED.setdefault(os.path.realpath(folder), FileLock(folder / ".training.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(
            f"{folder}: expected no other training in it, found one. Wait for it, or choose another --output_dir."
        ) from None


def end_run(trainer: Any) -> None:
    """Leave the folder to others; end the process with an error code if its training ended early; why has been said."""
    while _OCCUPIED:
        _OCCUPIED.popitem()[1].release(force=True)
    if getattr(trainer.state, "stopped", None):
        sys.exit(1)


def _move_aside(folder: Path) -> None:
    there = [path for path in sorted(folder.iterdir()) if path.name in _OUTPUTS]
    if not there:
        return
    number = 1
    while (folder / "earlier" / str(number)).exists():
        number += 1
    earlier = folder / "earlier" / str(number)
    earlier.mkdir(parents=True)
    for path in there:
        os.replace(path, earlier / path.name)
    logger.info(f"What an earlier training left in {folder} is now in {earlier}.")


def settings() -> dict[str, Any]:
    """Return the settings of the present run: plain values, and every entry that an override has changed."""
    parser = _evaluating(ConfigParser)
    file = Path(parser.get_parsed_content("bundle_root")) / "configs" / "train.json"
    original = ConfigParser(ConfigParser.load_config_file(file) if file.exists() else parser.get())
    original.parse()
    chosen = {
        key: value
        for key, value in parser.get().items()
        if key not in _INTERNAL and (_is_plain(value) or value != original.get().get(key))
    }
    for key in ("bundle_root", "output_dir", "dataset_dir", "cache_dir"):
        value = str(parser.get_parsed_content(key))
        chosen[key] = value if value == SYNTHETIC else os.path.abspath(value)
    return chosen


def describe(
    layer: InverseEvolutionLayer, network: nn.Module, datalists: Datalists, dataset_dir: str
) -> dict[str, Any]:
    """Return what a tracked run has to tell beside its settings: the physics, the network and the data."""
    chosen = settings()
    chosen["tracking_uri"] = public(str(chosen.get("tracking_uri")))
    gains = {f"gain_{dims}d": gain for dims, gain in layer.gains().items()}
    prints = {name: fingerprint({name: cases}) for name, cases in datalists.items() if name != "test"}
    return {
        **{key: value if _is_plain(value) else json.dumps(value) for key, value in chosen.items()},
        "evolution": repr(layer.evolution),
        **gains,
        "network": type(network).__name__,
        "network_parameters": sum(parameter.numel() for parameter in network.parameters()),
        "dataset_fingerprint": hashlib.sha256(json.dumps(prints, sort_keys=True).encode()).hexdigest(),
        "dataset_synthetic": str(dataset_dir) == SYNTHETIC,
        **{f"cases_{name}": len(cases) for name, cases in datalists.items()},
    }


def tags() -> dict[str, str]:
    """Return the bundle's name and version, the versions of the packages, and the git revision where there is one."""
    metadata = _evaluating(ConfigParser).get(ConfigParser.meta_key, {})
    packages = {name: importlib.metadata.version(name) for name in ("monai", "torch", "mlflow", "pytorch-ignite")}
    found = {"bundle": metadata.get("name", ""), "bundle_version": metadata.get("version", "")}
    found.update({f"version.{name}": version for name, version in packages.items()})
    found["version.monai_iels"] = monai_iels.__version__
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(git, capture_output=True, text=True, check=True, timeout=5)
        found["git_revision"] = done.stdout.strip()
    return found


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return isinstance(value, bool | int | float | None) or (isinstance(value, str) and value[:1] not in "$@%")


def _ids(config: Mapping[str, Any], place: str = "") -> Iterator[str]:
    """Yield the ids of a config down to its components, which check their arguments themselves, and to free tags."""
    for key, value in config.items():
        if key == ConfigParser.meta_key:
            continue
        place_of_key = ReferenceResolver.normalize_id(f"{place}{key}")
        yield place_of_key
        if isinstance(value, Mapping) and "_target_" not in value and key != _FREE:
            yield from _ids(value, f"{place_of_key}{ID_SEP_KEY}")


def _in_one_sentence(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print what this package says about a user's mistake, without the way there; anything else in full."""
    if issubclass(kind, KeyboardInterrupt):
        print("Interrupted. A training goes on after its last full epoch with --resume true.", file=sys.stderr)
        return
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    home = str(Path(__file__).parent)
    for link in chain:
        frames = traceback.extract_tb(link.__traceback__)
        if isinstance(link, ValueError | FileNotFoundError) and frames and frames[-1].filename.startswith(home):
            print(link, file=sys.stderr)
            return
    component = re.search(r"Failed to instantiate component '([^']+)'", "".join(map(str, chain)))
    if component is not None and isinstance(chain[-1], TypeError | ValueError):
        print(f"{component[1]}: expected arguments that it takes, found '{chain[-1]}'.", file=sys.stderr)
        return
    sys.__excepthook__(kind, error, trace)


def existing(file: str) -> str:
    """Return the name of a checkpoint that is there.

    Raises:
        FileNotFoundError: if it is not.
    """
    if not os.path.isfile(file):
        raise FileNotFoundError(
            f"{file}: expected the weights of a network, found no such file. Train first, or set --checkpoint."
        )
    return file


def local_rank() -> int:
    """Return which of this machine's processes this is, as torchrun says."""
    return int(os.environ.get("LOCAL_RANK", 0))


def share_of_batch(batch_size: int) -> int:
    """Return each process's part of a batch.

    Raises:
        ValueError: if the batch cannot be shared evenly.
    """
    processes = torch.distributed.get_world_size()
    if batch_size % processes:
        raise ValueError(f"Expected `batch_size` to be a multiple of the {processes} processes, got {batch_size}.")
    return batch_size // processes


def main(arguments: Sequence[str] | None = None) -> int:
    """Compose the configs of all bundles, or check them; the result is the exit code."""
    parser = argparse.ArgumentParser(prog="python -m monai_iels.bundle", description="Compose the bundles' configs.")
    parser.add_argument("command", choices=("compose", "check"))
    parser.add_argument("bundles", type=Path, help="the folder that has 'shared' and the bundles")
    options = parser.parse_args(arguments)
    folders = sorted(file.parent for file in options.bundles.glob("*/dataset.yaml"))
    if not folders:
        print(f"{options.bundles}: expected folders with a dataset.yaml, found none.", file=sys.stderr)
        return 1
    stale = []
    try:
        composed = {folder: compose(folder, options.bundles / "shared") for folder in folders}
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    for folder, texts in composed.items():
        for name, text in texts.items():
            file = folder / name
            if options.command == "compose":
                file.parent.mkdir(exist_ok=True)
                file.write_text(text, encoding="utf-8")
            elif not file.exists() or file.read_text("utf-8") != text:
                stale.append(file)
    for file in stale:
        print(f"{file}: expected what `compose` writes, found another content. Run compose.", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
