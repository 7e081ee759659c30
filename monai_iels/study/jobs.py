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

"""The trainings of a study: their arguments, and the crew that runs each in a process of its own."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from monai_iels.handlers.addresses import default_tracking_uri
from monai_iels.handlers.journal import Journal
from monai_iels.study.definition import Study, presets, slug
from monai_iels.study.files import write_json

__all__ = ["Crew", "Job", "Outcome", "all_jobs", "shared_arguments"]


class Job(NamedTuple):
    """One training of a study."""

    variant: str
    seed: int
    arguments: dict[str, Any]

    @property
    def folder(self) -> Path:
        """Folder of the training."""
        return Path(self.arguments["output_dir"])

    @property
    def journal(self) -> Journal:
        """What the training has recorded."""
        return Journal(self.folder / "tracking")

    @property
    def status(self) -> str | None:
        """Return how it ended, if it did."""
        return self.journal.status()


def shared_arguments(
    study: Study, output_dir: Path, preset: str, dataset_dir: str, tracking_uri: str | None
) -> dict[str, Any]:
    """Return the arguments that all trainings of a study have in common; each has a folder below ``output_dir``."""
    known = presets(study.bundle)
    if preset not in known:
        raise ValueError(f"--preset: expected one of {', '.join(known)}, found '{preset}'.")
    folder = Path(os.path.abspath(output_dir))
    return {
        **known[preset],
        "config_file": str(study.bundle / "configs" / "train.json"),
        "bundle_root": str(study.bundle),
        "dataset_dir": dataset_dir if dataset_dir == "synthetic" else os.path.abspath(dataset_dir),
        "output_dir": str(folder),
        "cache_dir": str(folder / "cache"),
        "tracking_uri": default_tracking_uri(str(folder), tracking_uri),
        "experiment_name": f"{study.bundle.name}-{study.name}",
    }


def all_jobs(study: Study, common: Mapping[str, Any], parent: str = "") -> list[Job]:
    """Return the trainings of a study, seed by seed.

    Args:
        study: what to train.
        common: what :func:`shared_arguments` returned.
        parent: id of the tracked run that they are nested under; not needed to compare their arguments.
    """
    return [_job(variant, seed, study, common, parent) for seed in study.seeds for variant in study.variants]


def _job(variant: str, seed: int, study: Study, common: Mapping[str, Any], parent: str) -> Job:
    own = {
        "output_dir": str(Path(common["output_dir"]) / slug(variant) / f"seed-{seed}"),
        "seed": seed,
        "run_name": f"{slug(variant)}-seed-{seed}",
        "run_tags": {"mlflow.parentRunId": parent, "study.variant": variant, "study.seed": str(seed)},
    }
    return Job(variant, seed, {**common, **study.variants[variant], **own})


class Outcome(NamedTuple):
    """How a training ended, and after how many seconds."""

    job: Job
    status: str
    seconds: float


@dataclass
class Crew:
    """Train jobs, each in a process of its own, and stop them all together.

    Args:
        threads: how many threads a training may use; as many as it likes if None.
        environment: variables of the trainings beside those of this process: where they track, and with which password.
    """

    threads: int | None
    environment: dict[str, str] = field(default_factory=dict, repr=False)
    stopped: bool = False
    children: list[Any] = field(default_factory=list)

    def train(self, job: Job) -> Outcome:
        """Run one training to its end, from where it was interrupted."""
        start, began = time.monotonic(), time.time()
        if self.stopped:
            return Outcome(job, "KILLED", 0.0)
        job.folder.mkdir(parents=True, exist_ok=True)
        file = job.folder / "arguments.json"
        write_json(job.arguments, file)
        saved = any((job.folder / name).exists() for name in ("last.pt", "previous.pt"))
        resume = saved and job.status != "FAILED"
        command = [sys.executable, "-m", "monai.bundle", "run", "--args_file", str(file), "--resume", str(resume)]
        limits = {"OMP_NUM_THREADS": str(self.threads)} if self.threads else {}
        environment = {**limits, **os.environ, **self.environment}
        with (job.folder / "console.log").open("a", encoding="utf-8") as log:
            # in a session of its own: Ctrl-C ends the study, which then ends its trainings, once
            child = subprocess.Popen(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
            self.children.append(child)
            if self.stopped:
                child.terminate()
            code = child.wait()
        status = job.journal.status(began) or self._settle(job, code)
        return Outcome(job, status, time.monotonic() - start)

    def _settle(self, job: Job, code: int) -> str:
        """Return how a training ended that could not tell, and tell it in its place where its run is open."""
        status = "KILLED" if code < 0 or self.stopped else "FAILED"
        if job.journal.entries() and job.status is None:
            job.journal.append("tags", values={"stopped": f"The process ended with exit code {code}."})
            job.journal.append("status", status=status)
        return status

    def stop(self) -> None:
        """Ask all trainings to end; they can be resumed."""
        self.stopped = True
        for child in list(self.children):
            if child.poll() is None:
                child.terminate()
        for child in list(self.children):
            child.wait()
