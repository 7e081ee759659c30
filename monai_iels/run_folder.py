# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The folder of a run: which files it holds, and how each is written completely or not at all."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from monai_iels._files import locked, read_json, read_table, save_weights, write_json, write_table
from monai_iels._terminal import first_line
from monai_iels.measures import KEY_METRIC, deciding_metric

logger = logging.getLogger(__name__)


def best_and_last(history: pd.DataFrame) -> tuple[pd.Series, pd.Series] | None:
    """Return the rows of the best and of the last validated epoch; None if no epoch was validated."""
    decides = deciding_metric(history)
    validated = history.dropna(subset=[decides]) if decides in history else history.head(0)
    return None if validated.empty else (validated.loc[validated[decides].idxmax()], validated.iloc[-1])


def scores_of(epoch: pd.Series) -> dict[str, float]:
    """Return the Dice of an epoch, and the deciding metric if it is another one."""
    return {name: float(epoch[name]) for name in (KEY_METRIC, deciding_metric(epoch))}


class RunFolder:
    """Everything that a training writes, and what is made from its weights later.

    Args:
        path: the ``output_dir`` of the run.

    Attributes:
        best_weights: weights of the network alone, of the epoch with the best key metric.
        last_state: what it takes to resume after the last epoch.
        previous_state: the same of the epoch before, in case ``last_state`` is damaged.
        history: one row per epoch.
        cases: one row per epoch and validation case.
        curves: a picture of ``history``.
        pictures: what goes into the layer and what comes out.
        last_picture: the same of training cases, with the last weights.
        panels: arrays of the first validation cases, for pictures that compare runs.
        log: what the run said.
        config: the whole config of the run.
        evaluate_arguments: arguments of ``monai.bundle run`` that evaluate this run.
        inference_arguments: arguments of ``monai.bundle run`` that predict with it.
        tracking: folder of the tracking journal.
        evaluation: folder of an evaluation's report.
        predictions: folder of predictions.
        console: output of the process, where a study has started it.
        study_arguments: arguments of ``monai.bundle run``, where a study has started it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(path))
        self.best_weights = self.path / "model.pt"
        self.last_state = self.path / "last.pt"
        self.previous_state = self.path / "previous.pt"
        self.history = self.path / "history.csv"
        self.cases = self.path / "cases.csv"
        self.curves = self.path / "curves.png"
        self.pictures = self.path / "pictures"
        self.last_picture = self.pictures / "last.png"
        self.panels = self.pictures / "validation.npz"
        self.log = self.path / "training.log"
        self.config = self.path / "config.json"
        self.evaluate_arguments = self.path / "evaluate.json"
        self.inference_arguments = self.path / "inference.json"
        self.tracking = self.path / "tracking"
        self.evaluation = self.path / "evaluation"
        self.predictions = self.path / "predictions"
        self.console = self.path / "console.log"
        self.study_arguments = self.path / "arguments.json"

    def locked(self) -> AbstractContextManager[None]:
        """Keep other trainings out of the folder.

        Raises:
            ValueError: if another training is running in it.
        """
        sentence = f"another training is running in {self.path}; wait for it, or choose another --output_dir"
        return locked(self.path / ".training.lock", sentence)

    @contextmanager
    def logged(self) -> Iterator[None]:
        """Write what the package logs to the run's log file, too."""
        ours = logging.getLogger("monai_iels")
        file = logging.FileHandler(self.log, encoding="utf-8")
        file.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        ours.addHandler(file)
        try:
            yield
        finally:
            ours.removeHandler(file)
            file.close()

    def move_aside(self, resumed: bool) -> None:
        """Move an earlier run to ``earlier/N``; of a run that is resumed, only what was made from its weights."""
        outputs = {file for file in vars(self).values() if file.parent == self.path}
        outputs = {self.evaluation, self.predictions} if resumed else outputs - {self.console, self.study_arguments}
        found = [path for path in outputs if path.exists()]
        if found:
            earlier = next(path for number in count(1) if not (path := self.path / "earlier" / str(number)).exists())
            earlier.mkdir(parents=True)
            for path in found:
                os.replace(path, earlier / path.name)
            logger.info(f"Moved what an earlier run left to {earlier}.")

    @property
    def can_resume(self) -> bool:
        """Whether there is the state of an earlier training."""
        return self.last_state.exists() or self.previous_state.exists()

    def save_state(self, state: Mapping[str, Any], best_weights: Mapping[str, Any] | None) -> None:
        """Save the state after an epoch, and its weights if the epoch is the best so far."""
        if best_weights is not None:
            save_weights(best_weights, self.best_weights)
        if self.last_state.exists():
            os.replace(self.last_state, self.previous_state)
        save_weights(state, self.last_state)

    def load_state(self) -> dict[str, Any] | None:
        """Load the last state, or the one before if the last is damaged; None if there is none.

        Raises:
            ValueError: if there are states, but none can be read.
        """
        for file in filter(Path.exists, (self.last_state, self.previous_state)):
            try:
                return torch.load(file, map_location="cpu", weights_only=True)
            except Exception as error:
                logger.warning(f"{file} is damaged ({first_line(error)}).")
        if self.can_resume:
            raise ValueError(f"{self.last_state}: no state of the training can be read; start again without --resume")
        return None

    def load_best_weights(self) -> dict[str, Any]:
        """Load the weights of the best epoch."""
        return torch.load(self.best_weights, map_location="cpu", weights_only=True)

    def read_history(self) -> pd.DataFrame:
        """Return one row per epoch."""
        return read_table(self.history)

    def read_cases(self) -> pd.DataFrame:
        """Return one row per epoch and validation case."""
        return read_table(self.cases)

    def read_epochs(self, last: int) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return both tables up to an epoch."""
        history, cases = (t[t["epoch"] <= last] if len(t) else t for t in (self.read_history(), self.read_cases()))
        return history, cases

    def write_epoch(self, history: pd.DataFrame, cases: pd.DataFrame) -> None:
        """Replace both tables after an epoch; ``cases`` is empty until the first validation."""
        if not cases.empty:
            write_table(cases, self.cases)
        write_table(history, self.history)

    def best_scores(self) -> dict[str, float]:
        """Return Dice, and the deciding metric if it is another one, of the best epoch; 0 if nothing was measured."""
        found = best_and_last(self.read_history())
        return scores_of(found[0]) if found else {KEY_METRIC: 0.0}

    def read_config(self) -> dict[str, Any]:
        """Return the config that the run began with."""
        return read_json(self.config)

    def write_configs(self, config: Any, evaluate: Any, inference: Any) -> None:
        """Write the run's config, and the arguments to evaluate it and to predict with it."""
        write_json(evaluate, self.evaluate_arguments)
        write_json(inference, self.inference_arguments)
        write_json(config, self.config)
