# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The model that MLflow serves: an image in, its labels out.

MLflow stores this file as it is ("models from code") beside the bundle's inference config, the network's weights and a
copy of monai_iels. Of that it imports what ``monai_iels.Inference`` reads, predicts and writes with.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import math
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pandas as pd
import torch
from mlflow.exceptions import MlflowException
from mlflow.models import set_model
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE
from mlflow.pyfunc import PythonModel
from monai.bundle import ConfigParser
from monai.data import MetaTensor
from monai.transforms import Spacingd

from monai_iels import images
from monai_iels._terminal import first_line
from monai_iels.prediction import Predictor


class _Source(NamedTuple):
    """One image of a request: its size and its place in space are known before its values are read."""

    shape: tuple[int, ...]
    affine: np.ndarray
    read: Callable[[], MetaTensor]


class SegmentationModel(PythonModel):
    """Segment images of ``(H, W, 3)`` bytes, or volumes ``(X, Y, Z)``, of any size.

    The input is one array, or a table whose column ``image`` holds one file per row in base64: a PNG, JPEG, TIFF, BMP
    or GIF for a 2-D model, a NIfTI (``.nii`` or ``.nii.gz``) for a 3-D model. An array gives an array of the data set's
    own label values, a table gives a table with the column ``label``.

    Parameters of a request:
        probabilities: return the probability of each class, ``(classes, ...)``, instead of labels.
        format: ``file`` returns labels as a table of base64 files, PNG or ``.nii.gz``; ``array`` is the default.

    A request with more values than ``max_values`` in the model's ``model_config`` is refused.
    """

    def load_context(self, context: Any) -> None:
        """Build the network and the bundle's own processing from the files that came with the model."""
        weights = torch.load(context.artifacts["weights"], map_location="cpu", weights_only=True)
        self.predictor = Predictor(ConfigParser(context.model_config["inference"]), weights)
        self.dims = self.predictor.spatial_dims
        spacings = [t.spacing_transform.pixdim for t in self.predictor.geometry if isinstance(t, Spacingd)]
        self.voxel = math.prod(next(iter(spacings), [math.inf]))
        self.largest = context.model_config["max_values"]
        # MONAI's transforms note the inverse on themselves, and one image at a time bounds the memory
        self.lock = threading.Lock()

    def predict(  # MLflow reads the hint: of a table it takes arrays, too, and infers nothing
        self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> Any:
        """Return the labels, or the probabilities, of one array or of a table of files."""
        chosen = {"probabilities": False, "format": "array", **(params or {})}
        if chosen["format"] not in ("array", "file"):
            _refuse(f"format must be 'array' or 'file', got '{chosen['format']}'")
        if chosen["format"] == "file" and chosen["probabilities"]:
            _refuse("probabilities come as an array only: leave out format or probabilities")
        try:
            return self._answers(model_input, chosen)
        finally:
            _give_memory_back()

    def _answers(self, model_input: Any, chosen: dict[str, Any]) -> np.ndarray | str | pd.DataFrame:
        is_table = isinstance(model_input, pd.DataFrame)
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            sources = self._files(model_input, folder) if is_table else [self._array(model_input)]
            self._check_size(sources)
            found = [self._answer(source, chosen, folder) for source in sources]
        if is_table or chosen["format"] == "file":
            return pd.DataFrame({"probabilities" if chosen["probabilities"] else "label": found})
        return found[0]

    def _answer(self, source: _Source, chosen: dict[str, Any], folder: Path) -> np.ndarray | str:
        predict = self.predictor.probabilities if chosen["probabilities"] else self.predictor.labels
        image = source.read()
        with self.lock:
            values = predict(image)
        if chosen["format"] == "array":
            return values.swapaxes(-1, -2) if self.dims == 2 else values
        file = folder / f"label{images.writable(self.dims)[0]}"
        images.format_of(file).write(values, image, file)
        return base64.b64encode(file.read_bytes()).decode("ascii")

    def _check_size(self, sources: list[_Source]) -> None:
        """Refuse a request that would need too much memory, also after its volumes are resampled."""
        size = sum(math.prod(s.shape) * max(1.0, abs(float(np.linalg.det(s.affine))) / self.voxel) for s in sources)
        if not size <= self.largest:
            shapes = ", ".join(" x ".join(map(str, source.shape)) for source in sources[:3])
            _refuse(f"the request has {size:.0f} values ({shapes}), but at most {self.largest} are allowed: send less")

    def _files(self, table: pd.DataFrame, folder: Path) -> list[_Source]:
        """Return the files of a table, of which only the headers are read."""
        if list(table.columns) != ["image"] or table.empty:
            _refuse(f"a table needs one column 'image', a row per file, got {len(table)} rows of {list(table.columns)}")
        return [self._file(f"image {number}", cell, folder) for number, cell in enumerate(table["image"], 1)]

    def _file(self, name: str, cell: Any, folder: Path) -> _Source:
        if not isinstance(cell, str):
            _refuse(f"{name} must be the text of a file in base64, got {type(cell).__name__}")
        content = _tried(name, "is no base64", partial(base64.b64decode, validate=True), "".join(cell.split()))
        file = folder / f"{name}{images.suffix_of(content, self.dims)}"
        file.write_bytes(content)
        kinds = ", ".join(one.name for one in images.FORMATS if one.spatial_dims == self.dims and one.starts)
        unreadable = f"is no readable {kinds} file"
        if not file.suffix:
            _refuse(f"{name} {unreadable}")
        shape, affine = _tried(name, unreadable, images.header, str(file))
        if not abs(np.linalg.det(affine)) > 0:
            _refuse(f"{name} has an affine that cannot be inverted: {affine[:3].tolist()}")
        shape = (*shape[::-1], 3) if self.dims == 2 else shape
        return _Source(shape, affine, partial(_tried, name, "is damaged", self.predictor.read, str(file)))

    def _array(self, model_input: Any) -> _Source:
        """Return an array whose shape can be segmented, or refuse it."""
        pixels = np.asarray(model_input)
        is_shape = pixels.size and pixels.ndim == 3 and (self.dims == 3 or pixels.shape[-1] == 3)
        if not (is_shape and np.issubdtype(pixels.dtype, np.number)):
            expected = "(height, width, 3)" if self.dims == 2 else "(x, y, z)"
            found = f"{pixels.shape} of {pixels.dtype}; a file goes into the column 'image'"
            _refuse(f"an array of numbers must have the shape {expected}, got {found}")
        return _Source(pixels.shape, np.eye(4), partial(_image, pixels, self.dims))


def _image(pixels: np.ndarray, dims: int) -> MetaTensor:
    """Refuse NaN, and for a picture all but whole numbers from 0 to 255; by HTTP, numbers have lost their type."""
    if wrong := np.count_nonzero(~np.isfinite(pixels)):
        _refuse(f"the array has {wrong} values that are NaN or infinite")
    if dims == 2 and (pixels.min() < 0 or pixels.max() > 255 or np.any(pixels % 1)):
        found = f"{pixels.dtype} from {pixels.min():g} to {pixels.max():g}"
        _refuse(f"the array must hold whole numbers from 0 to 255 (uint8), got {found}")
    return MetaTensor(torch.as_tensor((pixels.T if dims == 2 else pixels[None]).astype(np.float32)))


def _tried(name: str, problem: str, read: Callable[[str], Any], text: str) -> Any:
    """Read what a user sent: errors of ``images`` are the end of a sentence, others are its reason."""
    try:
        return read(text)
    except Exception as error:
        reason = first_line(error)
        is_end = isinstance(error, ValueError) and reason.startswith(("has ", "is "))
        _refuse(f"{name} {reason}" if is_end else f"{name} {problem}: {reason}")


def _give_memory_back() -> None:
    """Return freed memory to the system; glibc would keep it for each thread of the server."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _refuse(sentence: str) -> NoReturn:
    raise MlflowException(f"{sentence[0].upper()}{sentence[1:]}.", error_code=INVALID_PARAMETER_VALUE)


set_model(SegmentationModel())
