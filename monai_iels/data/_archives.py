# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""Archives: unpacked within limits, completely or not at all."""

import gzip
import tarfile
import zipfile
import zlib
from pathlib import Path

from monai.config import PathLike

from monai_iels._terminal import first_line
from monai_iels.data._cache import made_once, state_of
from monai_iels.data._problems import DataError, Problem, opening

_CLASHES = (FileExistsError, IsADirectoryError, NotADirectoryError)  # one path is a file and also a folder
_DAMAGES = (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError, RuntimeError)
_SMALL = 10 * 10**9  # an archive may contain so many bytes, and beyond these only _RATIO times its own size
_RATIO = 200
_AGAIN = "Nothing was unpacked. Download the archive again from its official source."
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
                _check_size(archive, sum(entry.size for entry in stream))
                stream.extractall(folder, filter="data")
                while stream.fileobj and stream.fileobj.read(1 << 20):
                    pass  # gzip compares its checksum at the end
            else:
                _check_size(archive, sum(entry.file_size for entry in stream.infolist()))
                stream.extractall(folder)
    except DataError:
        raise
    except (*_CLASHES, *_DAMAGES) as error:
        raise DataError(Problem("unreadable", str(archive), f"broken archive ({first_line(error)})", _AGAIN)) from error


def _check_size(archive: Path, total: int) -> None:
    """Refuse an archive whose contents are far larger than itself."""
    limit = max(_SMALL, _RATIO * archive.stat().st_size)
    if total > limit:
        problem = f"it contains {total / 1e9:.1f} GB, at most {limit / 1e9:.1f} GB are unpacked"
        raise DataError(Problem("size", str(archive), problem, _BY_HAND))
