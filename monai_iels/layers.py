# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Layers that run an evolution on a network's logits, backward or forward in time."""

from __future__ import annotations

import math
import warnings
from typing import ClassVar

from torch import Tensor, nn

from monai_iels.evolutions.base import Evolution, check_evolution
from monai_iels.grid import check_number, check_steps, spacing_per_axis

# Heat layers with a gain of 38 and 237 train, one with 1.3e5 collapsed on WBC.
_LARGEST_GAIN = 1e3
# The number of steps of a gain hardly matters: 20 steps of 0.1 and 11 of 0.2 ended alike. The paper moves outlines by a
# tenth of a pixel per step.
_STEPS = 20
_PART_OF_A_PIXEL = 0.1
_DIMS_OF_GAIN = 2


class _EvolutionLayer(nn.Module):
    direction: ClassVar[int]
    good_gain: ClassVar[int]
    wrong_direction: ClassVar[str]

    def __init__(
        self,
        evolution: Evolution,
        dt: float | None = None,
        steps: int | None = None,
        *,
        gain: float | None = None,
        reach: float | None = None,
        spatial_dims: int | None = None,
    ) -> None:
        super().__init__()
        self.evolution = check_evolution(evolution)
        given = [name for name, value in (("dt", dt), ("gain", gain), ("reach", reach)) if value is not None]
        if len(given) != 1:
            raise ValueError(
                f"a layer needs one of `gain`, `reach`, or `dt` with `steps`, got {' and '.join(given) or 'none'}."
            )
        if gain == 1 or reach == 0:  # off
            dt, steps, gain, reach = 1.0, 0, None, None
        if dt is not None and steps is None:
            raise ValueError("`dt` needs `steps`, the number of steps.")
        self.spatial_dims = _spatial_dims(spatial_dims, self.evolution)
        if reach is not None:
            dt, steps = self._of_reach(reach, steps)
        self.steps = check_steps(_STEPS if steps is None else steps)
        if gain is not None:
            self.spatial_dims = self.spatial_dims or _DIMS_OF_GAIN
            dt = self._largest_dt(self._check_gain(gain), self.spatial_dims, max(1, self.steps))
        if isinstance(dt, str | None) or not 0 < dt < float("inf"):
            raise ValueError(f"`dt` must be positive, got {dt}: {self.wrong_direction}.")
        self.dt = dt
        self.share = 1.0
        self._warn_of_gain()

    @property
    def needs_image(self) -> bool:
        """Whether the evolution depends on the image that the network saw."""
        return self.evolution.needs_image

    @property
    def is_idle(self) -> bool:
        """Whether the layer leaves logits alone: without steps, or before its warm-up begins."""
        return 0 in (self.steps, self.share)

    def forward(self, u: Tensor, image: Tensor | None = None) -> Tensor:
        """Return the evolved logits, of shape ``(B, C, *spatial)``; some evolutions need the network's input image."""
        self._check_dims(u)
        if self.is_idle:
            return u
        evolution = self.evolution if image is None else self.evolution.guided_by(image)
        return evolution.evolve(u, self._signed_dt, self.steps)

    def gains(self) -> dict[int, float]:
        """Return the largest amplification with the present share, in 2-D and 3-D if ``spatial_dims`` is not known."""
        dims = (2, 3) if self.spatial_dims is None else (self.spatial_dims,)
        gains = {d: self.evolution.gain(self._signed_dt, self.steps, d) for d in dims}
        return {d: gain for d, gain in gains.items() if gain is not None}

    def extra_repr(self) -> str:
        """Return evolution, time step, number of steps, share if it is not 1, and gain."""
        gains = ", ".join(f"{gain:.3g} ({d}-D)" for d, gain in self.gains().items())
        share = "" if self.share == 1 else f", share={self.share:.3g}"
        return f"{self.evolution}, dt={self.dt:.6g}, steps={self.steps}{share}" + (f", gain={gains}" if gains else "")

    @property
    def _signed_dt(self) -> float:
        return self.direction * self.dt * self.share

    def _check_dims(self, u: Tensor) -> None:
        dims = u.ndim - 2
        if self.spatial_dims in (None, dims) or dims < 1:
            return
        spacing_per_axis(self.evolution.spacing, dims)  # raises if the spacing has another number of values
        raise ValueError(
            f"logits must be {self.spatial_dims}-D as the layer is, got {dims}-D ones of shape {tuple(u.shape)}: "
            f"build the layer with spatial_dims={dims}."
        )

    def _of_reach(self, reach: float, steps: int | None) -> tuple[float, int]:
        """Return time step and number of steps with which an outline moves by ``reach``."""
        if self.evolution.order != 1:
            raise ValueError(f"`reach` is for outlines that move, got {self.evolution}: use `gain` or `dt`.")
        reach = check_number("reach", reach, 0)
        if steps is None:
            spacing = spacing_per_axis(self.evolution.spacing, self.spatial_dims or 1)
            steps = math.ceil(reach / (_PART_OF_A_PIXEL * min(spacing)))
        return reach / max(1, check_steps(steps)), steps

    def _check_gain(self, gain: float) -> float:
        if self.evolution.gain(self.direction, 1, self.spatial_dims or _DIMS_OF_GAIN) is None:
            raise ValueError(
                f"`gain` needs an evolution whose gain is known, got {self.evolution}: use `reach` or `dt`."
            )
        return check_number("gain", gain, 1)

    def _warn_of_gain(self) -> None:
        dims, gain = next(iter(self.gains().items()), (0, 0.0))
        if gain <= _LARGEST_GAIN:
            return
        dt = self._largest_dt(self.good_gain, dims, self.steps)
        scale = (self.dt / max(dt, 1e-12)) ** (1 / self.evolution.order)
        wider = [round(scale * h, 3) for h in spacing_per_axis(self.evolution.spacing, dims)]
        spacing = wider[0] if len(set(wider)) == 1 else wider
        warnings.warn(
            f"{type(self).__name__}({self.evolution}, dt={self.dt}, steps={self.steps}) amplifies up to {gain:.3g} "
            f"times in {dims}-D. In 2-D gains of 6 to 240 are known to train; with 1.3e+05 training collapsed. "
            f"For a gain of {self.good_gain}, use spacing={spacing} or dt={dt:.3g}.",
            stacklevel=3,
        )

    def _largest_dt(self, gain: float, spatial_dims: int, steps: int) -> float:
        """Bisect for the time step with the given gain, which grows with it."""

        def is_small(dt: float) -> bool:
            reached = self.evolution.gain(self.direction * dt, steps, spatial_dims)
            return reached is not None and reached <= gain

        low, high = 0.0, 1e-3
        while is_small(high) and high < 1e9:
            high *= 2
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if is_small(middle) else (low, middle)
        return low


