# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""Archives: unpacked within limits, completely or not at all."""

import gzip
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from monai.config import PathLike
from tqdm import tqdm

from monai_iels._terminal import first_line
from monai_iels.data._cache import made_once, state_of
from monai_iels.data._problems import DataError, Problem, opening

_BROKEN = (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError, RuntimeError)
_CLASHES = (FileExistsError, IsADirectoryError, NotADirectoryError)
_SMALL = 10 * 10**9  # an archive may contain so many bytes, and beyond these only _RATIO times its own size
_RATIO = 200
_AGAIN = "Nothing was unpacked. Download the archive again from its official source."
_MORE_SPACE = "Nothing was unpacked. Free space, or choose another folder with --cache_dir or --root."
_BY_HAND = "Nothing was unpacked. If you trust the archive, unpack it yourself and pass the folder."


def is_archive(path: Path) -> bool:
    """Return whether this is the name of an archive that :func:`extract` can open."""
    return path.name.lower().endswith((".zip", ".tar", ".tar.gz", ".tgz"))


def unpack(archive: Path, cache_dir: PathLike | None = None) -> Path:
    """Unpack an archive into the cache once, and return the folder; nothing is written beside the archive.

    Raises:
        DataError: if :func:`extract` refuses the archive.
    """
    name = f"{archive.name.split('.')[0]}-{state_of([str(archive)])}"
    return made_once(cache_dir, name, lambda folder: extract(archive, folder))


def extract(archive: Path, folder: Path) -> None:
    """Unpack an archive into an empty folder; use it inside of :func:`monai_iels._files.atomic`.

    Nothing is written outside of the folder: ``tarfile`` refuses, ``zipfile`` drops ``..`` and makes files of links.

    Raises:
        DataError: if the archive is broken or too large, or would write outside of the folder.
    """
    with opening(archive):
        archive.open("rb").close()
    try:
        with zipfile.ZipFile(archive) if archive.name.lower().endswith(".zip") else tarfile.open(archive) as stream:
            if isinstance(stream, tarfile.TarFile):
                _check_size(archive, (entry.size for entry in stream), folder)
                stream.extractall(folder, filter="data")
                while stream.fileobj and stream.fileobj.read(1 << 20):
                    pass  # gzip compares its checksum at the end
            else:
                _check_size(archive, (entry.file_size for entry in stream.infolist()), folder)
                stream.extractall(folder)
    except DataError:
        raise
    except _CLASHES as error:
        raise DataError(Problem("unreadable", str(archive), "one path is a file and also a folder", _AGAIN)) from error
    except _BROKEN as error:
        raise DataError(Problem("unreadable", str(archive), f"broken archive ({first_line(error)})", _AGAIN)) from error


def _check_size(archive: Path, sizes: Iterable[int], folder: Path) -> None:
    """Refuse an archive whose contents are far larger than itself, or than what the disk has left."""
    total, own, free = sum(sizes), archive.stat().st_size, shutil.disk_usage(folder).free
    limit = max(_SMALL, _RATIO * own)
    if total > limit:
        problem = f"its {_in_words(own)} contain {_in_words(total)}, at most {_in_words(limit)} are unpacked"
        raise DataError(Problem("size", str(archive), problem, _BY_HAND))
    if total > free:
        problem = f"its contents need {_in_words(total)}, but only {_in_words(free)} are free"
        raise DataError(Problem("size", str(archive), problem, _MORE_SPACE))


def _in_words(count: int) -> str:
    """Return a number of bytes as ``1.50GB``."""
    return tqdm.format_sizeof(count, "B")
