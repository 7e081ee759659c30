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

"""Train each variant of a study with each seed, except those that are finished."""

import logging
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import joblib
from monai.bundle import ConfigParser

from monai_iels._terminal import duration, first_line
from monai_iels.bundles import list_data
from monai_iels.runs import training_config
from monai_iels.study._definition import Study, check_overrides
from monai_iels.study._plan import Plan, Training, check_unchanged, make_plan, write_summary
from monai_iels.study._processes import Outcome, TrainingProcesses
from monai_iels.tracking import Journal, deliver, environment_for

logger = logging.getLogger(__name__)


def run_study(
    study: Study,
    output_dir: Path,
    preset: str,
    dataset_dir: str = "synthetic",
    jobs: int = 1,
    tracking_uri: str | None = None,
    backend: str = "threading",
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
        backend: the joblib backend that runs the trainings.
        processes: how many processes share each training, one per GPU; torchrun starts them.

    Returns:
        whether all trainings are finished.

    Raises:
        ValueError: if the preset or a key is unknown, the data are wrong, or the folder belongs to another study.
    """
    plan = make_plan(study, output_dir, preset, dataset_dir, tracking_uri, processes)
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
        try:
            outcomes = _train(trainings, jobs, backend, environment_for(plan.shared["tracking_uri"]), processes)
        except BaseException as error:
            journal.append("status", status="FAILED" if isinstance(error, Exception) else "KILLED")
            _deliver([journal], plan.shared["tracking_uri"])
            raise
        unfinished = [outcome.training for outcome in outcomes if outcome.status != "FINISHED"]
        journal.append("status", status="FAILED" if unfinished else "FINISHED")
        _deliver([*(training.journal for training in trainings), journal], plan.shared["tracking_uri"])
    for training in unfinished:
        logger.warning(f"Not finished: {training}. The reason is in {training.folder.console}")
    return not unfinished


def _prepare_data(plan: Plan) -> None:
    """Check the data before the first training, and unpack or synthesize them once for all trainings."""
    parser = ConfigParser(ConfigParser.load_config_file(training_config(plan.study.bundle)))
    parser.update(plan.settings)
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


def _train(
    trainings: Sequence[Training], jobs: int, backend: str, environment: dict[str, str], count: int
) -> list[Outcome]:
    """Run the trainings that are not finished, log how it goes, and return how they ended."""
    todo = [training for training in trainings if training.journal.status() != "FINISHED"]
    if len(todo) < len(trainings):
        logger.info(f"{len(trainings) - len(todo)} of {len(trainings)} trainings are already finished.")
    if todo:
        first = "; ".join(f"{training.variant} (seed {training.seed})" for training in todo[:jobs])
        logger.info(f"Training: {first}{' ...' if len(todo) > jobs else ''}")
    threads = max(1, joblib.cpu_count() // (jobs * count)) if backend == "threading" else None
    processes = TrainingProcesses(threads, environment, count)
    done: list[Outcome] = []
    try:
        with _terminable():
            for outcome in _outcomes(processes, todo, jobs, backend):
                done.append(outcome)
                _log_progress(done, len(todo), jobs)
    finally:
        processes.stop()
    return done


def _outcomes(processes: TrainingProcesses, todo: Sequence[Training], jobs: int, backend: str) -> Iterator[Outcome]:
    """Yield the outcome of each training when it ends."""
    with joblib.parallel_config(backend=backend, n_jobs=jobs):
        try:
            parallel = joblib.Parallel(return_as="generator_unordered", pre_dispatch=jobs, batch_size=1)
        except ValueError:  # some backends, such as Ray's, return all outcomes at the end
            parallel = joblib.Parallel(batch_size=1)
        yield from parallel(joblib.delayed(processes.run)(training) for training in todo)


def _log_progress(done: Sequence[Outcome], total: int, jobs: int) -> None:
    last = done[-1]
    missing = total - len(done)
    seconds_left = missing * sum(outcome.seconds for outcome in done) / len(done) / jobs
    left = f", {missing} still running" if missing else ""
    if missing >= jobs:
        left = f", about {duration(seconds_left)} left"
    reason = "" if last.status == "FINISHED" else f". The reason is in {last.training.folder.console}"
    logger.info(f"{len(done)}/{total}  {last.training}: {last.status} after {duration(last.seconds)}{left}{reason}")


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM and a closed terminal (SIGHUP) end a study as Ctrl-C does; a signal that is ignored stays so."""
    with ExitStack() as stack:
        for name in ("SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                stack.callback(signal.signal, number, signal.signal(number, signal.default_int_handler))
        yield


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
