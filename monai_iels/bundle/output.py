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

"""The folder that a training writes to."""

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from monai.bundle import ConfigParser, ConfigWorkflow

from monai_iels.bundle.config import evaluating
from monai_iels.bundle.record import settings
from monai_iels.handlers.training import is_first_rank

__all__ = ["end_run", "prepare_output"]

logger = logging.getLogger(__name__)

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
_OCCUPIED: dict[str, FileLock] = {}  # folders that this process trains in; a lock that nobody holds on to is open


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
    workflow = evaluating(ConfigWorkflow)
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


def end_run(trainer: Any) -> None:
    """Leave the folder to others; end the process with an error code if its training ended early; why has been said."""
    while _OCCUPIED:
        _OCCUPIED.popitem()[1].release(force=True)
    if getattr(trainer.state, "stopped", None):
        sys.exit(1)
