# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""The commands ``monai-iels data download|check|synthesize``."""

import argparse
import json
import os
import shlex
from pathlib import Path

from monai_iels.data import SOURCES, Source, check_source, download_archive


def named(name: str) -> Source | Path:
    """Return one of the data sets, or the folder of a bundle."""
    return Path(name) if name not in SOURCES and os.path.isdir(name) else _source(name)


def _source(name: str) -> Source:
    if name in SOURCES:
        return SOURCES[name]
    bundles = "for a bundle, give its folder, such as bundles/mine"
    if os.path.dirname(name):
        raise ValueError(f"there is no folder {name}: {bundles}")
    raise ValueError(f"unknown data set '{name}': choose one of {', '.join(SOURCES)}; {bundles}")


def download_set(options: argparse.Namespace) -> int:
    """Download a data set, and check it."""
    source = _source(options.name)
    for sentence in download_archive(source, options.root, options.url):
        print(sentence)
    report = check_source(source, options.root)
    print(report)
    return 1 if report.problems else 0


def check_set(options: argparse.Namespace) -> int:
    """Check one of the six data sets, or the data of a bundle of the user's own."""
    from monai_iels.bundles import check_data

    found = named(options.name)
    places = (options.root, options.cache_dir)
    report = check_data(found, *places) if isinstance(found, Path) else check_source(found, *places)
    print(json.dumps(report.to_dict(), indent=1) if options.json else report)
    return 1 if report.problems else 0


def synthesize_set(options: argparse.Namespace) -> None:
    """Write a synthetic set."""
    source = _source(options.name)
    root = source.synthesize(options.root, options.count, options.seed, options.size)
    print(f"{options.count} synthetic cases in the layout of {source.title} are in {root}.")
    print(f"Next: monai-iels data check {source.name} --root {shlex.quote(str(root))}")
