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

"""Steps of a level set that moves at the concave stretches of its boundary, and their derivative.

They are torch operations, few of them whatever the radii; on a CPU they are compiled where numba is installed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from monai_iels.operators.balls import near, share_around
from monai_iels.operators.stencil import add_norm_adjoint, gradient_norm

__all__ = ["concave", "march", "moving"]

_HAS_NUMBA = importlib.util.find_spec("numba") is not None
# For the backward pass the level set of every fifth step is kept; those between are computed again.
_KEPT_EVERY = 5
_LARGE = 1e18  # its square is finite


def concave(phi: Tensor, radii: Sequence[float], spacing: Sequence[float]) -> Tensor:
    """Return the pixels outside of ``phi > 0`` around which it fills more than half of a ball of one of the radii."""
    return (share_around(phi, radii, spacing) > 0.5) & (phi <= 0) & (phi > -torch.inf)


def moving(phi: Tensor, radii: Sequence[float], band: float, spacing: Sequence[float]) -> Tensor:
    """Return the pixels within ``band`` of those that are concave."""
    return _moving_op(phi.detach(), radii, band, spacing)


def march(
    phi: Tensor, dt: float, steps: int, radii: Sequence[float], band: float, spacing: Sequence[float], scheme: str
) -> Tensor:
    """Return by how much steps of ``phi + dt * |grad phi|`` move ``phi``, each within ``band`` of pixels then concave.

    Pixels that are not finite, and those beside them, stand still.
    """
    return _march_op(phi, dt, steps, radii, band, spacing, scheme)[0]


def _moving(phi: Tensor, radii: Sequence[float], band: float, spacing: Sequence[float]) -> Tensor:
    return near(concave(phi, radii, spacing).to(phi.dtype), band, spacing) > 0.5


def _march(
    phi: Tensor, dt: float, steps: int, radii: Sequence[float], band: float, spacing: Sequence[float], scheme: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return by how much all steps move, the level sets kept for the backward pass, and where each step moved."""
    _, kept, moves = _march_in_meta(phi, dt, steps, radii, band, spacing, scheme)
    # Half, but for pixels that never count as concave, or never move.
    half = torch.where(phi > -torch.inf, 0.5, torch.inf)
    half_if_free = torch.where(gradient_norm(phi, spacing, scheme) < torch.inf, 0.5, torch.inf)
    phi = start = _finite(phi)
    for step, move in enumerate(moves):
        if step and step % _KEPT_EVERY == 0:
            kept[step // _KEPT_EVERY - 1] = phi
        excess = share_around(phi, radii, spacing).sub_(half)
        torch.gt(near(excess, band, spacing), half_if_free, out=move)
        phi = _step(phi, move, dt, spacing, scheme)
    return phi - start, kept, moves


def _march_back(
    phi: Tensor, kept: Tensor, moves: Tensor, grad: Tensor, dt: float, spacing: Sequence[float], scheme: str
) -> Tensor:
    """Return the derivative by ``phi`` of the sum of ``grad`` times the movement."""
    every = _KEPT_EVERY if len(kept) else len(moves)
    total = grad.clone(memory_format=torch.contiguous_format)
    for start, segment in reversed(list(zip([_finite(phi), *kept], moves.split(every), strict=True))):
        states = [start]
        for move in segment[:-1]:
            states.append(_step(states[-1], move, dt, spacing, scheme))
        for state, move in reversed(list(zip(states, segment, strict=True))):
            add_norm_adjoint(total, state, torch.where(move, total, 0), spacing, scheme, dt)
    return total - grad


def _step(phi: Tensor, move: Tensor, dt: float, spacing: Sequence[float], scheme: str) -> Tensor:
    return torch.add(phi, torch.where(move, gradient_norm(phi, spacing, scheme), 0), alpha=dt)


def _finite(phi: Tensor) -> Tensor:
    return phi.clamp(-_LARGE, _LARGE).nan_to_num(nan=-_LARGE)


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
    phi: Tensor, dt: float, steps: int, radii: Sequence[float], band: float, spacing: Sequence[float], scheme: str
) -> tuple[Tensor, Tensor, Tensor]:
    kept = phi.new_empty(((steps - 1) // _KEPT_EVERY, *phi.shape))
    return phi.new_empty(phi.shape), kept, phi.new_empty((steps, *phi.shape), dtype=torch.bool)


@_march_back_op.register_fake
def _march_back_in_meta(phi: Tensor, *_: Any) -> Tensor:
    return phi.new_empty(phi.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    phi, ctx.dt, _, _, _, ctx.spacing, ctx.scheme = inputs
    ctx.save_for_backward(phi, *output[1:])
    ctx.set_materialize_grads(False)  # what is kept has no derivative, not one of zeros


def _differentiate(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    phi, kept, moves = ctx.saved_tensors
    if grad is None:
        back = None
    elif torch.is_grad_enabled():  # for a second derivative; what is kept has no derivative by phi
        back = _march_back(phi, kept[:0], moves, grad, ctx.dt, ctx.spacing, ctx.scheme)
    else:
        back = _march_back_op(phi, kept, moves, grad, ctx.dt, ctx.spacing, ctx.scheme)
    return back, None, None, None, None, None, None


_march_op.register_autograd(_differentiate, setup_context=_keep)
