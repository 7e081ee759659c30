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

"""Central differences with a Neumann boundary."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from monai_iels.grid import Spacing, close, differences, faces, spacing_per_axis, spatial_axes

__all__ = ["gradient", "gradient_norm", "laplacian"]


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


def gradient_norm(u: Tensor, spacing: Spacing = 1.0) -> Tensor:
    r"""Compute :math:`|\nabla_h u|` from central differences (paper, equation 22).

    Its derivative is taken as zero where it is zero or not finite. Only ``u`` is kept for the backward pass.

    Args:
        u: field of shape ``(B, C, *spatial)``.
        spacing: distance ``h`` between pixels, one number or one per spatial axis.

    Returns:
        A field of the shape of ``u``.
    """
    return _GradientNorm.apply(u, spacing_per_axis(spacing, u.ndim - 2))


class _GradientNorm(torch.autograd.Function):
    @staticmethod
    def forward(u: Tensor, spacing: tuple[float, ...]) -> Tensor:
        return _squares(gradient(u, spacing)).sqrt_()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        u, ctx.spacing = inputs
        ctx.save_for_backward(u)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (u,) = ctx.saved_tensors
        components = gradient(u, ctx.spacing)
        squares = _squares(components)
        regular = (squares > 0) & (squares < torch.inf)
        weight = torch.where(regular, grad, 0) / torch.where(regular, squares, 1).sqrt()
        total = torch.zeros_like(u)
        for axis, h, component in zip(spatial_axes(u), ctx.spacing, components, strict=True):
            before, after = faces(torch.where(regular, weight * component, 0), axis)
            into, out_of = faces(close(before + after, axis), axis)
            total.add_(into - out_of, alpha=0.5 / h)
        return total, None


def _squares(components: list[Tensor]) -> Tensor:
    squares = torch.zeros_like(components[0])
    for component in components:
        squares.addcmul_(component, component)
    return squares
