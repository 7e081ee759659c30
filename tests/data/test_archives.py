# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Archives: unpacked completely or not at all."""

import gzip
import shutil
import tarfile
from pathlib import Path

import pytest
from data_sets import files_of_at_most, only_problem, read_wbc, truncate, web_page, zip_of

from monai_iels.data import DataError, fingerprint


@pytest.mark.parametrize("damage", ["truncated", "text"])
def test_a_damaged_archive_is_named_and_nothing_is_unpacked(damage, drawn, tmp_path):
    archive = tmp_path / "zipped" / "stage1_train.zip"
    archive.parent.mkdir()
    shutil.make_archive(str(archive.with_suffix("")), "zip", drawn / "dsb2018" / "stage1_train")
    if damage == "truncated":
        truncate(archive)
    else:
        web_page(archive)
    problem = only_problem("dsb2018", archive.parent, tmp_path)
    assert problem.file == str(archive)
    assert list((tmp_path / "cache").iterdir()) == []


def tar_of(file, name, size=0, kind=tarfile.REGTYPE, link=""):
    """Write a tar of one member's header; of what it says to hold, nothing is there."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.type, entry.linkname = size, kind, link
    header = entry.tobuf(tarfile.GNU_FORMAT)
    file.write_bytes(gzip.compress(header) if file.name.endswith("gz") else header)


LINK, FILE = 0o120777, 0o100644


ARCHIVES = {
    "a.zip: a link that is a folder": (
        lambda f: zip_of(f, ("a", "b", LINK), ("a/b", "x", FILE)),
        r"broken archive \(\[Errno",
    ),
    "a.zip: a file that is a folder": (
        lambda f: zip_of(f, ("a", "b", FILE), ("a/b", "x", FILE)),
        r"broken archive \(\[Errno",
    ),
    "a.zip: more than it says": (lambda f: zip_of(f, ("a", bytes(10**6), FILE), size=1000), "Bad CRC-32"),
    "a.zip: beyond the ratio": (
        lambda f: zip_of(f, *((f"{i}", b"x", FILE) for i in range(3)), size=2**32 - 2),
        "it contains 12.9 GB, at most 10.0 GB are unpacked",
    ),
    "a.tar: a link": (lambda f: tar_of(f, "a", 0, tarfile.SYMTYPE, "/etc/passwd"), "link to an absolute path"),
    "a.tar: a hard link": (lambda f: tar_of(f, "a", 0, tarfile.LNKTYPE, "/etc/passwd"), "link to an absolute path"),
    "a.tar: a device": (lambda f: tar_of(f, "a", 0, tarfile.CHRTYPE), "is a special file"),
    "a.tar: a pipe": (lambda f: tar_of(f, "a", 0, tarfile.FIFOTYPE), "is a special file"),
    "a.tar: outside": (lambda f: tar_of(f, "../a"), "outside the destination"),
    "a.tar.gz: too large": (lambda f: tar_of(f, "a", 10**15), "broken archive"),
    "a.tgz: beyond the ratio": (
        lambda f: tar_of(f, "a", 2 * 10**10),
        "broken archive",
    ),
    "a.tar.gz: no gzip": (lambda f: f.write_bytes(b"text"), "broken archive"),
    "a.ZIP: no zip": (lambda f: f.write_bytes(b"text"), r"broken archive \(File is not a zip file\)"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_a_forged_archive_is_refused(name, tmp_path):
    make, sentence = ARCHIVES[name]
    archive = tmp_path / "in" / name.split(":")[0]
    archive.parent.mkdir()
    make(archive)
    with pytest.raises(DataError, match=sentence) as caught:
        read_wbc(archive.parent, cache_dir=tmp_path / "cache")
    assert len(str(caught.value).splitlines()) == 1
    assert str(caught.value).startswith(f"{archive}: ")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_small_archive_may_unpack_to_a_thousand_times_its_size(tmp_path):
    zip_of(tmp_path / "a.zip", ("Dataset 1/a.bmp", bytes(10**6), FILE))
    assert 1000 * (tmp_path / "a.zip").stat().st_size < 1.3 * 10**6
    with pytest.raises(DataError, match=r"a\.bmp: its label a\.png is missing|there are no files named <id>\.png"):
        read_wbc(tmp_path, cache_dir=tmp_path / "cache")
    (unpacked,) = (tmp_path / "cache").glob("*/Dataset 1/a.bmp")
    assert unpacked.stat().st_size == 10**6


def test_nothing_of_a_zip_is_written_outside_of_the_cache_or_as_a_link(tmp_path):
    (tmp_path / "in").mkdir()
    names = ("x/../../../escaped", "/tmp/absolute", "Dataset 1/a.bmp")
    zip_of(tmp_path / "in" / "a.zip", *((name, "text", FILE) for name in names), ("link", "/etc", LINK))
    with pytest.raises(DataError, match="no files named"):
        read_wbc(tmp_path / "in", cache_dir=tmp_path / "cache")
    (folder,) = (tmp_path / "cache").iterdir()
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.name != ".complete"} == {
        *("x", "x/escaped", "tmp", "tmp/absolute", "Dataset 1", "Dataset 1/a.bmp", "link")
    }
    assert (folder / "link").read_text() == "/etc"
    assert not (folder / "link").is_symlink()


def test_an_archive_with_a_damaged_end_is_not_unpacked(drawn, tmp_path):
    archive = Path(shutil.make_archive(str(tmp_path / "in" / "Dataset 1"), "gztar", drawn / "wbc"))
    data = bytearray(archive.read_bytes())
    data[-6] ^= 0xFF  # in the checksum
    archive.write_bytes(data)
    with pytest.raises(DataError, match=r"broken archive \(CRC check failed"):
        read_wbc(archive.parent, cache_dir=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("kind", ["zip", "tar", "gztar"])
def test_unpacking_to_a_full_disk_leaves_nothing(kind, drawn, tmp_path):
    shutil.make_archive(str(tmp_path / "in" / "Dataset 1"), kind, drawn / "wbc")
    with files_of_at_most(5000), pytest.raises(OSError, match=rf"File too large: '{tmp_path}/cache/Dataset 1-"):
        read_wbc(tmp_path / "in", cache_dir=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
    assert fingerprint(read_wbc(tmp_path / "in", cache_dir=tmp_path / "cache")) == fingerprint(read_wbc(drawn / "wbc"))
