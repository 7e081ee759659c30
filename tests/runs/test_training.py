# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Trainings: what they write, what overrides do, and what is refused."""

import json
import os
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import (
    BUNDLES,
    NAMES,
    corrupt,
    history,
    options,
    prepare,
    run,
    words,
)
from ignite.engine import Events
from PIL import Image
from programs import Program

import monai_iels
import monai_iels.runs

METRICS = {"val_mean_dice", "val_mean_iou", "val_roughness", "val_convexity"}


@pytest.mark.parametrize("name", NAMES)
def test_training_reports_what_it_promises(name, trained):
    rows = history(trained / name)
    assert [row["epoch"] for row in rows] == [1, 2]
    for row in rows:
        assert set(row) >= METRICS | {"loss", "learning_rate", "seconds", "val_roughness_of_truth"}
        assert all(np.isfinite(value) for value in row.values())
        assert 0 <= row["val_mean_dice"] <= 1
        assert 0 < row["val_roughness_of_truth"] < 0.5
        assert 0 < row["val_convexity_of_truth"] <= 1
    assert rows[1]["loss"] < rows[0]["loss"]
    with Image.open(trained / name / "curves.png") as picture:
        assert picture.width > 500
    weights = torch.load(trained / name / "model.pt", weights_only=True)
    assert not [key for key in weights if key.startswith(("network.", "layer"))]
    there = {path.name for path in (trained / name).iterdir()}
    assert not {"tracking", "mlflow.db", "pictures"} & there  # track and pictures are false


def test_the_first_case_is_tried_on_the_device_of_the_training(tmp_path):
    """A GPU, for which the device without data stands in: values there cannot be looked at, so the trial fails."""
    seen = []
    workflow = prepare("Training", **options("wbc", tmp_path / "out", device="meta"))
    workflow["train#loss"].register_forward_pre_hook(lambda _, inputs: seen.extend(x.device.type for x in inputs))
    workflow["network_def"].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].device.type))
    with pytest.raises((monai_iels.runs.RunError, NotImplementedError, RuntimeError)):
        workflow.run()
    assert seen[:3] == ["meta"] * 3


@pytest.mark.parametrize(
    "error",
    [
        corrupt(0.3, shared=False),
        {"_target_": "monai_iels.BiteLabel", "count": 3, "radius": 3.0, "seed": "@seed"},
        [corrupt(0.1), {"_target_": "monai_iels.WobbleLabel", "size": 2.0, "seed": "@seed"}],
        "$lambda label: label.roll(3, 1)",
    ],
    ids=["noise", "bites", "noise and wobble", "any callable"],
)
def test_errors_are_in_training_labels_only(error, tmp_path):
    changed = []
    for label_error in (None, error):
        parser = prepare("Training", **options("wbc", tmp_path, label_error=label_error)).parser
        training, validation = (list(parser.get_parsed_content(f"{key}#dataset")) for key in ("train", "validate"))
        changed.append([torch.stack([case["label"].as_tensor() for case in cases]) for cases in (training, validation)])
    torch.testing.assert_close(changed[0][1], changed[1][1])
    difference = (changed[0][0] != changed[1][0]).float().mean()
    assert 0.02 < difference < 0.3
    torch.testing.assert_close(torch.stack([case["truth"].as_tensor() for case in training]), changed[0][0])
    noisy = torch.stack([case["label_with_noise"].as_tensor() for case in validation])
    assert 0.02 < (noisy != changed[0][1]).float().mean() < 0.3


def test_fine_tuning_starts_from_the_weights_of_another_training(trained, tmp_path):
    """WBC's weights fit WBC entirely, and DSB2018, which has one class less, but for the last layer."""
    file = Path(shutil.copy(trained / "wbc" / "model.pt", tmp_path))
    weights = torch.load(file, weights_only=True)
    for name, fitting in (("wbc", len(weights)), ("dsb2018", len(weights) - 2)):
        overrides = options(name, tmp_path / name, pretrained=str(file), epochs=1, track=True)
        workflow = prepare("Training", **overrides)
        network, trainer = (workflow.parser.get_parsed_content(key) for key in ("network_def", "train#trainer"))
        first = {}
        trainer.add_event_handler(Events.ITERATION_STARTED(once=1), copy_weights, network, first)
        workflow.run()
        assert sum(torch.equal(first[key], weights[key]) for key in first) == fitting
        log = (tmp_path / name / "training.log").read_text()
        assert f"The training starts from the weights in {file}" in log
        assert ("last layer (final_conv), which has another number of classes" in log) is (name == "dsb2018")
        assert json.loads((tmp_path / name / "config.json").read_text())["pretrained"] == str(file)
        assert str(file) in (tmp_path / name / "tracking" / "journal.jsonl").read_text()
    assert history(tmp_path / "wbc")[0]["loss"] < history(trained / "wbc")[1]["loss"]
    file.unlink()  # a training that is resumed has its own weights
    run("Training", **options("wbc", tmp_path / "wbc", pretrained=str(file), resume=True))
    assert len(history(tmp_path / "wbc")) == 2


