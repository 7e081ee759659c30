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

"""What a training needs beside MONAI's handlers: repeatable epochs, checkpoints that survive a kill, a word on NaN."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ignite.engine import Events
from monai.transforms import Randomizable
from torch import nn

from monai_iels.errors import first_line
from monai_iels.layers import InverseEvolutionLayer

__all__ = [
    "SeedEachEpoch",
    "StopOnNan",
    "TrainingCheckpoint",
    "complete_file",
    "is_first_rank",
    "mean_loss",
    "save_complete",
]

logger = logging.getLogger(__name__)

_STATES = ("last.pt", "previous.pt")


def is_first_rank() -> bool:
    """Return whether this process is the one that writes."""
    distributed = torch.distributed
    return not (distributed.is_available() and distributed.is_initialized()) or distributed.get_rank() == 0


def mean_loss(losses: Sequence[torch.Tensor]) -> float:
    """Return the mean of an epoch's losses over all processes, each of which has to ask."""
    mean = torch.stack(list(losses)).mean()
    if torch.distributed.is_initialized():
        torch.distributed.all_reduce(mean)
        mean /= torch.distributed.get_world_size()
    return float(mean)


class SeedEachEpoch:
    """Draw all random numbers of an epoch from the seed and the epoch's number.

    Shuffling, augmentation and the network then do the same in an epoch whether the training ran through or was
    resumed just before it, and no random state has to be kept in a checkpoint. Comes first among the handlers.

    Args:
        seed: seed of the training.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def attach(self, engine: Any) -> None:
        """Act at the start of each of the engine's epochs."""
        engine.add_event_handler(Events.EPOCH_STARTED, self)

    def __call__(self, engine: Any) -> None:
        """Seed, and begin a new pass over the data from there."""
        rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        seed = int(np.random.SeedSequence([self.seed, engine.state.epoch, rank]).generate_state(1)[0])
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        loader = engine.state.dataloader
        transform = getattr(getattr(loader, "dataset", None), "transform", None)
        if isinstance(transform, Randomizable):
            transform.set_random_state(seed)
        engine.set_data(loader)


class StopOnNan:
    """End a training whose loss is not a number any more, and name the likely cause.

    Args:
        network: the network in training, whose layer is asked for its gain.
    """

    def __init__(self, network: nn.Module) -> None:
        self.network = network

    def attach(self, engine: Any) -> None:
        """Look at the loss of each iteration."""
        engine.add_event_handler(Events.ITERATION_COMPLETED, self)

    def __call__(self, engine: Any) -> None:
        """End the training, in all processes, if the loss is NaN or infinite in one."""
        bad = (~torch.isfinite(engine.state.output["loss"].detach())).float()
        if torch.distributed.is_initialized():
            torch.distributed.all_reduce(bad)
        if bad > 0:
            engine.state.stopped = f"The loss became NaN or infinite in epoch {engine.state.epoch}. {self._cause()}"
            engine.terminate()

    def _cause(self) -> str:
        layers = [m for m in self.network.modules() if isinstance(m, InverseEvolutionLayer)]
        gain = max((g for layer in layers for g in layer.gains().values()), default=0.0)
        if gain > 240:
            return f"The layer amplifies up to {gain:.3g} times: raise iel_spacing, or lower iel_dt or iel_steps."
        return "Lower learning_rate; if that does not help, look at the images for values that are not finite."


@contextmanager
def complete_file(file: Path) -> Iterator[Path]:
    """Give a temporary name to write to, and move it to ``file`` when all went well."""
    part = file.with_name(f".{file.name}.part")
    try:
        yield part
        os.replace(part, file)
    except BaseException as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(
                error.errno, os.strerror(error.errno), str(file)
            ) from error  # a stream does not know its name
        raise


def save_complete(value: Any, file: Path) -> None:
    """Save under a temporary name, and move there only what is complete on disk."""
    with complete_file(file) as part, part.open("wb") as stream:
        torch.save(value, stream)
        stream.flush()
        os.fsync(stream.fileno())


class TrainingCheckpoint:
    """Keep the best weights and the whole state of the last epoch, and go on from there.

    ``model.pt`` has the weights of the network alone, of the epoch with the best key metric; ``last.pt`` has what it
    takes to resume, and ``previous.pt`` the same of the epoch before, in case ``last.pt`` is damaged.

    Args:
        output_dir: folder for the files.
        network: the inner network.
        optimizer: its optimizer.
        lr_scheduler: its schedule.
        evaluator: the engine that judges the network, which knows the best metric.
        resume: whether to go on from ``last.pt``.
    """

    def __init__(
        self,
        output_dir: str,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        lr_scheduler: torch.optim.lr_scheduler.LRScheduler,
        evaluator: Any,
        resume: bool = False,
    ) -> None:
        self.folder = Path(output_dir)
        self.parts: dict[str, Any] = {"network": network, "optimizer": optimizer, "lr_scheduler": lr_scheduler}
        self.evaluator = evaluator
        self.resume = resume

    def attach(self, engine: Any) -> None:
        """Begin or resume when the engine starts, and save after each epoch."""
        if getattr(engine, "scaler", None) is not None:
            self.parts["scaler"] = engine.scaler
        engine.add_event_handler(Events.STARTED, self.start)
        engine.add_event_handler(Events.EPOCH_COMPLETED, self.save)

    def start(self, engine: Any) -> None:
        """Load the last state where a training is resumed."""
        if not self.resume:
            return
        state = self._read()
        if state is None and any((self.folder / name).exists() for name in _STATES):
            raise ValueError(f"{self.folder / 'last.pt'}: no state of the training can be read; begin without --resume")
        if state is None:
            logger.warning(f"{self.folder} has no checkpoint to resume from: the training begins at its first epoch.")
            return
        for name, part in self.parts.items():
            try:
                part.load_state_dict(state[name])
            except (RuntimeError, ValueError, KeyError, TypeError) as error:
                raise ValueError(
                    f"{self.folder / 'last.pt'}: expected the {name} of this training, found another. "
                    "Resume with the same settings, or choose another output_dir."
                ) from error
        if state["epoch"] >= engine.state.max_epochs:
            logger.warning(f"The training has finished its {state['epoch']} epochs; raise --epochs to go on.")
        engine.state.epoch = state["epoch"]
        engine.state.iteration = state["iteration"]
        self.evaluator.state.best_metric = state["best_metric"]
        self.evaluator.state.best_metric_epoch = state["best_metric_epoch"]
        logger.info(f"Resuming after epoch {state['epoch']} of {engine.state.max_epochs}.")

    def save(self, engine: Any) -> None:
        """Save the state, and the weights if they are the best so far."""
        if not is_first_rank():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        best = self.evaluator.state
        if best.best_metric_epoch == engine.state.epoch:
            save_complete(self.parts["network"].state_dict(), self.folder / "model.pt")
        if (self.folder / "last.pt").exists():
            os.replace(self.folder / "last.pt", self.folder / "previous.pt")
        state = {name: part.state_dict() for name, part in self.parts.items()}
        state.update(
            epoch=engine.state.epoch,
            iteration=engine.state.iteration,
            best_metric=float(best.best_metric),
            best_metric_epoch=best.best_metric_epoch,
        )
        save_complete(state, self.folder / "last.pt")

    def _read(self) -> dict[str, Any] | None:
        for name in _STATES:
            file = self.folder / name
            if file.exists():
                try:
                    return torch.load(file, map_location="cpu", weights_only=True)
                except Exception as error:
                    reason = first_line(error)
                    logger.warning(f"{file}: expected a complete checkpoint, found a damaged one ('{reason}').")
        return None
