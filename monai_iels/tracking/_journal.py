# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PureWindowsPath
from typing import Any

from monai_iels._files import read_json, write_json
from monai_iels.tracking._addresses import first_address
from monai_iels.tracking._entries import Entry, from_line

JOURNAL = "journal.jsonl"
logger = logging.getLogger(__name__)

RESUMED = "resumed."  # what the tag of a parameter begins with that a resumed run has changed


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
    run_id: str = ""
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
        self._read: list[Entry] = []
        self._inode, self._end = 0, 0  # of the file that they were read from, and where reading goes on

    def begin(self, *, tracking_uri: str, experiment: str, name: str, key: str | None = None) -> bool:
        """Open a run; return False if the journal has one already, which then goes on."""
        self.copies.mkdir(parents=True, exist_ok=True)
        if self.entries():
            return False
        run = {"key": key or uuid.uuid4().hex, "tracking_uri": tracking_uri, "experiment": experiment, "name": name}
        self.append("open", **run, user=_user())
        return True

    def append(self, kind: str, **content: Any) -> None:
        """Add an entry with the present time. If the disk is full, the entry is lost, but the training goes on.

        Args:
            kind: one of the kinds of entries, such as ``metrics``.
            content: the fields of such an entry.
        """
        entry = Entry(kind=kind, time=int(time.time() * 1000), **content)
        try:
            with self._lock, self.file.open("a+b") as stream:
                stream.seek(max(0, stream.tell() - 1))
                if stream.read() not in (b"", b"\n"):  # a kill has cut off the last line
                    stream.seek(0)
                    stream.truncate(stream.read().rfind(b"\n") + 1)
                stream.write(entry.to_line().encode())
        except OSError as error:
            logger.warning(f"{self.file} cannot be written to ({error}); '{kind}' is not tracked.")

    def add_files(self, files: Iterable[Path], place: str = "") -> None:
        """Add copies of files as artifacts in the folder ``place``."""
        for file in files:
            copy = self.copies / f"{len(self.entries())}-{file.name}"
            try:
                shutil.copy(file, copy)
                self.append("artifact", file=copy.name, name=file.name, place=place)
            except OSError as error:
                logger.warning(f"{file} cannot be copied to {self.copies} ({error}); it is not tracked.")

    def entries(self) -> list[Entry]:
        """Return all complete entries, of which only new ones are read; a last line that is cut off is ignored.

        Raises:
            ValueError: if a line is not an entry.
        """
        if not self.file.exists():
            return []
        with self._lock, self.file.open("rb") as stream:
            status = os.fstat(stream.fileno())
            if status.st_ino != self._inode or status.st_size < self._end:  # another file
                self._read, self._inode, self._end = [], status.st_ino, 0
            stream.seek(self._end)
            for line in stream:
                if not line.endswith(b"\n"):
                    break
                try:
                    entry = from_line(line.decode("utf-8", "replace").strip(), is_first=not self._read)
                except ValueError as error:
                    raise ValueError(f"{self.file}, line {len(self._read) + 1} {error}") from None
                self._read.append(entry)
                self._end += len(line)
            return list(self._read)

    def tags_and_parameters(self) -> dict[str, Any]:
        """Return all tags and parameters; those that a resumed run has changed replace the first ones."""
        tags: dict[str, Any] = {}
        parameters: dict[str, Any] = {}
        for entry in self.entries():
            if entry.kind in ("params", "tags"):
                for name, value in entry.values.items():
                    known = parameters if entry.kind == "params" or name.startswith(RESUMED) else tags
                    known[name.removeprefix(RESUMED)] = value
        return {**tags, **parameters}

    def address(self, uri: str | None = None) -> str:
        """Return where to deliver: ``uri``, ``MLFLOW_TRACKING_URI``, or the address that the training was last given.

        It is empty if there is no training.
        """
        return first_address(uri, self.own_address())

    def own_address(self) -> str:
        """Return the address that the training was last given; it is empty if there is no training."""
        given = [entry.tracking_uri for entry in self.entries() if entry.kind in ("open", "resumed")]
        return next(filter(None, reversed(given)), "")

    def status(self, since: float = 0.0) -> str | None:
        """Return how the run ended; None if it is running, or ended before the time ``since`` (seconds)."""
        turns = [e for e in self.entries() if e.kind in ("status", "resumed") and e.time >= 1000 * since]
        return getattr(turns[-1], "status", None) if turns else None

    def progress(self, address: str | None = None) -> Progress:
        """Return what has arrived at an address, by default the journal's own."""
        fresh = Progress(address or self.own_address())
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
        with file.open("a", encoding="utf-8") as stream:
            stream.write(entry.to_line(reason=reason))

    def copy_of(self, artifact: Entry) -> Path:
        """Return where the copy of an artifact is, or was before it was delivered.

        Raises:
            ValueError: if the entry leads out of the journal's folder, or does not name a file.
        """
        for name in (artifact.file, artifact.name, *(artifact.place.split("/") if artifact.place else ())):
            if name == ".." or not name or PureWindowsPath(name).name != name:  # a slash parts names on Windows, too
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
        if links := [path for path in self.folder.iterdir() if path.is_symlink()]:
            raise ValueError(f"{links[0]} is a link, and may lead to any file; remove it, or replace it by its target")


def _user() -> str:
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):  # in a container, a user may have no name
        return ""
