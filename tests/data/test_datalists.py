# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Data of your own: images and labels whose names share a part."""

import os
import shutil
import struct
import tempfile
import zlib
from pathlib import Path

import itk
import numpy as np
import pytest
from data_sets import labels, link_to_itself, read_wbc, truncate, web_page, write_labels, zip_of
from PIL import Image

from monai_iels.data import DataError, check_labels, paired_datalists


@pytest.mark.parametrize("label", ["labels/{id}.png", "images/{id}_mask.png"])
def test_pictures_are_paired_by_name_and_split_by_seed(label, tmp_path):
    for number in range(10):
        for pattern in ("images/{id}.png", label):
            file = tmp_path / pattern.format(id=f"case{number}")
            file.parent.mkdir(exist_ok=True)
            Image.fromarray(np.zeros((8, 9), np.uint8)).save(file)
    found = paired_datalists(tmp_path, label=label, validation=0.3)
    assert {name: len(cases) for name, cases in found.items()} == {"training": 7, "validation": 3}
    for case in found["training"] + found["validation"]:
        identity = Path(case["image"]).stem
        assert case["image"] == str(tmp_path / "images" / f"{identity}.png")
        assert case["label"] == str(tmp_path / label.format(id=identity))
    assert paired_datalists(tmp_path, label=label, validation=0.3, seed=1) != found
    (tmp_path / "images" / "case3.png").unlink()
    with pytest.raises(DataError, match=r"case3.*png: its image images.case3.png is missing"):
        paired_datalists(tmp_path, label=label)


def test_wrong_folders_patterns_and_shares_are_explained(tmp_path):
    with pytest.raises(DataError, match=r"typo: cannot be opened \(no such file or directory\)\. Check the path"):
        paired_datalists(tmp_path / "typo")
    (tmp_path / "imgs").mkdir()
    place = r"Give the folder that has all files; the paths of your own data are in dataset\.yaml\."
    with pytest.raises(DataError, match=rf"images: there is no such folder here, only imgs\. {place}"):
        paired_datalists(tmp_path)
    with pytest.raises(ValueError, match=r"must contain {id} once, got 'images/\*\.png'"):
        paired_datalists(tmp_path, image="images/*.png")
    for validation, test in ((0, 0), (1, 0), (0.1, -0.1), (0.1, 0.9)):
        sentence = rf"validation must be above 0, test at least 0, .* below 1, got {validation} and {test}$"
        with pytest.raises(ValueError, match=sentence):
            paired_datalists(tmp_path, validation=validation, test=test)
    for folder in ("images", "labels"):
        (tmp_path / folder).mkdir()
        Image.fromarray(np.zeros((8, 9), np.uint8)).save(tmp_path / folder / "a.png")
    with pytest.raises(DataError, match=r"too few cases \(1\): none are left for training\. Add more cases\."):
        paired_datalists(tmp_path)
    for folder in ("images", "labels"):
        shutil.copy(tmp_path / folder / "a.png", tmp_path / folder / "b.png")
    with pytest.raises(DataError, match=r"too few cases \(2\): none are left for training\. Add more cases\."):
        paired_datalists(tmp_path, validation=0.9)
    (tmp_path / "images" / "c.jpg").write_text("text")
    with pytest.raises(DataError, match=r"c\.jpg: unexpected file: .* Move it elsewhere\."):
        paired_datalists(tmp_path)


@pytest.mark.parametrize("suffix", [".nrrd", ".mha"])
def test_volumes_are_paired_if_they_are_in_one_place(suffix, tmp_path):
    for kind in ("images", "labels"):
        (tmp_path / kind).mkdir()
        for number in range(4):
            volume = itk.image_from_array(np.zeros((4, 5, 6), np.uint8))
            itk.imwrite(volume, str(tmp_path / kind / f"{number}{suffix}"))
    patterns = f"images/{{id}}{suffix}", f"labels/{{id}}{suffix}"
    found = paired_datalists(tmp_path, *patterns)
    assert {name: len(cases) for name, cases in found.items()} == {"training": 3, "validation": 1}
    volume.SetOrigin((3.0, 0.0, 0.0))
    itk.imwrite(volume, str(tmp_path / "labels" / f"3{suffix}"))
    with pytest.raises(DataError, match=rf"labels/3\{suffix}: its affine .* differs from that of 3\{suffix}"):
        paired_datalists(tmp_path, *patterns)


