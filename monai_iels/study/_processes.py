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

"""The processes that run the trainings of a study."""

import logging
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from monai_iels._files import write_json
from monai_iels.study._plan import Training

logger = logging.getLogger(__name__)

_TORCHRUN = "torch/distributed/elastic/multiprocessing/api.py:"


@dataclass(frozen=True)
class Outcome:
    """How a training ended, and after how many seconds."""

    training: Training
    status: str
    seconds: float


@dataclass
class TrainingProcesses:
    """Run trainings, each in a process of its own, and stop them all together.

    Args:
        threads: how many threads a training may use; None sets no limit.
        environment: variables for the trainings in addition to those of this process: where to track, and the password.
        per_training: how many processes share a training.
    """

    threads: int | None
    environment: dict[str, str] = field(default_factory=dict, repr=False)
    per_training: int = 1
    stopped: bool = False
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def run(self, training: Training) -> Outcome:
        """Run one training to its end; resume it if it was interrupted."""
        start, began = time.monotonic(), time.time()
        if self.stopped:
            return Outcome(training, "KILLED", 0.0)
        folder = training.folder
        write_json(training.arguments, folder.study_arguments)
        resume = folder.can_resume and training.journal.status() != "FAILED"
        command = [sys.executable]
        if self.per_training > 1:
            command += ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={self.per_training}"]
        command += ["-m", "monai.bundle", "run"]
        command += ["--args_file", str(folder.study_arguments), "--resume", str(resume)]
        limits = {"OMP_NUM_THREADS": str(self.threads)} if self.threads else {}
        environment = {**limits, **os.environ, **self.environment}
        with folder.console.open("ab") as log:
            begin = log.tell()
            # In a session of its own, so that Ctrl-C reaches only the study, which then ends each training once.
            child = subprocess.Popen(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
            self.children.append(child)
            if self.stopped:
                child.terminate()
            code = _follow(child, training, begin)
        status = training.journal.status(began) or self._record_status(training, code)
        return Outcome(training, status, time.monotonic() - start)

    def _record_status(self, training: Training, code: int) -> str:
        """Return how a training ended that did not record it, and record it in its place."""
        status = "KILLED" if code < 0 or self.stopped else "FAILED"
        journal, arguments = training.journal, training.arguments
        never_started = self.stopped and not journal.entries()
        if journal.status() is None and not never_started:
            address, experiment = arguments["tracking_uri"], arguments["experiment_name"]
            journal.begin(tracking_uri=address, experiment=experiment, name=arguments["run_name"])
            reason = f"The process ended with exit code {code}."
            if status == "FAILED":
                reason = _last_line(training.folder.console) or reason
            journal.append("tags", values={**arguments["run_tags"], "stopped": reason})
            journal.append("status", status=status)
        return status

    def stop(self) -> None:
        """Ask all trainings to end, and wait for them. They can be resumed."""
        self.stopped = True
        for child in list(self.children):
            child.terminate()
        for child in list(self.children):
            child.wait()


def _follow(child: subprocess.Popen[bytes], training: Training, begin: int) -> int:
    """Wait for a training, log the line of each epoch meanwhile, and return the exit code."""
    with training.folder.console.open("rb") as console:
        console.seek(begin)
        code = None
        while code is None:
            time.sleep(0.2)
            code = child.poll()
            for line in console:
                if line.startswith(b"epoch "):
                    logger.info(f"{training!s:<22}  {line.decode('utf-8', 'replace').rstrip()}")
    return code


def _last_line(log: Path) -> str:
    """Return what a training said last, before torchrun reports that its processes failed."""
    lines = log.read_text("utf-8", errors="replace").splitlines()
    reports = [number for number, line in enumerate(lines) if _TORCHRUN in line]
    while reports:
        lines = lines[: reports[-1]]
        reports = [number for number in reports[:-1] if number == len(lines) - 1]
    return next((line[:300] for line in reversed(lines) if line.strip()), "")
