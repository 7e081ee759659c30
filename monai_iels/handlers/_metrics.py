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

"""The metrics as Ignite handlers, so that a bundle can name them beside its key metric."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from monai.handlers import IgniteMetricHandler
from monai.utils import MetricReduction

from monai_iels.metrics import ConvexityMetric, RoughnessMetric


class MeanConvexity(IgniteMetricHandler):
    """Collect the mean of :class:`ConvexityMetric` over images, regions and iterations.

    Args:
        include_background: whether the first channel is a region, too.
        regions: groups of channels that are one region each; each channel by itself if None.
        reduction: how values are put together.
        reference: measure the reference and not the prediction.
        output_transform: function that takes ``(y_pred, y)`` out of ``engine.state.output``, such as
            ``from_engine(["pred", "label"])``.
        save_details: whether to keep the value of each image in ``engine.state.metric_details``.
    """

    def __init__(
        self,
        include_background: bool = False,
        regions: Sequence[Sequence[int]] | None = None,
        reduction: MetricReduction | str = MetricReduction.MEAN,
        reference: bool = False,
        output_transform: Callable = lambda x: x,
        save_details: bool = True,
    ) -> None:
        metric = ConvexityMetric(include_background, regions, reduction, reference=reference)
        super().__init__(metric_fn=metric, output_transform=output_transform, save_details=save_details)


class MeanRoughness(IgniteMetricHandler):
    """Collect the mean of :class:`RoughnessMetric` over images and iterations.

    Args:
        include_background: whether a change of the first channel counts.
        reduction: how values are put together.
        reference: measure the reference and not the prediction.
        output_transform: function that takes ``(y_pred, y)`` out of ``engine.state.output``, such as
            ``from_engine(["pred", "label"])``.
        save_details: whether to keep the value of each image in ``engine.state.metric_details``.
    """

    def __init__(
        self,
        include_background: bool = False,
        reduction: MetricReduction | str = MetricReduction.MEAN,
        reference: bool = False,
        output_transform: Callable = lambda x: x,
        save_details: bool = True,
    ) -> None:
        metric = RoughnessMetric(include_background, reduction, reference=reference)
        super().__init__(metric_fn=metric, output_transform=output_transform, save_details=save_details)
