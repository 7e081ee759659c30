# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Train each variant of a study with each seed, except those that are finished. Each training is a process."""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import torch
from monai.bundle import ConfigParser

from monai_iels._files import locked, write_json
from monai_iels._terminal import duration, first_line
from monai_iels.bundles import list_data
from monai_iels.runs import training_config
from monai_iels.settings import RUN
from monai_iels.study._definition import Study, check_overrides
from monai_iels.study._plan import Plan, Training, check_unchanged, make_plan, write_summary
from monai_iels.tracking import Journal, deliver, environment_for

logger = logging.getLogger(__name__)


def run_study(
    study: Study,
    output_dir: Path,
    preset: str,
    dataset_dir: str = "synthetic",
    jobs: int = 1,
    tracking_uri: str | None = None,
) -> bool:
    """Train each variant with each seed, except those that are finished.

    Args:
        study: what to train.
        output_dir: folder for everything that the study writes.
        preset: name of the settings that all variants share.
        dataset_dir: folder of the data set, or ``"synthetic"``.
        jobs: how many trainings run at the same time.
        tracking_uri: address of a tracking server; see :func:`~monai_iels.tracking.choose_address` for the default.

    Returns:
        whether all trainings are finished.

    Raises:
        ValueError: if the preset or a key is unknown, the data are wrong, or the folder belongs to another study.
    """
    plan = make_plan(study, output_dir, preset, dataset_dir, tracking_uri)
    address, folder = plan.shared["tracking_uri"], plan.folder
    check_overrides(study)
    check_unchanged(plan)
    source = "synthetic images" if plan.synthetic else plan.shared["dataset_dir"]
    logger.info(f"{len(plan.trainings())} trainings, {jobs} at a time. Data: {source}.")
    _prepare_data(plan)
    with locked(folder.lock, f"another process is running the study in {folder.path}; wait until it has finished"):
        journal = Journal(folder.tracking)
        trainings = plan.trainings(_open_parent(journal, plan))
        write_summary(plan)
        processes = TrainingProcesses(max(1, torch.get_num_threads() // jobs), environment_for(address))
        status = "KILLED"
        try:
            unfinished = _train(trainings, jobs, processes)
            status = "FAILED" if unfinished else "FINISHED"
        finally:
            journal.append("status", status=status)
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
    study, address = plan.study, plan.shared["tracking_uri"]
    name = f"{study.name}-{plan.preset}"
    if not journal.begin(tracking_uri=address, experiment=plan.shared["experiment_name"], name=name):
        journal.append("resumed")
    note = f"Compares {', '.join(study.variants)}. Each training is a run of its own, nested under this one."
    journal.append("tags", values={"study": study.name, "preset": plan.preset, "mlflow.note.content": note})
    try:
        return str(deliver(journal, address))
    except Exception as error:
        problem = f"the tracking server {address} does not answer ({first_line(error)})"
        raise ValueError(f"{problem}; start it, or check --tracking_uri") from None


class TrainingProcesses:
    """Run trainings, each in a process of its own, and stop them all together.

    Args:
        threads: how many threads a training may use.
        environment: variables for the trainings in addition to those of this process: where to track, and the password.
    """

    def __init__(self, threads: int, environment: dict[str, str] | None = None) -> None:
        self.environment = {"OMP_NUM_THREADS": str(threads), **os.environ, **(environment or {})}
        self.stopped = False
        self.children: list[subprocess.Popen[bytes]] = []

    def run(self, training: Training) -> str:
        """Run one training to its end, and return its status; resume it if it was interrupted."""
        if self.stopped:
            return "KILLED"
        folder, began = training.folder, time.time()
        write_json(training.arguments, folder.study_arguments)
        resume = folder.can_resume and training.journal.status() != "FAILED"
        command = [sys.executable, "-m", "monai.bundle", "run"]
        command += ["--args_file", str(folder.study_arguments), "--resume", str(resume)]
        last = b""
        with folder.console.open("ab") as log, folder.console.open("rb") as console:
            console.seek(0, os.SEEK_END)
            # In a session of its own, so that Ctrl-C reaches only the study, which then ends each training once.
            child = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, start_new_session=True)
            self.children.append(child)
            if self.stopped:
                child.terminate()
            code = None
            while code is None:
                time.sleep(0.2)
                code = child.poll()
                for line in console:
                    last = line.strip() or last
                    if line.startswith(b"epoch "):
                        logger.info(f"{training!s:<22}  {line.decode('utf-8', 'replace').rstrip()}")
        return training.journal.status(began) or self._record_status(training, code, last.decode("utf-8", "replace"))

    def _record_status(self, training: Training, code: int, last_line: str) -> str:
        """Return how a training ended that did not record it, and record it in its place."""
        status = "KILLED" if code < 0 or self.stopped else "FAILED"
        journal, arguments = training.journal, training.arguments
        if journal.status() is None and (journal.entries() or not self.stopped):
            address, experiment = arguments["tracking_uri"], arguments["experiment_name"]
            journal.begin(tracking_uri=address, experiment=experiment, name=arguments["run_name"])
            reason = last_line[:300] if status == "FAILED" else ""
            journal.append("tags", values={**arguments["run_tags"], "stopped": reason or f"exit code {code}"})
            journal.append("status", status=status)
        return status

    def stop(self) -> None:
        """Ask all trainings to end. They can be resumed."""
        self.stopped = True
        for child in list(self.children):
            child.terminate()


def _train(trainings: Sequence[Training], jobs: int, processes: TrainingProcesses) -> list[Training]:
    """Run the trainings that are not finished, log a line for each that ends, and return those that did not finish."""
    todo = [training for training in trainings if training.journal.status() != "FINISHED"]
    done, began = len(trainings) - len(todo), time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(processes.run, training): training for training in todo}
        try:
            for number, future in enumerate(as_completed(futures), done + 1):
                passed = duration(time.monotonic() - began)
                logger.info(f"{number}/{len(trainings)}  {futures[future]}: {future.result()} after {passed}")
        finally:
            processes.stop()
    return [training for future, training in futures.items() if future.result() != "FINISHED"]


def _deliver(journals: Sequence[Journal], address: str) -> None:
    """Deliver what is left of the tracking; if that fails, log the command that does it later."""
    for journal in journals:
        try:
            deliver(journal, address)
        except Exception as error:
            later = f"monai-iels tracking replay {journal.folder}"
            logger.warning(f"Tracking could not be delivered ({first_line(error)}). Deliver it later: {later}")
