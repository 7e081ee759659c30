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

"""``monai-iels tracking replay DIR``: deliver what a tracking server has missed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from monai_iels._terminal import first_line
from monai_iels.cli import ADDRESS_OF_SERVER

__all__ = ["add_commands"]


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser of ``monai-iels tracking``."""
    command = add("replay", _replay, "deliver what a tracking server has missed")
    command.add_argument("folder", type=Path, metavar="DIR", help="output folder of a training, or one above several")
    command.add_argument("--tracking_uri", help=ADDRESS_OF_SERVER)


def _replay(options: argparse.Namespace) -> int:
    """Deliver the journals below a folder; return 1 if one of them could not be delivered."""
    from monai_iels.tracking import JOURNAL, Journal

    files = sorted(options.folder.rglob(JOURNAL))
    if not files:
        raise ValueError(f"there is no tracked training in {options.folder}: no {JOURNAL} below it")
    delivered = [_deliver(Journal(file.parent), options.tracking_uri) for file in files]
    return 0 if all(delivered) else 1


def _deliver(journal: Any, tracking_uri: str | None) -> bool:
    """Deliver a journal, and print what came of it."""
    from monai_iels.tracking import deliver

    try:
        journal.refuse_links()
        address = journal.address(tracking_uri)
        count = len(journal.pending(address))
        run_id = deliver(journal, address)
    except (ValueError, OSError) as error:  # not a journal, or not readable
        print(error, file=sys.stderr)
    except Exception as error:
        print(
            f"{journal.folder}: {count} entries could not be delivered to {address} ({first_line(error)}). "
            "If the server has moved, or wants a password, set --tracking_uri or MLFLOW_TRACKING_URI.",
            file=sys.stderr,
        )
    else:
        print(f"{journal.folder}: {count} entries delivered to run {run_id} at {address}.")
        return True
    return False
