# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""PNG, JPEG, TIFF, BMP and GIF, by Pillow, which goes by the content of a file and not by its ending."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from monai.config import PathLike
from monai.data import ImageReader, MetaTensor, PILReader
from monai.utils import ensure_tuple
from PIL import Image, ImageChops

from monai_iels.images._format import Format, Header


class Picture(Format):
    """A kind of picture.

    Args:
        name: what people call it.
        suffixes: endings of its files.
        starts: how the content of a file begins.
        is_written: whether predictions can be such files.
        is_lossy: whether reading gives other values than were written.
    """

    spatial_dims = 2

    def __init__(
        self, name: str, suffixes: tuple[str, ...], *starts: bytes, is_written: bool = False, is_lossy: bool = False
    ) -> None:
        self.name, self.suffixes, self.is_lossy = name, suffixes, is_lossy
        self.writable = suffixes if is_written else ()
        self.starts = tuple((start, suffixes[0]) for start in starts)

    def header(self, file: str) -> Header:
        """Return the size of a picture, and refuse several pages, of which all but one would be ignored."""
        with Image.open(file) as image:
            pages = getattr(image, "n_frames", 1) if image.format != "MPO" else 1  # MPO: a photograph with a preview
            if pages > 1:
                raise ValueError(f"has {pages} pages; save each as a file of its own")
            return Header(image.size, np.eye(4))

    def check(self, file: str) -> None:
        """Refuse several pages, and compare the checksums of a PNG, which reading does not."""
        self.header(file)
        with Image.open(file) as image:
            image.verify()

    def read(self, file: Any, reader: ImageReader) -> MetaTensor:
        """Read a picture, but none with more bits than the reader keeps."""
        for each in ensure_tuple(file):
            with Image.open(each) as image:
                convert = getattr(reader, "converter", None)
                if image.mode[0] in "IF" and convert is not None and convert(image).mode[0] not in "IF":
                    raise ValueError(f"has the mode {image.mode}; save it with 8 bits per channel")
        return super().read(file, reader)

    def reader(self, converter: Callable[[Image.Image], Image.Image]) -> ImageReader:
        """Return Pillow's reader."""
        return PILReader(converter=converter)

    def write(self, labels: np.ndarray, image: MetaTensor, file: PathLike) -> None:
        """Write labels, of which the first axis is the width."""
        Image.fromarray(labels.T).save(file)


PICTURES = (
    Picture("PNG", (".png",), b"\x89PNG", is_written=True),
    Picture("JPEG", (".jpg", ".jpeg"), b"\xff\xd8\xff", is_lossy=True),
    Picture("TIFF", (".tif", ".tiff"), b"II*\0", b"MM\0*", b"II+\0", b"MM\0+", is_written=True),
    Picture("BMP", (".bmp",), b"BM", is_written=True),
    Picture("GIF", (".gif",), b"GIF8"),
)


def as_mask(image: Image.Image) -> Image.Image:
    """Return a mask in 8 bits of gray: brightness, or the indices of a palette with colors, as LabelMe and VOC have.

    Raises:
        ValueError: if values would be lost: for more bits, colors, or transparency.
    """
    if image.mode == "P" and np.ptp(np.reshape(image.getpalette("RGB") or [], (-1, 3)), axis=1).any():
        return Image.fromarray(np.asarray(image))
    if image.mode in ("1", "L", "P"):
        return image.convert("L")
    if image.mode in ("LA", "RGB", "RGBA"):
        first, *others = image.convert(image.mode.removesuffix("A")).split()
        if any(ImageChops.difference(first, other).getbbox() for other in others):
            raise ValueError("has colors; save the mask with one gray value per class (docs/do/files.md says how)")
        if "A" not in image.mode or image.getchannel("A").getextrema() == (255, 255):
            return first
        raise ValueError("is transparent in places; save the mask with one gray value per class and no transparency")
    raise ValueError(f"has the mode {image.mode}; save the mask in 8 bits of gray")
