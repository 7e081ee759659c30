# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Files that are complete or not there, and the formats that we write: JSON, tables and weights."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from filelock import FileLock, Timeout

from monai_iels._terminal import first_line, shown

logger = logging.getLogger(__name__)

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


@contextmanager
def atomic(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``target``; move it there if the block succeeds, remove it otherwise.

    Works for a file and for a folder. A folder that another process has created meanwhile stays as it is.

    Raises:
        OSError: if it cannot be written, with ``target`` as its file name.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=".unfinished-", dir=target.parent, ignore_cleanup_errors=True
        ) as folder:
            path = Path(folder) / target.name
            yield path
            if path.is_file():
                with path.open("rb") as stream:
                    os.fsync(stream.fileno())
            try:
                os.replace(path, target)
            except OSError:
                if not (path.is_dir() and target.is_dir() and any(target.iterdir())):
                    raise  # otherwise another process was faster and made the same folder
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(target)) from error


@contextmanager
def drawing(file: Path) -> Iterator[Path]:
    """Yield a temporary path for a picture, and move it to ``file``; if the block fails, only warn."""
    try:
        with atomic(file) as part:
            yield part
    except Exception as error:
        logger.warning(f"{shown(file)} could not be drawn: {first_line(error)}. Everything else goes on.")


@contextmanager
def locked(file: Path, sentence: str) -> Iterator[None]:
    """Keep other processes out of this block.

    Args:
        file: the lock; its folder is created.
        sentence: what the user is told if another process is in the block.

    Raises:
        ValueError: with the sentence.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(file).acquire(timeout=0)
    except Timeout:
        raise ValueError(sentence) from None
    with lock:
        yield


def write_text(text: str, file: Path) -> None:
    """Write a text file completely or not at all."""
    with atomic(file) as part:
        part.write_text(text, encoding="utf-8")


def write_json(content: Any, file: Path, indent: int | None = 1) -> None:
    """Write a JSON file; values that JSON does not know become text."""
    separators = None if indent else (",", ":")
    write_text(json.dumps(content, indent=indent, separators=separators, default=str) + "\n", file)


def read_json(file: Path, *keys: str) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        ValueError: if the file cannot be read, is not a JSON object, or lacks one of ``keys``.
    """
    try:
        content = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{file} cannot be read ({first_line(error)})") from None
    missing = [key for key in keys if not isinstance(content, dict) or key not in content]
    if missing or not isinstance(content, dict):
        raise ValueError(f"{file} is incomplete: {', '.join(missing) or 'a JSON object'} is missing")
    return content


def write_table(table: pd.DataFrame, file: Path) -> None:
    """Write a table as CSV; text that a spreadsheet would run as a formula gets an apostrophe."""
    safe = table.map(lambda cell: f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell)
    with atomic(file) as part:
        safe.to_csv(part, index=False)


def read_table(file: Path) -> pd.DataFrame:
    """Read a table from CSV; the column ``case`` holds names, all others numbers. A missing file is an empty table."""
    if not file.exists():
        return pd.DataFrame()
    table = pd.read_csv(file, dtype=str, keep_default_na=False)
    numbers = table.columns.difference(["case"])
    try:
        table[numbers] = table[numbers].map(lambda cell: float(cell or "nan"))  # exact, unlike pandas' own parser
    except ValueError as error:
        raise ValueError(f"{file} is damaged ({error})") from None
    return table


def save_weights(value: Any, file: Path) -> None:
    """Save tensors with torch, completely or not at all."""
    with atomic(file) as part, part.open("wb") as stream:  # torch's own stream raises no OSError on a full disk
        torch.save(value, stream)
