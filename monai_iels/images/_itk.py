# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""NRRD and MetaImage volumes, by ITK, which refuses short files, but looks at no checksum of compressed ones."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from monai.config import PathLike
from monai.data import ImageReader, ITKReader, ITKWriter, MetaTensor
from monai.utils import optional_import
from PIL import Image

from monai_iels.images._format import Format, Header, decompressing

itk, _ = optional_import("itk", allow_namespace_pkg=True)


class ItkVolume(Format):
    """A volume that ITK reads."""

    def header(self, file: str) -> Header:
        """Return the shape and affine of a volume; ITK's axes point left and backward, MONAI's right and forward."""
        codec = itk.ImageIOFactory.CreateImageIO(file, itk.CommonEnums.IOFileMode_ReadMode)
        if codec is None:
            raise ValueError("is of a kind that ITK does not read; save it as .nii.gz")
        codec.SetFileName(file)
        codec.ReadImageInformation()  # and no pixels
        axes = range(codec.GetNumberOfDimensions())
        spatial = axes[:3]
        affine = np.eye(4)
        for axis in spatial:
            step = np.multiply(codec.GetDirection(axis), codec.GetSpacing(axis))
            affine[spatial, axis], affine[axis, 3] = step[:3], codec.GetOrigin(axis)
        affine[:2] *= -1
        return Header(tuple(codec.GetDimensions(axis) for axis in axes), affine)

    def reader(self, converter: Callable[[Image.Image], Image.Image]) -> ImageReader:
        """Return ITK's reader."""
        return ITKReader()

    def write(self, labels: np.ndarray, image: MetaTensor, file: PathLike) -> None:
        """Write labels, compressed."""
        itk.imwrite(ITKWriter.create_backend_obj(labels, None, image.affine, labels.dtype), str(file), compression=True)


class Nrrd(ItkVolume):
    """NRRD in one file."""

    name = "NRRD"
    suffixes = writable = (".nrrd",)

    def check(self, file: str) -> None:
        """Compare gzip's checksum of compressed values."""
        header, _, values = Path(file).read_bytes().replace(b"\r\n\r\n", b"\n\n", 1).partition(b"\n\n")
        if re.search(rb"encoding:\s*gz", header) and values:
            with decompressing():
                gzip.decompress(values)


class MetaImage(ItkVolume):
    """MetaImage in one file, or a header and its values beside it."""

    name = "MetaImage"
    suffixes = (".mha", ".mhd")
    writable = (".mha",)

    def check(self, file: str) -> None:
        """Compare zlib's checksum of compressed values."""
        header, _, rest = Path(file).read_bytes().partition(b"ElementDataFile")
        if re.search(rb"CompressedData\s*=\s*True", header):
            name, _, values = rest.partition(b"\n")
            place = name.strip(b" =\r").decode()
            with decompressing():
                zlib.decompress(values if place == "LOCAL" else (Path(file).parent / place).read_bytes())
