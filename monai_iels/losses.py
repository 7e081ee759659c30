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

"""Losses that the layers are compared with: the paper's own, and the one that label noise makes people reach for."""

from __future__ import annotations

import math
from typing import Any

import torch
from monai.utils import LossReduction
from torch import Tensor, nn

from monai_iels.grid import Spacing, as_field, check_spacing, spacing_per_axis, spatial_axes

__all__ = ["GeneralizedCrossEntropyLoss", "GradientEnergyLoss"]


class GeneralizedCrossEntropyLoss(nn.Module):
    r"""Fit labels that may be wrong, :math:`(1 - p_y^q) / q`, with the probability :math:`p_y` of the given label.

    It is between cross-entropy (:math:`q \to 0`), which insists on every label, and the mean absolute error
    (:math:`q = 1`), which gives up on those that seem wrong (Zhang and Sabuncu, 2018, equation 6).

    Args:
        q: how far to go; the authors use 0.7.

    Raises:
        ValueError: if ``q`` is not in (0, 1].

    Example:
        >>> import torch
        >>> from monai_iels import GeneralizedCrossEntropyLoss
        >>> loss = GeneralizedCrossEntropyLoss(q=1.0)
        >>> loss(torch.zeros(1, 2, 4, 4), torch.zeros(1, 1, 4, 4))
        tensor(0.5000)
    """

    def __init__(self, q: float = 0.7) -> None:
        super().__init__()
        if not 0 < q <= 1:
            raise ValueError(f"Expected `q` in (0, 1], got {q}.")
        self.q = q

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the mean over pixels, for logits ``(B, C, *spatial)`` and classes ``(B, 1, *spatial)``."""
        if target.shape != (len(input), 1, *input.shape[2:]):
            raise ValueError(
                f"Expected classes of shape {(len(input), 1, *input.shape[2:])} for logits of shape "
                f"{tuple(input.shape)}, got {tuple(target.shape)}."
            )
        log_probability = input.float().log_softmax(1).gather(1, target.long())
        return -torch.expm1(self.q * log_probability).mean() / self.q

    def extra_repr(self) -> str:
        """Return q."""
        return f"q={self.q}"


class GradientEnergyLoss(nn.Module):
    r"""Add the gradient energy of the raw outputs to a loss, :math:`L(U, M) + \lambda \int |\nabla U|^2 dx`.

    This is the regularization that the paper compares its layers with (equation 18). The integral is the sum of
    :math:`(\Delta u / h)^2` over the faces between pixels, times the volume of a pixel; there is no face at the border,
    so no edge is seen there (Neumann). It is the energy that heat diffusion lowers, and that Theorem 1 is about.
    For deep supervision, put this loss inside of MONAI's ``DeepSupervisionLoss``.

    Args:
        loss: any loss of ``(input, target)``.
        weight: the factor :math:`\lambda`; the paper has 1 and 2.
        spacing: distance between pixels, one number or one per spatial axis.
        reduction: how the energies of the images and channels are put together: "mean", "sum" or "none", which leaves
            them as ``(B, C, 1, ...)`` to be added to a loss that is not reduced either.

    Raises:
        ValueError: if ``weight`` is negative, or ``reduction`` or ``spacing`` is not one of those above.

    Example:
        >>> import torch
        >>> from monai_iels import GradientEnergyLoss
        >>> loss = GradientEnergyLoss(torch.nn.CrossEntropyLoss(), weight=2.0)
        >>> flat = torch.zeros(1, 2, 4, 4)
        >>> loss(flat, torch.zeros(1, 4, 4, dtype=torch.long))
        tensor(0.6931)
    """

    def __init__(
        self,
        loss: nn.Module,
        weight: float = 1.0,
        spacing: Spacing = 1.0,
        reduction: LossReduction | str = LossReduction.MEAN,
    ) -> None:
        super().__init__()
        if not callable(loss):
            raise TypeError(f"Expected a loss such as torch.nn.CrossEntropyLoss(), got {loss!r}.")
        if not 0 <= weight < float("inf"):
            raise ValueError(f"Expected `weight` >= 0, got {weight}.")
        self.loss = loss
        self.weight = weight
        self.spacing = check_spacing(spacing)
        self.reduction = LossReduction(reduction)

    def forward(self, input: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return the loss of ``input``, raw outputs of shape ``(B, C, *spatial)``, with its energy added."""
        loss = self.loss(input, target, *args, **kwargs)
        energy = self._reduced(self.energy(input))
        if energy.ndim and loss.ndim not in (0, energy.ndim):
            raise ValueError(
                f"Expected a loss of shape {tuple(energy.shape)} or a number to add the energies to, "
                f"got {tuple(loss.shape)}. Set `reduction` to 'mean' or 'sum', or use one of MONAI's losses."
            )
        return loss + self.weight * energy

    def energy(self, u: Tensor) -> Tensor:
        """Return the gradient energy of each image and channel, of shape ``(B, C, 1, ...)``."""
        field = as_field(u)
        axes = tuple(spatial_axes(field))
        spacing = spacing_per_axis(self.spacing, len(axes))
        volume = math.prod(spacing)
        total = field.new_zeros(field.shape[:2] + (1,) * len(axes))
        for axis, h in zip(axes, spacing, strict=True):
            total = total + volume * (torch.diff(field, dim=axis) / h).square().sum(axes, keepdim=True)
        return total

    def extra_repr(self) -> str:
        """Return weight, spacing and reduction."""
        return f"weight={self.weight}, spacing={self.spacing}, reduction={self.reduction.value}"

    def _reduced(self, energy: Tensor) -> Tensor:
        if self.reduction == LossReduction.NONE:
            return energy
        return energy.mean() if self.reduction == LossReduction.MEAN else energy.sum()
