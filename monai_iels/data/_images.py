# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""Opening one image, mask or volume of a data set, and naming the file with which something is wrong."""

import os
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from monai.config import KeysCollection, PathLike
from monai.data import ImageReader, MetaTensor
from monai.transforms import MapTransform
from monai.utils import ensure_tuple

from monai_iels import images
from monai_iels._terminal import first_line
from monai_iels.data._cases import Case, case_files
from monai_iels.data._problems import DataError, Problem, Problems, opening

_MISTAKES = (AttributeError, KeyError, NameError, TypeError)  # of a program, not of a file


def in_words(shape: Sequence[int]) -> str:
    """Return a size as ``120 x 80``."""
    return " x ".join(map(str, shape))


def open_header(file: str) -> images.Header:
    """Return what the header of an image or volume says, without reading its pixels."""
    if os.path.exists(file) and not (os.path.isfile(file) or os.path.isdir(file)):  # reading a pipe would never end
        raise DataError(Problem("extra", file, "this is a pipe, a socket or a device, not a file"))
    with explained(file):
        header = images.header(file)
    if images.format_of(file).spatial_dims == 3 and (len(header.shape) != 3 or min(header.shape) < 1):
        remedy = "Save it as a 3-D volume; docs/do/files.md says what to do about several channels."
        raise DataError(Problem("size", file, f"the volume has the shape {in_words(header.shape)}", remedy))
    return header


def read_headers(case: Case, problems: Problems) -> dict[str, images.Header]:
    """Return the headers of a case's files, and add what is wrong, such as a mask of another size than the image."""
    headers: dict[str, images.Header] = {}
    for file in case_files(case):
        with problems.collect():
            headers[file] = open_header(file)
    image = str(case["image"])
    for file, header in headers.items():
        reference = headers.get(image, header)
        if header.shape != reference.shape:
            problem = f"its size is {in_words(header.shape)}, but {Path(image).name} has {in_words(reference.shape)}"
            problems.add("size", file, problem)
        elif not np.allclose(header.affine, reference.affine, atol=1e-3):  # orienting them would move them apart
            problems.add("size", file, f"its affine (position and axes) differs from that of {Path(image).name}")
    return headers


def check_headers(cases: Iterable[Case]) -> None:
    """Open the header of every file, and compare images and masks: fast enough for the start of a training.

    Raises:
        DataError: naming all files that are not sound.
    """
    problems = Problems()
    for case in cases:
        read_headers(case, problems)
    problems.raise_if_any()


def read_file(file: Any, reader: ImageReader) -> MetaTensor:
    """Return what is in a file, channel first, as one reader reads it.

    Raises:
        DataError: with the name of the file, if it cannot be read or has NaN or infinite values.
    """
    with explained(ensure_tuple(file)[0], passed_on=_MISTAKES):
        return images.read(file, reader)


@contextmanager
def explained(file: PathLike, passed_on: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turn every error of this block, except those ``passed_on``, into a :class:`DataError` that names the file."""
    try:
        yield
    except Exception as error:
        if isinstance(error, (DataError, *passed_on)):
            raise
        raise DataError(_explain(file, error)) from error


def _explain(file: PathLike, error: Exception) -> Problem:
    """Say why a file could not be read, from its contents and from the error that it raised."""
    path, name = Path(file), str(file)
    with opening(path), path.open("rb") as stream:
        start = stream.read(512)
    if not start:
        return Problem("unreadable", name, "the file is empty")
    if start.lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        remedy = "The server sent it instead of the file: log in there and download the file again."
        return Problem("unreadable", name, "this is a web page, not an image", remedy)
    reason = first_line(error).replace(name, path.name)
    if isinstance(error, ValueError) and reason.startswith(("has ", "is ")):  # our own sentences, with a remedy
        problem, _, remedy = reason.partition("; ")
        return Problem("unreadable", name, f"the file {problem}", f"{remedy[:1].upper()}{remedy[1:]}.")
    return Problem("unreadable", name, f"the file cannot be read ({reason})")


class LoadFiled(MapTransform):
    """Load files with one reader, channel first, and name the file that cannot be read or has NaN or infinite values.

    MONAI's ``LoadImaged`` tries other readers where one fails, and some of them accept damaged files silently.

    Args:
        keys: keys of the files.
        reader: one of MONAI's image readers, such as ``PILReader()``.
        allow_missing_keys: whether a case may lack a key.

    Raises:
        DataError: with the name of the file.
    """

    def __init__(self, keys: KeysCollection, reader: ImageReader, allow_missing_keys: bool = False) -> None:
        super().__init__(keys, allow_missing_keys)
        self.reader = reader

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Return the case with its files replaced by their contents."""
        case = dict(data)
        for key in self.key_iterator(case):
            case[key] = read_file(case[key], self.reader)
        return case
