# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The bundles as a user runs them: composed, trained, judged, used, interrupted, shared between processes, mistyped."""

import configparser
import csv
import json
import logging
import os
import re
import shutil
import signal
import time
import zipfile
from pathlib import Path

import itk
import monai.bundle
import nibabel
import numpy as np
import onnx
import pytest
import torch
from cityscapesscripts.evaluation import evalPixelLevelSemanticLabeling as official
from dicom import write_series
from filelock import FileLock
from helpers import (
    BUNDLES,
    FEATURES,
    NAMES,
    ROOT,
    command,
    configs,
    history,
    noise,
    options,
    own_bundle,
    prepare,
    run,
    words,
)
from ignite.engine import Events
from monai.bundle import ConfigParser, ConfigWorkflow
from PIL import Image
from programs import Program, run_ranks

import monai_iels
import monai_iels.runs
from monai_iels.cli import main
from monai_iels.data import SOURCES
from monai_iels.study._definition import check_overrides, read_study
from monai_iels.study._plan import make_plan

METRICS = {"val_mean_dice", "val_mean_iou", "val_roughness", "val_convexity"}


@pytest.fixture(scope="module", autouse=True)
def _logging_as_before():
    """Undo what a bundle's logging.conf does to the loggers of the process."""
    yield
    for name in ("", "monai_iels"):
        logging.getLogger(name).handlers.clear()
    logging.getLogger("monai_iels").propagate = True


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Train each bundle for two epochs on its synthetic sample."""
    folder = tmp_path_factory.mktemp("trained runs")
    for name in NAMES:
        run("Training", **options(name, folder / name))
    return folder


# composition


def test_composed_files_are_up_to_date():
    assert main(["bundle", "check", str(BUNDLES)]) == 0


def test_a_stale_file_is_named(tmp_path, capsys):
    for name in ("shared", "wbc"):
        shutil.copytree(BUNDLES / name, tmp_path / name)
    file = tmp_path / "wbc" / "configs" / "train.json"
    file.write_text(file.read_text().replace('"epochs": 20', '"epochs": 21'))
    assert main(["bundle", "check", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith(f"{file} is not what compose writes: run monai-iels bundle compose")
    assert main(["bundle", "compose", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"Wrote {file}\n"
    assert main(["bundle", "check", str(tmp_path)]) == 0
    assert main(["bundle", "compose", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("Nothing changed: ")


def test_compose_outside_the_checkout(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["bundle", "compose", "bundles"]) == 1
    told = "there is no folder bundles here: start in the folder that contains it"
    assert capsys.readouterr().err.strip() == told


def test_a_bundle_of_your_own(tmp_path, capsys):
    file = own_bundle(tmp_path)
    assert main(["data", "check", str(file.parent), "--root", str(tmp_path / "data")]) == 1
    assert "has no configs/train.json: run monai-iels bundle compose" in capsys.readouterr().err
    assert main(["bundle", "compose", str(tmp_path)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len([p for p in file.parent.rglob("*") if p.is_file()]) - 1
    assert main(["data", "check", str(file.parent), "--root", str(tmp_path / "data")]) == 0
    assert "mine in " in (found := capsys.readouterr().out)
    assert "20 files opened; 8 training, 2 validation.\nNo problem found." in found
    readme = (tmp_path / "mine" / "docs" / "README.md").read_text("utf-8")
    assert "images/{id}.png  an image" in readme
    assert "20 % of the cases are for validation, chosen by `split_seed`." in readme
    assert "_target_" not in readme
    assert "--bundle_root bundles/mine" in readme
    assert "our hospital, not public" in readme + (tmp_path / "mine" / "docs" / "data_license.txt").read_text("utf-8")
    assert not re.search("wbc|WBC|GPL|None of", readme)
    out = {"bundle_root": str(file.parent), "output_dir": str(tmp_path / "out"), "features": FEATURES, "epochs": 2}
    out |= {"dataset_dir": str(tmp_path / "data"), "image_size": [32, 32], "learning_rate": 0.003}
    workflow = run("Training", **out)
    assert len(history(tmp_path / "out")) == 2
    assert len(workflow.parser.get_parsed_content("validate#dataset")) == 2
    journal = (tmp_path / "out" / "tracking" / "journal.jsonl").read_text()
    assert json.loads(journal.splitlines()[0])["name"].startswith("mine-")
    run("Evaluation", **out, track=False)
    cases = (tmp_path / "out" / "evaluation" / "cases.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in cases] == ["case", "case0.png", "case5.png"]
    assert (tmp_path / "out" / "evaluation" / "contact_sheet.png").exists()
    with pytest.raises(monai_iels.runs.RunError) as caught:
        run("Training", **{**out, "dataset_dir": "synthetic"})
    assert "--dataset_dir" in str(caught.value)


def test_large_images_are_trained_in_crops_and_predicted_in_windows_with_the_keys_of_the_page(tmp_path):
    file = own_bundle(tmp_path)  # its images have 40x50 pixels
    (keys,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "do" / "files.md").read_text("utf-8"), re.DOTALL)
    file.write_text(re.sub(r"(?m)^image_size:.*\n", "", file.read_text("utf-8")) + keys, encoding="utf-8")
    assert main(["bundle", "compose", str(tmp_path)]) == 0
    given = {"bundle_root": str(file.parent), "output_dir": str(tmp_path / "out")}
    given |= {
        "dataset_dir": str(tmp_path / "data"),
        "features": FEATURES,
        "image_size": [32, 32],
        "epochs": 1,
        "noise_fraction": 0.1,
        "track": False,
    }
    trained = run("Training", **given).parser
    crop = trained.get_parsed_content("train#dataset")[0]
    assert [tuple(crop[key].shape[1:]) for key in ("image", "label", "truth")] == [(32, 32)] * 3
    assert tuple(trained.get_parsed_content("validate#dataset")[0]["image"].shape[1:]) == (50, 40)
    assert len(trained.get_parsed_content("train#dataset")) == 4 * 8
    assert len(history(tmp_path / "out")) == 1
    monai.bundle.run(args_file=str(tmp_path / "out" / "inference.json"), dataset_dir=str(tmp_path / "data" / "images"))
    predicted = sorted((tmp_path / "out" / "predictions").glob("*_label.png"))
    assert {Image.open(prediction).size for prediction in predicted} == {(50, 40)}
    assert len(predicted) == 10


@pytest.mark.parametrize("large", [False, True])
def test_a_bundle_of_your_own_volumes(large, tmp_path):
    """The volumes of the page are cut to a box around their center, or trained in crops with those for large images."""
    file = own_bundle(tmp_path)
    pages = [(ROOT / "docs" / "do" / name).read_text("utf-8") for name in ("bundle.md", "files.md")]
    volumes, keys = (re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[-1] for page in pages)
    keys = keys if large else ""
    for key in re.findall(r"(?m)^(\w+):", keys):
        volumes = re.sub(rf"(?m)^{key}:.*\n", "", volumes)
    file.write_text(volumes + keys, encoding="utf-8")
    assert main(["bundle", "compose", str(tmp_path)]) == 0
    rng = np.random.default_rng(0)
    for number in range(3):
        label = np.zeros((40, 44, 14), np.uint8)
        label[10:30, 12:30, 3:10] = 1
        for name, values in (("images", 100 * label + rng.random(label.shape)), ("labels", label)):
            volume = nibabel.Nifti1Image(values.astype(np.float32), np.diag([1.0, 1.0, 9.0, 1.0]))  # 42 voxels of 3 mm
            (tmp_path / "volumes" / name).mkdir(parents=True, exist_ok=True)
            nibabel.save(volume, tmp_path / "volumes" / name / f"p0{number}_1.nii.gz")
    given = {"bundle_root": str(file.parent), "output_dir": str(tmp_path / "out")}
    given |= {"dataset_dir": str(tmp_path / "volumes"), "iel_warmup": 0}
    given |= {"features": FEATURES, "image_size": [32, 32, 32], "epochs": 1, "track": False, "pictures": False}
    trained = run("Training", **given).parser
    assert tuple(trained.get_parsed_content("train#dataset")[0]["image"].shape) == (1, 32, 32, 32)
    validated = tuple(trained.get_parsed_content("validate#dataset")[0]["image"].shape[1:])
    assert all(side > 32 for side in validated) == large
    images = tmp_path / "volumes" / "images"
    monai.bundle.run(args_file=str(tmp_path / "out" / "inference.json"), dataset_dir=str(images))
    predicted = sorted((tmp_path / "out" / "predictions").glob("*_label.nii.gz"))
    assert [nibabel.load(prediction).shape for prediction in predicted] == [(40, 44, 14)] * 3


def test_several_sequences_in_one_file_as_the_page_joins_them(tmp_path, monkeypatch):
    file = own_bundle(tmp_path)
    pages = {name: (ROOT / "docs" / "do" / name).read_text("utf-8") for name in ("bundle.md", "files.md")}
    volumes = re.findall(r"```yaml\n(.*?)```", pages["bundle.md"], re.DOTALL)[-1]
    section = pages["files.md"].split("## Several MRI sequences")[1]
    for change in re.findall(r"`((?:image|in_channels|intensity|channel_def): [^`]+)`", section):
        key = change.split(":")[0]
        if key == "channel_def":
            volumes = re.sub(r"channel_def: \{.*?\}", change, volumes)
        else:
            volumes = re.sub(rf"(?m)^( *){key}:.*$", rf"\g<1>{change}", volumes, count=1)
    file.write_text(volumes, encoding="utf-8")
    assert main(["bundle", "compose", str(tmp_path)]) == 0
    metadata = json.loads((file.parent / "configs" / "metadata.json").read_text("utf-8"))
    assert metadata["network_data_format"]["inputs"]["image"]["num_channels"] == 2
    label = np.zeros((36, 40, 14), np.uint8)
    label[10:30, 12:30, 3:10] = 1
    for number in range(3):
        for folder, values in (("t1", 100.0 * label), ("t2", 500 - 200.0 * label), ("DIR/labels", label)):
            (tmp_path / folder).mkdir(parents=True, exist_ok=True)
            volume = nibabel.Nifti1Image(values.astype(np.float32), np.diag([1.0, 1.0, 3.0, 1.0]))
            nibabel.save(volume, tmp_path / folder / f"p0{number}_1.nii.gz")
    monkeypatch.chdir(tmp_path)
    exec(re.search(r"```python\n(.*?)```", section, re.DOTALL)[1], {})
    assert main(["data", "check", str(file.parent), "--root", "DIR"]) == 0
    given = {"bundle_root": str(file.parent), "output_dir": "out", "dataset_dir": "DIR", "iel_warmup": 0}
    given |= {"features": FEATURES, "image_size": [32, 32, 32], "epochs": 1, "track": False, "pictures": False}
    run("Training", **given)
    monai.bundle.run(args_file="out/inference.json", dataset_dir="DIR/images")
    predicted = sorted(Path("out/predictions").glob("*_label.nii.gz"))
    assert [nibabel.load(prediction).shape for prediction in predicted] == [label.shape] * 3


def test_a_changed_dataset_yaml_must_be_composed_again(tmp_path, capsys):
    file = own_bundle(tmp_path)
    assert main(["bundle", "compose", str(tmp_path)]) == 0
    file.write_text(file.read_text("utf-8") + "\nseed: 7\n", encoding="utf-8")
    assert main(["data", "check", str(file.parent), "--root", str(tmp_path / "data")]) == 1
    assert capsys.readouterr().err == f"{file} was changed: run monai-iels bundle compose {tmp_path} again\n"


def test_a_check_of_your_own_data_names_everything_that_is_wrong(tmp_path, capsys):
    file = own_bundle(tmp_path)
    assert main(["bundle", "compose", str(tmp_path)]) == 0
    check = ["data", "check", str(file.parent), "--root"]
    assert main([*check, str(file.parent)]) == 1
    found = capsys.readouterr().out
    assert "images: there is no such folder here, only LICENSE, configs, dataset.yaml, docs. Give the" in found
    assert "official" not in found
    labels = tmp_path / "data" / "labels"
    Image.fromarray(np.full((40, 50), 7, np.uint8)).save(labels / "case3.png")
    (labels / "case5.png").write_bytes((labels / "case5.png").read_bytes()[:-20])
    assert main([*check, str(tmp_path / "data"), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    problems = {problem["kind"]: problem for problem in report["problems"]}
    assert set(problems) == {"truncated", "values"}
    assert problems["truncated"]["file"] == str(labels / "case5.png")
    assert "case3.png (7)" in problems["values"]["problem"]


def test_a_study_of_your_own_needs_no_presets(tmp_path):
    file = own_bundle(tmp_path)
    file.write_text(file.read_text() + "iel_warmup: 9\n")
    assert main(["bundle", "compose", str(tmp_path)]) == 0
    study = file.parent / "studies" / "layer.yaml"
    study.parent.mkdir()
    study.write_text("bundle: mine\nseeds: 1\nvariants: {U-Net: {iel_steps: 0}}\n")
    found = read_study(study)
    check_overrides(found)
    (training,) = make_plan(found, tmp_path / "out", "cpu", str(tmp_path / "data"), None).trainings()
    assert training.arguments["features"] == [8, 16, 32, 64, 128, 8]
    assert training.arguments["iel_warmup"] == 3  # the bundle has 9 of 30 epochs
    (training,) = make_plan(found, tmp_path / "out", "full", str(tmp_path / "data"), None).trainings()
    assert "epochs" not in training.arguments
    (file.parent / "presets.yaml").write_text("cpu: {epochs: 3}\npaper: {iel_steps: 7}\n")
    (training,) = make_plan(found, tmp_path / "out", "cpu", str(tmp_path / "data"), None).trainings()
    assert training.arguments["epochs"] == 3
    assert "features" not in training.arguments
    (training,) = make_plan(found, tmp_path / "out", "paper", str(tmp_path / "data"), None).trainings()
    assert training.arguments["iel_steps"] == 0  # the variant goes first


def test_the_study_of_the_page_trains_each_fold_on_the_cases_of_its_column(tmp_path):
    file = own_bundle(tmp_path)
    page = (ROOT / "docs" / "do" / "bundle.md").read_text("utf-8").split("### Cross-validation")[1]
    header, *_ = re.search(r"```text\n(.*?)```", page, re.DOTALL)[1].splitlines()
    folds = header.split(",")[1:]
    of_cases = {
        number: folds[number % len(folds)] for number in range(10)
    }  # the fold in which a case is for validation
    rows = [
        [f"case{n}"] + ["validation" if fold == own else "training" for fold in folds] for n, own in of_cases.items()
    ]
    (tmp_path / "data" / "folds.csv").write_text("\n".join([header, *map(",".join, rows)]))
    table = f"  table: folds.csv\n  section: {folds[0]}\n"
    file.write_text(re.sub("(?m)^  group:.*\n", table, file.read_text("utf-8")))
    assert main(["bundle", "compose", str(tmp_path)]) == 0
    study = file.parent / "studies" / "folds.yaml"
    study.parent.mkdir()
    study.write_text(re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1])
    found = read_study(study)
    check_overrides(found)
    trainings = list(make_plan(found, tmp_path / "out", "cpu", str(tmp_path / "data"), None).trainings())
    assert len(trainings) == 2 * len(folds)
    for training, fold in zip(trainings, [fold for fold in folds for _ in range(2)], strict=True):
        config = ConfigParser(ConfigParser.load_config_file(file.parent / "configs" / "train.json"))
        config.update(training.arguments)
        names = [Path(case["image"]).stem for case in config.get_parsed_content("datalists")["validation"]]
        assert names == [f"case{number}" for number, own in of_cases.items() if own == fold]


@pytest.mark.parametrize(("argument", "sentence"), [("validaton: 0.2", "unexpected keyword argument 'validaton'")])
def test_a_mistyped_argument_of_your_datalists(argument, sentence, tmp_path, capsys):
    file = own_bundle(tmp_path)
    file.write_text(file.read_text().replace("  validation: 0.2", f"  {argument}"))
    assert main(["bundle", "compose", str(tmp_path)]) == 1
    assert re.match(rf"{re.escape(str(file))}: datalists: .*{sentence}", capsys.readouterr().err)


def test_a_volume_is_turned_alike_in_training_and_prediction(tmp_path):
    """One with voxels of 2 mm that is stored right to left is seen on the same grid by both."""
    affine = np.diag([-1.0, 1.0, 2.0, 1.0])
    for name, values in (("image", np.random.default_rng(0).random((20, 24, 12))), ("label", np.ones((20, 24, 12)))):
        nibabel.save(nibabel.Nifti1Image(values.astype(np.float32), affine), tmp_path / f"{name}.nii.gz")
    files = {name: str(tmp_path / f"{name}.nii.gz") for name in ("image", "label")}
    config = BUNDLES / "hippocampus" / "configs"
    training = ConfigParser.load_config_file(config / "train.json") | {
        "resize": {"_target_": "Identityd", "keys": "image"}
    }
    trained = ConfigParser(training).get_parsed_content("validate#preprocessing")(files)
    inference = ConfigParser.load_config_file(config / "inference.json") | {"bundle_root": str(config.parent)}
    prediction = ConfigParser(inference)
    predicted = prediction.get_parsed_content("preprocessing")({"image": files["image"]})
    assert trained["image"].shape == trained["label"].shape == predicted["image"].shape != (1, 20, 24, 12)
    np.testing.assert_allclose(trained["image"].affine, predicted["image"].affine)
    np.testing.assert_allclose(trained["label"].affine, predicted["image"].affine)


@pytest.mark.parametrize("line", ["datalists:", "classes:", "  name:", "  data_source:"])
def test_a_bundle_of_your_own_that_lacks_something(line, tmp_path, capsys):
    file = own_bundle(tmp_path)
    text = file.read_text()
    end = r"(\n  .*)*\n" if line == "datalists:" else r"\n"
    file.write_text(re.sub(rf"(?m)^{line}.*{end}", "", text, count=1))
    assert file.read_text() != text
    assert main(["bundle", "compose", str(tmp_path)]) == 1
    assert re.match(rf"{re.escape(str(file))}: (metadata#)?{line.strip(' :')} is missing", capsys.readouterr().err)
    assert not (tmp_path / "mine" / "configs").exists()


@pytest.mark.parametrize(
    ("line", "nearest"),
    [("epoch: 3", "epochs"), ("evolutoin: {}", "evolution"), ("metadata: {tsak: x}", "task")],
)
def test_a_key_that_nothing_defines(line, nearest, tmp_path, capsys):
    shutil.copytree(BUNDLES / "shared", tmp_path / "shared")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "dataset.yaml").write_text(f"source: wbc\n{line}\n")
    assert main(["bundle", "compose", str(tmp_path)]) == 1
    assert f"did you mean '{nearest}'?" in capsys.readouterr().err
    assert not (tmp_path / "new" / "configs").exists()


def test_no_bundles_there(tmp_path, capsys):
    assert main(["bundle", "compose", str(tmp_path)]) == 1
    assert "there is no folder with a dataset.yaml" in capsys.readouterr().err


def test_one_entry_swaps_the_physics():
    train = [ConfigParser.load_config_file(configs(name, "train")[0]) for name in ("wbc", "refuge")]
    physics = ("evolution", "layer", "network", "network_def", "train", "validate")
    assert [key for key in physics if train[0][key] != train[1][key]] == ["evolution"]
    assert train[1]["evolution"]["_target_"] == "monai_iels.ConvexCurveMotion"


@pytest.mark.parametrize(
    ("name", "overrides", "dt", "steps", "gain"),
    [
        ("wbc", {}, 0.1, 15, 15.4),
        ("wbc", {"iel_steps": 20}, 0.1, 20, 38.3),
        ("wbc", {"iel_gain": 38}, 0.137, 15, 38),
        ("hippocampus", {"iel_gain": 15, "iel_spacing": [1.0, 1.0, 2.0], "iel_steps": 4}, 0.107, 4, 15),
        ("wbc", {"iel_gain": 15, "iel_steps": 0}, None, 0, 1),
        ("refuge", {"iel_reach": 6}, 0.1, 60, None),
        ("refuge", {"iel_reach": 3, "iel_spacing": 0.5}, 0.05, 60, None),
        ("refuge", {"iel_reach": 6, "iel_steps": 0}, None, 0, None),
    ],
)
def test_the_strength_of_a_layer_is_one_key(name, overrides, dt, steps, gain):
    parser = ConfigParser(ConfigParser.load_config_file(configs(name, "train")[0]))
    parser.update({**overrides, "iel_warmup": 4})
    layer = parser.get_parsed_content("layer")
    assert layer.steps == steps
    if dt:
        assert layer.dt == pytest.approx(dt, rel=0.01)
    assert layer.spatial_dims == parser["spatial_dims"]
    assert layer.gains() == (pytest.approx({layer.spatial_dims: gain}, rel=0.01) if gain else {})
    assert parser.get_parsed_content("warmup").layers == [layer]


@pytest.mark.parametrize("dims", [2, 3])
def test_a_bundle_of_ones_own_has_a_gain_of_15(dims):
    parser = ConfigParser(ConfigParser.load_config_file(BUNDLES / "shared" / "train.yaml"))
    parser["spatial_dims"] = dims
    assert parser.get_parsed_content("layer").gains() == pytest.approx({dims: 15})
    parser.update({"iel_reach": 6, "evolution": {"_target_": "monai_iels.ConvexCurveMotion"}})
    layer = parser.get_parsed_content("layer")
    assert layer.dt * layer.steps == pytest.approx(6)


@pytest.mark.parametrize("name", NAMES)
def test_a_data_set_is_a_page_of_yaml(name):
    assert len((BUNDLES / name / "dataset.yaml").read_text().splitlines()) < 60


@pytest.mark.parametrize("name", NAMES)
def test_metadata_has_what_the_specification_asks_for(name):
    metadata = json.loads(Path(configs(name, "metadata")[0]).read_text())
    mandatory = "version monai_version pytorch_version numpy_version required_packages_version task description authors"
    assert set(f"{mandatory} copyright network_data_format".split()) <= set(metadata)
    assert metadata["changelog"][metadata["version"]]
    assert not [key for key, value in metadata.items() if value is None]
    data = metadata["network_data_format"]
    image, pred = data["inputs"]["image"], data["outputs"]["pred"]
    keys = "type format num_channels spatial_shape dtype value_range is_patch_data channel_def"
    assert set(f"{keys} modality".split()) <= set(image)
    assert set(keys.split()) <= set(pred)
    assert len(pred["channel_def"]) == pred["num_channels"] == len(SOURCES[name].classes)
    assert image["modality"]
    for file in ("LICENSE", "docs/README.md", "docs/data_license.txt", "configs/logging.conf"):
        assert (BUNDLES / name / file).stat().st_size


# train, evaluate, infer, export


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


@pytest.mark.parametrize("name", NAMES)
def test_evaluation(name, trained, tmp_path):
    run("Evaluation", **options(name, trained / name, report_dir=str(tmp_path), pictures=True))
    with (tmp_path / "cases.csv").open(newline="", encoding="utf-8") as stream:
        cases = list(csv.DictReader(stream))
    with (tmp_path / "summary.csv").open(newline="", encoding="utf-8") as stream:
        summary = {row["metric"]: row for row in csv.DictReader(stream)}
    unit = "mm" if name == "hippocampus" else "pixels"
    expected = {"mean_dice", "mean_iou", f"hausdorff_95_{unit}", "roughness", "convexity", "convexity_of_truth"}
    assert expected <= set(summary)
    assert len({case["case"] for case in cases}) == len(cases)
    decides = "val_set_iou" if name == "cityscapes" else "val_mean_dice"
    best = max(history(trained / name), key=lambda row: row[decides])
    assert float(summary["mean_dice"]["mean"]) == pytest.approx(best["val_mean_dice"], abs=1e-5)
    assert float(summary["roughness"]["mean"]) == pytest.approx(best["val_roughness"], abs=1e-5)
    with Image.open(tmp_path / "contact_sheet.png") as picture:
        assert picture.height > 200


def test_no_pixel_is_drawn_where_pictures_are_not_wanted(tmp_path, capsys):
    common = {"sample_count": 4, "epochs": 1, "track": True, "pictures": False}
    run("Training", **options("wbc", tmp_path, **common))
    run("Evaluation", **options("wbc", tmp_path, **common))
    drawn = {file.name for file in tmp_path.rglob("*") if file.suffix in (".png", ".npz") and "cache" not in file.parts}
    assert drawn == {"curves.png"}
    assert {Path(word).name for word in re.findall(r"\S+\.(?:png|npz)", capsys.readouterr().out)} == {"curves.png"}


@pytest.mark.parametrize("name", [n for n in NAMES if n != "hippocampus"])
def test_inference_in_two_dimensions(name, trained, tmp_path):
    inputs = tmp_path / "my images"
    inputs.mkdir()
    rng = np.random.default_rng(0)
    sizes = {"tiny.png": (9, 17), "wide.jpg": (40, 150), "gray.png": (60, 50)}
    for file, (height, width) in sizes.items():
        pixels = rng.integers(0, 255, (height, width, 3), np.uint8)
        Image.fromarray(pixels[..., 0] if file == "gray.png" else pixels).save(inputs / file)
    (inputs / "notes.txt").write_text("not an image")
    args = json.loads((trained / name / "inference.json").read_text())
    run(**{**args, "dataset_dir": str(inputs), "output_dir": str(tmp_path / "out")})
    (config,) = configs(name, "inference")
    values = set(ConfigParser(ConfigParser.load_config_file(config)).get_parsed_content("written_values"))
    for file, (height, width) in sizes.items():
        label = Image.open(tmp_path / "out" / f"{Path(file).stem}_label.png")
        overlay = Image.open(tmp_path / "out" / f"{Path(file).stem}_overlay.png")
        assert label.size == overlay.size == (width, height)
        assert label.mode == "L"
        assert overlay.mode == "RGB"
        assert set(np.unique(label)) <= values
    assert len(list((tmp_path / "out").iterdir())) == 2 * len(sizes)


def test_predicted_streets_have_the_iou_of_the_official_evaluation(trained, tmp_path, monkeypatch):
    """The files of a prediction, judged by Cityscapes' own script, against the table of our evaluation."""
    output = trained / "cityscapes"
    run("Evaluation", **options("cityscapes", output, report_dir=str(tmp_path)))
    with (tmp_path / "classes.csv").open(newline="", encoding="utf-8") as stream:
        ours = {row["class"]: float(row["iou_of_all_cases"] or "nan") for row in csv.DictReader(stream)}
    truths = sorted((output / "cache").glob("synthetic-*/gtFine/val/*/*_labelIds.png"))
    images = [
        Path(str(t).replace("gtFine", "leftImg8bit", 1).replace("_gtFine_labelIds", "_leftImg8bit")) for t in truths
    ]
    for image in images:
        shutil.copy(image, tmp_path / image.name)
    arguments = json.loads((output / "inference.json").read_text())
    arguments |= {"dataset_dir": str(tmp_path / "*_leftImg8bit.png"), "output_dir": str(tmp_path / "out")}
    run(**arguments)
    predictions = [str(tmp_path / "out" / f"{image.stem}_label.png") for image in images]
    for name, value in {"quiet": True, "evalInstLevelScore": False, "JSONOutput": False}.items():
        monkeypatch.setattr(official.args, name, value)
    found = official.evaluateImgLists(predictions, [str(truth) for truth in truths], official.args)
    assert len(truths) == 4
    theirs = {name: score for name, score in found["classScores"].items() if name in SOURCES["cityscapes"].classes}
    assert ours == pytest.approx(theirs, abs=1e-6, nan_ok=True)
    best = max(history(output), key=lambda row: row["val_set_iou"])
    assert best["val_set_iou"] == pytest.approx(found["averageScoreClasses"], abs=1e-6)
    assert best["val_set_iou"] > 0


