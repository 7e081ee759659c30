# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The evolutions on real masks of white blood cells, where ``MONAI_IELS_DATA`` names a folder that has them."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from skimage.measure import regionprops

from monai_iels import ConvexCurveMotion, HeatDiffusion


@pytest.fixture(scope="module")
def nuclei():
    """Return smooth logits of 30 nuclei, many of them lobed, of shape ``(30, 1, 120, 120)``."""
    folder = Path(os.environ.get("MONAI_IELS_DATA", "")) / "wbc" / "Dataset 1"
    if "MONAI_IELS_DATA" not in os.environ or not folder.is_dir():
        pytest.skip(f"set MONAI_IELS_DATA to a folder that has {Path('wbc') / 'Dataset 1'}")
    masks = [np.asarray(Image.open(file)) == 255 for file in sorted(folder.glob("*.png"))[:30]]
    assert len(masks) == 30
    logits = torch.as_tensor(8.0 * np.stack(masks)[:, None] - 4.0, dtype=torch.float32)
    return HeatDiffusion().evolve(logits, 0.2, 20)


def solidity(phi):
    return torch.tensor([regionprops((cell[0] > 0).int().numpy())[0].solidity for cell in phi])


def roughness(phi):
    inside = phi > 0
    return sum(inside.diff(dim=axis).float().mean() for axis in (2, 3))


def test_curve_motion_makes_nuclei_more_convex_forward_and_less_backward(nuclei):
    motion = ConvexCurveMotion(regions=((0,),), activation="sigmoid")
    assert (solidity(motion.evolve(nuclei, 0.1, 20)) - solidity(nuclei)).mean() > 0.03
    assert (solidity(motion.evolve(nuclei, -0.1, 20)) - solidity(nuclei)).mean() < -0.03


def test_heat_amplifies_noise_backward_and_leaves_a_smooth_outline_alone(nuclei):
    heat = HeatDiffusion(2.0)
    noisy = nuclei + 0.3 * torch.randn(nuclei.shape, generator=torch.Generator().manual_seed(0))
    assert roughness(noisy) < 1.2 * roughness(nuclei)
    assert roughness(heat.evolve(nuclei, -0.1, 20)) < 1.2 * roughness(nuclei)
    assert roughness(heat.evolve(noisy, -0.1, 20)) > 20 * roughness(nuclei)
    assert roughness(heat.evolve(noisy, 0.1, 20)) < 1.05 * roughness(nuclei)
