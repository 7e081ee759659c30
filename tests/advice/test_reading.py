# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Finding and reading labels."""

from pathlib import Path

import numpy as np
import torch
from advice.labels import disc
from helpers import BUNDLES
from PIL import Image

from monai_iels import WobbleLabel
from monai_iels.advice import labels_in_folder, labels_of_bundle, labels_of_source


def test_an_enlarged_label_is_read_in_its_own_pixels(tmp_path):
    small = np.asarray(WobbleLabel(2.0, 8.0)(torch.from_numpy(disc())[None].float()))[0].astype(np.uint8)
    (tmp_path / "labels").mkdir()
    for factor in (1, 2, 3):
        Image.fromarray(small.repeat(factor, 0).repeat(factor, 1)).save(tmp_path / "labels" / f"{factor}.png")
    files = labels_in_folder(tmp_path / "labels")
    own, twice, thrice = files.labels(3)
    assert (own.spacing, twice.spacing, thrice.spacing) == ((1, 1), (2, 2), (3, 3))
    np.testing.assert_array_equal(twice.classes, own.classes)
    np.testing.assert_array_equal(thrice.classes, own.classes)


def test_a_bundle_reads_its_labels_as_its_data_set_does(cells):
    of_bundle, of_source = labels_of_bundle(BUNDLES / "wbc", cells), labels_of_source("wbc", cells)
    assert [Path(file).name for file in of_bundle.files] == [Path(file).name for file in of_source.files]
    for ours, theirs in zip(of_bundle.labels(4), of_source.labels(4), strict=True):
        np.testing.assert_array_equal(ours.classes, theirs.classes)
        assert len(np.unique(ours.classes)) == 3
