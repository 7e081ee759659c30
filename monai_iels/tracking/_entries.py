# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The entries of a journal: what each kind says, and its form as a line of JSON. They know no tracker."""

from __future__ import annotations

import json
from contextlib import suppress
from types import SimpleNamespace

FIELDS = {
    "open": ("key", "tracking_uri", "experiment", "name", "user"),  # the run begins; a server finds it by its key
    "resumed": ("tracking_uri",),  # it goes on, perhaps at another address
    "status": ("status",),  # it ends
    "params": ("values",),  # settings that never change
    "tags": ("values",),  # descriptions that may change
    "metrics": ("values", "step"),
    "data": ("name", "digest", "source", "context", "cases"),  # cases that the run used, and for what
    "artifact": ("file", "name", "place"),  # a file's copy in the journal, its own name, its folder on the server
}
"""What each kind of entry says, beside its time in milliseconds since 1970."""

_OPTIONAL = {"tracking_uri": "", "user": ""}
_STATUSES = ("RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED")
_TYPES: dict[str, type] = {"time": int, "step": int, "cases": int, "values": dict}  # all other fields are text


class Entry(SimpleNamespace):
    """Something that a tracking server is to know: its ``kind``, its ``time``, and the fields of its kind."""

    def to_line(self, **more: str) -> str:
        """Return the entry as a line of JSON."""
        return json.dumps({**vars(self), **more}) + "\n"


def from_line(line: str, is_first: bool) -> Entry:
    """Read an entry from a line of JSON.

    Raises:
        ValueError: if it is not an entry, or opens a run that is already open.
    """
    with suppress(ValueError, KeyError, TypeError):
        content = _OPTIONAL | json.loads(line)
        kind = content["kind"]
        known = {name: content[name] for name in ("time", *FIELDS[kind])}
        sound = all(isinstance(value, _TYPES.get(name, str)) for name, value in known.items())
        sound &= known.get("status", "FINISHED") in _STATUSES
        if sound and (is_first or kind != "open"):
            return Entry(kind=kind, **known)
    raise ValueError(f"must be an entry of a training's journal, got '{line[:80]}'")
