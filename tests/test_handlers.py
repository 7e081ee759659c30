# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The handlers of a training: their order does not matter, several processes stop together, and reports say it all."""

import json
import logging
import random
import shutil
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from helpers import BUNDLES, configs, options, run
from ignite.engine import Engine, Events
from monai.bundle import ConfigParser
from monai.data import MetaTensor
from PIL import Image, ImageColor
from programs import run_ranks

from monai_iels import ConvexCurveMotion, HeatDiffusion, InverseEvolutionLayer
from monai_iels.handlers import (
    EvaluationReport,
    LayerPictures,
    SeedEachEpoch,
    StopOnNan,
    TrainingCheckpoint,
    TrainingReport,
    TrainingStopped,
)
from monai_iels.handlers._layer_pictures import in_words
from monai_iels.handlers._phases import Phases, attach
from monai_iels.pictures import Sheet, color_of, outline, tiles
from monai_iels.run_folder import RunFolder
from monai_iels.tracking import Journal

OF_THE_FOLDER = ("mlflow.source.name", "mlflow.note.content")  # tags that name it
SETTINGS = {"iel_warmup": 2, "lr_step": 1, "noise_fraction": 0.2, "epochs": 3, "sample_count": 6}
SETTINGS |= {"track": True, "pictures": True}


def shuffled(folder, order):
    """Return a copy of the WBC bundle with the handlers of the training in another order."""
    shutil.copytree(BUNDLES / "wbc", folder, dirs_exist_ok=True)
    file = folder / "configs" / "train.json"
    config = json.loads(file.read_text())
    config["train"]["handlers"] = [config["train"]["handlers"][index] for index in order]
    assert config["train"]["trainer"]["train_handlers"] == "$[@train::report, @moving_average, *@train::handlers]"
    config["train"]["trainer"]["train_handlers"] = "$[*@train#handlers, @moving_average, @train#report]"
    file.write_text(json.dumps(config))
    return str(folder)


def outputs(folder):
    """Return everything that a training wrote, without times and random names."""
    run_folder = RunFolder(folder)
    with np.load(run_folder.panels) as arrays:
        panels = {name: arrays[name].tolist() for name in arrays.files}
    entries = []
    for entry in Journal(run_folder.tracking).entries():
        content = json.loads(entry.to_line())
        for name in ("time", "key", "tracking_uri", "weights"):
            content.pop(name, None)
        if entry.kind == "open":
            content.pop("name")
        for name in ("seconds", "output_dir", "bundle_root", "cache_dir", "tracking_uri", *OF_THE_FOLDER):
            content.get("values", {}).pop(name, None)
        entries.append(content)
    return {
        "history": run_folder.read_history().drop(columns="seconds").to_dict("records"),
        "cases": run_folder.cases.read_bytes(),
        "best weights": torch.load(run_folder.best_weights),
        "state": torch.load(run_folder.last_state),
        "pictures": {path.name: path.read_bytes() for path in run_folder.pictures.glob("*.png")},
        "panels": panels,
        "journal": entries,
    }


def assert_same(one, two):
    for name in ("best weights", "state"):
        torch.testing.assert_close(one.pop(name), two.pop(name), rtol=0, atol=0)
    for name in ("history", "cases", "pictures", "panels", "journal"):
        assert one[name] == two[name], name


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """Train with the handlers as they stand in the config."""
    folder = tmp_path_factory.mktemp("straight")
    run("Training", **options("wbc", folder, **SETTINGS))
    return folder


def test_overlays_outline_each_class_in_its_color():
    classes = torch.zeros(1, 12, 12)
    classes[:, 2:10, :9] = 1  # reaches the border of the image, which is no outline
    classes[:, 4:7, 4:7] = 2
    drawn = (255 * outline(torch.full((1, 12, 12), 0.2), classes)).round().int()
    for place, number in (((2, 2), 1), ((9, 8), 1), ((4, 4), 2), ((6, 5), 2)):
        assert tuple(drawn[(slice(None), *place)].tolist()) == ImageColor.getrgb(color_of(number))
    for place in ((5, 5), (8, 0), (0, 0), (11, 11)):
        assert drawn[(slice(None), *place)].tolist() == [51, 51, 51]
    assert len({color_of(number) for number in range(1, 6)}) == 5
    assert color_of(6) == color_of(1)


