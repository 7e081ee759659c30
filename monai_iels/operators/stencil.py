# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Differences with a Neumann boundary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from monai_iels.grid import Spacing, differences, faces, spacing_per_axis, spatial_axes

_TINY = 1e-30


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


def gradient_norm(u: Tensor, spacing: Spacing = 1.0, scheme: str = "central") -> Tensor:
    r"""Compute :math:`|\nabla_h u|` from the differences :math:`D^-` and :math:`D^+` to both neighbors along each axis.

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


def add_norm_adjoint(
    total: Tensor, u: Tensor, weight: Tensor, spacing: Sequence[float], scheme: str, factor: float = 1.0
) -> Tensor:
    r"""Add ``factor`` times the derivative of :math:`\sum w\,|\nabla_h u|` by a finite ``u`` to ``total``, in place."""
    slopes = [_SCHEMES[scheme](apart, axis) for axis, apart in _between(u, spacing)]
    if torch.is_grad_enabled():  # the derivative of a hypotenuse of 0 is not a number, that of gradient_norm is 0
        norm = gradient_norm(u, spacing, scheme)
        weight = weight / torch.where(norm > 0, norm, torch.inf)
    else:
        weight = weight / _norm(slopes).clamp_min(_TINY)
    for slope, h in zip(slopes, spacing, strict=True):
        inner = u.shape[slope.axis] - 1
        flow = slope.twice_the_flow(weight)
        total.narrow(slope.axis, 1, inner).add_(flow, alpha=0.5 * factor / h)
        total.narrow(slope.axis, 0, inner).sub_(flow, alpha=0.5 * factor / h)
    return total


class _GradientNorm(torch.autograd.Function):
    @staticmethod
    def forward(u: Tensor, spacing: tuple[float, ...], scheme: str) -> Tensor:
        return _norm([_SCHEMES[scheme](apart, axis) for axis, apart in _between(u, spacing)])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        u, ctx.spacing, ctx.scheme = inputs
        ctx.save_for_backward(u)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (u,) = ctx.saved_tensors
        weight = torch.where(gradient_norm(u, ctx.spacing, ctx.scheme) < torch.inf, grad, 0)
        return add_norm_adjoint(torch.zeros_like(u), u.nan_to_num(0, 0, 0), weight, ctx.spacing, ctx.scheme), None, None


class _Mean:
    """The mean of the differences before and after each pixel along an axis."""

    def __init__(self, between: Tensor, axis: int) -> None:
        self.axis = axis
        self.steepness = torch.lerp(*faces(between, axis), 0.5)

    def twice_the_flow(self, weight: Tensor) -> Tensor:
        """Return twice what each difference between two pixels contributes to the weighted sum of the norm."""
        before, after = faces(weight * self.steepness, self.axis)
        return before + after


class _Steeper:
    """The larger magnitude of the differences before and after each pixel along an axis."""

    def __init__(self, between: Tensor, axis: int) -> None:
        self.axis, self.between = axis, between
        self.magnitudes = between.abs()
        self.steepness = torch.maximum(*faces(self.magnitudes, axis))

    def twice_the_flow(self, weight: Tensor) -> Tensor:
        """Return twice what each difference contributes; of two equally steep ones, each has half of the weight."""
        before, after = faces(self.magnitudes, self.axis)
        side = (before - after).sign_().detach()
        inner = weight.shape[self.axis] - 1
        of_before = torch.addcmul(weight, weight, side).narrow(self.axis, 1, inner)
        of_after = torch.addcmul(weight, weight, side, value=-1).narrow(self.axis, 0, inner)
        return (of_before + of_after) * self.between.narrow(self.axis, 1, inner)


_SCHEMES: dict[str, type[_Mean | _Steeper]] = {"central": _Mean, "both": _Steeper}


def _between(u: Tensor, spacing: Sequence[float]) -> Iterator[tuple[int, Tensor]]:
    """Yield each axis with the differences between its pixels, divided by their distance; zero at the border."""
    padded = F.pad(u, (1, 1) * len(spacing), mode="replicate")
    for axis, h in zip(spatial_axes(u), spacing, strict=True):
        line = padded
        for other in spatial_axes(u):
            line = line if other == axis else line.narrow(other, 1, u.shape[other])
        apart = torch.diff(line, dim=axis)
        yield axis, apart if h == 1 else apart / h


def _norm(slopes: Sequence[_Mean | _Steeper]) -> Tensor:
    return reduce(torch.hypot, [slope.steepness for slope in slopes]) if len(slopes) > 1 else slopes[0].steepness.abs()
