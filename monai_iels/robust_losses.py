# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Losses for labels that may be wrong, which the layers are compared with."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from monai.networks.layers import gaussian_1d, separable_filtering
from torch import Tensor, nn

from monai_iels.grid import as_field, check_number


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
        self.q = check_number("q", q, 0, 1, above=True)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the mean over pixels, for logits ``(B, C, *spatial)`` and classes ``(B, 1, *spatial)``."""
        log_probability = as_field(input).log_softmax(1).gather(1, _check_target(input, target))
        return -torch.expm1(self.q * log_probability).mean() / self.q

    def extra_repr(self) -> str:
        """Return q."""
        return f"q={self.q}"


class SymmetricCrossEntropyLoss(nn.Module):
    r"""Fit labels that may be wrong by cross-entropy in both directions, :math:`\alpha H(y, p) + \beta H(p, y)`.

    The reverse one, :math:`H(p, y) = -\sum_k p_k \log y_k`, takes the prediction for the truth. A label says 0 of all
    classes but one, and :math:`\log 0` is set to -4 as in the paper (Wang et al., 2019, equation 7), so
    :math:`H(p, y) = 4 (1 - p_y)`: it gives up on labels that seem wrong.

    Args:
        alpha: weight of cross-entropy; the authors have 0.1 for ten classes, and 6 for a hundred.
        beta: weight of the reverse one; the authors have 1 and 0.1.

    Raises:
        ValueError: if a weight is negative or infinite.

    Example:
        >>> import torch
        >>> from monai_iels import SymmetricCrossEntropyLoss
        >>> loss = SymmetricCrossEntropyLoss(alpha=0.0, beta=1.0)
        >>> loss(torch.zeros(1, 2, 4, 4), torch.zeros(1, 1, 4, 4))
        tensor(2.)
    """

    log_zero = -4.0

    def __init__(self, alpha: float = 0.1, beta: float = 1.0) -> None:
        super().__init__()
        self.alpha = check_number("alpha", alpha, 0)
        self.beta = check_number("beta", beta, 0)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the mean over pixels, for logits ``(B, C, *spatial)`` and classes ``(B, 1, *spatial)``."""
        log_probability = as_field(input).log_softmax(1).gather(1, _check_target(input, target))
        reverse = self.log_zero * torch.expm1(log_probability)
        return (self.beta * reverse - self.alpha * log_probability).mean()

    def extra_repr(self) -> str:
        """Return alpha and beta."""
        return f"alpha={self.alpha}, beta={self.beta}"