def png_header(width, height):
    """Return a PNG that says how large it is, and has no pixels."""
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)), (b"IDAT", b""), (b"IEND", b"")]
    parts = [struct.pack(">I", len(d)) + t + d + struct.pack(">I", zlib.crc32(t + d)) for t, d in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def instead(path, make):
    path.unlink()
    make(path)


def several(path):
    pages = [Image.fromarray(np.full((8, 9), value, np.uint8)) for value in (0, 255)]
    pages[0].save(path, "TIFF", save_all=True, append_images=pages[1:])


MISTAKES = {
    "too many pixels": (
        lambda i, m: i.write_bytes(png_header(30000, 30000)),
        r"Image size \(900000000 pixels\) exceeds limit of 178956970 pixels",
    ),
    "no pixels": (lambda i, m: i.write_bytes(png_header(0, 0)), "the file cannot be read"),
    "no image": (lambda i, m: i.write_text("hello"), "the file cannot be read"),
    "an empty file": (lambda i, m: i.write_bytes(b""), "the file is empty"),
    "a web page": (lambda i, m: web_page(m), "a web page"),
    "a folder": (lambda i, m: instead(i, Path.mkdir), r"cannot be opened \(is a directory\)"),
    "a pipe": (lambda i, m: instead(i, os.mkfifo), "a pipe"),
    "a link to nowhere": (lambda i, m: instead(i, lambda p: p.symlink_to("nowhere")), "no such file"),
    "a link to itself": (lambda i, m: link_to_itself(m), "too many levels"),
    "a line break": (
        lambda i, m: i.rename(i.with_name("a\nb.png")),
        r"a\\nb\.png: unexpected file: only <id>\.png belong",
    ),
    "a name that is no text": (lambda i, m: os.rename(i, os.fsencode(i.parent) + b"/\xff.png"), r"\\udcff\.png"),
    "one name in two cases": (
        lambda i, m: shutil.copy(i, i.with_name("c1.PNG")),
        r"c1\.png: it has the same id as .*c1\.PNG",
    ),
    "a missing label": (lambda i, m: m.unlink(), r"images/c1\.png: its label labels/c1\.png is missing"),
    "a missing image": (lambda i, m: i.unlink(), r"labels/c1\.png: its image images/c1\.png is missing"),
    "another suffix": (
        lambda i, m: m.rename(m.with_suffix(".tif")),
        r"c1\.tif: unexpected file: only <id>\.png belong",
    ),
    "no labels at all": (lambda i, m: (shutil.rmtree(m.parent), m.parent.mkdir()), "there are no files named <id>"),
    "no folder of labels": (lambda i, m: shutil.rmtree(m.parent), "there is no such folder"),
    "a file for a folder": (
        lambda i, m: (shutil.rmtree(m.parent), m.parent.write_text("x")),
        "there is no such folder",
    ),
    "a label of another size": (lambda i, m: Image.new("L", (5, 4)).save(m), "its size is 5 x 4, but"),
    "a label with alpha": (lambda i, m: Image.new("LA", (9, 8)).save(m), "is transparent in places. Save"),
    "a label in color": (lambda i, m: Image.new("RGB", (9, 8), (1, 2, 3)).save(m), "has colors. Save the mask"),
    "a label of 16 bits": (lambda i, m: Image.new("I;16", (9, 8)).save(m), "has the mode I;16"),
    "a truncated label": (lambda i, m: truncate(m), r"the file cannot be read \(Truncated File Read\)"),
    "an image of two pages": (lambda i, m: several(i), "the file has 2 pages"),
    "a label of two pages": (lambda i, m: several(m), "the file has 2 pages"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_with_files_of_your_own_is_named_in_one_line(name, tmp_path):
    damage, sentence = MISTAKES[name]
    write_labels(tmp_path, {f"c{number}.png": [255] for number in range(4)})
    damage(tmp_path / "images" / "c1.png", tmp_path / "labels" / "c1.png")
    with pytest.raises(DataError, match=sentence) as caught:
        check_labels(paired_datalists(tmp_path), labels([0, 255]))
    assert len(str(caught.value).splitlines()) == len(caught.value.problems)
    str(caught.value).encode("utf-8")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("what", ["folder", "file", "archive"])
def test_a_file_that_you_may_not_read_is_named(what):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o777)
        write_labels(root, {f"c{number}.png": [255] for number in range(4)})
        zip_of(root / "a.zip", ("a", "x", 0o100644))
        path = {"folder": root / "labels", "file": root / "labels" / "c1.png", "archive": root / "a.zip"}[what]
        path.chmod(0)
        os.seteuid(65534)
        try:
            with pytest.raises(DataError, match=rf"{path.name}: cannot be opened .*denied"):
                read_wbc(root, cache_dir=root / "c") if what == "archive" else paired_datalists(root)
        finally:
            os.seteuid(0)
