# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""What a training needs beside MONAI's handlers: repeatable epochs, an end on NaN, averages, checkpoints."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import Any

import ignite.distributed as idist
import numpy as np
import torch
from ignite.engine import Events
from ignite.handlers import Checkpoint
from ignite.utils import manual_seed
from monai.transforms import Randomizable
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from monai_iels._terminal import first_line
from monai_iels.handlers._phases import Phases, attach
from monai_iels.layers import InverseEvolutionLayer
from monai_iels.run_folder import RunFolder

logger = logging.getLogger(__name__)


class SeedEachEpoch:
    """Draw all random numbers of an epoch from the seed and the epoch's number.

    Shuffling, augmentation and the network then do the same in an epoch whether the training ran through or was
    resumed just before it, so a checkpoint needs no random state.

    Args:
        seed: seed of the training.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def attach(self, engine: Any) -> None:
        """Seed at the start of each of the engine's epochs."""
        attach(engine, Phases.SEED, self)

    def __call__(self, engine: Any) -> None:
        """Seed, and begin a new pass over the data."""
        sequence = np.random.SeedSequence([self.seed, engine.state.epoch, idist.get_rank()])
        seed = int(sequence.generate_state(1)[0])
        manual_seed(seed)
        loader = engine.state.dataloader
        transform = getattr(getattr(loader, "dataset", None), "transform", None)
        if isinstance(transform, Randomizable):
            transform.set_random_state(seed)
        engine.set_data(loader)


class TrainingStopped(ValueError):
    """A training that had to end early, and why."""


class StopOnNan:
    """End a training whose loss is NaN or infinite.

    Ignite's ``TerminateOnNan`` ends only its own process, and says nothing about the cause. This handler ends all
    processes together, and :class:`TrainingStopped` names the likely cause.

    Args:
        layer: the layer between the network and the loss.
    """

    def __init__(self, layer: InverseEvolutionLayer) -> None:
        self.layer = layer

    def attach(self, engine: Any) -> None:
        """Look at the loss of each iteration."""
        engine.add_event_handler(Events.ITERATION_COMPLETED, self)

    def __call__(self, engine: Any) -> None:
        """End the training in all processes if the loss is NaN or infinite in one of them.

        Raises:
            TrainingStopped: with the reason.
        """
        bad = (~torch.isfinite(engine.state.output["loss"].detach())).float()
        if idist.all_reduce(bad) > 0:
            gain = max([0.0, *self.layer.gains().values()])
            advice = "Lower learning_rate; if that does not help, look for values in the images that are not finite."
            if gain > 240:
                advice = f"The layer amplifies up to {gain:.3g} times: set iel_gain to 15."
            reason = f"The loss became NaN or infinite in epoch {engine.state.epoch}. {advice}"
            logger.error(f"The training ends early. {reason}")
            raise TrainingStopped(reason)


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
        """Move the average toward the weights after each step of a trainer."""
        if self.model is not None:
            engine.add_event_handler(Events.ITERATION_COMPLETED, partial(self.model.update_parameters, self.trained))


@dataclass(eq=False, repr=False)
class TrainingCheckpoint:
    """Save the best weights and the whole state of the last epoch, and resume from it.

    MONAI's ``CheckpointSaver`` forgets the best score when a training is resumed, and Ignite's ``Checkpoint`` gives
    each epoch another file name. Here the names are those of :class:`~monai_iels.run_folder.RunFolder`, the best score
    is part of the state, and a damaged last state falls back to the one before.

    Args:
        output_dir: folder of the run.
        network: the inner network.
        optimizer: its optimizer.
        lr_scheduler: its schedule.
        evaluator: the engine that validates the network and knows the best score.
        resume: whether to resume from the last state.
        loss: the loss of the training; its state is saved if it has parameters.
        average: the average of the weights; if there is one, the best weights are its own.
    """

    output_dir: str
    network: nn.Module
    optimizer: torch.optim.Optimizer
    lr_scheduler: torch.optim.lr_scheduler.LRScheduler
    evaluator: Any
    resume: bool = False
    loss: nn.Module | None = None
    average: MovingAverage | None = None

    def attach(self, engine: Any) -> None:
        """Resume when the engine starts, and save after each epoch."""
        self.folder = RunFolder(self.output_dir)
        parts = {"network": self.network, "optimizer": self.optimizer, "lr_scheduler": self.lr_scheduler}
        learned = None if self.loss is None or not [*self.loss.parameters()] else self.loss
        average = None if self.average is None else self.average.model
        parts |= {"loss": learned, "average": average, "scaler": getattr(engine, "scaler", None)}
        self.parts: dict[str, Any] = {name: part for name, part in parts.items() if part is not None}
        attach(engine, Phases.RESTORE, self.restore)
        attach(engine, Phases.SAVE, self.save)

    def restore(self, engine: Any) -> None:
        """Load the last state if a training is resumed.

        Raises:
            ValueError: if the state cannot be read, or belongs to a training with other settings.
        """
        if not self.resume:
            return
        state = self.folder.load_state()
        if state is None:
            logger.warning(f"{self.folder.path} has no state to resume from; the training starts at its first epoch.")
            return
        try:
            Checkpoint.load_objects(to_load=self.parts, checkpoint=state)
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{self.folder.last_state} belongs to a training with other settings ({first_line(error)}); "
                "resume with the same settings, or choose another output_dir"
            ) from error
        if state["epoch"] >= engine.state.max_epochs:
            logger.warning(f"The training has finished its {state['epoch']} epochs; raise --epochs to continue it.")
        engine.state.epoch = state["epoch"]
        engine.state.iteration = state["iteration"]
        self.evaluator.state.best_metric = state["best_metric"]
        self.evaluator.state.best_metric_epoch = state["best_metric_epoch"]
        logger.info(f"Resuming after epoch {state['epoch']} of {engine.state.max_epochs}.")

    @idist.one_rank_only()
    def save(self, engine: Any) -> None:
        """Save the state, and the weights if they are the best so far."""
        best = self.evaluator.state
        state = {name: part.state_dict() for name, part in self.parts.items()}
        judged = self.network if self.average is None else self.average.network
        best_weights = judged.state_dict() if best.best_metric_epoch == engine.state.epoch else None
        state |= {"epoch": engine.state.epoch, "iteration": engine.state.iteration}
        state |= {"best_metric": float(best.best_metric), "best_metric_epoch": best.best_metric_epoch}
        self.folder.save_state(state, best_weights)


def batch_size_per_process(batch_size: int) -> int:
    """Return the part of a batch that each process gets.

    Raises:
        ValueError: if the batch cannot be divided evenly.
    """
    processes = idist.get_world_size()
    if batch_size % processes:
        raise ValueError(f"--batch_size must be a multiple of the {processes} processes, got {batch_size}")
    return batch_size // processes


def averaged_over_processes(loss: nn.Module) -> list[nn.Parameter]:
    """Return the parameters of a loss, whose gradients are from now on averaged over all processes.

    A network in several processes has this by ``DistributedDataParallel``, which refuses losses without parameters.
    """
    parameters = list(loss.parameters())
    for parameter in parameters:
        parameter.register_hook(lambda gradient: idist.all_reduce(gradient.clone()) / idist.get_world_size())
    return parameters
