# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Send a journal to MLflow: the one module of this room that knows how.

Entries are sent in order, files last, so that a full or broken store for files hides no numbers. Each entry may be sent
twice and still counts once: a run is found again by its tag, a metric by its time stamp, and parameters, tags and files
replace themselves. An entry that a server refuses for good is set aside and does not hold up the rest, except the one
that opens the run: without a run nothing can be sent, so everything waits.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import shutil
import tempfile
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from typing import Any

from filelock import FileLock
from mlflow import MlflowClient, entities
from mlflow.exceptions import MlflowException

from monai_iels._terminal import first_line, script_command
from monai_iels.tracking._addresses import database_file, environment
from monai_iels.tracking._entries import Entry
from monai_iels.tracking._journal import Journal, Progress

logger = logging.getLogger(__name__)

_TAG = "monai_iels.run"
_LOCAL = "http://127.0.0.1:5000"  # where `mlflow ui` answers
_QUERY = "?workflowType=machine_learning"  # MLflow opens as a tool for chat models


def impatient() -> AbstractContextManager[None]:
    """Let MLflow's requests give up after one try of ten seconds for a while, since the caller tries again.

    MLflow reads this only from the environment (its issues 8584 and 12520 ask for more). Call it in the thread that
    owns the run, never in the one that delivers: a change while another thread reads the environment can break that
    thread. Limits that the user has set stay.
    """
    limits = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
    return environment({name: value for name, value in limits.items() if name not in os.environ})


def deliver(journal: Journal, uri: str | None = None) -> str:
    """Send what is pending.

    Args:
        journal: what to send.
        uri: where to, by default ``MLFLOW_TRACKING_URI`` or the journal's own address.

    Returns:
        The run's id; empty if the journal is.

    Raises:
        ValueError: if this is not a journal.
        Exception: what MLflow raises if the server does not answer, or refuses to open the run. The rest stays pending.
    """
    address = journal.address(uri)
    with impatient():
        return deliver_pending(journal, address, threading.Event())


def deliver_pending(journal: Journal, address: str, stop: threading.Event) -> str:
    """Send what is pending until ``stop`` is set; the caller has entered :func:`impatient`."""
    entries = journal.entries()
    if not entries:
        return ""
    if entries[0].kind != "open":
        raise ValueError(f"{journal.file} must begin with a run, got '{entries[0].kind}'")
    if not address:
        raise ValueError(f"{journal.file} does not say where to deliver; set --tracking_uri")
    journal.refuse_links()
    with FileLock(journal.folder / ".delivery.lock"):  # against other threads and processes
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # its errors are raised, and told, too
        return _Delivery(_connect(address), journal, entries, address, stop).send_pending()


def _connect(address: str) -> MlflowClient:
    """Return a client, which creates an embedded database; no other process may do so at the same moment."""
    file = database_file(address)
    if file is None:
        return MlflowClient(address)
    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(file.with_suffix(".lock")):
        return MlflowClient(address)


def how_to_look(address: str, experiment_id: str, run_id: str = "") -> str:
    """Return the command and the pages of an experiment, and of one of its runs if it is given, one per line."""
    is_server = address.lower().startswith(("http", "databricks"))
    page = f"{(address if is_server else _LOCAL).rstrip('/')}/#/experiments/{experiment_id}/runs"
    lines = [] if is_server else [f"{script_command('mlflow')} ui --backend-store-uri {shlex.quote(address)}"]
    if run_id:
        lines.append(f"{page}/{run_id}{_QUERY} (this run)")
    lines.append(f"{page}{_QUERY} (all runs)")
    return "\n".join(f"  {line}" for line in lines)


