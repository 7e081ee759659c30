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

"""Studies: a bundle trained in several variants with several seeds, side by side, and one page on how they compare.

``python -m monai_iels.study run bundles/wbc/studies/noisy_labels.yaml --dataset_dir DIR`` trains what is missing and
writes the page; ``python -m monai_iels.study report FOLDER`` only writes it.
"""

import argparse
import difflib
import json
import logging
import os
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import torch
import yaml
from filelock import FileLock, Timeout
from mlflow.exceptions import MlflowException
from monai.bundle import ConfigParser, ReferenceResolver
from monai.bundle.utils import ID_SEP_KEY
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from monai_iels.errors import first_line
from monai_iels.handlers.journal import Journal, deliver
from monai_iels.handlers.reports import duration
from monai_iels.handlers.tracking import artifact_location, default_tracking_uri, embedded, public
from monai_iels.handlers.training import complete_file
from monai_iels.study_report import by_group, collect, read_json, slug, write_report

__all__ = ["Study", "check_overrides", "choose", "main", "presets", "read_study", "run_study"]

logger = logging.getLogger(__name__)

_KEYS = {"bundle", "variants", "seeds"}
_OWNED = {"bundle_root", "cache_dir", "dataset_dir", "experiment_name", "output_dir", "resume"}
_OWNED |= {"run_name", "run_tags", "seed", "track", "tracking_uri"}


class Study(NamedTuple):
    """A comparison: the first variant of a group is its baseline; ``GROUP / VARIANT`` puts a variant in a group."""

    name: str
    bundle: Path
    variants: dict[str, dict[str, Any]]
    seeds: list[int]
    file: Path


def read_study(file: Path, seeds: int | None = None) -> Study:
    """Read a study's file.

    Args:
        file: YAML with ``bundle``, ``variants`` (a dictionary of overrides each) and ``seeds``.
        seeds: how many seeds, if not as many as the file says.

    Raises:
        ValueError: if it is no study, with what was expected.
    """
    content = _read_yaml(file, "a study")
    found = sorted(map(str, content)) if isinstance(content, dict) else type(content).__name__
    if not isinstance(content, dict) or set(content) != _KEYS:
        raise ValueError(f"{file}: expected bundle, variants and seeds, found {found}.")
    variants = content["variants"]
    if not isinstance(variants, dict) or not variants or not all(map(_is_variant, variants.items())):
        raise ValueError(
            f"{file}: expected variants that are a name and a dictionary of overrides each, found {variants}."
        )
    count = content["seeds"] if seeds is None else seeds
    if not isinstance(count, int) or count < 1:
        place = file if seeds is None else "--seeds"
        raise ValueError(f"{place}: expected a number of seeds from 1, found {count}.")
    if len({slug(name) for name in variants}) < len(variants):
        raise ValueError(f"{file}: expected variants whose names differ in letters or digits, found {list(variants)}.")
    return Study(file.stem, _bundle(file, str(content["bundle"])), variants, list(range(count)), file)


def _read_yaml(file: Path, what: str) -> Any:
    try:
        return yaml.safe_load(file.read_text("utf-8"))
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ValueError(f"{file}: expected {what} in YAML, found '{error.problem}'{line}.") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{file}: expected {what} in YAML, found '{first_line(error)}'.") from None


def _is_variant(item: tuple[Any, Any]) -> bool:
    """Return whether this is a name with overrides that a JSON file of arguments can hold."""
    name, overrides = item
    try:
        json.dumps(overrides)
    except TypeError:
        return False
    return isinstance(name, str) and isinstance(overrides, dict) and all(isinstance(key, str) for key in overrides)


def choose(study: Study, names: Sequence[str]) -> Study:
    """Return a study with only some of its variants; the baselines of their groups stay.

    Raises:
        ValueError: for a name that the study does not have.
    """
    for name in names:
        if name not in study.variants:
            raise ValueError(f"--variants: expected one of {', '.join(study.variants)}, found '{name}'.")
    groups = [list(group.values()) for group in by_group(study.variants).values()]
    kept = {*names, *(group[0] for group in groups if set(group) & set(names))}
    return study._replace(variants={name: value for name, value in study.variants.items() if name in kept})


def _bundle(file: Path, name: str) -> Path:
    """Find a bundle by its name, beside the study's own, or by a path from the study's file."""
    home = Path(os.path.abspath(file)).parent
    for folder in (home.parent.parent / name, Path(os.path.abspath(home / name))):
        if (folder / "configs" / "train.json").exists():
            return folder
    raise ValueError(f"{file}: expected the name of a bundle or a path to one, found '{name}'.")


