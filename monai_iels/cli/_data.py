# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""The commands ``monai-iels data download|check|synthesize``."""

import argparse
import json
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def _source(name: str) -> Any:
    from monai_iels.data import SOURCES

    if name in SOURCES:
        return SOURCES[name]
    bundles = "to check a bundle, give its folder, such as bundles/mine"
    if os.path.dirname(name):
        raise ValueError(f"there is no folder {name}: {bundles}")
    raise ValueError(f"unknown data set '{name}': choose one of {', '.join(SOURCES)}; {bundles}")


def download_set(options: argparse.Namespace) -> int:
    """Download a data set, and check it."""
    from monai_iels.data import check_source, download_archive

    source = _source(options.name)
    with _writing("--root"):
        for sentence in download_archive(source, options.root, options.url):
            print(sentence)
    report = check_source(source, options.root)
    print(report)
    return 1 if report.problems else 0


def check_set(options: argparse.Namespace) -> int:
    """Check one of the six data sets, or the data of a bundle of the user's own."""
    from monai_iels.bundles import check_data
    from monai_iels.data import SOURCES, check_source

    with _writing("--cache_dir"):
        if options.name not in SOURCES and os.path.isdir(options.name):
            report = check_data(Path(options.name), options.root, options.cache_dir)
        else:
            report = check_source(_source(options.name), options.root, options.cache_dir)
    print(json.dumps(report.to_dict(), indent=1) if options.json else report)
    return 1 if report.problems else 0


def synthesize_set(options: argparse.Namespace) -> None:
    """Write a synthetic set."""
    source = _source(options.name)
    with _writing("--root"):
        root = source.synthesize(options.root, options.count, options.seed, options.size)
    print(f"{options.count} synthetic cases in the layout of {source.title} are in {root}.")
    print(f"Next: monai-iels data check {source.name} --root {shlex.quote(str(root))}")


@contextmanager
def _writing(option: str) -> Iterator[None]:
    """Turn an error of the disk into a sentence with the option that chooses another folder."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is None:
            raise
        reason = os.strerror(error.errno).lower()
        remedy = f"free space there, or choose another folder with {option}."
        raise ValueError(f"{error.filename} cannot be written ({reason}): {remedy}") from error
