# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""``monai-iels bundle compose`` and ``monai-iels bundle check``."""

import argparse
import sys
from pathlib import Path


def _stale(bundles: Path) -> dict[Path, str]:
    """Return the text of each file that is missing or differs from what compose writes."""
    from monai_iels.bundles import compose as composed

    if not bundles.is_dir():
        raise ValueError(f"there is no folder {bundles} here: start in the folder that contains it")
    folders = [file.parent for file in sorted(bundles.glob("*/dataset.yaml"))]
    if not folders:
        raise ValueError(f"{bundles} has no bundle: there is no folder with a dataset.yaml in it")
    files = {folder / name: text for folder in folders for name, text in composed(folder, bundles / "shared").items()}
    return {file: text for file, text in files.items() if not file.exists() or file.read_text("utf-8") != text}


def compose(options: argparse.Namespace) -> None:
    """Write the files that are missing or differ."""
    stale = _stale(options.bundles)
    for file, text in stale.items():
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
        print(f"Wrote {file}")
    if not stale:
        print(f"Nothing changed: all composed files in {options.bundles} are up to date.")


def check(options: argparse.Namespace) -> int:
    """Name these files."""
    stale = _stale(options.bundles)
    for file in stale:
        print(f"{file} is not what compose writes: run monai-iels bundle compose {options.bundles}", file=sys.stderr)
    return 1 if stale else 0