class BootstrappedCrossEntropyLoss(nn.Module):
    r"""Fit a mixture of the label and the network's own opinion, :math:`\beta y + (1 - \beta) z`, by cross-entropy.

    The opinion :math:`z` is the predicted probabilities :math:`p` themselves ("soft"), or their largest class ("hard";
    Reed et al., 2015, equations 6 and 7). The soft one adds the entropy of the prediction, and its gradient, too.

    Args:
        beta: share of the label, from 0 to 1; the authors have 0.95 for soft and 0.8 for hard.
        hard: whether the opinion is one class.

    Raises:
        ValueError: if ``beta`` is not in [0, 1].

    Example:
        >>> import torch
        >>> from monai_iels import BootstrappedCrossEntropyLoss
        >>> sure = torch.tensor([[[[4.0]], [[0.0]]]])
        >>> wrong = torch.ones(1, 1, 1, 1)
        >>> BootstrappedCrossEntropyLoss(beta=1.0)(sure, wrong)
        tensor(4.0181)
        >>> BootstrappedCrossEntropyLoss(beta=0.5, hard=True)(sure, wrong)
        tensor(2.0181)
    """

    def __init__(self, beta: float = 0.95, hard: bool = False) -> None:
        super().__init__()
        self.beta = check_number("beta", beta, 0, 1)
        self.hard = hard

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the mean over pixels, for logits ``(B, C, *spatial)`` and classes ``(B, 1, *spatial)``."""
        log_probability = as_field(input).log_softmax(1)
        of_label = log_probability.gather(1, _check_target(input, target))
        if self.hard:
            of_opinion = log_probability.amax(1, keepdim=True)
        else:
            of_opinion = (log_probability.exp() * log_probability).sum(1, keepdim=True)
        return -(self.beta * of_label + (1 - self.beta) * of_opinion).mean()

    def extra_repr(self) -> str:
        """Return beta and hard."""
        return f"beta={self.beta}, hard={self.hard}"


class StudentTLoss(nn.Module):
    r"""Fit whole label images of which some may be wrong, by the likelihood of Student's t-distribution: T-Loss.

    The residuals of an image, label minus probability, are one vector :math:`r` with a multivariate t-distribution of
    identity scale. The loss of an image is its negative log-likelihood (Gonzalez-Jimenez et al., MICCAI 2023,
    equation 4),

    .. math::
        \log\Gamma\left(\frac{\nu}{2}\right) - \log\Gamma\left(\frac{\nu + D}{2}\right)
        + \frac{D}{2} \log(\pi \nu) + \frac{\nu + D}{2} \log\left(1 + \frac{|r|^2}{\nu}\right).

    An image far from its label counts less. How much less is learned: :math:`\nu = e^{\tilde\nu} + \epsilon` is a
    parameter of the loss, so **give the optimizer the parameters of the loss, too**, and save its ``state_dict``.

    The authors have one foreground and :math:`D` pixels. For C classes the residuals of a pixel sum to 0, so
    C - 1 of them are free: :math:`D` is C - 1 times the number of pixels, and :math:`|r|^2` is half the sum of squares
    over all classes. For two classes this is the authors' loss. It is divided by :math:`D`, which they do not do: the
    minimum is the same, and learning rates for cross-entropy fit.

    Args:
        nu: the first value of :math:`\nu`.
        ignore_index: label value of pixels without a class, which are left out.

    Raises:
        ValueError: if ``nu`` is not above 1e-8, the authors' :math:`\epsilon`.

    Example:
        >>> import torch
        >>> from monai_iels import StudentTLoss
        >>> loss = StudentTLoss(nu=1.0)
        >>> loss(torch.zeros(1, 2, 1, 1), torch.zeros(1, 1, 1, 1))  # Cauchy: log(pi) + log(1 + 0.5**2)
        tensor(1.3679, grad_fn=<MeanBackward0>)
    """

    epsilon = 1e-8

    def __init__(self, nu: float = 1.0, ignore_index: int | None = None) -> None:
        super().__init__()
        check_number("nu", nu, self.epsilon, above=True)
        self.log_nu = nn.Parameter(torch.tensor(math.log(nu - self.epsilon)))
        self.ignore_index = ignore_index

    @property
    def nu(self) -> Tensor:
        """The degrees of freedom: the smaller they are, the less do images far from their labels count."""
        return self.log_nu.exp() + self.epsilon

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the mean over images, for logits ``(B, C, *spatial)`` and classes ``(B, 1, *spatial)``."""
        probability = as_field(input).softmax(1)
        classes, known = _labeled(_check_target(input, target), self.ignore_index)
        of_label = probability.gather(1, classes)
        squares = probability.square().sum(1, keepdim=True) - 2 * of_label + 1  # of the residuals of a pixel
        distance = (known * squares).flatten(1).sum(1) / 2
        dimension = known.flatten(1).sum(1).to(distance) * (input.shape[1] - 1)
        nu = self.nu.to(distance)
        # Equation 4 with log(nu) and log(1 + |r|^2 / nu) taken together: apart, their derivatives by nu nearly cancel.
        tail = nu / 2 * torch.log1p(distance / nu) + dimension / 2 * (math.pi * (nu + distance)).log()
        likelihood = torch.lgamma(nu / 2) - torch.lgamma((nu + dimension) / 2) + tail
        return (likelihood / dimension.clamp(min=1)).mean()

    def extra_repr(self) -> str:
        """Return nu and the ignored label value."""
        return f"nu={self.nu.item():.4g}, ignore_index={self.ignore_index}"


