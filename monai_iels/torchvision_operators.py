# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

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