def copy_weights(network, target):
    target.update({key: value.clone() for key, value in network.state_dict().items()})


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ("model.pt", r"model\.pt: these are weights of another network \('conv_0.*; set --features as in the training"),
        ("last.pt", r"last\.pt: this is the state of a training; set --pretrained to the model\.pt beside it"),
        ("none.pt", r"none\.pt: there are no weights of a network; train first, or set --pretrained"),
        ("history.csv", r"history\.csv: cannot be read as weights \(.*\); set --pretrained to a sound file"),
    ],
)
def test_weights_that_cannot_be_fine_tuned(file, sentence, trained, tmp_path):
    overrides = options("wbc", tmp_path / "out", pretrained=str(trained / "wbc" / file), features=[8, 8, 8, 8, 8, 8])
    with pytest.raises(monai_iels.runs.RunError, match=sentence):
        run("Training", **overrides)
    assert not (tmp_path / "out" / "config.json").exists()


def test_without_a_gain_the_network_trains_alone(tmp_path):
    workflow = prepare("Training", **options("wbc", tmp_path, iel_gain="null"))
    network, alone, loss = (workflow[key] for key in ("train#network", "network_def", "train#loss"))
    image, label = torch.rand(1, 3, 32, 32), torch.randint(0, 3, (1, 1, 32, 32))
    logits = network.train()(image)
    torch.testing.assert_close(logits, alone(image))
    assert torch.equal(loss(logits, label), torch.nn.functional.cross_entropy(logits, label[:, 0]))


@pytest.mark.parametrize("word", ["null", "None"])
def test_the_command_line_can_unset_the_gain(word, tmp_path):
    typed = {**options("wbc", tmp_path / "out", epochs=1), "iel_gain": word}
    command = ["run", "--workflow_name", "monai_iels.Training", *words(typed)]
    assert Program("monai.bundle", *command, stdout=tmp_path / "log").wait() == 0
    assert json.loads((tmp_path / "out" / "evaluate.json").read_text())["iel_gain"] is None


def test_a_warm_up_grows(tmp_path):
    workflow = prepare("Training", **options("wbc", tmp_path, iel_warmup=4, epochs=6))
    trainer, layer = (workflow.parser.get_parsed_content(key) for key in ("train#trainer", "layer"))
    seen = []
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: seen.append(layer.share))
    workflow.run()
    assert seen == pytest.approx([0, 0, 1 / 3, 2 / 3, 1, 1])
    assert layer.gains() == pytest.approx({2: 15})


@pytest.mark.parametrize(("name", "more"), [("wbc", {}), ("drive", {"label_error": corrupt(0.3)}), ("hippocampus", {})])
def test_guided_diffusion_gets_the_image_that_the_network_saw(name, more, tmp_path):
    guided = {"_target_": "monai_iels.GuidedDiffusion", "spacing": 2.0}
    more |= {"augmentation": [{"_target_": "RandFlipd", "keys": ["image", "label"], "prob": 0.5}]}
    more |= {"layer#evolution": guided, "iel_warmup": 0}
    overrides = options(name, tmp_path, epochs=1, pictures=True, **more)
    workflow = prepare("Training", **overrides)
    layer, network = workflow["layer"], workflow["network_def"]
    seen, given = [], []
    network.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]) if module.training else None)
    layer.register_forward_pre_hook(lambda _, inputs: given.append(inputs[1]) if network.training else None)
    workflow.run()
    workflow.finalize()
    assert len(seen) >= 2
    assert all(torch.equal(one, other) for one, other in zip(seen, given, strict=True))
    assert (tmp_path / "pictures" / "last.png").exists()


def test_heat_between_slices_only(tmp_path):
    heat = {"_target_": "monai_iels.HeatDiffusion", "spacing": [1e999, 1e999, 1.0]}
    options_ = options("hippocampus", tmp_path, epochs=1, iel_warmup=0, **{"layer#evolution": heat})
    layer = run("Training", **options_).parser.get_parsed_content("layer")
    assert layer.evolution.spacing == (float("inf"), float("inf"), 1.0)
    assert layer.gains() == pytest.approx({3: 15})
    options_.update(epochs=2, resume=True)
    assert len(history(tmp_path)) == 1
    run("Training", **options_)
    assert len(history(tmp_path)) == 2


