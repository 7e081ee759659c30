# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Real data sets, where ``MONAI_IELS_DATA`` names the folder that has them."""

from data_sets import read_hippocampus, read_wbc, real

from monai_iels.data import SOURCES, check_source, fingerprint


def test_the_real_white_blood_cells_are_complete_and_sound():
    datalists = read_wbc(real("wbc"))
    assert {name: len(cases) for name, cases in datalists.items()} == {"training": 270, "validation": 30}
    assert not {c["image"] for c in datalists["training"]} & {c["image"] for c in datalists["validation"]}
    assert fingerprint(datalists) == SOURCES["wbc"].archive["contents"]
    report = check_source(SOURCES["wbc"], real("wbc"))
    assert report.problems == ()
    assert report.files == 600


def test_the_real_hippocampus_is_complete_and_sound():
    datalists = read_hippocampus(real("hippocampus"))
    assert fingerprint(datalists) == SOURCES["hippocampus"].archive["contents"]
    assert {name: len(cases) for name, cases in datalists.items()} == {"training": 208, "validation": 52}
    report = check_source(SOURCES["hippocampus"], real("hippocampus"))
    assert report.problems == ()
    assert report.files == 520
