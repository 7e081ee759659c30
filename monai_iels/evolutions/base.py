# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""What all evolution equations share: explicit Euler steps, in the direction that the sign of ``dt`` says."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor

from monai_iels.grid import Spacing, as_field, check_dt, check_steps


class Evolution(ABC):
    r"""An evolution equation :math:`u_t = F(u)` on fields of shape ``(B, C, *spatial)``.

    An equation of your own is a subclass with one method, :meth:`velocity`. Time steps, both directions, the layers,
    the network wrapper and the transforms come with it; no equation knows which way time runs.

    Attributes:
        spacing: distance between pixels, one number or one per spatial axis; for :meth:`velocity` to use.
        order: how many spatial derivatives ``F`` takes: pixels that are ``s`` times larger make it ``s**order`` times
            slower.
        needs_image: whether ``F`` depends on the image, which :meth:`guided_by` then gets.

    Example:
        >>> import torch
        >>> from monai_iels import Evolution, InverseEvolutionLayer
        >>> class Decay(Evolution):
        ...     def velocity(self, u):
        ...         return -u
        >>> InverseEvolutionLayer(Decay(), dt=0.5, steps=2)(torch.ones(1, 1, 2))
        tensor([[[2.2500, 2.2500]]])
    """

    spacing: Spacing = 1.0
    order: ClassVar[int] = 2
    needs_image: ClassVar[bool] = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    @abstractmethod
    def velocity(self, u: Tensor) -> Tensor:
        """Return ``F(u)``, of the shape of ``u``."""

    def evolve(self, u: Tensor, dt: float, steps: int) -> Tensor:
        r"""Take explicit Euler steps :math:`u \leftarrow u + \Delta t\, F(u)` (paper, equation 5).

        Args:
            u: field of shape ``(B, C, *spatial)``; half precision is computed and returned in float32.
            dt: time step; positive runs forward, negative backward (paper, equation 6).
            steps: number of steps; 0 returns ``u``.

        Returns:
            A field of the shape of ``u``.

        Raises:
            TypeError: if ``u`` is not a floating point tensor.
            ValueError: if ``u`` has no spatial axis, ``dt`` is not finite, or ``steps`` is negative or no integer.
        """
        evolved = self._advance(as_field(u), check_dt(dt), check_steps(steps))
        return evolved.view_as(u)  # a subclass such as MetaTensor is given back as one

    def guided_by(self, image: Tensor) -> Evolution:
        """Return the equation for an image of shape ``(B, C, *spatial)``: itself, if it needs none."""
        return self

    def gain(self, dt: float, steps: int, spatial_dims: int) -> float | None:
        """Return the largest amplification in ``steps`` steps of ``dt``, or None where it is not known."""
        return None

    def _advance(self, u: Tensor, dt: float, steps: int) -> Tensor:
        for _ in range(steps):
            velocity = self.velocity(u)
            if velocity.shape != u.shape:
                raise ValueError(
                    f"{type(self).__name__}.velocity must return the shape of its input, {tuple(u.shape)}, "
                    f"got {tuple(velocity.shape)}."
                )
            u = u + dt * velocity
        return u


def check_evolution(evolution: Evolution) -> Evolution:
    """Return ``evolution``.

    Raises:
        TypeError: if it is not an :class:`Evolution`.
    """
    if not isinstance(evolution, Evolution):
        raise TypeError(f"`evolution` must be an Evolution such as HeatDiffusion(spacing=2.0), got {evolution!r}.")
    return evolution
