# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The wrapper that puts a layer behind a network while it trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from monai_iels.layers import apply_layer


class IELNet(nn.Module):
    """Apply ``layer`` to the logits of ``network`` in train mode; in eval mode be the network, bit for bit.

    The network may return a tensor, deep-supervision heads in a list, tuple or dictionary, or heads stacked in one
    tensor of shape ``(B, heads, C, *spatial)``, as DynUNet does. A stack is recognized by its extra axis: it has one
    more than the input, the first tensor that the network is called with. Other outputs (auxiliary losses, integer
    masks) pass through unchanged. A layer that needs the image gets the input.

    The wrapper adds no parameter and no buffer, and its ``state_dict()`` is that of the network, with the same keys: a
    checkpoint does not need monai_iels. ``load_state_dict`` takes these keys, and also keys with the prefix
    ``network.``, which older checkpoints have. The same is true if the wrapper is a part of another module.

    A training loop that cannot wrap its network may write ``loss(layer(prediction), label)`` instead, or
    ``layer(prediction, image)``: it is the same.

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

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the state of the network, with its own keys."""
        return self.network.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Load a state of the network, or an older one of the wrapper."""
        return self.network.load_state_dict(self._without_prefix(state_dict), *args, **kwargs)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Pass the keys on to the network; torch calls this if the wrapper is part of another module."""
        own = {key.removeprefix(prefix): state_dict.pop(key) for key in list(state_dict) if key.startswith(prefix)}
        state_dict.update({f"{prefix}network.{key}": value for key, value in self._without_prefix(own).items()})
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _without_prefix(self, state_dict: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the state with the keys of the network, which may itself have a part that is named ``network``."""
        if not all(key.startswith("network.") for key in state_dict) or self.network.state_dict().keys() & state_dict:
            return state_dict
        return {key.removeprefix("network."): value for key, value in state_dict.items()}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the network returns, with the layer applied to every head in train mode."""
        out = self.network(*args, **kwargs)
        if self.layer is None or not self.training:
            return out
        return apply_to_heads(self.layer, out, *args, *kwargs.values())


def apply_to_heads(layer: nn.Module, out: Any, *inputs: Any) -> Any:
    """Apply ``layer`` to every head, or stack of heads, in the output of a network for these inputs.

    Raises:
        TypeError: if there is no head.
    """
    image = next((x for x in inputs if isinstance(x, Tensor)), None)
    ndim = 0 if image is None else image.ndim
    leaves, structure = tree_flatten(out)

    def is_head(x: Any) -> bool:
        return isinstance(x, Tensor) and x.is_floating_point() and (x is out or x.ndim >= ndim)

    def evolved(x: Any) -> Any:
        if not is_head(x):
            return x
        if ndim and x.ndim > ndim:
            each = None if image is None else image.repeat_interleave(x.shape[1], 0)
            return apply_layer(layer, x.flatten(0, 1), each).unflatten(0, x.shape[:2])
        return apply_layer(layer, x, image)

    if not any(map(is_head, leaves)):
        raise TypeError(
            f"the network must return logits, or heads in a list, tuple or dictionary, got {type(out).__name__}."
        )
    return tree_unflatten([evolved(x) for x in leaves], structure)
