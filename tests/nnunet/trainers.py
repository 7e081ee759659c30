# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""A trainer for the drawn data set, and images, outputs and labels for its loss."""

import json

import numpy as np
import torch
from nnunet.drawn import DATASET

from monai_iels.nnunet import nnUNetTrainerIEL


def trainer(home, kind=nnUNetTrainerIEL, configuration="3d_fullres", **changes):
    folder = home / "preprocessed" / DATASET
    plans, dataset = (json.loads((folder / name).read_text()) for name in ("nnUNetPlans.json", "dataset.json"))
    plans["continue_training"] = False
    made = kind(plans, configuration, 0, {**dataset, **changes}, torch.device("cpu"))
    made.initialize()
    return made


def image_for(made, channels=1):
    """Return a batch as nnU-Net hands it to the network."""
    patch = made.configuration_manager.patch_size
    return torch.randn(2, channels, *patch, generator=torch.Generator().manual_seed(1))


def heads_and_targets(made, channels=3, ignored=None):
    """Return logits and labels of each scale of deep supervision: noise, and the shape of an L, which is concave."""
    random = torch.Generator().manual_seed(0)
    patch = np.array(made.configuration_manager.patch_size)
    sizes = [tuple(np.round(patch * scale).astype(int)) for scale in made._get_deep_supervision_scales()]
    heads = [torch.randn(2, channels, *size, generator=random) for size in sizes]
    for head in heads:
        head[:, 1] += 3
        head[:, 1, ..., : head.shape[-2] // 2, : head.shape[-1] // 2] -= 6
        head.requires_grad_()
    targets = [torch.randint(0, 3, (2, 1, *size), generator=random) for size in sizes]
    if ignored is not None:
        for target in targets:
            target[torch.rand(target.shape, generator=random) < 0.2] = ignored
    return heads, targets
