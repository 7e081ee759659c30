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
from monai_iels.bundle.resuming import CASES, check_resumed, digest_of
from monai_iels.data.files import Datalists
from monai_iels.handlers.training import complete_file, is_first_rank

__all__ = ["end_run", "prepare_output"]

logger = logging.getLogger(__name__)

_OF_THE_MODEL = {"evaluation", "predictions"}
_OUTPUTS = _OF_THE_MODEL | {
    "cases.csv",
    "config.json",
    "curves.png",
    "evaluate.json",
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


def prepare_output(output_dir: str, resume: bool, datalists: Datalists, trainer: Any) -> None:
    """Clear the way for a training: move an earlier one aside unless it is resumed, and begin the log.

    Also writes the arguments of an evaluation and of a prediction with what is being trained, for ``--args_file``.

    Args:
        output_dir: folder of the training.
        resume: whether to go on with the training in it, if there is one.
        datalists: the cases of each section.
        trainer: the engine. It is not used: asking for it builds all components, so that what cannot be built is
            refused before anything is moved.

    Raises:
        ValueError: if another process is training in this folder, or if a training is resumed with other settings.
    """
    if not is_first_rank():
        return
    folder = Path(output_dir)
    _occupy(folder)
    workflow = evaluating(ConfigWorkflow)
    config = {**workflow.parser.get(), CASES: digest_of(datalists)}
    goes_on = resume and any((folder / name).exists() for name in ("last.pt", "previous.pt"))
    if goes_on:
        check_resumed(folder, config)
    _move_aside(folder, _OF_THE_MODEL if goes_on else _OUTPUTS)
    _begin_log(folder / "training.log")
    configs = Path(os.path.abspath(workflow.config_root_path))
    chosen = settings()
    inference = ConfigParser.load_config_file(configs / "inference.json")
    files = {
        "evaluate": {"config_file": [str(configs / f"{name}.json") for name in ("train", "evaluate")], **chosen},
        "inference": {
            "config_file": str(configs / "inference.json"),
            **{key: chosen[key] for key in inference["from_training"] if key in chosen},
        },
        "config": config,
    }
    for name, content in files.items():
        with complete_file(folder / f"{name}.json") as part:
            part.write_text(json.dumps(content, indent=1, default=str) + "\n", encoding="utf-8")


class _Log(logging.FileHandler):
    """A log file that is given up, with one sentence, when it cannot be written to."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Stop logging to the file; the console goes on."""
        logging.getLogger("monai_iels").removeHandler(self)
        logger.warning(f"{self.baseFilename}: cannot be written to ({sys.exc_info()[1]}); the log ends here.")


def _end_log() -> None:
    ours = logging.getLogger("monai_iels")
    for handler in [h for h in ours.handlers if isinstance(h, _Log)]:
        ours.removeHandler(handler)
        handler.close()


def _begin_log(file: Path) -> None:
    _end_log()  # of a training before this one that failed
    log = _Log(file, encoding="utf-8")
    log.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logging.getLogger("monai_iels").addHandler(log)


def _occupy(folder: Path) -> None:
    """Keep other processes from training in the same folder until this one ends."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = _OCCUPIED.setdefault(os.path.realpath(folder), FileLock(folder / ".training.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(
            f"{folder}: expected no other training in it, found one. Wait for it, or choose another --output_dir."
        ) from None


def _move_aside(folder: Path, names: set[str]) -> None:
    there = [path for path in sorted(folder.iterdir()) if path.name in names]
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
    """Release the folder and end its log; exit with code 1 if the training stopped early (already logged)."""
    while _OCCUPIED:
        _OCCUPIED.popitem()[1].release(force=True)
    _end_log()
    if getattr(trainer.state, "stopped", None):
        sys.exit(1)