def handler_count():
    return len(json.loads((BUNDLES / "wbc" / "configs" / "train.json").read_text())["train"]["handlers"])


def orders():
    backward = list(range(handler_count()))[::-1]
    return [backward, random.Random(0).sample(backward, len(backward))]


@pytest.mark.parametrize("order", orders(), ids=str)
def test_the_order_of_the_handlers_does_not_matter(order, straight, tmp_path):
    bundle = shuffled(tmp_path / "bundle", order)
    run("Training", **{**options("wbc", tmp_path / "out", **SETTINGS), "bundle_root": bundle})
    found = outputs(tmp_path / "out")
    assert set(found["pictures"]) == {"start.png", "last.png", "best.png"}
    assert [entry["kind"] for entry in found["journal"]].count("metrics") == 4  # three epochs, then best and last
    assert {"start.png", "history.csv", "curves.png"} <= {entry.get("name") for entry in found["journal"]}
    assert_same(found, outputs(straight))


def test_a_sheet_has_the_numbers_of_the_tables(straight):
    """The validation cases of the last epoch: the Dice and roughness on the sheet are those of ``cases.csv``."""
    sheet, cases = Sheet.load(RunFolder(straight).panels), RunFolder(straight).read_cases()
    last = cases[cases["epoch"] == cases["epoch"].max()].head(len(sheet.rows))
    assert list(sheet.classes) == ["background", "cytoplasm", "nucleus"]
    for row, case in zip(sheet.rows, last.itertuples(), strict=True):
        assert {"image", "truth", "noisy label", "prediction"} <= set(row)
        assert row["prediction"].note == f"Dice {case.val_mean_dice:.3f}, roughness {case.val_roughness:.3f}"
        assert row["truth"].note == f"roughness {case.val_roughness_of_truth:.3f}"
        assert row["truth"].pixels.shape == row["image"].pixels.shape[:2] == (32, 32)


def test_a_sheet_of_volumes_shows_the_top_above_and_has_no_gaps(tmp_path):
    truth = np.zeros((6, 40, 20), dtype=np.uint8)  # right, anterior, superior
    truth[3, :, 15:] = 1
    row = tiles(truth[None].astype(np.float32), {"truth": truth})
    assert row["truth"].pixels[:5].all()
    assert not row["truth"].pixels[5:].any()
    Sheet([row] * 4, ["background", "organ"]).draw("volumes", tmp_path / "sheet.png")
    pixels = np.asarray(Image.open(tmp_path / "sheet.png").convert("L"))
    assert (pixels.min(axis=1) == 255).mean() < 0.2  # rows of the picture that are white


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (InverseEvolutionLayer(HeatDiffusion(2.0), 0.1, 0), "no layer"),
        (InverseEvolutionLayer(HeatDiffusion(2.0), 0.1, 20), "layer of heat diffusion, gain 38"),
        (InverseEvolutionLayer(HeatDiffusion(2.0), 0.1, 30), "layer of heat diffusion, gain 237"),
        (InverseEvolutionLayer(HeatDiffusion(2.0), 0.1, 10), "layer of heat diffusion, gain 6.2"),
        (InverseEvolutionLayer(ConvexCurveMotion(), 0.1, 20), "layer of convex curve motion, reach 2"),
    ],
)
def test_a_layer_is_described_in_words(layer, words):
    assert in_words(layer, 2) == words


def test_a_resumed_training_does_the_same_in_any_order(straight, tmp_path):
    bundle = shuffled(tmp_path / "bundle", orders()[0])
    for epochs in (2, 3):
        settings = {**SETTINGS, "epochs": epochs, "resume": epochs == 3, "track": False}
        run("Training", **{**options("wbc", tmp_path / "out", **settings), "bundle_root": bundle})
    one, two = RunFolder(straight), RunFolder(tmp_path / "out")
    torch.testing.assert_close(torch.load(one.last_state), torch.load(two.last_state), rtol=0, atol=0)
    assert one.cases.read_bytes() == two.cases.read_bytes()
    assert one.start_picture.read_bytes() == two.start_picture.read_bytes()
    pd.testing.assert_frame_equal(
        one.read_history().drop(columns="seconds"), two.read_history().drop(columns="seconds"), check_exact=True
    )


