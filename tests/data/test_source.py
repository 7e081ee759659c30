# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Data sets: what their readers list, and the synthetic samples that stand in for them."""

import os
import shutil
import signal
import time
from pathlib import Path

import nibabel
import numpy as np
import pytest
from data_sets import READERS, SMALL, in_another_process, main, read_cityscapes, read_hippocampus, snapshot
from PIL import Image
from programs import Program

from monai_iels.data import SOURCES, case_files, check_source


@pytest.mark.parametrize("name", READERS)
def test_every_reader_lists_all_cases_of_its_synthetic_set(name, drawn, tmp_path):
    datalists = READERS[name](drawn / name, cache_dir=tmp_path)
    source = SOURCES[name]
    assert list(datalists) == list(source.counts)
    assert sum(map(len, datalists.values())) == SMALL[name][0]
    files = [file for cases in datalists.values() for case in cases for file in case_files(case)]
    assert len(set(files)) == len(files)
    assert all(os.path.isabs(file) and os.path.isfile(file) for file in files)
    for cases in datalists.values():
        assert cases
        assert [case["image"] for case in cases] == sorted(case["image"] for case in cases)
    assert datalists == READERS[name](drawn / name, cache_dir=tmp_path)
    assert str(check_source(source, drawn / name, tmp_path)).endswith("No problem found.")


def test_synthetic_labels_have_the_official_values(drawn, tmp_path):
    expected = {"wbc": {0, 128, 255}, "dsb2018": {0, 255}, "drive": {0, 255}, "refuge": {0, 128, 255}}
    for name, values in expected.items():
        for case in READERS[name](drawn / name, cache_dir=tmp_path)["training"]:
            assert set(np.unique(Image.open(case["label"]).convert("L"))) == values
    for case in read_hippocampus(drawn / "hippocampus")["training"]:
        label = nibabel.load(case["label"])
        assert set(np.unique(label.dataobj)) == {0, 1, 2}
        assert label.header.get_zooms() == (1, 1, 1)
        assert nibabel.aff2axcodes(label.affine) == ("R", "A", "S")
    for case in read_cityscapes(drawn / "cityscapes")["training"]:
        assert {7, 11, 26} < set(np.unique(Image.open(case["label"]))) <= {*range(34)}


def test_synthetic_files_have_the_official_formats(drawn):
    modes = {}
    for name in ("wbc", "dsb2018", "drive", "refuge", "cityscapes"):
        for path in (p for p in (drawn / name).rglob("*") if p.is_file()):
            with Image.open(path) as image:
                modes.setdefault(name, set()).add((path.suffix, image.format, image.mode))
    assert modes["wbc"] == {(".bmp", "BMP", "RGB"), (".png", "PNG", "L")}
    assert modes["dsb2018"] == {(".png", "PNG", "RGBA"), (".png", "PNG", "L")}
    assert {m[:2] for m in modes["drive"]} == {(".tif", "TIFF"), (".gif", "GIF")}
    assert modes["refuge"] == {(".jpg", "JPEG", "RGB"), (".bmp", "BMP", "L")}
    assert modes["cityscapes"] == {(".png", "PNG", "RGB"), (".png", "PNG", "L")}


@pytest.mark.parametrize("name", READERS)
def test_synthetic_files_are_the_same_for_one_seed_only(name, drawn, tmp_path):
    count, size = SMALL[name]
    SOURCES[name].synthesize(tmp_path / "same", count, seed=3, size=size)
    assert snapshot(tmp_path / "same") == snapshot(drawn / name)
    SOURCES[name].synthesize(tmp_path / "other", count, seed=4, size=size)
    one, other = (READERS[name](root, cache_dir=tmp_path) for root in (drawn / name, tmp_path / "other"))
    images = [{Path(c["image"]).read_bytes() for cases in lists.values() for c in cases} for lists in (one, other)]
    assert len(images[0] | images[1]) == 2 * count


def test_synthetic_files_are_the_same_in_another_process(drawn, tmp_path):
    (tmp_path / "script.py").write_text(
        "import sys, pathlib; from monai_iels.data import SOURCES\n"
        f"for name, (count, size) in {SMALL!r}.items():\n"
        "    SOURCES[name].synthesize(pathlib.Path(sys.argv[1]) / name, count, seed=3, size=size)"
    )
    assert Program(tmp_path / "script.py", tmp_path / "again").wait() == 0
    assert snapshot(tmp_path / "again") == snapshot(drawn)


def test_a_synthetic_case_does_not_depend_on_how_many_are_made(tmp_path):
    for count in (4, 6):
        SOURCES["wbc"].synthesize(tmp_path / str(count), count, size=32)
    four, six = snapshot(tmp_path / "4"), snapshot(tmp_path / "6")
    assert four == {name: six[name] for name in four}


def test_a_folder_that_has_files_is_not_filled_with_a_synthetic_set(drawn, tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("precious")
    assert main(["synthesize", "wbc", "--root", str(tmp_path)]) == 1
    assert "this is not a new or empty folder" in capsys.readouterr().err
    assert snapshot(tmp_path) == {"mine.txt": b"precious"}


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--count", "3", "count must be at least 4 for WBC, got 3"),
        ("--size", "23", "size must be at least 24 for WBC, got 23"),
        ("--seed", "-1", "seed must be at least 0 for WBC, got -1"),
    ],
)
def test_too_small_numbers_for_a_synthetic_set_are_refused(option, value, sentence, tmp_path, capsys):
    assert main(["synthesize", "wbc", "--root", str(tmp_path / "new"), option, value]) == 1
    assert capsys.readouterr().err.startswith(sentence)
    assert not (tmp_path / "new").exists()
    possible = ["--count", "4", "--size", "24", "--seed", "0"]
    assert main(["synthesize", "wbc", "--root", str(tmp_path / "new"), *possible]) == 0


def test_an_interrupted_synthesis_leaves_nothing(tmp_path):
    arguments = ["synthesize", "drive", "--root", str(tmp_path / "new"), "--count", "200"]
    process = in_another_process(arguments)
    while not list(tmp_path.rglob("*.tif")):
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    process.join()
    assert process.exitcode == 130
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", READERS)
def test_folders_may_have_spaces_and_letters_of_any_script(name, drawn, tmp_path, monkeypatch):
    folder = tmp_path / "Übung 1 — данные" / "my data"
    shutil.copytree(drawn / name, folder)
    assert check_source(SOURCES[name], folder, tmp_path / "cache é").problems == ()
    monkeypatch.chdir(folder.parent)
    assert READERS[name]("my data", cache_dir=tmp_path / "c") == READERS[name](folder, cache_dir=tmp_path / "c")
