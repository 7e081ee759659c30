# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The answers for known errors."""

import math

import numpy as np
import pytest
import torch
from advice.labels import disc, spoil
from PIL import Image

from monai_iels import BiteLabel, CorruptLabel, GrowLabel, MarkovLabel, PolygonLabel, WobbleLabel
from monai_iels.advice import advise, diagnose, labels_in_folder, labels_of_source, measure, settings_for
from monai_iels.data import SOURCES


def test_one_label_is_too_few_to_be_sure():
    found = diagnose([measure(disc(), (1.0, 1.0))], math.nan)
    assert found.answer == "nothing to be seen"
    assert found.certainty == "unsure: 1 label is too few"


def test_noise_in_labels_of_different_sizes_may_repeat(tmp_path):
    (tmp_path / "labels").mkdir()
    for number in range(6):
        label = np.pad(disc(), ((0, number), (0, 1)))
        noisy = CorruptLabel(2, window=2, fraction=0.1)(torch.from_numpy(label)[None].float())
        Image.fromarray(np.asarray(noisy)[0].astype(np.uint8)).save(tmp_path / "labels" / f"{number}.png")
    advice = advise(labels_in_folder(tmp_path / "labels"))
    assert advice.diagnosis.answer == "noise of each image"
    assert "different sizes" in str(advice)
    assert [setting.name for setting in advice.settings] == [
        setting.name for setting in settings_for("noise at the same places")
    ]


ERRORS = {
    "clean": (None, "nothing to be seen"),
    "grown": (GrowLabel(2.0), "nothing to be seen"),
    "same places": (CorruptLabel(3, window=2, fraction=0.1, shared=True), "noise at the same places"),
    "each image": (CorruptLabel(3, window=2, fraction=0.1, shared=False), "noise of each image"),
    "ragged": (MarkovLabel(100, 0.5, 0.05, smoothing=1.0), "ragged outlines"),
    "polygons": (PolygonLabel(26), "coarse polygons"),
    "bites": (BiteLabel(2, 8.0), "parts left out"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_the_answer_for_an_error(name, cells, tmp_path):
    error, answer = ERRORS[name]
    spoil(cells, error, tmp_path / "labels")
    advice = advise(labels_in_folder(tmp_path / "labels"))
    assert advice.diagnosis.answer == answer
    assert answer in str(advice)
    advice.save(tmp_path / "out", tmp_path)
    assert Image.open(tmp_path / "out" / "labels.png").size[0] > 1000


def test_slices_that_disagree_are_seen(tmp_path):
    root = tmp_path / "volumes"
    SOURCES["hippocampus"].synthesize(root, 6)
    files = labels_of_source("hippocampus", root)
    error = WobbleLabel(2.0, math.inf, slices=1)
    wrong = type(files)(files.files, lambda file: error(files.read(file)))
    assert advise(files).diagnosis.answer == "nothing to be seen"
    advice = advise(wrong)
    assert advice.diagnosis.answer == "slices that disagree"
    advice.save(tmp_path / "out", root)
    assert (tmp_path / "out" / "labels.png").stat().st_size > 10_000
