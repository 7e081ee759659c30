# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Losses with a layer inside, of labels with gaps, and with a penalty on rough or concave outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from monai.utils import LossReduction
from torch import Tensor, nn

from monai_iels.grid import (
    Spacing,
    as_field,
    check_number,
    check_regions,
    check_spacing,
    spacing_per_axis,
    spatial_axes,
)
from monai_iels.layers import apply_layer
from monai_iels.operators.extension import extend

Logits: TypeAlias = Tensor | Sequence[Tensor]


class IELLoss(nn.Module):
    """Apply ``layer`` to logits before any loss, in train mode; in eval mode be the loss.

    It is what :class:`IELNet` does, for training loops that cannot wrap their network, and for labels with gaps, which
    a network does not see. Where a label is ``ignore_index``, the layer gets the logits of a labeled pixel nearby
    (:func:`~monai_iels.operators.extension.extend`), so that the logits of unlabeled pixels are neither amplified nor
    spread. The inner loss should leave these pixels out, too: :class:`LabeledPixelsLoss`. A layer without steps, or
    with a ``share`` of 0, costs nothing.

    For deep supervision the input is a list of heads, and the inner loss takes such a list: MONAI's
    ``DeepSupervisionLoss``, with one target for all, or nnU-Net's ``DeepSupervisionWrapper``, with one for each. (Heads
    that DynUNet has stacked are a list after ``heads.unbind(1)``.)

    Args:
        loss: any loss of ``(input, target)``.
        layer: an :class:`InverseEvolutionLayer`, which is behind each head; for heads of other spacings a list of
            layers, one per head; or None for the loss alone.
        ignore_index: label value of pixels without a class, or None if every pixel has one.

    Example:
        >>> import torch
        >>> from monai_iels import HeatDiffusion, IELLoss, InverseEvolutionLayer
        >>> loss = IELLoss(torch.nn.CrossEntropyLoss(), InverseEvolutionLayer(HeatDiffusion(), gain=15))
        >>> flat = torch.zeros(1, 2, 4, 4)  # nothing to amplify
        >>> loss(flat, torch.zeros(1, 4, 4, dtype=torch.long))
        tensor(0.6931)
    """

    def __init__(
        self,
        loss: nn.Module,
        layer: nn.Module | Sequence[nn.Module] | None = None,
        ignore_index: int | None = None,
    ) -> None:
        super().__init__()
        self.loss = _check_loss(loss)
        self.layer = nn.ModuleList(layer) if isinstance(layer, Sequence) else layer
        self.ignore_index = ignore_index

    @property
    def needs_image(self) -> bool:
        """Whether a layer depends on the image that the network saw."""
        return self.layer is not None and any(getattr(part, "needs_image", False) for part in self.layer.modules())

    def forward(self, input: Logits, target: Any, *args: Any, image: Tensor | None = None, **kwargs: Any) -> Tensor:
        """Return the loss of the evolved logits ``(B, C, *spatial)``, or of a list of them.

        A layer such as one of :class:`GuidedDiffusion` needs ``image``, what the network saw; others ignore it.
        """
        return self.loss(self.evolved(input, target, image), target, *args, **kwargs)

    def evolved(self, input: Logits, target: Any, image: Tensor | None = None) -> Logits:
        """Return the logits that the inner loss gets."""
        if self.layer is None or not self.training or getattr(self.layer, "is_idle", False):
            return input
        if isinstance(input, Tensor):
            return self._evolved_head(self.layer, input, target, image)
        layers = self.layer if isinstance(self.layer, nn.ModuleList) else [self.layer] * len(input)
        targets = [target] * len(input) if isinstance(target, Tensor) else target
        return [self._evolved_head(*head, image) for head in zip(layers, input, targets, strict=True)]

    def _evolved_head(self, layer: nn.Module, logits: Tensor, target: Tensor, image: Tensor | None) -> Tensor:
        if self.ignore_index is None:
            return apply_layer(layer, logits, image)
        known = (target != self.ignore_index).reshape(len(logits), 1, *target.shape[2 - logits.ndim :])
        if known.shape[2:] != logits.shape[2:]:  # one target for heads of several sizes
            known = F.interpolate(known.float(), logits.shape[2:], mode="nearest-exact") > 0
        return apply_layer(layer, extend(logits, known), image)

    def extra_repr(self) -> str:
        """Return the ignored label value."""
        return f"ignore_index={self.ignore_index}"


