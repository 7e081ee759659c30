# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""The formats, and which of them a file has."""

from __future__ import annotations

from typing import Any

from monai.config import PathLike
from monai.data import ImageReader, MetaTensor
from monai.utils import ensure_tuple

from monai_iels.images._dicom import Dicom
from monai_iels.images._format import Format, Header
from monai_iels.images._itk import MetaImage, Nrrd
from monai_iels.images._nifti import Nifti
from monai_iels.images._pictures import PICTURES, Picture

FORMATS: list[Format] = [*PICTURES, Nifti(), Nrrd(), MetaImage(), Dicom()]
"""All file formats; a new one gets its entry here."""


def format_of(file: PathLike) -> Format:
    """Return the format of a file, or of a folder, by its name; a file with an unknown ending is a picture."""
    return next((one for one in FORMATS if one.has(file)), Picture("picture", ()))


def suffixes(spatial_dims: int) -> tuple[str, ...]:
    """Return the endings of files of images (2) or volumes (3) that can be read."""
    return tuple(suffix for one in FORMATS if one.spatial_dims == spatial_dims for suffix in one.suffixes)


def writable(spatial_dims: int) -> tuple[str, ...]:
    """Return the endings that predictions of images (2) or volumes (3) can have, the usual one first."""
    return tuple(suffix for one in FORMATS if one.spatial_dims == spatial_dims for suffix in one.writable)


def suffix_of(content: bytes, spatial_dims: int) -> str:
    """Return the ending for the content of an image (2) or volume (3), or no text if it is none.

    Example:
        >>> suffix_of(b"GIF89a", 2)
        '.gif'
    """
    starts = [pair for one in FORMATS if one.spatial_dims == spatial_dims for pair in one.starts]
    return next((suffix for start, suffix in starts if content.startswith(start)), "")


def header(file: PathLike) -> Header:
    """Return what the header of a file says, without reading its pixels."""
    return format_of(file).header(str(file))


def read(file: Any, reader: ImageReader) -> MetaTensor:
    """Read an image or volume, channel first, by one reader, and refuse one that is damaged or not finite.

    Args:
        file: a file or folder, or several files, which become channels.
        reader: one of MONAI's image readers, such as ``PILReader()``.

    Raises:
        ValueError: with what is wrong, as the end of a sentence about the file; the reader raises other errors, too.
    """
    return format_of(ensure_tuple(file)[0]).read(file, reader)