def pictures_without_an_inferer(pictures):
    pictures.folder, pictures.inferer = RunFolder(pictures.output_dir), []


def test_a_training_whose_pictures_fail_says_so_and_ends_as_usual(tmp_path, monkeypatch):
    monkeypatch.setattr(LayerPictures, "__post_init__", pictures_without_an_inferer)
    run("Training", **options("wbc", tmp_path, pictures=True, track=True, epochs=1, sample_count=6))
    folder = RunFolder(tmp_path)
    lines = folder.log.read_text().splitlines()
    for file in (folder.start_picture, folder.last_picture, folder.panels, folder.best_picture):
        (line,) = [line for line in lines if f"{file} could not be drawn: " in line]
        assert line.endswith("'list' object is not callable. Everything else goes on.")
        assert not file.exists()
    assert [line for line in lines if line.startswith("Best weights (epoch 1): ")]
    assert [line for line in lines if line == f"Pictures: {folder.curves}"]
    assert Journal(folder.tracking).status() == "FINISHED"


def engine_with(loss):
    """Return an engine whose iterations have these losses."""

    def step(engine, batch):
        return {"loss": torch.tensor(loss(engine.state.iteration))}

    return Engine(step)


def test_phases_fire_in_order_and_behind_all_other_handlers():
    engine, seen = engine_with(float), []
    for phase in reversed(list(Phases)):
        attach(engine, phase, lambda engine, phase=phase: seen.append(phase.name))
    for event in (Events.EPOCH_STARTED, Events.EPOCH_COMPLETED, Events.COMPLETED):
        engine.add_event_handler(event, lambda engine, event=event: seen.append(event.name))
    epoch = ["EPOCH_STARTED", "SEED", "EPOCH_COMPLETED", "REPORT", "RECORD", "SAVE"]
    expected = ["RESTORE", "BEGIN", "OPEN", *epoch, *epoch, "COMPLETED", "DRAW", "SUMMARIZE", "FAIL", "CLOSE"]
    engine.run([0], max_epochs=2)
    assert seen == expected
    engine.run([0], max_epochs=2)
    assert seen == 2 * expected  # nothing fires twice in a second run


def test_the_seed_of_an_epoch_counts_after_what_other_handlers_draw():
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
def test_a_loss_that_is_not_finite_ends_a_training(bad, caplog):
    engine = engine_with(lambda iteration: bad if iteration == 3 else 1.0)
    StopOnNan(InverseEvolutionLayer(HeatDiffusion(), gain=15)).attach(engine)
    with pytest.raises(TrainingStopped, match=r"^The loss became NaN or infinite in epoch 2\. Lower learning_rate"):
        engine.run([0, 1], max_epochs=5)
    assert engine.state.iteration == 3
    assert "The training ends early. The loss became NaN" in caplog.text


@pytest.mark.filterwarnings("ignore:.*amplifies")
def test_a_strong_layer_is_named_as_the_cause_of_nan():
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


def checkpoint(folder, resume=False):
    """Return an engine with a checkpoint, and the parts that it saves."""
    network = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    evaluator = SimpleNamespace(state=SimpleNamespace(best_metric=-1.0, best_metric_epoch=-1))
    engine = engine_with(float)
    TrainingCheckpoint(str(folder), network, optimizer, schedule, evaluator, resume).attach(engine)
    return engine, network, evaluator.state


def test_the_best_weights_stay_when_a_resumed_training_is_worse(tmp_path):
    scores = {1: 0.5, 2: 0.8, 3: 0.7, 4: 0.6}
    for resume, epochs in ((False, 2), (True, 4)):
        engine, network, best = checkpoint(tmp_path, resume)

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


def test_a_damaged_state_falls_back_to_the_one_before(tmp_path, caplog):
    checkpoint(tmp_path)[0].run([0], max_epochs=3)
    folder = RunFolder(tmp_path)
    folder.last_state.write_bytes(folder.last_state.read_bytes()[:100])
    engine, _, _ = checkpoint(tmp_path, resume=True)
    seen = []
    engine.add_event_handler(Events.EPOCH_STARTED, lambda: seen.append(engine.state.epoch))
    with caplog.at_level(logging.INFO):
        engine.run([0], max_epochs=4)
    assert seen == [3, 4]
    assert f"{folder.last_state} is damaged" in caplog.text
    for file in (folder.last_state, folder.previous_state):
        file.write_bytes(b"")
    with pytest.raises(ValueError, match="no state of the training can be read; start again without --resume"):
        checkpoint(tmp_path, resume=True)[0].run([0], max_epochs=4)


