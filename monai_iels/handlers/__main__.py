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
from monai_iels.handlers.journal import Journal, deliver

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Deliver the journals below a folder; the result is the exit code."""
    parser = argparse.ArgumentParser(prog="python -m monai_iels.handlers", description="Deliver kept tracking.")
    parser.add_argument("command", choices=["replay"])
    parser.add_argument("folder", type=Path, help="a training's output folder, or one above several")
    options = parser.parse_args(arguments)
    files = sorted(options.folder.rglob("journal.jsonl"))
    if not files:
        print(f"{options.folder}: expected a training's journal.jsonl below, found none.", file=sys.stderr)
        return 1
    failed = 0
    for file in files:
        journal = Journal(file.parent)
        count = sum(1 for _ in journal.pending())
        try:
            run_id = deliver(journal)
        except Exception as error:
            failed += 1
            found = first_line(error)
            print(f"{file.parent}: expected a server that takes {count} entries, found '{found}'.", file=sys.stderr)
        else:
            print(f"{file.parent}: {count} entries delivered to run {run_id}.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
