# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Tables of trainings and evaluations, and the line of each epoch."""

import logging

import numpy as np
import pandas as pd
import pytest
import torch
from ignite.engine import Engine
from monai.data import MetaTensor

from monai_iels.handlers import EvaluationReport, TrainingReport
from monai_iels.run_folder import RunFolder


def test_an_evaluation_writes_tables_in_which_nan_counts_nowhere(tmp_path):
    """Two cases of two classes: a missed class is as far away as the image is large, and NaN counts nowhere."""
    report = EvaluationReport(str(tmp_path), ["background", "disc", "cup"], regions=[[1, 2]])
    image = MetaTensor(torch.rand(1, 6, 8))
    label = torch.nn.functional.one_hot(torch.arange(48).reshape(6, 8) % 3).permute(2, 0, 1)
    engine = Engine(lambda engine, batch: [{"image": image, "label": label, "pred": label} for _ in batch])
    report.attach(engine)
    batches = []
    for name in ("a.png", "=b.png"):
        case = MetaTensor(torch.rand(1, 6, 8), meta={"filename_or_obj": f"folder/{name}"})
        batches.append([{"image": case}])
    nan, inf = float("nan"), float("inf")
    engine.state.metric_details = {
        "val_mean_dice": torch.tensor([[0.5, 1.0], [0.25, nan]]),
        "val_convexity": torch.tensor([[0.9], [nan]]),
        "val_hausdorff_95": torch.tensor([[inf, 2.0], [4.0, nan]]),
    }
    engine.run(batches, max_epochs=1)
    cases = pd.read_csv(tmp_path / "cases.csv")
    assert list(cases["case"]) == ["a.png", "'=b.png"]
    assert (tmp_path / "classes.csv").read_text().split() == ["class,iou_of_all_cases", "disc,1.0", "cup,1.0"]
    expected = {
        "mean_dice": [0.75, 0.25],
        "mean_dice_disc": [0.5, 0.25],
        "mean_dice_cup": [1.0, nan],
        "convexity": [0.9, nan],
        "hausdorff_95_pixels": [6.0, 7.0],
        "hausdorff_95_pixels_disc": [10.0, 4.0],
        "hausdorff_95_pixels_cup": [2.0, 10.0],
    }
    assert list(cases.columns) == ["case", *expected]
    for name, values in expected.items():
        np.testing.assert_allclose(cases[name], values, rtol=1e-6)
    summary = pd.read_csv(tmp_path / "summary.csv", index_col="metric")
    np.testing.assert_allclose(summary.loc["mean_dice"], [0.5, 0.25, 0.5, 0.275, 2], rtol=1e-6)
    np.testing.assert_allclose(summary.loc["convexity"], [0.9, 0, 0.9, 0.9, 1], rtol=1e-6)
    np.testing.assert_allclose(summary.loc["hausdorff_95_pixels"], [6.5, 0.5, 6.5, 6.95, 2], rtol=1e-6)
    assert (tmp_path / "contact_sheet.png").stat().st_size > 1000


def validated(epoch, **details):
    """Return an evaluator that has validated these cases in an epoch."""
    evaluator = Engine(lambda engine, batch: None)
    evaluator.state.epoch = evaluator.state.best_metric_epoch = epoch
    evaluator.state.metric_details = {name: torch.tensor(values) for name, values in details.items()}
    evaluator.state.metrics = {name: values.nanmean() for name, values in evaluator.state.metric_details.items()}
    return evaluator


def test_a_training_writes_tables_and_one_line_per_epoch(tmp_path, caplog, engine_with):
    """Epoch 1 is not validated; in epoch 2 one class of a case is missing, which does not count."""
    nan = float("nan")
    evaluator = validated(2, val_mean_dice=[[0.5, 1.0], [0.25, nan]], val_roughness=[[0.1], [0.3]])
    report = TrainingReport(str(tmp_path), evaluator)
    engine = engine_with(float)
    engine.optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    report.attach(engine)
    evaluator.state.names = [["a.png"], ["b.png"]]  # of two batches
    with caplog.at_level(logging.INFO):
        engine.run([0, 1], max_epochs=2)
    folder = RunFolder(tmp_path)
    history = folder.read_history()
    assert list(history.columns) == ["epoch", "loss", "learning_rate", "seconds", "val_mean_dice", "val_roughness"]
    np.testing.assert_allclose(history["loss"], [1.5, 3.5])
    np.testing.assert_allclose(history["val_mean_dice"], [nan, 1.75 / 3])
    assert report.metrics["val_roughness"] == pytest.approx(0.2)
    cases = folder.read_cases()
    assert cases[["epoch", "case"]].values.tolist() == [[2.0, "a.png"], [2.0, "b.png"]]
    np.testing.assert_allclose(cases["val_mean_dice"], [0.75, 0.25])
    np.testing.assert_allclose(cases["val_roughness"], [0.1, 0.3], rtol=1e-6)
    lines = [record.message for record in caplog.records if record.name.startswith("monai_iels")]
    assert lines[0].startswith("epoch 1/2  loss 1.5000  ")
    assert lines[0].endswith(" left")
    assert lines[1] == "epoch 2/2  loss 3.5000  Dice 0.583  roughness 0.200  best so far"
    assert f"Best weights (epoch 2): {folder.best_weights}" in lines[2]
    assert folder.curves.exists()