def test_the_state_of_another_training_is_refused(tmp_path):
    checkpoint(tmp_path)[0].run([0], max_epochs=1)
    state = torch.load(RunFolder(tmp_path).last_state)
    for name in ("network", "optimizer", "lr_scheduler"):
        torch.save({key: value for key, value in state.items() if key != name}, RunFolder(tmp_path).last_state)
        with pytest.raises(ValueError, match=r"last\.pt belongs to a training with other settings"):
            checkpoint(tmp_path, resume=True)[0].run([0], max_epochs=2)


def test_the_tables_of_an_evaluation(tmp_path):
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


@pytest.mark.parametrize(("name", "decides"), [("wbc", "val_mean_dice"), ("cityscapes", "val_set_iou")])
def test_the_metric_that_a_data_set_is_judged_by_decides(name, decides, tmp_path):
    """In the config, and where the best epoch is looked up again."""
    config = ConfigParser(ConfigParser.load_config_file(configs(name, "train")[0]))
    assert next(iter(config.get_parsed_content("validate#key_metric"))) == decides
    history = pd.DataFrame({"epoch": [1, 2, 3], "val_mean_dice": [0.5, 0.7, np.nan], "val_set_iou": [0.4, 0.3, np.nan]})
    folder = RunFolder(tmp_path)
    folder.write_epoch(history if name == "cityscapes" else history.drop(columns="val_set_iou"), pd.DataFrame())
    expected = {"val_mean_dice": 0.5, "val_set_iou": 0.4} if name == "cityscapes" else {"val_mean_dice": 0.7}
    assert folder.best_scores() == expected


def test_the_tables_of_a_training(tmp_path, caplog):
    """Epoch 1 is not validated; in epoch 2 one class of a case is missing, which does not count."""
    nan = float("nan")
    evaluator = validated(2, val_mean_dice=[[0.5, 1.0], [0.25, nan]], val_roughness=[[0.1], [0.3]])
    report = TrainingReport(str(tmp_path), evaluator)
    engine = engine_with(float)
    engine.optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    report.attach(engine)
    engine.add_event_handler(Events.EPOCH_COMPLETED(once=2), lambda: report.names.extend(["a.png", "b.png"]))
    seen = []
    attach(engine, Phases.RECORD, lambda engine: seen.append(dict(report.metrics)))
    with caplog.at_level(logging.INFO):
        engine.run([0, 1], max_epochs=2)
    folder = RunFolder(tmp_path)
    history = folder.read_history()
    assert list(history.columns) == ["epoch", "loss", "learning_rate", "seconds", "val_mean_dice", "val_roughness"]
    np.testing.assert_allclose(history["loss"], [1.5, 3.5])
    np.testing.assert_allclose(history["val_mean_dice"], [nan, 1.75 / 3])
    assert set(seen[0]) == {"loss", "learning_rate", "seconds"}
    assert seen[1]["val_roughness"] == pytest.approx(0.2)
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


def test_a_run_folder_reads_back_the_epochs_that_are_continued(tmp_path):
    folder = RunFolder(tmp_path)
    assert [len(table) for table in folder.read_epochs(2)] == [0, 0]
    history = pd.DataFrame({"epoch": [1.0, 2.0, 3.0], "loss": [0.1, 0.2, 1 / 3]})
    folder.write_epoch(history, pd.DataFrame())
    assert not folder.cases.exists()
    assert [len(table) for table in folder.read_epochs(2)] == [2, 0]
    folder.write_epoch(history, pd.DataFrame({"epoch": [2.0, 3.0], "case": ["1", "-2"]}))
    kept, cases = folder.read_epochs(3)
    pd.testing.assert_frame_equal(kept, history, check_exact=True)
    assert cases["case"].tolist() == ["1", "'-2"]
    assert folder.read_epochs(2)[1]["case"].tolist() == ["1"]
    assert [len(table) for table in folder.read_epochs(0)] == [0, 0]
