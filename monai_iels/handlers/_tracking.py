# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Track a training with MLflow, whatever happens to the server or to the training."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
import uuid
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import ignite.distributed as idist
import torch
from ignite.engine import Events

from monai_iels._terminal import first_line
from monai_iels.handlers._phases import Phases, attach
from monai_iels.handlers._reports import TrainingReport
from monai_iels.handlers._training import TrainingStopped
from monai_iels.run_folder import RunFolder, best_and_last, scores_of
from monai_iels.tracking import RESUMED, DeliveryThread, Journal, RunDescription, choose_address, how_to_look

logger = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class Tracking:
    """Track a training with MLflow: parameters, tags, metrics per epoch, artifacts, and how it ended.

    MONAI's ``MLFlowHandler`` stops the training when the server does not answer. Here everything is written to a
    journal in the folder of the run first, and delivered in the background; ``monai-iels tracking replay DIR`` delivers
    the rest later.

    Args:
        output_dir: folder of the run; its config, tables, log and pictures are added at the end, if they exist.
        report: measures the metrics of each epoch.
        tracking_uri: address of a tracking server, by default ``MLFLOW_TRACKING_URI``, else a database. A user name and
            password in the address are never written.
        bundle_root: folder of the bundle; all trainings with bundles beside it share the database ``mlflow/mlflow.db``
            there. If None, ``output_dir`` has a database of its own.
        enabled: whether to track.
        experiment_name: name of the experiment.
        run_name: beginning of the run's name; a random part follows.
        description: settings, tags and data of the run.
        resume: whether to continue the run in the journal.
        system_metrics: whether to track memory and processor time, too.
    """

    output_dir: str
    report: TrainingReport
    tracking_uri: str | None = None
    bundle_root: str | None = None
    enabled: bool = True
    experiment_name: str = "monai_iels"
    run_name: str = "training"
    description: RunDescription = field(default_factory=RunDescription)
    resume: bool = False
    system_metrics: bool = False

    def __post_init__(self) -> None:
        """Find the folder."""
        self.folder = RunFolder(self.output_dir)
        self.signals = _Signals()
        self.journal = Journal(self.folder.tracking)
        self.delivery: DeliveryThread | None = None

    def attach(self, engine: Any) -> None:
        """Follow a trainer in the first process."""
        if idist.get_rank() > 0:
            return
        attach(engine, Phases.BEGIN, self.open)
        attach(engine, Phases.RECORD, self.record)
        attach(engine, Phases.CLOSE, self.close)
        engine.add_event_handler(Events.ITERATION_COMPLETED, self.signals.raise_hidden)
        engine.add_event_handler(Events.EXCEPTION_RAISED, self.fail)

    def open(self, engine: Any) -> None:
        """Begin a run, or continue the one that was interrupted."""
        if not self.enabled:
            return
        journal, folder = self.journal, self.folder
        settings = {name: str(value) for name, value in self.description.parameters.items()}
        resume = self.resume or engine.state.epoch > 0  # a federated client trains in rounds
        before = journal.own_address() if resume else None
        address = choose_address(self.tracking_uri, self.bundle_root, self.output_dir, before)
        if not resume and journal.file.exists():
            os.replace(journal.folder, f"{journal.folder}-{uuid.uuid4().hex[:6]}")
        name = f"{self.run_name}-{uuid.uuid4().hex[:6]}"
        if journal.begin(tracking_uri=address, experiment=self.experiment_name, name=name):
            journal.append("params", values=settings)
            journal.append("tags", values=dict(self.description.tags))
            for dataset in self.description.datasets:
                journal.append("data", **dataset)
            journal.add_files([folder.config] if folder.config.exists() else [])
        else:
            known = journal.tags_and_parameters()
            changed = {f"{RESUMED}{name}": text for name, text in settings.items() if known.get(name) != text}
            journal.append("resumed", tracking_uri=address)
            journal.append("tags", values={"stopped": "", **changed})
        self.recorded = {(e.step, name) for e in journal.entries() if e.kind == "metrics" for name in e.values}
        self.delivery = DeliveryThread(journal, address)
        self.delivery.start()
        self.signals.catch()

    def record(self, engine: Any) -> None:
        """Record the epoch's metrics, unless they were recorded before an interruption."""
        if self.delivery is None or (engine.state.epoch, next(iter(self.report.metrics))) in self.recorded:
            return
        system = _system_metrics() if self.system_metrics else {}
        self.journal.append("metrics", step=engine.state.epoch, values={**self.report.metrics, **system})
        self.delivery.notify()

    def close(self, engine: Any) -> None:
        """Record the artifacts, and that the training has finished."""
        self._close("FINISHED")

    def fail(self, engine: Any, error: BaseException) -> None:
        """Record that the training failed or was killed, and raise the error; a second SIGTERM is ignored meanwhile."""
        self.signals.ignore_more()
        error = self.signals.caught or error
        status = "KILLED" if isinstance(error, KeyboardInterrupt | Terminated) else "FAILED"
        kind = "" if isinstance(error, TrainingStopped) else f"{type(error).__name__}: "
        self._close(status, kind + first_line(error)[:500])
        raise error

    def _close(self, status: str, stopped: str = "") -> None:
        """Record how the training ended, and wait a while until everything has arrived."""
        delivery, self.delivery = self.delivery, None
        if delivery is None:
            return
        with contextlib.ExitStack() as stack:  # last first; each happens, whatever becomes of the others
            stack.callback(self.signals.release)
            stack.callback(self._deliver, delivery, status)
            stack.callback(self.journal.append, "status", status=status)
            if stopped:
                self.journal.append("tags", values={"stopped": stopped})
            self._record_best_and_last()
            run = self.folder
            files = [run.config, run.history, run.cases, run.curves, run.log, *sorted(run.pictures.glob("*"))]
            self.journal.add_files(file for file in files if file.exists())

    def _record_best_and_last(self) -> None:
        """Record Dice, and the deciding metric if it is another one, of the best and the last epoch."""
        if found := best_and_last(self.folder.read_history()):
            for which, epoch in zip(("best", "last"), found, strict=True):
                values = {f"{which}_{name}": score for name, score in scores_of(epoch).items()}
                self.journal.append("metrics", step=int(epoch["epoch"]), values=values)

    def _deliver(self, delivery: DeliveryThread, status: str) -> None:
        """Wait a while until everything has arrived, and say where."""
        if delivery.finish():
            arrived = self.journal.progress(delivery.address)
            where = how_to_look(arrived.address, arrived.experiment_id, arrived.run_id)
            name = self.journal.entries()[0].name  # a resumed run keeps its own
            logger.info(f"Tracked with MLflow as {name} ({status}). To look at it:\n{where}")