class LabeledPixelsLoss(nn.Module):
    """Leave out pixels without a label from any loss that treats pixels alike, such as cross-entropy, Dice or both.

    The loss gets the labeled pixels of a batch as one row, of shape ``(1, C, pixels)``. So Dice is that of the whole
    batch, and a loss that looks at neighboring pixels must be outside: ``GradientEnergyLoss(LabeledPixelsLoss(loss))``.

    Args:
        loss: a loss of logits ``(B, C, *spatial)`` and classes ``(B, 1, *spatial)``.
        ignore_index: label value of pixels without a class, or None if every pixel has one.

    Example:
        >>> import torch
        >>> from monai.losses import DiceCELoss
        >>> from monai_iels import LabeledPixelsLoss
        >>> loss = LabeledPixelsLoss(DiceCELoss(softmax=True, to_onehot_y=True, lambda_dice=0.0), ignore_index=255)
        >>> loss(torch.zeros(1, 2, 1, 2), torch.tensor([[[[0, 255]]]]))
        tensor(0.6931)
    """

    def __init__(self, loss: nn.Module, ignore_index: int | None = 255) -> None:
        super().__init__()
        self.loss = _check_loss(loss)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss of the labeled pixels, or 0 if there are none."""
        if self.ignore_index is None:
            return self.loss(input, target)
        labels = target.reshape(len(input), *input.shape[2:])
        is_labeled = labels != self.ignore_index
        logits, labels = input.movedim(1, -1)[is_labeled].T, labels[is_labeled]
        if not len(labels):
            return logits.sum()  # 0, with a gradient of zeros
        return self.loss(logits[None], labels[None, None])

    def extra_repr(self) -> str:
        """Return the ignored label value."""
        return f"ignore_index={self.ignore_index}"


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
        self.loss = _check_loss(loss)
        self.weight = check_number("weight", weight, 0)
        self.spacing = check_spacing(spacing)
        self.reduction = LossReduction(reduction)

    def forward(self, input: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return the loss of ``input``, raw outputs of shape ``(B, C, *spatial)``, with its energy added."""
        loss = self.loss(input, target, *args, **kwargs)
        energy = self._reduced(self.energy(input))
        if energy.ndim and loss.ndim not in (0, energy.ndim):
            raise ValueError(
                f"the loss must be a number or of shape {tuple(energy.shape)} to add the energies to it, "
                f"got {tuple(loss.shape)}: set `reduction` to 'mean' or 'sum', or use one of MONAI's losses."
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


class QuasiConcavityLoss(nn.Module):
    r"""Add a penalty on concave level lines of a region's probability to a loss, :math:`L(U, M) + \lambda P(u)`.

    A probability whose super-level sets are all convex is quasi-concave; in 2-D its second derivative along level lines
    is then nowhere positive. This is the second-order loss of D-Convexity (Chen and Yan, CVPR 2026, arXiv 2605.19210):

    .. math::
        P(u) = \frac{1}{|\Omega|} \sum_\Omega |\nabla u| \max(0, Q + \delta), \qquad
        Q = u_x^2 u_{yy} - 2 u_x u_y u_{xy} + u_y^2 u_{xx}.

    :math:`Q` is not normalized: it grows with the cube of the slope, so that only steep edges count. Derivatives are
    central differences of distance 1. :math:`\Omega` is all pixels but the outermost, so no edge is seen at the border.
    It follows the description of the method, not its code; the authors' projection of the output (CGPM) is no part of
    it. A point is judged by its eight neighbors, so several objects cost nothing but at the saddles between them, and
    edges sharper than a pixel cost something even where they are straight.

    Args:
        loss: any loss of ``(input, target)``.
        weight: the factor :math:`\lambda`. At a dent the gradient of the penalty is about a hundredth of that of
            cross-entropy at a wrong pixel, so weights of 10 to 100 matter.
        regions: groups of channels; a region's probability is the sum of theirs.
        sigmoid: whether channels have a sigmoid each instead of a softmax together; then a region is one channel.
        margin: the margin :math:`\delta`, at least 0.

    Raises:
        ValueError: if an argument is out of its range, or the input is not in 2-D or lacks a channel.

    Example:
        >>> import torch
        >>> from monai_iels import QuasiConcavityLoss
        >>> loss = QuasiConcavityLoss(torch.nn.CrossEntropyLoss())
        >>> square = torch.zeros(1, 2, 8, 8)
        >>> square[:, 1, 2:6, 2:6] = 4.0
        >>> dented = square.clone()
        >>> dented[:, 1, 2:4, 4] = 0.0
        >>> loss.penalty(torch.cat([square, dented]))
        tensor([[0.0000],
                [0.0004]])
    """

    def __init__(
        self,
        loss: nn.Module,
        weight: float = 1.0,
        regions: Sequence[Sequence[int]] = ((1,),),
        sigmoid: bool = False,
        margin: float = 0.0,
    ) -> None:
        super().__init__()
        self.loss = _check_loss(loss)
        self.weight = check_number("weight", weight, 0)
        self.regions = check_regions(regions)
        self.sigmoid = sigmoid
        self.margin = check_number("margin", margin, 0)
        if sigmoid and any(len(region) > 1 for region in self.regions):
            raise ValueError(f"`regions` must have one channel each with `sigmoid=True`, got {regions}.")

    def forward(self, input: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return the loss of ``input``, logits of shape ``(B, C, H, W)``, with the mean penalty added."""
        return self.loss(input, target, *args, **kwargs) + self.weight * self.penalty(input).mean()

    def penalty(self, u: Tensor) -> Tensor:
        """Return the penalty of each image and region, of shape ``(B, regions)``."""
        p = self._probabilities(u)
        inner, above, below = p[..., 1:-1, :], p[..., :-2, :], p[..., 2:, :]
        d_y, d_yy = (below - above) / 2, below - 2 * inner + above
        u_y, u_yy = d_y[..., 1:-1], d_yy[..., 1:-1]
        u_x, u_xy = (inner[..., 2:] - inner[..., :-2]) / 2, (d_y[..., 2:] - d_y[..., :-2]) / 2
        u_xx = inner[..., 2:] - 2 * inner[..., 1:-1] + inner[..., :-2]
        bend = u_x**2 * u_yy - 2 * u_x * u_y * u_xy + u_y**2 * u_xx
        steepness = torch.linalg.vector_norm(torch.stack([u_x, u_y]), dim=0)  # its derivative at 0 is 0
        return (steepness * (bend + self.margin).relu()).mean((2, 3))

    def extra_repr(self) -> str:
        """Return weight, regions, sigmoid and margin."""
        return f"weight={self.weight}, regions={self.regions}, sigmoid={self.sigmoid}, margin={self.margin}"

    def _probabilities(self, u: Tensor) -> Tensor:
        """Return the probability of each region, of shape ``(B, regions, H, W)``."""
        field = as_field(u)
        if field.ndim != 4 or min(field.shape[2:]) < 3:
            raise ValueError(
                f"logits must be 2-D, of shape (B, C, H, W) with at least 3x3 pixels, got {tuple(u.shape)}: "
                "for 3-D use ConvexCurveMotion."
            )
        if max(map(max, self.regions)) >= field.shape[1]:
            raise ValueError(
                f"logits must have the channels of `regions` {self.regions}, got {field.shape[1]} channels."
            )
        p = field.sigmoid() if self.sigmoid else field.softmax(1)
        return torch.stack([p[:, list(region)].sum(1) for region in self.regions], 1)


def apply_loss(loss: Any, input: Logits, target: Any, image: Tensor) -> Tensor:
    """Call any loss; pass the image to it if it needs one."""
    return loss(input, target, image=image) if getattr(loss, "needs_image", False) else loss(input, target)


def _check_loss(loss: nn.Module) -> nn.Module:
    if not callable(loss):
        raise TypeError(f"`loss` must be a loss such as torch.nn.CrossEntropyLoss(), got {loss!r}.")
    return loss
