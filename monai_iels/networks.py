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

"""The wrapper that puts a layer behind a network while it trains."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

__all__ = ["IELNet"]


class IELNet(nn.Module):
    """Apply ``layer`` to the logits of ``network`` in train mode; in eval mode be the network, bit for bit.

    The network may return a tensor, deep-supervision heads in a list, tuple or dictionary, or heads stacked in one
    tensor of shape ``(B, heads, C, *spatial)``, as DynUNet does, which is told by its having one axis more than the
    input. What has fewer axes and stands beside heads, such as an auxiliary loss, is handed on.

    The wrapper adds no parameter and no buffer. To save a checkpoint that needs no monai_iels, save
    ``net.network.state_dict()``. A training loop that cannot wrap its network may write
    ``loss(layer(prediction), label)`` instead: it is the same.

    Args:
        network: any segmentation network that returns logits of shape ``(B, C, *spatial)``.
        layer: an :class:`InverseEvolutionLayer`, or None for the network alone.

    Example:
        >>> from monai.networks.nets import BasicUNet
        >>> from monai_iels import HeatDiffusion, IELNet, InverseEvolutionLayer
        >>> layer = InverseEvolutionLayer(HeatDiffusion(spacing=2.0), dt=0.1, steps=20)
        >>> net = IELNet(BasicUNet(spatial_dims=2, in_channels=3, out_channels=3), layer)
    """

    def __init__(self, network: nn.Module, layer: nn.Module | None = None) -> None:
        super().__init__()
        self.network = network
        self.layer = layer

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Return what the network returns, with the layer applied to every head in train mode."""
        out = self.network(x, *args, **kwargs)
        layer = self.layer
        if layer is None or not self.training:
            return out
        if isinstance(out, Tensor):
            return _apply(layer, out, x.ndim)
        return tree_map_only(Tensor, lambda head: head if head.ndim < x.ndim else _apply(layer, head, x.ndim), out)


def _apply(layer: nn.Module, head: Tensor, ndim: int) -> Tensor:
    """Apply ``layer`` to a head of ``ndim`` axes, or to a stack of them."""
    return layer(head.flatten(0, 1)).unflatten(0, head.shape[:2]) if head.ndim > ndim else layer(head)
