# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The modes of the Neumann Laplacian: cosines (DCT-II), by fast Fourier transforms of the field's own length.

The DCT-II of a sequence is read off the real FFT of the same sequence in the order 0, 2, 4, ..., 5, 3, 1 (Makhoul,
1980): turned by a quarter of a sample, its k-th value is ``c_k - i c_{M-k}``. Real and imaginary part simply stay side
by side: each transformed axis has ``M // 2 + 1`` entries, and adds an axis of two at the end, for ``c_k`` and
``-c_{M-k}``. Orders and phases are made once for a size and kept.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from monai_iels.grid import Spacing, spacing_per_axis, spatial_axes


def eigenvalues(shape: tuple[int, ...], spacing: Spacing, like: Tensor) -> Tensor:
    r"""Return the Laplacian's eigenvalue for each coefficient of :func:`to_modes`.

    Mode ``k`` of an axis with ``M`` pixels has the eigenvalue :math:`-(2 - 2\cos(\pi k / M)) / h^2`; those of the axes
    add up.

    Args:
        shape: spatial shape of the field.
        spacing: distance between pixels, one number or one per spatial axis.
        like: tensor that gives device and precision.
    """
    dims = len(shape)
    total = like.new_zeros(())
    for axis, (size, h) in enumerate(zip(shape, spacing_per_axis(spacing, dims), strict=True)):
        k = torch.arange(size // 2 + 1, dtype=like.dtype, device=like.device)
        mode = torch.stack([k, size - k], -1)
        value = -((2 / h * torch.sin(mode * (math.pi / (2 * size)))) ** 2)
        # The pairs of the last axis are made first, so they come first.
        place = [1] * (2 * dims)
        place[axis], place[2 * dims - 1 - axis] = mode.shape
        total = total + value.view(place)
    return total


def to_modes(u: Tensor) -> Tensor:
    """Transform every spatial axis of ``(B, C, *spatial)``, the last one first."""
    for axis in reversed(spatial_axes(u)):
        order, turn = _phases(-1, u.shape[axis], u.dtype, u.device)
        modes = torch.fft.rfft(_in_order(u, axis, order), dim=axis)
        u = torch.view_as_real(modes.mul_(_along(axis, turn, modes)))
    return u


def from_modes(coefficients: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Invert :func:`to_modes` for a field of the spatial ``shape``."""
    u = coefficients
    for axis, size in enumerate(shape, start=2):
        order, turn = _phases(+1, size, u.dtype, u.device)
        modes = torch.view_as_complex(u)
        u = _in_order(torch.fft.irfft(modes * _along(axis, turn, modes), n=size, dim=axis), axis, order)
    return u


@lru_cache(maxsize=32)
def _phases(direction: int, size: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the order 0, 2, 4, ..., 5, 3, 1 of ``size`` samples, or its inverse, and a quarter turn for each mode."""
    index = torch.arange(size, device="cpu")
    order = torch.cat([index[::2], index[1::2].flip(0)])
    angle = torch.arange(size // 2 + 1, dtype=torch.float64, device="cpu") * (direction * math.pi / (2 * size))
    turn = torch.polar(torch.ones_like(angle), angle).to(dtype.to_complex())
    return (order if direction < 0 else order.argsort()).to(device), turn.to(device)


def _in_order(u: Tensor, axis: int, order: Tensor) -> Tensor:
    """Return an axis in another order. Along the last one, a CPU gathers up to ten times as fast as it selects."""
    if axis < u.ndim - 1:
        return u.index_select(axis, order)
    return u.gather(axis, _along(axis, order, u).expand_as(u))


def _along(axis: int, values: Tensor, like: Tensor) -> Tensor:
    """Return one value for each entry of an axis of ``like``, ready to be multiplied with it."""
    return values.view([-1 if a == axis else 1 for a in range(like.ndim)])
