# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Log-odds of groups of channels that share a softmax, and their derivative.

A group is a number whose bits name its channels: 6 is the group of channels 1 and 2. A single channel has no other to
compete with: its log-odds are the channel itself, as with a sigmoid.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor


def log_odds(u: Tensor, groups: Sequence[int]) -> Tensor:
    r"""Compute :math:`\log\sum_{k \in G} e^{u_k} - \log\sum_{k \notin G} e^{u_k}` for each group ``G``.

    Args:
        u: logits of shape ``(B, C, *spatial)``.
        groups: the channels of each group.

    Returns:
        A field of shape ``(B, groups, *spatial)``.
    """
    channels = u.split(1, 1)
    sums = [[reduce(torch.logaddexp, _of(channels, side)) for side in _sides(group, len(channels))] for group in groups]
    return _joined([reduce(torch.sub, inside_and_outside) for inside_and_outside in sums])


def log_odds_adjoint(u: Tensor, groups: Sequence[int], weight: Tensor) -> Tensor:
    """Return the derivative by ``u`` of the sum of ``weight`` times the log-odds."""
    channels = u.split(1, 1)
    parts: list[list[Tensor]] = [[] for _ in channels]
    for group, field in zip(groups, weight.split(1, 1), strict=True):
        for side, signed in zip(_sides(group, len(channels)), (field, -field), strict=False):
            for k, part in zip(side, _shares(_of(channels, side), signed), strict=True):
                parts[k].append(part)
    return _joined([reduce(torch.add, part) for part in parts])


def add_to_groups(u: Tensor, fields: Tensor, groups: Sequence[int], factor: float = 1.0) -> Tensor:
    """Add ``factor`` times the field of each group, of shape ``(B, groups, *spatial)``, to its channels."""
    channels = list(u.split(1, 1))
    for group, field in zip(groups, fields.split(1, 1), strict=True):
        for k in _sides(group, len(channels))[0]:
            channels[k] = torch.add(channels[k], field, alpha=factor)
    return _joined(channels)


def sum_over_groups(u: Tensor, groups: Sequence[int]) -> Tensor:
    """Return the sum of the channels of each group, of shape ``(B, groups, *spatial)``."""
    channels = u.split(1, 1)
    return _joined([reduce(torch.add, _of(channels, _sides(group, len(channels))[0])) for group in groups])


def merge(u: Tensor, groups: Sequence[int]) -> tuple[Tensor, list[int], list[int]]:
    """Merge channels that are in the same groups, which changes no log-odds.

    Returns:
        The merged logits, of which the first channel is in no group; the groups of them; and the place of each channel
        of ``u`` among them.
    """
    channels = u.split(1, 1)
    kinds = [sum(1 << g for g, group in enumerate(groups) if group >> k & 1) for k in range(len(channels))]
    found = sorted({0, *kinds})
    nothing = torch.full_like(channels[0], -torch.inf)
    merged = [
        reduce(torch.logaddexp, [c for c, kind in zip(channels, kinds, strict=True) if kind == each] or [nothing])
        for each in found
    ]
    of_merged = [sum(1 << k for k, kind in enumerate(found) if kind >> g & 1) for g in range(len(groups))]
    return torch.cat(merged, 1), of_merged, [found.index(kind) for kind in kinds]


def _sides(group: int, channels: int) -> list[list[int]]:
    """Return the channels inside of a group, and those outside if there are any."""
    inside = [k for k in range(channels) if group >> k & 1]
    outside = [k for k in range(channels) if not group >> k & 1]
    return [inside, outside] if outside else [inside]


def _of(channels: Sequence[Tensor], side: Sequence[int]) -> list[Tensor]:
    return [channels[k] for k in side]


def _shares(side: Sequence[Tensor], weight: Tensor) -> Sequence[Tensor]:
    """Share a weight between channels, as the derivative of the logarithm of their sum does."""
    return (torch.cat(list(side), 1).softmax(1) * weight).split(1, 1) if len(side) > 1 else [weight]


def _joined(channels: Sequence[Tensor]) -> Tensor:
    return torch.cat(list(channels), 1) if len(channels) > 1 else channels[0]
