# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Fields that are known only in a part of the image."""

from __future__ import annotations

import torch
from torch import Tensor

from monai_iels.grid import spatial_axes


def extend(u: Tensor, known: Tensor) -> Tensor:
    """Give each unknown pixel the value of a known pixel nearby.

    It is the nearest along an axis, or along one axis and then the next where its lines have none. At a straight edge
    this continues the field as the layers do beyond the border of an image, and makes no edge of its own. Values and
    derivatives of unknown pixels have no effect. An image without known pixels stays as it is.

    Args:
        u: field of shape ``(B, C, *spatial)``.
        known: boolean tensor of shape ``(B, 1, *spatial)``.

    Returns:
        A field of the shape of ``u``.

    Example:
        >>> import torch
        >>> extend(torch.tensor([[[1.0, 7.0, 7.0, 2.0]]]), torch.tensor([[[True, False, False, True]]]))
        tensor([[[1., 1., 2., 2.]]])
    """
    source = torch.arange(known[0].numel(), device=known.device).view(known[:1].shape).expand_as(known)
    for _ in spatial_axes(known):  # as many times as there are axes, all lines have a known pixel, or none has
        distance, nearest = torch.full_like(source, source.numel()), source
        for axis in spatial_axes(known):
            place, far = _nearest_along(known, axis)
            nearest = torch.where(far < distance, source.gather(axis, place), nearest)
            distance = torch.minimum(far, distance)
        source, known = nearest, distance < source.numel()
    return u.flatten(2).gather(2, source.flatten(2).expand(-1, u.shape[1], -1)).view_as(u)


def _nearest_along(known: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Return the place of the nearest known pixel along an axis, and its distance, which is huge if there is none."""
    size, huge = known.shape[axis], known.numel()
    here = torch.arange(size, device=known.device).view(
        [-1 if a == axis % known.ndim else 1 for a in range(known.ndim)]
    )
    before = torch.where(known, here, -huge).cummax(axis).values
    after = torch.where(known, here, huge + size).flip(axis).cummin(axis).values.flip(axis)
    place = torch.where(here - before <= after - here, before, after)
    return place.clamp(0, size - 1), (place - here).abs()
