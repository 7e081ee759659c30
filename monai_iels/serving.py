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

"""The model that MLflow serves: raw pixels in, labels out. This file travels with the model and needs only MONAI.

MLflow stores it as it is ("models from code") beside the bundle's inference config and the network's weights. It must
not import monai_iels.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

import numpy as np
import torch
from mlflow.exceptions import MlflowException
from mlflow.models import set_model
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE
from mlflow.pyfunc import PythonModel
from monai.bundle import ConfigParser
from monai.data import MetaTensor
from monai.transforms import Compose
from monai.transforms.utils import convert_applied_interp_mode

__all__ = ["SegmentationModel"]

_LARGEST = 64_000_000


class SegmentationModel(PythonModel):
    """Segment one image ``(H, W, 3)`` of bytes, or one volume ``(X, Y, Z)``, of any size.

    With the parameter ``probabilities`` the result has the probability of each class, ``(classes, ...)``, instead of
    the data set's own label values.
    """

    def load_context(self, context: Any) -> None:
        """Build the network and the bundle's own processing from the files that came with the model."""
        with open(context.artifacts["config"], encoding="utf-8") as stream:
            parser = ConfigParser(json.load(stream))
        self.dims = parser.get_parsed_content("spatial_dims")
        self.network = parser.get_parsed_content("network_def")
        self.network.load_state_dict(torch.load(context.artifacts["weights"], map_location="cpu", weights_only=True))
        self.network.eval()
        self.processing = Compose([*parser.get_parsed_content("geometry"), parser.get_parsed_content("intensity")])
        self.inferer = parser.get_parsed_content("inferer")
        values = parser.get_parsed_content("label_values")
        self.values = np.array([v if isinstance(v, int) else v[-1] for v in values], dtype=np.uint8)

    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def] # MLflow reads the hints
        """Return the labels, or the probabilities, of one image or volume."""
        pixels = self._pixels(model_input)
        # MONAI has the first axis of an image along its width, as its reader of PNG files does
        image = np.moveaxis(pixels, -1, 0).swapaxes(1, 2) if self.dims == 2 else pixels[None]
        case = {
            "image": MetaTensor(torch.as_tensor(image.astype(np.float32)), affine=torch.eye(4, dtype=torch.float64))
        }
        case = self.processing(case)
        with torch.no_grad():
            probabilities = torch.as_tensor(self.inferer(case["image"][None], self.network)[0]).softmax(0)
        if (params or {}).get("probabilities"):
            return self._in_place(probabilities, case["image"]).astype(np.float32)
        return self.values[self._in_place(probabilities.argmax(0, keepdim=True), case["image"])[0].astype(np.int64)]

    def _in_place(self, values: torch.Tensor, image: MetaTensor) -> np.ndarray:
        """Bring what was found into the geometry of the input, classes by their nearest neighbors."""
        operations = image.applied_operations
        if not values.is_floating_point():
            operations = convert_applied_interp_mode(operations, mode="nearest", align_corners=None)
        placed = MetaTensor(values.float(), meta=image.meta, applied_operations=operations)
        found = self.processing.inverse({"image": placed})["image"].numpy()
        return found.swapaxes(1, 2) if self.dims == 2 else found

    def _pixels(self, model_input: Any) -> np.ndarray:
        """Return the input as an array that can be segmented, or refuse it in one sentence."""
        expected = "an image of shape (height, width, 3)" if self.dims == 2 else "a volume of shape (x, y, z)"
        try:
            pixels = np.asarray(model_input)
        except ValueError:
            _refuse(expected, "rows of unequal shape")
        if pixels.ndim != 3 or (self.dims == 2 and pixels.shape[-1] != 3) or not 0 < pixels.size <= _LARGEST:
            _refuse(f"{expected} and at most {_LARGEST} values", f"shape {pixels.shape}")
        if not np.issubdtype(pixels.dtype, np.number) or not np.isfinite(pixels).all():
            _refuse("finite numbers", f"others ({pixels.dtype})")
        if self.dims == 3:
            return pixels
        # numbers that come by HTTP have lost their type, but whole numbers from 0 to 255 are bytes
        if not np.issubdtype(pixels.dtype, np.integer) or pixels.min() < 0 or pixels.max() > 255:
            _refuse("bytes from 0 to 255 (uint8)", f"{pixels.dtype} from {pixels.min():g} to {pixels.max():g}")
        return pixels.astype(np.uint8)


def _refuse(expected: str, found: str) -> NoReturn:
    raise MlflowException(f"Expected {expected}, found {found}.", error_code=INVALID_PARAMETER_VALUE)


set_model(SegmentationModel())
