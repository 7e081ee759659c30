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
files last, waits where the server does not answer, and notes how far it came. Each entry may be sent twice and still
counts once: a run is found again by its tag, a metric by its time stamp, and parameters, tags and files replace
themselves. What a server refuses for good is set aside, so that it does not hold up the rest. A journal may come from
elsewhere, so nothing in it is trusted to name a file outside its own folder.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from filelock import FileLock

from monai_iels.errors import first_line
from monai_iels.handlers.addresses import artifact_location, default_tracking_uri, environment, remember, signed_in
from monai_iels.handlers.training import complete_file

__all__ = ["Courier", "Journal", "deliver"]

logger = logging.getLogger(__name__)

_TAG = "monai_iels.run"
_LONGEST_PAUSE = 30.0
_FOR_GOOD = "INVALID_PARAMETER_VALUE"
_KINDS: dict[str, dict[str, type]] = {  # what an entry of each kind must have
    "open": {"key": str, "tracking_uri": str, "experiment": str, "name": str},
    "metrics": {"step": int, "values": dict},
    "params": {"values": dict},
    "tags": {"values": dict},
    "artifact": {"file": str, "name": str, "place": str},
    "status": {"status": str},
    "resumed": {},
}


class Journal:
    """What happened in one run, in order, in a folder of its own.

    Args:
        folder: has ``journal.jsonl``, the entries; ``delivered``, which of them arrived where; ``files``, copies of
            the artifacts that did not arrive yet, as they were when they were recorded; and, where entries were
            refused for good, those in ``refused.jsonl``.
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
        lines = self.file.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
        return [_checked(f"{self.file}, line {number}", line, number) for number, line in enumerate(lines, 1) if line]

    def address(self) -> str:
        """Return where to deliver: ``MLFLOW_TRACKING_URI``, or the address that the training was last given."""
        return default_tracking_uri(self.folder.parent, self._own_address())

    def _own_address(self) -> str:
        """Return the last address in the journal; a resumed training may have been given another one."""
        return next((str(e["tracking_uri"]) for e in reversed(self.entries()) if "tracking_uri" in e), "")

    def has_metrics(self, step: int) -> bool:
        """Return whether metrics of this step are recorded."""
        return any(entry["kind"] == "metrics" and entry["step"] == step for entry in self.entries())

    def status(self, since: float = 0.0) -> str | None:
        """Return how the run ended, if it did after a point in time (seconds) and was not resumed."""
        ends = [
            entry.get("status")
            for entry in self.entries()
            if entry["kind"] in ("status", "resumed") and entry["time"] >= 1000 * since
        ]
        return ends[-1] if ends else None

    def delivered(self, address: str | None = None) -> dict[str, Any]:
        """Return what arrived at an address, by default the journal's own.

        Returns:
            ``run_id``; ``count``, how many entries were dealt with; and ``waiting``, the numbers of those artifacts
            among them that did not arrive yet.
        """
        own = remember(self._own_address())
        fresh: dict[str, Any] = {"address": address or own, "run_id": None, "count": 0, "waiting": []}
        try:
            found = json.loads((self.folder / "delivered").read_text(encoding="utf-8"))
            mark = {key: found.get(key, value) for key, value in {**fresh, "address": own}.items()}
        except (OSError, ValueError, AttributeError):  # nothing yet, or unreadable: what is sent twice counts once
            return fresh
        sound = isinstance(mark["count"], int) and isinstance(mark["waiting"], list)
        return mark if sound and mark["address"] == fresh["address"] else fresh

    def mark(self, count: int, run_id: str | None, address: str | None = None, waiting: Sequence[int] = ()) -> None:
        """Note that the first ``count`` entries arrived at an address, but for the artifacts that wait."""
        content = {"count": count, "run_id": run_id, "waiting": list(waiting)}
        content["address"] = address or remember(self._own_address())
        with complete_file(self.folder / "delivered") as part:
            part.write_text(json.dumps(content), encoding="utf-8")

    def refuse(self, entry: dict[str, Any], reason: str) -> None:
        """Set an entry aside that will never be taken."""
        logger.warning(f"Tracking: refused {entry['kind']} ('{reason[:200]}'), see {self.folder / 'refused.jsonl'}")
        _append_line(self.folder / "refused.jsonl", {**entry, "reason": reason})

    def copy_of(self, entry: dict[str, Any]) -> Path:
        """Return where the copy of an artifact is, which may have been delivered and removed.

        Raises:
            ValueError: if the entry leads out of the journal's folder, or names no file.
        """
        for key in ("file", "name"):
            if not _is_bare(entry[key]):
                raise ValueError(f"'{key}' must be a file's name without a folder, got '{entry[key]}'")
        place = PurePosixPath(entry["place"])
        if not all(_is_bare(part) for part in place.parts):
            raise ValueError(f"'place' must be a relative folder, got '{entry['place']}'")
        copy = self.folder / "files" / entry["file"]
        if copy.is_symlink() or (copy.exists() and not copy.is_file()):
            raise ValueError(f"{copy} must be a regular file, not a link or a folder")
        return copy

    def refuse_links(self) -> None:
        """Refuse a folder that would have other files read or written.

        Raises:
            ValueError: if a file of the journal is a link.
        """
        for path in self.folder.iterdir():
            if path.is_symlink():
                raise ValueError(f"{path} is a link, and may lead to any file: remove it, or replace it by its target")

    def delivery(self) -> FileLock:
        """Return the lock that keeps other threads and processes from delivering the same journal meanwhile."""
        return FileLock(self.folder / ".delivery.lock")

    def pending(self, address: str | None = None) -> list[int]:
        """Return the numbers of the entries that did not arrive yet at an address, by default where to deliver."""
        entries = self.entries()
        if not entries:
            return []
        mark = self.delivered(address or self.address())
        return [*mark["waiting"], *range(mark["count"], len(entries))]


def _is_bare(name: str) -> bool:
    """Return whether this is a name on every system, without a folder or a drive."""
    return name not in ("", ".", "..") and PurePosixPath(name).name == PureWindowsPath(name).name == name


def _checked(place: str, line: str, number: int) -> dict[str, Any]:
    """Return an entry of a journal.

    Raises:
        ValueError: if it is none.
    """
    with contextlib.suppress(ValueError, KeyError, TypeError):
        entry = json.loads(line)
        wanted = {"time": int, **_KINDS[entry["kind"]]}
        in_order = entry["kind"] != "open" or number == 1
        in_order &= entry.get("status", "FINISHED") in ("RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED")
        if in_order and all(isinstance(entry[key], kind) for key, kind in wanted.items()):
            return entry
    raise ValueError(f"{place} must be an entry of a training's journal, got '{line[:80]}'")


def _append_line(file: Path, content: dict[str, Any]) -> None:
    with file.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(content) + "\n")


def deliver(journal: Journal, uri: str | None = None, stop: threading.Event | None = None) -> str | None:
    """Send what is pending: in order, files last, so that a full or broken store for files hides no numbers.

    Args:
        journal: what to send.
        uri: where to, by default ``MLFLOW_TRACKING_URI`` or the journal's own address.
        stop: ends the delivery early.

    Returns:
        the run's id.

    Raises:
        Exception: whatever MLflow raises where the server does not answer; the rest stays pending.
        ValueError: if this is no journal.
    """
    from mlflow import MlflowClient

    entries = journal.entries()
    if not entries:
        return None
    if entries[0]["kind"] != "open":
        raise ValueError(f"{journal.file} must begin with a run, got '{entries[0]['kind']}'")
    journal.refuse_links()
    address = remember(uri) if uri else journal.address()
    with journal.delivery(), _impatient(), signed_in(address) as reachable:
        client = MlflowClient(tracking_uri=reachable)
        return _Delivery(client, journal, address, stop or threading.Event()).send()


class _Delivery:
    """Send the entries of a journal to one address, and note after each what arrived."""

    def __init__(self, client: Any, journal: Journal, address: str, stop: threading.Event) -> None:
        self.client = client
        self.journal = journal
        self.entries = journal.entries()
        self.stop = stop
        self.mark = journal.delivered(address)
        kinds = {number: entry["kind"] for number, entry in enumerate(self.entries)}
        self.mark["waiting"] = [number for number in self.mark["waiting"] if kinds.get(number) == "artifact"]
        self.gone: list[str] = []

    def send(self) -> str | None:
        if not self._has_run():
            self.mark.update(run_id=None, count=0, waiting=[])
        for number in range(self.mark["count"], len(self.entries)):
            if self.stop.is_set():
                return self.mark["run_id"]
            entry = self.entries[number]
            if entry["kind"] == "artifact":
                self.mark["waiting"].append(number)
            else:
                self._send_entry(entry)
            self.mark["count"] = number + 1
            self.journal.mark(**self.mark)
        self._send_artifacts()
        return self.mark["run_id"]

    def _has_run(self) -> bool:
        """Return whether the run that the mark names is there, and is this journal's."""
        from mlflow.exceptions import MlflowException

        try:
            found = self.mark["run_id"] and self.client.get_run(self.mark["run_id"])
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return False
        return bool(found) and found.data.tags.get(_TAG) == self.entries[0]["key"]

    def _send_entry(self, entry: dict[str, Any]) -> None:
        if entry["kind"] == "open":
            self.mark["run_id"] = _open_run(self.client, entry, self.mark["address"])
            return
        sending = {"status": _end_run, "resumed": _reopen_run}.get(entry["kind"], _log_values)
        try:
            sending(self.client, self.mark["run_id"], entry)
        except Exception as error:
            self._refuse(entry, error)

    def _refuse(self, entry: dict[str, Any], error: Exception) -> None:
        """Set aside what is refused for good: of several values, only those that are refused when sent alone."""
        if getattr(error, "error_code", None) != _FOR_GOOD:
            raise error
        values = entry.get("values", {})
        if len(values) < 2:
            self.journal.refuse(entry, first_line(error))
            return
        for key, value in values.items():
            self._send_entry({**entry, "values": {key: value}})

    def _send_artifacts(self) -> None:
        """Send the files that wait; one that cannot be stored now goes on waiting, and the others are sent."""
        failed: dict[str, Exception] = {}
        for number in list(self.mark["waiting"]):
            if self.stop.is_set():
                return
            try:
                self._send_artifact(number)
            except Exception as error:
                self._ask_server()
                failed[self.entries[number]["name"]] = error
                continue
            self.mark["waiting"].remove(number)
            self.journal.mark(**self.mark)
        if self.gone:
            logger.warning(
                f"{self.journal.folder}: {', '.join(self.gone)} went to another server before and are not kept here; "
                f"run {self.mark['run_id']} lacks them."
            )
        for name, cause in failed.items():
            raise RuntimeError(f"{len(failed)} files could not be stored, {name} because of '{first_line(cause)}'")

    def _ask_server(self) -> None:
        """Fail where it is the server that does not answer; it may close one connection after an error of its own."""
        try:
            self.client.get_run(self.mark["run_id"])
        except Exception:
            self.client.get_run(self.mark["run_id"])

    def _send_artifact(self, number: int) -> None:
        """Send a file, unless a later entry replaces it."""
        entry = self.entries[number]
        try:
            copy = self.journal.copy_of(entry)
        except ValueError as error:
            self.journal.refuse(entry, str(error))
            return
        place = (entry["place"], entry["name"])
        if any((e.get("place"), e.get("name")) == place for e in self.entries[number + 1 :]):
            copy.unlink(missing_ok=True)
        elif copy.exists():
            self._upload(entry, copy)
        elif not self._has_artifact(*place):
            self.gone.append(entry["name"])

    def _upload(self, entry: dict[str, Any], copy: Path) -> None:
        try:
            with tempfile.TemporaryDirectory() as scratch:
                named = shutil.copy(copy, Path(scratch) / entry["name"])
                self.client.log_artifact(self.mark["run_id"], str(named), entry["place"] or None)
        except Exception as error:
            self._refuse(entry, error)
        else:
            copy.unlink()

    def _has_artifact(self, place: str, name: str) -> bool:
        there = self.client.list_artifacts(self.mark["run_id"], place or None)
        return any(PurePosixPath(item.path).name == name for item in there)


