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

"""The command line: ``python -m monai_iels.handlers replay DIR`` delivers what a tracking server missed."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from monai_iels.errors import first_line
from monai_iels.handlers.addresses import remember
from monai_iels.handlers.journal import Journal, deliver

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Deliver the journals below a folder; the result is the exit code."""
    parser = argparse.ArgumentParser(prog="python -m monai_iels.handlers", description="Deliver kept tracking.")
    parser.add_argument("command", choices=["replay"])
    parser.add_argument("folder", type=Path, help="a training's output folder, or one above several")
    parser.add_argument("--tracking_uri", help="by default MLFLOW_TRACKING_URI, or the training's own")
    options = parser.parse_args(arguments)
    files = sorted(options.folder.rglob("journal.jsonl"))
    if not files:
        print(f"{options.folder}: expected a training's journal.jsonl below, found none.", file=sys.stderr)
        return 1
    delivered = [_replay(Journal(file.parent), options.tracking_uri) for file in files]
    return 0 if all(delivered) else 1


def _replay(journal: Journal, tracking_uri: str | None) -> bool:
    """Deliver a journal, and say what came of it."""
    try:
        journal.refuse_links()
        address = remember(tracking_uri) if tracking_uri else journal.address()
        count = len(journal.pending(address))
    except ValueError as error:
        print(error, file=sys.stderr)
        return False
    try:
        run_id = deliver(journal, address)
    except Exception as error:
        print(
            f"{journal.folder}: expected a server that takes {count} entries at {address}, found "
            f"'{first_line(error)}'. If it has moved, or wants a password, set --tracking_uri or MLFLOW_TRACKING_URI.",
            file=sys.stderr,
        )
        return False
    print(f"{journal.folder}: {count} entries delivered to run {run_id} at {address}.")
    return True


if __name__ == "__main__":
    sys.exit(main())
