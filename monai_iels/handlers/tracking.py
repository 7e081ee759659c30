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

"""MONAI's MLflow handler, made to survive: a journal in between, truthful endings, parameters, tags and artifacts."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import torch
from ignite.engine import Events
from monai.handlers import MLFlowHandler

from monai_iels.errors import first_line
from monai_iels.handlers.addresses import default_tracking_uri
from monai_iels.handlers.journal import Courier, Journal
from monai_iels.handlers.training import is_first_rank

__all__ = ["Tracking", "track_files"]

logger = logging.getLogger(__name__)

_FOLDER = "tracking"
_AT_START = ("config.json", "pictures/start.png")


class _JournalClient:
    """The part of MLflow's client that MONAI's handler writes with, writing to a journal instead."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def log_batch(
        self, run_id: str, metrics: Sequence[Any] = (), params: Sequence[Any] = (), tags: Sequence[Any] = ()
    ) -> None:
        if metrics:
            values = {metric.key: float(metric.value) for metric in metrics}
            self.journal.append("metrics", step=int(metrics[0].step), values=values)
        if params:
            self.journal.append("params", values={param.key: param.value for param in params})
        if tags:
            self.journal.append("tags", values={tag.key: tag.value for tag in tags})

    def log_artifact(self, run_id: str, local_path: str, artifact_path: str | None = None) -> None:
        self.journal.keep(local_path, artifact_path or "")


