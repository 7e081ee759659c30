# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""The fingerprint of a data set: which files a training used, wherever they were."""

import contextlib
import hashlib
import os
from pathlib import Path

from monai_iels.data._cache import made_once, state_of
from monai_iels.data._cases import Datalists, all_files

_LARGE = 2**26  # bytes; less is read in a moment


def fingerprint(datalists: Datalists) -> str:
    """Return a SHA-256 of the names and contents of all files; their folders and their split make no difference.

    Files of more than 64 MB in all are read once: the user's cache folder keeps their fingerprint until the name, size
    or modification time of one of them changes.
    """
    files = all_files(datalists)
    if sum(map(os.path.getsize, files)) < _LARGE:
        return _digest(files)

    def write(folder: Path) -> None:
        (folder / "sha256").write_text(_digest(files), encoding="utf-8")

    with contextlib.suppress(OSError):  # no cache that can be written
        return (made_once(None, f"fingerprint-{state_of(files)}", write) / "sha256").read_text("utf-8")
    return _digest(files)


def _digest(files: list[str]) -> str:
    digests = sorted(f"{Path(file).name} {hashlib.sha256(Path(file).read_bytes()).hexdigest()}" for file in files)
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()