class _Delivery:
    """Send the entries of a journal to one address, and note after each what has arrived."""

    def __init__(
        self, client: MlflowClient, journal: Journal, entries: list[Entry], address: str, stop: threading.Event
    ) -> None:
        self.client = client
        self.journal = journal
        self.entries = entries
        self.stop = stop
        self.progress = journal.progress(address)
        self.latest = {(e.place, e.name): e for e in self.entries if e.kind == "artifact"}

    def send_pending(self) -> str:
        """Send what is pending. A file that cannot be stored now stays pending, and the others are sent."""
        if not self._has_run():
            self.progress = Progress(self.progress.address)
        pending = [number for number in range(len(self.entries)) if number not in self.progress.arrived]
        failed: list[str] = []
        for number in sorted(pending, key=lambda number: self.entries[number].kind == "artifact"):
            if self.stop.is_set():
                return self.progress.run_id
            entry = self.entries[number]
            try:
                self._send_or_set_aside(entry)
            except Exception as error:
                if entry.kind != "artifact":
                    raise
                self._check_server()
                failed.append(f"{entry.name} because of '{first_line(error)}'")
            else:
                self.progress.arrived.add(number)
                self.journal.save_progress(self.progress)
        if failed:
            raise RuntimeError(f"{len(failed)} files could not be stored, {failed[0]}")
        return self.progress.run_id

    def _has_run(self) -> bool:
        """Return whether the noted run is on the server and belongs to this journal."""
        try:
            run_id = self.progress.run_id
            return bool(run_id) and self.client.get_run(run_id).data.tags.get(_TAG) == self.entries[0].key
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
        return False

    def _send_or_set_aside(self, entry: Entry) -> None:
        """Send an entry, or set it aside if it is refused for good; of several values only those that are."""
        try:
            getattr(self, f"_send_{entry.kind}")(entry)
        except Exception as error:
            if entry.kind == "open" or getattr(error, "error_code", None) != "INVALID_PARAMETER_VALUE":
                raise
            values = getattr(entry, "values", {})
            if len(values) < 2:
                self.journal.set_aside(entry, first_line(error))
                return
            for key, value in values.items():
                self._send_or_set_aside(Entry(**{**vars(entry), "values": {key: value}}))

    def _check_server(self) -> None:
        """Raise if the server does not answer; it may drop one connection after an error of its own."""
        self._try_twice(self.client.get_run, self.progress.run_id)

    def _try_twice(self, request: Callable[..., Any], *arguments: Any) -> Any:
        """Return the answer to a request that may fail once for a reason that is gone the next moment."""
        try:
            return request(*arguments)
        except Exception:
            if self.stop.is_set():
                raise
            return request(*arguments)

    def _send_open(self, entry: Entry) -> None:
        """Create the run, or find the one that an earlier attempt created."""
        experiment = self._try_twice(self._experiment_id, entry.experiment)  # another training may create it first
        query = f"tags.`{_TAG}` = '{entry.key}'"
        found = self.client.search_runs([experiment], query, order_by=["attributes.start_time ASC"])
        tags = {_TAG: entry.key, "mlflow.source.type": "LOCAL", "mlflow.user": entry.user}
        run = found[0] if found else self.client.create_run(experiment, entry.time, tags, entry.name)
        self.progress.run_id, self.progress.experiment_id = run.info.run_id, experiment

    def _experiment_id(self, name: str) -> str:
        found = self.client.get_experiment_by_name(name)
        if found is not None:
            return found.experiment_id
        file = database_file(self.progress.address)
        artifacts = (file.parent / "mlartifacts").as_uri() if file else None  # a server has its own place
        return self.client.create_experiment(name, artifacts)

    def _send_resumed(self, entry: Entry) -> None:
        self.client.update_run(self.progress.run_id, "RUNNING")

    def _send_status(self, entry: Entry) -> None:
        self.client.set_terminated(self.progress.run_id, entry.status, end_time=entry.time)

    def _send_params(self, entry: Entry) -> None:
        params = [entities.Param(key, str(value)[:6000]) for key, value in entry.values.items()]
        self.client.log_batch(self.progress.run_id, params=params)

    def _send_tags(self, entry: Entry) -> None:
        tags = [entities.RunTag(key, str(value)[:5000]) for key, value in entry.values.items()]
        self.client.log_batch(self.progress.run_id, tags=tags)

    def _send_metrics(self, entry: Entry) -> None:
        metrics = [entities.Metric(key, value, entry.time, entry.step) for key, value in entry.values.items()]
        self.client.log_batch(self.progress.run_id, metrics=metrics)

    def _send_data(self, entry: Entry) -> None:
        source, profile = json.dumps({"uri": entry.source}), json.dumps({"num_rows": entry.cases})
        dataset = entities.Dataset(entry.name, entry.digest, "local", source, profile=profile)
        inputs = [entities.DatasetInput(dataset, [entities.InputTag("mlflow.data.context", entry.context)])]
        # another training may tell of the same data
        self._try_twice(self.client.log_inputs, self.progress.run_id, inputs)

    def _send_artifact(self, entry: Entry) -> None:
        """Send a file, unless a later one replaces it."""
        try:
            copy = self.journal.copy_of(entry)
        except ValueError as error:
            self.journal.set_aside(entry, str(error))
            return
        if entry is self.latest[entry.place, entry.name]:
            self._upload(entry, copy)
        copy.unlink(missing_ok=True)

    def _upload(self, artifact: Entry, copy: Path) -> None:
        run_id, place = self.progress.run_id, artifact.place or None
        if copy.exists():
            with tempfile.TemporaryDirectory() as scratch:
                self.client.log_artifact(run_id, shutil.copy(copy, Path(scratch) / artifact.name), place)
        elif all(PurePosixPath(item.path).name != artifact.name for item in self.client.list_artifacts(run_id, place)):
            logger.warning(
                f"{artifact.name} went to another server before and is not kept here; run {run_id} lacks it."
            )
