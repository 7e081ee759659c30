# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Where the files of a data set are looked for."""

import shutil
from pathlib import Path

import pytest
from data_sets import READERS, only_problem, read_dsb2018, read_refuge, read_wbc, snapshot

from monai_iels.data import SOURCES, DataError, check_source, fingerprint


@pytest.mark.parametrize("litter", [".DS_Store", "._002.bmp", "Thumbs.db", "desktop.ini"])
def test_what_operating_systems_leave_behind_is_passed_over(litter, copy):
    root = copy("wbc")
    (root / "Dataset 1" / litter).write_bytes(b"something")
    assert check_source(SOURCES["wbc"], root).problems == ()


def test_folders_that_a_mac_puts_into_archives_are_passed_over(copy):
    root = copy("refuge")
    shutil.copytree(root / "Training400", root / "__MACOSX" / "Training400")
    assert check_source(SOURCES["refuge"], root).problems == ()


def test_a_data_set_is_found_two_levels_below_and_in_upper_case(copy, tmp_path):
    expected = [Path(case["image"]).stem for case in read_wbc(copy("wbc"))["training"]]
    inner = tmp_path / "a" / "b" / "Dataset 1"
    shutil.copytree(tmp_path / "wbc" / "Dataset 1", inner)
    for path in list(inner.iterdir()):
        path.rename(path.with_suffix(path.suffix.upper()))
    (tmp_path / "a" / "folder.zip").mkdir()
    assert [Path(case["image"]).stem for case in read_wbc(tmp_path / "a")["training"]] == expected
    shutil.rmtree(tmp_path / "a" / "b")
    with pytest.raises(DataError, match=r"no folder 'Dataset 1' with \*\.bmp here, only folder\.zip\."):
        read_wbc(tmp_path / "a")


@pytest.mark.parametrize("name", READERS)
def test_an_empty_folder_a_missing_one_a_file_and_a_loop_are_named(name, tmp_path):
    folder = tmp_path / "empty"
    folder.mkdir()
    assert only_problem(name, folder, tmp_path).problem.endswith(" here, it is empty")
    report = check_source(SOURCES[name], tmp_path / "no such")
    assert [p.file for p in report.problems] == [str(tmp_path / "no such")]
    assert "no such file" in str(report)
    (tmp_path / "file.txt").write_text("text")
    assert "cannot be opened (not a directory)" in str(check_source(SOURCES[name], tmp_path / "file.txt"))
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    assert "symbolic link" in str(check_source(SOURCES[name], loop))


def test_a_folder_that_links_back_to_its_parent_is_named(copy, tmp_path):
    folder = copy("cityscapes") / "leftImg8bit" / "train"
    (folder / "again").symlink_to(".")
    assert only_problem("cityscapes", folder.parents[1], tmp_path).file == str(folder / "again")


def test_linked_folders_are_read(drawn, tmp_path):
    (tmp_path / "link").symlink_to(drawn / "refuge")
    (tmp_path / "inner").mkdir()
    for folder in (drawn / "refuge").iterdir():
        (tmp_path / "inner" / folder.name).symlink_to(folder)
    assert fingerprint(read_refuge(tmp_path / "link")) == fingerprint(read_refuge(tmp_path / "inner"))


@pytest.mark.parametrize("name", READERS)
def test_archives_are_unpacked_into_the_cache(name, drawn, tmp_path):
    source = tmp_path / "zipped"
    source.mkdir()
    for folder in (drawn / name).iterdir():
        shutil.make_archive(str(source / folder.name), "zip", drawn / name, folder.name)
    before = snapshot(source)
    packed = READERS[name](source, cache_dir=tmp_path / "cache")
    plain = READERS[name](drawn / name, cache_dir=tmp_path / "cache")
    assert fingerprint(packed) == fingerprint(plain)
    assert snapshot(source) == before


def test_a_broken_archive_does_not_matter_beside_a_good_one(drawn, tmp_path):
    shutil.make_archive(str(tmp_path / "stage1_train"), "zip", drawn / "dsb2018")
    (tmp_path / "aaa.zip").write_text("nothing")
    assert read_dsb2018(tmp_path, cache_dir=tmp_path / "cache")["training"]