class InverseEvolutionLayer(_EvolutionLayer):
    r"""Run an evolution backward, :math:`L(U) = U - \Delta t\, F(U)`, ``steps`` times (paper, equation 6).

    Placed behind a network's logits while it trains, it amplifies what the evolution would remove, so that the network
    learns not to produce it. It has no parameters and no state.

    Its strength is one number: ``gain`` for heat, ``reach`` for curve motion. The paper gives ``dt`` and ``steps``.

    Args:
        evolution: the equation, such as ``HeatDiffusion()``.
        dt: time step, positive: the layer itself turns it around.
        steps: number of steps, the paper's number of layers; 0 leaves the logits alone.
        gain: instead of ``dt``, the largest amplification of any detail; 15 is a good choice, 1 turns the layer off.
        reach: instead of ``dt``, how far outlines move, in the unit of the evolution's ``spacing``; 6 pixels is a good
            choice, 0 turns the layer off. By default in steps of a tenth of a pixel.
        spatial_dims: number of spatial dimensions of the logits. Set it to 3 for volumes if ``gain`` is given, because
            the time step of a gain depends on it. By default the number of values of ``spacing``; if that is one
            number, 2 with ``gain``, and any without it.

    Attributes:
        share: factor of the time step, ``dt * share``, from 0 (off) to 1 (full strength). :class:`~monai_iels.Warmup`
            sets it for each epoch.

    Raises:
        TypeError: if ``evolution`` is not an :class:`Evolution`.
        ValueError: if not exactly one of ``dt``, ``gain`` and ``reach`` is given, if it is out of range or unknown for
            the evolution, ``steps`` is negative or no integer, or ``spatial_dims`` is not the number of values of
            ``spacing``; when called with logits of another dimension than ``spatial_dims``.

    Warns:
        UserWarning: if the gain is too large to train with.

    Example:
        >>> from monai_iels import HeatDiffusion, InverseEvolutionLayer
        >>> InverseEvolutionLayer(HeatDiffusion(spacing=2.0), dt=0.1, steps=20)
        InverseEvolutionLayer(HeatDiffusion(spacing=2.0), dt=0.1, steps=20, gain=38.3 (2-D), 190 (3-D))
        >>> InverseEvolutionLayer(HeatDiffusion(), gain=15)
        InverseEvolutionLayer(HeatDiffusion(spacing=1.0), dt=0.0181247, steps=20, gain=15 (2-D))
        >>> InverseEvolutionLayer(HeatDiffusion(), gain=15, spatial_dims=3)
        InverseEvolutionLayer(HeatDiffusion(spacing=1.0), dt=0.0120831, steps=20, gain=15 (3-D))
    """

    direction = -1
    good_gain = 40
    wrong_direction = "the layer itself runs backward in time"


