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

"""Opening one file: its size, its pixels, and what is wrong with it; and the transforms that do so in a pipeline."""

import os
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import torch
from monai.config import KeysCollection, PathLike
from monai.data import ImageReader
from monai.transforms import MapTransform
from monai.utils import ensure_tuple
from PIL import Image, ImageChops

from monai_iels.data.problems import DataError, Problem
from monai_iels.errors import first_line
from monai_iels.prediction import as_rgb, read_finite

__all__ = [
    "LabelValuesD",
    "LabelValuesDict",
    "LabelValuesd",
    "LoadFileD",
    "LoadFileDict",
    "LoadFiled",
    "as_mask",
    "as_rgb",
    "explain",
    "foreign_values",
    "listed_values",
    "open_image",
    "open_mask",
    "open_shape",
    "per_class",
]

_VOLUMES = (".nii", ".nii.gz")
_MISTAKES = (AttributeError, KeyError, NameError, TypeError)
_AGAIN = "Copy the file again from its source."


def open_shape(file: str) -> tuple[int, ...]:
    """Return the size of an image, width first, or of a volume, from its header alone."""
    if not (os.path.isfile(file) or os.path.isdir(file)) and os.path.exists(file):  # reading a pipe would never end
        remedy = "Move it elsewhere."
        raise DataError([Problem("unreadable", file, "a file", "a pipe, a socket or a device", remedy)])
    try:
        if file.lower().endswith(_VOLUMES):
            shape = tuple(nibabel.loadsave.load(file).shape)  # type: ignore[attr-defined]
            if min(shape, default=0) < 1:
                found = " x ".join(map(str, shape))
                raise DataError([Problem("size", file, "at least one voxel along each axis", found, _AGAIN)])
            if len(shape) != 3:
                problem = Problem(
                    "size", file, "a volume of 3 axes", f"one of {len(shape)}", "Save it as a 3-D volume."
                )
                raise DataError([problem])
            return shape
        with Image.open(file) as image:
            frames = getattr(image, "n_frames", 1) if image.format != "MPO" else 1  # MPO: a JPEG with a preview
            if frames > 1:
                problem = Problem("size", file, "one picture", f"{frames} in one file", "Save the one that is meant.")
                raise DataError([problem])
            return image.size
    except Exception as error:
        raise DataError([explain(file, error)]) from error


def open_image(file: str) -> np.ndarray:
    """Return the pixels of an image as RGB ``(height, width, 3)``, or of a volume ``(x, y, z)``."""
    return _pixels(file, as_rgb)


def open_mask(file: str) -> np.ndarray:
    """Return the values of a mask ``(height, width)``, or of a volume ``(x, y, z)``; a palette is resolved to gray."""
    return _pixels(file, as_mask)


def as_mask(image: Image.Image) -> Image.Image:
    """Return a mask in 8 bits of gray.

    Raises:
        ValueError: for what would lose values on the way: more bits, colors, or transparency.
    """
    if image.mode in ("1", "L", "P"):
        return image.convert("L")
    if image.mode == "RGB":
        red, green, blue = image.split()
        if ImageChops.difference(red, green).getbbox() is None and ImageChops.difference(red, blue).getbbox() is None:
            return red
    raise ValueError(f"a mask needs 8 bits of gray, not the mode {image.mode}")


def _pixels(file: str, convert: Callable[[Image.Image], Image.Image]) -> np.ndarray:
    try:
        if file.lower().endswith(_VOLUMES):
            return np.asarray(nibabel.loadsave.load(file).dataobj)  # type: ignore[attr-defined]
        with Image.open(file) as image:
            return np.asarray(convert(image))
    except Exception as error:
        raise DataError([explain(file, error)]) from error


def explain(file: PathLike, error: Exception) -> Problem:
    """Say why a file could not be read, from what is in it and from the error that it raised."""
    if isinstance(error, DataError):
        return error.problems[0]
    path = Path(file)
    suffix = "".join(path.suffixes[-2:]) if path.name.lower().endswith(".nii.gz") else path.suffix
    expected = f"a readable {suffix.lstrip('.')} file"
    try:
        with path.open("rb") as stream:
            start = stream.read(512)
    except IsADirectoryError:
        return Problem("unreadable", str(path), expected, "a folder", "Put the file there, or move the folder.")
    except OSError as unopened:
        return Problem("unreadable", str(path), expected, f"'{unopened.strerror}'", "Check the file and its rights.")
    if not start:
        return Problem("empty", str(path), expected, "0 bytes", _AGAIN)
    if start.lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        remedy = "The server sent a page instead of the file: log in there and download it again."
        return Problem("unreadable", str(path), expected, "a web page", remedy)
    if isinstance(error, Image.DecompressionBombError):
        expected = f"at most {2 * (Image.MAX_IMAGE_PIXELS or 0)} pixels"
        found = f"{re.sub('[^0-9 ]', '', str(error)).split()[0]}"
        return Problem("size", str(path), expected, found, "Cut the image into parts, or save it smaller.")
    reason = first_line(error)
    kind = "truncated" if _is_truncated(error, reason) else "unreadable"
    if isinstance(error, ValueError) and reason.startswith(("has ", "is ")):  # of read_finite, with its own remedy
        what, _, todo = reason.partition("; ")
        return Problem(kind, str(path), expected, f"one that {what}", f"{todo.capitalize() or 'Repair it'}.")
    found = "a truncated one" if kind == "truncated" else "another content"
    remedy = "Save it in that form." if "not the mode" in reason else _AGAIN
    return Problem(kind, str(path), expected, f"{found} ('{reason.replace(str(path), path.name)}')", remedy)


