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

"""The command line: ``python -m monai_iels.data download|check|synthesize``."""

import argparse
import json
import shlex
import signal
import sys
from collections.abc import Sequence

from monai_iels.data.check import check_source
from monai_iels.data.datalists import SOURCES
from monai_iels.data.download import download_archive, how_to_get
from monai_iels.data.problems import DataError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the result is the exit code: 0 if all is well, 1 if data is not, 2 for a wrong command."""
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except (DataError, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted; what is under its final name is complete.", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m monai_iels.data", description="Fetch, check or draw a data set.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    fetching = commands.add_parser("download", help="fetch a data set from its official source")
    fetching.add_argument("--url", help="a mirror, or the file:// address of an archive you already have")
    fetching.set_defaults(run=_download)

    checking = commands.add_parser("check", help="open every file and report what is broken")
    checking.add_argument("--json", action="store_true", help="print the report for a machine")
    checking.add_argument("--cache_dir", help="where archives are unpacked (default: your cache folder)")
    checking.set_defaults(run=_check)

    drawing = commands.add_parser("synthesize", help="draw a small set in the official layout")
    drawing.add_argument("--count", type=int, default=60, help="number of images over all sections (default: 60)")
    drawing.add_argument("--seed", type=int, default=0, help="the same seed gives the same bytes (default: 0)")
    drawing.add_argument("--size", type=int, help="height of the images (default: about the originals')")
    drawing.set_defaults(run=_synthesize)

    for command in (fetching, checking, drawing):
        command.add_argument("name", choices=list(SOURCES), help=", ".join(SOURCES))
        command.add_argument("--root", required=True, metavar="DIR", help="the data set's folder")
    return parser


def _download(options: argparse.Namespace) -> int:
    source = SOURCES[options.name]
    if source.archive is None:
        print(how_to_get(source, options.root), file=sys.stderr)
        return 1
    print(f"{source.title}: {source.terms}")
    for sentence in download_archive(source, options.root, options.url):
        print(sentence)
    report = check_source(source, options.root)
    print(report)
    return 1 if report.problems else 0


def _check(options: argparse.Namespace) -> int:
    report = check_source(SOURCES[options.name], options.root, options.cache_dir)
    print(json.dumps(report.to_dict(), indent=1) if options.json else report)
    return 1 if report.problems else 0


def _synthesize(options: argparse.Namespace) -> int:
    source = SOURCES[options.name]
    root = source.synthesize(options.root, options.count, options.seed, options.size)
    print(f"{options.count} drawn cases in the layout of {source.title} are in {root}.")
    print(f"Next: python -m monai_iels.data check {source.name} --root {shlex.quote(str(root))}")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that unfinished files are removed
    sys.exit(main())
