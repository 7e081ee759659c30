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
"""The commands ``monai-iels data download|check|synthesize``."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["add_commands"]


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands about data sets to the parser of ``monai-iels data``."""
    downloading = add("download", _download, "download a data set from its official source")
    downloading.add_argument("--url", help="a mirror, or the file:// address of an archive you already have")

    checking = add("check", _check, "open every file and report what is broken")
    checking.add_argument("--json", action="store_true", help="print the report as JSON")
    checking.add_argument("--cache_dir", help="where archives are unpacked (default: your cache folder)")

    making = add("synthesize", _synthesize, "make a small synthetic set in the official layout")
    making.add_argument("--count", type=int, default=60, help="number of images over all sections (default: 60)")
    making.add_argument("--seed", type=int, default=0, help="the same seed gives the same bytes (default: 0)")
    making.add_argument("--size", type=int, help="height of the images (default: about that of the originals)")

    names = "wbc, dsb2018, drive, refuge, hippocampus or cityscapes"
    for command, more in ((downloading, ""), (checking, "; or the folder of a bundle of your own"), (making, "")):
        command.add_argument("name", help=names + more)
        command.add_argument("--root", required=True, metavar="DIR", help="folder of the data set")


def _source(name: str) -> Any:
    from monai_iels.data import SOURCES

    if name not in SOURCES:
        bundles = "to check a bundle, give its folder, such as bundles/mine"
        raise ValueError(f"unknown data set '{name}': choose one of {', '.join(SOURCES)}; {bundles}")
    return SOURCES[name]


def _download(options: argparse.Namespace) -> int:
    from monai_iels.data import check_source, download_archive

    source = _source(options.name)
    with _writing("--root"):
        for sentence in download_archive(source, options.root, options.url):
            print(sentence)
    report = check_source(source, options.root)
    print(report)
    return 1 if report.problems else 0


def _check(options: argparse.Namespace) -> int:
    with _writing("--cache_dir"):
        report = _report(options)
    print(json.dumps(report.to_dict(), indent=1) if options.json else report)
    return 1 if report.problems else 0


def _report(options: argparse.Namespace) -> Any:
    """Check one of the six data sets, or the data of a bundle of the user's own."""
    from monai_iels.data import SOURCES, check_source

    if options.name not in SOURCES and os.path.isdir(options.name):
        from monai_iels.bundles import check_data

        return check_data(Path(options.name), options.root, options.cache_dir)
    if os.path.dirname(options.name):
        raise ValueError(f"there is no folder {options.name}: give the folder of a bundle, such as bundles/mine")
    return check_source(_source(options.name), options.root, options.cache_dir)


def _synthesize(options: argparse.Namespace) -> None:
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
        remedy = f"free space there, or choose another folder with {option}"
        raise ValueError(f"{error.filename} cannot be written ({reason}): {remedy}.") from error
