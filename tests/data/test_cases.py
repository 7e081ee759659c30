# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Cases: matched by their names, split by seed, told apart by their contents."""

import os
import re

import pytest
from data_sets import READERS, only_problem, read_wbc

from monai_iels.data import SOURCES, DataError, checked_datalists, fingerprint


@pytest.mark.parametrize("name", ["wbc", "dsb2018", "hippocampus"])
def test_the_split_depends_on_the_seed_alone(name, drawn, tmp_path):
    lists = [READERS[name](drawn / name, seed=seed, cache_dir=tmp_path) for seed in (0, 0, 1, 2, 3)]
    assert lists[0] == lists[1]
    assert len({str(split) for split in lists}) > 1
    assert len({fingerprint(split) for split in lists}) == 1


@pytest.mark.parametrize("count", [4, 5, 9])
def test_few_cases_still_have_a_validation_section(count, tmp_path):
    SOURCES["wbc"].synthesize(tmp_path / "few", count, size=24)
    assert len(read_wbc(tmp_path / "few")["validation"]) == 1


def test_the_fingerprint_changes_when_two_files_swap_their_contents(copy):
    root = copy("wbc")
    before = fingerprint(read_wbc(root))
    first, second = (root / "Dataset 1" / f"00{number}.bmp" for number in (1, 2))
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    assert fingerprint(read_wbc(root)) != before


@pytest.mark.parametrize("name", ["wbc", "drive", "refuge", "hippocampus"])
def test_an_image_whose_mask_is_missing_is_named(name, copy, tmp_path):
    root = copy(name)
    case = READERS[name](root)["validation"][0]
    os.unlink(case["label"])
    problem = only_problem(name, root, tmp_path)
    assert problem.kind == "unmatched"
    assert problem.file == case["image"]
    with pytest.raises(DataError, match=re.escape(problem.file)):
        checked_datalists(name, root)


def test_a_folder_without_any_mask_is_one_problem(copy, tmp_path):
    root = copy("wbc")
    for mask in root.rglob("*.png"):
        mask.unlink()
    problem = only_problem("wbc", root, tmp_path)
    assert problem.problem == "there are no files named <id>.png"


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("wbc", "Dataset 1/notes.txt"),
        ("wbc", "Dataset 1/002 (copy).bmp"),
        ("dsb2018", "stage1_train/notes.txt"),
        ("drive", "training/images/21_training.png"),
        ("refuge", "Training400/Glaucoma/other.jpg"),
        ("hippocampus", "Task04_Hippocampus/imagesTr/hippocampus_999.nii.gz"),
    ],
)
def test_a_file_that_belongs_to_no_case_is_named(name, file, copy, tmp_path):
    root = copy(name)
    (root / file).write_bytes(b"something")
    problem = only_problem(name, root, tmp_path)
    assert problem.file == str(root / file)
    assert problem.kind in ("extra", "unmatched")
