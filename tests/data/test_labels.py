# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Values of label files: which stand for which class, and what accepts others."""

import json
import re

import nibabel
import numpy as np
import pytest
import torch
from data_sets import GREY, labels, truncate, write_labels
from monai.data import NibabelReader

from monai_iels.data import IGNORED, DataError, LabelValuesd, LoadFiled, check_labels


def test_bytes_become_classes_and_other_values_are_refused():
    label = torch.tensor([0, 128, 255, 128], dtype=torch.uint8)
    classes = LabelValuesd("label", [0, 128, 255])({"label": label})["label"]
    torch.testing.assert_close(classes, torch.tensor([0, 1, 2, 1], dtype=torch.uint8))
    with pytest.raises(DataError, match="has the values 77, but only 0, 128, 255 stand for classes"):
        LabelValuesd("label", [0, 128, 255])({"label": torch.tensor([0, 77, 255], dtype=torch.uint8)})


def test_all_labels_with_stray_values_are_named_with_what_accepts_them(tmp_path):
    datalists = write_labels(tmp_path, {"a.png": [1], "b.png": [255], "c.png": [1, 254], "d.png": [0]})
    with pytest.raises(DataError) as caught:
        check_labels(datalists, labels([0, 255]))
    (problem,) = caught.value.problems
    assert problem.file == str(tmp_path / "labels")
    assert set(re.findall(r"(\w+\.png) \(([\d, ]+)\)", problem.problem)) == {("a.png", "1"), ("c.png", "1, 254")}
    assert "2 of 4 files" in problem.problem
    lines = [json.loads(line) for line in re.findall(r'--label_values "(.*?)"', problem.remedy)]
    assert lines == [[0, [255, 1, 254]]]
    check_labels(datalists, labels(lines[0]))
    assert '--ignored_values "[1, 254]"' in problem.remedy
    check_labels(datalists, labels([0, 255], [1, 254]))


def test_a_wrong_guess_of_the_values_is_answered_with_the_right_ones(tmp_path):
    datalists = write_labels(tmp_path, {"a.png": [0, 128, 255], "b.png": [0, 128]})
    with pytest.raises(DataError, match=r"all 2 files .* 127 is in no file.* label_values: \[0, 128, 255\]"):
        check_labels(datalists, labels([0, 127, 255]))
    check_labels(datalists, labels([0, 128, 255]))


def test_ignored_values_are_not_stray_and_become_255(tmp_path):
    datalists = write_labels(tmp_path, {"a.png": [1], "b.png": [7, 255], "c.png": [0]})
    check_labels(datalists, labels([0, 1], [7, 255]))
    with pytest.raises(DataError, match="values other than 0, 1 and, for ignored pixels, 7: b") as caught:
        check_labels(datalists, labels([0, 1], [7]))
    assert '--ignored_values "[7, 255]"' in str(caught.value)
    loaded = LoadFiled("label", GREY)({"label": str(tmp_path / "labels" / "b.png")})
    label = LabelValuesd("label", [0, 1], ignored=[7, 255])(loaded)["label"]
    assert label[0, :3, 0].tolist() == [IGNORED, IGNORED, 0]


@pytest.mark.parametrize(
    ("values", "ignored", "sentence"),
    [
        ([0, 255], [255], "label_values: 255 is there 2 times; keep it once, or in ignored_values"),
        ([0, 1], [0.5], r"ignored_values must be a list of whole numbers, such as \[255\], got \[0\.5\]"),
        ([0, 1], "x", "ignored_values must be a list of whole numbers"),
        ([0, 1], 255.0, "ignored_values must be a list of whole numbers"),
        (list(range(256)), [], "label_values must have at most 255 classes, since 255 marks ignored pixels, got 256"),
    ],
)
def test_ignored_values_that_are_no_numbers_or_classes_are_refused(values, ignored, sentence):
    with pytest.raises(ValueError, match=sentence):
        LabelValuesd("label", values, ignored)
    LabelValuesd("label", list(range(255)), [255])


def test_many_stray_values_are_not_proposed_as_classes(tmp_path):
    datalists = write_labels(tmp_path, {"a.png": range(9), "b.png": [255], "c.png": [0]})
    with pytest.raises(DataError, match="8 different values, as in a mask that was resized") as caught:
        check_labels(datalists, labels([0, 255]))
    assert "--label_values" not in str(caught.value)


@pytest.mark.parametrize(("strays", "proposed"), [([1, 2, 3, 4, 5], True), ([1, 2, 3, 4, 5, 6], False)])
def test_a_few_stray_values_are_proposed_as_classes(strays, proposed, tmp_path):
    datalists = write_labels(tmp_path, {"a.png": strays, "b.png": [255], "c.png": [0]})
    with pytest.raises(DataError) as caught:
        check_labels(datalists, labels([0, 255]))
    assert ("--label_values" in str(caught.value)) is proposed


def test_fractions_are_not_proposed_as_classes(tmp_path):
    for number in range(2):
        label = np.full((4, 5, 6), number / 2)
        nibabel.save(nibabel.Nifti1Image(label, np.eye(4)), tmp_path / f"{number}.nii")
    datalists = {"training": [{"label": str(tmp_path / f"{number}.nii")} for number in range(2)]}
    with pytest.raises(DataError, match=r"1\.nii \(0\.5\)\. These are 1 different values, as in a mask"):
        check_labels(datalists, labels([0, 1], reader=NibabelReader()))


def test_only_label_keys_are_checked_and_unreadable_labels_are_named_too(tmp_path):
    datalists = write_labels(tmp_path, {"a.png": [7], "b.png": [255], "c.png": [0]})
    check_labels(datalists, [])
    check_labels(datalists, labels([0, 255], key="fov"))
    check_labels(datalists, [LoadFiled("label", GREY)])
    truncate(tmp_path / "labels" / "b.png")
    with pytest.raises(DataError, match=r"(?s)b\.png: the file cannot be read .Truncated.*a\.png \(7\)"):
        check_labels(datalists, labels([0, 255]))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (5, "must be one whole number or list of them per class"),
        ("0, 255", "got '0, 255'"),
        ([], r"got \[\]"),
        ([0, "a"], "got"),
        ([0, 2.5], "got"),
        ([0, True], "got"),
        ([0, [1, 255], 255], "255 is there 2 times"),
    ],
)
def test_label_values_that_are_not_one_per_class_are_refused(values, sentence):
    with pytest.raises(ValueError, match=f"label_values.*{sentence}"):
        LabelValuesd("label", values)
