# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Repeatable epochs, an end on NaN, checkpoints."""

import logging
from types import SimpleNamespace

import pytest
import torch
from ignite.engine import Events
from programs import run_ranks

from monai_iels import HeatDiffusion, InverseEvolutionLayer
from monai_iels.handlers import SeedEachEpoch, StopOnNan, TrainingCheckpoint, TrainingStopped
from monai_iels.run_folder import RunFolder


def test_the_seed_of_an_epoch_counts_after_what_other_handlers_draw(engine_with):
    """The same numbers come out whether or not another handler draws some at the start of the epoch."""
    drawn = []
    for extra in (False, True):
        engine = engine_with(float)
        SeedEachEpoch(3).attach(engine)
        if extra:
            engine.add_event_handler(Events.EPOCH_STARTED, lambda: torch.rand(7))
        engine.add_event_handler(Events.ITERATION_STARTED, lambda: drawn.append(torch.rand(2).tolist()))
        engine.run([0], max_epochs=2)
    assert drawn[:2] == drawn[2:]
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_loss_that_is_not_finite_ends_a_training(bad, caplog, engine_with):
    engine = engine_with(lambda iteration: bad if iteration == 3 else 1.0)
    StopOnNan(InverseEvolutionLayer(HeatDiffusion(), gain=15)).attach(engine)
    with pytest.raises(TrainingStopped, match=r"^The loss became NaN or infinite in epoch 2\. Lower learning_rate"):
        engine.run([0, 1], max_epochs=5)
    assert engine.state.iteration == 3
    assert "The training ends early. The loss became NaN" in caplog.text


@pytest.mark.filterwarnings("ignore:.*amplifies")
def test_a_strong_layer_is_named_as_the_cause_of_nan(engine_with):
    layers = [InverseEvolutionLayer(HeatDiffusion(spacing), 0.1, steps) for spacing, steps in ((2.0, 1), (0.05, 40))]
    for layer, cause in zip(layers, ("Lower learning_rate", "set iel_gain to 15"), strict=True):
        engine = engine_with(lambda iteration: float("nan"))
        StopOnNan(layer).attach(engine)
        with pytest.raises(TrainingStopped, match=cause):
            engine.run([0], max_epochs=1)


RANKS = """
import sys
import torch
from ignite.engine import Engine
from monai_iels import HeatDiffusion, InverseEvolutionLayer
from monai_iels.handlers import StopOnNan, TrainingStopped
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
engine = Engine(lambda engine, batch: {"loss": torch.tensor(float("nan") if rank == 1 and batch == 3 else 1.0)})
StopOnNan(InverseEvolutionLayer(HeatDiffusion(), gain=15)).attach(engine)
try:
    engine.run(range(9), max_epochs=1)
except TrainingStopped as error:
    print(f"rank {rank} stopped in iteration {engine.state.iteration}: {error}\\n", end="", flush=True)
torch.distributed.destroy_process_group()
"""


def test_all_processes_stop_when_the_loss_of_one_is_nan(tmp_path):
    (tmp_path / "ranks.py").write_text(RANKS)
    run_ranks(tmp_path / "ranks.py", count=2, stdout=tmp_path / "log")
    for rank in range(2):
        assert f"rank {rank} stopped in iteration 4: The loss became NaN" in (tmp_path / "log").read_text()


def checkpoint(engine_with, folder, resume=False):
    """Return an engine with a checkpoint, and the parts that it saves."""
    network = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    evaluator = SimpleNamespace(state=SimpleNamespace(best_metric=-1.0, best_metric_epoch=-1))
    engine = engine_with(float)
    TrainingCheckpoint(str(folder), network, optimizer, schedule, evaluator, resume).attach(engine)
    return engine, network, evaluator.state


def test_the_best_weights_stay_when_a_resumed_training_is_worse(tmp_path, engine_with):
    scores = {1: 0.5, 2: 0.8, 3: 0.7, 4: 0.6}
    for resume, epochs in ((False, 2), (True, 4)):
        engine, network, best = checkpoint(engine_with, tmp_path, resume)

        def score(engine, network=network, best=best):
            network.weight.data.fill_(engine.state.epoch)
            if scores[engine.state.epoch] > best.best_metric:
                best.best_metric, best.best_metric_epoch = scores[engine.state.epoch], engine.state.epoch

        engine.add_event_handler(Events.EPOCH_COMPLETED, score)
        engine.run([0], max_epochs=epochs)
    folder = RunFolder(tmp_path)
    assert set(folder.load_best_weights()) == {"weight", "bias"}  # of the inner network, nothing around them
    assert folder.load_best_weights()["weight"].tolist() == [[2.0, 2.0]]
    assert torch.load(folder.last_state)["epoch"] == 4
    assert torch.load(folder.previous_state)["epoch"] == 3
    assert torch.load(folder.last_state)["best_metric"] == 0.8


def test_a_damaged_state_falls_back_to_the_one_before(tmp_path, caplog, engine_with):
    checkpoint(engine_with, tmp_path)[0].run([0], max_epochs=3)
    folder = RunFolder(tmp_path)
    folder.last_state.write_bytes(folder.last_state.read_bytes()[:100])
    engine, _, _ = checkpoint(engine_with, tmp_path, resume=True)
    seen = []
    engine.add_event_handler(Events.EPOCH_STARTED, lambda: seen.append(engine.state.epoch))
    with caplog.at_level(logging.INFO):
        engine.run([0], max_epochs=4)
    assert seen == [3, 4]
    assert f"{folder.last_state} is damaged" in caplog.text
    for file in (folder.last_state, folder.previous_state):
        file.write_bytes(b"")
    with pytest.raises(ValueError, match="no state of the training can be read; start again without --resume"):
        checkpoint(engine_with, tmp_path, resume=True)[0].run([0], max_epochs=4)


def test_the_state_of_another_training_is_refused(tmp_path, engine_with):
    checkpoint(engine_with, tmp_path)[0].run([0], max_epochs=1)
    state = torch.load(RunFolder(tmp_path).last_state)
    for name in ("network", "optimizer", "lr_scheduler"):
        torch.save({key: value for key, value in state.items() if key != name}, RunFolder(tmp_path).last_state)
        with pytest.raises(ValueError, match=r"last\.pt belongs to a training with other settings"):
            checkpoint(engine_with, tmp_path, resume=True)[0].run([0], max_epochs=2)
