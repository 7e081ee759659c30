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

"""Train each variant of a study with each seed, but for those that are finished."""

import errno
import logging
import os
import signal
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import joblib
from monai.bundle import ConfigParser
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from monai_iels.errors import first_line
from monai_iels.handlers.addresses import variables
from monai_iels.handlers.journal import Journal, deliver
from monai_iels.handlers.reports import duration
from monai_iels.study.definition import Study, check_overrides
from monai_iels.study.folder import alone, note_failures, note_study, refuse_changes
from monai_iels.study.jobs import Crew, Job, Outcome, all_jobs, shared_arguments

__all__ = ["run_study"]

logger = logging.getLogger(__name__)


def run_study(
    study: Study,
    output_dir: Path,
    preset: str,
    dataset_dir: str = "synthetic",
    jobs: int = 1,
    tracking_uri: str | None = None,
    backend: str = "threading",
) -> bool:
    """Train each variant with each seed, but for those that are finished.

    Args:
        study: what to train.
        output_dir: folder for all of it.
        preset: name of the settings that all variants share.
        dataset_dir: folder of the data set, or ``"synthetic"``.
        jobs: how many trainings run at once.
        tracking_uri: address of a tracking server; a database below ``output_dir`` if None.
        backend: where joblib runs the jobs.

    Returns:
        whether all trainings are finished.

    Raises:
        ValueError: if a preset, an override or the data are not there, or if the folder is another study's.
    """
    common = shared_arguments(study, output_dir, preset, dataset_dir, tracking_uri)
    config = ConfigParser.load_config_file(common["config_file"])
    check_overrides(study, config)
    refuse_changes(study, output_dir, preset, common)
    if output_dir.is_file():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(output_dir))
    _prepare_data(common, config)
    with alone(output_dir):
        journal = Journal(output_dir / "tracking")
        run_id = _open_parent(journal, study, preset, common)
        note_study(output_dir, study, preset, common, run_id)
        todo = all_jobs(study, common, run_id)
        try:
            outcomes = _train(todo, jobs, backend, variables(common["tracking_uri"]))
        except BaseException:
            journal.append("status", status="KILLED")
            _deliver([journal])
            raise
        bad = [outcome.job for outcome in outcomes if outcome.status != "FINISHED"]
        note_failures(output_dir, todo, outcomes)
        journal.append("status", status="FAILED" if bad else "FINISHED")
        _deliver([*(job.journal for job in todo), journal])
    for job in bad:
        logger.warning(f"Not finished: {job.variant}, seed {job.seed}. Why: {job.folder / 'console.log'}")
    return not bad


def _prepare_data(common: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Look at the data before the first training, and unpack or draw them once for all."""
    try:
        parser = ConfigParser(dict(config))
        parser.update(dict(common))
        parser.get_parsed_content("datalists")
    except RuntimeError as error:  # MONAI's, around what the reader says
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from None
        raise ValueError(str(error.__cause__ or error)) from None


def _open_parent(journal: Journal, study: Study, preset: str, common: Mapping[str, Any]) -> str:
    """Open the run that all trainings are nested under, or go on with it; return its id."""
    uri = common["tracking_uri"]
    known = bool(journal.entries())
    journal.begin(
        key=uuid.uuid4().hex,
        tracking_uri=uri,
        experiment=common["experiment_name"],
        name=f"{study.name}-{preset}" + ("-synthetic" if common["dataset_dir"] == "synthetic" else ""),
    )
    if known:
        journal.append("resumed")
    else:
        journal.append("tags", values={"study": study.name, "preset": preset})
    try:
        run_id = str(deliver(journal))
    except Exception as error:
        raise ValueError(f"{uri}: expected a tracking server, found '{first_line(error)}'.") from None
    return run_id


def _train(todo: Sequence[Job], jobs: int, backend: str, environment: dict[str, str]) -> list[Outcome]:
    """Train what is not finished, tell how it goes, and return how it ended."""
    left = [job for job in todo if job.status != "FINISHED"]
    if len(left) < len(todo):
        logger.info(f"{len(todo) - len(left)} of {len(todo)} trainings are finished already.")
    crew = Crew(max(1, joblib.cpu_count() // jobs) if backend == "threading" else None, environment)
    done: list[Outcome] = []
    try:
        with _terminable(), logging_redirect_tqdm(), tqdm(total=len(left), unit="training", disable=None) as bar:
            for outcome in _outcomes(crew, left, jobs, backend):
                done.append(outcome)
                bar.update()
                _tell(done, len(left), jobs)
    except BaseException:
        crew.stop()
        raise
    return done


def _outcomes(crew: Crew, jobs: Sequence[Job], count: int, backend: str) -> Iterator[Outcome]:
    with joblib.parallel_config(backend=backend, n_jobs=count):
        try:
            parallel = joblib.Parallel(return_as="generator_unordered", pre_dispatch=count, batch_size=1)
        except ValueError:  # a backend such as Ray's, which tells everything at the end
            parallel = joblib.Parallel(batch_size=1)
        yield from parallel(joblib.delayed(crew.train)(job) for job in jobs)


def _tell(done: Sequence[Outcome], total: int, jobs: int) -> None:
    job, status, seconds = done[-1]
    left = (total - len(done)) * sum(outcome.seconds for outcome in done) / len(done) / jobs
    ending = f"about {duration(left)} left" if len(done) < total else "the last one"
    logger.info(
        f"{len(done)}/{total}  {job.variant}, seed {job.seed}: {status} after {duration(seconds)}, {ending}"
        + ("" if status == "FINISHED" else f". Why: {job.folder / 'console.log'}")
    )


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM, and a terminal that is closed, end a study as Ctrl-C does."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {getattr(signal, name): signal.getsignal(getattr(signal, name)) for name in names}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}  # nohup
    for number in before:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _deliver(journals: Sequence[Journal]) -> None:
    """Deliver what is left of the tracking; where that fails, say what to do."""
    for journal in journals:
        try:
            deliver(journal)
        except Exception as error:
            logger.warning(
                f"Tracking is not delivered ('{first_line(error)}'). Later: python -m monai_iels.handlers replay "
                f"{journal.folder}"
            )
