# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""What a file format is."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from monai.config import PathLike
from monai.data import ImageReader, MetaTensor
from monai.transforms import LoadImage
from monai.utils import ensure_tuple
from PIL import Image

from monai_iels._terminal import first_line

IGNORED = 255
"""The number that stands for no class in a label: pixels to leave out."""


class Header(NamedTuple):
    """The size of an image, width first, or of a volume, and the volume's affine (for an image, the identity)."""

    shape: tuple[int, ...]
    affine: np.ndarray


class Format:
    """A file format. A subclass sets the attributes, and says what it does otherwise.

    Attributes:
        name: what people call it.
        suffixes: endings of its files, in lower case.
        writable: endings that a prediction can have.
        starts: how the content of a file begins, and the ending that belongs to it. Left out where a file may name
            another one: nobody should be able to make a server open its own files.
        spatial_dims: 2 or 3.
        is_lossy: whether reading gives other values than were written.
    """

    name: str
    suffixes: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    starts: tuple[tuple[bytes, str], ...] = ()
    spatial_dims = 3
    is_lossy = False

    def has(self, file: PathLike) -> bool:
        """Return whether a file is of this format, by its name."""
        return str(file).lower().endswith(self.suffixes)

    def header(self, file: str) -> Header:
        """Return what the header of a file says, without reading its pixels."""
        raise NotImplementedError

    def check(self, file: str) -> None:
        """Refuse a file that is not complete, as far as the readers do not.

        Raises:
            ValueError: with what is wrong, as the end of a sentence about the file.
        """

    def reader(self, converter: Callable[[Image.Image], Image.Image]) -> ImageReader:
        """Return MONAI's reader for labels in this format; ``converter`` converts a picture."""
        raise NotImplementedError

    def read(self, file: Any, reader: ImageReader) -> MetaTensor:
        """Read a file, or several as channels, by one reader; see :func:`read`."""
        for each in ensure_tuple(file):
            self.check(str(each))
        return load_finite(file, reader)

    def write(self, labels: np.ndarray, image: MetaTensor, file: PathLike) -> None:
        """Write the labels of an image, in MONAI's axes, under a name that ends as ``writable`` says.

        The image knows its affine, and, in ``meta``, the file that it was read from.
        """
        raise NotImplementedError


def load_finite(file: Any, reader: ImageReader) -> MetaTensor:
    """Read a file by one reader, channel first; MONAI would try others where that one fails."""
    image = LoadImage(image_only=True, ensure_channel_first=True)(file, reader)
    check_finite(image.numpy())
    return image


def check_finite(values: np.ndarray) -> None:
    """Refuse values that are NaN or infinite.

    Raises:
        ValueError: with their number.
    """
    if bad := np.count_nonzero(~np.isfinite(values)):
        raise ValueError(f"has {bad} NaN or infinite values; repair it")


@contextmanager
def decompressing() -> Iterator[None]:
    """Say that a file is damaged where its compressed values are short, or differ from their checksum.

    Raises:
        ValueError: with what is wrong.
    """
    try:
        yield
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"is truncated or damaged ({first_line(error)}); copy it again") from None