def presets(bundle: Path) -> dict[str, dict[str, Any]]:
    """Return the settings that a bundle's studies may run with, by name: ``paper`` is as the bundle is."""
    file = bundle / "presets.yaml"
    return {"paper": {}, **(_read_yaml(file, "presets") if file.exists() else {})}


class _Job(NamedTuple):
    """One training of a study."""

    variant: str
    seed: int
    arguments: dict[str, Any]

    @property
    def folder(self) -> Path:
        """Folder of the training."""
        return Path(self.arguments["output_dir"])

    @property
    def status(self) -> str | None:
        """Return how it ended, if it did."""
        return Journal(self.folder / "tracking").status()


class _Outcome(NamedTuple):
    """How a training ended, and after how many seconds."""

    job: _Job
    status: str
    seconds: float


@dataclass
class _Crew:
    """Train jobs, each in a process of its own, and stop them all together.

    Args:
        threads: how many threads a training may use; as many as it likes if None.
    """

    threads: int | None
    stopped: bool = False
    children: list[Any] = field(default_factory=list)

    def train(self, job: _Job) -> _Outcome:
        """Run one training to its end, from where it was interrupted."""
        start = time.monotonic()
        if self.stopped:
            return _Outcome(job, "KILLED", 0.0)
        job.folder.mkdir(parents=True, exist_ok=True)
        file = job.folder / "arguments.json"
        file.write_text(json.dumps(job.arguments, indent=1) + "\n", encoding="utf-8")
        saved = any((job.folder / name).exists() for name in ("last.pt", "previous.pt"))
        resume = saved and job.status != "FAILED"
        command = [sys.executable, "-m", "monai.bundle", "run", "--args_file", str(file), "--resume", str(resume)]
        limits = {"OMP_NUM_THREADS": str(self.threads)} if self.threads else {}
        environment = {**limits, **os.environ, "MLFLOW_TRACKING_URI": job.arguments["tracking_uri"]}
        with (job.folder / "console.log").open("a", encoding="utf-8") as log:
            # in a session of its own: Ctrl-C ends the study, which then ends its trainings, once
            child = subprocess.Popen(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
            self.children.append(child)
            if self.stopped:
                child.terminate()
            code = child.wait()
        status = job.status or ("KILLED" if code < 0 or self.stopped else "FAILED")
        return _Outcome(job, status, time.monotonic() - start)

    def stop(self) -> None:
        """Ask all trainings to end; they can be resumed."""
        self.stopped = True
        for child in list(self.children):
            if child.poll() is None:
                child.terminate()
        for child in list(self.children):
            child.wait()


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
    common = _common(study, output_dir, preset, dataset_dir, tracking_uri)
    config = ConfigParser.load_config_file(common["config_file"])
    check_overrides(study, config)
    _refuse_changes(study, output_dir, preset, common)
    _prepare_data(common, config)
    with _alone(output_dir):
        journal = Journal(output_dir / "tracking")
        run_id = _open_parent(journal, study, preset, common)
        todo = [_job(variant, seed, study, common, run_id) for seed in study.seeds for variant in study.variants]
        try:
            _train(todo, jobs, backend)
        except BaseException:
            journal.append("status", status="KILLED")
            _deliver([journal])
            raise
        bad = [job for job in todo if job.status != "FINISHED"]
        _note_failures(output_dir, todo)
        journal.append("status", status="FAILED" if bad else "FINISHED")
        _deliver([*(Journal(job.folder / "tracking") for job in todo), journal])
    for job in bad:
        logger.warning(f"Not finished: {job.variant}, seed {job.seed}. Why: {job.folder / 'console.log'}")
    return not bad


def _train(todo: Sequence[_Job], jobs: int, backend: str) -> None:
    """Train what is not finished, and tell how it goes."""
    left = [job for job in todo if job.status != "FINISHED"]
    if len(left) < len(todo):
        logger.info(f"{len(todo) - len(left)} of {len(todo)} trainings are finished already.")
    crew = _Crew(max(1, joblib.cpu_count() // jobs) if backend == "threading" else None)
    done: list[_Outcome] = []
    try:
        with _terminable(), logging_redirect_tqdm(), tqdm(total=len(left), unit="training", disable=None) as bar:
            for outcome in _outcomes(crew, left, jobs, backend):
                done.append(outcome)
                bar.update()
                _tell(done, len(left), jobs)
    except BaseException:
        crew.stop()
        raise


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
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


def _note_failures(folder: Path, todo: Sequence[_Job]) -> None:
    """Keep the last words of trainings that did not finish, for the page: some fail before they are tracked."""
    file = folder / "study.json"
    content = read_json(file)
    for job in todo:
        name = f"{job.variant}, seed {job.seed}"
        content["failed"].pop(name, None)
        if job.status != "FINISHED":
            content["failed"][name] = _last_words(job.folder / "console.log")
    _save(content, file)


def _save(content: Mapping[str, Any], file: Path) -> None:
    with complete_file(file) as part:
        part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _last_words(log: Path) -> str:
    text = log.read_text("utf-8", errors="replace") if log.exists() else ""
    return next((line[:300] for line in reversed(text.splitlines()) if line.strip()), "")


def _common(study: Study, output_dir: Path, preset: str, dataset_dir: str, tracking_uri: str | None) -> dict[str, Any]:
    """Return the arguments that all trainings of a study have in common."""
    known = presets(study.bundle)
    if preset not in known:
        raise ValueError(f"--preset: expected one of {', '.join(known)}, found '{preset}'.")
    folder = Path(os.path.abspath(output_dir))
    return {
        "config_file": str(study.bundle / "configs" / "train.json"),
        "bundle_root": str(study.bundle),
        "dataset_dir": dataset_dir if dataset_dir == "synthetic" else os.path.abspath(dataset_dir),
        "cache_dir": str(folder / "cache"),
        "tracking_uri": default_tracking_uri(str(folder), tracking_uri),
        "experiment_name": f"{study.bundle.name}-{study.name}",
        **known[preset],
    }


def check_overrides(study: Study, config: Mapping[str, Any]) -> None:
    """Refuse a study with an override that its bundle does not know, with the nearest key that there is.

    Raises:
        ValueError: for the first one.
    """
    for variant, overrides in study.variants.items():
        for key in overrides:
            if key in _OWNED:
                raise ValueError(f"{study.name}, variant '{variant}': expected no '{key}', found one. A study sets it.")
            name = ReferenceResolver.normalize_id(key)
            if name not in config["known_keys"] and name.split(ID_SEP_KEY)[0] not in config:
                nearest = difflib.get_close_matches(key, config["known_keys"], 1, 0.0)[0]
                raise ValueError(
                    f"{study.name}, variant '{variant}': expected keys of the bundle {study.bundle.name}; "
                    f"the nearest to '{key}' is '{nearest}'."
                )


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
        artifact_location=artifact_location(uri),
        name=f"{study.name}-{preset}" + ("-synthetic" if common["dataset_dir"] == "synthetic" else ""),
    )
    if known:
        journal.append("resumed")
    else:
        journal.append("tags", values={"study": study.name, "preset": preset})
    try:
        run_id = str(deliver(journal))
    except Exception as error:
        raise ValueError(f"{public(uri)}: expected a tracking server, found '{first_line(error)}'.") from None
    _note_study(journal.folder.parent / "study.json", study, preset, common, run_id)
    return run_id


def _note_study(file: Path, study: Study, preset: str, common: Mapping[str, Any], run_id: str) -> None:
    """Keep what the page needs: all variants and seeds that were ever asked for in this folder."""
    before = {"variants": {}, "seeds": [], "failed": {}, **(read_json(file) if file.exists() else {})}
    content = {
        "study": study.name,
        "bundle": study.bundle.name,
        "preset": preset,
        "settings": presets(study.bundle)[preset],
        "synthetic": common["dataset_dir"] == "synthetic",
        "variants": {**before["variants"], **study.variants},
        "seeds": sorted({*before["seeds"], *study.seeds}),
        "failed": before["failed"],
        "tracking_uri": None if common["tracking_uri"] == embedded(file.parent) else common["tracking_uri"],
        "run_id": run_id,
    }
    _save({**content, "command": _command(content, study)}, file)


def _command(content: Mapping[str, Any], study: Study) -> str:
    """Return a command that gives the same results, without the paths of one machine."""
    inside = Path(os.path.abspath(study.file)).parent == study.bundle / "studies"
    file = f"bundles/{study.bundle.name}/studies/{study.file.name}" if inside else study.file.name
    words = ["python", "-m", "monai_iels.study", "run", file, "--preset", content["preset"]]
    words += ["--seeds", str(len(content["seeds"]))]
    if set(content["variants"]) < set(read_study(study.file).variants):
        words += ["--variants", *content["variants"]]
    return shlex.join(words + ([] if content["synthetic"] else ["--dataset_dir", "DIR"]))


def _job(variant: str, seed: int, study: Study, common: Mapping[str, Any], parent: str) -> _Job:
    folder = Path(common["cache_dir"]).parent / slug(variant) / f"seed-{seed}"
    return _Job(
        variant,
        seed,
        {
            **common,
            **study.variants[variant],
            "output_dir": str(folder),
            "seed": seed,
            "run_name": f"{slug(variant)}-seed-{seed}",
            "run_tags": {"mlflow.parentRunId": parent, "study.variant": variant, "study.seed": str(seed)},
        },
    )


def _refuse_changes(study: Study, folder: Path, preset: str, common: Mapping[str, Any]) -> None:
    """Refuse to mix another study, or trainings with other settings than before, into a folder."""
    file = folder / "study.json"
    if not file.exists():
        return
    before = read_json(file)
    now = {"study": study.name, "bundle": study.bundle.name, "preset": preset}
    _refuse_other(file, {key: before.get(key) for key in now}, now)
    for seed in study.seeds:
        for variant in study.variants:
            job = _job(variant, seed, study, common, "")
            file = job.folder / "arguments.json"
            if file.exists():
                _refuse_other(file, read_json(file), json.loads(json.dumps(job.arguments)))


def _refuse_other(file: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for key in sorted((before.keys() | now.keys()) - {"run_tags"}):
        if before.get(key) != now.get(key):
            raise ValueError(
                f"{file}: expected {key} {before.get(key)}, as before, found {now.get(key)}. "
                "Choose another --output_dir."
            )


def _outcomes(crew: _Crew, jobs: Sequence[_Job], count: int, backend: str) -> Iterator[_Outcome]:
    with joblib.parallel_config(backend=backend, n_jobs=count):
        try:
            parallel = joblib.Parallel(return_as="generator_unordered", pre_dispatch=count, batch_size=1)
        except ValueError:  # a backend such as Ray's, which tells everything at the end
            parallel = joblib.Parallel(batch_size=1)
        yield from parallel(joblib.delayed(crew.train)(job) for job in jobs)


def _tell(done: Sequence[_Outcome], total: int, jobs: int) -> None:
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run or report a study; the result is the exit code."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    try:
        return options.run(options)
    except (ValueError, FileNotFoundError, MlflowException) as error:
        print(first_line(error) if isinstance(error, MlflowException) else error, file=sys.stderr)
        return 1
    except OSError as error:
        place = error.filename or "the study's folder"
        print(
            f"{place}: expected to write there, found '{error.strerror}'. Choose another --output_dir.", file=sys.stderr
        )
        return 1
    except KeyboardInterrupt:
        print("Interrupted. The same command goes on with what is left.", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m monai_iels.study", description="Compare variants of a training.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    running = commands.add_parser("run", help="train what is missing, and report")
    running.add_argument("study", type=Path, help="bundles/NAME/studies/STUDY.yaml")
    running.add_argument("--dataset_dir", default="synthetic", help="the data set; a drawn sample if left out")
    running.add_argument("--output_dir", type=Path, help="default: eval/STUDY-PRESET in the bundle")
    running.add_argument("--seeds", type=int, help="how many seeds, if not as many as the study says")
    running.add_argument("--variants", nargs="+", metavar="NAME", help="only these, and the first one of their group")
    running.add_argument("--jobs", type=int, default=1, help="trainings at once (default: %(default)s)")
    default = "paper" if torch.cuda.is_available() else "cpu"
    running.add_argument("--preset", default=default, help="paper, or cpu: smaller (here: %(default)s)")
    running.add_argument("--tracking_uri", help="address of a tracking server; a database in output_dir if left out")
    running.set_defaults(run=_run)
    reporting = commands.add_parser("report", help="write the page anew")
    reporting.add_argument("folder", type=Path, help="output folder of a study, or one with its results.json")
    reporting.add_argument("--output_dir", type=Path, help="default: the folder itself")
    reporting.add_argument(
        "--without_images", action="store_true", help="no pictures of the data, which may not be passed on"
    )
    reporting.set_defaults(run=_report)
    return parser


def _run(options: argparse.Namespace) -> int:
    if options.jobs < 1:
        raise ValueError(f"--jobs: expected a number from 1, found {options.jobs}.")
    study = read_study(options.study, options.seeds)
    if options.variants:
        study = choose(study, options.variants)
    folder = options.output_dir or study.bundle / "eval" / f"{study.name}-{options.preset}"
    complete = run_study(
        study,
        folder,
        options.preset,
        options.dataset_dir,
        options.jobs,
        options.tracking_uri,
    )
    print(f"Report: {write_report(collect(folder), folder, folder / 'panels')}")
    return 0 if complete else 1


def _report(options: argparse.Namespace) -> int:
    panels = None if options.without_images else options.folder / "panels"
    print(f"Report: {write_report(collect(options.folder), options.output_dir or options.folder, panels)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