def _is_truncated(error: Exception, reason: str) -> bool:
    words = ("truncated", "end-of-stream", "end of file", "bytes, got", "not enough", "incomplete")
    return isinstance(error, EOFError) or any(word in reason.lower() for word in words)


def per_class(values: Sequence[int | Sequence[int]]) -> list[tuple[int, ...]]:
    """Return to each class the tuple of values that stand for it.

    Raises:
        ValueError: if these are no whole numbers, or if one stands for several classes.

    Example:
        >>> per_class([0, (1, 255)])
        [(0,), (1, 255)]
    """
    form = "label_values must be one whole number or list of them per class, such as [0, [1, 255]]"
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise ValueError(f"{form}, got {values!r}.")
    groups = [tuple(value) if isinstance(value, list | tuple) else (value,) for value in values]
    flat = [value for group in groups for value in group]
    if not flat or not all(type(value) is int for value in flat):
        raise ValueError(f"{form}, got {values!r}.")
    for value in flat:
        if flat.count(value) > 1:
            raise ValueError(f"label_values: {value} stands for more than one class in {values!r}; keep it in one.")
    return groups


class LoadFiled(MapTransform):
    """Load files through one reader, channel first, and name the file that cannot be read or is not finite.

    MONAI's ``LoadImaged`` tries its other readers where one fails, and some accept a damaged file without a word.

    Args:
        keys: keys of the files.
        reader: an image reader of MONAI's, such as ``PILReader(converter=as_rgb)``.
        allow_missing_keys: whether a case may lack a key.

    Raises:
        DataError: with the name of the file.
    """

    def __init__(self, keys: KeysCollection, reader: ImageReader, allow_missing_keys: bool = False) -> None:
        super().__init__(keys, allow_missing_keys)
        self.reader = reader

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Return the case with the files replaced by their contents."""
        case = dict(data)
        for key in self.key_iterator(case):
            try:
                case[key] = read_finite(case[key], self.reader)
            except _MISTAKES:
                raise
            except Exception as error:
                raise DataError([explain(ensure_tuple(data[key])[0], error)]) from error
        return case


class LabelValuesd(MapTransform):
    """Replace the values of a label file by the numbers of the classes, and refuse any other value.

    Args:
        keys: keys of the labels.
        values: to each class, background first, the value or values that stand for it: ``[0, 128, 255]``.
        allow_missing_keys: whether a case may lack a key.

    Raises:
        DataError: with the name of the file and its foreign values.
    """

    def __init__(
        self, keys: KeysCollection, values: Sequence[int | Sequence[int]], allow_missing_keys: bool = False
    ) -> None:
        super().__init__(keys, allow_missing_keys)
        self.values = per_class(values)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Return the case with labels of ``0 .. classes - 1``."""
        case = dict(data)
        for key in self.key_iterator(case):
            label = case[key]
            classes = torch.zeros_like(label)
            known = torch.zeros(label.shape, dtype=torch.bool)
            for number, values in enumerate(self.values):
                inside = torch.isin(torch.as_tensor(label), torch.tensor(values))
                classes[inside] = number
                known |= inside
            if not known.all():
                file = getattr(label, "meta", {}).get("filename_or_obj", f"the label under '{key}'")
                raise DataError([foreign_values(str(file), np.unique(np.asarray(label)[~known.numpy()]), self.values)])
            case[key] = classes
        return case


def foreign_values(file: str, found: np.ndarray, values: Sequence[int | Sequence[int]]) -> Problem:
    """Say which values of a mask stand for no class."""
    allowed = [value for group in per_class(values) for value in group]
    shown = listed_values(sorted(set(found.tolist()) - set(allowed)))
    expected = f"only the label values {', '.join(map(str, allowed))}"
    return Problem("values", file, expected, f"also {shown}", "Correct the mask, or copy it again from its source.")


def listed_values(values: Sequence[float]) -> str:
    """Return the first of some numbers in words.

    Example:
        >>> listed_values([1.0, 2.5, 3.0, 4.0, 5.0, 6.0])
        '1, 2.5, 3, 4, 5, ...'
    """
    return ", ".join(f"{value:g}" for value in values[:5]) + (", ..." if len(values) > 5 else "")


LoadFileD = LoadFileDict = LoadFiled
LabelValuesD = LabelValuesDict = LabelValuesd