class Terminated(SystemExit):
    """SIGTERM, as an exception."""


class _Signals:
    """Turn SIGTERM and SIGINT into exceptions that Ignite's handlers see.

    The exception is kept, since code that it interrupts may swallow it or raise an error of its own.
    """

    def __init__(self) -> None:
        self.caught: BaseException | None = None
        self._before: dict[int, Any] = {}

    def catch(self) -> None:
        """Catch signals from now on; only the main thread can."""
        if threading.current_thread() is threading.main_thread():
            self.caught = None
            self._before = {number: signal.signal(number, self._raise) for number in (signal.SIGTERM, signal.SIGINT)}

    def _raise(self, number: int, frame: FrameType | None) -> None:
        self.caught = KeyboardInterrupt() if number == signal.SIGINT else Terminated(128 + number)
        raise self.caught

    def raise_hidden(self, engine: Any) -> None:
        """Stop a training that went on after a signal."""
        if self.caught is not None:
            raise self.caught

    def ignore_more(self) -> None:
        """Ignore SIGTERM while the run is closed; Ctrl-C still works."""
        if self._before:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def release(self) -> None:
        """Treat signals as before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}


def _system_metrics() -> dict[str, float]:
    """Return the memory and processor time of this process."""
    values = {"system/processor_seconds": time.process_time()}
    with contextlib.suppress(ImportError):  # Windows has no such module
        import resource

        values["system/memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if torch.cuda.is_available():
        values["system/gpu_memory_mb"] = torch.cuda.max_memory_allocated() / 2**20
    return values
