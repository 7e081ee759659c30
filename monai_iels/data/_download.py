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
"""Downloading a data set from its official source: verified, and unpacked completely or not at all."""

import errno
import hashlib
import http.client
import os
import shlex
import shutil
import textwrap
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from monai.config import PathLike
from tqdm import tqdm

from monai_iels._files import atomic
from monai_iels.data._archives import extract
from monai_iels.data._cases import fingerprint
from monai_iels.data._problems import DataError, Problem
from monai_iels.data._source import Archive, Source

_OF_THE_DISK = (errno.EACCES, errno.EDQUOT, errno.EFBIG, errno.ENOSPC, errno.EROFS)


def download_archive(source: Source, root: PathLike, url: str | None = None) -> Iterator[str]:
    """Download, verify and unpack the archive of a data set below ``root``.

    The download goes to a ``.part`` file, and a second call continues it. The complete archive stays beside the folder
    that it is unpacked into.

    Args:
        source: a data set that has an archive.
        root: the folder to put it in.
        url: a mirror, or the ``file://`` address of an archive that you already have; the official source by default.

    Yields:
        sentences that say what was verified, and what could not be.

    Raises:
        ValueError: if the data set can only be had by registration.
        DataError: if the download is not what it should be; nothing is left that could pass as complete.
        OSError: if the disk is full or the folder cannot be written, with the file's name.
    """
    archive = source.archive
    if archive is None:
        raise ValueError(how_to_get(source, root))
    yield f"{source.title}: {source.terms}"
    folder = Path(root).expanduser() / archive.folder
    if folder.exists():
        yield f"{folder} already exists; nothing was downloaded."
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    file = folder.with_name(f"{archive.folder}{Path(archive.url).suffix}")
    if not file.exists():
        _fetch(url or archive.url, file)
    try:
        verified = [_verify_checksum(file, archive.checksum)]
        with atomic(folder) as unpacked:
            unpacked.mkdir()
            extract(file, unpacked)
            if archive.contents is not None:
                verified.append(_verify_contents(source, archive, unpacked))
    except DataError as error:
        refused = file.with_name(f"{file.name}.refused")
        os.replace(file, refused)
        remedy = f"The download was renamed to {refused}; run the command again for a new one."
        raise error.replace(file=str(file), remedy=remedy) from error
    yield from verified


def _fetch(url: str, file: Path) -> None:
    """Download ``url`` to ``file``, and continue an interrupted download if the server allows it."""
    part = file.with_name(f"{file.name}.part")
    done = part.stat().st_size if part.exists() else 0
    try:
        request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
        with urllib.request.urlopen(request, timeout=60) as response:
            if "text/html" in response.headers.get("Content-Type", ""):
                raise DataError(Problem("unreadable", url, "a web page, not an archive", "Open it in a browser."))
            if response.status != 206:  # the server starts over, and so do we
                done = 0
            _save(response, part, done)
    except DataError:
        raise
    except urllib.error.HTTPError as error:
        if error.code != 416:  # 416: nothing is left to send, the part was complete
            raise _failed(url, f"{error.code} {error.reason}") from error
    except (http.client.HTTPException, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in _OF_THE_DISK:
            raise OSError(error.errno, error.strerror, str(part)) from error
        raise _failed(url, getattr(error, "reason", error)) from error
    os.replace(part, file)


def _save(response: http.client.HTTPResponse, part: Path, done: int) -> None:
    """Append what the server sends to the ``.part`` file, and insist on as many bytes as it announced."""
    total = int(response.headers.get("Content-Length") or 0) + done
    with (
        part.open("r+b" if done else "wb") as stream,
        tqdm.wrapattr(stream, "write", total or None, desc=part.stem, initial=done, disable=None) as counted,
    ):
        stream.seek(done)
        shutil.copyfileobj(response, counted)
        length = stream.tell()
    if length < total:
        raise _failed(response.url, f"{length} of {total} bytes arrived")


def _failed(url: str, reason: object) -> DataError:
    remedy = "Check the connection and run the command again: it continues."
    return DataError(Problem("missing", url, f"the download failed ({reason})", remedy))


def _verify_checksum(file: Path, checksum: str | None) -> str:
    if checksum is None:
        return f"There is no checksum of {file.name} to compare with."
    algorithm, _, expected = checksum.partition(":")
    found = hashlib.new(algorithm, file.read_bytes(), usedforsecurity=False).hexdigest()
    if found != expected:
        raise DataError(Problem("values", str(file), f"its {algorithm} is {found} instead of {expected}"))
    return f"The {algorithm} of {file.name} is correct."


def _verify_contents(source: Source, archive: Archive, folder: Path) -> str:
    """Compare all images and masks with those that we tested; only an archive with a checksum may differ."""
    found = fingerprint(source.read(folder))
    if found == archive.contents:
        return "The sha256 of all labeled images and their masks is correct."
    problem = f"the sha256 of all labeled images and their masks is {found} instead of {archive.contents}"
    if archive.checksum is None:
        raise DataError(Problem("values", str(folder), problem))
    return f"This version was tested on other files: {problem}."


def how_to_get(source: Source, root: PathLike) -> str:
    """Say where to register for a data set, and what its folder should look like."""
    return (
        f"{source.title} cannot be downloaded by a program.\n{source.terms}\n\n"
        f"Unpack everything into {root}, so that it has\n\n{textwrap.indent(source.layout, '    ')}\n\n"
        f"and run `monai-iels data check {source.name} --root {shlex.quote(str(root))}`."
    )
