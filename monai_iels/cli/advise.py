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

"""The command ``monai-iels advise``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["add_commands"]

_BUNDLES = Path("bundles")


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser of ``monai-iels``."""
    command = add("advise", _advise, "look at labels, say what seems to be wrong with them, and what to try")
    command.add_argument("--root", required=True, type=Path, metavar="DIR", help="folder of the data")
    which = command.add_mutually_exclusive_group()
    known = "a data set, such as wbc, or the folder of a bundle of your own, such as bundles/mine"
    which.add_argument("--bundle", help=f"{known} (default: what the folder looks like)")
    which.add_argument("--labels", metavar="FOLDER", help="folder of the labels below DIR, if there is no bundle")
    command.add_argument("--cases", type=int, default=100, help="largest number of labels to look at (default: 100)")
    command.add_argument("--output_dir", type=Path, default=Path("advice"), help="where to write (default: advice)")
    command.add_argument("--cache_dir", help="where archives are unpacked (default: your cache folder)")


def _advise(options: argparse.Namespace) -> None:
    if options.cases < 1:
        raise ValueError(f"--cases must be at least 1, got {options.cases}")
    folder = Path(os.path.realpath(options.output_dir))
    if folder.is_relative_to(os.path.realpath(options.root)):
        raise ValueError(f"--output_dir must not lie in the folder of the data, got {options.output_dir}")
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--output_dir must be a folder, got the file {options.output_dir}")
    from monai_iels.advice import advise

    files, bundle = _labels(options)
    advice = advise(files, options.cases)
    print(f"{advice}\n", flush=True)
    steps = advice.save(options.output_dir, options.root, bundle)
    sheet = options.output_dir / "labels.png"
    print(f"{steps}\n\nThe worst labels are drawn in {sheet}; all of this is in report.md beside it.")


def _labels(options: argparse.Namespace) -> tuple[Any, Path | None]:
    """Return the labels, and the folder of the bundle if one is known."""
    from monai_iels.advice import find_labels, labels_in_folder, labels_of_bundle, labels_of_source
    from monai_iels.data import SOURCES

    if options.labels is not None:
        return labels_in_folder(options.root / options.labels), None
    if options.bundle is None:
        return find_labels(options.root, options.cache_dir), None
    if options.bundle in SOURCES:
        bundle = _BUNDLES / options.bundle
        return labels_of_source(options.bundle, options.root, options.cache_dir), bundle if bundle.is_dir() else None
    if not os.path.isdir(options.bundle):
        names = ", ".join(SOURCES)
        raise ValueError(f"there is no bundle '{options.bundle}': give one of {names}, or the folder of a bundle")
    return labels_of_bundle(Path(options.bundle), options.root, options.cache_dir), Path(options.bundle)
