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

"""Train a study's variants, or write its page: ``python -m monai_iels.study run|report``."""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from mlflow.exceptions import MlflowException

from monai_iels.errors import first_line
from monai_iels.study.definition import choose, read_study
from monai_iels.study.report import write_report
from monai_iels.study.results import collect
from monai_iels.study.running import run_study

__all__ = ["main"]


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
