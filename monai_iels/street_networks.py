# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The paper's networks for street scenes, from the libraries that keep them; the extra ``cityscapes`` installs them."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from monai_iels._terminal import first_line
from monai_iels.torchvision_operators import make_importable

BACKBONES = {"deeplabv3plus": "resnet101", "hrnetv2_w48": "hrnet_w48"}
"""The paper's networks, and the backbone of each."""


def street_network(
    architecture: str,
    num_classes: int,
    in_channels: int = 3,
    weights: str | None = None,
    backbones: Mapping[str, str] = BACKBONES,
) -> nn.Module:
    """Make one of the paper's two networks for Cityscapes.

    Args:
        architecture: ``"deeplabv3plus"`` or ``"hrnetv2_w48"``.
        num_classes: number of classes.
        in_channels: number of channels of an image.
        weights: what the backbone starts from: None for random weights, ``"imagenet"`` to download them, or the file of
            a state dictionary, of torchvision's ResNet or of timm's HRNet.
        backbones: the backbone of each network, as segmentation_models_pytorch and timm name them; smaller ones are for
            trials on a CPU.

    Raises:
        ValueError: for an unknown architecture, or weights that cannot be read or do not fit.
        ImportError: if the libraries are not installed.
    """
    makers = {"deeplabv3plus": _deeplabv3plus, "hrnetv2_w48": _HRNetV2}
    if architecture not in makers:
        raise ValueError(f"architecture must be one of {', '.join(makers)}, got '{architecture}'")
    if weights not in (None, "imagenet") and not os.path.isfile(weights):
        raise ValueError(f"backbone weights {weights}: there is no such file; give one, 'imagenet', or none")
    backbone = backbones.get(architecture, BACKBONES[architecture])
    make_importable()
    try:
        return makers[architecture](num_classes, in_channels, weights, backbone)
    except ImportError as error:
        remedy = 'pip install "monai_iels[cityscapes]"'
        raise ImportError(f"the networks for street scenes need {error.name}: {remedy}") from error
    except (KeyError, RuntimeError, OSError, pickle.UnpicklingError, EOFError, TypeError) as error:
        reason = first_line(error).partition(". ")[0].rstrip(":")
        raise ValueError(
            f"the backbone '{backbone}' of {architecture} with the weights {weights} cannot be made: {reason}"
        ) from error


def _deeplabv3plus(num_classes: int, in_channels: int, weights: str | None, backbone: str) -> nn.Module:
    """Make segmentation_models_pytorch's DeepLabV3+; the arguments are those of :func:`street_network`.

    Its image-pooling branch normalizes one number per channel and image. A batch of one image has no spread to divide
    by, so that torch refuses it in training; here the branch then uses its running statistics.
    """
    from segmentation_models_pytorch import DeepLabV3Plus

    downloaded = weights if weights == "imagenet" else None
    network = DeepLabV3Plus(backbone, encoder_weights=downloaded, in_channels=in_channels, classes=num_classes)
    _load(network.encoder, weights)
    pooling = network.decoder.aspp[0].convs[-1]
    pooling[2] = _NormOfPooled(pooling[2].num_features)
    return network


class _NormOfPooled(nn.BatchNorm2d):
    """Batch normalization of ``(B, C, 1, 1)``, with the running statistics for a batch of one."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalize."""
        has_spread = self.training and input.shape[0] > 1
        return F.batch_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, has_spread, 0.1, self.eps
        )


class _HRNetV2(nn.Module):
    """HRNetV2: timm's HRNet keeps four resolutions; all are brought to the finest and classified together."""

    def __init__(self, num_classes: int, in_channels: int, weights: str | None, backbone: str) -> None:
        from timm import create_model

        super().__init__()
        network: Any = create_model(
            backbone,
            pretrained=weights == "imagenet",
            in_chans=in_channels,
            features_only=True,
            feature_location="",
            out_indices=(1, 2, 3, 4),
        )
        _load(network, weights)
        width = sum(network.feature_info.channels())
        self.backbone = network
        self.head = nn.Sequential(
            nn.Conv2d(width, width, 1), nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.Conv2d(width, num_classes, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of each pixel."""
        finest, *others = self.backbone(x)
        scales = [finest] + [F.interpolate(scale, finest.shape[2:], mode="bilinear") for scale in others]
        return F.interpolate(self.head(torch.cat(scales, dim=1)), x.shape[2:], mode="bilinear")


def _load(backbone: nn.Module, weights: str | None) -> None:
    """Load a file's weights into a backbone; what the file has beyond it, such as a classifier, is left out."""
    if weights not in (None, "imagenet"):
        stored = torch.load(weights, map_location="cpu", weights_only=True)
        backbone.load_state_dict({key: stored[key] for key in backbone.state_dict() if key in stored})
