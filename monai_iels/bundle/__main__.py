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

"""Compose the bundles' configs, or check them: ``python -m monai_iels.bundle compose|check bundles``."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from monai_iels.bundle.composing import compose

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Compose the configs of all bundles, or check them; the result is the exit code."""
    parser = argparse.ArgumentParser(prog="python -m monai_iels.bundle", description="Compose the bundles' configs.")
    parser.add_argument("command", choices=("compose", "check"))
    parser.add_argument("bundles", type=Path, help="the folder that has 'shared' and the bundles")
    options = parser.parse_args(arguments)
    folders = sorted(file.parent for file in options.bundles.glob("*/dataset.yaml"))
    if not folders:
        print(f"{options.bundles}: expected folders with a dataset.yaml, found none.", file=sys.stderr)
        return 1
    stale = []
    try:
        composed = {folder: compose(folder, options.bundles / "shared") for folder in folders}
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    for folder, texts in composed.items():
        for name, text in texts.items():
            file = folder / name
            if options.command == "compose":
                file.parent.mkdir(exist_ok=True)
                file.write_text(text, encoding="utf-8")
            elif not file.exists() or file.read_text("utf-8") != text:
                stale.append(file)
    for file in stale:
        print(f"{file}: expected what `compose` writes, found another content. Run compose.", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
