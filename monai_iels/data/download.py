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

"""Fetching a data set from its official source, verified and unpacked completely or not at all."""

import dataclasses
import errno
import hashlib
import http.client
import os
import shlex
import urllib.error
import urllib.request
from pathlib import Path

from monai.config import PathLike
from tqdm import tqdm

from monai_iels.data.archives import extracted
from monai_iels.data.cache import unwritable
from monai_iels.data.problems import DataError, Problem
from monai_iels.data.source import Archive, Source, fingerprint

__all__ = ["download_archive", "fetch", "how_to_get"]

_BLOCK = 1 << 18
_OF_THE_DISK = (errno.EACCES, errno.EDQUOT, errno.EFBIG, errno.ENOSPC, errno.EROFS)


def download_archive(source: Source, root: PathLike, url: str | None = None) -> list[str]:
    """Download, verify and unpack the archive of a data set below ``root``.

    What was downloaded is kept in a ``.part`` file until it is complete, and a second call goes on from there. The
    archive is kept beside the folder that it is unpacked into.

    Args:
        source: a data set that has an archive.
        root: the folder to put it in.
        url: a mirror, or the ``file://`` address of an archive that was fetched by other means; the official source by
            default.

    Returns:
        sentences that say what was verified, and what could not be.

    Raises:
        DataError: if the download is not what was expected; nothing that could pass as complete is left.
    """
    archive = source.archive
    if archive is None:
        raise ValueError(how_to_get(source, root))
    root = Path(root).expanduser()
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(unwritable(root, error, "--root")) from error
    folder = root / archive.folder
    if folder.exists():
        return [f"{folder} is already there; nothing was downloaded."]
    url = url or archive.url
    file = root / f"{archive.folder}{'.tar' if archive.url.endswith('.tar') else '.zip'}"
    if not file.exists():
        fetch(url, file)
    hashes = {"sha256": archive.sha256, "md5": archive.md5}
    try:
        said = [_verify(file, name, digest) for name, digest in hashes.items() if digest]
        with extracted(file, folder) as unpacked:
            if archive.contents is not None:
                said.append(_verify_contents(source, archive, unpacked))
    except DataError as error:
        refused = file.with_name(f"{file.name}.refused")
        os.replace(file, refused)
        note = f"What was downloaded is kept as {refused}; run the command again to download it anew."
        problems = [dataclasses.replace(problem, file=str(file), remedy=note) for problem in error.problems]
        raise DataError(problems) from error
    if archive.sha256 is None:
        said.append("No SHA-256 of the archive itself is known.")
    return said


def fetch(url: str, file: Path) -> None:
    """Download ``url`` to ``file``, continuing an interrupted download where the server allows it.

    Raises:
        DataError: if the address cannot be reached, or sends less than it announced, or a web page.
        ValueError: if the disk is full, or the folder may not be written to.
    """
    part = file.with_name(f"{file.name}.part")
    done = part.stat().st_size if part.exists() else 0
    try:
        request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
        with urllib.request.urlopen(request, timeout=60) as response:
            if "text/html" in response.headers.get("Content-Type", ""):
                problem = Problem("unreadable", url, "an archive", "a web page", "Open the address in a browser.")
                raise DataError([problem])
            if response.status != 206:  # the server starts over, and so do we
                done = 0
            total = int(response.headers.get("Content-Length") or 0) + done
            _save(response, part, done, total)
    except DataError:
        raise
    except urllib.error.HTTPError as error:
        if error.code != 416:  # 416: nothing is left to send, the part was complete
            raise DataError([_unreachable(url, f"'{error.code} {error.reason}'")]) from error
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in _OF_THE_DISK:
            raise ValueError(unwritable(part, error, "--root")) from error
        raise DataError([_unreachable(url, f"'{getattr(error, 'reason', error)}'")]) from error
    os.replace(part, file)


def _unreachable(url: str, found: str) -> Problem:
    return Problem("missing", url, "a download", found, "Check the connection and run the command again: it continues.")


def _save(response: http.client.HTTPResponse, part: Path, done: int, total: int) -> None:
    """Append what the server sends to the ``.part`` file, and insist on as many bytes as it announced."""
    with (
        part.open("r+b" if done else "wb") as stream,
        tqdm(desc=part.stem, initial=done, total=total or None, unit="B", unit_scale=True, disable=None) as bar,
    ):
        stream.seek(done)
        while block := response.read(_BLOCK):
            stream.write(block)
            bar.update(len(block))
        length = stream.tell()
    if total and length < total:
        raise DataError([_unreachable(response.url, f"{length} of {total} bytes")])


def _verify(file: Path, algorithm: str, expected: str) -> str:
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    name = {"sha256": "SHA-256", "md5": "MD5"}[algorithm]
    if digest.hexdigest() != expected:
        raise DataError([Problem("values", str(file), f"{name} {expected}", digest.hexdigest(), "")])
    return f"{name} of {file.name} is as expected."


def _verify_contents(source: Source, archive: Archive, folder: Path) -> str:
    """Compare images and masks with those that this version was tested on; only a known archive may differ."""
    what = "SHA-256 over the names and contents of all labeled images and their masks"
    found = fingerprint(source.read(folder))
    if found == archive.contents:
        return f"{what} is as expected."
    if archive.sha256 or archive.md5:
        return f"{what} is not that of the files which this version was tested on: {found}."
    raise DataError([Problem("values", str(folder), f"contents with SHA-256 {archive.contents}", found, "")])


def how_to_get(source: Source, root: PathLike) -> str:
    """Say where to register for a data set, and what its folder should look like."""
    return (
        f"{source.title} cannot be downloaded by a program.\n{source.terms}\n\n"
        f"Unpack everything into {root}, so that it has\n\n"
        + "\n".join(f"    {line}" for line in source.layout.splitlines())
        + f"\n\nand run `python -m monai_iels.data check {source.name} --root {shlex.quote(str(root))}`."
    )
