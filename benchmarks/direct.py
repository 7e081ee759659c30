# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The paper's layers written down directly, step by step and with convolutions: what the package is compared with."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor


def loop_of_convolutions(u: Tensor, dt: float, steps: int, spacing: float) -> Tensor:
    """Take Euler steps of heat diffusion with the 5-point kernel on replicate-padded borders (equations 9 to 13)."""
    channels = u.shape[1]
    kernel = torch.tensor([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]], dtype=u.dtype).expand(channels, 1, 3, 3) / spacing**2
    for _ in range(steps):
        u = u + dt * F.conv2d(F.pad(u, (1, 1, 1, 1), mode="replicate"), kernel, groups=channels)
    return u


def curve_motion(
    phi: Tensor,
    dt: float,
    steps: int,
    radii: tuple[int, ...],
    band: int,
    disk_sum: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Tensor:
    """Take steps of Algorithm 1 with a sum over the disk of every radius and of the band, each channel on its own."""
    disk_sum = disk_sum or convolution
    for _ in range(steps):
        with torch.no_grad():
            f = (phi > 0).to(phi.dtype)
            concave = torch.zeros_like(f, dtype=torch.bool)
            for radius in radii:
                disk = _disk(radius).to(phi.dtype)
                concave |= (f == 0) & (2 * disk_sum(f, disk).round() > disk.sum())
            moving = disk_sum(concave.to(phi.dtype), _disk(band).to(phi.dtype)).round() > 0
        padded = F.pad(phi, (1, 1, 1, 1), mode="replicate")
        down = (padded[..., 2:, 1:-1] - padded[..., :-2, 1:-1]) / 2
        right = (padded[..., 1:-1, 2:] - padded[..., 1:-1, :-2]) / 2
        phi = phi + dt * torch.where(moving, (down.square() + right.square() + 1e-12).sqrt(), 0)
    return phi


def convolution(mask: Tensor, disk: Tensor) -> Tensor:
    """Convolve each channel of a mask with a disk."""
    channels, radius = mask.shape[1], disk.shape[0] // 2
    return F.conv2d(mask, disk.expand(channels, 1, *disk.shape), padding=radius, groups=channels)


def convolution_in_the_batch(mask: Tensor, disk: Tensor) -> Tensor:
    """Convolve the channels as further images."""
    return convolution(mask.flatten(0, 1)[:, None], disk).view(mask.shape)


def shifted_sum(mask: Tensor, disk: Tensor) -> Tensor:
    """Add up the mask shifted by every pixel of a disk."""
    radius, (height, width) = disk.shape[0] // 2, mask.shape[2:]
    padded, total = F.pad(mask, (radius,) * 4), torch.zeros_like(mask)
    for y, x in disk.nonzero().tolist():
        total += padded[..., y : y + height, x : x + width]
    return total


def _disk(radius: int) -> Tensor:
    offset = torch.arange(-radius, radius + 1)
    return (offset[:, None] ** 2 + offset**2) <= radius**2
