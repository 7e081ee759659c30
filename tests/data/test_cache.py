# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The cache: folders that are complete or absent."""

import functools
import os
import re
import shutil

import pytest
from data_sets import READERS, SMALL, files_of_at_most, main, snapshot, truncate

from monai_iels.data import checked_datalists, fingerprint


@pytest.mark.parametrize("share", [0.3, 0.9])
@pytest.mark.parametrize("name", READERS)
def test_synthetic_images_on_a_full_disk_leave_nothing(name, share, drawn, tmp_path):
    largest = max(len(content) for content in snapshot(drawn / name).values())
    count, size = SMALL[name]
    with (
        files_of_at_most(int(largest * share)),
        pytest.raises(OSError, match=rf"File too large: '{tmp_path}/synthetic-{name}-"),
    ):
        checked_datalists(name, seed=3, cache_dir=tmp_path, count=count, size=size)
    assert list(tmp_path.iterdir()) == []
    again = checked_datalists(name, seed=3, cache_dir=tmp_path, count=count, size=size)
    assert fingerprint(again) == fingerprint(READERS[name](drawn / name, 3, tmp_path))


@pytest.mark.parametrize("damage", ["half a file", "a file too few", "from an earlier version", "a link to nowhere"])
def test_a_cache_that_is_not_complete_is_made_anew(damage, tmp_path):
    draw = functools.partial(checked_datalists, "wbc", cache_dir=tmp_path, count=4, size=32)
    expected = fingerprint(draw())
    (folder,) = tmp_path.iterdir()
    if damage == "half a file":
        truncate(folder / "Dataset 1" / "001.bmp")
    elif damage == "a file too few":
        (folder / "Dataset 1" / "001.png").unlink()
    elif damage == "from an earlier version":
        (folder / ".complete").unlink()
        truncate(folder / "Dataset 1" / "001.bmp")
    else:
        shutil.rmtree(folder)
        folder.symlink_to("nowhere")
    (tmp_path / "mine.txt").write_text("precious")
    assert fingerprint(draw()) == expected
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine.txt", folder.name]


def test_a_complete_cache_is_left_alone(tmp_path):
    draw = functools.partial(checked_datalists, "wbc", cache_dir=tmp_path, count=4, size=32)
    first = draw()["training"][0]["image"]
    before = os.stat(first).st_ino
    draw()
    assert os.stat(first).st_ino == before


def test_other_sizes_and_seeds_have_folders_of_their_own(tmp_path):
    for size, seed in ((32, 0), (40, 0), (40, 1)):
        checked_datalists("wbc", seed=seed, cache_dir=tmp_path, count=4, size=size)
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("place", ["file", "/proc/no", "/dev/null/cache"])
def test_a_cache_that_cannot_be_written_is_named(place, tmp_path):
    (tmp_path / "file").write_text("text")
    with pytest.raises(OSError, match=f"'{tmp_path / place}/synthetic-wbc-4-32-"):
        checked_datalists("wbc", cache_dir=tmp_path / place, count=4, size=32)


@pytest.mark.parametrize("command", ["download", "check", "synthesize"])
def test_a_command_names_the_option_that_chooses_another_folder(command, drawn, known, server, tmp_path, capsys):
    (tmp_path / "file").write_text("text")
    place = str(tmp_path / "file" / "new")
    if command == "check":
        shutil.make_archive(str(tmp_path / "in" / "Dataset 1"), "zip", drawn / "wbc")
        arguments, option = ["--root", str(tmp_path / "in"), "--cache_dir", place], "--cache_dir"
    else:
        arguments, option = ["--root", place], "--root"
    assert main([command, "wbc", *arguments]) == 1
    reason = r"\((not a directory|file exists)\)"
    remedy = rf"free space there, or choose another folder with {option}\."
    assert re.search(rf"{place}.* cannot be written {reason}: {remedy}\n$", capsys.readouterr().err)


def test_the_cache_is_in_the_cache_folder_of_the_user(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mine"))
    checked_datalists("wbc", count=4, size=32)
    (folder,) = (tmp_path / "mine" / "monai_iels").iterdir()
    assert folder.name.startswith("synthetic-wbc-4-32-seed0")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    checked_datalists("wbc", count=4, size=32)
    assert (tmp_path / "home" / ".cache" / "monai_iels" / folder.name).is_dir()
