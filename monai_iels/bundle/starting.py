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

"""What configs call at the start of a run: checks of what was asked for, and a process's share of the work."""

import logging
import os
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import torch
from monai.bundle import ConfigParser

import monai_iels
from monai_iels.bundle.config import INTERNAL, evaluating, ids, unknown_key
from monai_iels.bundle.record import hide_secrets
from monai_iels.data.datalists import SYNTHETIC
from monai_iels.handlers.training import is_first_rank

__all__ = ["existing", "local_rank", "share_of_batch", "start_run"]

logger = logging.getLogger(__name__)

_SWITCHES = ("amp", "noise_shared", "resume", "system_metrics", "track")


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
    parser = evaluating(ConfigParser)
    hide_secrets(parser)
    _track_once(parser)
    _check_settings(parser)
    for key in ids(parser.get()):
        if key not in known and key not in INTERNAL:
            raise ValueError(unknown_key(f"--{key}", key, known))
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
    home = str(Path(monai_iels.__file__).parent)
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
