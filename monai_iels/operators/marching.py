# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Steps of level sets that move at the concave stretches of their boundaries, and their derivative.

They are torch operations, few of them whatever the radii; on a CPU they are compiled where numba is installed.
"""

from __future__ import annotations

import importlib.util
import operator
from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from monai_iels.operators.balls import near, share_around
from monai_iels.operators.odds import add_to_groups, log_odds, log_odds_adjoint, sum_over_groups
from monai_iels.operators.stencil import add_norm_adjoint, gradient_norm

_HAS_NUMBA = importlib.util.find_spec("numba") is not None
# For the backward pass the logits of every fifth step are kept; those between are computed again.
_KEPT_EVERY = 5
_LARGE = 1e18  # its square is finite


def concave(phi: Tensor, radii: Sequence[float], spacing: Sequence[float]) -> Tensor:
    """Return the pixels outside of ``phi > 0`` around which it fills more than half of a ball of one of the radii."""
    return (share_around(phi, radii, spacing) > 0.5) & (phi <= 0) & (phi > -torch.inf)


def moving(phi: Tensor, radii: Sequence[float], band: float, spacing: Sequence[float]) -> Tensor:
    """Return the pixels within ``band`` of those that are concave."""
    return _moving_op(phi.detach(), radii, band, spacing)


def march(
    u: Tensor,
    groups: Sequence[int],
    dt: float,
    steps: int,
    radii: Sequence[float],
    band: float,
    spacing: Sequence[float],
    scheme: str,
) -> Tensor:
    """Return how far ``u`` moves in steps of ``phi + dt * |grad phi|``, each within ``band`` of pixels then concave.

    Each group of channels has a level set ``phi``, its log-odds, and a step adds its motion to all channels of the
    group. Pixels of a level set that are not finite, and those beside them, stand still.
    """
    return _march_op(u, groups, dt, steps, radii, band, spacing, scheme)[0]


def _moving(phi: Tensor, radii: Sequence[float], band: float, spacing: Sequence[float]) -> Tensor:
    return near(concave(phi, radii, spacing).to(phi.dtype), band, spacing) > 0.5


def _march(
    u: Tensor,
    groups: Sequence[int],
    dt: float,
    steps: int,
    radii: Sequence[float],
    band: float,
    spacing: Sequence[float],
    scheme: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the movement of all steps, the logits stored for the backward pass, and where each step moved."""
    _, kept, moves = _march_in_meta(u, groups, dt, steps, radii, band, spacing, scheme)
    phi = log_odds(u, groups)
    # Half, but for pixels that never count as concave, or never move.
    half = torch.where(phi > -torch.inf, 0.5, torch.inf)
    half_if_free = torch.where(gradient_norm(phi, spacing, scheme) < torch.inf, 0.5, torch.inf)
    u = start = _finite(u, groups)
    for step, move in enumerate(moves):
        if step and step % _KEPT_EVERY == 0:
            kept[step // _KEPT_EVERY - 1] = u
        phi = log_odds(u, groups)
        is_concave = torch.gt(share_around(phi, radii, spacing), half, out=torch.empty_like(phi))
        torch.gt(near(is_concave, band, spacing), half_if_free, out=move)
        u = _step(u, phi, move, groups, dt, spacing, scheme)
    return u - start, kept, moves


def _march_back(
    u: Tensor,
    kept: Tensor,
    moves: Tensor,
    grad: Tensor,
    groups: Sequence[int],
    dt: float,
    spacing: Sequence[float],
    scheme: str,
) -> Tensor:
    """Return the derivative by ``u`` of the sum of ``grad`` times the movement."""
    every = _KEPT_EVERY if len(kept) else len(moves)
    total, is_alone = grad.clone(memory_format=torch.contiguous_format), u.shape[1] == 1
    for start, segment in reversed(list(zip([_finite(u, groups), *kept], moves.split(every), strict=True))):
        states = [(start, log_odds(start, groups))]
        for move in segment[:-1]:
            moved = _step(*states[-1], move, groups, dt, spacing, scheme)
            states.append((moved, log_odds(moved, groups)))
        for (state, phi), move in reversed(list(zip(states, segment, strict=True))):
            weight = torch.where(move, sum_over_groups(total, groups), 0)
            flow = total if is_alone else torch.zeros_like(phi)  # the only channel is the level set
            add_norm_adjoint(flow, phi, weight, spacing, scheme, dt)
            total = flow if is_alone else total + log_odds_adjoint(state, groups, flow)
    return total - grad


def _step(
    u: Tensor, phi: Tensor, move: Tensor, groups: Sequence[int], dt: float, spacing: Sequence[float], scheme: str
) -> Tensor:
    return add_to_groups(u, torch.where(move, gradient_norm(phi, spacing, scheme), 0), groups, dt)


def _finite(u: Tensor, groups: Sequence[int]) -> Tensor:
    """Return finite logits; where one was NaN, the channels of no group win."""
    is_nan = u.isnan().any(1, keepdim=True)
    in_a_group = reduce(operator.or_, groups)
    channels = [
        channel.masked_fill(is_nan, -_LARGE if in_a_group >> k & 1 else _LARGE)
        for k, channel in enumerate(u.clamp(-_LARGE, _LARGE).split(1, 1))
    ]
    return torch.cat(channels, 1)


# One operation each for the compiler, which would otherwise unroll all steps.
_moving_op = torch.library.custom_op("monai_iels::moving", _moving, mutates_args=())
_march_op = torch.library.custom_op("monai_iels::march", _march, mutates_args=())
_march_back_op = torch.library.custom_op("monai_iels::march_back", _march_back, mutates_args=())

if _HAS_NUMBA:
    _march_op.register_kernel("cpu")(lambda *arguments: _compiled().march(*arguments, _KEPT_EVERY))
    _march_back_op.register_kernel("cpu")(lambda *arguments: _compiled().march_back(*arguments, _KEPT_EVERY))


def _compiled() -> Any:
    return importlib.import_module("monai_iels.operators.compiled")


@_moving_op.register_fake
def _moving_in_meta(phi: Tensor, radii: Sequence[float], band: float, spacing: Sequence[float]) -> Tensor:
    return phi.new_empty(phi.shape, dtype=torch.bool)


@_march_op.register_fake
def _march_in_meta(
    u: Tensor,
    groups: Sequence[int],
    dt: float,
    steps: int,
    radii: Sequence[float],
    band: float,
    spacing: Sequence[float],
    scheme: str,
) -> tuple[Tensor, Tensor, Tensor]:
    kept = u.new_empty(((steps - 1) // _KEPT_EVERY, *u.shape))
    moves = u.new_empty((steps, len(u), len(groups), *u.shape[2:]), dtype=torch.bool)
    return u.new_empty(u.shape), kept, moves


@_march_back_op.register_fake
def _march_back_in_meta(u: Tensor, *_: Any) -> Tensor:
    return u.new_empty(u.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    u, ctx.groups, ctx.dt, _, _, _, ctx.spacing, ctx.scheme = inputs
    ctx.save_for_backward(u, *output[1:])
    ctx.set_materialize_grads(False)  # what is kept has no derivative, not one of zeros


def _differentiate(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    u, kept, moves = ctx.saved_tensors
    if grad is None:
        back = None
    elif torch.is_grad_enabled():  # for a second derivative; what is kept has no derivative by u
        back = _march_back(u, kept[:0], moves, grad, ctx.groups, ctx.dt, ctx.spacing, ctx.scheme)
    else:
        back = _march_back_op(u, kept, moves, grad, ctx.groups, ctx.dt, ctx.spacing, ctx.scheme)
    return back, None, None, None, None, None, None, None


_march_op.register_autograd(_differentiate, setup_context=_keep)
