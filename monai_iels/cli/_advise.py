# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The command ``monai-iels advise``."""

import argparse
from pathlib import Path

from monai_iels import advice
from monai_iels.cli._data import named


def advise(options: argparse.Namespace) -> None:
    """Print and write the advice, and say what to type next."""
    if options.output_dir.resolve().is_relative_to(options.root.resolve()):
        raise ValueError(f"--output_dir must not lie in the folder of the data, got {options.output_dir}")
    files, bundle = _labels(options)
    found = advice.advise(files, options.cases)
    print(f"{found}\n", flush=True)
    print(found.save(options.output_dir, options.root, bundle))
    print(f"\nThe worst labels are drawn in {options.output_dir / 'labels.png'}.")


def _labels(options: argparse.Namespace) -> tuple[advice.LabelFiles, Path | None]:
    """Return the labels, and the folder of the bundle if one is known."""
    if options.labels is not None:
        return advice.labels_in_folder(options.root / options.labels), None
    if options.bundle is None:
        return advice.find_labels(options.root, options.cache_dir), None
    found = named(options.bundle)
    if isinstance(found, Path):
        return advice.labels_of_bundle(found, options.root, options.cache_dir), found
    bundle = Path("bundles", found.name)
    return advice.labels_of_source(found.name, options.root, options.cache_dir), bundle if bundle.is_dir() else None
