# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""DRIVE: retinal vessels with their field of view."""

import shutil
from pathlib import Path

import numpy as np
from data_sets import only_problem, read_drive
from PIL import Image


def test_a_case_has_the_field_of_view_and_no_vessel_outside_of_it(drawn):
    datalists = read_drive(drawn / "drive")
    for case in (datalists["training"][0], datalists["validation"][0]):
        assert set(case) == {"image", "label", "fov"}
        label, fov = (np.asarray(Image.open(case[key]).convert("L")) > 0 for key in ("label", "fov"))
        assert not (label & ~fov).any()
        assert label.any()
    assert [Path(c["image"]).name for c in datalists["training"]] == ["21_training.tif", "22_training.tif"]


def test_the_second_observer_is_passed_over_and_withheld_test_labels_are_named(copy, tmp_path):
    root = copy("drive")
    expected = read_drive(root)
    shutil.copytree(root / "test" / "1st_manual", root / "test" / "2nd_manual")
    assert read_drive(root) == expected
    shutil.rmtree(root / "test" / "1st_manual")
    problem = only_problem("drive", root, tmp_path)
    assert problem.kind == "missing"
    assert problem.file.endswith("1st_manual")


def test_the_folder_of_one_section_alone_is_refused(copy, tmp_path):
    root = copy("drive") / "training"
    problem = only_problem("drive", root, tmp_path)
    assert "no folder 'test' with images/*_test.tif here, only 1st_manual, images, mask" in problem.problem
