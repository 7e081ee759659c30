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

"""torchvision beside a torch of another build.

On Linux, pip installs torchvision for CUDA. Beside a torch for the CPU its operators do not load, and importing it
fails where it describes one of them, ``nms``. Networks of segmentation_models_pytorch and timm import torchvision
without using its operators, and so does Lightning, and MLflow where Lightning is installed.
"""

import importlib.util
import sys
from functools import cache
from pathlib import Path

import torch

__all__ = ["make_importable"]


@cache
def make_importable() -> None:
    """Where torchvision is installed but its operators do not load, declare those that it describes."""
    spec = None if "torchvision" in sys.modules else importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return
    try:
        for file in Path(spec.origin).parent.glob("_C.*"):
            torch.ops.load_library(file)
    except OSError:
        for operator in ("nms", "qnms"):
            schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            torch.library.define(f"torchvision::{operator}", schema)
