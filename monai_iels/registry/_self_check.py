# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""Does a model that was stored and loaded again predict as before? It is announced only if it does."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from monai.data import MetaTensor
from torch import nn
from torch.nn.functional import interpolate

from monai_iels.prediction import Predictor

_LARGEST_SHARE = 0.001  # of labels that may differ, and of a probability
_LARGEST_DIFFERENCE = 0.1  # of probabilities, in the mean: of HRNet after one epoch they differ by 0.07, labels do not


def check_network(loaded: nn.Module, network: nn.Module, shapes: list[tuple[int, ...]]) -> None:
    """Compare the logits of a loaded network with those of the network that was registered.

    Raises:
        AssertionError: if they differ.
    """
    for shape in shapes:
        x = torch.rand(shape, generator=torch.Generator().manual_seed(0))
        sentence = "the logits differ after loading; it was not announced"
        with torch.no_grad():
            torch.testing.assert_close(loaded(x), network(x), rtol=0, atol=1e-5, msg=sentence)


def check_predictor(model: Any, predictor: Predictor, image_size: list[int]) -> None:
    """Compare the labels and probabilities of a loaded model with those of the predictor that was registered.

    The image is larger than those of the training, so that a mistake in resizing shows; the probabilities show a
    difference where all labels are of one class.

    Raises:
        RuntimeError: if they differ.
    """
    size = [side * 4 // 3 + 5 * axis for axis, side in enumerate(image_size)]
    drawn = torch.rand((1, 3 if len(size) == 2 else 1, *[6] * len(size)), generator=torch.Generator().manual_seed(0))
    blobs = interpolate(drawn, size, mode="bilinear" if len(size) == 2 else "trilinear")[0].mul(255)
    pixels = blobs.round().numpy()  # soft: on noise the logits are so large that rounding decides
    image, array = MetaTensor(pixels), pixels.T if len(size) == 2 else pixels[0]
    turned = (-1, -2) if len(size) == 2 else (0, 0)
    probabilities = model.predict(array, params={"probabilities": True})
    share = float(np.mean(model.predict(array) != predictor.labels(image).swapaxes(*turned)))
    difference = float(np.abs(probabilities - predictor.probabilities(image).swapaxes(*turned)).mean())
    if not (share <= _LARGEST_SHARE and difference <= _LARGEST_DIFFERENCE):
        raise RuntimeError(
            f"{share:.2%} of its labels differ after loading, and probabilities by {difference:.2g} in the mean; "
            "it was not announced"
        )
