# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The command ``monai-iels advise``."""

import argparse
import os
from pathlib import Path

from monai_iels import advice
from monai_iels.data import SOURCES


def advise(options: argparse.Namespace) -> None:
    """Print and write the advice, and say what to type next."""
    folder = Path(os.path.realpath(options.output_dir))
    if folder.is_relative_to(os.path.realpath(options.root)):
        raise ValueError(f"--output_dir must not lie in the folder of the data, got {options.output_dir}")
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--output_dir must be a folder, got the file {options.output_dir}")
    files, bundle = _labels(options)
    found = advice.advise(files, options.cases)
    print(f"{found}\n", flush=True)
    steps = found.save(options.output_dir, options.root, bundle)
    sheet = options.output_dir / "labels.png"
    print(f"{steps}\n\nThe worst labels are drawn in {sheet}; all of this is in report.md beside it.")


def _labels(options: argparse.Namespace) -> tuple[advice.LabelFiles, Path | None]:
    """Return the labels, and the folder of the bundle if one is known."""
    if options.labels is not None:
        return advice.labels_in_folder(options.root / options.labels), None
    if options.bundle is None:
        return advice.find_labels(options.root, options.cache_dir), None
    if options.bundle in SOURCES:
        bundle = Path("bundles") / options.bundle
        return advice.labels_of_source(
            options.bundle, options.root, options.cache_dir
        ), bundle if bundle.is_dir() else None
    if not os.path.isdir(options.bundle):
        known = f"give one of {', '.join(SOURCES)}, or the folder of a bundle"
        raise ValueError(f"there is no bundle '{options.bundle}': {known}")
    return advice.labels_of_bundle(Path(options.bundle), options.root, options.cache_dir), Path(options.bundle)
