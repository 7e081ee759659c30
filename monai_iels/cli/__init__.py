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
"""The one command ``monai-iels advise|data|bundle|study|registry|tracking|nnunet``, also ``python -m monai_iels``."""

from __future__ import annotations

import argparse
import importlib
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import monai_iels
from monai_iels._terminal import first_line
from monai_iels.cli import advise

__all__ = ["ADDRESS_OF_SERVER", "main", "make_parser", "run_program"]

ADDRESS_OF_SERVER = "address of the server (default: MLFLOW_TRACKING_URI, or where the training was tracked)"
_GROUPS = {
    "data": "download, check or synthesize a data set",
    "bundle": "compose the configs of the bundles",
    "study": "compare variants of a training",
    "registry": "look after registered models",
    "tracking": "deliver what was tracked while a server was away",
    "nnunet": "train with nnU-Net and a layer",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 if all is well, 1 if not, 2 for a wrong command, 130 for Ctrl-C."""
    options = make_parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("monai_iels").setLevel(logging.INFO)
    try:
        return options.run(options) or 0
    except KeyboardInterrupt:
        print("Interrupted. Files under their final names are complete; the same command continues.", file=sys.stderr)
        return 130
    except Exception as error:
        text = _sentence(error)
        if text is None:
            raise
        print(text, file=sys.stderr)
        return 1


def _sentence(error: Exception) -> str | None:
    """Return what a user should know about an error, or None if only the traceback tells."""
    if isinstance(error, ModuleNotFoundError):
        missing = f"this command needs {error.name}: install it with pip install 'monai_iels[bundles]'"
        return missing if error.name else str(error)
    if isinstance(error, OSError) and error.errno is not None:
        place = error.filename or "a file"
        reason = (error.strerror or str(error)).lower()
        return f"{place} cannot be read or written ({reason}): free space there, or choose another folder"
    if isinstance(error, ValueError | OSError):
        return str(error)
    from_server = type(error).__module__.startswith(("mlflow.", "sqlalchemy.", "monai_iels.tracking."))
    return first_line(error) if from_server else None


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(prog="monai-iels", description=monai_iels.__doc__)
    parser.add_argument("--version", action="version", version=f"monai-iels {monai_iels.__version__}")
    groups = parser.add_subparsers(required=True, title="commands, and groups of commands", metavar="COMMAND")
    for name, words in _GROUPS.items():
        group = groups.add_parser(name, help=words, description=f"{words[0].upper()}{words[1:]}.")
        commands = group.add_subparsers(required=True, title="commands", metavar="COMMAND")
        importlib.import_module(f"monai_iels.cli.{name}").add_commands(partial(_add_command, commands))
    advise.add_commands(partial(_add_command, groups))
    return parser


def _add_command(commands: Any, name: str, run: Callable[..., int | None], words: str) -> argparse.ArgumentParser:
    """Add a command; ``run`` returns its exit code, or None if all is well."""
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=words, description=f"{words[0].upper()}{words[1:]}."
    )
    command.set_defaults(run=run)
    return command


def run_program() -> None:
    """Start the command as a program; SIGTERM ends it as Ctrl-C does, so that unfinished files are removed."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.path.append("")  # as with `python -m`: a bundle may name a module in the folder that one starts from
    sys.exit(main())
