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
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from monai.bundle import ConfigParser
from torch import nn

from monai_iels.bundle.config import INTERNAL, evaluating, ids, unknown_key
from monai_iels.bundle.record import hide_secrets
from monai_iels.bundle.rules import CHECKED, check_values
from monai_iels.bundle.sentences import print_sentences
from monai_iels.data.datalists import SYNTHETIC
from monai_iels.errors import first_line
from monai_iels.handlers.training import is_first_rank
from monai_iels.networks import IELNet
from monai_iels.prediction import check_weights

__all__ = ["check_settings", "checked_weights", "local_rank", "share_of_batch", "start_run", "try_first_case"]

logger = logging.getLogger(__name__)

_SWITCHES = ("amp", "noise_shared", "resume", "system_metrics", "track")
_NEEDED = ("train", "validate", "datalists")  # what an overlay has not


def check_settings(known: Sequence[str]) -> None:
    """Refuse a run that would fail late or go wrong without a word; nothing is read or written yet.

    MONAI adds an unknown override silently: with ``--epoch 3`` a bundle trains for its default number of epochs.

    Args:
        known: the keys that the configs define; a config of your own adds to them with ``+known_keys``.

    Raises:
        ValueError: for an unknown key, with the nearest one that there is, and for a value that cannot be used.
    """
    print_sentences()
    parser = evaluating(ConfigParser)
    missing = [key for key in _NEEDED if key not in parser.get()]
    if missing:
        raise ValueError(
            "this config only changes a training's: give both, --config_file \"['configs/train.json', "
            "'configs/evaluate.json']\", or use the evaluate.json that a training wrote"
        )
    hide_secrets(parser)
    _track_once(parser)
    for key in ids(parser.get()):
        if key not in known and key not in INTERNAL:
            raise ValueError(unknown_key(f"--{key}", key, known))
    _read_switches(parser)
    check_values({key: parser.get_parsed_content(key) for key in CHECKED})


def _read_switches(parser: ConfigParser) -> None:
    """Read ``true`` and ``false``, which arrive as words."""
    config = parser.get()
    words = {"true": True, "false": False}
    given = {key: config[key] for key in _SWITCHES if isinstance(config[key], str)}
    for key, value in given.items():
        if value.lower() not in words:
            raise ValueError(f"--{key} must be true or false, got '{value}'")
        config[key] = words[value.lower()]
    if given:
        parser.parse(reset=True)


def start_run(dataset_dir: str, output_dir: str) -> None:
    """Begin a run: see that its folder can be written to, and say so if the data are only drawn.

    Args:
        dataset_dir: the folder of the data set, or ``"synthetic"``.
        output_dir: folder for everything that the run writes.

    Raises:
        ValueError: if the folder cannot be written to.
    """
    if not is_first_rank():
        return
    folder = Path(os.path.abspath(output_dir))
    there = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=there) as probe:
            probe.write(bytes(4096))
    except OSError as error:
        raise ValueError(
            f"{output_dir}: cannot be written to ({error.strerror}); set --output_dir to another folder"
        ) from None
    if str(dataset_dir) == SYNTHETIC:
        logger.warning(
            "=== EMBEDDED SAMPLE: these images are drawn. Set --dataset_dir to the folder of the real data set. ==="
        )


def _track_once(parser: ConfigParser) -> None:
    """Take out the handlers that MONAI's ``--tracking mlflow`` has added, since the bundle tracks by itself."""
    sections = {key: parser.get(key, []) for key in ("train::handlers", "validate::handlers")}
    for key, handlers in sections.items():
        kept = [handler for handler in handlers if handler.get("_target_") != "MLFlowHandler"]
        if len(kept) < len(handlers):
            parser[key] = kept
            parser.parse(reset=True)


def try_first_case(network: nn.Module, loss: Any, dataset: Any, device: Any) -> None:
    """Send one case through network, layer and loss, so that what cannot be trained is refused before it begins.

    Raises:
        ValueError: with what went wrong.
    """
    case = dataset[0]
    image, label = (case[key].as_tensor()[None].to(device) for key in ("image", "label"))
    whole = next(module for module in network.modules() if isinstance(module, IELNet))
    modes = {module: module.training for module in network.modules()}
    network.eval()
    whole.training = True  # the layer takes part; the network's own state stays as it is
    try:
        with torch.no_grad():
            loss(whole(image), label)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        raise ValueError(
            f"one case cannot be trained with ({first_line(error)}); look at in_channels, num_classes, image_size, "
            "the network, the layer and the loss"
        ) from error
    finally:
        for module, mode in modes.items():
            module.training = mode


def checked_weights(file: str, network: torch.nn.Module) -> str:
    """Return the name of a checkpoint after a look into it.

    Raises:
        ValueError: if it is not there, cannot be read, or belongs to another network.
    """
    check_weights(file, network)
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
