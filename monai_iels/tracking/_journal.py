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

"""The journal of a run: a folder with everything that a tracking server is to know.

A training only ever writes to its journal, so no server can stop it. A journal may come from elsewhere, so nothing in
it may name a file outside its own folder.
"""

from __future__ import annotations

import getpass
import logging
import os
import shutil
import threading
import time
import uuid
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from filelock import FileLock

from monai_iels._files import read_json, write_json
from monai_iels.tracking._addresses import first_address, remember_secrets
from monai_iels.tracking._entries import KINDS, Artifact, Entry, Metrics, Open, Params, Resumed, Status, Tags, from_line

JOURNAL = "journal.jsonl"
logger = logging.getLogger(__name__)

RESUMED = "resumed."  # what the tag of a parameter begins with that a resumed run has changed


@dataclass
class Progress:
    """How much of a journal has arrived at an address.

    Attributes:
        address: where it arrived.
        run_id: the run there.
        experiment_id: the experiment of that run.
        arrived: the numbers of the entries that have arrived.
    """

    address: str
    run_id: str | None = None
    experiment_id: str = ""
    arrived: set[int] = field(default_factory=set)


class Journal:
    """What happened in one run, in order, in a folder of its own.

    Args:
        folder: holds ``journal.jsonl``, the entries; ``delivered``, which of them arrived where; ``files``, copies of
            the artifacts that have not arrived yet; and ``refused.jsonl``, the entries that a server refused for good.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.file = self.folder / JOURNAL
        self.copies = self.folder / "files"
        self._lock = threading.Lock()

    def begin(self, *, tracking_uri: str, experiment: str, name: str, key: str | None = None) -> bool:
        """Open a run; return False if the journal has one already, which then goes on."""
        self.copies.mkdir(parents=True, exist_ok=True)
        if self.entries():
            return False
        run = {"key": key or uuid.uuid4().hex, "experiment": experiment, "name": name, "user": _user()}
        self.append("open", tracking_uri=tracking_uri, **run)
        return True

    def append(self, kind: str, **content: Any) -> None:
        """Add an entry with the present time. If the disk is full, the entry is lost, but the training goes on.

        Args:
            kind: one of the kinds of entries, in lower case, such as ``metrics``.
            content: the fields of such an entry.
        """
        entry = KINDS[kind](time=int(time.time() * 1000), **content)
        try:
            with self._lock:
                self._remove_torn_line()
                _append_line(self.file, entry.to_line())
        except OSError as error:
            logger.warning(f"{self.file} cannot be written to ({error}); '{kind}' is not tracked.")

    def _remove_torn_line(self) -> None:
        """Remove a last line that a kill has cut off, so that the next line does not continue it."""
        content = self.file.read_bytes() if self.file.exists() else b""
        if content and not content.endswith(b"\n"):
            os.truncate(self.file, content.rfind(b"\n") + 1)

    def add_file(self, file: str | os.PathLike[str], place: str = "") -> None:
        """Add a copy of a file as an artifact in the folder ``place``."""
        source = Path(file)
        target = self.copies / f"{len(self.entries())}-{source.name}"
        try:
            shutil.copy(source, target)
        except OSError as error:
            logger.warning(f"{source} cannot be copied to {target.parent} ({error}); it is not tracked.")
            return
        self.append("artifact", file=target.name, name=source.name, place=place)

    def entries(self) -> list[Entry]:
        """Return all complete entries; a last line that a kill has cut off is ignored.

        Raises:
            ValueError: if a line is not an entry.
        """
        if not self.file.exists():
            return []
        found = []
        lines = self.file.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
        for number, line in enumerate(lines, 1):
            if not line:
                continue
            try:
                found.append(from_line(line, is_first=number == 1))
            except ValueError as error:
                raise ValueError(f"{self.file}, line {number} {error}") from None
        return found

    def tags_and_parameters(self) -> dict[str, Any]:
        """Return all tags and parameters; those that a resumed run has changed replace the first ones."""
        tags: dict[str, Any] = {}
        parameters: dict[str, Any] = {}
        for entry in self.entries():
            if isinstance(entry, Params):
                parameters |= entry.values
            elif isinstance(entry, Tags):
                for name, value in entry.values.items():
                    known = parameters if name.startswith(RESUMED) else tags
                    known[name.removeprefix(RESUMED)] = value
        return {**tags, **parameters}

    def address(self, uri: str | None = None) -> str:
        """Return where to deliver: ``uri``, ``MLFLOW_TRACKING_URI``, or the address that the training was last given.

        It is empty if there is no training.
        """
        return first_address(uri, self.own_address())

    def own_address(self) -> str:
        """Return the address that the training was last given; it is empty if there is no training."""
        given = [entry.tracking_uri for entry in self.entries() if isinstance(entry, Open | Resumed)]
        return next((uri for uri in reversed(given) if uri), "")

    def has_metrics(self, step: int, name: str) -> bool:
        """Return whether a metric of this step is recorded."""
        metrics = (entry for entry in self.entries() if isinstance(entry, Metrics) and entry.step == step)
        return any(name in entry.values for entry in metrics)

    def status(self, since: float = 0.0) -> str | None:
        """Return how the run ended; None if it is running, or ended before the time ``since`` (seconds)."""
        turns = [e for e in self.entries() if isinstance(e, Status | Resumed) and e.time >= 1000 * since]
        return turns[-1].status if turns and isinstance(turns[-1], Status) else None

    def progress(self, address: str | None = None) -> Progress:
        """Return what has arrived at an address, by default the journal's own."""
        fresh = Progress(address or remember_secrets(self.own_address()))
        try:
            saved = Progress(**read_json(self.folder / "delivered"))
            saved.arrived = {int(number) for number in saved.arrived}
        except (ValueError, TypeError):  # nothing yet, or unreadable: an entry that is sent twice counts once
            return fresh
        return saved if saved.address == fresh.address else fresh

    def save_progress(self, progress: Progress) -> None:
        """Save what has arrived."""
        content = {**asdict(progress), "arrived": sorted(progress.arrived)}
        write_json(content, self.folder / "delivered", indent=None)

    def pending(self, address: str | None = None) -> list[int]:
        """Return the numbers of the entries that have not arrived at an address, by default where to deliver."""
        arrived = self.progress(address or self.address()).arrived
        return [number for number in range(len(self.entries())) if number not in arrived]

    def set_aside(self, entry: Entry, reason: str) -> None:
        """Note an entry that a server will never accept in ``refused.jsonl``."""
        file = self.folder / "refused.jsonl"
        logger.warning(f"The tracking server refused {entry.kind} ({reason[:200]}); see {file}.")
        _append_line(file, entry.to_line(reason=reason))

    def copy_of(self, artifact: Artifact) -> Path:
        """Return where the copy of an artifact is, or was before it was delivered.

        Raises:
            ValueError: if the entry leads out of the journal's folder, or does not name a file.
        """
        for name in (artifact.file, artifact.name, *PurePosixPath(artifact.place).parts):
            if not _is_bare(name):
                raise ValueError(f"'file', 'name' and each part of 'place' must be a plain name, got '{name}'")
        copy = self.copies / artifact.file
        if copy.is_symlink() or (copy.exists() and not copy.is_file()):
            raise ValueError(f"{copy} must be a regular file, not a link or a folder")
        return copy

    def refuse_links(self) -> None:
        """Refuse links in the journal's folder: they may lead to any file.

        Raises:
            ValueError: if a file of the journal is a link.
        """
        for path in self.folder.iterdir():
            if path.is_symlink():
                raise ValueError(f"{path} is a link, and may lead to any file; remove it, or replace it by its target")

    def delivery_lock(self) -> FileLock:
        """Return the lock that keeps other threads and processes from delivering the same journal."""
        return FileLock(self.folder / ".delivery.lock")


def _user() -> str:
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):  # in a container, a user may have no name
        return ""


def _is_bare(name: str) -> bool:
    """Return whether this is a name on every system, without a folder or a drive."""
    return name not in ("", ".", "..") and PurePosixPath(name).name == PureWindowsPath(name).name == name


def _append_line(file: Path, line: str) -> None:
    with file.open("a", encoding="utf-8") as stream:
        stream.write(line)
