# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Heat diffusion that the edges of an image stop, so that thin structures survive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from monai_iels.evolutions.base import Evolution
from monai_iels.evolutions.heat import HeatDiffusion
from monai_iels.grid import Spacing, as_field, check_number, check_spacing, check_whole, spacing_per_axis
from monai_iels.operators.conductance import conductances, diffuse, flow


@dataclass
class GuidedDiffusion(Evolution):
    r"""Diffusion that the edges of the image stop, :math:`u_t = \nabla \cdot (g(|\nabla I|)\, \nabla u)`.

    Heat flows within what looks alike in the image ``I`` and hardly across its edges. Backward, noise inside of a
    structure is amplified as by :class:`HeatDiffusion`, but a thin structure with edges in the image is left alone.

    Between two neighboring pixels the conductance is :math:`g = e^{-(\Delta I / s)^2}`, with the difference
    :math:`\Delta I` of the smoothed image; for several image channels, the root of the sum of their squares. Where an
    image is constant, ``g`` is 1 and the equation is the heat equation. Nothing flows through the border (Neumann).

    The layer needs the image: ``layer(logits, image)``. :class:`~monai_iels.IELNet` passes the network's input to it,
    and bundles the image of the batch. An image of another size is resized to that of the logits, as heads of deep
    supervision need. The image gets no gradient.

    The map is linear and self-adjoint: the backward pass takes the same steps. It stores the conductances, one number
    per face between two pixels, and nothing for each step.

    Args:
        spacing: distance between pixels, one number or one per spatial axis; infinite for no flow along an axis.
        percentile: ``s`` of each image is this percentile of its differences, without those that are zero.
        contrast: ``s`` itself, in the unit of the image, instead of a percentile.
        smoothing: how often the image is smoothed first, with the weights (1, 2, 1) / 4 along each axis.

    Raises:
        ValueError: if an argument is out of its range; in use, if there is no image, or one of another batch.

    Example:
        >>> import torch
        >>> from monai_iels import GuidedDiffusion, InverseEvolutionLayer
        >>> layer = InverseEvolutionLayer(GuidedDiffusion(contrast=0.1, smoothing=0), dt=0.25, steps=1)
        >>> image = torch.tensor([[[0.0, 0.0, 1.0, 1.0]]])
        >>> logits = torch.tensor([[[1.0, 1.0, 8.0, 4.0]]])
        >>> layer(logits, image)
        tensor([[[1., 1., 9., 3.]]])
    """

    spacing: Spacing = 1.0
    percentile: float = 70.0
    contrast: float | None = None
    smoothing: int = 1

    needs_image: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.spacing = check_spacing(self.spacing, may_be_infinite=True)
        self.percentile = check_number("percentile", self.percentile, 0, 100)
        if self.contrast is not None:
            self.contrast = check_number("contrast", self.contrast, 0, above=True)
        self.smoothing = check_whole("smoothing", self.smoothing)

    def velocity(self, u: Tensor) -> Tensor:
        """Raise an error: without an image there is no conductance."""
        raise ValueError(
            "GuidedDiffusion needs an image, got none: call layer(logits, image), "
            "loss(logits, label, image=image), or GuidedDiffusion().guided_by(image)."
        )

    def guided_by(self, image: Tensor) -> Evolution:
        """Return the equation for an image of shape ``(B, C, *spatial)``."""
        return _AlongImage(self, image)

    def gain(self, dt: float, steps: int, spatial_dims: int) -> float:
        """Return the gain of heat: no conductance is above 1, so no image allows more."""
        return HeatDiffusion(self.spacing).gain(dt, steps, spatial_dims)


class _AlongImage(Evolution):
    """Diffusion along one batch of images."""

    def __init__(self, equation: GuidedDiffusion, image: Tensor) -> None:
        self.equation = equation
        self.spacing = equation.spacing
        self.image = image

    def __repr__(self) -> str:
        return f"{self.equation!r}.guided_by(<image {tuple(self.image.shape)}>)"

    def velocity(self, u: Tensor) -> Tensor:
        field = as_field(u)
        return flow(field, self._conductances(field), spacing_per_axis(self.spacing, u.ndim - 2)).view_as(u)

    def gain(self, dt: float, steps: int, spatial_dims: int) -> float:
        return self.equation.gain(dt, steps, spatial_dims)

    def _advance(self, u: Tensor, dt: float, steps: int) -> Tensor:
        spacing = spacing_per_axis(self.spacing, u.ndim - 2)
        if not steps or not u.numel():
            return u
        return diffuse(u, self._conductances(u), dt, steps, spacing)

    def _conductances(self, u: Tensor) -> list[Tensor]:
        image = self.image
        if image.ndim != u.ndim or len(image) != len(u):
            raise ValueError(
                f"the image must be of shape (B, C, *spatial) as the logits are, {tuple(u.shape)}, "
                f"got {tuple(image.shape)}."
            )
        with torch.no_grad():
            image = (image if type(image) is Tensor else image.as_subclass(Tensor)).to(u.dtype)
            if image.shape[2:] != u.shape[2:]:
                image = torch.nn.functional.interpolate(image, u.shape[2:], mode="area")
            settings = self.equation
            return conductances(image, settings.percentile, settings.contrast, settings.smoothing)
