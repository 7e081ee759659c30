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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monai_iels.run_folder import RunFolder, best_and_last, scores_of
from monai_iels.tracking._delivery_thread import DeliveryThread
from monai_iels.tracking._journal import RESUMED, Journal
from monai_iels.tracking._mlflow_pages import how_to_look

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunDescription:
    """What a training says about itself when it begins.

    Args:
        parameters: its settings. MLflow never changes them.
        tags: further facts and texts.
        datasets: its data; for each part a ``name``, ``digest``, ``source``, ``context`` and number of ``cases``.
    """

    parameters: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, Any] = field(default_factory=dict)
    datasets: Sequence[Mapping[str, Any]] = ()


class Recorder:
    """Record one training.

    Args:
        folder: folder of the journal.
        experiment: name of the experiment.
        name: name of the run.
    """

    def __init__(self, folder: Path, experiment: str, name: str) -> None:
        self.journal = Journal(folder)
        self.experiment = experiment
        self.name = name
        self._delivery: DeliveryThread | None = None

    def open(self, address: str, description: RunDescription, files: Iterable[Path], resume: bool) -> None:
        """Begin a run, or go on with the one in the journal.

        Args:
            address: where to deliver.
            description: what describes a new run. Of a resumed run, only settings that have changed are noted, as tags.
            files: artifacts of a new run.
            resume: whether to go on with the run in the journal, if there is one.
        """
        journal = self.journal
        if not resume and journal.file.exists():
            os.replace(journal.folder, f"{journal.folder}-{uuid.uuid4().hex[:6]}")
        is_new = journal.begin(tracking_uri=address, experiment=self.experiment, name=self.name)
        settings = {name: str(value) for name, value in description.parameters.items()}
        if is_new:
            journal.append("params", values=settings)
            journal.append("tags", values=dict(description.tags))
            for dataset in description.datasets:
                journal.append("data", **dataset)
            self._add_files(files)
        else:
            before = journal.tags_and_parameters()
            changed = {name: value for name, value in settings.items() if before.get(name) != value}
            journal.append("resumed", tracking_uri=address)
            journal.append("tags", values={"stopped": ""} | {f"{RESUMED}{k}": v for k, v in changed.items()})
        self._delivery = DeliveryThread(journal, address)
        self._delivery.start()
        self._delivery.notify()

    def log_metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Record the metrics of a step, unless they were recorded before an interruption."""
        if self._delivery is None or self.journal.has_metrics(step, next(iter(values))):
            return
        self.journal.append("metrics", step=step, values=dict(values))
        self._delivery.notify()

    def close(self, status: str, files: Iterable[Path] = (), stopped: str = "") -> None:
        """End the run, and wait a while until everything has arrived.

        Args:
            status: ``FINISHED``, ``FAILED`` or ``KILLED``.
            files: artifacts.
            stopped: why the training has ended early, as a tag.
        """
        if self._delivery is None:
            return
        if stopped:
            self.journal.append("tags", values={"stopped": stopped})
        self._add_files(files)
        self.journal.append("status", status=status)
        delivery, self._delivery = self._delivery, None
        if delivery.finish():
            arrived = self.journal.progress(delivery.address)
            where = how_to_look(delivery.address, arrived.experiment_id, str(arrived.run_id))
            logger.info(f"Tracked with MLflow as {self.name} ({status}). To look at it:\n{where}")

    def log_best_and_last(self, folder: RunFolder, model: str) -> None:
        """Record the weights of the best epoch as a model, and Dice and what decides of the best and the last epoch."""
        found = best_and_last(folder.read_history())
        if self._delivery is None or found is None:
            return
        of_best, of_last = (
            {"step": int(epoch["epoch"]), "values": {f"{which}_{name}": x for name, x in scores_of(epoch).items()}}
            for which, epoch in zip(("best", "last"), found, strict=True)
        )
        self.journal.append("metrics", **of_last)
        self.journal.append("model", name=model, weights=str(folder.best_weights), **of_best)

    def _add_files(self, files: Iterable[Path]) -> None:
        for file in files:
            self.journal.add_file(file)


def add_files_to_run(
    output_dir: str | os.PathLike[str], files: Iterable[Path], place: str, tracking_uri: str | None = None
) -> None:
    """Add files to the tracked run of a training that has ended, such as those of its evaluation.

    Args:
        output_dir: folder of the training.
        files: the files.
        place: folder of the artifacts that gets them.
        tracking_uri: where to deliver, by default ``MLFLOW_TRACKING_URI`` or where the training was tracked.
    """
    journal = Journal(RunFolder(output_dir).tracking)
    if not journal.file.exists():
        return
    for file in files:
        journal.add_file(file, place)
    delivery = DeliveryThread(journal, tracking_uri)
    delivery.start()
    delivery.finish()