def _impatient() -> AbstractContextManager[None]:
    """Let one request fail soon, since the courier tries again by itself; MLflow reads that from the environment."""
    chosen = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
    return environment({name: value for name, value in chosen.items() if name not in os.environ})


def _log_values(client: Any, run_id: str, entry: Mapping[str, Any]) -> None:
    """Send metrics, parameters or tags, which may arrive twice without harm."""
    from mlflow.entities import Metric, Param, RunTag

    make: dict[str, Any] = {
        "metrics": lambda key, value: Metric(key, value, entry["time"], entry["step"]),
        "params": lambda key, value: Param(key, str(value)[:6000]),
        "tags": lambda key, value: RunTag(key, str(value)[:5000]),
    }
    kind = entry["kind"]
    client.log_batch(run_id, **{kind: [make[kind](key, value) for key, value in entry["values"].items()]})


def _end_run(client: Any, run_id: str, entry: Mapping[str, Any]) -> None:
    client.set_terminated(run_id, entry["status"], end_time=entry["time"])


def _reopen_run(client: Any, run_id: str, entry: Mapping[str, Any]) -> None:
    client.update_run(run_id, "RUNNING")


def _open_run(client: Any, entry: dict[str, Any], address: str) -> str:
    """Create the run, or find the one that an earlier attempt created."""
    from mlflow.exceptions import MlflowException

    experiment = client.get_experiment_by_name(entry["experiment"])
    if experiment is None:
        try:
            client.create_experiment(entry["experiment"], artifact_location=artifact_location(address))
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
        address: where to, by default the journal's own address.
    """

    def __init__(self, journal: Journal, address: str | None = None) -> None:
        super().__init__(name="tracking", daemon=True)
        self.journal = journal
        self.address = address or journal.address()
        self.run_id = journal.delivered(self.address)["run_id"]
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
                self.run_id = deliver(self.journal, self.address, self._stop_now)
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
        """Wait for what is pending for as long as some of it arrives; return whether all did.

        Args:
            patience: how many seconds without progress to wait; less where the server did not answer just before.
        """
        self._closing = True
        left, moved = self._left(), time.monotonic()
        wait = min(5.0, patience) if self._warned else patience
        while left and time.monotonic() - moved < wait:
            self.notify()
            time.sleep(0.05)
            before, left = left, self._left()
            if left < before:
                moved, wait = time.monotonic(), patience
        self._stop_now.set()
        self._news.set()
        if not left:
            self.join(5.0)
        return not left

    def _left(self) -> int:
        return len(self.journal.pending(self.address))
