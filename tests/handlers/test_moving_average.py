# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The moving average of the weights: what is validated and saved, and that the training stays the same."""

import pandas as pd
import pytest
import torch
from helpers import FEATURES, corrupt, history, options, prepare, run
from ignite.engine import Events

from monai_iels.runs import RunError

DECAY = "train#average#decay"


def weights(output, file="last.pt"):
    state = torch.load(output / file, weights_only=True)
    return state["network"] if file == "last.pt" else state


class Recorder:
    """Keep the weights after each step."""

    def __init__(self, network):
        self.network = network
        self.seen = []

    def attach(self, engine):
        engine.add_event_handler(Events.ITERATION_COMPLETED, self)

    def __call__(self, engine):
        self.seen.append({name: value.clone() for name, value in self.network.state_dict().items()})


BATCH_NORM = {"norm": "batch", "_target_": "BasicUNet", "spatial_dims": 2, "in_channels": 3, "out_channels": 3}
BATCH_NORM["features"] = FEATURES


def test_the_average_is_validated_and_saved_and_the_training_is_the_same(tmp_path):
    given = {"epochs": 1, "label_error": corrupt(), "network_def": BATCH_NORM}
    run("Training", **options("wbc", tmp_path / "without", **given))
    workflow = prepare("Training", **options("wbc", tmp_path / "with", **given, **{DECAY: 0.7}))
    recorder = Recorder(workflow.parser.get_parsed_content("network_def"))
    recorder.attach(workflow.parser.get_parsed_content("train#trainer"))
    workflow.run()
    torch.testing.assert_close(weights(tmp_path / "with"), weights(tmp_path / "without"), rtol=0, atol=0)
    average = recorder.seen[0]
    for seen in recorder.seen[1:]:
        average = {name: 0.7 * average[name] + 0.3 * value for name, value in seen.items()}
    buffers = {name for name, _ in recorder.network.named_buffers()}
    assert buffers
    average |= {name: recorder.seen[-1][name] for name in buffers}
    found = weights(tmp_path / "with", "model.pt")
    torch.testing.assert_close(found, average)
    raw = weights(tmp_path / "with")
    assert not any(torch.equal(found[name], raw[name]) for name in found.keys() - buffers)
    judged = workflow.parser.get_parsed_content("validate#evaluator").network
    torch.testing.assert_close(dict(judged.state_dict()), found, rtol=0, atol=0)
    assert "average" not in torch.load(tmp_path / "without" / "last.pt", weights_only=True)
    dice = history(tmp_path / "with")[-1]["val_mean_dice"]
    run("Evaluation", **options("wbc", tmp_path / "with", **given, **{DECAY: 0.7}))
    evaluated = pd.read_csv(tmp_path / "with" / "evaluation" / "cases.csv")
    assert evaluated.filter(like="dice").mean(axis=None) == pytest.approx(dice, abs=1e-4)


def test_a_resumed_training_with_an_average_is_the_same(tmp_path):
    given = {"label_error": corrupt(), "train#average#decay": 0.9}
    for name, *parts in (("whole", {"epochs": 3}), ("parts", {"epochs": 1}, {"epochs": 3, "resume": True})):
        for part in parts:
            run("Training", **options("wbc", tmp_path / name, **given, **part))
    for file in ("last.pt", "model.pt"):
        whole, parts = (torch.load(tmp_path / name / file, weights_only=True) for name in ("whole", "parts"))
        torch.testing.assert_close(parts, whole, rtol=0, atol=0)
    whole, parts = ([epoch["val_mean_dice"] for epoch in history(tmp_path / name)] for name in ("whole", "parts"))
    assert parts == whole


@pytest.mark.parametrize("decay", [1, -0.1, "slow"])
def test_a_decay_outside_of_0_to_1_is_refused(decay, tmp_path):
    with pytest.raises(RunError, match=f"{DECAY} must be a number from 0 to below 1"):
        run("Training", **options("wbc", tmp_path, **{DECAY: decay}))