def test_nan_ends_a_training_with_its_likely_cause(tmp_path):
    strong = {"layer#evolution#spacing": 0.05, "layer#gain": "null", "layer#dt": 0.1, "layer#steps": 40}
    overrides = options("wbc", tmp_path, **strong)
    workflow = prepare("Training", **overrides)
    with pytest.warns(UserWarning, match="amplifies up to"), pytest.raises(monai_iels.runs.RunError) as caught:
        workflow.run()
    stopped = str(caught.value)
    assert stopped.startswith("The loss became NaN or infinite in epoch 1. The layer amplifies up to ")
    assert "set iel_gain to 15" in stopped
    assert not (tmp_path / "last.pt").exists()


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ({"epoch": 3}, "unknown key 'epoch': did you mean 'epochs'?"),
        ({"train#trainr": 3}, "unknown key 'train::trainr': did you mean 'train::trainer'?"),
        ({"dataset_dir": "/no/such/folder"}, "/no/such/folder: "),
    ],
)
def test_impossible_overrides_are_refused(override, sentence, tmp_path):
    with pytest.raises(monai_iels.runs.RunError) as caught:
        run("Training", **{**options("wbc", tmp_path), **override})
    assert str(caught.value).startswith(sentence)
    assert not (tmp_path / "last.pt").exists()


def test_a_mistake_on_the_command_line_gets_one_sentence(tmp_path):
    here, errors = tmp_path / "here", tmp_path / "errors"
    here.mkdir()
    where = {"bundle_root": BUNDLES / "wbc", "output_dir": here / "out", "dataset_dir": "nowhere"}
    command = ["run", "--workflow_name", "monai_iels.Training", *words(where)]
    assert Program("monai.bundle", *command, stderr=errors, cwd=here).wait() == 1
    assert "Traceback" not in errors.read_text()
    assert "nowhere: cannot be opened (no such file or directory)" in errors.read_text().splitlines()[-1]
    assert [p.name for p in here.iterdir()] in ([], ["out"])


def test_words_for_true_and_false(tmp_path):
    overrides = options("wbc", tmp_path, resume="false", include_background="True", track="true", iel_gain="null")
    workflow = prepare("Training", **overrides)
    assert [workflow[key] for key in ("include_background", "iel_gain")] == [True, None]
    assert [workflow.options[key] for key in ("resume", "track")] == [False, True]


def test_an_override_of_a_component_is_carried_to_evaluation_and_inference(tmp_path):
    overrides = {"intensity#a_max": 65535.0, "network_def#act": "RELU"}
    run("Training", **options("wbc", tmp_path, epochs=1), **overrides)
    for name in ("evaluate", "inference"):
        args = json.loads((tmp_path / f"{name}.json").read_text())
        assert args["intensity"]["a_max"] == 65535.0
        assert args["network_def"]["act"] == "RELU"


def some_of(name, folder, target):
    """Copy a few real cases: reading all takes a minute, and ``monai-iels data check`` is tested with all of them."""
    if name == "dsb2018":
        with zipfile.ZipFile(folder / "stage1_train.zip") as archive:
            names = archive.namelist()
            some = sorted({file.split("/")[0] for file in names[:4000]})[:20]
            archive.extractall(target, [file for file in names if file.split("/")[0] in some])
        return
    cases = {"wbc": "Dataset 1/0[0-2]?.*", "hippocampus": "Task04_Hippocampus/*Tr/hippocampus_0[0-3]*"}[name]
    for file in folder.glob(cases):
        place = target / file.relative_to(folder)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)


@pytest.mark.parametrize(("name", "size"), [("wbc", [48, 48]), ("hippocampus", [32, 48, 32]), ("dsb2018", [48, 48])])
def test_real_data(name, size, tmp_path):
    folder = Path(os.environ.get("MONAI_IELS_DATA", "")) / name
    if "MONAI_IELS_DATA" not in os.environ or not folder.is_dir():
        pytest.skip(f"set MONAI_IELS_DATA to a folder that has {name}")
    some_of(name, folder, tmp_path / "data")
    data = str(tmp_path / "data")
    overrides = options(name, tmp_path / "out", dataset_dir=data, image_size=size, epochs=1, batch_size=8)
    run("Training", **overrides)
    (row,) = history(tmp_path / "out")
    assert all(np.isfinite(value) for value in row.values())
