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
"""Does a registered model do what the bundle does? It is announced only if it does."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pandas as pd
import torch
from monai.bundle import ConfigParser
from PIL import Image
from torch import nn
from torch.nn.functional import interpolate

from monai_iels.run_folder import RunFolder

_LARGEST_DIFFERENCE = 1e-5
_LARGEST_SHARE = 0.001  # of labels that may differ, and of a probability


def check_network(loaded: nn.Module, network: nn.Module, shapes: list[tuple[int, ...]]) -> None:
    """Compare the logits of a loaded network with those of the network that was registered.

    Raises:
        RuntimeError: if they differ.
    """
    for shape in shapes:
        x = torch.rand(shape, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            difference = float((loaded(x) - network(x)).abs().max())
        if not difference <= _LARGEST_DIFFERENCE:
            raise RuntimeError(f"the logits differ by {difference:.2g} after loading; it was not announced")


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
    pixels = interpolate(noise, size, mode="bilinear" if dims == 2 else "trilinear")[0].mul(255).byte().numpy()
    if dims == 2:
        file = folder / "example.png"
        Image.fromarray(np.moveaxis(pixels, 0, -1)).save(file)
    else:
        file = folder / "example.nii.gz"
        nibabel.save(nibabel.Nifti1Image(pixels[0], np.diag([-1.25, 1.0, 0.75, 1.0])), file)
    return file


def _by_monai(folder: RunFolder, config: dict[str, Any], image: Path) -> dict[str, np.ndarray]:
    """Return labels and probabilities of a file by the bundle's own config and MONAI's own engine."""
    transforms = [t for t in config["postprocessing"]["transforms"] if not _is(t, "SaveImaged")]
    discrete = next(number for number, t in enumerate(transforms) if _is(t, "AsDiscreted"))
    transforms.insert(discrete, {"_target_": "CopyItemsd", "keys": "pred", "names": "probabilities"})
    places = {"dataset_dir": str(image), "checkpoint": str(folder.best_weights), "device": "cpu", "amp": False}
    parser = ConfigParser({**config, **places, "postprocessing": {"_target_": "Compose", "transforms": transforms}})
    parser.get_parsed_content("network_def").load_state_dict(folder.load_best_weights())
    evaluator = parser.get_parsed_content("evaluator")
    evaluator.run()
    found = {key: evaluator.state.output[0][key].numpy() for key in ("written", "probabilities")}
    return {key: values.swapaxes(1, 2) if values.ndim == 3 else values for key, values in found.items()}


def _is(transform: Any, name: str) -> bool:
    return isinstance(transform, dict) and str(transform.get("_target_")).endswith(name)