class ForwardEvolutionLayer(_EvolutionLayer):
    r"""Run an evolution forward, :math:`L(U) = U + \Delta t\, F(U)`, ``steps`` times.

    This is the paper's comparison of section 3.3: part of the model, on in training and in prediction. It smooths, or
    makes convex, what the network returns, and does not teach the network anything about it.

    Args:
        evolution: the equation, such as ``HeatDiffusion(spacing=2.0)``.
        dt: time step, positive. Heat diffusion is stable up to ``spacing**2 / (2 * spatial_dims)``.
        steps: number of steps; 0 leaves the logits alone.
        gain: instead of ``dt``, the largest amplification; only of use for equations that amplify forward.
        reach: instead of ``dt``, how far outlines move, in the unit of the evolution's ``spacing``.
        spatial_dims: number of spatial dimensions of the logits, as in :class:`InverseEvolutionLayer`.

    Attributes:
        share: factor of the time step, ``dt * share``, from 0 (off) to 1 (full strength).

    Raises:
        TypeError: if ``evolution`` is not an :class:`Evolution`.
        ValueError: if not exactly one of ``dt``, ``gain`` and ``reach`` is given, if it is out of range or unknown for
            the evolution, ``steps`` is negative or no integer, or ``spatial_dims`` is not the number of values of
            ``spacing``; when called with logits of another dimension than ``spatial_dims``.

    Warns:
        UserWarning: if the gain is far too large, as it soon is with an unstable time step.

    Example:
        >>> from monai_iels import ForwardEvolutionLayer, HeatDiffusion
        >>> ForwardEvolutionLayer(HeatDiffusion(spacing=2.0), dt=0.1, steps=20)
        ForwardEvolutionLayer(HeatDiffusion(spacing=2.0), dt=0.1, steps=20, gain=1 (2-D), 1 (3-D))
    """

    direction = +1
    good_gain = 1
    wrong_direction = "use InverseEvolutionLayer to run backward in time"


def _spatial_dims(spatial_dims: int | None, evolution: Evolution) -> int | None:
    """Return the number of spatial dimensions as far as it is known, from the argument or from the spacing."""
    if spatial_dims not in (None, 1, 2, 3):
        raise ValueError(f"`spatial_dims` must be 1, 2 or 3, got {spatial_dims!r}.")
    if isinstance(evolution.spacing, int | float):
        return spatial_dims
    axes = len(evolution.spacing)
    if spatial_dims not in (None, axes):
        raise ValueError(
            f"`spacing` must have one value for each of spatial_dims={spatial_dims} axes, got {evolution}: "
            f"pass a single number to use it for every axis, or spatial_dims={axes}."
        )
    return axes


def apply_layer(layer: nn.Module, u: Tensor, image: Tensor | None) -> Tensor:
    """Apply any layer to logits; pass the image to it if it needs one."""
    return layer(u, image) if getattr(layer, "needs_image", False) else layer(u)
