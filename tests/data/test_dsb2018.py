# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""2018 Data Science Bowl: one mask per nucleus, merged once."""

import multiprocessing
import os
import shutil
import signal
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from data_sets import SMALL, files_of_at_most, only_problem, read_dsb2018, real, truncate
from PIL import Image

from monai_iels.data import DataError, fingerprint


def test_masks_are_merged_once_and_again_where_one_changed(copy, tmp_path):
    root = copy("dsb2018")
    first = read_dsb2018(root, cache_dir=tmp_path)["training"]
    label = Path(first[0]["label"])
    masks = sorted((Path(first[0]["image"]).parents[1] / "masks").iterdir())
    pixels = [np.asarray(Image.open(mask)) for mask in masks]
    np.testing.assert_array_equal(np.asarray(Image.open(label)), np.maximum.reduce(pixels))
    state = label.stat().st_mtime_ns
    assert read_dsb2018(root, cache_dir=tmp_path)["training"] == first
    assert label.stat().st_mtime_ns == state
    Image.fromarray(np.full_like(pixels[0], 255)).save(masks[0])
    again = read_dsb2018(root, cache_dir=tmp_path)["training"][0]
    assert Path(again["label"]).name == label.name
    assert np.asarray(Image.open(again["label"])).min() == 255
    assert np.asarray(Image.open(label)).min() == 0


def test_an_interrupted_merge_leaves_nothing_that_passes_as_complete(copy, tmp_path, monkeypatch):
    root, cache = copy("dsb2018"), tmp_path / "cache"
    fast = np.maximum
    with monkeypatch.context() as slow:
        slow.setattr(np, "maximum", lambda *arguments: time.sleep(0.02) or fast(*arguments))
        process = multiprocessing.get_context("fork").Process(target=read_dsb2018, args=(root, 0, cache))
        process.start()
    while len(list(cache.glob(".unfinished-*/dsb2018-labels-*/*.png"))) < 3:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert 3 <= len(list(cache.glob(".unfinished-*/*/*.png"))) < SMALL["dsb2018"][0]
    assert not list(cache.glob("dsb2018-labels-*"))
    reference = read_dsb2018(root, cache_dir=tmp_path / "other")
    assert fingerprint(read_dsb2018(root, cache_dir=cache)) == fingerprint(reference)


def test_masks_of_different_size_are_not_merged(copy, tmp_path):
    root = copy("dsb2018")
    mask = sorted(next(root.glob("*/*/masks")).iterdir())[1]
    Image.fromarray(np.zeros((5, 7), np.uint8)).save(mask)
    with pytest.raises(DataError, match=rf"{mask.name}: its size is 7 x 5, but \w+\.png has \d+ x \d+\."):
        read_dsb2018(root, cache_dir=tmp_path)


def test_a_merge_names_a_truncated_mask(copy, tmp_path):
    root = copy("dsb2018")
    mask = sorted(root.glob("*/*/masks/*.png"))[4]
    truncate(mask)
    with pytest.raises(DataError, match=mask.name):
        read_dsb2018(root, cache_dir=tmp_path)


def test_all_bad_masks_are_named_before_a_merge_is_cached(copy, tmp_path):
    root = copy("dsb2018")
    masks = sorted(root.glob("*/*/masks/*.png"))
    for mask in (masks[0], masks[1], masks[-1]):
        truncate(mask)
    with pytest.raises(DataError) as caught:
        read_dsb2018(root, cache_dir=tmp_path)
    assert {p.file for p in caught.value.problems} == {str(masks[0]), str(masks[1]), str(masks[-1])}


def test_a_merge_to_a_full_disk_leaves_nothing(drawn, tmp_path):
    with files_of_at_most(60), pytest.raises(OSError, match=r"File too large: .*dsb2018-labels-"):
        read_dsb2018(drawn / "dsb2018", cache_dir=tmp_path)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
    merged = read_dsb2018(drawn / "dsb2018", cache_dir=tmp_path)
    assert all(Image.open(case["label"]).load() for case in merged["training"])


def test_a_case_without_masks_is_named(copy, tmp_path):
    root = copy("dsb2018")
    folder = next(root.glob("*/*/masks"))
    shutil.rmtree(folder)
    assert only_problem("dsb2018", root, tmp_path).file == str(folder.parent)


def test_an_image_with_another_name_than_its_folder_is_named(copy, tmp_path):
    root = copy("dsb2018")
    image = sorted(root.glob("*/*/images/*.png"))[0]
    image.rename(image.with_name("image.png"))
    problem = only_problem("dsb2018", root, tmp_path)
    assert problem.file == str(image.parents[1])
    assert problem.problem == "it must have images/<id>.png, named like it, and masks/*.png"


def test_a_tenth_of_the_real_data_is_read_and_merged(tmp_path):
    """A tenth of the archive: to merge all 29,461 masks takes a minute."""
    (tmp_path / "data").mkdir()
    kept = tmp_path / "data" / "stage1_train.zip"
    with zipfile.ZipFile(real("dsb2018") / "stage1_train.zip") as archive, zipfile.ZipFile(kept, "w") as part:
        folders = sorted({name.split("/")[0] for name in archive.namelist()})
        names = [name for name in archive.namelist() if name.split("/")[0] in folders[::10]]
        for name in names:
            part.writestr(name, archive.read(name))
    assert len(folders) == 670
    datalists = read_dsb2018(tmp_path / "data", cache_dir=tmp_path)
    assert {name: len(cases) for name, cases in datalists.items()} == {"training": 60, "validation": 7}
    values = set()
    for case in datalists["validation"]:
        image, label = Image.open(case["image"]), Image.open(case["label"])
        assert image.mode == "RGBA"
        assert image.size == label.size
        values |= set(np.unique(label))
    assert values == {0, 255}
    masks = list(tmp_path.glob("stage1_train-*/*/masks/*.png"))
    assert len(masks) == len([name for name in names if "/masks/" in name and name.endswith(".png")]) > 2000
