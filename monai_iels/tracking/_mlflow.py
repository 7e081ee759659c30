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

"""Send a journal to MLflow.

Entries are sent in order, files last, so that a full or broken store for files hides no numbers. Each entry may be sent
twice and still counts once: a run is found again by its tag, a metric by its time stamp, and parameters, tags and files
replace themselves. An entry that a server refuses for good is set aside and does not hold up the rest, except the one
that opens the run: without a run nothing can be sent, so everything waits.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
from dataclasses import replace
from pathlib import Path, PurePosixPath

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from monai_iels._terminal import first_line
from monai_iels.tracking import _addresses as addresses
from monai_iels.tracking._entries import Artifact, Entry, Open, Values
from monai_iels.tracking._journal import Journal
from monai_iels.tracking._mlflow_pages import EXPERIMENT_TAGS

logger = logging.getLogger(__name__)

_TAG = "monai_iels.run"


def deliver(journal: Journal, uri: str | None = None) -> str | None:
    """Send what is pending.

    Args:
        journal: what to send.
        uri: where to, by default ``MLFLOW_TRACKING_URI`` or the journal's own address.

    Returns:
        The run's id; None if the journal is empty.

    Raises:
        ValueError: if this is not a journal.
        Exception: what MLflow raises if the server does not answer, or refuses to open the run. The rest stays pending.
    """
    address = journal.address(uri)
    with addresses.mlflow_settings(address, fail_soon=True):
        return deliver_pending(journal, address, threading.Event())


def deliver_pending(journal: Journal, address: str, stop: threading.Event) -> str | None:
    """Send what is pending until ``stop`` is set; the caller has entered :func:`mlflow_settings`."""
    entries = journal.entries()
    if not entries:
        return None
    if not isinstance(entries[0], Open):
        raise ValueError(f"{journal.file} must begin with a run, got '{entries[0].kind}'")
    if not address:
        raise ValueError(f"{journal.file} does not say where to deliver; set --tracking_uri")
    journal.refuse_links()
    with journal.delivery_lock(), addresses.secrets_hidden(address) as uri:
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # its errors are raised, and told, too
        with addresses.creation_lock(address):
            client = MlflowClient(tracking_uri=uri)
        return _Delivery(client, journal, address, stop).send()


class _Delivery:
    """Send the entries of a journal to one address, and note after each what has arrived."""

    def __init__(self, client: MlflowClient, journal: Journal, address: str, stop: threading.Event) -> None:
        self.client = client
        self.journal = journal
        self.entries = journal.entries()
        self.stop = stop
        self.progress = journal.progress(address)
        self.artifacts = {number: e for number, e in enumerate(self.entries) if isinstance(e, Artifact)}
        self.progress.waiting = [number for number in self.progress.waiting if number in self.artifacts]
        self.not_kept: list[str] = []

    @property
    def run_id(self) -> str:
        return str(self.progress.run_id)

    def send(self) -> str | None:
        if not self._has_run():
            self.progress.run_id, self.progress.count, self.progress.waiting = None, 0, []
        for number in range(self.progress.count, len(self.entries)):
            if self.stop.is_set():
                return self.progress.run_id
            if number in self.artifacts:
                self.progress.waiting.append(number)
            else:
                self._send_entry(self.entries[number])
            self.progress.count = number + 1
            self.journal.save_progress(self.progress)
        self._send_artifacts()
        return self.progress.run_id

    def _has_run(self) -> bool:
        """Return whether the noted run is on the server and belongs to this journal."""
        if self.progress.run_id is None:
            return False
        try:
            found = self.client.get_run(self.progress.run_id)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return False
        opened = self.entries[0]
        self.progress.experiment_id = found.info.experiment_id
        return isinstance(opened, Open) and found.data.tags.get(_TAG) == opened.key

    def _send_entry(self, entry: Entry) -> None:
        if isinstance(entry, Open):
            self.progress.run_id = self._open_run(entry)
            return
        try:
            entry.send(self.client, self.run_id)
        except Exception as error:
            self._set_aside_if_refused(entry, error)

    def _open_run(self, entry: Open) -> str:
        """Create the run, or find the one that an earlier attempt created."""
        experiment = self.progress.experiment_id = self._experiment_id(entry.experiment)
        query = f"tags.`{_TAG}` = '{entry.key}'"
        found = self.client.search_runs([experiment], query, order_by=["attributes.start_time ASC"])
        if found:
            return found[0].info.run_id
        tags = {_TAG: entry.key, "mlflow.source.type": "LOCAL", "mlflow.user": entry.user}
        return self.client.create_run(experiment, entry.time, tags=tags, run_name=entry.name).info.run_id

    def _experiment_id(self, name: str) -> str:
        found = self.client.get_experiment_by_name(name)
        if found is None:
            try:
                return self.client.create_experiment(
                    name, addresses.artifact_location(self.progress.address), EXPERIMENT_TAGS
                )
            except Exception:
                found = self.client.get_experiment_by_name(name)  # another training may have been faster
                if found is None:
                    raise
        for key in EXPERIMENT_TAGS.keys() - found.tags.keys():
            self.client.set_experiment_tag(found.experiment_id, key, EXPERIMENT_TAGS[key])
        return found.experiment_id

    def _set_aside_if_refused(self, entry: Entry, error: Exception) -> None:
        """Set aside what is refused for good; of several values only those that are also refused one by one."""
        code = getattr(error, "error_code", None)
        if code == "ENDPOINT_NOT_FOUND":  # an old server knows no models; a proxy whose server is away knows nothing
            self._check_server()
        elif code != "INVALID_PARAMETER_VALUE":
            raise error
        if not isinstance(entry, Values) or len(entry.values) < 2:
            self.journal.set_aside(entry, first_line(error))
            return
        for key, value in entry.values.items():
            self._send_entry(replace(entry, values={key: value}))

    def _send_artifacts(self) -> None:
        """Send the files that wait. A file that cannot be stored now keeps waiting, and the others are sent."""
        failed: list[str] = []
        for number in list(self.progress.waiting):
            if self.stop.is_set():
                return
            artifact = self.artifacts[number]
            try:
                self._send_artifact(number, artifact)
            except Exception as error:
                self._check_server()
                failed.append(f"{artifact.name} because of '{first_line(error)}'")
                continue
            self.progress.waiting.remove(number)
            self.journal.save_progress(self.progress)
        if self.not_kept:
            logger.warning(
                f"{self.journal.folder}: {', '.join(self.not_kept)} went to another server before and are not kept "
                f"here; run {self.run_id} lacks them."
            )
        if failed:
            raise RuntimeError(f"{len(failed)} files could not be stored, {failed[0]}")

    def _check_server(self) -> None:
        """Raise if the server does not answer; it may drop one connection after an error of its own, so ask twice."""
        try:
            self.client.get_run(self.run_id)
        except Exception:
            self.client.get_run(self.run_id)

    def _send_artifact(self, number: int, artifact: Artifact) -> None:
        """Send a file, unless a later one replaces it."""
        try:
            copy = self.journal.copy_of(artifact)
        except ValueError as error:
            self.journal.set_aside(artifact, str(error))
            return
        later = [other for other_number, other in self.artifacts.items() if other_number > number]
        if any((other.place, other.name) == (artifact.place, artifact.name) for other in later):
            copy.unlink(missing_ok=True)
        elif copy.exists():
            self._upload(artifact, copy)
        elif not self._has_artifact(artifact):
            self.not_kept.append(artifact.name)

    def _upload(self, artifact: Artifact, copy: Path) -> None:
        try:
            with tempfile.TemporaryDirectory() as scratch:
                named = shutil.copy(copy, Path(scratch) / artifact.name)
                self.client.log_artifact(self.run_id, str(named), artifact.place or None)
        except Exception as error:
            self._set_aside_if_refused(artifact, error)
        else:
            copy.unlink()

    def _has_artifact(self, artifact: Artifact) -> bool:
        found = self.client.list_artifacts(self.run_id, artifact.place or None)
        return any(PurePosixPath(item.path).name == artifact.name for item in found)
