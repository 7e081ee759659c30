# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Motion by curvature: forward it straightens outlines, backward it sharpens their wiggles."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from monai_iels.evolutions.base import Evolution
from monai_iels.grid import Spacing, as_field, check_spacing, differences, spacing_per_axis, spatial_axes
from monai_iels.operators.stencil import gradient

__all__ = ["CurvatureMotion"]


@dataclass
class CurvatureMotion(Evolution):
    r"""Motion of level lines by their curvature, :math:`u_t = |\nabla u|\, \nabla \cdot (\nabla u / |\nabla u|)`.

    A circle of radius ``r`` shrinks at the speed ``1 / r``, a sphere at ``2 / r``; straight lines and planes stand
    still, however steep they are. Backward, every wiggle of an outline grows, and straight outlines stay.

    Written out, it is the Laplacian without its part across the level lines, with the gradient ``g``:

    .. math::
        u_t = \frac{|g|^2 \Delta u - g^\top H g}{|g|^2}
        = \frac{1}{|g|^2} \sum_{a < b} \left(g_a^2 u_{bb} - 2 g_a g_b u_{ab} + g_b^2 u_{aa}\right).

    Differences are central, borders replicated (Neumann). :math:`|g|^2 + \epsilon^2` in the denominator makes the
    motion, and its derivative, vanish where the gradient does; slopes far below :math:`\epsilon` hardly move.

    Each channel moves on its own, by its own level lines. A number added to all channels changes nothing. The outline
    between two classes is a level line of the difference of their channels, so it moves by its curvature only as far
    as the channels are each other's opposite; for a single channel with a sigmoid it does exactly.

    Its gain is not known, so layers take ``dt`` and ``steps``. Forward it is stable up to a ``dt`` of about
    ``min(spacing)**2 / 4`` in 2-D. The backward pass keeps the logits of each step, and computes the rest again.

    Args:
        spacing: distance between pixels, one number or one per spatial axis.
        epsilon: the slope :math:`\epsilon`, in logits per unit of length.

    Raises:
        ValueError: if ``spacing`` or ``epsilon`` is not positive; in use, for fields in 1-D, which have no outlines.

    Example:
        >>> import torch
        >>> from monai_iels.evolutions.curvature import CurvatureMotion
        >>> y, x = torch.meshgrid(torch.arange(-20.0, 21.0), torch.arange(-20.0, 21.0), indexing="ij")
        >>> circle = (12 - torch.hypot(x, y))[None, None]
        >>> velocity = CurvatureMotion(epsilon=1e-3).velocity(circle)
        >>> print(f"{velocity[0, 0, 20, 32]:.3f}, and 1/12 is {1 / 12:.3f}")  # at a distance of 12 from the center
        -0.083, and 1/12 is 0.083
    """

    spacing: Spacing = 1.0
    epsilon: float = 0.1

    def __post_init__(self) -> None:
        self.spacing = check_spacing(self.spacing)
        if isinstance(self.epsilon, str) or not 0 < self.epsilon < float("inf"):
            raise ValueError(f"Expected `epsilon` > 0, got {self.epsilon!r}.")

    def velocity(self, u: Tensor) -> Tensor:
        """Return curvature times slope of ``u``, of shape ``(B, C, *spatial)``."""
        field = as_field(u)
        if field.ndim < 4:
            raise ValueError(f"Expected a field in 2-D or 3-D, (B, C, *spatial), got {tuple(u.shape)}.")
        g, axes = gradient(field, self.spacing), spatial_axes(field)
        spacing = spacing_per_axis(self.spacing, len(axes))
        bends = [_second_difference(field, axis, h) for axis, h in zip(axes, spacing, strict=True)]
        total = torch.zeros_like(field)
        for a, b in combinations(range(len(axes)), 2):
            mixed = sum(differences(g[a], axes[b])) / (2 * spacing[b])
            total = total + g[a] ** 2 * bends[b] - 2 * g[a] * g[b] * mixed + g[b] ** 2 * bends[a]
        return (total / (sum(slope**2 for slope in g) + self.epsilon**2)).view_as(u)

    def _advance(self, u: Tensor, dt: float, steps: int) -> Tensor:
        for _ in range(steps):
            u = checkpoint(self._step, u, dt, use_reentrant=False, preserve_rng_state=False)
        return u

    def _step(self, u: Tensor, dt: float) -> Tensor:
        return u + dt * self.velocity(u)


def _second_difference(u: Tensor, axis: int, h: float) -> Tensor:
    before, after = differences(u, axis)
    return (after - before) / h**2
