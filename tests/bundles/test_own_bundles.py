# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Bundles of the user's own data, as the pages describe them."""

import json
import re
from pathlib import Path

import monai.bundle
import nibabel
import numpy as np
import pytest
from helpers import (
    BUNDLES,
    FEATURES,
    ROOT,
    corrupt,
    history,
    own_bundle,
    run,
)
from monai.bundle import ConfigParser
from PIL import Image

import monai_iels
import monai_iels.runs
from monai_iels.cli import main
from monai_iels.study import check_overrides, make_plan, read_study


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
    assert "20 % of the cases are for validation, chosen by `datalists#seed`." in readme
    assert "_target_" not in readme
    assert "--bundle_root bundles/mine" in readme
    assert "our hospital, not public" in readme + (tmp_path / "mine" / "docs" / "data_license.txt").read_text("utf-8")
    assert not re.search("wbc|WBC|GPL|None of", readme)
    out = {"bundle_root": str(file.parent), "output_dir": str(tmp_path / "out"), "features": FEATURES}
    out |= {"dataset_dir": str(tmp_path / "data"), "image_size": [32, 32], "learning_rate": 0.003}
    out |= {"epochs": 2, "iel_warmup": 0}
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
        "iel_warmup": 0,
        "label_error": corrupt(),
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
    for change in re.findall(r"`((?:image|network_def#in_channels|intensity|channel_def): [^`]+)`", section):
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
    assert set(problems) == {"unreadable", "values"}
    assert problems["unreadable"]["file"] == str(labels / "case5.png")
    assert "case3.png (7)" in problems["values"]["problem"]


def test_a_study_of_your_own_needs_no_presets(tmp_path):
    file = own_bundle(tmp_path)
    assert main(["bundle", "compose", str(tmp_path)]) == 0
    study = file.parent / "studies" / "layer.yaml"
    study.parent.mkdir()
    study.write_text("bundle: mine\nseeds: 1\ncolumns: {U-Net: {layer#steps: 0}}\n")
    found = read_study(study)
    check_overrides(found)
    (training,) = make_plan(found, tmp_path / "out", "cpu", str(tmp_path / "data"), None).trainings()
    assert training.arguments["features"] == [8, 16, 32, 64, 128, 8]
    assert training.arguments["iel_warmup"] == 3  # the bundle has 10 of 30 epochs
    (training,) = make_plan(found, tmp_path / "out", "full", str(tmp_path / "data"), None).trainings()
    assert "epochs" not in training.arguments
    (file.parent / "presets.yaml").write_text("cpu: {epochs: 3}\npaper: {layer#steps: 7}\n")
    (training,) = make_plan(found, tmp_path / "out", "cpu", str(tmp_path / "data"), None).trainings()
    assert training.arguments["epochs"] == 3
    assert "features" not in training.arguments
    (training,) = make_plan(found, tmp_path / "out", "paper", str(tmp_path / "data"), None).trainings()
    assert training.arguments["layer#steps"] == 0  # the variant goes first


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
