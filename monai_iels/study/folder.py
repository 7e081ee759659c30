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

"""What a study's folder keeps beside its trainings, and what it refuses."""

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from monai_iels.handlers.addresses import embedded, public
from monai_iels.study.definition import Study, presets, read_study
from monai_iels.study.files import read_json, write_json
from monai_iels.study.jobs import Job, Outcome, all_jobs

__all__ = ["alone", "note_failures", "note_study", "refuse_changes"]


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep a second command from training the same study at the same time."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".study.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(f"{folder}: expected no other command at this study, found one. Wait for it.") from None
    try:
        yield
    finally:
        lock.release()


def refuse_changes(study: Study, folder: Path, preset: str, common: Mapping[str, Any]) -> None:
    """Refuse to mix another study, or trainings with other settings than before, into a folder."""
    file = folder / "study.json"
    if not file.exists():
        return
    before = read_json(file)
    now = {"study": study.name, "bundle": study.bundle.name, "preset": preset}
    _refuse_other(file, {key: before.get(key) for key in now}, now)
    for job in all_jobs(study, common):
        file = job.folder / "arguments.json"
        if file.exists():
            before = read_json(file)
            before["tracking_uri"] = public(str(before.get("tracking_uri")))
            _refuse_other(file, before, json.loads(json.dumps(job.arguments)))


def _refuse_other(file: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for key in sorted((before.keys() | now.keys()) - {"run_tags"}):
        if before.get(key) != now.get(key):
            raise ValueError(
                f"{file}: expected {key} {before.get(key)}, as before, found {now.get(key)}. "
                "Choose another --output_dir."
            )


def note_study(folder: Path, study: Study, preset: str, common: Mapping[str, Any], run_id: str) -> None:
    """Keep what the page needs: all variants and seeds that were ever asked for in this folder."""
    file = folder / "study.json"
    again = {f"{variant}, seed {seed}" for variant in study.variants for seed in study.seeds}
    before = {"variants": {}, "seeds": [], "failed": {}, "ended": {}, **(read_json(file) if file.exists() else {})}
    content = {
        "study": study.name,
        "bundle": study.bundle.name,
        "preset": preset,
        "settings": presets(study.bundle)[preset],
        "synthetic": common["dataset_dir"] == "synthetic",
        "variants": {**before["variants"], **study.variants},
        "seeds": sorted({*before["seeds"], *study.seeds}),
        **{key: {name: v for name, v in before[key].items() if name not in again} for key in ("failed", "ended")},
        "tracking_uri": None if common["tracking_uri"] == embedded(folder) else common["tracking_uri"],
        "run_id": run_id,
    }
    write_json({**content, "command": _command(content, study)}, file)


def _command(content: Mapping[str, Any], study: Study) -> str:
    """Return a command that gives the same results, without the paths of one machine."""
    inside = Path(os.path.abspath(study.file)).parent == study.bundle / "studies"
    file = f"bundles/{study.bundle.name}/studies/{study.file.name}" if inside else study.file.name
    words = ["python", "-m", "monai_iels.study", "run", file, "--preset", content["preset"]]
    words += ["--seeds", str(len(content["seeds"]))]
    if set(content["variants"]) < set(read_study(study.file).variants):
        words += ["--variants", *content["variants"]]
    return shlex.join(words + ([] if content["synthetic"] else ["--dataset_dir", "DIR"]))


def note_failures(folder: Path, todo: Sequence[Job], outcomes: Sequence[Outcome]) -> None:
    """Keep how trainings ended that did not finish, and their last words, for the page: some fail before being tracked.

    Args:
        folder: folder of the study.
        todo: all trainings of the command.
        outcomes: how those ended that were not finished before.
    """
    file = folder / "study.json"
    content = read_json(file)
    for job in todo:
        for notes in (content["failed"], content["ended"]):
            notes.pop(f"{job.variant}, seed {job.seed}", None)
    for job, status, _ in outcomes:
        if status != "FINISHED":
            content["failed"][f"{job.variant}, seed {job.seed}"] = _last_words(job.folder / "console.log")
            content["ended"][f"{job.variant}, seed {job.seed}"] = status
    write_json(content, file)


def _last_words(log: Path) -> str:
    text = log.read_text("utf-8", errors="replace") if log.exists() else ""
    return next((line[:300] for line in reversed(text.splitlines()) if line.strip()), "")
