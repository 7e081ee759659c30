# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Train each variant of a study with each seed, except those that are finished. Each training is a process."""

import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

import torch
from monai.bundle import ConfigParser

from monai_iels._files import write_json
from monai_iels._terminal import duration, first_line
from monai_iels.bundles import list_data
from monai_iels.runs import training_config
from monai_iels.settings import RUN
from monai_iels.study._definition import Study, check_overrides
from monai_iels.study._plan import Plan, Training, check_unchanged, make_plan, write_summary
from monai_iels.tracking import Journal, deliver, environment_for

logger = logging.getLogger(__name__)

_TORCHRUN = r"torch/distributed/elastic/multiprocessing/api\.py:"


def run_study(
    study: Study,
    output_dir: Path,
    preset: str,
    dataset_dir: str = "synthetic",
    jobs: int = 1,
    tracking_uri: str | None = None,
    processes: int = 1,
) -> bool:
    """Train each variant with each seed, except those that are finished.

    Args:
        study: what to train.
        output_dir: folder for everything that the study writes.
        preset: name of the settings that all variants share.
        dataset_dir: folder of the data set, or ``"synthetic"``.
        jobs: how many trainings run at the same time.
        tracking_uri: address of a tracking server; see :func:`~monai_iels.tracking.choose_address` for the default.
        processes: how many processes share each training, one per GPU; torchrun starts them.

    Returns:
        whether all trainings are finished.

    Raises:
        ValueError: if the preset or a key is unknown, the data are wrong, or the folder belongs to another study.
    """
    plan = make_plan(study, output_dir, preset, dataset_dir, tracking_uri, processes)
    address = plan.shared["tracking_uri"]
    check_overrides(study)
    check_unchanged(plan)
    source = "synthetic images" if plan.synthetic else plan.shared["dataset_dir"]
    logger.info(f"{len(plan.trainings())} trainings, {jobs} at a time. Data: {source}.")
    _prepare_data(plan)
    with plan.folder.locked():
        journal = Journal(plan.folder.tracking)
        run_id = _open_parent(journal, plan)
        write_summary(plan)
        trainings = plan.trainings(run_id)
        threads = max(1, torch.get_num_threads() // (jobs * processes))
        try:
            unfinished = _train(trainings, jobs, TrainingProcesses(threads, environment_for(address), processes))
        except BaseException as error:
            journal.append("status", status="FAILED" if isinstance(error, Exception) else "KILLED")
            _deliver([journal], address)
            raise
        journal.append("status", status="FAILED" if unfinished else "FINISHED")
        _deliver([*(training.journal for training in trainings), journal], address)
    for training in unfinished:
        logger.warning(f"Not finished: {training}. The reason is in {training.folder.console}")
    return not unfinished


def _prepare_data(plan: Plan) -> None:
    """Check the data before the first training, and unpack or synthesize them once for all trainings."""
    parser = ConfigParser(ConfigParser.load_config_file(training_config(plan.study.bundle)))
    parser.update({key: value for key, value in plan.shared.items() if key not in RUN})
    list_data(parser)


def _open_parent(journal: Journal, plan: Plan) -> str:
    """Open the run that all trainings are nested under, or resume it, and return its id."""
    address, experiment = plan.shared["tracking_uri"], plan.shared["experiment_name"]
    name = f"{plan.study.name}-{plan.preset}" + ("-synthetic" if plan.synthetic else "")
    if journal.begin(tracking_uri=address, experiment=experiment, name=name):
        note = f"Compares {', '.join(plan.study.variants)}. Each training is a run of its own, nested under this one."
        tags = {"study": plan.study.name, "preset": plan.preset, "mlflow.note.content": note}
        journal.append("tags", values=tags)
    else:
        journal.append("resumed")
    try:
        return str(deliver(journal, address))
    except Exception as error:
        raise ValueError(
            f"the tracking server {address} does not answer ({first_line(error)}); start it, or check --tracking_uri"
        ) from None


class Outcome(NamedTuple):
    """How a training ended, and after how many seconds."""

    training: Training
    status: str
    seconds: float


class TrainingProcesses:
    """Run trainings, each in a process of its own, and stop them all together.

    Args:
        threads: how many threads a training may use.
        environment: variables for the trainings in addition to those of this process: where to track, and the password.
        per_training: how many processes share a training.
    """

    def __init__(self, threads: int, environment: dict[str, str] | None = None, per_training: int = 1) -> None:
        self.environment = {"OMP_NUM_THREADS": str(threads), **os.environ, **(environment or {})}
        self.per_training, self.stopped = per_training, False
        self.children: list[subprocess.Popen[bytes]] = []

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
        with folder.console.open("ab") as log, folder.console.open("rb") as console:
            begin = console.seek(0, os.SEEK_END)
            # In a session of its own, so that Ctrl-C reaches only the study, which then ends each training once.
            child = subprocess.Popen(
                command, env=self.environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
            self.children.append(child)
            if self.stopped:
                child.terminate()
            code = None
            while code is None:
                time.sleep(0.2)
                code = child.poll()
                for line in console:
                    if line.startswith(b"epoch "):
                        logger.info(f"{training!s:<22}  {line.decode('utf-8', 'replace').rstrip()}")
            console.seek(begin)
            said = console.read().decode("utf-8", "replace")
        status = training.journal.status(began) or self._record_status(training, code, said)
        return Outcome(training, status, time.monotonic() - start)

    def _record_status(self, training: Training, code: int, said: str) -> str:
        """Return how a training ended that did not record it, and record it in its place."""
        status = "KILLED" if code < 0 or self.stopped else "FAILED"
        journal, arguments = training.journal, training.arguments
        never_started = self.stopped and not journal.entries()
        if journal.status() is None and not never_started:
            address, experiment = arguments["tracking_uri"], arguments["experiment_name"]
            journal.begin(tracking_uri=address, experiment=experiment, name=arguments["run_name"])
            reason = f"The process ended with exit code {code}."
            if status == "FAILED":  # what it said last, before torchrun reports that its processes failed
                own_words, *_ = re.split(rf"\n.*{_TORCHRUN}", said)
                reason = own_words.strip().rpartition("\n")[2][:300] or reason
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


def _train(trainings: Sequence[Training], jobs: int, processes: TrainingProcesses) -> list[Training]:
    """Run the trainings that are not finished, log how it goes, and return those that did not finish."""
    todo = [training for training in trainings if training.journal.status() != "FINISHED"]
    if len(todo) < len(trainings):
        logger.info(f"{len(trainings) - len(todo)} of {len(trainings)} trainings are already finished.")
    if todo:
        first = "; ".join(f"{training.variant} (seed {training.seed})" for training in todo[:jobs])
        logger.info(f"Training: {first}{' ...' if len(todo) > jobs else ''}")
    done: list[Outcome] = []
    with ThreadPoolExecutor(jobs) as pool:
        try:
            for ended in as_completed([pool.submit(processes.run, training) for training in todo]):
                done.append(ended.result())
                _log_progress(done, len(todo), jobs)
        finally:
            processes.stop()
    return [outcome.training for outcome in done if outcome.status != "FINISHED"]


def _log_progress(done: Sequence[Outcome], total: int, jobs: int) -> None:
    last = done[-1]
    missing = total - len(done)
    seconds_left = missing * sum(outcome.seconds for outcome in done) / len(done) / jobs
    left = f", {missing} still running" if missing else ""
    if missing >= jobs:
        left = f", about {duration(seconds_left)} left"
    reason = "" if last.status == "FINISHED" else f". The reason is in {last.training.folder.console}"
    logger.info(f"{len(done)}/{total}  {last.training}: {last.status} after {duration(last.seconds)}{left}{reason}")


def _deliver(journals: Sequence[Journal], address: str) -> None:
    """Deliver what is left of the tracking; if that fails, log the command that does it later."""
    for journal in journals:
        try:
            deliver(journal, address)
        except Exception as error:
            logger.warning(
                f"Tracking could not be delivered ({first_line(error)}). Deliver it later: "
                f"monai-iels tracking replay {journal.folder}"
            )
