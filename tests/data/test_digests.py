# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The fingerprint of a large data set is computed once, and again when a file changes."""

import hashlib
import os

import pytest

from monai_iels.data import fingerprint

SIZE = 2**25


@pytest.fixture
def cases(tmp_path, monkeypatch):
    """Return cases with files that are large together, and hardly fill a disk."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("image.png", "label.png"):
        with (tmp_path / name).open("wb") as stream:
            stream.truncate(SIZE)
    return {"training": [{key: str(tmp_path / f"{key}.png") for key in ("image", "label")}]}


def by_hand(datalists):
    """Return the SHA-256 of the sorted lines NAME SHA-256, with what the files hold now."""
    digests = []
    for file in datalists["training"][0].values():
        with open(file, "rb") as stream:
            digests.append(f"{os.path.basename(file)} {hashlib.sha256(stream.read()).hexdigest()}")
    return hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()


def test_files_that_did_not_change_are_not_read_again(cases):
    """Other bytes with the same size and time are not noticed, since nobody reads them."""
    label, before = cases["training"][0]["label"], fingerprint(cases)
    assert before == by_hand(cases)
    times = os.stat(label)
    with open(label, "r+b") as stream:
        stream.write(b"other")
    os.utime(label, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert by_hand(cases) != before
    assert fingerprint(cases) == before


def test_a_label_that_changed_is_noticed(cases):
    """It has the size that it had."""
    label, before = cases["training"][0]["label"], fingerprint(cases)
    with open(label, "r+b") as stream:
        stream.write(b"other")
    assert fingerprint(cases) == by_hand(cases) != before


def test_small_files_are_read_each_time_and_nothing_is_kept(cases, tmp_path):
    label = cases["training"][0]["label"]
    for file in cases["training"][0].values():
        os.truncate(file, 1000)
    before, times = fingerprint(cases), os.stat(label)
    with open(label, "r+b") as stream:
        stream.write(b"other")
    os.utime(label, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert fingerprint(cases) == by_hand(cases) != before
    assert not (tmp_path / "cache").exists()


def test_without_a_cache_that_can_be_written_files_are_read_each_time(cases, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder would be")
    assert fingerprint(cases) == by_hand(cases)
