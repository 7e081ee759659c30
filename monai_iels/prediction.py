# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Prediction as a bundle's ``inference.json`` describes it, for those who read and write files themselves.

MONAI's own tools read images by ``LoadImaged`` and write labels by ``SaveImaged``. :class:`Predictor` does what is
between these. ``monai_iels.Inference`` and the model that MLflow serves share it, and read files by
:mod:`monai_iels.images`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from typing import Any

import numpy as np
import torch
from monai.bundle import ConfigParser
from monai.data import MetaTensor
from monai.networks.utils import eval_mode
from monai.transforms import AsDiscreted, Compose, LoadImaged, SaveImaged

from monai_iels import images


class Predictor:
    """Predict images one at a time, in their own geometry.

    Args:
        parser: of a bundle's inference config.
        weights: of its network.

    Attributes:
        spatial_dims: 2 for images, 3 for volumes.
        geometry: the transforms of an image that was read that turn and resample it.
        preprocessing: all of its transforms.
        postprocessing: the transforms of the network's output up to labels, which are values of the data set.
        dtype: of labels.
    """

    def __init__(self, parser: ConfigParser, weights: Mapping[str, Any]) -> None:
        get = parser.get_parsed_content
        self.spatial_dims = int(get("spatial_dims"))
        told = "network_def#in_channels" in parser  # an exported network does not tell
        self.in_channels = get("network_def#in_channels") if told else None
        self.device = torch.device(get("device"))
        self.amp = bool(get("amp")) and self.device.type == "cuda"  # as in MONAI's engines
        self.dtype = np.uint8 if max(get("written_values")) < 256 else np.uint16
        self.network = get("network_def").to(self.device)
        self.network.load_state_dict(weights)
        self.inferer = get("inferer")
        self.reader = get("image_reader")
        self.geometry = get("geometry")
        self.preprocessing = Compose(_without(LoadImaged, get("preprocessing")))
        self.postprocessing = Compose(_without(SaveImaged, get("postprocessing")))

    def read(self, file: str, series: str = "") -> MetaTensor:
        """Read an image from a file, or a DICOM series from a folder.

        Raises:
            ValueError: if it is damaged or not finite, or the network cannot be given it, as the end of a sentence
                about the file. The reader raises other errors, too.
        """
        image = images.read_series(file, series) if series else images.read(file, self.reader)
        found = f"{image.ndim - 1}-D, {image.shape[0]} channel(s)"
        taken = f"{self.spatial_dims}-D, {self.in_channels or image.shape[0]} channel(s)"
        if found != taken:
            raise ValueError(f"is of another kind ({found}) than the network takes ({taken})")
        if min(image.shape[1:]) < 2:
            raise ValueError(f"has only {' x '.join(map(str, image.shape[1:]))} pixels; at least 2 per axis are needed")
        return image

    def labels(self, image: MetaTensor) -> np.ndarray:
        """Return the labels of an image ``(C, *spatial)``, of shape ``(*spatial)``."""
        found = self.postprocessing(self._logits(image))["written"]
        return found[0].cpu().numpy().astype(self.dtype)

    def probabilities(self, image: MetaTensor) -> np.ndarray:
        """Return the probability of each class, of shape ``(classes, *spatial)``."""
        before = takewhile(lambda transform: not isinstance(transform, AsDiscreted), self.postprocessing.transforms)
        return Compose(list(before))(self._logits(image))["pred"].float().cpu().numpy()

    def _logits(self, image: MetaTensor) -> dict[str, MetaTensor]:
        case = self.preprocessing({"image": image})
        with eval_mode(self.network), torch.autocast("cuda", enabled=self.amp):
            pred = self.inferer(case["image"][None].to(self.device), self.network)[0]
        return {"image": case["image"], "pred": pred}


def _without(kind: type, transforms: Compose) -> list[Any]:
    return [transform for transform in transforms.transforms if not isinstance(transform, kind)]
