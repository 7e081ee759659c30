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
"""Opening one image, mask or volume: its header, its values, and what is wrong with it."""

import os
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import nibabel
import numpy as np
from monai.config import KeysCollection, PathLike
from monai.data import ImageReader, ITKReader, MetaTensor, NibabelReader, PILReader
from monai.transforms import MapTransform
from monai.utils import ensure_tuple
from PIL import Image, ImageChops

from monai_iels._prediction import read_finite
from monai_iels._terminal import first_line
from monai_iels.data._problems import DataError, Problem, opening

_NIFTI = (".nii", ".nii.gz")
_OTHER_VOLUMES = (".nrrd", ".mha", ".mhd")
_MISTAKES = (AttributeError, KeyError, NameError, TypeError)  # of a program, not of a file
_TRUNCATED = ("truncated", "end-of-stream", "end of file", "bytes, got", "not enough", "incomplete")


class Header(NamedTuple):
    """The size of an image, width first, or of a volume, and the volume's affine (for an image, the identity)."""

    shape: tuple[int, ...]
    affine: np.ndarray


def in_words(shape: Sequence[int]) -> str:
    """Return a size as ``120 x 80``."""
    return " x ".join(map(str, shape))


def open_header(file: str) -> Header:
    """Return what the header of an image or volume says, without reading its pixels."""
    if os.path.exists(file) and not (os.path.isfile(file) or os.path.isdir(file)):  # reading a pipe would never end
        raise DataError(Problem("extra", file, "this is a pipe, a socket or a device, not a file"))
    with explained(file):
        if file.lower().endswith(_NIFTI):
            volume: Any = nibabel.loadsave.load(file)
            if min(volume.shape, default=0) < 1 or len(volume.shape) != 3:
                found = in_words(volume.shape)
                remedy = "Save it as a 3-D volume; docs/do/files.md says what to do about several channels."
                raise DataError(Problem("size", file, f"the volume has the shape {found}", remedy))
            return Header(tuple(volume.shape), volume.affine)
        if file.lower().endswith(_OTHER_VOLUMES):
            loaded = read_finite(file, ITKReader())
            return Header(tuple(loaded.shape[1:]), loaded.affine.numpy())
        with Image.open(file) as image:
            pages = getattr(image, "n_frames", 1) if image.format != "MPO" else 1  # MPO: a JPEG with a preview
            if pages > 1:
                raise DataError(Problem("size", file, f"the file has {pages} pages", "Save only the one you need."))
            return Header(image.size, np.eye(4))


def reader_of(file: str, converter: Callable[[Image.Image], Image.Image]) -> ImageReader:
    """Return the reader of an official data set's file: a NIfTI volume, or an image that ``converter`` converts."""
    return NibabelReader() if file.lower().endswith(_NIFTI) else PILReader(converter=converter)


def read_file(file: Any, reader: ImageReader) -> MetaTensor:
    """Return what is in a file, channel first, as one reader reads it.

    Raises:
        DataError: with the name of the file, if it cannot be read or has NaN or infinite values.
    """
    with explained(ensure_tuple(file)[0], passed_on=_MISTAKES):
        return read_finite(file, reader)


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
    if path.is_dir():
        return Problem("extra", name, "this is a folder, not a file")
    with opening(path), path.open("rb") as stream:
        start = stream.read(512)
    if not start:
        return Problem("empty", name, "the file is empty")
    if start.lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        remedy = "The server sent it instead of the file: log in there and download the file again."
        return Problem("unreadable", name, "this is a web page, not an image", remedy)
    if isinstance(error, Image.DecompressionBombError):
        pixels = re.sub("[^0-9 ]", "", str(error)).split()[0]
        problem = f"the image has {pixels} pixels, at most {2 * (Image.MAX_IMAGE_PIXELS or 0)} can be read"
        return Problem("size", name, problem, "Cut the image into parts, or save it smaller.")
    reason = first_line(error).replace(name, path.name)
    truncated = isinstance(error, EOFError) or any(word in reason.lower() for word in _TRUNCATED)
    kind = "truncated" if truncated else "unreadable"
    if isinstance(error, ValueError) and reason.startswith(("has ", "is ")):  # our own sentences, with a remedy
        problem, _, remedy = reason.partition("; ")
        return Problem(kind, name, f"the file {problem}", f"{remedy[:1].upper()}{remedy[1:]}.")
    problem = "is truncated" if truncated else "cannot be read"
    return Problem(kind, name, f"the file {problem} ({reason})")


class LoadFiled(MapTransform):
    """Load files with one reader, channel first, and name the file that cannot be read or has NaN or infinite values.

    MONAI's ``LoadImaged`` tries other readers where one fails, and some of them accept damaged files silently.

    Args:
        keys: keys of the files.
        reader: one of MONAI's image readers, such as ``PILReader(converter=as_rgb)``.
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
