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

"""The commands ``monai-iels study run`` and ``monai-iels study report``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

__all__ = ["add_commands"]

_PRESETS = "paper, full (the bundle as it is), or cpu, which is smaller (default: cpu; with a GPU paper, or else full)"
_ADDRESS = "address of a tracking server (default: MLFLOW_TRACKING_URI, or the database beside the bundle)"


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands about studies to the parser of ``monai-iels study``."""
    run = add("run", _run, "train what is missing, and write the page")
    run.add_argument("study", type=Path, help="bundles/NAME/studies/STUDY.yaml")
    run.add_argument("--dataset_dir", default="synthetic", help="folder of the data set (default: synthetic images)")
    run.add_argument("--output_dir", type=Path, help="where to write (default: eval/STUDY-PRESET in the bundle)")
    run.add_argument("--seeds", type=int, help="how many seeds (default: as many as the study says)")
    run.add_argument("--variants", nargs="+", metavar="NAME", help="only these, and the baselines of their groups")
    run.add_argument("--jobs", type=int, help="how many trainings at the same time (default: 1 with a GPU, else 2)")
    run.add_argument("--processes", type=int, default=1, help="how many GPUs share each training (default: 1)")
    run.add_argument("--preset", help=_PRESETS)
    run.add_argument("--tracking_uri", help=_ADDRESS)
    report = add("report", _report, "write the page again")
    report.add_argument("folder", type=Path, help="output folder of a study, or a folder with its results.json")
    report.add_argument("--output_dir", type=Path, help="where to write (default: the folder itself)")
    report.add_argument(
        "--without_images", action="store_true", help="no pictures of the data, which may not be passed on"
    )


def _run(options: argparse.Namespace) -> int:
    print(f"Study {options.study.stem}: loading MONAI ...", flush=True)
    import torch

    from monai_iels.study import preset_for_a_gpu, read_study, run_study, select_variants

    has_gpu = torch.cuda.is_available()
    jobs = (1 if has_gpu else min(2, os.cpu_count() or 1)) if options.jobs is None else options.jobs
    for name, number in (("jobs", jobs), ("processes", options.processes)):
        if number < 1:
            raise ValueError(f"--{name} must be at least 1, got {number}")
    study = read_study(options.study, options.seeds)
    if options.variants:
        study = select_variants(study, options.variants)
    preset = options.preset or (preset_for_a_gpu(study.bundle) if has_gpu else "cpu")
    folder = options.output_dir or study.bundle / "eval" / f"{study.name}-{preset}"
    complete = run_study(
        study, folder, preset, options.dataset_dir, jobs, options.tracking_uri, processes=options.processes
    )
    _write_page(folder, folder)
    return 0 if complete else 1


def _report(options: argparse.Namespace) -> None:
    _write_page(options.folder, options.output_dir or options.folder, not options.without_images)


def _write_page(study: Path, target: Path, images: bool = True) -> None:
    from monai_iels.study import closing_words, compare_variants, read_results, write_report

    results = read_results(study)
    comparison = compare_variants(results)
    write_report(results, target, study if images else None, comparison)
    print(closing_words(results, comparison, target))
