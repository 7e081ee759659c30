# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Evaluations: the numbers of the files on disk."""

import csv
import json
import re
import shutil
from pathlib import Path

import pytest
from cityscapesscripts.evaluation import evalPixelLevelSemanticLabeling as official
from helpers import (
    NAMES,
    history,
    options,
    prepare,
    run,
)
from PIL import Image

from monai_iels.data import SOURCES


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
    common = {"datalists#count": 4, "epochs": 1, "track": True, "pictures": False}
    run("Training", **options("wbc", tmp_path, **common))
    run("Evaluation", **options("wbc", tmp_path, **common))
    drawn = {file.name for file in tmp_path.rglob("*") if file.suffix in (".png", ".npz") and "cache" not in file.parts}
    assert drawn == {"curves.png"}
    assert {Path(word).name for word in re.findall(r"\S+\.(?:png|npz)", capsys.readouterr().out)} == {"curves.png"}


def test_curve_motion_on_disc_and_cup_and_convexity_by_region(tmp_path):
    overrides = options("refuge", tmp_path, regions=[[1, 2], [2]], epochs=1)
    workflow = run("Training", **overrides)
    assert workflow.parser.get_parsed_content("layer").evolution.regions == ((1, 2), (2,))
    assert workflow.parser.get_parsed_content("layer").steps == 20
    run("Evaluation", **overrides, section="test")
    header = (tmp_path / "evaluation" / "cases.csv").read_text().splitlines()[0]
    assert "convexity_rim+cup" in header
    assert "convexity_cup" in header
    assert "convexity_rim," not in header
    fill = {"_target_": "monai_iels.FillHulld", "keys": "pred", "regions": "@regions"}
    fill |= {"radius": 5.0, "components": False}
    classes = {"_target_": "AsDiscreted", "keys": "pred"}
    filled = [{**classes, "argmax": True}, fill, {**classes, "to_onehot": 3}]
    hull = {**overrides, "smoothing": {"_target_": "Compose", "transforms": filled}, "section": "test"}
    run("Evaluation", **hull, report_dir=str(tmp_path / "hull"))
    with (tmp_path / "hull" / "cases.csv").open(newline="", encoding="utf-8") as stream:
        assert all(float(row["convexity_rim+cup"]) > 0.9 for row in csv.DictReader(stream))


def test_drive_is_judged_inside_the_field_of_view(trained, tmp_path):
    scores = {}
    for name, more in (("inside", {}), ("everywhere", {"validate#inside": {"_target_": "Identityd", "keys": "label"}})):
        overrides = options("drive", trained / "drive", report_dir=str(tmp_path / name), **more)
        run("Evaluation", **overrides)
        with (tmp_path / name / "summary.csv").open(newline="", encoding="utf-8") as stream:
            scores[name] = {row["metric"]: float(row["mean"]) for row in csv.DictReader(stream)}
    assert scores["inside"]["roughness"] != scores["everywhere"]["roughness"]
    parser = prepare("Training", **options("drive", tmp_path)).parser
    assert len(parser.get_parsed_content("train#dataset")) == 4 * 2


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
