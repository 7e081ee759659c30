# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""A layer that is off at first and grows, so that the network learns something before the layer works against it."""

from __future__ import annotations

from torch import nn

from monai_iels.grid import check_whole
from monai_iels.layers import InverseEvolutionLayer


class Warmup:
    """Set the strength of layers for each epoch: off in the first half of the warm-up, growing in the second.

    Bundles, the trainers for nnU-Net, the callback for Lightning and loops of your own all use this class. It sets the
    ``share`` of each layer and keeps no state, so a training that is resumed needs only the number of its epoch.

    Args:
        module: a layer, or a module with layers in it: an ``IELNet``, an ``IELLoss``, a ``torch.nn.ModuleList``.
        epochs: length of the warm-up; afterwards the layers work at full strength. 0 is no warm-up.

    Raises:
        ValueError: if ``epochs`` is negative or no integer, or ``module`` has no layer.

    Example:
        >>> from monai_iels import HeatDiffusion, InverseEvolutionLayer, Warmup
        >>> layer = InverseEvolutionLayer(HeatDiffusion(spacing=2.0), dt=0.3, steps=6)
        >>> warmup = Warmup(layer, epochs=4)
        >>> for epoch in range(5):
        ...     warmup(epoch)
        ...     print(round(layer.share, 3))
        0.0
        0.0
        0.333
        0.667
        1.0
    """

    def __init__(self, module: nn.Module, epochs: int) -> None:
        self.epochs = check_whole("epochs", epochs)
        self.layers = [layer for layer in module.modules() if isinstance(layer, InverseEvolutionLayer)]
        if not self.layers:
            raise ValueError(
                f"`module` must be an InverseEvolutionLayer or have one in it, got {type(module).__name__}."
            )

    def __call__(self, epoch: int) -> None:
        """Set the share of each layer for an epoch; the first is 0."""
        off = self.epochs // 2
        growing = self.epochs + 1 - off
        grown = max(0, epoch + 1 - off)
        for layer in self.layers:
            layer.share = min(1.0, grown / growing)
