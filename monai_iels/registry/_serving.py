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

"""The model that MLflow serves: an image in, its labels out. This file travels with the model and needs only MONAI.

MLflow stores it as it is ("models from code") beside the bundle's inference config and the network's weights. It must
not import monai_iels.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import gzip
import io
import math
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import nibabel
import numpy as np
import pandas as pd
import torch
from mlflow.exceptions import MlflowException
from mlflow.models import set_model
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE
from mlflow.pyfunc import PythonModel
from monai.bundle import ConfigParser
from monai.data import MetaTensor
from monai.transforms import Compose, Spacingd
from PIL import Image

_FORMATS = ("PNG", "JPEG", "TIFF", "BMP", "GIF")
_DEFAULTS = {"probabilities": False, "format": "array", "max_values": math.inf}


class _Source(NamedTuple):
    """One image of a request: its size and its place in space are known before its values are read."""

    name: str
    shape: tuple[int, ...]
    affine: np.ndarray
    read: Callable[[], np.ndarray]


class SegmentationModel(PythonModel):
    """Segment images of ``(H, W, 3)`` bytes, or volumes ``(X, Y, Z)``, of any size.

    The input is one array, or a table whose column ``image`` holds one file per row in base64: a PNG, JPEG, TIFF, BMP
    or GIF for a 2-D model, a NIfTI (``.nii`` or ``.nii.gz``) for a 3-D model. An array gives an array of the data set's
    own label values, a table gives a table with the column ``label``.

    Parameters of a request:
        probabilities: return the probability of each class, ``(classes, ...)``, instead of labels.
        format: ``file`` returns labels as a table of base64 files, PNG or ``.nii.gz``; ``array`` is the default.
        max_values: refuse a request with more values than this. The model's own limit, ``max_values`` in its
            ``model_config``, holds in any case.
    """

    def load_context(self, context: Any) -> None:
        """Build the network and the bundle's own processing from the files that came with the model."""
        parser = ConfigParser(ConfigParser.load_config_file(context.artifacts["config"]))
        self.dims = parser.get_parsed_content("spatial_dims")
        self.network = parser.get_parsed_content("network_def")
        self.network.load_state_dict(torch.load(context.artifacts["weights"], map_location="cpu", weights_only=True))
        self.network.eval()
        geometry = parser.get_parsed_content("geometry")
        self.voxel = math.prod(
            next((t.spacing_transform.pixdim for t in geometry if isinstance(t, Spacingd)), [math.inf])
        )
        intensity, fitting = (parser.get_parsed_content(key) for key in ("intensity", "fitting"))
        self.processing = Compose([*geometry, intensity, *fitting])
        self.smoothing = parser.get_parsed_content("smoothing")
        self.inferer = parser.get_parsed_content("inferer")
        labels = parser.get_parsed_content("written_values")
        self.values = np.array(labels, dtype=np.uint8 if max(labels) < 256 else np.uint16)
        self.largest = context.model_config["max_values"]
        # MONAI's transforms note the inverse on themselves, and one image at a time bounds the memory
        self.lock = threading.Lock()

    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def] # MLflow reads the hints
        """Return the labels, or the probabilities, of one array or of a table of files."""
        chosen = {**_DEFAULTS, **(params or {})}
        _check_params(chosen)
        try:
            return self._answers(model_input, chosen)
        finally:
            _give_memory_back()

    def _answers(self, model_input: Any, chosen: dict[str, Any]) -> np.ndarray | str | pd.DataFrame:
        is_table = isinstance(model_input, pd.DataFrame)
        sources = self._rows(model_input) if is_table else [self._array(model_input)]
        self._check_size(sources, min(self.largest, chosen["max_values"]))
        found = [self._answer(source, chosen) for source in sources]
        if is_table or chosen["format"] == "file":
            return pd.DataFrame({"probabilities" if chosen["probabilities"] else "label": found})
        return found[0]

    def _answer(self, source: _Source, chosen: dict[str, Any]) -> np.ndarray | str:
        pixels = source.read()
        with self.lock:
            values = self._segment(pixels, source.affine, chosen["probabilities"])
        if chosen["format"] == "array":
            return values
        return _base64(_png(values) if self.dims == 2 else _nifti(values, source.affine))

    def _segment(self, pixels: np.ndarray, affine: np.ndarray, probabilities: bool) -> np.ndarray:
        # MONAI has the first axis of an image along its width, as its reader of PNG files does
        image = np.moveaxis(pixels, -1, 0).swapaxes(1, 2) if self.dims == 2 else pixels[None]
        case = {"image": MetaTensor(torch.as_tensor(image.astype(np.float32)), affine=torch.as_tensor(affine))}
        case = self.processing(case)
        with torch.no_grad():
            logits = torch.as_tensor(self.inferer(case["image"][None], self.network)[0])
        found = self._in_place(self.smoothing({"pred": logits})["pred"].softmax(0), case["image"])
        return found.astype(np.float32) if probabilities else self.values[found.argmax(0)]

    def _in_place(self, values: torch.Tensor, image: MetaTensor) -> np.ndarray:
        """Bring probabilities into the geometry of the input."""
        placed = MetaTensor(values.float(), meta=image.meta, applied_operations=image.applied_operations)
        found = self.processing.inverse({"image": placed})["image"].numpy()
        return found.swapaxes(1, 2) if self.dims == 2 else found

    def _check_size(self, sources: list[_Source], limit: int) -> None:
        """Refuse a request that would need too much memory, also after its volumes are resampled."""
        size = sum(math.prod(s.shape) * max(1.0, abs(float(np.linalg.det(s.affine))) / self.voxel) for s in sources)
        if not size <= limit:
            shapes = ", ".join(" x ".join(map(str, source.shape)) for source in sources[:3])
            _refuse(f"the request has {size:.0f} values ({shapes}), but at most {limit} are allowed: send less at once")

    def _rows(self, table: pd.DataFrame) -> list[_Source]:
        """Return the files of a table, of which only the headers are read."""
        if list(table.columns) != ["image"] or table.empty:
            _refuse(
                f"a table needs one column 'image' and a row per file, got {len(table)} rows of {list(table.columns)}"
            )
        names = [f"image {number}" for number in range(1, len(table) + 1)]
        open_file = _picture if self.dims == 2 else _volume
        try:
            return [open_file(name, _decoded(name, cell)) for name, cell in zip(names, table["image"], strict=True)]
        except Image.DecompressionBombError as error:
            _refuse(f"an image is too large, at most {self.largest} values are allowed: {_reason(error)}")

    def _array(self, model_input: Any) -> _Source:
        """Return an array whose shape can be segmented, or refuse it."""
        expected = "(height, width, 3)" if self.dims == 2 else "(x, y, z)"
        try:
            pixels = np.asarray(model_input)
        except ValueError:
            _refuse(f"an array must have the shape {expected}, got rows of unequal length")
        if pixels.ndim != 3 or (self.dims == 2 and pixels.shape[-1] != 3) or not pixels.size:
            _refuse(f"an array must have the shape {expected}, got {pixels.shape}; a file goes into the column 'image'")
        if not np.issubdtype(pixels.dtype, np.number):
            _refuse(f"an array must hold numbers, got {pixels.dtype}")
        read = _bytes if self.dims == 2 else _finite
        return _Source("the array", pixels.shape, np.eye(4), lambda: read("the array", pixels))


