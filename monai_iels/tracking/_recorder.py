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

"""Record one training in its journal, and have it delivered meanwhile."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from monai_iels._run_folder import RunFolder
from monai_iels.tracking._courier import Courier
from monai_iels.tracking._journal import RESUMED, Journal

logger = logging.getLogger(__name__)


class Recorder:
    """Record one training.

    Args:
        folder: folder of the journal.
        address: where to deliver.
        experiment: name of the experiment.
        name: name of the run.
    """

    def __init__(self, folder: Path, address: str, experiment: str, name: str) -> None:
        self.journal = Journal(folder)
        self.address = address
        self.experiment = experiment
        self.name = name
        self._courier: Courier | None = None

    def open(self, parameters: Mapping[str, Any], tags: Mapping[str, Any], files: Iterable[Path], resume: bool) -> None:
        """Begin a run, or go on with the one in the journal.

        Args:
            parameters: settings of the run. MLflow never changes them, so a resumed run notes others as tags.
            tags: what describes a new run.
            files: artifacts of a new run.
            resume: whether to go on with the run in the journal, if there is one.
        """
        folder = self.journal.folder
        if not resume and self.journal.file.exists():
            os.replace(folder, f"{folder}-{uuid.uuid4().hex[:6]}")
        is_new = self.journal.begin(tracking_uri=self.address, experiment=self.experiment, name=self.name)
        settings = {name: str(value) for name, value in parameters.items()}
        if is_new:
            self.journal.append("params", values=settings)
            self.journal.append("tags", values=dict(tags))
            self._add_files(files)
        else:
            before = {**self.journal.tags_and_parameters(), "resume": settings.get("resume")}
            changed = {name: value for name, value in settings.items() if before.get(name) != value}
            self.journal.append("resumed", tracking_uri=self.address)
            self.journal.append("tags", values={"stopped": ""} | {f"{RESUMED}{k}": v for k, v in changed.items()})
        self._courier = Courier(self.journal)
        self._courier.start()
        self._courier.notify()

    def log_metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Record the metrics of a step, unless they were recorded before an interruption."""
        if self._courier is None or self.journal.has_metrics(step):
            return
        self.journal.append("metrics", step=step, values=dict(values))
        self._courier.notify()

    def close(self, status: str, files: Iterable[Path] = (), stopped: str = "") -> None:
        """End the run, and wait a while until everything has arrived.

        Args:
            status: ``FINISHED``, ``FAILED`` or ``KILLED``.
            files: artifacts.
            stopped: why the training has ended early, as a tag.
        """
        if self._courier is None:
            return
        if stopped:
            self.journal.append("tags", values={"stopped": stopped})
        self._add_files(files)
        self.journal.append("status", status=status)
        courier, self._courier = self._courier, None
        if courier.finish():
            run = f"experiment {self.experiment}, run {courier.run_id}"
            logger.info(f"Tracking: {self.address}, {run} ({status}).")

    def _add_files(self, files: Iterable[Path]) -> None:
        for file in files:
            self.journal.add_file(file)


def add_files_to_run(output_dir: str | os.PathLike[str], files: Iterable[Path], place: str) -> None:
    """Add files to the tracked run of a training that has ended, such as those of its evaluation."""
    journal = Journal(RunFolder(output_dir).tracking)
    if not journal.file.exists():
        return
    for file in files:
        journal.add_file(file, place)
    courier = Courier(journal)
    courier.start()
    courier.finish()