@pytest.mark.parametrize("form", [".nii.gz", ".nrrd", ".mha", "dicom", "flipped"])
def test_inference_of_volumes_in_the_source_geometry(form, trained, tmp_path):
    values = np.random.default_rng(0).integers(0, 1000, (20, 24, 36)).astype(np.int16)
    volume = itk.image_from_array(values)
    volume.SetSpacing((1.0, 1.5, 2.0))
    volume.SetOrigin((-10.0, 20.0, 30.0))
    source = tmp_path / ("series" if form == "dicom" else f"case{'.nii.gz' if form == 'flipped' else form}")
    if form == "flipped":
        volume.SetDirection(np.diag([-1.0, 1.0, -1.0]))
    if form == "dicom":
        write_series(volume, source)
    else:
        itk.imwrite(volume, str(source))
    args = json.loads((trained / "hippocampus" / "inference.json").read_text())
    run(**{**args, "dataset_dir": str(source), "output_dir": str(tmp_path / "out")})
    (file,) = (tmp_path / "out").iterdir()
    label = nibabel.load(file)
    assert label.shape == (36, 24, 20)
    expected = np.diag([-1.0, -1.5, 2.0, 1.0])
    if form == "flipped":
        expected = np.diag([1.0, -1.5, -2.0, 1.0])
    expected[:3, 3] = 10.0, -20.0, 30.0
    np.testing.assert_allclose(label.affine, expected, atol=1e-4)
    assert set(np.unique(label.dataobj)) <= {0, 1, 2}


