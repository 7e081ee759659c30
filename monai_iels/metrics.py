# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The property that a layer promises, measured: convex regions, smooth outlines."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from monai.metrics import CumulativeIterationMetric, do_metric_reduction
from monai.metrics.utils import ignore_background
from monai.utils import MetricReduction
from torch import Tensor

from monai_iels.grid import check_regions
from monai_iels.operators.hulls import components_of, hull_volume


class _PropertyMetric(CumulativeIterationMetric):
    """A metric of one segmentation by itself: of the prediction, or of the reference for comparison."""

    def __init__(
        self,
        include_background: bool = False,
        reduction: MetricReduction | str = MetricReduction.MEAN,
        get_not_nans: bool = False,
        reference: bool = False,
    ) -> None:
        super().__init__()
        self.include_background = include_background
        self.reduction = MetricReduction(reduction)
        self.get_not_nans = get_not_nans
        self.reference = reference

    @abstractmethod
    def measure(self, y: Tensor) -> Tensor:
        """Return the number for each image and region of one-hot ``(B, C, *spatial)``."""

    def aggregate(self, reduction: MetricReduction | str | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """Reduce all values so far, of every process; NaN does not count.

        Args:
            reduction: "none", "mean", "sum", "mean_batch", "sum_batch", "mean_channel" or "sum_channel"; that of the
                constructor if None.

        Returns:
            The reduced value, and with ``get_not_nans`` the number of values that were not NaN.
        """
        data = self.get_buffer()
        if not isinstance(data, Tensor):
            raise ValueError(f"{type(self).__name__} has no values yet: call it before `aggregate`.")
        value, not_nans = do_metric_reduction(data, reduction or self.reduction)
        return (value, not_nans) if self.get_not_nans else value

    def _compute_tensor(self, y_pred: Tensor, y: Tensor | None = None, **kwargs: Any) -> Tensor:
        if self.reference and y is None:
            raise ValueError("a reference `y` is needed with `reference=True`, got None.")
        return self.measure(self._regions(y if self.reference and y is not None else y_pred))

    def _regions(self, y: Tensor) -> Tensor:
        """Return the channels to measure, as booleans."""
        if y.ndim < 3:
            raise ValueError(f"labels must be one-hot, of shape (B, C, *spatial), got {tuple(y.shape)}.")
        channels = y.as_subclass(Tensor)
        is_one = channels.bool()
        if not (channels == is_one).all():
            raise ValueError(
                f"labels must be one-hot, of 0 and 1, got values from {y.min():g} to {y.max():g}: "
                "use AsDiscrete(argmax=True, to_onehot=C) for logits, or AsDiscrete(to_onehot=C) for class numbers."
            )
        return is_one if self.include_background else ignore_background(is_one)[0]


class ConvexityMetric(_PropertyMetric):
    """Measure how convex the regions of a segmentation are: area over area of the convex hull.

    Each connected component (corners touching count as connected) has its own hull, through the corners of its pixels;
    a region's value is the area of its components over the area of their hulls. A full rectangle has 1, a disk a little
    less because its outline is made of pixels. The value does not depend on the spacing, since both areas scale alike.
    2-D and 3-D.

    Empty regions are treated as in MONAI's ``DiceMetric``: if the reference has none, the value is NaN and left out of
    the average; if only the prediction has none, it is 0. Without a reference it is NaN.

    Args:
        include_background: whether the first channel is a region, too.
        regions: groups of channels that are one region each, such as ``((1, 2), (2,))`` for disc and cup; each channel
            by itself if None. With regions, channels are counted with the background, and it is not left out.
        reduction: how values are reduced; see :meth:`aggregate`.
        get_not_nans: whether :meth:`aggregate` also returns the number of values that were not NaN.
        reference: measure the reference ``y`` instead of the prediction, for comparison.

    Example:
        >>> import torch
        >>> from monai_iels import ConvexityMetric
        >>> corner = torch.zeros(1, 2, 4, 4)
        >>> corner[:, 1, :2] = corner[:, 1, :, :2] = 1
        >>> ConvexityMetric()(corner)
        tensor([[0.8571]])
    """

    def __init__(
        self,
        include_background: bool = False,
        regions: Sequence[Sequence[int]] | None = None,
        reduction: MetricReduction | str = MetricReduction.MEAN,
        get_not_nans: bool = False,
        reference: bool = False,
    ) -> None:
        super().__init__(include_background or regions is not None, reduction, get_not_nans, reference)
        self.regions = None if regions is None else check_regions(regions)

    def measure(self, y: Tensor) -> Tensor:
        """Return the convexity of each image and region, of shape ``(B, regions)``."""
        values = [[_convexity(mask) for mask in image] for image in y.cpu().numpy()]
        return torch.tensor(values, device=y.device, dtype=torch.float32)

    def _regions(self, y: Tensor) -> Tensor:
        channels = super()._regions(y)
        if channels.ndim not in (4, 5):
            raise ValueError(f"labels must be 2-D or 3-D, of shape (B, C, *spatial), got {tuple(y.shape)}.")
        if self.regions is None:
            return channels
        if max(map(max, self.regions)) >= channels.shape[1]:
            raise ValueError(
                f"labels must have the channels of `regions` {self.regions}, got {channels.shape[1]} channels."
            )
        return torch.stack([channels[:, list(region)].any(1) for region in self.regions], 1)

    def _compute_tensor(self, y_pred: Tensor, y: Tensor | None = None, **kwargs: Any) -> Tensor:
        values = super()._compute_tensor(y_pred, y, **kwargs)
        if y is None or self.reference:
            return values
        present = self._regions(y).flatten(2).any(2)
        return torch.where(present, values.nan_to_num(0.0), torch.nan)


class RoughnessMetric(_PropertyMetric):
    """Measure how rough a segmentation is: the share of neighboring pixels whose labels differ.

    Neighbors are pairs of pixels along each axis, inside of the image. Label noise makes it large; to tell what is
    large, measure the reference as well.

    Args:
        include_background: whether a change of the first channel counts. With exclusive classes it never matters,
            since the background changes only where another class does.
        reduction: how values are reduced; see :meth:`aggregate`.
        get_not_nans: whether :meth:`aggregate` also returns the number of values that were not NaN.
        reference: measure the reference ``y`` instead of the prediction, for comparison.

    Example:
        >>> import torch
        >>> from monai_iels import RoughnessMetric
        >>> half = torch.zeros(1, 2, 4, 4)
        >>> half[:, 0, :2] = half[:, 1, 2:] = 1
        >>> RoughnessMetric()(half)  # 4 of 24 pairs
        tensor([[0.1667]])
    """

    def measure(self, y: Tensor) -> Tensor:
        """Return the roughness of each image, of shape ``(B, 1)``; NaN for a single pixel, which has no neighbor."""
        changes = [y.diff(dim=axis).any(1).flatten(1) for axis in range(2, y.ndim)]
        return torch.cat(changes, 1).float().mean(1, keepdim=True)


def _convexity(mask: np.ndarray) -> float:
    hulls = [hull_volume(component) for _, component in components_of(mask)]
    return mask.sum() / sum(hulls) if hulls else float("nan")


class SetIoUMetric(CumulativeIterationMetric):
    """Measure the intersection over union of each class over all images together, as Cityscapes does.

    Pixels are counted over all images, and divided at the end. A mean of the values of images, MONAI's
    ``MeanIoU``, gives a class that is small in one image as much weight there as one that fills it. A class that
    neither predictions nor labels have is ignored. Pixels whose channels are all 0 in both are left out.

    Args:
        include_background: whether the first channel counts.
        reduction: "mean" over classes, or "none" for one number per class.

    Example:
        >>> import torch
        >>> from monai_iels import SetIoUMetric
        >>> metric = SetIoUMetric(include_background=True)
        >>> large, small = torch.tensor([[[1.0] * 9], [[0.0] * 9]]), torch.tensor([[[1.0]], [[0.0]]])
        >>> _ = metric([large, 1 - small], [large, small])
        >>> round(float(metric.aggregate()), 2)  # 9 of 10 pixels of the first class, none of the second
        0.45
    """

    def __init__(self, include_background: bool = False, reduction: str = "mean") -> None:
        super().__init__()
        if reduction not in ("mean", "none"):
            raise ValueError(f"`reduction` must be 'mean' or 'none', got {reduction!r}.")
        self.include_background = include_background
        self.reduction = reduction

    def aggregate(self) -> Tensor:
        """Return the value of all images so far, of every process.

        Raises:
            ValueError: if there are none.
        """
        counts = self.get_buffer()
        if not isinstance(counts, Tensor):
            raise ValueError("SetIoUMetric has no values yet: call it before `aggregate`.")
        common, either = counts.sum(0).T
        values = common / either  # NaN where there is nothing
        return values.nanmean() if self.reduction == "mean" else values

    def _compute_tensor(self, y_pred: Tensor, y: Tensor | None = None, **kwargs: Any) -> Tensor:
        """Return the pixels of intersection and union of each image and class, ``(B, C, 2)``."""
        if y is None or y.shape != y_pred.shape:
            found = None if y is None else tuple(y.shape)
            raise ValueError(
                f"labels must be one-hot and of the shape of the predictions, {tuple(y_pred.shape)}, got {found}."
            )
        guess, truth = (x.as_subclass(Tensor).flatten(2).bool() for x in (y_pred, y))
        counts = torch.stack([(guess & truth).sum(2), (guess | truth).sum(2)], dim=2).double()
        return counts if self.include_background else counts[:, 1:]
