# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""A door for Lightning: a callback that puts a layer behind the logits of any LightningModule while it trains."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import Any

from torch import nn

from monai_iels.networks import apply_to_heads
from monai_iels.torchvision_operators import make_importable
from monai_iels.warmup import Warmup

make_importable()
from lightning.pytorch import Callback, LightningModule, Trainer  # noqa: E402 (it may import torchvision)


class InverseEvolution(Callback):
    """Apply ``layer`` to the logits of a LightningModule in its training steps, and nowhere else.

    The module stays as it is: its training step calls ``self(image)``, or a network inside of it, and gets the evolved
    logits. Validation, testing and prediction get the network's own. Checkpoints hold neither the layer nor the
    callback, and a training that is resumed needs only the same callback again.

    Args:
        layer: an :class:`~monai_iels.InverseEvolutionLayer`.
        warmup: number of epochs until the layer works fully, see :class:`~monai_iels.Warmup`.
        module: what returns the logits: the LightningModule's own ``forward``, or the module of this name in it.

    Raises:
        ValueError: if ``warmup`` is negative, or ``layer`` is no layer.
        AttributeError: when training starts, if there is no module of this name.

    Example:
        >>> from lightning.pytorch import Trainer
        >>> from monai_iels import HeatDiffusion, InverseEvolutionLayer
        >>> from monai_iels.lightning import InverseEvolution
        >>> layer = InverseEvolutionLayer(HeatDiffusion(), gain=15)
        >>> trainer = Trainer(callbacks=[InverseEvolution(layer, warmup=8)], max_epochs=24, logger=False)
    """

    def __init__(self, layer: nn.Module, warmup: int = 0, module: str = "") -> None:
        self.layer = layer
        self.warmup = Warmup(layer, warmup)
        self.module = module
        self._was_called = False
        self._undo = ExitStack()

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Put the layer behind the module's ``forward``.

        A forward hook would not do: where Lightning wraps the LightningModule for several processes, it calls it for a
        whole training step, and a hook would see the loss.
        """
        module = pl_module.get_submodule(self.module)
        module.forward = self._evolved(trainer, module.forward)
        self._undo.callback(module.__dict__.pop, "forward", None)  # its class has the original

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Set the strength of the layer for the epoch."""
        self.warmup(trainer.current_epoch)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Refuse to train without the layer."""
        if not self._was_called:
            called = f"its module {self.module!r}" if self.module else "self()"
            raise ValueError(
                f"The training step of {type(pl_module).__name__} does not call {called}, so that the layer has no "
                "logits: set `module` of InverseEvolution to the name of the network that it calls."
            )

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave the module as it was."""
        self._undo.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leave the module as it was."""
        self._undo.close()

    def _evolved(self, trainer: Trainer, forward: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(forward)
        def evolved(*args: Any, **kwargs: Any) -> Any:
            logits = forward(*args, **kwargs)
            if not trainer.training:
                return logits
            self._was_called = True
            return apply_to_heads(self.layer, logits, *args, *kwargs.values())

        return evolved