def test_the_first_case_is_tried_on_the_device_of_the_training(tmp_path):
    """A GPU, for which the device without data stands in: values there cannot be looked at, so the trial fails."""
    seen = []
    workflow = prepare("Training", **options("wbc", tmp_path / "out", device="meta"))
    workflow["train#loss"].register_forward_pre_hook(lambda _, inputs: seen.extend(x.device.type for x in inputs))
    workflow["network_def"].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].device.type))
    with pytest.raises((monai_iels.runs.RunError, NotImplementedError, RuntimeError)):
        workflow.run()
    assert seen[:3] == ["meta"] * 3


def test_inference_sees_what_training_saw(trained, tmp_path):
    """The same network, on an image of the training size, gives the same labels in evaluation and inference."""
    workflow = prepare("Training", **options("wbc", trained / "wbc"))
    case = workflow.parser.get_parsed_content("validate#dataset")[0]
    pixels = (case["image"].numpy() * 255).round().astype(np.uint8)
    Image.fromarray(np.moveaxis(pixels, 0, -1).swapaxes(0, 1)).save(tmp_path / "case.png")
    network = workflow.parser.get_parsed_content("network_def").eval()
    network.load_state_dict(torch.load(trained / "wbc" / "model.pt", weights_only=True))
    with torch.no_grad():
        expected = network(torch.as_tensor(pixels / 255, dtype=torch.float32)[None]).argmax(1)[0].T
    args = json.loads((trained / "wbc" / "inference.json").read_text())
    run(**{**args, "dataset_dir": str(tmp_path / "case.png"), "output_dir": str(tmp_path)})
    label = np.asarray(Image.open(tmp_path / "case_label.png"))
    np.testing.assert_array_equal(label, np.array([0, 128, 255])[expected.numpy()])


