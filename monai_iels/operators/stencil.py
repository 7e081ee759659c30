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

"""Differences with a Neumann boundary."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from monai_iels.grid import Spacing, close, differences, faces, spacing_per_axis, spatial_axes

__all__ = ["Scheme", "gradient", "gradient_norm", "laplacian"]

Scheme: TypeAlias = Literal["central", "both"]
"""How the slope along an axis is made of the differences to both neighbors: their mean, or the steeper one."""


def laplacian(u: Tensor, spacing: Spacing = 1.0) -> Tensor:
    r"""Compute the discrete Laplacian, :math:`\sum_a (u_{+a} - 2u + u_{-a}) / h_a^2`: 5 points in 2-D, 7 in 3-D.

    Args:
        u: field of shape ``(B, C, *spatial)``.
        spacing: distance ``h`` between pixels, one number or one per spatial axis.

    Returns:
        A field of the shape of ``u``. Its sum over space is zero (paper, equations 10 and 11).
    """
    total = torch.zeros_like(u)
    for axis, h in zip(spatial_axes(u), spacing_per_axis(spacing, u.ndim - 2), strict=True):
        before, after = differences(u, axis)
        total = total + (after - before) / h**2
    return total


def gradient(u: Tensor, spacing: Spacing = 1.0) -> list[Tensor]:
    r"""Compute central differences, :math:`(u_{+a} - u_{-a}) / 2h_a` along each spatial axis ``a``.

    Args:
        u: field of shape ``(B, C, *spatial)``.
        spacing: distance ``h`` between pixels, one number or one per spatial axis.

    Returns:
        A field of the shape of ``u`` for each spatial axis; zero along an axis of length 1.
    """
    components = []
    for axis, h in zip(spatial_axes(u), spacing_per_axis(spacing, u.ndim - 2), strict=True):
        before, after = differences(u, axis)
        components.append((before + after).mul_(0.5 / h))
    return components


def gradient_norm(u: Tensor, spacing: Spacing = 1.0, scheme: Scheme = "central") -> Tensor:
    r"""Compute :math:`|\nabla_h u|` from the differences to both neighbors, :math:`D^-` and :math:`D^+` along each axis.

    Central differences add up :math:`((D^- + D^+) / 2)^2` over the axes (paper, equation 22); they vanish on a
    checkerboard and at the tip of a line. Both-sided ones add up :math:`\max((D^-)^2, (D^+)^2)`, which vanishes only
    where all neighbors are equal.

    The derivative is taken as zero where the norm is zero or not finite; where both sides are equally steep, each has
    half of it. Only ``u`` is kept for the backward pass.

    Args:
        u: field of shape ``(B, C, *spatial)``.
        spacing: distance ``h`` between pixels, one number or one per spatial axis.
        scheme: "central" or "both".

    Returns:
        A field of the shape of ``u``.
    """
    return _GradientNorm.apply(u, spacing_per_axis(spacing, u.ndim - 2), scheme)


class _GradientNorm(torch.autograd.Function):
    @staticmethod
    def forward(u: Tensor, spacing: tuple[float, ...], scheme: Scheme) -> Tensor:
        return _squares(u, spacing, scheme).sqrt_()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        u, ctx.spacing, ctx.scheme = inputs
        ctx.save_for_backward(u)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (u,) = ctx.saved_tensors
        squares = _squares(u, ctx.spacing, ctx.scheme)
        regular = (squares > 0) & (squares < torch.inf)
        weight = torch.where(regular, grad, 0) / torch.where(regular, squares, 1).sqrt()
        total = torch.zeros_like(u)
        for axis, h in zip(spatial_axes(u), ctx.spacing, strict=True):
            before, after = (torch.where(regular, weight * part, 0) for part in _PARTS[ctx.scheme](*differences(u, axis)))
            # A difference between two pixels is the one after the first and the one before the second.
            between = after.narrow(axis, 0, u.shape[axis] - 1) + before.narrow(axis, 1, u.shape[axis] - 1)
            into, out_of = faces(close(between, axis), axis)
            total = total + (into - out_of) / h**2
        return total, None, None


def _squares(u: Tensor, spacing: tuple[float, ...], scheme: Scheme) -> Tensor:
    """Return the square of the gradient's norm."""
    total = torch.zeros_like(u)
    for axis, h in zip(spatial_axes(u), spacing, strict=True):
        total.add_(_SQUARES[scheme](*differences(u, axis)), alpha=1 / h**2)
    return total


def _central_square(before: Tensor, after: Tensor) -> Tensor:
    return ((before + after) / 2).square()


def _central_parts(before: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
    quarter = (before + after) / 4
    return quarter, quarter


def _larger_square(before: Tensor, after: Tensor) -> Tensor:
    return torch.maximum(before.square(), after.square())


def _larger_parts(before: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
    share = ((before.abs() - after.abs()).sign() + 1) / 2  # 1, or 1/2 where both are equally steep
    return share * before, (1 - share) * after


_SQUARES = {"central": _central_square, "both": _larger_square}
# Half of the square's derivatives by the two differences.
_PARTS = {"central": _central_parts, "both": _larger_parts}
