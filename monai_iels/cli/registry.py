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
"""``monai-iels registry list|register|promote|export``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from monai_iels.cli import ADDRESS_OF_SERVER

__all__ = ["add_commands"]


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands about registered models to the parser of ``monai-iels registry``."""
    listing = add("list", _at_server(_list), "show what is registered")
    adding = add("register", _register, "register the best weights of a training")
    adding.add_argument("name")
    moving = add("promote", _at_server(_promote), "move an alias to a version")
    moving.add_argument("name")
    moving.add_argument("version")
    moving.add_argument("--alias", default="champion")
    writing = add("export", _at_server(_export), "write a version back as a checkpoint")
    writing.add_argument("name")
    writing.add_argument("version")
    writing.add_argument("file", type=Path)
    for command in (listing, adding, moving, writing):
        command.add_argument("--root", default=".", help="output folder of a training")
        command.add_argument("--tracking_uri", help=ADDRESS_OF_SERVER)


def _at_server(command: Callable[[argparse.Namespace], None]) -> Callable[[argparse.Namespace], None]:
    """Let a command use the server that ``--tracking_uri`` or the training in ``--root`` names."""

    def run(options: argparse.Namespace) -> None:
        from monai_iels.registry import server_in_use

        with server_in_use(_address(options)):
            command(options)

    return run


def _address(options: argparse.Namespace) -> str:
    from monai_iels.run_folder import RunFolder
    from monai_iels.tracking import Journal

    address = Journal(RunFolder(options.root).tracking).address(options.tracking_uri)
    remedy = "set --root to the output folder of a training, or --tracking_uri to a server"
    if not address:
        raise ValueError(f"there is no tracked training in {options.root}: {remedy}")
    database = Path(address.removeprefix("sqlite:///"))
    if address.startswith("sqlite:///") and not database.exists():
        raise ValueError(f"{database} does not exist: {remedy}")
    return address


def _list(options: argparse.Namespace) -> None:
    from monai_iels.registry import list_versions

    print(f"{'model':<28}{'version':>8}  {'Dice':<8}{'data':<24}aliases")
    for row in list_versions():
        print(f"{row.model:<28}{row.version:>8}  {row.dice:<8}{row.data:<24}{', '.join(row.aliases)}")


def _register(options: argparse.Namespace) -> int:
    from monai_iels.registry import register

    return 0 if register(options.root, options.name, _address(options)) else 1


def _promote(options: argparse.Namespace) -> None:
    from monai_iels.registry import promote

    promote(options.name, options.version, options.alias)
    print(f"{options.alias} of {options.name} is now version {options.version}.")


def _export(options: argparse.Namespace) -> None:
    from monai_iels.registry import export_version

    export_version(options.name, options.version, options.file)
    print(f"Wrote {options.file}. Predict: python -m monai.bundle run ... --checkpoint {options.file}")