def test_inference_needs_monai_alone(trained, tmp_path):
    """The bundle's config predicts where monai_iels is not installed, and the labels are those of Inference."""
    rng = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    Image.fromarray(rng.integers(0, 255, (40, 50, 3), np.uint8)).save(tmp_path / "images" / "case.png")
    blocker = tmp_path / "blocker"
    blocker.mkdir()
    (blocker / "sitecustomize.py").write_text(
        "import sys\nclass No:\n    def find_spec(self, name, *a):\n"
        "        if name.startswith('monai_iels'): raise ImportError(name)\nsys.meta_path.insert(0, No())\n"
    )
    args = json.loads((trained / "wbc" / "inference.json").read_text())
    run(**{**args, "dataset_dir": str(tmp_path / "images"), "output_dir": str(tmp_path / "ours")})
    small = {"bundle_root": BUNDLES / "wbc", "dataset_dir": tmp_path / "images", "output_dir": tmp_path / "plain"}
    weights = shutil.copy(trained / "wbc" / "model.pt", blocker)  # a path without spaces
    small |= {"checkpoint": weights, "features": FEATURES, "image_size": [32, 32]}
    arguments = ["--config_file", *configs("wbc", "inference"), *words(small)]
    done = command(*arguments, cwd=tmp_path, env={"PYTHONPATH": str(blocker)})
    assert done.returncode == 0, done.stderr
    plain, ours = (np.asarray(Image.open(tmp_path / kind / "case_label.png")) for kind in ("plain", "ours"))
    assert plain.shape == (40, 50)
    np.testing.assert_array_equal(plain, ours)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["blocker", "images", "ours", "plain"]


