# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The commands that need a tracking server: ``monai-iels registry ...`` and ``monai-iels tracking replay``."""

import argparse
import sys
from pathlib import Path

from monai_iels import registry
from monai_iels._terminal import first_line
from monai_iels.run_folder import RunFolder
from monai_iels.tracking import JOURNAL, Journal, deliver


def _address(options: argparse.Namespace) -> str:
    """Return the address of the server that ``--tracking_uri`` or the training in ``--root`` names."""
    address = Journal(RunFolder(options.root).tracking).address(options.tracking_uri)
    remedy = "set --root to the output folder of a training, or --tracking_uri to a server"
    if not address:
        raise ValueError(f"there is no tracked training in {options.root}: {remedy}")
    database = Path(address.removeprefix("sqlite:///"))
    if address.startswith("sqlite:///") and not database.exists():
        raise ValueError(f"{database} does not exist: {remedy}")
    return address


def register(options: argparse.Namespace) -> int:
    """Register the best weights of a training; return 1 if that failed."""
    return 0 if registry.register(options.root, options.name, _address(options)) else 1


def promote(options: argparse.Namespace) -> None:
    """Move an alias to a version."""
    with registry.server_in_use(_address(options)):
        registry.promote(options.name, options.version, options.alias)
    print(f"{options.alias} of {options.name} is now version {options.version}.")


def export(options: argparse.Namespace) -> None:
    """Write a version as a checkpoint."""
    with registry.server_in_use(_address(options)):
        registry.export_version(options.name, options.version, options.file)
    print(f"Wrote {options.file}. Predict: python -m monai.bundle run ... --checkpoint {options.file}")


def replay(options: argparse.Namespace) -> int:
    """Deliver the journals below a folder; return 1 if one of them could not be delivered."""
    files = sorted(options.folder.rglob(JOURNAL))
    if not files:
        raise ValueError(f"there is no tracked training in {options.folder}: no {JOURNAL} below it")
    failures = 0
    for file in files:
        journal = Journal(file.parent)
        try:
            journal.refuse_links()
            address = journal.address(options.tracking_uri)
            count = len(journal.pending(address))
            run_id = deliver(journal, address)
            print(f"{journal.folder}: {count} entries delivered to run {run_id} at {address}.")
        except (ValueError, OSError) as error:  # not a journal, or not readable
            failures += 1
            print(error, file=sys.stderr)
        except Exception as error:
            failures += 1
            problem = f"{count} entries could not be delivered to {address} ({first_line(error)})"
            remedy = "If the server has moved, set --tracking_uri; if it wants a password, MLFLOW_TRACKING_PASSWORD."
            print(f"{journal.folder}: {problem}. {remedy}", file=sys.stderr)
    return min(failures, 1)
