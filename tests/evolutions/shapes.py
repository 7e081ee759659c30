# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Level sets of shapes whose convexity is known."""

import torch

from monai_iels import ConvexCurveMotion

SIZE = 96
Y, X = torch.meshgrid(*[torch.arange(SIZE, dtype=torch.float64) - SIZE / 2] * 2, indexing="ij")
DISK = 30 - (X**2 + Y**2).sqrt()
NOTCHED = torch.minimum(DISK, torch.maximum(X.abs() - 8, Y))
CRESCENT = torch.minimum(DISK, ((X - 15) ** 2 + Y**2).sqrt() - 22)


def field(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def of_one_channel(**kwargs):
    return ConvexCurveMotion(regions=((0,),), activation="sigmoid", **kwargs)