@pytest.mark.parametrize("name", NAMES)
def test_properties_are_complete(name, trained):
    train = prepare("Training", **options(name, trained / name))
    assert train.check_properties() == []
    assert train.max_epochs == 2
    infer = ConfigWorkflow(
        configs(name, "inference"),
        workflow_type="infer",
        **{
            k: v
            for k, v in options(name, trained / name).items()
            if k in ("bundle_root", "output_dir", "features", "network_def")
        },
        dataset_dir=str(BUNDLES / name / "docs"),
    )
    infer.initialize()
    assert infer.check_properties() == []


@pytest.mark.parametrize("name", [n for n in NAMES if n != "cityscapes"])
def test_monai_s_own_tools(name, trained, tmp_path):
    """Run what the model zoo runs, with MONAI's defaults, and compare what is exported with the network."""
    (config,), (meta,) = configs(name, "inference"), configs(name, "metadata")
    monai.bundle.verify_net_in_out("network_def", meta_file=meta, config_file=config, features=FEATURES)
    weights = str(trained / name / "model.pt")
    common = {"ckpt_file": weights, "meta_file": meta, "config_file": config, "features": FEATURES}
    monai.bundle.ckpt_export("network_def", filepath=str(tmp_path / "model.ts"), **common)
    parser = ConfigParser({**ConfigParser.load_config_file(config), "features": FEATURES})
    network = parser.get_parsed_content("network_def")
    network.load_state_dict(torch.load(weights, weights_only=True))
    image = ConfigParser.load_config_file(meta)["network_data_format"]["inputs"]["image"]
    scripted = torch.jit.load(str(tmp_path / "model.ts"))
    for n in (1, 2):
        shape = [eval(side, {"n": n}) for side in image["spatial_shape"]]
        x = torch.rand(1, image["num_channels"], *shape)
        assert network.train()(x).shape[2:] == x.shape[2:]
        with torch.no_grad():
            torch.testing.assert_close(scripted(x), network.eval()(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["wbc", "hippocampus"])
def test_monai_exports_to_onnx(name, trained, tmp_path):
    """In 2-D and in 3-D; the other bundles have the same network."""
    (config,), (meta,) = configs(name, "inference"), configs(name, "metadata")
    common = {"ckpt_file": str(trained / name / "model.pt"), "meta_file": meta, "config_file": config}
    monai.bundle.onnx_export("network_def", filepath=str(tmp_path / "model.onnx"), **common, features=FEATURES)
    onnx.checker.check_model(onnx.load(tmp_path / "model.onnx"))


@pytest.mark.parametrize("name", NAMES)
def test_a_bundle_has_what_the_model_zoo_asks_for(name):
    folder = BUNDLES / name
    metadata = ConfigParser.load_config_file(folder / "configs" / "metadata.json")
    assert (folder / "LICENSE").exists()
    assert metadata["version"] in metadata["changelog"]
    assert all(metadata[key] for key in ("task", "description", "authors", "copyright", "schema"))


@pytest.mark.parametrize(("name", "extras"), [("wbc", ["bundles"]), ("cityscapes", ["bundles", "cityscapes"])])
def test_metadata_requires_what_training_needs(name, extras):
    """Bundles ask for exactly the versions that everything is tested on, of all that this package installs."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    lines = setup["options"]["install_requires"].split()
    for extra in extras:
        lines += setup["options.extras_require"][extra].split()
    needed = {line.partition(">=")[0] for line in lines}
    lines = [line.partition(";")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    tested = {**dict(line.split("==") for line in lines if "==" in line), "monai_iels": monai_iels.__version__}
    metadata = ConfigParser.load_config_file(configs(name, "metadata")[0])
    required = metadata["required_packages_version"]
    assert set(required) == needed - {"torch", "monai", "numpy"} | {"monai_iels"}
    own = {"monai": "monai_version", "torch": "pytorch_version", "numpy": "numpy_version"}
    required.update({package: metadata[key] for package, key in own.items()})
    assert {package: version for package, version in required.items() if tested[package] != version} == {}


def test_monai_loads_the_bundle(trained, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    shutil.copytree(BUNDLES / "wbc", tmp_path / "wbc")
    (tmp_path / "wbc" / "models").mkdir()
    shutil.copy(trained / "wbc" / "model.pt", tmp_path / "wbc" / "models" / "model.pt")
    network = monai.bundle.load("wbc", bundle_dir=str(tmp_path), source="github", net_override={"features": FEATURES})
    weights = torch.load(trained / "wbc" / "model.pt", weights_only=True)
    for key, value in network.state_dict().items():
        torch.testing.assert_close(value, weights[key])
    assert not list((tmp_path / "here").iterdir())


# what the overrides do


@pytest.mark.parametrize(
    ("clean", "errors"),
    [
        ({"noise_fraction": 0.0}, {"noise_fraction": 0.3, "noise_shared": False}),
        ({"bite_count": 0}, {"bite_count": 3, "bite_radius": 3.0}),
        ({"label_error": None}, {"label_error": {"_target_": "monai_iels.WobbleLabel", "size": 3.0, "seed": "@seed"}}),
    ],
    ids=["noise", "bites", "wobble"],
)
def test_errors_are_in_training_labels_only(clean, errors, tmp_path):
    changed = []
    for overrides in (clean, errors):
        parser = prepare("Training", **options("wbc", tmp_path, **overrides)).parser
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


def test_no_steps_is_the_baseline_and_a_warm_up_grows(tmp_path):
    overrides = options("wbc", tmp_path, iel_steps=0)
    loss = prepare("Training", **overrides).parser.get_parsed_content("train#loss")
    logits, label = torch.rand(1, 3, 32, 32), torch.randint(0, 3, (1, 1, 32, 32))
    assert torch.equal(loss(logits, label), torch.nn.functional.cross_entropy(logits, label[:, 0]))

    workflow = prepare("Training", **options("wbc", tmp_path, iel_warmup=4, epochs=6))
    trainer, layer = (workflow.parser.get_parsed_content(key) for key in ("train#trainer", "layer"))
    seen = []
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: seen.append(layer.share))
    workflow.run()
    assert seen == pytest.approx([0, 0, 1 / 3, 2 / 3, 1, 1])
    assert layer.dt == 0.1


def test_curve_motion_on_disc_and_cup_and_convexity_by_region(tmp_path):
    overrides = options("refuge", tmp_path, regions=[[1, 2], [2]], epochs=1)
    workflow = run("Training", **overrides)
    assert workflow.parser.get_parsed_content("evolution").regions == ((1, 2), (2,))
    assert workflow.parser.get_parsed_content("layer").steps == 20
    run("Evaluation", **overrides, section="test")
    header = (tmp_path / "evaluation" / "cases.csv").read_text().splitlines()[0]
    assert "convexity_rim+cup" in header
    assert "convexity_cup" in header
    assert "convexity_rim," not in header
    hull = {**overrides, "smoothing": "@hull_of_prediction", "hull_components": "false", "section": "test"}
    run("Evaluation", **hull, report_dir=str(tmp_path / "hull"))
    with (tmp_path / "hull" / "cases.csv").open(newline="", encoding="utf-8") as stream:
        assert all(float(row["convexity_rim+cup"]) > 0.9 for row in csv.DictReader(stream))


@pytest.mark.parametrize(("name", "more"), [("wbc", {}), ("drive", {"noise_fraction": 0.3}), ("hippocampus", {})])
def test_guided_diffusion_gets_the_image_that_the_network_saw(name, more, tmp_path):
    guided = {"_target_": "monai_iels.GuidedDiffusion", "spacing": "@iel_spacing"}
    more |= {"augmentation": [{"_target_": "RandFlipd", "keys": "@spatial_keys", "prob": 0.5}]}
    overrides = options(name, tmp_path, epochs=1, evolution=guided, pictures=True, iel_warmup=0, **more)
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
    options_ = options("hippocampus", tmp_path, epochs=1, evolution=heat, iel_warmup=0, iel_gain=15)
    layer = run("Training", **options_).parser.get_parsed_content("layer")
    assert layer.evolution.spacing == (float("inf"), float("inf"), 1.0)
    assert layer.gains() == pytest.approx({3: 15})
    options_.update(epochs=2, resume=True)
    assert len(history(tmp_path)) == 1
    run("Training", **options_)
    assert len(history(tmp_path)) == 2


def test_drive_is_judged_inside_the_field_of_view(trained, tmp_path):
    scores = {}
    for name, more in (("inside", {}), ("everywhere", {"inside": {"_target_": "Identityd", "keys": "label"}})):
        overrides = options("drive", trained / "drive", report_dir=str(tmp_path / name), **more)
        run("Evaluation", **overrides)
        with (tmp_path / name / "summary.csv").open(newline="", encoding="utf-8") as stream:
            scores[name] = {row["metric"]: float(row["mean"]) for row in csv.DictReader(stream)}
    assert scores["inside"]["roughness"] != scores["everywhere"]["roughness"]
    parser = prepare("Training", **options("drive", tmp_path)).parser
    assert len(parser.get_parsed_content("train#dataset")) == 4 * 2


def test_nan_ends_a_training_with_its_likely_cause(tmp_path):
    overrides = options("wbc", tmp_path, iel_spacing=0.05, iel_steps=40)
    workflow = prepare("Training", **overrides)
    with pytest.warns(UserWarning, match="amplifies up to"), pytest.raises(monai_iels.runs.RunError) as caught:
        workflow.run()
    stopped = str(caught.value)
    assert stopped.startswith("The loss became NaN or infinite in epoch 1. The layer amplifies up to ")
    assert "set iel_gain to 15" in stopped
    assert not (tmp_path / "last.pt").exists()


# mistakes


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
    overrides = options("wbc", tmp_path, resume="false", noise_shared="False", track="true", amp="false")
    workflow = prepare("Training", **overrides)
    assert [workflow[key] for key in ("noise_shared", "amp")] == [False, False]
    assert [workflow.options[key] for key in ("resume", "track")] == [False, True]


def test_resume_after_the_end(trained, tmp_path):
    shutil.copytree(trained / "wbc", tmp_path / "out")
    run("Training", **options("wbc", tmp_path / "out", resume=True))
    assert len(history(tmp_path / "out")) == 2
    run("Training", **options("wbc", tmp_path / "out", resume=True, epochs=3))
    assert len(history(tmp_path / "out")) == 3


def test_an_override_of_a_component_is_carried_to_evaluation_and_inference(tmp_path):
    overrides = {"intensity#a_max": 65535.0, "network_def#act": "RELU"}
    run("Training", **options("wbc", tmp_path, epochs=1), **overrides)
    for name in ("evaluate", "inference"):
        args = json.loads((tmp_path / f"{name}.json").read_text())
        assert args["intensity"]["a_max"] == 65535.0
        assert args["network_def"]["act"] == "RELU"


def test_equal_names_are_refused_before_anything_is_written(trained, tmp_path):
    for name in ("a.png", "a.jpg"):
        Image.fromarray(np.zeros((40, 40, 3), np.uint8)).save(tmp_path / name)
    args = json.loads((trained / "wbc" / "inference.json").read_text())
    with pytest.raises(SystemExit) as caught:
        run(**{**args, "dataset_dir": str(tmp_path), "output_dir": str(tmp_path / "out")})
    assert "a.png: their predictions would have the same name" in str(caught.value.code)
    assert not (tmp_path / "out").exists()


def test_inference_agrees_with_evaluation_on_an_image_of_another_size(trained, tmp_path):
    """Images are drawn with 48 pixels and trained on with 32; both judge at the same scale."""
    workflow = prepare("Training", **options("wbc", trained / "wbc"))
    case = workflow.parser.get_parsed_content("datalists")["validation"][0]
    args = json.loads((trained / "wbc" / "inference.json").read_text())
    run(**{**args, "dataset_dir": case["image"], "output_dir": str(tmp_path)})
    found = np.asarray(Image.open(next(tmp_path.glob("*_label.png"))))
    network = workflow.parser.get_parsed_content("network_def").eval()
    network.load_state_dict(torch.load(trained / "wbc" / "model.pt", weights_only=True))
    image = workflow.parser.get_parsed_content("validate#dataset")[0]["image"].as_tensor()
    with torch.no_grad():
        expected = network(image[None]).argmax(1)[0].T.float()
    expected = torch.nn.functional.interpolate(expected[None, None], found.shape, mode="nearest")[0, 0].numpy()
    assert (np.array([0, 128, 255])[expected.astype(int)] == found).mean() > 0.97


# interruption


def start(tmp_path, output, *arguments):
    overrides = options("drive", output, epochs=4, cache_dir=str(tmp_path / "cache"))
    command = ["run", "--workflow_name", "monai_iels.Training", *words(overrides), *arguments]
    return Program("monai.bundle", *command, stdout=tmp_path / f"{output.name}.log")


def test_kill_and_resume_is_bit_identical(tmp_path):
    """DRIVE has augmentation and a shuffled order; a run is killed in mid-epoch, and its last checkpoint cut short."""
    through, killed = tmp_path / "through", tmp_path / "killed"
    assert start(tmp_path, through).wait() == 0
    process = start(tmp_path, killed)
    while not (killed / "previous.pt").exists() and process.poll() is None:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert len(history(killed)) < 4
    last = killed / "last.pt"
    if last.exists():
        last.write_bytes(last.read_bytes()[:1000])
    assert start(tmp_path, killed, "--resume", "True").wait() == 0
    log = (tmp_path / "killed.log").read_text()
    assert "Resuming after epoch" in log
    for name in ("model.pt", "last.pt"):
        one, two = (torch.load(folder / name, weights_only=True) for folder in (through, killed))
        torch.testing.assert_close(one, two, rtol=0, atol=0)
    rows = [[{k: v for k, v in row.items() if k != "seconds"} for row in history(f)] for f in (through, killed)]
    assert rows[0] == rows[1]


def test_resuming_nothing_begins_anew_and_the_next_training_moves_it_aside(tmp_path):
    for epochs, resume in ((1, True), (2, False)):
        run("Training", **options("wbc", tmp_path, epochs=epochs, resume=resume))
    assert len(history(tmp_path)) == 2
    assert len(history(tmp_path / "earlier" / "1")) == 1
    assert (tmp_path / "earlier" / "1" / "model.pt").exists()


def test_one_training_in_a_folder_at_a_time(tmp_path):
    (tmp_path / "out").mkdir()
    with FileLock(tmp_path / "out" / ".training.lock"), pytest.raises(monai_iels.runs.RunError) as caught:
        run("Training", **options("wbc", tmp_path / "out"))
    assert str(caught.value).startswith(f"another training is running in {tmp_path / 'out'}; wait for it")
    assert {path.name for path in (tmp_path / "out").iterdir()} <= {".training.lock", "cache"}


# several processes

RANKS = """
import json, sys
import torch
import monai.bundle
import monai_iels.handlers
overrides, output = json.loads(sys.argv[1])
torch.set_num_threads(1)
workflow = monai.bundle.create_workflow("monai_iels.Training", **overrides)
parser = workflow.parser
trainer, evaluator = (parser.get_parsed_content(k) for k in ("train#trainer", "validate#evaluator"))
network = parser.get_parsed_content("network_def")
seen = {"cases": []}
def first(engine):
    if engine.state.iteration == 1:
        seen["loss"] = float(engine.state.output["loss"])
        seen["gradients"] = [p.grad.clone() for p in network.parameters()]
from ignite.engine import Events
trainer.add_event_handler(Events.ITERATION_COMPLETED, first)
evaluator.add_event_handler(Events.ITERATION_COMPLETED, lambda e: seen["cases"].extend(
    item["image"].meta["filename_or_obj"] for item in e.state.batch))
workflow.run()
rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
try:
    seen["share of 31"] = monai_iels.handlers.batch_size_per_process(31)
except ValueError as error:
    seen["share of 31"] = str(error)
seen["dice"] = evaluator.state.metrics["val_mean_dice"]
torch.save(seen, f"{output}-{rank}.pt")
workflow.finalize()
"""


def test_two_processes_do_what_one_does(tmp_path):
    (tmp_path / "ranks.py").write_text(RANKS)
    seen = {}
    for count in (1, 2):
        overrides = options("wbc", tmp_path / f"out{count}", epochs=1, batch_size=30, sample_count=33)
        overrides.update(cache_dir=str(tmp_path / "cache"))
        job = json.dumps([overrides, str(tmp_path / f"seen{count}")])
        run_ranks(tmp_path / "ranks.py", job, count=count, stdout=tmp_path / "log")
        seen[count] = [torch.load(tmp_path / f"seen{count}-{rank}.pt") for rank in range(count)]
    (one,), two = seen[1], seen[2]
    assert sum(s["loss"] for s in two) / 2 == pytest.approx(one["loss"], abs=1e-5)
    for a, b, c in zip(one["gradients"], two[0]["gradients"], two[1]["gradients"], strict=True):
        torch.testing.assert_close(b, c)
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert two[0]["dice"] == two[1]["dice"] == pytest.approx(one["dice"], abs=0.01)
    assert sorted(two[0]["cases"] + two[1]["cases"]) == sorted(one["cases"])
    assert len(history(tmp_path / "out2")) == 1
    assert one["share of 31"] == 31
    assert {s["share of 31"] for s in two} == {"--batch_size must be a multiple of the 2 processes, got 31"}


# from anywhere


def test_from_another_folder_with_spaces_and_a_relative_root(tmp_path):
    place = tmp_path / "a folder with spaces"
    place.mkdir()
    shutil.copytree(BUNDLES / "wbc", place / "my bundle")
    arguments = ["--workflow_name", "monai_iels.Training", "--bundle_root", "my bundle"]
    small = {k: v for k, v in options("wbc", "").items() if k not in ("bundle_root", "output_dir")}
    done = command(*arguments, *words({**small, "epochs": 1}), cwd=place)
    assert done.returncode == 0, done.stderr
    assert [p.name for p in place.iterdir()] == ["my bundle"]
    assert (place / "my bundle" / "eval" / "model.pt").exists()
    assert done.stdout.startswith("=== SYNTHETIC IMAGES")
    assert noise(done) == []
    step = re.search(r"evaluate it case by case: .* -m monai.bundle run (--args_file '[^']+')", done.stdout)[1]
    log = tmp_path / "log"
    assert Program("monai.bundle", "run", "--args_file", step.split("'")[1], stdout=log, cwd=place).wait() == 0, log
    assert (place / "my bundle" / "eval" / "evaluation" / "cases.csv").exists()
    assert "deprecated" not in log.read_text()


# real data


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