class SpatialLabelSmoothingLoss(nn.Module):
    """Soften labels near outlines, where people disagree, and fit them by cross-entropy: SVLS.

    The one-hot label is filtered by a Gaussian whose center weighs as much as all its neighbors together (Islam and
    Glocker, 2021). Inside of a region labels stay as they are; a pixel that is alone keeps half of its class. At the
    border of the image the outermost pixels are repeated; where neighbors have no label, the others weigh more.

    Args:
        sigma: standard deviation of the Gaussian in pixels; the authors have 1.
        kernel_size: side of the filter in pixels, an odd number from 3.
        ignore_index: label value of pixels without a class, which are left out.

    Raises:
        ValueError: if ``sigma`` is not above 0, or ``kernel_size`` is not an odd number from 3.

    Example:
        >>> import torch
        >>> from monai_iels import SpatialLabelSmoothingLoss
        >>> alone = torch.zeros(1, 1, 3, 3)
        >>> alone[..., 1, 1] = 1
        >>> SpatialLabelSmoothingLoss().smoothed(alone, num_classes=2)[0, 1]
        tensor([[0.0472, 0.0778, 0.0472],
                [0.0778, 0.5000, 0.0778],
                [0.0472, 0.0778, 0.0472]])
    """

    def __init__(self, sigma: float = 1.0, kernel_size: int = 3, ignore_index: int | None = None) -> None:
        super().__init__()
        if kernel_size < 3 or kernel_size % 2 != 1:
            raise ValueError(f"`kernel_size` must be an odd number, at least 3, got {kernel_size}.")
        self.sigma = check_number("sigma", sigma, 0, above=True)
        self.kernel_size = kernel_size
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the mean over pixels, for logits ``(B, C, *spatial)`` and classes ``(B, 1, *spatial)``."""
        field = as_field(input)
        known = _labeled(_check_target(input, target), self.ignore_index)[1]
        soft = self.smoothed(target, field.shape[1]).to(field)
        entropy = -(soft * field.log_softmax(1)).sum(1, keepdim=True)
        return (known * entropy).sum() / known.sum().clamp(min=1)

    def smoothed(self, target: Tensor, num_classes: int) -> Tensor:
        """Return the soft labels ``(B, C, *spatial)`` of classes ``(B, 1, *spatial)``."""
        classes, known = _labeled(torch.as_tensor(target).as_subclass(Tensor).long(), self.ignore_index)
        one_hot = F.one_hot(classes[:, 0], num_classes).movedim(-1, 1) * known
        weight = self._filtered(known.float()).clamp(min=1e-6)  # 0 only far from any label
        return self._filtered(one_hot.float()) / weight

    def extra_repr(self) -> str:
        """Return sigma, the size of the filter and the ignored label value."""
        return f"sigma={self.sigma}, kernel_size={self.kernel_size}, ignore_index={self.ignore_index}"

    def _filtered(self, field: Tensor) -> Tensor:
        radius = self.kernel_size // 2
        gaussian = gaussian_1d(torch.tensor(self.sigma), radius / self.sigma, approx="sampled", normalize=True)
        center = float(gaussian[radius]) ** (field.ndim - 2)
        with torch.autocast(field.device.type, enabled=False):
            filtered = separable_filtering(field, [gaussian] * (field.ndim - 2), mode="replicate")
        return (filtered + (1 - 2 * center) * field) / (2 * (1 - center))


def _check_target(input: Tensor, target: Tensor) -> Tensor:
    """Return the target as whole numbers, after a check of its shape."""
    if target.shape != (len(input), 1, *input.shape[2:]):
        raise ValueError(
            f"the target must have shape {(len(input), 1, *input.shape[2:])} for logits of shape "
            f"{tuple(input.shape)}, got {tuple(target.shape)}."
        )
    return target.as_subclass(Tensor).long()


def _labeled(classes: Tensor, ignore_index: int | None) -> tuple[Tensor, Tensor]:
    """Return the classes, with 0 where there is no label, and a mask of the labeled pixels."""
    known = torch.ones_like(classes, dtype=torch.bool) if ignore_index is None else classes != ignore_index
    return classes * known, known
