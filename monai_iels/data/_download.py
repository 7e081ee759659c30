# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""Downloading a data set from its official source: verified, and unpacked completely or not at all."""

import dataclasses
import hashlib
import http.client
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
from monai_iels.data._digests import fingerprint
from monai_iels.data._problems import DataError, Problem
from monai_iels.data._source import Source

_OF_THE_NETWORK = (ConnectionError, TimeoutError, ValueError, http.client.HTTPException, urllib.error.URLError)
_AGAIN = "Nothing of it was kept. Check the address and the connection, and run the command again."


def download_archive(source: Source, root: PathLike, url: str | None = None) -> Iterator[str]:
    """Download, verify and unpack the archive of a data set below ``root``; the archive itself is not kept.

    Args:
        source: a data set that has an archive.
        root: the folder to put it in.
        url: a mirror, or the ``file://`` address of an archive that you already have; the official source by default.

    Yields:
        sentences that say what was verified.

    Raises:
        ValueError: if the data set can only be had by registration.
        DataError: if the download is not what it should be; nothing is left that could pass as complete.
        OSError: if the disk is full or the folder cannot be written, with the folder's name.
    """
    archive = source.archive
    if archive is None:
        raise ValueError(_how_to_get(source, root))
    yield f"{source.title}: {source.terms}"
    folder = Path(root).expanduser() / archive["folder"]
    if folder.exists():
        yield f"{folder} already exists; nothing was downloaded."
        return
    url = url or archive["url"]
    try:
        with atomic(folder) as unpacked:
            file = unpacked.with_name(f"archive{Path(archive['url']).suffix}")  # removed with the temporary folder
            _fetch(url, file)
            if "checksum" in archive:
                algorithm, _, expected = archive["checksum"].partition(":")
                found = hashlib.new(algorithm, file.read_bytes(), usedforsecurity=False).hexdigest()
                yield _compare(url, f"its {algorithm}", found, expected)
            unpacked.mkdir()
            extract(file, unpacked)
            if "contents" in archive:
                found = fingerprint(source.read(unpacked))
                yield _compare(url, "the sha256 of all labeled images and their masks", found, archive["contents"])
    except DataError as error:
        raise DataError(*(dataclasses.replace(each, file=url, remedy=_AGAIN) for each in error.problems)) from error


def _compare(url: str, what: str, found: str, expected: str) -> str:
    if found != expected:
        raise DataError(Problem("values", url, f"{what} is {found} instead of {expected}"))
    return f"{url}: {what} is correct."


def _fetch(url: str, file: Path) -> None:
    """Download ``url`` to ``file``, with as many bytes as the server announces."""
    try:
        with urllib.request.urlopen(url, timeout=60) as response, file.open("wb") as stream:
            size = int(response.headers.get("Content-Length") or 0)
            with tqdm.wrapattr(response, "read", size or None, desc="Downloading", disable=None) as counted:
                shutil.copyfileobj(counted, stream)
            if stream.tell() < size:
                raise ConnectionError(f"{stream.tell()} of {size} bytes arrived")
    except _OF_THE_NETWORK as error:
        problem = f"the download failed ({getattr(error, 'reason', error)})"
        raise DataError(Problem("missing", url, problem)) from error


def _how_to_get(source: Source, root: PathLike) -> str:
    """Say where to register for a data set, and what its folder should look like."""
    return (
        f"{source.title} cannot be downloaded by a program.\n{source.terms}\n\n"
        f"Unpack everything into {root}, so that it has\n\n{textwrap.indent(source.layout, '    ')}\n\n"
        f"and run `monai-iels data check {source.name} --root {shlex.quote(str(root))}`."
    )
