# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Curve motion that makes regions convex: forward it fills concave stretches, backward it deepens them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from monai_iels.evolutions.base import Evolution
from monai_iels.grid import Spacing, as_field, check_number, check_regions, check_spacing, spacing_per_axis
from monai_iels.operators.marching import concave, march, moving
from monai_iels.operators.odds import add_to_groups, log_odds, merge
from monai_iels.operators.stencil import gradient_norm


@dataclass
class ConvexCurveMotion(Evolution):
    r"""Outward motion of concave boundaries, :math:`\phi_t = 1_R\,|\nabla\phi|` (paper, section 4, Algorithm 1).

    Each region is ``phi > 0``. A pixel outside it is concave if, for one of the radii, the region fills more than half
    of the ball around it; ``R`` is all that lies within ``band`` of such pixels, and there the level set moves:

    .. math::
        f &= 1[\phi > 0], \qquad C = \bigcup_r \{f = 0,\ 2\,\#(f \text{ within } r) > \#\text{ball}(r)\}, \\
        R &= \{\text{distance to } C \le \text{band}\}, \qquad F(\phi) = 1_R\,|\nabla_h \phi|.

    Balls are Euclidean in the unit of ``spacing``, the outside of the image is background, and pixels are counted in
    integers, so that none flips through rounding. ``C`` and ``R`` carry no gradient; :math:`|\nabla_h\phi|` does, and
    none where it vanishes. NaN and infinite logits stay as they are and move no other pixel: NaN and -inf count as
    background, but not as concave, and pixels beside them stand still, because their gradient is not known.

    A region is a group of channels that must be convex together. After a softmax,
    :math:`\phi_G = \log\sum_{k \in G} e^{u_k} - \log\sum_{k \notin G} e^{u_k}`, the log-odds of the region; for two
    classes that is :math:`u_1 - u_0`. Adding a field to every channel of ``G`` shifts :math:`\phi_G` by exactly that
    field, so that is what a step does. Several regions move in the same step, each by its own field; where they share a
    softmax, moving one also changes the odds of the others.

    This follows the paper's text. The released code has squares of 21 pixels for every radius, lets ``C`` grow over the
    steps, and lowers class 1 alone.

    Its gain is not known. Measured backward, 60 steps of 0.1 raised the norm of logits at most 3-fold, of noise and of
    smooth fields, and 200 steps no further: a level set grows only while its boundary moves.

    For the backward pass each step keeps the mask ``R``, and every fifth the level sets, or the logits of regions that
    share a softmax. On a CPU the steps are compiled where numba is installed.

    Args:
        radii: radii of the convexity test, each at least 1.
        band: distance up to which the motion reaches around concave pixels, at least 1.
        regions: groups of channels; with ``activation="sigmoid"`` one channel each.
        activation: "softmax" for exclusive classes, "sigmoid" for independent channels.
        spacing: distance between pixels, one number or one per spatial axis.
        gradient: "both" takes the steeper of the two differences along each axis, "central", the paper's, their mean.

    Raises:
        ValueError: if a radius or the band is below 1, a region is empty, names a channel twice or a negative one, or
            sigmoid regions overlap or have several channels.

    Example:
        >>> import torch
        >>> from monai_iels import ConvexCurveMotion
        >>> notched = torch.ones(1, 2, 9, 9)
        >>> notched[:, 1, 1:8, 1:8] = 3.0
        >>> notched[:, 1, 1:4, 4] = 0.0
        >>> disc = ConvexCurveMotion(radii=(2,), band=1)
        >>> disc.concave(disc.level_sets(notched)).nonzero()[:, 2:].tolist()
        [[2, 4], [3, 4]]
    """

    radii: Sequence[float] = (5, 10, 15)
    band: float = 3
    regions: Sequence[Sequence[int]] = ((1,),)
    activation: Literal["softmax", "sigmoid"] = "softmax"
    spacing: Spacing = 1.0
    gradient: Literal["central", "both"] = "central"

    order: ClassVar[int] = 1

    def __post_init__(self) -> None:
        self.spacing = check_spacing(self.spacing)
        if not isinstance(self.radii, Iterable) or not (radii := tuple(self.radii)):
            raise ValueError(f"`radii` must be at least one number, such as (5, 10, 15), got {self.radii!r}.")
        self.radii = tuple(float(check_number("radii", radius, 1)) for radius in radii)
        self.band = float(check_number("band", self.band, 1))
        self.regions = check_regions(self.regions)
        channels = [channel for region in self.regions for channel in region]
        if any(len(set(region)) < len(region) for region in self.regions):
            raise ValueError(f"`regions` must have each channel once in a region, got {self.regions}.")
        if len(set(map(frozenset, self.regions))) < len(self.regions):
            raise ValueError(f"`regions` must have each region once, got {self.regions}.")
        if self.activation not in ("softmax", "sigmoid"):
            raise ValueError(f"`activation` must be 'softmax' or 'sigmoid', got {self.activation!r}.")
        if self.gradient not in ("central", "both"):
            raise ValueError(f"`gradient` must be 'central' or 'both', got {self.gradient!r}.")
        if self.activation == "sigmoid" and not len(channels) == len(set(channels)) == len(self.regions):
            raise ValueError(
                f"`regions` must have one channel each with activation='sigmoid', got {self.regions}: "
                "give each channel its own region, such as ((0,), (1,))."
            )

    def velocity(self, u: Tensor) -> Tensor:
        """Return the field by which each channel of ``u``, of shape ``(B, C, *spatial)``, moves."""
        field = as_field(u)
        phi = self.level_sets(field)
        norm = gradient_norm(phi, self.spacing, self.gradient)
        speed = torch.where(self.moving(phi) & (norm < torch.inf), norm, 0)
        return add_to_groups(torch.zeros_like(field), speed, self._groups).view_as(u)

    def level_sets(self, u: Tensor) -> Tensor:
        """Return the level set function of each region, of shape ``(B, regions, *spatial)``."""
        self._check_channels(u.shape[1])
        if self.activation == "sigmoid":
            return torch.stack([u[:, k] for (k,) in self.regions], 1)
        return log_odds(u, self._groups)

    def concave(self, phi: Tensor) -> Tensor:
        """Return the mask ``C`` of pixels at concave stretches of the boundary of ``phi > 0``."""
        return concave(phi, self.radii, spacing_per_axis(self.spacing, phi.ndim - 2))

    def moving(self, phi: Tensor) -> Tensor:
        """Return the mask ``R`` of pixels within ``band`` of ``C``, where the level set moves."""
        return moving(phi, self.radii, self.band, spacing_per_axis(self.spacing, phi.ndim - 2))

    @property
    def _groups(self) -> list[int]:
        """The channels of each region, as the bits of a number."""
        return [sum(1 << k for k in region) for region in self.regions]

    def _advance(self, u: Tensor, dt: float, steps: int) -> Tensor:
        if not steps or not u.numel():
            return u
        settings = dt, steps, self.radii, self.band, spacing_per_axis(self.spacing, u.ndim - 2), self.gradient
        if self.activation == "sigmoid" or len(self.regions) == 1:  # none moves the level set of another
            phi = self.level_sets(u)
            shift = march(phi.flatten(0, 1)[:, None], (1,), *settings).view(phi.shape)
            return add_to_groups(u, shift, self._groups)
        self._check_channels(u.shape[1])
        merged, groups, places = merge(u, self._groups)
        moved = march(merged, groups, *settings).split(1, 1)
        return u + torch.cat([moved[place] for place in places], 1)

    def _check_channels(self, channels: int) -> None:
        highest = max(k for region in self.regions for k in region)
        if highest >= channels:
            raise ValueError(
                f"logits must have at least {highest + 1} channels for regions {self.regions}, got {channels}"
                + (": use activation='sigmoid' and regions=((0,),)." if channels == 1 else ".")
            )
        if self.activation == "softmax" and any(len(region) == channels for region in self.regions):
            raise ValueError(
                f"a softmax region must leave out a channel, got regions {self.regions} for {channels} channels: "
                "for a single channel use activation='sigmoid' and regions=((0,),)."
            )
