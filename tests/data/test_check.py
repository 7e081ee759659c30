# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The checker: every file that is damaged is named, all at once, and nothing is touched."""

import dataclasses
import json
import os
import re
import shutil
from pathlib import Path

import nibabel
import numpy as np
import pytest
from data_sets import (
    DAMAGED,
    READERS,
    empty,
    link_to_itself,
    loading_of,
    main,
    only_problem,
    read_hippocampus,
    read_wbc,
    truncate,
    web_page,
)
from PIL import Image
from programs import Program

from monai_iels.data import SOURCES, DataError, check_source, checked_datalists


@pytest.mark.parametrize("damage", [truncate, empty, web_page, link_to_itself])
@pytest.mark.parametrize("file", DAMAGED)
def test_a_damaged_file_is_named(file, damage, copy, tmp_path):
    name, pattern = DAMAGED[file]
    root = copy(name)
    path = sorted(root.glob(pattern))[0]
    damage(path)
    problem = only_problem(name, root, tmp_path)
    assert problem.file == str(path)
    assert problem.kind == "unreadable"


@pytest.mark.parametrize("name", ["wbc", "refuge", "drive"])
def test_a_mask_of_another_size_than_its_image_is_named(name, copy, tmp_path):
    root = copy(name)
    case = READERS[name](root)["training"][0]
    Image.fromarray(np.zeros((30, 20), np.uint8)).save(case["label"])
    problem = only_problem(name, root, tmp_path)
    assert problem.kind == "size"
    assert problem.file == case["label"]
    assert problem.problem.startswith("its size is 20 x 30, but ")
    with pytest.raises(DataError, match="20 x 30"):
        checked_datalists(name, root)


def test_a_label_of_another_size_than_its_volume_is_named(copy, tmp_path):
    root = copy("hippocampus")
    case = read_hippocampus(root)["training"][0]
    nibabel.save(nibabel.Nifti1Image(np.zeros((4, 5, 6), np.uint8), np.eye(4)), case["label"])
    assert "its size is 4 x 5 x 6, but" in only_problem("hippocampus", root, tmp_path).problem


def test_a_mask_with_another_size_and_other_values_has_two_problems(copy):
    root = copy("wbc")
    mask = read_wbc(root)["training"][0]["label"]
    Image.fromarray(np.full((30, 20), 77, np.uint8)).save(mask)
    problems = check_source(SOURCES["wbc"], root).problems
    assert [(problem.kind, problem.file) for problem in problems] == [("size", mask), ("values", os.path.dirname(mask))]
    assert f"{os.path.basename(mask)} (77)" in str(problems[1])


@pytest.mark.parametrize("name", ["wbc", "drive", "refuge"])
def test_a_value_that_stands_for_no_class_is_named(name, copy, tmp_path):
    root = copy(name)
    case = READERS[name](root)["training"][0]
    pixels = np.array(Image.open(case["label"]).convert("L"))
    pixels[3, 4] = 77
    Image.fromarray(pixels).save(case["label"])
    problem = only_problem(name, root, tmp_path)
    assert problem.kind == "values"
    folder, file = os.path.split(case["label"])
    assert problem.file == folder
    known = {"wbc": "0, 128, 255", "drive": "0, 1, 255", "refuge": "255, 128, 0"}[name]
    assert re.fullmatch(rf"1 of \d+ files have values other than {known}: {file} \(77\)", problem.problem)
    checked_datalists(name, root)
    with pytest.raises(RuntimeError) as caught:
        loading_of(name)(case)
    sentence = f"{case['label']}: the mask has the values 77, but only {known} stand for classes."
    assert str(caught.value.__cause__).startswith(sentence)


def test_a_volume_with_nan_is_named(copy, tmp_path):
    root = copy("hippocampus")
    case = read_hippocampus(root)["training"][0]
    label = nibabel.load(case["label"])
    nibabel.save(nibabel.Nifti1Image(np.full(label.shape, np.nan), label.affine), case["image"])
    assert re.fullmatch(r"the file has \d+ NaN or infinite values", only_problem("hippocampus", root, tmp_path).problem)


