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
        raise ValueError(f"`spacing` must be positive{rule}, one number or one per spatial axis, got {spacing!r}.")
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
            f"`spacing` must have one value for each of {spatial_dims} spatial axes, got {tuple(spacing)}: "
            "pass a single number to use it for every axis."
        )
    return tuple(spacing)


def check_dt(dt: float) -> float:
    """Return the time step as a finite float; its sign is the direction of time.

    Raises:
        ValueError: if ``dt`` is NaN or infinite.
    """
    return float(check_number("dt", dt))


def check_steps(steps: int) -> int:
    """Return the number of time steps as an int.

    Raises:
        ValueError: if ``steps`` is negative or not an integer.
    """
    return check_whole("steps", steps, remedy=": the sign of `dt` is the direction of time")


def check_whole(name: str, value: int, low: int = 0, remedy: str = "") -> int:
    """Return a whole number of at least ``low`` as an int.

    Raises:
        ValueError: if it is smaller, or not a whole number.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = low - 1
    if number < low:
        raise ValueError(f"`{name}` must be a whole number, at least {low}, got {value!r}{remedy}.")
    return number


def check_number(name: str, value: float, low: float = -math.inf, high: float = math.inf, above: bool = False) -> float:
    """Return a finite number from ``low`` to ``high``, or, with ``above``, one that is greater than ``low``.

    Raises:
        ValueError: if it is outside of these limits, or not a finite number.
    """
    try:
        is_within = (low < value if above else low <= value) and value <= high and -math.inf < value < math.inf
    except TypeError:
        is_within = False
    if not is_within or isinstance(value, bool):
        lower = "finite" if math.isinf(low) else f"above {low}" if above else f"at least {low}"
        limits = lower if math.isinf(high) else f"{lower} and at most {high}"
        raise ValueError(f"`{name}` must be {limits}, got {value!r}.")
    return value


def check_regions(regions: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Return groups of channels or classes as tuples.

    Raises:
        ValueError: if there is no group, or one is empty or has something else than whole numbers from 0.
    """
    try:
        groups = tuple(tuple(operator.index(k) for k in region) for region in regions)
    except TypeError:
        groups = ()
    if not groups or not all(groups) or min(map(min, groups)) < 0:
        raise ValueError(f"`regions` must be groups of channels or classes such as ((1,), (2, 3)), got {regions!r}.")
    return groups


def power(growth: float, steps: int) -> float:
    """Return ``growth**steps``, or infinity where no float holds it."""
    try:
        return growth**steps
    except OverflowError:
        return math.inf


def as_field(u: Tensor) -> Tensor:
    """Return ``u`` as a plain tensor: float64 stays, all other types become float32.

    Half precision is widened, because a gain of a few hundred leaves no digit of it.

    Raises:
        TypeError: if ``u`` is not a floating point tensor.
        ValueError: if ``u`` has no spatial axis.
    """
    if not isinstance(u, Tensor) or not u.is_floating_point():
        found = u.dtype if isinstance(u, Tensor) else type(u).__name__
        raise TypeError(f"logits must be a floating point tensor, got {found}: convert them with `.float()` first.")
    if u.ndim < 3:
        raise ValueError(f"logits must have a spatial axis, as in (B, C, *spatial), got shape {tuple(u.shape)}.")
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
    """Return ``x`` without its last and without its first element along ``axis``: the two sides of each face."""
    return x.narrow(axis, 0, x.shape[axis] - 1), x.narrow(axis, 1, x.shape[axis] - 1)


def close(x: Tensor, axis: int) -> Tensor:
    """Put a zero before and after ``x`` along ``axis``: nothing flows through the border."""
    return torch.nn.functional.pad(x, (0, 0) * (x.ndim - 1 - axis) + (1, 1))
