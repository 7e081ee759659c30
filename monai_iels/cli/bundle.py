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

"""``monai-iels bundle compose`` and ``monai-iels bundle check``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

__all__ = ["add_commands"]


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands about bundles to the parser of ``monai-iels bundle``."""
    composing = add("compose", _compose, "write the configs and pages of all bundles")
    checking = add("check", _check, "name the files that differ from what compose writes")
    for command in (composing, checking):
        command.add_argument("bundles", type=Path, help="the folder with 'shared' and the bundles")


def _composed(bundles: Path) -> dict[Path, str]:
    """Return the text of every composed file of every bundle."""
    from monai_iels.bundles import compose

    folders = sorted(file.parent for file in bundles.glob("*/dataset.yaml"))
    if not folders:
        if not bundles.is_dir():
            raise ValueError(f"there is no folder {bundles} here: start in the folder that contains it")
        raise ValueError(f"{bundles} has no bundle: there is no folder with a dataset.yaml in it")
    files = {}
    for folder in folders:
        for name, text in compose(folder, bundles / "shared").items():
            files[folder / name] = text
    return files


def _stale(bundles: Path) -> dict[Path, str]:
    """Return the text of each file that is missing or differs from what compose writes."""
    files = _composed(bundles)
    return {file: text for file, text in files.items() if not file.exists() or file.read_text("utf-8") != text}


def _compose(options: argparse.Namespace) -> None:
    stale = _stale(options.bundles)
    for file, text in stale.items():
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
        print(f"Wrote {file}")
    if not stale:
        print(f"Nothing changed: all composed files in {options.bundles} are up to date.")


def _check(options: argparse.Namespace) -> int:
    stale = _stale(options.bundles)
    for file in stale:
        remedy = f"run monai-iels bundle compose {options.bundles}"
        print(f"{file} is not what compose writes: {remedy}", file=sys.stderr)
    return 1 if stale else 0
