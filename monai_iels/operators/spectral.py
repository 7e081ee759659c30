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

"""The modes of the Neumann Laplacian: cosines (DCT-II), by fast Fourier transforms of the field's own length.

The DCT-II of a sequence is read off the real FFT of the same sequence in the order 0, 2, 4, ..., 5, 3, 1 (Makhoul,
1980): turned by a quarter of a sample, its k-th value is ``c_k - i c_{M-k}``. Real and imaginary part are simply kept
side by side, so a transformed axis holds its coefficients in the order ``0, M, 1, M-1, 2, ...``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from monai_iels.grid import Spacing, spacing_per_axis

__all__ = ["eigenvalues", "from_modes", "to_modes"]


def eigenvalues(shape: tuple[int, ...], spacing: Spacing, like: Tensor) -> Tensor:
    r"""Return the Laplacian's eigenvalue for each coefficient of :func:`to_modes`.

    Mode ``k`` of an axis with ``M`` pixels has the eigenvalue :math:`-(2 - 2\cos(\pi k / M)) / h^2`; those of the axes
    add up.

    Args:
        shape: spatial shape of the field.
        spacing: distance between pixels, one number or one per spatial axis.
        like: tensor that gives device and precision.
    """
    total = like.new_zeros(())
    for size, h in zip(shape, spacing_per_axis(spacing, len(shape)), strict=True):
        k = torch.arange(size // 2 + 1, dtype=like.dtype, device=like.device)
        mode = torch.stack([k, size - k], -1).flatten()
        total = total[..., None] - (2 / h * torch.sin(mode * (math.pi / (2 * size)))) ** 2
    return total


def to_modes(u: Tensor) -> Tensor:
    """Transform every spatial axis of ``(B, C, *spatial)``; one of ``M`` pixels becomes ``2 * (M // 2 + 1)`` long."""
    for _ in range(u.ndim - 2):
        size = u.shape[-1]
        u = torch.cat([u[..., ::2], u[..., 1::2].flip(-1)], -1)
        u = torch.view_as_real(torch.fft.rfft(u).mul_(_quarter_turn(-1, size, u))).flatten(-2).movedim(-1, 2)
    return u


def from_modes(coefficients: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Invert :func:`to_modes` for a field of the spatial ``shape``."""
    u = coefficients
    for size in shape:
        u = u.movedim(2, -1).contiguous().unflatten(-1, (-1, 2))
        reordered = torch.fft.irfft(torch.view_as_complex(u) * _quarter_turn(+1, size, u), n=size)
        u = torch.empty_like(reordered)
        u[..., ::2] = reordered[..., : (size + 1) // 2]
        u[..., 1::2] = reordered[..., (size + 1) // 2 :].flip(-1)
    return u


def _quarter_turn(direction: int, size: int, like: Tensor) -> Tensor:
    """Return the phases of a shift by a quarter of a sample, for the real FFT of ``size`` samples."""
    angle = torch.arange(size // 2 + 1, dtype=like.dtype, device=like.device) * (direction * math.pi / (2 * size))
    return torch.polar(torch.ones_like(angle), angle)
