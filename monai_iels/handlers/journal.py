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

"""A journal on disk of everything that a tracking server is to know, and the courier that delivers it.

Training only ever writes to the journal, which cannot fail because of a server. A thread delivers the entries in order,
waits where the server does not answer, and notes how far it came. Each entry may be sent twice and still counts once: a
run is found again by its tag, a metric by its time stamp, and parameters, tags and files replace themselves. What a
server refuses for good is set aside, so that it does not hold up the rest.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from monai_iels.errors import first_line
from monai_iels.handlers.training import complete_file

__all__ = ["Courier", "Journal", "deliver"]

logger = logging.getLogger(__name__)

_TAG = "monai_iels.run"
_LONGEST_PAUSE = 30.0
_FOR_GOOD = "INVALID_PARAMETER_VALUE"


class Journal:
    """What happened in one run, in order, in a folder of its own.

    Args:
        folder: has ``journal.jsonl``, the entries; ``delivered``, how many of them arrived; ``files``, copies of the
            artifacts that did not arrive yet, as they were when they were recorded; and, where the server refused
            entries for good, those in ``refused.jsonl``.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.file = self.folder / "journal.jsonl"
        self._lock = threading.Lock()

    def begin(self, **opening: Any) -> None:
        """Write the first entry, unless this journal goes on with a run that was begun before."""
        (self.folder / "files").mkdir(parents=True, exist_ok=True)
        if not self.entries():
            self.append("open", **opening)

    def append(self, kind: str, **content: Any) -> None:
        """Add an entry with the present time; a disk that is full costs the entry, not the training."""
        entry = {"kind": kind, "time": int(time.time() * 1000), **content}
        try:
            with self._lock:
                self._cut_torn_line()
                _append_line(self.file, entry)
        except OSError as error:
            logger.warning(f"{self.file}: expected to write to it, found '{error}'. This is not tracked.")

    def _cut_torn_line(self) -> None:
        """Remove a last line that a kill has cut off, so that the next one is not glued to it."""
        if not self.file.exists():
            return
        with self.file.open("r+b") as stream:
            if not stream.seek(0, os.SEEK_END):
                return
            stream.seek(-1, os.SEEK_END)
            if stream.read(1) != b"\n":
                stream.seek(0)
                stream.truncate(stream.read().rfind(b"\n") + 1)

    def keep(self, file: str | os.PathLike[str], place: str = "") -> None:
        """Add a file as an artifact in the folder ``place``; it is copied, since it may change or go."""
        source = Path(file)
        target = self.folder / "files" / f"{len(self.entries())}-{source.name}"
        try:
            shutil.copy(source, target)
        except OSError as error:
            logger.warning(f"{source}: expected to copy it to {target.parent}, found '{error}'. It is not tracked.")
            return
        self.append("artifact", file=target.name, name=source.name, place=place)

    def entries(self) -> list[dict[str, Any]]:
        """Return all entries that are complete; a last line that was cut off by a kill is none."""
        if not self.file.exists():
            return []
        return [json.loads(line) for line in self.file.read_text(encoding="utf-8").split("\n")[:-1] if line]

    def has_metrics(self, step: int) -> bool:
        """Return whether metrics of this step are recorded."""
        return any(entry["kind"] == "metrics" and entry["step"] == step for entry in self.entries())

    def status(self) -> str | None:
        """Return how the run ended, if it did and was not resumed."""
        ends = [entry.get("status") for entry in self.entries() if entry["kind"] in ("status", "resumed")]
        return ends[-1] if ends else None

    def delivered(self) -> dict[str, Any]:
        """Return how many entries arrived, and as which run."""
        try:
            return json.loads((self.folder / "delivered").read_text(encoding="utf-8"))
        except (OSError, ValueError):  # nothing yet, or unreadable: what is sent twice counts once
            return {"count": 0, "run_id": None}

    def mark(self, count: int, run_id: str | None) -> None:
        """Note that the first ``count`` entries arrived."""
        with complete_file(self.folder / "delivered") as part:
            part.write_text(json.dumps({"count": count, "run_id": run_id}), encoding="utf-8")

    def refuse(self, entry: dict[str, Any], reason: str) -> None:
        """Set an entry aside that a server will never take."""
        logger.warning(
            f"The tracking server refused {entry['kind']} ('{reason[:200]}'): {self.folder / 'refused.jsonl'}"
        )
        _append_line(self.folder / "refused.jsonl", {**entry, "reason": reason})

    def forget_file(self, entry: dict[str, Any]) -> None:
        """Remove the copy of an artifact that arrived."""
        if entry["kind"] == "artifact":
            (self.folder / "files" / entry["file"]).unlink(missing_ok=True)

    def delivery(self) -> FileLock:
        """Return the lock that keeps other threads and processes from delivering the same journal meanwhile."""
        return FileLock(self.folder / ".delivery.lock")

    def pending(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the number and the content of each entry that did not arrive yet."""
        count = self.delivered()["count"]
        yield from list(enumerate(self.entries()))[count:]


def _append_line(file: Path, content: dict[str, Any]) -> None:
    with file.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(content) + "\n")


def deliver(journal: Journal, stop: threading.Event | None = None) -> str | None:
    """Send what is pending, in order, and return the run's id.

    Raises:
        Exception: whatever MLflow raises where the server does not answer; the rest stays pending.
    """
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    entries = journal.entries()
    if not entries:
        return None
    with journal.delivery(), _impatient():
        run_id = journal.delivered()["run_id"]
        client = MlflowClient(tracking_uri=entries[0]["tracking_uri"])
        for number, entry in journal.pending():
            if stop is not None and stop.is_set():
                break
            try:
                run_id = _send(client, journal, run_id, entry)
            except MlflowException as error:
                if entry["kind"] == "open" or error.error_code != _FOR_GOOD:
                    raise
                journal.refuse(entry, first_line(error))
            else:
                journal.forget_file(entry)
            journal.mark(number + 1, run_id)
    return run_id


@contextmanager
def _impatient() -> Iterator[None]:
    """Let one request fail soon, since the courier tries again by itself; MLflow reads that from the environment."""
    chosen = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
    added = [name for name in chosen if name not in os.environ]
    os.environ.update({name: chosen[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _send(client: Any, journal: Journal, run_id: str | None, entry: dict[str, Any]) -> str | None:
    """Send one entry; the kinds are few, and each may arrive twice without harm."""
    from mlflow.entities import Metric, Param, RunTag

    kind = entry["kind"]
    if kind == "open":
        return _open_run(client, entry)
    if kind == "metrics":
        metrics = [Metric(key, value, entry["time"], entry["step"]) for key, value in entry["values"].items()]
        client.log_batch(run_id, metrics=metrics)
    elif kind == "params":
        params = [Param(key, str(value)[:6000]) for key, value in entry["values"].items()]
        client.log_batch(run_id, params=params)
    elif kind == "tags":
        client.log_batch(run_id, tags=[RunTag(key, str(value)[:5000]) for key, value in entry["values"].items()])
    elif kind == "artifact":
        copy = journal.folder / "files" / entry["file"]
        if not copy.exists():
            return run_id  # it arrived before, and was removed
        named = copy.with_name(".sending") / entry["name"]
        named.parent.mkdir(exist_ok=True)
        shutil.copy(copy, named)
        client.log_artifact(run_id, str(named), entry["place"] or None)
        named.unlink()
    elif kind == "status":
        client.set_terminated(run_id, entry["status"], end_time=entry["time"])
    elif kind == "resumed":
        client.update_run(run_id, "RUNNING")
    return run_id


def _open_run(client: Any, entry: dict[str, Any]) -> str:
    """Create the run, or find the one that an earlier attempt created."""
    from mlflow.exceptions import MlflowException

    experiment = client.get_experiment_by_name(entry["experiment"])
    if experiment is None:
        try:
            client.create_experiment(entry["experiment"], artifact_location=entry["artifact_location"])
        except MlflowException as error:
            if "already exists" not in str(error).lower():
                raise  # otherwise another training was faster
        experiment = client.get_experiment_by_name(entry["experiment"])
    found = client.search_runs(
        [experiment.experiment_id], f"tags.`{_TAG}` = '{entry['key']}'", order_by=["attributes.start_time ASC"]
    )
    if found:
        return found[0].info.run_id
    tags = {_TAG: entry["key"], "mlflow.source.type": "LOCAL"}
    run = client.create_run(experiment.experiment_id, entry["time"], tags=tags, run_name=entry["name"])
    return run.info.run_id


class Courier(threading.Thread):
    """Deliver a journal in the background for as long as a training runs.

    Args:
        journal: what to deliver.
    """

    def __init__(self, journal: Journal) -> None:
        super().__init__(name="tracking", daemon=True)
        self.journal = journal
        self.run_id = journal.delivered()["run_id"]
        self._news = threading.Event()
        self._stop_now = threading.Event()
        self._closing = False
        self._warned = False

    def notify(self) -> None:
        """Say that there is something new to deliver."""
        self._news.set()

    def run(self) -> None:
        """Deliver, and try again after a pause where that fails."""
        pause = 1.0
        while not self._stop_now.is_set():
            self._news.wait(timeout=pause if self._warned else None)
            self._news.clear()
            try:
                self.run_id = deliver(self.journal, self._stop_now)
            except Exception as error:
                self._complain(error)
                pause = min(2 * pause, _LONGEST_PAUSE)
                self._stop_now.wait(0.5 if self._closing else 0.0)
                continue
            if self._warned:
                logger.warning("The tracking server answers again; everything recorded was delivered.")
            self._warned, pause = False, 1.0

    def _complain(self, error: Exception) -> None:
        if not self._warned:
            logger.warning(
                f"Tracking is not delivered for now ('{first_line(error)[:200]}'). The training goes on, and "
                f"everything is kept in {self.journal.folder}."
            )
        self._warned = True

    def close(self, patience: float = 20.0) -> bool:
        """Wait for what is pending, but not for ever; return whether all arrived."""
        self._closing = True
        end = time.monotonic() + (5.0 if self._warned else patience)
        while any(self.journal.pending()) and time.monotonic() < end:
            self.notify()
            time.sleep(0.05)
        done = not any(self.journal.pending())
        self._stop_now.set()
        self._news.set()
        if done:
            self.join(5.0)
        return done
