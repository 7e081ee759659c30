# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The regular grid that every field lives on: spacing per axis, Neumann neighbors, and all checks of arguments.

A field is a floating point tensor of shape ``(B, C, *spatial)``.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

Spacing: TypeAlias = float | Sequence[float]
"""Distance between neighboring pixels: one number for every axis, or one number per axis."""


def check_spacing(spacing: Spacing, may_be_infinite: bool = False) -> Spacing:
    """Return the spacing as a float, or as a tuple of floats if it was given per axis.

    Raises:
        ValueError: if a value is not a positive number, if there is none, or if one is infinite and may not be, or all.
    """
    try:
        values = tuple(float(h + 0.0) for h in (spacing if isinstance(spacing, Iterable) else (spacing,)))
    except TypeError:
        values = ()
    finite = [h for h in values if h < math.inf]
    if not finite or not all(h > 0 for h in values) or (len(finite) < len(values) and not may_be_infinite):
        rule = " and not infinite for every axis" if may_be_infinite else " and finite" if math.inf in values else ""
        raise ValueError(
            f"Expected `spacing` to be positive{rule}, one number or one per spatial axis, got {spacing!r}."
        )
    return values if isinstance(spacing, Iterable) else values[0]


def spacing_per_axis(spacing: Spacing, spatial_dims: int) -> tuple[float, ...]:
    """Return one spacing for each of the ``spatial_dims`` axes.

    Raises:
        ValueError: if ``spacing`` was given per axis, for another number of axes.
    """
    if isinstance(spacing, float | int):
        return (spacing,) * spatial_dims
    if len(spacing) != spatial_dims:
        raise ValueError(
            f"Expected `spacing` with one value for each of {spatial_dims} spatial axes, got {tuple(spacing)}. "
            "Pass a single number to use it for every axis."
        )
    return tuple(spacing)


def check_dt(dt: float) -> float:
    """Return the time step as a finite float; its sign is the direction of time.

    Raises:
        ValueError: if ``dt`` is NaN or infinite.
    """
    try:
        finite = -math.inf < dt < math.inf
    except TypeError:
        finite = False
    if not finite:
        raise ValueError(f"Expected a finite time step `dt`, got {dt!r}.")
    return float(dt)


def check_steps(steps: int) -> int:
    """Return the number of time steps as an int.

    Raises:
        ValueError: if ``steps`` is negative or not an integer.
    """
    try:
        count = operator.index(steps)
    except TypeError:
        raise ValueError(f"Expected `steps` to be an integer, got {steps!r}.") from None
    if count < 0:
        raise ValueError(f"Expected `steps` >= 0, got {count}. The direction of time is the sign of `dt`.")
    return count


def power(growth: float, steps: int) -> float:
    """Return ``growth**steps``, or infinity where no float holds it."""
    try:
        return growth**steps
    except OverflowError:
        return math.inf


def as_field(u: Tensor) -> Tensor:
    """Return ``u`` as a plain tensor in the precision that it is computed in: float64, or float32 for all the rest.

    Half precision is widened, because a gain of a few hundred leaves no digit of it.

    Raises:
        TypeError: if ``u`` is not a floating point tensor.
        ValueError: if ``u`` has no spatial axis.
    """
    if not isinstance(u, Tensor) or not u.is_floating_point():
        found = u.dtype if isinstance(u, Tensor) else type(u).__name__
        raise TypeError(f"Expected a floating point tensor of logits, got {found}. Convert it with `.float()` first.")
    if u.ndim < 3:
        raise ValueError(f"Expected a tensor of shape (B, C, *spatial) with a spatial axis, got {tuple(u.shape)}.")
    plain = u if type(u) is Tensor else u.as_subclass(Tensor)
    return plain if plain.dtype == torch.float64 else plain.float()


def spatial_axes(u: Tensor) -> range:
    """Return the indices of the spatial axes of ``(B, C, *spatial)``."""
    return range(2, u.ndim)


def differences(u: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Return the difference to the pixel before and to the pixel after along ``axis``, zero across the border.

    This is the Neumann boundary of the paper's equation 11, where ``U_0 = U_1`` and ``U_{M+1} = U_M``.
    """
    return faces(close(torch.diff(u, dim=axis), axis), axis)


def faces(x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Return ``x`` without its last and without its first element along ``axis``: both sides of what lies between."""
    return x.narrow(axis, 0, x.shape[axis] - 1), x.narrow(axis, 1, x.shape[axis] - 1)


def close(x: Tensor, axis: int) -> Tensor:
    """Put a zero before and after ``x`` along ``axis``: nothing flows through the border."""
    return torch.nn.functional.pad(x, (0, 0) * (x.ndim - 1 - axis) + (1, 1))
