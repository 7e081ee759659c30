# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""NIfTI volumes."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from monai.config import PathLike
from monai.data import ImageReader, MetaTensor, NibabelReader
from PIL import Image

from monai_iels._terminal import first_line
from monai_iels.images._format import Format, Header, check_finite

_GZIP = b"\x1f\x8b"
_PIECE = 2**24  # bytes


class Nifti(Format):
    """NIfTI-1 in one file."""

    name = "NIfTI"
    suffixes = (".nii", ".nii.gz")
    writable = (".nii.gz", ".nii")
    starts = ((_GZIP, ".nii.gz"), (b"\x5c\x01\0\0", ".nii"), (b"\0\0\x01\x5c", ".nii"), (b"\x1c\x02\0\0", ".nii"))

    def header(self, file: str) -> Header:
        """Return the shape and affine of a volume."""
        import nibabel

        volume: Any = nibabel.loadsave.load(file)
        return Header(tuple(volume.shape), volume.affine)

    def check(self, file: str) -> None:
        """Compare the length and gzip's checksum with what the headers promise, and look for NaN.

        ITK fills what a truncated file lacks, and NaN and infinite voxels, with zeros, and looks at no checksum.
        """
        import nibabel

        with open(file, "rb") as start:
            first = start.read(2)
        is_zipped = first == _GZIP
        if first and is_zipped != file.lower().endswith(".gz"):
            kind, ending = ("compressed", ".nii.gz") if is_zipped else ("not compressed", ".nii")
            raise ValueError(f"is {kind}; give it the ending {ending}")
        opened: Any = gzip.open if is_zipped else open
        try:
            with opened(file, "rb") as stream:
                if nibabel.nifti2.Nifti2Header.may_contain_header(stream.read(540)):
                    raise ValueError("is a NIfTI-2 file, which ITK does not read; save it as NIfTI-1")
                stream.seek(0)
                volume: Any = nibabel.nifti1.Nifti1Image.from_stream(stream)
                values = volume.dataobj.get_unscaled()
                while stream.read(_PIECE):  # the checksum is at the end
                    pass
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"is truncated or damaged ({first_line(error)}); copy it again") from None
        check_finite(values)

    def reader(self, converter: Callable[[Image.Image], Image.Image]) -> ImageReader:
        """Return nibabel's reader."""
        return NibabelReader()

    def write(self, labels: np.ndarray, image: MetaTensor, file: PathLike) -> None:
        """Write labels as NIfTI-1."""
        import nibabel

        nibabel.loadsave.save(nibabel.nifti1.Nifti1Image(labels, image.affine.numpy()), file)
