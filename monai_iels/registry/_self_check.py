# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""Does a registered model do what the bundle does? It is announced only if it does."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from monai.bundle import ConfigParser
from monai.data import MetaTensor
from monai.transforms import AsDiscreted, CopyItemsd, SaveImaged
from torch import nn
from torch.nn.functional import interpolate

from monai_iels import images
from monai_iels.run_folder import RunFolder

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


def check_predictor(model: Any, folder: RunFolder, config: dict[str, Any], scratch: Path) -> None:
    """Compare labels and probabilities of a predictor with those of the bundle's inference by MONAI alone.

    The probabilities show a difference where all labels are of one class.

    Raises:
        RuntimeError: if they differ.
    """
    example = _example(config, scratch)
    request = pd.DataFrame({"image": [base64.b64encode(example.read_bytes()).decode("ascii")]})
    labels = model.predict(request)["label"][0]
    probabilities = model.predict(request, params={"probabilities": True})["probabilities"][0]
    expected = _by_monai(folder, config, example)
    share = float(np.mean(labels != expected["written"][0]))
    difference = float(np.abs(probabilities - expected["probabilities"]).max())
    if not (share <= _LARGEST_SHARE and difference <= _LARGEST_SHARE):
        raise RuntimeError(
            f"{share:.2%} of its labels differ from the bundle's, and probabilities by up to {difference:.2g}; "
            "it was not announced"
        )


def _example(config: dict[str, Any], folder: Path) -> Path:
    """Draw soft blobs with another size, spacing and orientation than in training, so that a mistake shows."""
    dims = config["spatial_dims"]
    size = [side * 4 // 3 + 5 * axis for axis, side in enumerate(config["image_size"])]
    noise = torch.rand((1, 3 if dims == 2 else 1, *[6] * dims), generator=torch.Generator().manual_seed(0))
    pixels = interpolate(noise, size, mode="bilinear" if dims == 2 else "trilinear")[0].mul(255).byte()
    file = folder / f"example{images.writable(dims)[0]}"
    turned = MetaTensor(pixels, affine=torch.diag(torch.tensor([-1.25, 1.0, 0.75, 1.0], dtype=torch.float64)))
    images.format_of(file).write(pixels.squeeze(0).numpy(), turned, file)
    return file


def _by_monai(folder: RunFolder, config: dict[str, Any], image: Path) -> dict[str, np.ndarray]:
    """Return labels and probabilities of a file by the bundle's own config and MONAI's own engine."""
    places = {"dataset_dir": str(image), "checkpoint": str(folder.best_weights), "device": "cpu", "amp": False}
    parser = ConfigParser({**config, **places})
    parser.get_parsed_content("network_def").load_state_dict(folder.load_best_weights())
    postprocessing = parser.get_parsed_content("postprocessing")
    transforms = [one for one in postprocessing.transforms if not isinstance(one, SaveImaged)]
    discrete = next(number for number, one in enumerate(transforms) if isinstance(one, AsDiscreted))
    transforms.insert(discrete, CopyItemsd("pred", names="probabilities"))
    postprocessing.transforms = transforms
    evaluator = parser.get_parsed_content("evaluator")
    evaluator.run()
    found = {key: evaluator.state.output[0][key].numpy() for key in ("written", "probabilities")}
    return {key: values.swapaxes(1, 2) if values.ndim == 3 else values for key, values in found.items()}
