# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""How well neighboring pixels conduct, by the edges of an image, and the diffusion through such conductances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from monai_iels.grid import close, differences, faces, spatial_axes

# As many differences of an image are enough for a percentile; sorting all of them would take longer than the steps.
_SAMPLE = 2**15
# A conductance of exp(-60) is none; the far smaller ones would be numbers that CPUs compute slowly with.
_STOPS = 60.0
# As many values as a CPU works on at a time.
_CACHED_VALUES = 2**17


def conductances(image: Tensor, percentile: float, contrast: float | None, smoothing: int) -> list[Tensor]:
    r"""Compute :math:`g = e^{-(\Delta I / s)^2}` for each face between two pixels, along each spatial axis.

    Args:
        image: field of shape ``(B, C, *spatial)``; several channels differ by the root of the sum of squares.
        percentile: the contrast ``s`` of each image is this percentile of its differences that are not zero.
        contrast: the contrast ``s`` itself, or None for that of the percentile.
        smoothing: how often the image is smoothed with the weights (1, 2, 1) / 4 along each axis.

    Returns:
        For each axis, a field ``(B, 1, *spatial)`` that is shorter by 1 along it.
    """
    for _ in range(smoothing):
        for axis in spatial_axes(image):
            before, after = differences(image, axis)
            image = image + (after - before) / 4
    edges = [torch.diff(image, dim=axis).square().sum(1, keepdim=True).sqrt() for axis in spatial_axes(image)]
    if contrast is None:
        values = torch.cat([edge.flatten(1) for edge in edges], 1)
        values = values[:, :: values.shape[1] // _SAMPLE + 1]
        s = _percentile(values, percentile).reshape(-1, *[1] * (image.ndim - 1))
    else:
        s = image.new_tensor(contrast)
    s = s.clamp_min(torch.finfo(image.dtype).tiny)  # a step of any height stops the flow, and no step does not
    exponents = [(edge / s) ** 2 for edge in edges]
    return [torch.where(x < _STOPS, torch.exp(-x), 0) for x in exponents]


def _percentile(values: Tensor, percentile: float) -> Tensor:
    """Return the percentile of each row's values above 0, or 0 if it has none."""
    if not values.shape[1]:
        return values.new_zeros(len(values))
    values = torch.where(values > 0, values, torch.nan)
    return values.nanquantile(percentile / 100, dim=1).nan_to_num(0.0)


def flow(u: Tensor, conductances: Sequence[Tensor], spacing: Sequence[float]) -> Tensor:
    r"""Compute :math:`\sum_a (g_{+a} (u_{+a} - u) - g_{-a} (u - u_{-a})) / h_a^2`; nothing flows through the border."""
    total = torch.zeros_like(u)
    for axis, g, h in zip(spatial_axes(u), conductances, spacing, strict=True):
        before, after = faces(close(g * torch.diff(u, dim=axis), axis), axis)
        total = total + (after - before) / h**2
    return total


def _diffuse(u: Tensor, conductances: Sequence[Tensor], dt: float, steps: int, spacing: Sequence[float]) -> Tensor:
    """Take ``steps`` Euler steps of :func:`flow`, as weighted sums over neighbors."""
    weights = [(axis, g * (dt / h**2)) for axis, g, h in zip(spatial_axes(u), conductances, spacing, strict=True)]
    own = 1 - sum(sum(faces(close(weight, axis), axis)) for axis, weight in weights)
    u, new = u.clone(memory_format=torch.contiguous_format), torch.empty_like(u, memory_format=torch.contiguous_format)
    for _ in range(steps):
        torch.mul(u, own, out=new)
        for axis, weight in weights:
            (before, after), (new_before, new_after) = faces(u, axis), faces(new, axis)
            new_before.addcmul_(weight, after)
            new_after.addcmul_(weight, before)
        u, new = new, u
    return u


# One operation for the compiler: it would otherwise unroll all steps.
diffuse = torch.library.custom_op("monai_iels::diffuse_guided", _diffuse, mutates_args=())


@diffuse.register_kernel("cpu")
def _diffuse_in_parts(
    u: Tensor, conductances: Sequence[Tensor], dt: float, steps: int, spacing: Sequence[float]
) -> Tensor:
    """Process one image, and as many channels at a time as a cache holds."""
    out = torch.empty_like(u, memory_format=torch.contiguous_format)
    count = max(1, _CACHED_VALUES // u[0, 0].numel())
    for n in range(len(u)):
        one = [g[n : n + 1] for g in conductances]
        for part, result in zip(u[n : n + 1].split(count, 1), out[n : n + 1].split(count, 1), strict=True):
            result.copy_(_diffuse(part, one, dt, steps, spacing))
    return out


@diffuse.register_fake
def _(u: Tensor, conductances: Sequence[Tensor], dt: float, steps: int, spacing: Sequence[float]) -> Tensor:
    return torch.empty_like(u, memory_format=torch.contiguous_format)


def _keep_conductances(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, conductances, *ctx.settings = inputs
    ctx.save_for_backward(*conductances)


def _diffuse_back(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    """Take the same steps: the map is its own adjoint, so only the conductances are stored."""
    conductances = list(ctx.saved_tensors)
    return diffuse(grad, conductances, *ctx.settings), [None for _ in conductances], None, None, None


diffuse.register_autograd(_diffuse_back, setup_context=_keep_conductances)
