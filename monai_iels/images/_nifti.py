# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""NIfTI volumes."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Any

import numpy as np
from monai.config import PathLike
from monai.data import ImageReader, MetaTensor, NibabelReader
from monai.utils import optional_import
from PIL import Image

from monai_iels.images._format import Format, Header, check_finite, decompressing

nibabel, _ = optional_import("nibabel")


class Nifti(Format):
    """NIfTI-1 in one file."""

    name = "NIfTI"
    suffixes = (".nii", ".nii.gz")
    writable = (".nii.gz", ".nii")
    starts = ((b"\x1f\x8b", ".nii.gz"), (b"\x5c\x01\0\0", ".nii"), (b"\0\0\x01\x5c", ".nii"), (b"\x1c\x02\0\0", ".nii"))

    def header(self, file: str) -> Header:
        """Return the shape and affine of a volume."""
        volume = nibabel.loadsave.load(file)
        return Header(tuple(volume.shape), volume.affine)

    def check(self, file: str) -> None:
        """Compare the length and gzip's checksum with what the headers promise, and look for NaN.

        ITK fills what a truncated file lacks, and NaN and infinite voxels, with zeros, and looks at no checksum.
        """
        opened: Any = gzip.open if file.lower().endswith(".gz") else open
        with decompressing(), opened(file, "rb") as stream:
            if not nibabel.nifti1.Nifti1Header.may_contain_header(stream.read(540)):
                raise ValueError("is no NIfTI-1 file, or its ending is wrong; save it as .nii.gz again")
            stream.seek(0)
            volume = nibabel.nifti1.Nifti1Image.from_stream(stream)
            values = volume.dataobj.get_unscaled()
            while stream.read(2**24):  # the checksum is at the end
                pass
        check_finite(values)

    def reader(self, converter: Callable[[Image.Image], Image.Image]) -> ImageReader:
        """Return nibabel's reader."""
        return NibabelReader()

    def write(self, labels: np.ndarray, image: MetaTensor, file: PathLike) -> None:
        """Write labels as NIfTI-1."""
        nibabel.loadsave.save(nibabel.nifti1.Nifti1Image(labels, image.affine.numpy()), file)
