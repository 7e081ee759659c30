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

"""The entries of a journal: one class per kind, and its form as a line of JSON. They know no tracker."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import Any

_STATUSES = ("RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED")
_TYPES: dict[str, type] = {"time": int, "step": int, "cases": int, "values": dict}  # all other fields are text


@dataclass(frozen=True)
class Entry:
    """Something that a tracking server is to know, and when it happened (milliseconds since 1970)."""

    time: int

    @property
    def kind(self) -> str:
        """The name of the entry's class, as it stands in the journal."""
        return type(self).__name__.lower()

    def to_line(self, **more: str) -> str:
        """Return the entry as a line of JSON."""
        return json.dumps({"kind": self.kind, **asdict(self), **more}) + "\n"


@dataclass(frozen=True)
class Open(Entry):
    """The run begins. It is found again on a server by its ``key``."""

    key: str
    tracking_uri: str
    experiment: str
    name: str
    user: str = ""


@dataclass(frozen=True)
class Resumed(Entry):
    """The run goes on, perhaps at another address."""

    tracking_uri: str = ""


@dataclass(frozen=True)
class Status(Entry):
    """The run ends."""

    status: str


@dataclass(frozen=True)
class Values(Entry):
    """Named values. A server may refuse some of them."""

    values: dict[str, Any]


@dataclass(frozen=True)
class Params(Values):
    """Settings that never change."""


@dataclass(frozen=True)
class Tags(Values):
    """Descriptions that may change."""


@dataclass(frozen=True)
class Metrics(Values):
    """Numbers of one step."""

    step: int


@dataclass(frozen=True)
class Model(Metrics):
    """Weights that stay in a file of the run's folder: of which step, and with which metrics."""

    name: str
    weights: str


@dataclass(frozen=True)
class Data(Entry):
    """Cases that the run used: of which data, from where, and for what."""

    name: str
    digest: str
    source: str
    context: str
    cases: int


@dataclass(frozen=True)
class Artifact(Entry):
    """A file: its copy in the journal's folder, its own name, and its folder on the server."""

    file: str
    name: str
    place: str


KINDS = {kind.__name__.lower(): kind for kind in (Open, Resumed, Status, Metrics, Params, Tags, Data, Model, Artifact)}


def from_line(line: str, is_first: bool) -> Entry:
    """Read an entry from a line of JSON.

    Raises:
        ValueError: if it is not an entry, or opens a run that is already open.
    """
    with suppress(ValueError, KeyError, TypeError):
        content = json.loads(line)
        its_class = KINDS[content["kind"]]
        known = {field.name: content[field.name] for field in fields(its_class) if field.name in content}
        sound = all(isinstance(value, _TYPES.get(name, str)) for name, value in known.items())
        sound &= known.get("status", "FINISHED") in _STATUSES
        if sound and (is_first or its_class is not Open):
            return its_class(**known)
    raise ValueError(f"must be an entry of a training's journal, got '{line[:80]}'")
