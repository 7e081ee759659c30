# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""The cache: folders that are made once from the data, and are complete or absent."""

import hashlib
import io
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
from monai.config import PathLike
from PIL import Image

from monai_iels._files import atomic

_COMPLETE = ".complete"  # in each folder of the cache: the number and total size of its files


def made_once(cache_dir: PathLike | None, name: str, make: Callable[[Path], None]) -> Path:
    """Return the folder ``name`` of the cache; ``make`` fills it if it is absent or incomplete.

    A folder is incomplete if an earlier version left it, or if it has lost files since. It is replaced.

    Args:
        cache_dir: the cache; by default the folder ``monai_iels`` in the user's cache.
        name: name of the folder.
        make: writes the files into an empty folder.

    Raises:
        OSError: if the folder cannot be written, with the folder as its file name.
    """
    target = Path(cache_dir or platformdirs.user_cache_dir("monai_iels")).expanduser() / name
    if not _is_complete(target):
        with atomic(target) as folder:
            folder.mkdir()
            make(folder)
            (folder / _COMPLETE).write_text(_count_files(folder), "utf-8")
            if os.path.lexists(target) and not _is_complete(target):
                os.replace(target, folder.with_name("incomplete"))  # removed with the temporary folder
    return target


def state_of(files: Iterable[str]) -> str:
    """Return a short text that changes with the names, sizes and times of files, for the name of a folder."""
    state = hashlib.sha256()
    for file in sorted(files):
        stat = os.stat(file)
        state.update(f"{file} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return state.hexdigest()[:12]


def _is_complete(folder: Path) -> bool:
    try:
        return (folder / _COMPLETE).read_text("utf-8") == _count_files(folder)
    except OSError:
        return False


def _count_files(folder: Path) -> str:
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.name != _COMPLETE]
    return f"{len(sizes)} files, {sum(sizes)} bytes\n"


def write_image(pixels: np.ndarray, path: Path, **options: Any) -> None:
    """Write an image in the format of its suffix, or raise an error; its folder is created.

    Pillow itself does not notice if a BMP or JPEG file was written only in part, as on a full disk.
    """
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, Image.registered_extensions()[path.suffix], **options)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(stream.getvalue())