class Tracking(MLFlowHandler):
    """Track a training with MLflow, whatever happens to the server or to the training.

    Everything is written to a journal below ``output_dir`` first, and delivered in the background. What cannot be
    delivered stays there, and ``python -m monai_iels.handlers replay DIR`` delivers it later. Metrics are logged once
    an epoch, as :class:`TrainingReport` has measured them, which comes before this among the handlers.

    Args:
        output_dir: folder of the training, and of its embedded database and artifacts.
        tracking_uri: address of a tracking server; ``MLFLOW_TRACKING_URI`` goes first, and a database below
            ``output_dir`` is used where there is neither. A user name and password in it are never written.
        experiment_name: name of the experiment.
        run_name: what the run's name begins with; its time and a random part follow.
        parameters: what does not change during the run.
        tags: what describes it.
        artifacts: files below ``output_dir`` that are logged at the end, where they exist.
        resume: whether to go on with the run that is in the journal.
        system_metrics: whether to log memory and processor time, too.
    """

    def __init__(
        self,
        output_dir: str,
        tracking_uri: str | None = None,
        experiment_name: str = "monai_iels",
        run_name: str = "training",
        parameters: Mapping[str, Any] | None = None,
        tags: Mapping[str, Any] | None = None,
        artifacts: Sequence[str] = (),
        resume: bool = False,
        system_metrics: bool = False,
    ) -> None:
        self.folder = Path(output_dir)
        self.journal = Journal(self.folder / _FOLDER)
        self.uri = default_tracking_uri(output_dir, tracking_uri)
        self.tags = dict(tags or {})
        self.resume = resume
        self.system_metrics = system_metrics
        self.courier: Courier | None = None
        self._signals: dict[int, Any] = {}
        self._interruption: BaseException | None = None
        self._ended_before: str | None = None
        # MONAI's own constructor would open a connection at once, which may fail; it gets an address that needs none.
        chosen = os.environ.pop("MLFLOW_TRACKING_URI", None)
        try:
            super().__init__(
                tracking_uri="http://127.0.0.1:1",
                iteration_log=False,
                epoch_logger=self.log_epoch,
                experiment_name=experiment_name,
                run_name=f"{run_name}-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}",
                experiment_param=dict(parameters or {}),
                artifacts=[self.folder / name for name in artifacts],
            )
        finally:
            if chosen is not None:
                os.environ["MLFLOW_TRACKING_URI"] = chosen
        self.client: Any = _JournalClient(self.journal)
        self.cur_run: Any = None

    def attach(self, engine: Any) -> None:
        """Follow a trainer, in the process that writes."""
        if not is_first_rank():
            return
        super().attach(engine)
        engine.add_event_handler(Events.EPOCH_STARTED, self.begin_epoch)
        engine.add_event_handler(Events.ITERATION_COMPLETED, self.raise_interruption)
        engine.add_event_handler(Events.EXCEPTION_RAISED, self.fail)

    def start(self, engine: Any) -> None:
        """Begin a run, or go on with the one that was interrupted."""
        if not self.resume and self.journal.file.exists():
            os.replace(self.journal.folder, f"{self.journal.folder}-{uuid.uuid4().hex[:6]}")
        known = bool(self.journal.entries())
        self.journal.begin(
            key=uuid.uuid4().hex,
            tracking_uri=self.uri,
            experiment=self.experiment_name,
            name=self.run_name,
        )
        self.cur_run = SimpleNamespace(info=SimpleNamespace(run_id="pending"))
        if known:
            self._go_on()
        else:
            values = {**(self.experiment_param or {}), "max_epochs": engine.state.max_epochs}
            self._log_params(values)
            self.journal.append("tags", values=self.tags)
            for name in _AT_START:
                if (self.folder / name).exists():
                    self.journal.keep(self.folder / name)
        self.courier = Courier(self.journal, self.uri)
        self.courier.start()
        self.courier.notify()
        if threading.current_thread() is threading.main_thread():
            self._interruption = None
            self._signals = {n: signal.signal(n, self._interrupt) for n in (signal.SIGTERM, signal.SIGINT)}

    def _go_on(self) -> None:
        """Open the run again; its parameters cannot change, so other settings than before are noted as tags."""
        self._ended_before = self.journal.status()
        self.journal.append("resumed", tracking_uri=self.uri)
        before = {
            key: v
            for entry in self.journal.entries()
            if entry["kind"] == "params"
            for key, v in entry["values"].items()
        }
        changed = {key: v for key, v in (self.experiment_param or {}).items() if str(before.get(key)) != str(v)}
        changed.pop("resume", None)
        self.journal.append("tags", values={"stopped": "", **{f"resumed.{key}": v for key, v in changed.items()}})

    def begin_epoch(self, engine: Any) -> None:
        """Take note that the training runs, or runs again."""
        self._ended_before = None

    def log_epoch(self, engine: Any) -> None:
        """Record the epoch's numbers, unless they were recorded before an interruption."""
        epoch = engine.state.epoch
        if self.journal.has_metrics(epoch):
            return
        values = {name: value for name, value in engine.state.epoch_report.items() if name != "epoch"}
        if self.system_metrics:
            values.update(_system())
        self._log_metrics(values, step=epoch)
        self._notify()

    def complete(self, engine: Any = None) -> None:
        """Record the artifacts and how the training ended."""
        super().complete()
        stopped = getattr(engine.state, "stopped", None) if engine is not None else None
        if stopped:
            self.journal.append("tags", values={"stopped": stopped})
        self.end("FAILED" if stopped else "FINISHED")

    def fail(self, engine: Any, error: BaseException) -> None:
        """Record that the training failed or was killed, and let the error go on; another SIGTERM has to wait."""
        if self._signals:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.default_int_handler)
        error = self._interruption or error
        if self.courier is not None and self._ended_before is not None:
            self.end(self._ended_before)  # it could not even be resumed, and stays what it was
        elif self.courier is not None:
            killed = isinstance(error, KeyboardInterrupt | _Terminated)
            kind = type(error).__name__.strip("_")
            self.journal.append("tags", values={"stopped": f"{kind}: {first_line(error)[:500]}"})
            super().complete()
            self.end("KILLED" if killed else "FAILED")
        raise error

    def end(self, status: str) -> None:
        """Close the run in the journal, and wait a while for it to arrive."""
        if self.courier is None:
            return
        self.journal.append("status", status=status)
        courier, self.courier = self.courier, None
        delivered = courier.close()
        for number, handler in self._signals.items():
            signal.signal(number, handler)
        self._signals = {}
        if delivered:
            logger.info(f"Tracking: {self.uri}, experiment {self.experiment_name}, run {courier.run_id} ({status}).")
        else:
            logger.warning(
                "Not all of the tracking was delivered. Later: python -m monai_iels.handlers replay "
                f"{self.journal.folder}"
            )

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """Turn a signal into an exception that the training's handlers see.

        It is kept, since code that it interrupts may swallow it or raise an error of its own.
        """
        self._interruption = KeyboardInterrupt() if number == signal.SIGINT else _Terminated(128 + number)
        raise self._interruption

    def raise_interruption(self, engine: Any) -> None:
        """Stop the training if it went on after a signal."""
        if self._interruption is not None:
            raise self._interruption

    def _notify(self) -> None:
        if self.courier is not None:
            self.courier.notify()


class _Terminated(SystemExit):
    """SIGTERM, as an exception."""


def _system() -> dict[str, float]:
    """Return the memory and processor time of this process."""
    values = {"system/processor_seconds": time.process_time()}
    with contextlib.suppress(ImportError):  # Windows has no such module
        import resource

        values["system/memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if torch.cuda.is_available():
        values["system/gpu_memory_mb"] = torch.cuda.max_memory_allocated() / 2**20
    return values


def track_files(output_dir: str, files: Sequence[str | Path], place: str) -> None:
    """Add files to the run of a training that has ended, such as those of its evaluation."""
    journal = Journal(Path(output_dir) / _FOLDER)
    if not journal.file.exists():
        return
    for file in files:
        journal.keep(file, place)
    courier = Courier(journal)
    courier.start()
    if not courier.close():
        logger.warning(f"Not delivered yet. Later: python -m monai_iels.handlers replay {journal.folder}")
