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

"""Archives: unpacked within stated limits, completely or not at all."""

import hashlib
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from monai.config import PathLike

from monai_iels.data.cache import cache_folder, complete_or_nothing, made_once
from monai_iels.data.problems import DataError, Problem
from monai_iels.errors import first_line

__all__ = ["extracted", "is_archive", "unpack"]

_BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, ValueError, RuntimeError)
_BYTES = 200 * 10**9  # an archive may hold so much
_SMALL = 10 * 10**9  # beyond this it may hold only _RATIO times its own size; masks alone may shrink to a 700th
_RATIO = 200
_MEMBERS = 10**6
_MORE_SPACE = "Nothing was unpacked. Free space, or choose another folder with --cache_dir or --root."
_OWN_WAY = "Nothing was unpacked. If you trust the archive, unpack it yourself and pass the folder."


class _Member(NamedTuple):
    """A file or folder in an archive, of zip or tar alike."""

    path: PurePosixPath
    size: int
    kind: str
    open: Callable[[], IO[bytes] | None]


def is_archive(path: Path) -> bool:
    """Return whether this is the name of an archive that :func:`unpack` can open."""
    return path.name.lower().endswith((".zip", ".tar", ".tar.gz", ".tgz"))


def unpack(archive: Path, cache_dir: PathLike | None = None) -> Path:
    """Unpack an archive into the cache once, and return the folder; nothing is written beside the archive.

    Raises:
        DataError: if the archive is broken or too large, or would write outside its own folder.
    """
    state = archive.stat()
    digest = hashlib.sha256(f"{archive.name} {state.st_size} {state.st_mtime_ns}".encode()).hexdigest()[:12]
    target = cache_folder(cache_dir) / f"{archive.name.split('.')[0]}-{digest}"
    return made_once(target, lambda folder: _extract(archive, folder))


@contextmanager
def extracted(archive: Path, target: Path) -> Iterator[Path]:
    """Unpack ``archive``, give the result to be verified, and move it to ``target`` only when all went well.

    Raises:
        DataError: if the archive is broken or too large, or would write outside its own folder.
    """
    with complete_or_nothing(target, "--root") as folder:
        folder.mkdir()
        _extract(archive, folder)
        yield folder


def _extract(archive: Path, folder: Path) -> None:
    try:
        archive.open("rb").close()
    except OSError as error:
        found = f"'{(error.strerror or str(error)).lower()}'"
        raise DataError([Problem("unreadable", str(archive), "an archive", found, "Check its rights.")]) from error
    try:
        with _opened(archive) as members:
            for member in _checked(archive, members, shutil.disk_usage(folder).free):
                _write(member, folder / member.path)
    except DataError:
        raise
    except _BROKEN as error:
        remedy = "Nothing was unpacked. Download the archive again from its official source."
        found = f"'{first_line(error)}'"
        raise DataError([Problem("unreadable", str(archive), "a sound archive", found, remedy)]) from error


@contextmanager
def _opened(archive: Path) -> Iterator[Iterable[_Member]]:
    if archive.name.lower().endswith(".zip"):
        with zipfile.ZipFile(archive) as zipped:
            yield _zipped(zipped)
    else:
        with tarfile.open(archive) as tarred:
            yield _tarred(tarred)


def _zipped(stream: zipfile.ZipFile) -> Iterator[_Member]:
    for entry in stream.infolist():
        mode = stat.S_IFMT(entry.external_attr >> 16)
        kind = "folder" if entry.is_dir() else "file" if mode in (0, stat.S_IFREG) else "link or device"
        yield _Member(PurePosixPath(entry.filename), entry.file_size, kind, partial(stream.open, entry))


def _tarred(stream: tarfile.TarFile) -> Iterator[_Member]:
    for entry in stream:
        kind = "folder" if entry.isdir() else "file" if entry.isfile() else "link or device"
        size = entry.size if kind == "file" else 0
        yield _Member(PurePosixPath(entry.name), size, kind, partial(stream.extractfile, entry))


def _checked(archive: Path, members: Iterable[_Member], free: int) -> list[_Member]:
    """List the members, and refuse the archive at the first that may not be unpacked: none is, then."""
    own = archive.stat().st_size
    limit = min(_BYTES, max(_SMALL, _RATIO * own))
    stated = f"at most {_MEMBERS} files of {_size(limit)} in an archive of {_size(own)}"
    total, checked = 0, []
    for member in members:
        total += member.size
        checked.append(member)
        if total > limit or len(checked) > _MEMBERS:
            found = f"{len(checked)} files of {_size(total)}, or more"
            raise DataError([Problem("size", str(archive), stated, found, _OWN_WAY)])
        if member.kind not in ("file", "folder"):
            raise ValueError(f"{member.path} is a link or a device")
        if member.path.is_absolute() or ".." in member.path.parts:
            raise ValueError(f"{member.path} lies outside the archive's own folder")
    if total > free:
        raise DataError([Problem("size", str(archive), f"{_size(total)} of free space", _size(free), _MORE_SPACE)])
    _check_names(checked)
    return checked


def _check_names(members: list[_Member]) -> None:
    files = {member.path for member in members if member.kind == "file"}
    for member in members:
        for folder in member.path.parents if member.kind == "file" else (member.path, *member.path.parents):
            if folder in files:
                raise ValueError(f"{folder} is a file and also a folder")


def _size(count: int) -> str:
    """Return a number of bytes in words: ``1.5 GB``."""
    power = min(4, max(0, len(str(count)) - 1) // 3)
    return f"{count / 1000**power:.4g} {('bytes', 'kB', 'MB', 'GB', 'TB')[power]}"


def _write(member: _Member, path: Path) -> None:
    if member.kind == "folder":
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    source = member.open()
    if source is None:
        raise ValueError(f"{member.path} has no contents")
    with source, path.open("wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
    if path.stat().st_size != member.size:
        raise ValueError(f"{member.path} has not as many bytes as the archive says")
