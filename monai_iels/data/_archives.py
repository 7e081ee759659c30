# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""Archives: unpacked within limits, completely or not at all."""

import gzip
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from monai.config import PathLike
from tqdm import tqdm

from monai_iels._terminal import first_line
from monai_iels.data._cache import made_once, state_of
from monai_iels.data._problems import DataError, Problem, opening

_BROKEN = (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError, RuntimeError)
_CLASHES = (FileExistsError, IsADirectoryError, NotADirectoryError)
_BYTES = 200 * 10**9  # an archive may contain so much
_SMALL = 10 * 10**9  # beyond this it may contain only _RATIO times its own size; masks alone may shrink to a 700th
_RATIO = 200
_MEMBERS = 10**6
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

    Raises:
        DataError: if the archive is broken or too large, contains links, or would write outside of the folder.
    """
    with opening(archive):
        archive.open("rb").close()
    try:
        with zipfile.ZipFile(archive) if archive.name.lower().endswith(".zip") else tarfile.open(archive) as stream:
            sizes = _check_members(archive, stream, shutil.disk_usage(folder).free)
            if isinstance(stream, tarfile.TarFile):
                stream.extractall(folder, filter="data")
                while stream.fileobj and stream.fileobj.read(1 << 20):
                    pass  # gzip compares its checksum at the end
            else:
                stream.extractall(folder)
        for path, size in sizes.items():
            if (folder / path).stat().st_size != size:
                raise ValueError(f"{path} does not have as many bytes as the archive says")
    except DataError:
        raise
    except _CLASHES as error:
        raise DataError(Problem("unreadable", str(archive), "one path is a file and also a folder", _AGAIN)) from error
    except _BROKEN as error:
        raise DataError(Problem("unreadable", str(archive), f"broken archive ({first_line(error)})", _AGAIN)) from error


def _members(stream: zipfile.ZipFile | tarfile.TarFile) -> Iterator[tuple[PurePosixPath, int, bool, bool]]:
    """Yield the path and size of each member, whether it is a folder, and whether it is a file."""
    if isinstance(stream, tarfile.TarFile):
        for entry in stream:
            yield PurePosixPath(entry.name), entry.size, entry.isdir(), entry.isfile()
    else:
        for info in stream.infolist():
            is_file = stat.S_IFMT(info.external_attr >> 16) in (0, stat.S_IFREG)
            yield PurePosixPath(info.filename), info.file_size, info.is_dir(), is_file


def _check_members(archive: Path, stream: zipfile.ZipFile | tarfile.TarFile, free: int) -> dict[PurePosixPath, int]:
    """Return the sizes of all files, or refuse the archive at its first member that may not be unpacked."""
    own = archive.stat().st_size
    limit = min(_BYTES, max(_SMALL, _RATIO * own))
    total, sizes = 0, {}
    for count, (path, size, is_folder, is_file) in enumerate(_members(stream), 1):
        if not (is_folder or is_file):
            raise ValueError(f"{path} is a link or a device")
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"{path} lies outside of the archive's own folder")
        if not is_folder:
            sizes[path] = size
            total += size
        if total > limit or count > _MEMBERS:
            found = f"{count} files of {_in_words(total)} or more in an archive of {_in_words(own)}"
            problem = f"{found}, at most {_MEMBERS} files of {_in_words(limit)} are unpacked"
            raise DataError(Problem("size", str(archive), problem, _BY_HAND))
    if total > free:
        problem = f"its contents need {_in_words(total)}, but only {_in_words(free)} are free"
        raise DataError(Problem("size", str(archive), problem, _MORE_SPACE))
    return sizes


def _in_words(count: int) -> str:
    """Return a number of bytes as ``1.50GB``."""
    return tqdm.format_sizeof(count, "B")
