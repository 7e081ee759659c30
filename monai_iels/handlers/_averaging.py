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

"""A moving average of a network's weights."""

from __future__ import annotations

from typing import Any

from ignite.engine import Events
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


class MovingAverage:
    """Average a network's weights over the steps of its training, so that single steps count less.

    After each step the average moves a little toward the weights: it is ``decay`` times itself plus ``1 - decay`` times
    them, and begins with those after the first step. Buffers, such as the statistics of batch normalization, are
    copied. The training itself does not see the average.

    Args:
        network: the network in training.
        decay: share of the average that stays in each step, such as 0.99; None for no average.

    Attributes:
        network: the network with averaged weights, or that in training if there is no average.
    """

    def __init__(self, network: nn.Module, decay: float | None = None) -> None:
        self.trained = network
        self.model = None if decay is None else AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(decay))
        self.network: nn.Module = network if self.model is None else self.model.module

    def attach(self, engine: Any) -> None:
        """Follow each step of a trainer."""
        if self.model is not None:
            engine.add_event_handler(Events.ITERATION_COMPLETED, self)

    def __call__(self, engine: Any) -> None:
        """Move the average toward the weights."""
        if self.model is not None:
            self.model.update_parameters(self.trained)

    def state_dict(self) -> dict[str, Any]:
        """Return the averaged weights and the number of steps."""
        return {} if self.model is None else self.model.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the state of another one."""
        if self.model is not None:
            self.model.load_state_dict(state)
