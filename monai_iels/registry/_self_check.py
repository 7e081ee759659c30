# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""Does a model that was stored and loaded again predict as before? It is announced only if it does."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from monai.data import MetaTensor
from torch import nn
from torch.nn.functional import interpolate

from monai_iels import images
from monai_iels.prediction import Predictor

_LARGEST_DIFFERENCE = 1e-5
_LARGEST_SHARE = 0.001  # of labels that may differ, and of a probability


def check_network(loaded: nn.Module, network: nn.Module, shapes: list[tuple[int, ...]]) -> None:
    """Compare the logits of a loaded network with those of the network that was registered.

    Raises:
        AssertionError: if they differ.
    """
    for shape in shapes:
        x = torch.rand(shape, generator=torch.Generator().manual_seed(0))
        sentence = "the logits differ after loading; it was not announced"
        with torch.no_grad():
            torch.testing.assert_close(loaded(x), network(x), rtol=0, atol=_LARGEST_DIFFERENCE, msg=sentence)


def check_predictor(model: Any, predictor: Predictor, image_size: list[int], scratch: Path) -> None:
    """Compare the labels and probabilities of a loaded model with those of the predictor that was registered.

    The probabilities show a difference where all labels are of one class.

    Raises:
        RuntimeError: if they differ.
    """
    example = _example(image_size, scratch)
    request = pd.DataFrame({"image": [base64.b64encode(example.read_bytes()).decode("ascii")]})
    labels = model.predict(request)["label"][0]
    probabilities = model.predict(request, params={"probabilities": True})["probabilities"][0]
    image, turned = predictor.read(str(example)), (-1, -2) if predictor.spatial_dims == 2 else (0, 0)
    share = float(np.mean(labels != predictor.labels(image).swapaxes(*turned)))
    difference = float(np.abs(probabilities - predictor.probabilities(image).swapaxes(*turned)).max())
    if not (share <= _LARGEST_SHARE and difference <= _LARGEST_SHARE):
        raise RuntimeError(
            f"{share:.2%} of its labels differ after loading, and probabilities by up to {difference:.2g}; "
            "it was not announced"
        )


def _example(image_size: list[int], folder: Path) -> Path:
    """Draw soft blobs with another size, spacing and orientation than in training, so that a mistake shows."""
    dims = len(image_size)
    size = [side * 4 // 3 + 5 * axis for axis, side in enumerate(image_size)]
    noise = torch.rand((1, 3 if dims == 2 else 1, *[6] * dims), generator=torch.Generator().manual_seed(0))
    pixels = interpolate(noise, size, mode="bilinear" if dims == 2 else "trilinear")[0].mul(255).byte()
    file = folder / f"example{images.writable(dims)[0]}"
    turned = MetaTensor(pixels, affine=torch.diag(torch.tensor([-1.25, 1.0, 0.75, 1.0], dtype=torch.float64)))
    images.format_of(file).write(pixels.squeeze(0).numpy(), turned, file)
    return file
