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

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import torch
from monai.config import KeysCollection, PathLike
from monai.data import ImageReader
from monai.transforms import LoadImage, MapTransform
from PIL import Image

from monai_iels.data.problems import DataError, Problem

__all__ = [
    "LabelValuesD",
    "LabelValuesDict",
    "LabelValuesd",
    "LoadFileD",
    "LoadFileDict",
    "LoadFiled",
    "explain",
    "foreign_values",
    "open_image",
    "open_mask",
    "open_shape",
    "per_class",
]

_VOLUMES = (".nii", ".nii.gz")
_AGAIN = "Copy the file again from its source."


def open_shape(file: str) -> tuple[int, ...]:
    """Return the size of an image, width first, or of a volume, from its header alone."""
    try:
        if file.lower().endswith(_VOLUMES):
            return tuple(nibabel.nifti1.load(file).shape)
        with Image.open(file) as image:
            return image.size
    except Exception as error:
        raise DataError([explain(file, error)]) from error


def open_image(file: str) -> np.ndarray:
    """Return the pixels of an image as RGB ``(height, width, 3)``, or of a volume ``(x, y, z)``."""
    return _pixels(file, "RGB")


def open_mask(file: str) -> np.ndarray:
    """Return the values of a mask ``(height, width)``, or of a volume ``(x, y, z)``; a palette is resolved to grey."""
    return _pixels(file, "L")


def _pixels(file: str, mode: str) -> np.ndarray:
    try:
        if file.lower().endswith(_VOLUMES):
            return np.asarray(nibabel.nifti1.load(file).dataobj)
        with Image.open(file) as image:
            return np.asarray(image.convert(mode))
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
        start = b"" if path.is_dir() else path.read_bytes()[:512]
    except OSError as unopened:
        return Problem("unreadable", str(path), expected, f"'{unopened.strerror}'", "Check the file and its rights.")
    if path.is_file() and not start:
        return Problem("empty", str(path), expected, "0 bytes", _AGAIN)
    if start.lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        remedy = "The server sent a page instead of the file: log in there and download it again."
        return Problem("unreadable", str(path), expected, "a web page", remedy)
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    kind = "truncated" if _is_truncated(error, reason) else "unreadable"
    found = "a truncated one" if kind == "truncated" else "another content"
    return Problem(kind, str(path), expected, f"{found} ('{reason.replace(str(path), path.name)}')", _AGAIN)


def _is_truncated(error: Exception, reason: str) -> bool:
    words = ("truncated", "end-of-stream", "end of file", "expected", "bytes, got", "not enough", "incomplete")
    return isinstance(error, EOFError) or any(word in reason.lower() for word in words)


def per_class(values: Sequence[int | Sequence[int]]) -> list[tuple[int, ...]]:
    """Return to each class the tuple of values that stand for it.

    Example:
        >>> per_class([0, (1, 255)])
        [(0,), (1, 255)]
    """
    return [(value,) if isinstance(value, int) else tuple(value) for value in values]


class LoadFiled(MapTransform):
    """Load files through one reader, channel first, and name the file that cannot be read.

    MONAI's ``LoadImaged`` tries its other readers where one fails, and some accept a damaged file without a word.

    Args:
        keys: keys of the files.
        reader: an image reader of MONAI's, such as ``PILReader(converter=operator.methodcaller("convert", "RGB"))``.
        allow_missing_keys: whether a case may lack a key.

    Raises:
        DataError: with the name of the file.
    """

    def __init__(self, keys: KeysCollection, reader: ImageReader, allow_missing_keys: bool = False) -> None:
        super().__init__(keys, allow_missing_keys)
        self.reader = reader
        self.load = LoadImage(image_only=True, ensure_channel_first=True)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Return the case with the files replaced by their contents."""
        case = dict(data)
        for key in self.key_iterator(case):
            try:
                case[key] = self.load(case[key], self.reader)
            except Exception as error:
                raise DataError([explain(data[key], error)]) from error
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
            classes = torch.full_like(label, -1)
            for number, values in enumerate(self.values):
                for value in values:
                    classes[label == value] = number
            if (classes < 0).any():
                file = getattr(label, "meta", {}).get("filename_or_obj", f"the label under '{key}'")
                raise DataError([foreign_values(str(file), np.unique(np.asarray(label)), self.values)])
            case[key] = classes
        return case


def foreign_values(file: str, found: np.ndarray, values: Sequence[int | Sequence[int]]) -> Problem:
    """Say which values of a mask stand for no class."""
    allowed = [value for group in per_class(values) for value in group]
    foreign = sorted(set(found.tolist()) - set(allowed))
    shown = ", ".join(f"{value:g}" for value in foreign[:5]) + (", ..." if len(foreign) > 5 else "")
    expected = f"only the label values {', '.join(map(str, allowed))}"
    return Problem("values", file, expected, f"also {shown}", "Correct the mask, or copy it again from its source.")


LoadFileD = LoadFileDict = LoadFiled
LabelValuesD = LabelValuesDict = LabelValuesd
