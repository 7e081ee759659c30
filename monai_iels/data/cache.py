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

"""The cache: what is made once from the data, completely or not at all."""

import io
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from monai.config import PathLike
from PIL import Image

__all__ = ["cache_folder", "complete_or_nothing", "made_once", "unwritable", "write_image"]

_COMPLETE = ".complete"  # in each folder of the cache: how many files of how many bytes it has


def cache_folder(cache_dir: PathLike | None = None) -> Path:
    """Return the folder for what is made once from the data: ``cache_dir``, or ``monai_iels`` in the user's cache."""
    if cache_dir is not None:
        return Path(cache_dir).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "monai_iels"


def made_once(target: Path, make: Callable[[Path], None]) -> Path:
    """Return a folder of the cache; ``make`` fills it where it is absent, or lacks some of its files.

    A folder that is not complete was left by an earlier version, or has lost files since; it is replaced.
    """
    if not _is_complete(target):
        with complete_or_nothing(target) as folder:
            folder.mkdir()
            make(folder)
            (folder / _COMPLETE).write_text(_census(folder), "utf-8")
            if os.path.lexists(target) and not _is_complete(target):
                os.replace(target, folder.with_name("incomplete"))  # removed with the temporary folder
    return target


def _is_complete(folder: Path) -> bool:
    try:
        return (folder / _COMPLETE).read_text("utf-8") == _census(folder)
    except OSError:
        return False


def _census(folder: Path) -> str:
    files = [os.path.join(place, name) for place, _, names in os.walk(folder) for name in names if name != _COMPLETE]
    return f"{len(files)} files, {sum(map(os.path.getsize, files))} bytes\n"


@contextmanager
def complete_or_nothing(target: Path, option: str = "--cache_dir") -> Iterator[Path]:
    """Give a temporary path beside ``target`` to fill, and move it there when all went well; else remove it.

    Args:
        target: the file or folder to make.
        option: what a user sets to have it made elsewhere.

    Raises:
        ValueError: if it cannot be written, such as on a full disk.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=target.parent) as folder:
            path = Path(folder) / target.name
            yield path
            _move(path, target)
    except OSError as error:
        if error.errno is None:
            raise
        raise ValueError(unwritable(target, error, option)) from error


def unwritable(target: Path, error: OSError, option: str) -> str:
    """Say that a file or folder cannot be written, and which option chooses another."""
    reason = (error.strerror or str(error)).lower()
    return f"{target} cannot be written ({reason}): free space there, or choose another folder with {option}."


def _move(path: Path, target: Path) -> None:
    try:
        os.replace(path, target)
    except OSError:
        if not (target.is_dir() and any(target.iterdir())):
            raise  # otherwise another process was faster, and made the same


def write_image(image: Image.Image, path: Path, **options: Any) -> None:
    """Write an image in the format of its suffix, or raise an error.

    Pillow itself does not look whether all of a BMP or JPEG file was written: on a full disk it leaves half of one.
    """
    stream = io.BytesIO()
    image.save(stream, Image.registered_extensions()[path.suffix], **options)
    path.write_bytes(stream.getvalue())