def test_all_problems_are_reported_at_once(copy):
    root = copy("wbc") / "Dataset 1"
    truncate(root / "001.bmp")
    empty(root / "002.png")
    (root / "003.png").unlink()
    (root / "notes.txt").write_text("text")
    report = check_source(SOURCES["wbc"], root)
    assert sorted(Path(p.file).name for p in report.problems) == ["001.bmp", "002.png", "003.bmp", "notes.txt"]
    with pytest.raises(DataError, match=r"(?s)notes\.txt.*003\.bmp") as caught:
        checked_datalists("wbc", root)
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize("mode", ["I;16", "RGBA", "RGB"])
def test_a_mask_that_would_lose_values_is_refused(mode, copy, tmp_path):
    root = copy("wbc")
    case = read_wbc(root)["training"][0]
    mask = Image.open(case["label"]).convert("L")
    colored = Image.merge("RGB", (mask, Image.new("L", mask.size), mask))
    wide = Image.fromarray(np.asarray(mask).astype(np.uint16) * 257)
    clear = mask.convert("RGBA")
    clear.putpixel((0, 0), (0, 0, 0, 0))
    kinds = {"I;16": (wide, "has the mode I;16"), "RGBA": (clear, "is transparent in places")}
    kinds |= {"RGB": (colored, "has colors")}
    kinds[mode][0].save(case["label"])
    assert kinds[mode][1] in only_problem("wbc", root, tmp_path).problem
    with pytest.raises(RuntimeError):
        loading_of("wbc")(case)


@pytest.mark.parametrize("file", ["wbc label.png", "hippocampus image.nii.gz"])
def test_a_wrong_checksum_inside_of_a_file_is_found(file, copy, tmp_path):
    name, pattern = DAMAGED[file]
    root = copy(name)
    path = sorted(root.glob(pattern))[0]
    data = bytearray(path.read_bytes())
    data[-6] ^= 0xFF  # in the checksum, not in the pixels
    path.write_bytes(data)
    assert only_problem(name, root, tmp_path).file == str(path)


def test_a_label_in_another_place_than_its_volume_is_named(copy, tmp_path):
    root = copy("hippocampus")
    case = read_hippocampus(root)["training"][0]
    label = nibabel.load(case["label"])
    nibabel.save(nibabel.Nifti1Image(np.asarray(label.dataobj), np.diag([2.0, 1, 1, 1])), case["label"])
    assert only_problem("hippocampus", root, tmp_path).problem.startswith(
        "its affine (position and axes) differs from that of hippo"
    )


def test_a_label_of_four_axes_is_named(copy, tmp_path):
    root = copy("hippocampus")
    case = read_hippocampus(root)["training"][0]
    nibabel.save(nibabel.Nifti1Image(np.zeros((4, 5, 6, 2), np.uint8), np.eye(4)), case["label"])
    assert only_problem("hippocampus", root, tmp_path).problem.endswith("has the shape 4 x 5 x 6 x 2")


def test_a_report_says_that_cases_are_missing_only_if_they_are(drawn, monkeypatch):
    sentence = (
        "The official release has 270 training, 30 validation: if you did not choose a part of it, some are missing."
    )
    assert str(check_source(SOURCES["wbc"], drawn / "wbc")).splitlines() == [
        f"wbc in {drawn / 'wbc'}: 20 files opened; 9 training, 1 validation.",
        sentence,
        "No problem found.",
    ]
    complete = dataclasses.replace(SOURCES["wbc"], counts={"training": 9, "validation": 1})
    assert str(check_source(complete, drawn / "wbc")).splitlines()[1:] == ["No problem found."]
    nothing = str(check_source(SOURCES["wbc"], drawn / "none"))
    assert nothing.splitlines()[1:] == [f"wbc in {drawn / 'none'}: 0 files opened; no cases.", "1 problem found."]


def test_the_command_says_what_is_wrong_by_its_exit_code_and_in_json(copy, capsys):
    root = copy("wbc")
    assert main(["check", "wbc", "--root", str(root)]) == 0
    assert "9 training, 1 validation" in capsys.readouterr().out
    empty(root / "Dataset 1" / "001.png")
    assert main(["check", "wbc", "--root", str(root), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert report["problems"][0]["kind"] == "unreadable"
    assert report["problems"][0]["file"].endswith("001.png")
    assert report["official"] == {"training": 270, "validation": 30}


def test_the_command_prints_nothing_but_json_where_an_archive_is_unpacked(drawn, tmp_path, capfd):
    shutil.make_archive(str(tmp_path / "stage1_train"), "zip", drawn / "dsb2018")
    arguments = ["check", "dsb2018", "--root", str(tmp_path), "--json", "--cache_dir", str(tmp_path / "cache")]
    assert main(arguments) == 0
    assert json.loads(capfd.readouterr().out)["ok"] is True


def test_the_command_runs_from_any_folder(copy, tmp_path):
    log = tmp_path / "log"
    command = ["data", "check", "wbc", "--root", copy("wbc").name]
    assert Program("monai_iels", *command, stdout=log, cwd=tmp_path).wait() == 0
    assert log.read_text().endswith("No problem found.\n")


def test_an_unknown_data_set_or_folder_of_a_bundle_is_named(capsys):
    assert main(["check", "wcb", "--root", "."]) == 1
    assert capsys.readouterr().err.startswith("unknown data set 'wcb': choose one of wbc, ")
    assert main(["check", "bundles/mien", "--root", "."]) == 1
    assert capsys.readouterr().err.startswith("there is no folder bundles/mien: ")
