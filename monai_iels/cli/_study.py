# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The commands ``monai-iels study run`` and ``monai-iels study report``."""

import argparse
import os
from pathlib import Path


def train_and_report(options: argparse.Namespace) -> int:
    """Train what is missing, and write the page."""
    print(f"Study {options.study.stem}: loading MONAI ...", flush=True)
    import torch

    from monai_iels.study import preset_for_a_gpu, read_study, run_study, select_variants

    has_gpu = torch.cuda.is_available()
    jobs = (1 if has_gpu else min(2, os.cpu_count() or 1)) if options.jobs is None else options.jobs
    if jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {jobs}")
    study = read_study(options.study, options.seeds)
    if options.variants:
        study = select_variants(study, options.variants)
    preset = options.preset or (preset_for_a_gpu(study.bundle) if has_gpu else "cpu")
    folder = options.output_dir or study.bundle / "eval" / f"{study.name}-{preset}"
    complete = run_study(study, folder, preset, options.dataset_dir, jobs, options.tracking_uri)
    _write_page(folder, folder)
    return 0 if complete else 1


def report(options: argparse.Namespace) -> None:
    """Write the page again."""
    _write_page(options.folder, options.output_dir or options.folder, not options.without_images)


def _write_page(study: Path, target: Path, images: bool = True) -> None:
    from monai_iels.study import closing_words, compare_variants, read_results, write_report

    results = read_results(study)
    comparison = compare_variants(results)
    write_report(results, target, study if images else None, comparison)
    print(closing_words(results, comparison, target))