def _check_params(chosen: dict[str, Any]) -> None:
    if chosen["format"] not in ("array", "file"):
        _refuse(f"format must be 'array' or 'file', got '{chosen['format']}'")
    if chosen["format"] == "file" and chosen["probabilities"]:
        _refuse("probabilities come as an array only: leave out format or probabilities")


def _finite(name: str, values: np.ndarray) -> np.ndarray:
    wrong = np.count_nonzero(~np.isfinite(values))
    if wrong:
        _refuse(f"{name} has {wrong} values that are NaN or infinite")
    return values


def _bytes(name: str, values: np.ndarray) -> np.ndarray:
    """Return whole numbers from 0 to 255 as bytes; numbers that come by HTTP have lost their type."""
    _finite(name, values)
    if values.min() < 0 or values.max() > 255 or not np.array_equal(values, np.round(values)):
        found = f"{values.dtype} from {values.min():g} to {values.max():g}"
        _refuse(f"{name} must hold whole numbers from 0 to 255 (uint8), got {found}")
    return values.astype(np.uint8)


def _decoded(name: str, cell: Any) -> bytes:
    if not isinstance(cell, str):
        _refuse(f"{name} must be the text of a file in base64, got {type(cell).__name__}")
    try:
        return base64.b64decode("".join(cell.split()), validate=True)
    except ValueError as error:
        _refuse(f"{name} is no base64: {error}")


def _picture(name: str, data: bytes) -> _Source:
    try:
        image = Image.open(io.BytesIO(data), formats=_FORMATS)
    except Image.DecompressionBombError:
        raise
    except Exception as error:
        _refuse(f"{name} is no readable {', '.join(_FORMATS)} file: {_reason(error)}")
    if image.mode[0] in "IF":
        _refuse(f"{name} must have 8 bits per channel, got the mode {image.mode}")
    if getattr(image, "n_frames", 1) > 1:
        _refuse(f"{name} has {image.n_frames} pages, send each as a file of its own")  # type: ignore[attr-defined]

    def read() -> np.ndarray:
        try:
            return np.asarray(image.convert("RGB"))
        except Exception as error:
            _refuse(f"{name} is damaged: {_reason(error)}")

    return _Source(name, (image.height, image.width, 3), np.eye(4), read)


def _volume(name: str, data: bytes) -> _Source:
    stream: Any = io.BytesIO(data)
    try:
        stream = gzip.GzipFile(fileobj=stream) if data.startswith(b"\x1f\x8b") else stream
        image = nibabel.Nifti1Image.from_stream(stream)
        affine = np.asarray(image.affine, dtype=np.float64)
    except Exception as error:
        _refuse(f"{name} is no readable NIfTI file: {_reason(error)}")
    if len(image.shape) != 3 or not all(image.shape):
        _refuse(f"{name} must be a volume of 3 axes, got the shape {image.shape}")
    if not abs(np.linalg.det(affine)) > 0:
        _refuse(f"{name} has an affine that cannot be inverted: {affine[:3].tolist()}")

    def read() -> np.ndarray:
        try:
            values = np.asarray(image.dataobj, dtype=np.float32)
            stream.read(1)  # the end of a gzip stream has its checksum
        except Exception as error:
            _refuse(f"{name} is damaged: {_reason(error)}")
        return _finite(name, values)

    return _Source(name, image.shape, affine, read)


def _png(labels: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(labels).save(stream, format="PNG")
    return stream.getvalue()


def _nifti(labels: np.ndarray, affine: np.ndarray) -> bytes:
    return gzip.compress(nibabel.Nifti1Image(labels, affine).to_bytes(), compresslevel=6)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _give_memory_back() -> None:
    """Return freed memory to the system; glibc would keep it for each thread of the server."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _reason(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _refuse(sentence: str) -> NoReturn:
    raise MlflowException(f"{sentence[0].upper()}{sentence[1:]}.", error_code=INVALID_PARAMETER_VALUE)


set_model(SegmentationModel())
