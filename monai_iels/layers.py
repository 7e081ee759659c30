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

"""Layers that run an evolution on a network's logits, backward or forward in time."""

from __future__ import annotations

import warnings
from typing import ClassVar

from torch import Tensor, nn

from monai_iels.evolutions.base import Evolution, check_evolution
from monai_iels.grid import check_steps, spacing_per_axis

__all__ = ["ForwardEvolutionLayer", "InverseEvolutionLayer"]

# Heat layers with a gain of 38 and 237 train, one with 1.3e5 collapsed on WBC.
_LARGEST_GAIN = 1e3


class _EvolutionLayer(nn.Module):
    direction: ClassVar[int]
    good_gain: ClassVar[int]
    wrong_direction: ClassVar[str]

    def __init__(self, evolution: Evolution, dt: float, steps: int) -> None:
        super().__init__()
        self.evolution = check_evolution(evolution)
        if isinstance(dt, str | None) or not 0 < dt < float("inf"):
            raise ValueError(f"Expected `dt` > 0, got {dt}. {self.wrong_direction}")
        self.dt = dt
        self.steps = check_steps(steps)
        self._warn_of_gain()

    def forward(self, u: Tensor) -> Tensor:
        """Return the evolved logits, of shape ``(B, C, *spatial)``."""
        return self.evolution.evolve(u, self.direction * self.dt, self.steps)

    def gains(self) -> dict[int, float]:
        """Return the largest amplification for each number of spatial dimensions that the spacing fits."""
        spacing = self.evolution.spacing
        dims = (2, 3) if isinstance(spacing, int | float) else (len(spacing),)
        gains = {d: self.evolution.gain(self.direction * self.dt, self.steps, d) for d in dims}
        return {d: gain for d, gain in gains.items() if gain is not None}

    def extra_repr(self) -> str:
        """Return evolution, time step, number of steps and gain."""
        gains = ", ".join(f"{gain:.3g} ({d}-D)" for d, gain in self.gains().items())
        return f"{self.evolution}, dt={self.dt}, steps={self.steps}, gain={gains or 'unknown'}"

    def _warn_of_gain(self) -> None:
        dims, gain = next(iter(self.gains().items()), (0, 0.0))
        if gain <= _LARGEST_GAIN:
            return
        dt = self._largest_dt(self.good_gain, dims)
        scale = (self.dt / max(dt, 1e-12)) ** (1 / self.evolution.order)
        wider = [round(scale * h, 3) for h in spacing_per_axis(self.evolution.spacing, dims)]
        spacing = wider[0] if len(set(wider)) == 1 else wider
        warnings.warn(
            f"{type(self).__name__}({self.evolution}, dt={self.dt}, steps={self.steps}) amplifies up to {gain:.3g} "
            f"times in {dims}-D. In 2-D gains of 6 to 240 are known to train; with 1.3e+05 training collapsed. "
            f"For a gain of {self.good_gain}, use spacing={spacing} or dt={dt:.3g}.",
            stacklevel=3,
        )

    def _largest_dt(self, gain: float, spatial_dims: int) -> float:
        """Bisect for the time step with the given gain, which grows with it."""
        low, high = 0.0, self.dt
        for _ in range(60):
            middle = (low + high) / 2
            reached = self.evolution.gain(self.direction * middle, self.steps, spatial_dims)
            low, high = (middle, high) if reached is not None and reached <= gain else (low, middle)
        return low


class InverseEvolutionLayer(_EvolutionLayer):
    r"""Run an evolution backward, :math:`L(U) = U - \Delta t\, F(U)`, ``steps`` times (paper, equation 6).

    Placed behind a network's logits while it trains, it amplifies what the evolution would remove, so that the network
    learns not to produce it. It has no parameters and no state.

    Args:
        evolution: the equation, such as ``HeatDiffusion(spacing=2.0)``.
        dt: time step, positive: the layer itself turns it around.
        steps: number of steps, the paper's number of layers; 0 leaves the logits alone.

    Raises:
        TypeError: if ``evolution`` is not an :class:`Evolution`.
        ValueError: if ``dt`` is not positive and finite, or ``steps`` is negative or no integer.

    Warns:
        UserWarning: if the gain is too large to train with.

    Example:
        >>> from monai_iels import HeatDiffusion, InverseEvolutionLayer
        >>> InverseEvolutionLayer(HeatDiffusion(spacing=2.0), dt=0.1, steps=20)
        InverseEvolutionLayer(HeatDiffusion(spacing=2.0), dt=0.1, steps=20, gain=38.3 (2-D), 190 (3-D))
    """

    direction = -1
    good_gain = 40
    wrong_direction = "The layer itself runs backward in time; pass the size of its time step."


class ForwardEvolutionLayer(_EvolutionLayer):
    r"""Run an evolution forward, :math:`L(U) = U + \Delta t\, F(U)`, ``steps`` times.

    This is the paper's comparison of section 3.3: part of the model, on in training and in prediction. It smooths, or
    makes convex, what the network returns, and does not teach the network anything about it.

    Args:
        evolution: the equation, such as ``HeatDiffusion(spacing=2.0)``.
        dt: time step, positive. Heat diffusion is stable up to ``spacing**2 / (2 * spatial_dims)``.
        steps: number of steps; 0 leaves the logits alone.

    Raises:
        TypeError: if ``evolution`` is not an :class:`Evolution`.
        ValueError: if ``dt`` is not positive and finite, or ``steps`` is negative or no integer.

    Warns:
        UserWarning: if the gain is far too large, as it soon is with an unstable time step.

    Example:
        >>> from monai_iels import ForwardEvolutionLayer, HeatDiffusion
        >>> ForwardEvolutionLayer(HeatDiffusion(spacing=2.0), dt=0.1, steps=20)
        ForwardEvolutionLayer(HeatDiffusion(spacing=2.0), dt=0.1, steps=20, gain=1 (2-D), 1 (3-D))
    """

    direction = +1
    good_gain = 1
    wrong_direction = "To run backward in time, use InverseEvolutionLayer."
