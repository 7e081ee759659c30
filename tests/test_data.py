# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The readers, their synthetic samples, the checker, and a corpus of damage: each case is one sentence with a name."""

import dataclasses
import functools
import gzip
import hashlib
import http.server
import json
import multiprocessing
import operator
import os
import pickle
import re
import resource
import shutil
import signal
import struct
import sys
import tarfile
import tempfile
import threading
import time
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path

import itk
import nibabel
import numpy as np
import pytest
import torch
from helpers import BUNDLES
from monai.data import NibabelReader, PILReader
from monai.transforms import Compose, SaveImage, ScaleIntensityRanged
from PIL import Image
from programs import Program

from monai_iels import cli
from monai_iels.data import (
    IGNORED,
    SOURCES,
    DataError,
    LabelValuesd,
    LoadFiled,
    Problem,
    _archives,
    as_mask,
    case_files,
    check_labels,
    check_source,
    checked_datalists,
    fingerprint,
    paired_datalists,
)


def main(arguments):
    return cli.main(["data", *arguments])


READERS = {name: source.read for name, source in SOURCES.items()}
read_wbc, read_dsb2018, read_drive, read_refuge, read_hippocampus, read_cityscapes = READERS.values()
SMALL = {"wbc": (10, 48), "dsb2018": (10, 48), "drive": (4, 64), "refuge": (6, 64), "hippocampus": (5, 30)}
SMALL["cityscapes"] = (6, 32)
RGB = PILReader(converter=operator.methodcaller("convert", "RGB"))
GREY = PILReader(converter=as_mask)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Draw a small set of each, below one folder."""
    folder = tmp_path_factory.mktemp("drawn")
    for name, (count, size) in SMALL.items():
        SOURCES[name].synthesize(folder / name, count, seed=3, size=size)
    return folder


@pytest.fixture
def copy(drawn, tmp_path):
    """Return a function that copies a drawn set, to be damaged."""
    return lambda name: Path(shutil.copytree(drawn / name, tmp_path / name))


def real(name):
    folder = Path(os.environ.get("MONAI_IELS_DATA", "")) / name
    if "MONAI_IELS_DATA" not in os.environ or not folder.is_dir():
        pytest.skip(f"set MONAI_IELS_DATA to a folder that has {name}")
    return folder


def labels(values, ignored=(), reader=GREY, key="label"):
    """Return how a training loads labels."""
    return [LoadFiled(key, reader), LabelValuesd(key, values, ignored)]


def snapshot(root):
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def only_problem(name, root, tmp_path):
    """Check a damaged set, and see that its one problem is found and that nothing was touched."""
    before = snapshot(root)
    report = check_source(SOURCES[name], root, tmp_path / "cache")
    assert snapshot(root) == before
    (problem,) = report.problems
    assert str(report).splitlines()[0] == str(problem)
    assert re.fullmatch(r"[^\n]+: [^\n]+\. [^\n]+\.", str(problem))
    return problem


# the readers


@pytest.mark.parametrize("name", READERS)
def test_a_reader_lists_its_drawn_set(name, drawn, tmp_path):
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


@pytest.mark.parametrize("name", ["wbc", "dsb2018", "hippocampus"])
def test_the_split_is_by_seed(name, drawn, tmp_path):
    lists = [READERS[name](drawn / name, seed=seed, cache_dir=tmp_path) for seed in (0, 0, 1, 2, 3)]
    assert lists[0] == lists[1]
    assert len({str(split) for split in lists}) > 1
    assert len({fingerprint(split) for split in lists}) == 1


def test_the_fingerprint_is_of_names_and_contents(copy):
    root = copy("wbc")
    before = fingerprint(read_wbc(root))
    first, second = (root / "Dataset 1" / f"00{number}.bmp" for number in (1, 2))
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    assert fingerprint(read_wbc(root)) != before


def test_labels_have_the_official_values(drawn, tmp_path):
    expected = {"wbc": {0, 128, 255}, "dsb2018": {0, 255}, "drive": {0, 255}, "refuge": {0, 128, 255}}
    for name, values in expected.items():
        for case in READERS[name](drawn / name, cache_dir=tmp_path)["training"]:
            assert set(np.unique(Image.open(case["label"]).convert("L"))) == values
    for case in read_hippocampus(drawn / "hippocampus")["training"]:
        label = nibabel.load(case["label"])
        assert set(np.unique(label.dataobj)) == {0, 1, 2}
        assert label.header.get_zooms() == (1, 1, 1)
        assert nibabel.aff2axcodes(label.affine) == ("R", "A", "S")
    for case in read_cityscapes(drawn / "cityscapes", cache_dir=tmp_path)["training"]:
        values = set(np.unique(Image.open(case["label"])))
        assert {0, 2, 13, 255} < values <= {*range(19), 255}


def test_formats_are_the_official_ones(drawn):
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


def test_drive_carries_field_of_view_and_second_observer(drawn):
    datalists = read_drive(drawn / "drive")
    assert set(datalists["training"][0]) == {"image", "label", "fov"}
    case = datalists["validation"][0]
    assert set(case) == {"image", "label", "fov", "second"}
    label, fov, second = (np.asarray(Image.open(case[key]).convert("L")) > 0 for key in ("label", "fov", "second"))
    assert not (label & ~fov).any()
    assert 0.5 < 2 * (label & second).sum() / (label.sum() + second.sum()) < 0.99
    assert [Path(c["image"]).name for c in datalists["training"]] == ["21_training.tif", "22_training.tif"]


def test_drive_without_second_observer_and_without_test_labels(copy, tmp_path):
    root = copy("drive")
    shutil.rmtree(root / "test" / "2nd_manual")
    assert "second" not in read_drive(root)["validation"][0]
    shutil.rmtree(root / "test" / "1st_manual")
    problem = only_problem("drive", root, tmp_path)
    assert problem.kind == "missing"
    assert problem.file.endswith("1st_manual")


@pytest.mark.parametrize("suffix", [".bmp", ".png"])
def test_refuge_re_packed(suffix, drawn, tmp_path):
    official = read_refuge(drawn / "refuge")
    for section, name in (("training", "train"), ("validation", "val"), ("test", "test")):
        for folder in ("Images", "Masks"):
            (tmp_path / name / folder).mkdir(parents=True)
        for case in official[section]:
            shutil.copy(case["image"], tmp_path / name / "Images")
            mask = tmp_path / name / "Masks" / f"{Path(case['label']).stem}{suffix}"
            Image.open(case["label"]).save(mask)
    packed = read_refuge(tmp_path)
    stems = {s: [Path(c["image"]).stem for c in cases] for s, cases in official.items()}
    assert {s: sorted(Path(c["label"]).stem for c in cases) for s, cases in packed.items()} == {
        s: sorted(names) for s, names in stems.items()
    }


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


def test_dsb2018_merges_once_and_again_where_a_mask_changed(copy, tmp_path):
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


def test_an_interrupted_merge_leaves_nothing_that_passes_as_complete(copy, tmp_path):
    root, cache = copy("dsb2018"), tmp_path / "cache"
    process = multiprocessing.get_context("fork").Process(target=_merge_slowly, args=(root, cache))
    process.start()
    while len(list(cache.glob(".unfinished-*/dsb2018-labels-*/*.png"))) < 3:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert 3 <= len(list(cache.glob(".unfinished-*/*/*.png"))) < SMALL["dsb2018"][0]
    assert not list(cache.glob("dsb2018-labels-*"))
    reference = read_dsb2018(root, cache_dir=tmp_path / "other")
    assert fingerprint(read_dsb2018(root, cache_dir=cache)) == fingerprint(reference)


def _merge_slowly(root, cache):
    import monai_iels.data._source as module

    write_image = module.write_image
    module.write_image = lambda *arguments: time.sleep(0.05) or write_image(*arguments)
    read_dsb2018(root, cache_dir=cache)


def test_masks_of_different_size_are_not_merged(copy, tmp_path):
    root = copy("dsb2018")
    mask = sorted(next(root.glob("*/*/masks")).iterdir())[1]
    Image.fromarray(np.zeros((5, 7), np.uint8)).save(mask)
    with pytest.raises(DataError, match=rf"{mask.name}: its size is 7 x 5, but \w+\.png has \d+ x \d+\."):
        read_dsb2018(root, cache_dir=tmp_path)


# Cityscapes


def test_the_official_layout_of_cityscapes_with_its_other_files(copy, tmp_path):
    root = copy("cityscapes")
    before = read_cityscapes(root, cache_dir=tmp_path)
    assert [len(before[section]) for section in ("training", "validation")] == [3, 3]
    for label in list(root.glob("gtFine/*/*/*_gtFine_labelIds.png")):
        for ending in ("color.png", "instanceIds.png", "instanceTrainIds.png", "polygons.json"):
            label.with_name(label.name.replace("labelIds.png", ending)).write_bytes(b"not read")
    for folder, name in (("leftImg8bit", "x_000000_000019_leftImg8bit.png"), ("gtFine", "x_gtFine_labelIds.png")):
        (root / folder / "test" / "berlin").mkdir(parents=True)
        (root / folder / "test" / "berlin" / name).write_bytes(b"a dummy")
    (root / "README").write_text("of the archive")
    assert read_cityscapes(root, cache_dir=tmp_path) == before
    assert check_source(SOURCES["cityscapes"], root).problems == ()


def test_train_ids_are_the_official_ones(drawn, tmp_path):
    official = pytest.importorskip("cityscapesscripts.helpers.labels").labels
    source = SOURCES["cityscapes"]
    classes = {label.trainId: label for label in official if 0 <= label.trainId < 255}
    assert source.classes == [classes[number].name for number in range(19)]
    for name in ("train", "inference"):
        config = json.loads((BUNDLES / "cityscapes" / "configs" / f"{name}.json").read_text("utf-8"))
        assert config["colors"] == [list(classes[number].color) for number in range(19)]
    assert config["written_values"] == [classes[number].id for number in range(19)]
    table = np.zeros(256, np.uint8)
    for label in official:
        table[label.id] = label.trainId % 256
    converted = 0
    for case in read_cityscapes(drawn / "cityscapes", cache_dir=tmp_path)["training"]:
        ids = case["image"].replace("leftImg8bit/", "gtFine/").replace("_leftImg8bit", "_gtFine_labelIds")
        expected = table[np.asarray(Image.open(ids))]
        np.testing.assert_array_equal(np.asarray(Image.open(case["label"])), expected)
        loaded = _load("cityscapes")(case)["label"]
        np.testing.assert_array_equal(loaded[0].T, expected)
        assert (expected == 255).any()
        converted += case["label"].startswith(str(tmp_path))
    assert converted == 1


def test_every_label_id_becomes_its_train_id(copy, tmp_path):
    official = pytest.importorskip("cityscapesscripts.helpers.labels").id2label
    root = copy("cityscapes")
    file = next(root.glob("gtFine/train/drawn3/*_gtFine_labelIds.png"))
    Image.fromarray(np.arange(32 * 64, dtype=np.uint16).reshape(32, 64).astype(np.uint8) % 34).save(file)
    assert check_source(SOURCES["cityscapes"], root).problems == ()
    (case,) = (c for c in read_cityscapes(root, cache_dir=tmp_path)["training"] if "drawn3" in c["image"])
    expected = np.array([official[number].trainId for number in range(34)])[np.asarray(Image.open(file))]
    np.testing.assert_array_equal(np.asarray(Image.open(case["label"])), expected)


def test_label_ids_are_converted_again_where_they_changed(copy, tmp_path):
    root = copy("cityscapes")
    first = read_cityscapes(root, cache_dir=tmp_path)
    times = [Path(case["label"]).stat().st_mtime_ns for case in first["training"]]
    again = read_cityscapes(root, cache_dir=tmp_path)
    assert again == first
    assert [Path(case["label"]).stat().st_mtime_ns for case in again["training"]] == times
    file = next(root.glob("gtFine/train/drawn3/*_gtFine_labelIds.png"))
    Image.fromarray(np.full((32, 64), 23, np.uint8)).save(file)
    (case,) = (c for c in read_cityscapes(root, cache_dir=tmp_path)["training"] if "drawn3" in c["image"])
    assert set(np.unique(Image.open(case["label"]))) == {10}


def test_a_damaged_label_is_named_and_leaves_no_half_conversion(copy, tmp_path):
    root = copy("cityscapes")
    file = next(root.glob("gtFine/train/drawn3/*_gtFine_labelIds.png"))
    truncate(file)
    with pytest.raises(DataError, match=f"{file.name}: the file is truncated"):
        read_cityscapes(root, cache_dir=tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("*.png"))


def test_missing_labels_of_cityscapes(copy, tmp_path):
    root = copy("cityscapes")
    image = next(root.glob("leftImg8bit/train/drawn3/*.png"))
    label = next(root.glob("gtFine/train/drawn3/*_gtFine_labelIds.png"))
    label.unlink()
    problem = only_problem("cityscapes", root, tmp_path)
    assert (problem.kind, problem.file) == ("unmatched", str(image))
    assert problem.problem == f"its label drawn3/{label.name} is missing"
    shutil.rmtree(root / "gtFine" / "train")
    problem = only_problem("cityscapes", root, tmp_path)
    assert (problem.kind, problem.file) == ("missing", str(root / "gtFine" / "train"))
    assert problem.problem == "there are no files named <city>/<id>_gtFine_labelIds.png"
    shutil.rmtree(root / "gtFine")
    assert only_problem("cityscapes", root, tmp_path).problem.startswith("no folder 'gtFine' with ")


def test_a_value_that_is_no_label_id(copy, tmp_path):
    root = copy("cityscapes")
    file = next(root.glob("gtFine/train/drawn3/*_gtFine_labelIds.png"))
    pixels = np.array(Image.open(file))
    pixels[0, 0] = 77
    Image.fromarray(pixels).save(file)
    problem = only_problem("cityscapes", root, tmp_path)
    assert f"{file.name} (77)" in problem.problem
    cases = read_cityscapes(root, cache_dir=tmp_path)
    with pytest.raises(DataError, match=r"_gtFine_labelTrainIds\.png \(77\)"):
        check_labels(cases, labels(SOURCES["cityscapes"].values, SOURCES["cityscapes"].ignored))


def test_drawn_streets_have_the_official_classes(tmp_path):
    root = SOURCES["cityscapes"].synthesize(tmp_path / "drawn", count=12, size=128)
    cases = read_cityscapes(root, cache_dir=tmp_path)
    found = [set(np.unique(Image.open(case["label"]))) for section in cases.values() for case in section]
    assert all(255 in values and len(values) > 12 for values in found)
    assert set.union(*found) == {*range(19), 255}


# real data


def test_real_wbc():
    datalists = read_wbc(real("wbc"))
    assert {name: len(cases) for name, cases in datalists.items()} == {"training": 270, "validation": 30}
    assert not {c["image"] for c in datalists["training"]} & {c["image"] for c in datalists["validation"]}
    assert fingerprint(datalists) == SOURCES["wbc"].archive["contents"]
    report = check_source(SOURCES["wbc"], real("wbc"))
    assert report.problems == ()
    assert report.files == 600


def test_real_dsb2018(tmp_path):
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


def test_real_hippocampus():
    datalists = read_hippocampus(real("hippocampus"))
    assert fingerprint(datalists) == SOURCES["hippocampus"].archive["contents"]
    assert {name: len(cases) for name, cases in datalists.items()} == {"training": 208, "validation": 52}
    report = check_source(SOURCES["hippocampus"], real("hippocampus"))
    assert report.problems == ()
    assert report.files == 520


# the drawings


@pytest.mark.parametrize("name", READERS)
def test_drawings_are_the_same_bytes_for_one_seed_only(name, drawn, tmp_path):
    count, size = SMALL[name]
    SOURCES[name].synthesize(tmp_path / "same", count, seed=3, size=size)
    assert snapshot(tmp_path / "same") == snapshot(drawn / name)
    SOURCES[name].synthesize(tmp_path / "other", count, seed=4, size=size)
    one, other = (READERS[name](root, cache_dir=tmp_path) for root in (drawn / name, tmp_path / "other"))
    images = [{Path(c["image"]).read_bytes() for cases in lists.values() for c in cases} for lists in (one, other)]
    assert len(images[0] | images[1]) == 2 * count


def test_drawings_are_the_same_bytes_in_another_process(drawn, tmp_path):
    (tmp_path / "script.py").write_text(
        "import sys, pathlib; from monai_iels.data import SOURCES\n"
        f"for name, (count, size) in {SMALL!r}.items():\n"
        "    SOURCES[name].synthesize(pathlib.Path(sys.argv[1]) / name, count, seed=3, size=size)"
    )
    assert Program(tmp_path / "script.py", tmp_path / "again").wait() == 0
    assert snapshot(tmp_path / "again") == snapshot(drawn)


def test_a_case_does_not_depend_on_how_many_are_drawn(tmp_path):
    for count in (4, 6):
        SOURCES["wbc"].synthesize(tmp_path / str(count), count, size=32)
    four, six = snapshot(tmp_path / "4"), snapshot(tmp_path / "6")
    assert four == {name: six[name] for name in four}


def test_nothing_is_drawn_over(drawn, tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("precious")
    assert main(["synthesize", "wbc", "--root", str(tmp_path)]) == 1
    assert "this is not a new or empty folder" in capsys.readouterr().err
    assert snapshot(tmp_path) == {"mine.txt": b"precious"}


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--count", "3", "count must be at least 4 for WBC, got 3"),
        ("--size", "23", "size must be at least 24, got 23"),
        ("--seed", "-1", "seed must not be negative, got -1"),
    ],
)
def test_impossible_drawings_are_refused(option, value, sentence, tmp_path, capsys):
    assert main(["synthesize", "wbc", "--root", str(tmp_path / "new"), option, value]) == 1
    assert capsys.readouterr().err.startswith(sentence)
    assert not (tmp_path / "new").exists()
    possible = ["--count", "4", "--size", "24", "--seed", "0"]
    assert main(["synthesize", "wbc", "--root", str(tmp_path / "new"), *possible]) == 0


def test_an_interrupted_drawing_leaves_nothing(tmp_path):
    arguments = ["synthesize", "drive", "--root", str(tmp_path / "new"), "--count", "200"]
    process = multiprocessing.get_context("fork").Process(target=_exit_with_main, args=(arguments,))
    process.start()
    while not list(tmp_path.rglob("*.tif")):
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    process.join()
    assert process.exitcode == 130
    assert list(tmp_path.iterdir()) == []


def _exit_with_main(arguments):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(arguments))


# damage


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])


def empty(path):
    path.write_bytes(b"")


def web_page(path):
    path.write_text("<!DOCTYPE html><html><body>Please log in</body></html>")


def link_to_itself(path):
    path.unlink()
    path.symlink_to(path.name)


FILES = {
    "wbc image.bmp": ("wbc", "Dataset 1/002.bmp"),
    "wbc label.png": ("wbc", "Dataset 1/002.png"),
    "dsb2018 image.png": ("dsb2018", "stage1_train/*/images/*.png"),
    "dsb2018 label.png": ("dsb2018", "stage1_train/*/masks/*.png"),
    "drive image.tif": ("drive", "training/images/21_training.tif"),
    "drive label.gif": ("drive", "training/1st_manual/21_manual1.gif"),
    "refuge image.jpg": ("refuge", "REFUGE-Validation400/V0002.jpg"),
    "refuge label.bmp": ("refuge", "REFUGE-Validation400-GT/Disc_Cup_Masks/V0002.bmp"),
    "hippocampus image.nii.gz": ("hippocampus", "Task04_Hippocampus/imagesTr/hippocampus_002.nii.gz"),
    "hippocampus label.nii.gz": ("hippocampus", "Task04_Hippocampus/labelsTr/hippocampus_002.nii.gz"),
    "cityscapes image.png": ("cityscapes", "leftImg8bit/train/drawn3/*_leftImg8bit.png"),
    "cityscapes label ids.png": ("cityscapes", "gtFine/train/drawn3/*_gtFine_labelIds.png"),
    "cityscapes label.png": ("cityscapes", "gtFine/train/drawn1/*_gtFine_labelTrainIds.png"),
}
MERGED = ("dsb2018 label.png", "cityscapes label ids.png")  # a training reads what was made of them


@pytest.mark.parametrize("damage", [truncate, empty, web_page, link_to_itself])
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_file_is_named(file, damage, copy, tmp_path):
    name, pattern = FILES[file]
    root = copy(name)
    path = sorted(root.glob(pattern))[0]
    damage(path)
    problem = only_problem(name, root, tmp_path)
    assert problem.file == str(path)
    kinds = {truncate: "truncated", empty: "empty", web_page: "unreadable", link_to_itself: "unreadable"}
    assert problem.kind == kinds[damage]


@pytest.mark.parametrize("file", [file for file in FILES if file not in MERGED])
def test_unreadable_pixels_met_in_training_name_the_file(file, copy, tmp_path):
    name, pattern = FILES[file]
    root = copy(name)
    path = sorted(root.glob(pattern))[0]
    key = "image" if "image" in file else "label"
    cases = [c for s in READERS[name](root, cache_dir=tmp_path).values() for c in s if c[key] == str(path)]
    load = _load(name)
    load(cases[0])
    truncate(path)
    with pytest.raises(RuntimeError) as caught:
        load(cases[0])
    assert isinstance(caught.value.__cause__, DataError)
    assert str(path) in str(caught.value.__cause__)


def _load(name):
    if name == "hippocampus":
        return Compose([LoadFiled(["image", "label"], NibabelReader())])
    values = LabelValuesd("label", SOURCES[name].values, SOURCES[name].ignored)
    return Compose([LoadFiled("image", RGB), LoadFiled("label", GREY), values])


def test_a_merge_names_a_truncated_mask(copy, tmp_path):
    root = copy("dsb2018")
    mask = sorted(root.glob("*/*/masks/*.png"))[4]
    truncate(mask)
    with pytest.raises(DataError, match=mask.name):
        read_dsb2018(root, cache_dir=tmp_path)


@pytest.mark.parametrize("name", ["wbc", "refuge", "drive"])
def test_a_mask_of_another_size(name, copy, tmp_path):
    root = copy(name)
    case = READERS[name](root)["training"][0]
    Image.fromarray(np.zeros((30, 20), np.uint8)).save(case["label"])
    problem = only_problem(name, root, tmp_path)
    assert problem.kind == "size"
    assert problem.file == case["label"]
    assert problem.problem.startswith("its size is 20 x 30, but ")
    with pytest.raises(DataError, match="20 x 30"):
        checked_datalists(name, root)


def test_a_volume_of_another_size(copy, tmp_path):
    root = copy("hippocampus")
    case = read_hippocampus(root)["training"][0]
    nibabel.save(nibabel.Nifti1Image(np.zeros((4, 5, 6), np.uint8), np.eye(4)), case["label"])
    assert "its size is 4 x 5 x 6, but" in only_problem("hippocampus", root, tmp_path).problem


def test_a_mask_with_another_size_and_other_values_has_two_problems(copy):
    root = copy("wbc")
    mask = read_wbc(root)["training"][0]["label"]
    Image.fromarray(np.full((30, 20), 77, np.uint8)).save(mask)
    problems = check_source(SOURCES["wbc"], root).problems
    assert [(problem.kind, problem.file) for problem in problems] == [("size", mask), ("values", os.path.dirname(mask))]
    assert f"{os.path.basename(mask)} (77)" in str(problems[1])


@pytest.mark.parametrize("name", ["wbc", "drive", "refuge", "hippocampus"])
def test_a_missing_mask(name, copy, tmp_path):
    root = copy(name)
    case = READERS[name](root)["training"][0]
    os.unlink(case["label"])
    problem = only_problem(name, root, tmp_path)
    assert problem.kind == "unmatched"
    assert problem.file == case["image"]
    with pytest.raises(DataError, match=re.escape(problem.file)):
        checked_datalists(name, root)


def test_a_folder_without_masks(copy, tmp_path):
    root = copy("dsb2018")
    folder = next(root.glob("*/*/masks"))
    shutil.rmtree(folder)
    assert only_problem("dsb2018", root, tmp_path).file == str(folder)


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
def test_an_extra_file(name, file, copy, tmp_path):
    root = copy(name)
    (root / file).write_bytes(b"something")
    problem = only_problem(name, root, tmp_path)
    assert problem.file == str(root / file)
    assert problem.kind in ("extra", "unmatched")


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


@pytest.mark.parametrize("name", ["wbc", "drive", "refuge"])
def test_a_foreign_value(name, copy, tmp_path):
    root = copy(name)
    case = READERS[name](root)["training"][0]
    pixels = np.array(Image.open(case["label"]).convert("L"))
    pixels[3, 4] = 77
    Image.fromarray(pixels).save(case["label"])
    problem = only_problem(name, root, tmp_path)
    assert problem.kind == "values"
    folder, file = os.path.split(case["label"])
    assert problem.file == folder
    known = {"wbc": "0, 128, 255", "drive": "0, 1, 255", "refuge": "255, 128, 0"}[name]
    assert re.fullmatch(rf"1 of \d+ files have values other than {known}: {file} \(77\)", problem.problem)
    checked_datalists(name, root)
    with pytest.raises(RuntimeError) as caught:
        _load(name)(case)
    sentence = f"{case['label']}: the mask has the values 77, but only {known} stand for classes."
    assert str(caught.value.__cause__).startswith(sentence)


def test_not_a_number_in_a_volume(copy, tmp_path):
    root = copy("hippocampus")
    case = read_hippocampus(root)["training"][0]
    label = nibabel.load(case["label"])
    nibabel.save(nibabel.Nifti1Image(np.full(label.shape, np.nan), label.affine), case["image"])
    assert re.fullmatch(r"the file has \d+ NaN or infinite values", only_problem("hippocampus", root, tmp_path).problem)


@pytest.mark.parametrize("name", READERS)
def test_folders_that_cannot_be(name, tmp_path):
    folder = tmp_path / "empty"
    folder.mkdir()
    assert only_problem(name, folder, tmp_path).problem.endswith(" here, it is empty")
    report = check_source(SOURCES[name], tmp_path / "no such")
    assert [p.file for p in report.problems] == [str(tmp_path / "no such")]
    assert "no such file" in str(report)
    (tmp_path / "file.txt").write_text("text")
    assert "this is a file, not a folder" in str(check_source(SOURCES[name], tmp_path / "file.txt"))
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    assert "symbolic link" in str(check_source(SOURCES[name], loop))


def test_a_folder_that_links_back_to_its_parent(copy, tmp_path):
    root = copy("refuge")
    (root / "Training400" / "again").symlink_to("..")
    problem = only_problem("refuge", root, tmp_path)
    assert problem.file == str(root / "Training400" / "again")


def test_a_linked_folder_is_read(drawn, tmp_path):
    (tmp_path / "link").symlink_to(drawn / "refuge")
    (tmp_path / "inner").mkdir()
    for folder in (drawn / "refuge").iterdir():
        (tmp_path / "inner" / folder.name).symlink_to(folder)
    assert fingerprint(read_refuge(tmp_path / "link")) == fingerprint(read_refuge(tmp_path / "inner"))


@pytest.mark.parametrize("name", READERS)
def test_unicode_and_spaces(name, drawn, tmp_path, monkeypatch):
    folder = tmp_path / "Übung 1 — данные" / "my data"
    shutil.copytree(drawn / name, folder)
    assert check_source(SOURCES[name], folder, tmp_path / "cache é").problems == ()
    monkeypatch.chdir(folder.parent)
    assert READERS[name]("my data", cache_dir=tmp_path / "c") == READERS[name](folder, cache_dir=tmp_path / "c")


@pytest.mark.parametrize("damage", ["escape", "truncated", "text"])
def test_a_bad_archive(damage, drawn, tmp_path):
    archive = tmp_path / "zipped" / "stage1_train.zip"
    archive.parent.mkdir()
    shutil.make_archive(str(archive.with_suffix("")), "zip", drawn / "dsb2018" / "stage1_train")
    if damage == "escape":
        with zipfile.ZipFile(archive, "a") as stream:
            stream.writestr("../../escaped.txt", "outside")
    elif damage == "truncated":
        truncate(archive)
    else:
        web_page(archive)
    problem = only_problem("dsb2018", archive.parent, tmp_path)
    assert problem.file == str(archive)
    assert list((tmp_path / "cache").iterdir()) == []
    assert not list(tmp_path.rglob("escaped.txt"))


def test_all_problems_are_reported_at_once(copy):
    root = copy("wbc") / "Dataset 1"
    truncate(root / "001.bmp")
    empty(root / "002.png")
    (root / "003.png").unlink()
    (root / "notes.txt").write_text("text")
    report = check_source(SOURCES["wbc"], root)
    assert sorted(Path(p.file).name for p in report.problems) == ["001.bmp", "002.png", "003.bmp", "notes.txt"]
    with pytest.raises(DataError, match=r"(?s)notes\.txt.*003\.bmp") as caught:
        checked_datalists("wbc", root)
    assert len(caught.value.problems) == 2


def test_a_long_list_is_cut():
    error = DataError(*(Problem("empty", f"{i}.png", f"a {i}", "c.") for i in range(30)))
    assert len(str(error).splitlines()) == 21
    assert "10 more" in str(error)


def test_files_with_the_same_problem_share_a_line():
    error = DataError(*(Problem("empty", f"labels/{i}.png", "a", "c.") for i in range(30)))
    assert str(error) == "labels: 30 files, such as 0.png: a. c."
    assert len(error.problems) == 30


def test_an_error_keeps_its_problems_on_the_way_from_another_process():
    error = DataError(Problem("empty", "a.png", "the file is empty"), Problem("extra", "b.png", "unexpected file"))
    again = pickle.loads(pickle.dumps(error))
    assert again.problems == error.problems
    assert str(again) == str(error)


def test_all_masks_gone(copy, tmp_path):
    root = copy("wbc")
    for mask in root.rglob("*.png"):
        mask.unlink()
    problem = only_problem("wbc", root, tmp_path)
    assert problem.problem == "there are no files named <id>.png"


def test_an_image_in_the_wrong_folder(copy, tmp_path):
    root = copy("dsb2018")
    image = sorted(root.glob("*/*/images/*.png"))[0]
    image.rename(image.with_name("image.png"))
    assert only_problem("dsb2018", root, tmp_path).file.endswith("image.png")


@pytest.mark.parametrize("mode", ["I;16", "RGBA", "RGB"])
def test_a_mask_that_would_lose_values_is_refused(mode, copy, tmp_path):
    root = copy("wbc")
    case = read_wbc(root)["training"][0]
    mask = Image.open(case["label"]).convert("L")
    colored = Image.merge("RGB", (mask, Image.new("L", mask.size), mask))
    wide = Image.fromarray(np.asarray(mask).astype(np.uint16) * 257)
    clear = mask.convert("RGBA")
    clear.putpixel((0, 0), (0, 0, 0, 0))
    kinds = {"I;16": (wide, "has the mode I;16"), "RGBA": (clear, "is transparent in places")}
    kinds |= {"RGB": (colored, "has colors")}
    kinds[mode][0].save(case["label"])
    assert kinds[mode][1] in only_problem("wbc", root, tmp_path).problem
    with pytest.raises(RuntimeError):
        _load("wbc")(case)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA"])
def test_a_gray_mask_in_several_channels_is_read(mode, copy):
    root = copy("wbc")
    case = read_wbc(root)["training"][0]
    expected = _load("wbc")(case)["label"]
    Image.open(case["label"]).convert(mode).save(case["label"])
    torch.testing.assert_close(_load("wbc")(case)["label"].as_tensor(), expected.as_tensor())


@pytest.mark.parametrize("palette", [[0, 0, 0, 128, 0, 0, 0, 128, 0], [0, 0, 0, 128, 128, 128, 255, 255, 255]])
def test_a_palette_with_colors_gives_its_indices_and_a_gray_one_its_grays(palette, tmp_path):
    classes = np.array([[0, 1], [2, 1]], np.uint8)
    mask = Image.fromarray(classes)
    mask.putpalette(palette)
    mask.save(tmp_path / "mask.png")
    assert Image.open(tmp_path / "mask.png").mode == "P"
    is_gray = palette[3] == palette[4]
    expected = np.array(palette[::3])[classes] if is_gray else classes
    read = LoadFiled("label", GREY)({"label": str(tmp_path / "mask.png")})["label"][0].numpy().T  # the width is first
    np.testing.assert_array_equal(read, expected)


def test_label_values_of_bytes():
    label = torch.tensor([0, 128, 255, 128], dtype=torch.uint8)
    classes = LabelValuesd("label", [0, 128, 255])({"label": label})["label"]
    torch.testing.assert_close(classes, torch.tensor([0, 1, 2, 1], dtype=torch.uint8))
    with pytest.raises(DataError, match="has the values 77, but only 0, 128, 255 stand for classes"):
        LabelValuesd("label", [0, 128, 255])({"label": torch.tensor([0, 77, 255], dtype=torch.uint8)})


def test_drive_root_is_one_section_only(copy, tmp_path):
    root = copy("drive") / "training"
    problem = only_problem("drive", root, tmp_path)
    assert "no folder 'test' with images/*_test.tif here, only 1st_manual, images, mask" in problem.problem


@pytest.mark.parametrize("name", ["masks", "REFUGE_with_masks", "contest", "test/mask"])
def test_refuge_is_not_misled_by_folders_above(name, drawn, tmp_path):
    root = tmp_path / name
    shutil.copytree(drawn / "refuge", root / "inner")
    for place in (root, root / "inner"):
        assert {k: len(v) for k, v in read_refuge(place).items()} == {"training": 2, "validation": 2, "test": 2}


def test_refuge_in_one_archive_per_folder(drawn, tmp_path):
    """The sections are in the names of the archives; a folder with everything in it makes the archives unnecessary."""
    for folder in sorted((drawn / "refuge").iterdir()):
        shutil.make_archive(str(tmp_path / "in" / folder.name), "zip", folder)
    packed = read_refuge(tmp_path / "in", cache_dir=tmp_path / "cache")
    assert fingerprint(packed) == fingerprint(read_refuge(drawn / "refuge"))
    shutil.copytree(drawn / "refuge", tmp_path / "in" / "all")
    plain = read_refuge(tmp_path / "in", cache_dir=tmp_path / "other")
    assert plain == read_refuge(tmp_path / "in" / "all")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("gone", ["REFUGE-Test-GT", "REFUGE-Validation400-GT", "REFUGE-Validation400"])
def test_refuge_without_the_images_or_masks_of_a_section(gone, copy, tmp_path):
    root = copy("refuge")
    shutil.rmtree(root / gone)
    section = "test" if "Test" in gone else "validation"
    missing = f"no {section} {'labels' if gone.endswith('GT') else 'images'} here, only "
    assert missing in only_problem("refuge", root, tmp_path).problem


def test_refuge_without_the_test_section(copy):
    root = copy("refuge")
    for name in ("REFUGE-Test400", "REFUGE-Test-GT"):
        shutil.rmtree(root / name)
    assert {name: len(cases) for name, cases in read_refuge(root).items()} == {
        "training": 2,
        "validation": 2,
        "test": 0,
    }


@pytest.mark.parametrize("file", ["wbc label.png", "hippocampus image.nii.gz"])
def test_checksums_inside_of_files_are_compared(file, copy, tmp_path):
    name, pattern = FILES[file]
    root = copy(name)
    path = sorted(root.glob(pattern))[0]
    data = bytearray(path.read_bytes())
    data[-6] ^= 0xFF  # in the checksum, not in the pixels
    path.write_bytes(data)
    assert only_problem(name, root, tmp_path).file == str(path)


def test_a_label_in_another_place(copy, tmp_path):
    root = copy("hippocampus")
    case = read_hippocampus(root)["training"][0]
    label = nibabel.load(case["label"])
    nibabel.save(nibabel.Nifti1Image(np.asarray(label.dataobj), np.diag([2.0, 1, 1, 1])), case["label"])
    assert only_problem("hippocampus", root, tmp_path).problem.startswith(
        "its affine (position and axes) differs from that of hippo"
    )


def test_a_volume_of_four_axes(copy, tmp_path):
    root = copy("hippocampus")
    case = read_hippocampus(root)["training"][0]
    nibabel.save(nibabel.Nifti1Image(np.zeros((4, 5, 6, 2), np.uint8), np.eye(4)), case["label"])
    assert only_problem("hippocampus", root, tmp_path).problem.endswith("has the shape 4 x 5 x 6 x 2")


def test_a_broken_archive_beside_a_good_one(drawn, tmp_path):
    shutil.make_archive(str(tmp_path / "stage1_train"), "zip", drawn / "dsb2018")
    (tmp_path / "aaa.zip").write_text("nothing")
    assert read_dsb2018(tmp_path, cache_dir=tmp_path / "cache")["training"]


def test_all_bad_masks_are_named_before_a_merge_is_cached(copy, tmp_path):
    root = copy("dsb2018")
    masks = sorted(root.glob("*/*/masks/*.png"))
    for mask in (masks[0], masks[1], masks[-1]):
        truncate(mask)
    with pytest.raises(DataError) as caught:
        read_dsb2018(root, cache_dir=tmp_path)
    assert {p.file for p in caught.value.problems} == {str(masks[0]), str(masks[1]), str(masks[-1])}


@pytest.mark.parametrize("count", [4, 5, 9])
def test_few_cases_still_have_a_validation_section(count, tmp_path):
    SOURCES["wbc"].synthesize(tmp_path / "few", count, size=24)
    assert len(read_wbc(tmp_path / "few")["validation"]) == 1


# the command line


def test_check_tells_by_exit_code_and_json(copy, capsys):
    root = copy("wbc")
    assert main(["check", "wbc", "--root", str(root)]) == 0
    assert "9 training, 1 validation" in capsys.readouterr().out
    empty(root / "Dataset 1" / "001.png")
    assert main(["check", "wbc", "--root", str(root), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert report["problems"][0]["kind"] == "empty"
    assert report["problems"][0]["file"].endswith("001.png")
    assert report["official"] == {"training": 270, "validation": 30}


def test_a_report_says_that_cases_are_missing_only_if_they_are(drawn, monkeypatch):
    sentence = (
        "The official release has 270 training, 30 validation: if you did not choose a part of it, some are missing."
    )
    assert str(check_source(SOURCES["wbc"], drawn / "wbc")).splitlines() == [
        f"wbc in {drawn / 'wbc'}: 20 files opened; 9 training, 1 validation.",
        sentence,
        "No problem found.",
    ]
    complete = dataclasses.replace(SOURCES["wbc"], counts={"training": 9, "validation": 1})
    assert str(check_source(complete, drawn / "wbc")).splitlines()[1:] == ["No problem found."]
    nothing = str(check_source(SOURCES["wbc"], drawn / "none"))
    assert nothing.splitlines()[1:] == [f"wbc in {drawn / 'none'}: 0 files opened; no cases.", "1 problem found."]


def test_check_prints_nothing_but_json_where_an_archive_is_unpacked(drawn, tmp_path, capfd):
    shutil.make_archive(str(tmp_path / "stage1_train"), "zip", drawn / "dsb2018")
    arguments = ["check", "dsb2018", "--root", str(tmp_path), "--json", "--cache_dir", str(tmp_path / "cache")]
    assert main(arguments) == 0
    assert json.loads(capfd.readouterr().out)["ok"] is True


def test_the_commands_run_from_anywhere(copy, tmp_path):
    log = tmp_path / "log"
    command = ["data", "check", "wbc", "--root", copy("wbc").name]
    assert Program("monai_iels", *command, stdout=log, cwd=tmp_path).wait() == 0
    assert log.read_text().endswith("No problem found.\n")


@pytest.mark.parametrize("name", ["drive", "refuge", "cityscapes"])
def test_what_cannot_be_downloaded_is_explained(name, tmp_path, capsys):
    assert main(["download", name, "--root", str(tmp_path / "x")]) == 1
    text = capsys.readouterr().err
    assert "Register at https://" in text
    assert SOURCES[name].layout.splitlines()[0] in text
    assert not (tmp_path / "x").exists()


def test_a_typo_in_the_name(capsys):
    assert main(["check", "wcb", "--root", "."]) == 1
    assert capsys.readouterr().err.startswith("unknown data set 'wcb': choose one of wbc, ")
    assert main(["check", "bundles/mien", "--root", "."]) == 1
    assert capsys.readouterr().err.startswith("there is no folder bundles/mien: ")


# downloads, from a server that can stop half way


class Server(http.server.ThreadingHTTPServer):
    """A file server that sends only ``limit`` bytes of a file, then hangs or hangs up."""

    def __init__(self, folder):
        self.folder, self.limit, self.hang, self.requests = folder, None, False, 0
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def url(self, name):
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = self.server.folder / Path(self.path).name
        if not path.exists():
            return self.send_error(404)
        data = path.read_bytes()
        self.server.requests += 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: self.server.limit])
        self.wfile.flush()
        if self.server.hang:
            time.sleep(30)
        return None

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(drawn, tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()
    shutil.make_archive(str(folder / "master"), "zip", drawn / "wbc")
    server = Server(folder)
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def known(drawn, monkeypatch, tmp_path):
    """Make the drawn set the official one."""
    archive = {**SOURCES["wbc"].archive, "contents": fingerprint(read_wbc(drawn / "wbc"))}
    monkeypatch.setitem(SOURCES, "wbc", dataclasses.replace(SOURCES["wbc"], archive=archive))
    return tmp_path / "downloaded"


def test_download(known, server, capsys):
    arguments = ["download", "wbc", "--root", str(known), "--url", server.url("master.zip")]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "sha256" in out
    assert "No problem found" in out
    assert sorted(p.name for p in known.iterdir()) == ["segmentation_WBC", "segmentation_WBC.zip"]
    assert read_wbc(known)["training"]
    assert main(arguments) == 0
    assert "already exists" in capsys.readouterr().out
    assert server.requests == 1


def test_a_download_that_breaks_off_leaves_nothing(known, server, capsys):
    size = (server.folder / "master.zip").stat().st_size
    server.limit = size // 2
    arguments = ["download", "wbc", "--root", str(known), "--url", server.url("master.zip")]
    assert main(arguments) == 1
    assert f"the download failed ({size // 2} of {size} bytes arrived)" in capsys.readouterr().err
    assert list(known.iterdir()) == []
    server.limit = None
    assert main(arguments) == 0


def test_the_right_checksum_is_said(known, server, monkeypatch, capsys):
    digest = hashlib.md5((server.folder / "master.zip").read_bytes()).hexdigest()
    archive = {**SOURCES["wbc"].archive, "checksum": f"md5:{digest}"}
    monkeypatch.setitem(SOURCES, "wbc", dataclasses.replace(SOURCES["wbc"], archive=archive))
    assert main(["download", "wbc", "--root", str(known), "--url", server.url("master.zip")]) == 0
    assert "segmentation_WBC.zip: its md5 is correct." in capsys.readouterr().out


def test_an_interrupted_download_leaves_nothing(known, server):
    server.limit, server.hang = (server.folder / "master.zip").stat().st_size // 2, True
    arguments = ["download", "wbc", "--root", str(known), "--url", server.url("master.zip")]
    process = multiprocessing.get_context("fork").Process(target=_exit_with_main, args=(arguments,))
    process.start()
    while not server.requests:
        time.sleep(0.01)
    time.sleep(0.2)
    os.kill(process.pid, signal.SIGINT)
    process.join()
    assert process.exitcode == 130
    assert list(known.iterdir()) == []
    server.limit, server.hang = None, False
    assert main(arguments) == 0


def test_a_download_with_other_contents_is_refused(known, server, copy, capsys):
    root = copy("wbc")
    Image.fromarray(np.zeros((48, 48, 3), np.uint8)).save(root / "Dataset 1" / "001.bmp")
    shutil.make_archive(str(server.folder / "changed"), "zip", root)
    assert main(["download", "wbc", "--root", str(known), "--url", server.url("changed.zip")]) == 1
    assert "the sha256 of all labeled images and their masks is" in capsys.readouterr().err
    assert [p.name for p in known.iterdir()] == ["segmentation_WBC.zip.refused"]
    assert main(["download", "wbc", "--root", str(known), "--url", server.url("master.zip")]) == 0


def test_a_wrong_hash_is_refused(server, tmp_path, capsys):
    arguments = ["download", "dsb2018", "--root", str(tmp_path / "d"), "--url", server.url("master.zip")]
    assert main(arguments) == 1
    assert re.search(r"its sha256 is \w{64} instead of 9808\w+\.", capsys.readouterr().err)
    assert [p.name for p in (tmp_path / "d").iterdir()] == ["stage1_train.zip.refused"]


def test_a_page_that_says_it_is_an_archive_is_fetched_again(known, server, capsys):
    web_page(server.folder / "page.zip")
    arguments = ["download", "wbc", "--root", str(known), "--url"]
    assert main([*arguments, server.url("page.zip")]) == 1
    assert "broken archive" in capsys.readouterr().err
    assert main([*arguments, server.url("master.zip")]) == 0


@pytest.mark.parametrize("url", ["notaurl", "http://a b/x.zip", "file:///no/such.zip"])
def test_an_address_that_is_none(url, known, capsys):
    assert main(["download", "wbc", "--root", str(known), "--url", url]) == 1
    assert capsys.readouterr().err.startswith(f"{url}: the download failed (")


@pytest.mark.parametrize("reason", ["missing", "nobody"])
def test_a_server_that_does_not_deliver(reason, known, server, capsys):
    url = server.url("none.zip" if reason == "missing" else "master.zip")
    if reason == "nobody":
        url = "http://127.0.0.1:9/master.zip"
    assert main(["download", "wbc", "--root", str(known), "--url", url]) == 1
    assert capsys.readouterr().err.startswith(f"{url}: the download failed (")
    assert list(known.iterdir()) == []


# a cache is complete or absent


@contextmanager
def files_of_at_most(limit):
    """Let no file grow beyond so many bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("share", [0.3, 0.9])
@pytest.mark.parametrize("name", READERS)
def test_what_could_not_be_drawn_is_not_there(name, share, drawn, tmp_path):
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


@pytest.mark.parametrize("kind", ["zip", "tar", "gztar"])
def test_what_could_not_be_unpacked_is_not_there(kind, drawn, tmp_path):
    shutil.make_archive(str(tmp_path / "in" / "Dataset 1"), kind, drawn / "wbc")
    with files_of_at_most(5000), pytest.raises(OSError, match=rf"File too large: '{tmp_path}/cache/Dataset 1-"):
        read_wbc(tmp_path / "in", cache_dir=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
    assert fingerprint(read_wbc(tmp_path / "in", cache_dir=tmp_path / "cache")) == fingerprint(read_wbc(drawn / "wbc"))


def test_what_could_not_be_merged_is_not_there(drawn, tmp_path):
    with files_of_at_most(60), pytest.raises(OSError, match=r"File too large: .*dsb2018-labels-"):
        read_dsb2018(drawn / "dsb2018", cache_dir=tmp_path)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
    merged = read_dsb2018(drawn / "dsb2018", cache_dir=tmp_path)
    assert all(Image.open(case["label"]).load() for case in merged["training"])


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


def test_drawings_of_other_sizes_and_seeds_do_not_share_a_folder(tmp_path):
    for size, seed in ((32, 0), (40, 0), (40, 1)):
        checked_datalists("wbc", seed=seed, cache_dir=tmp_path, count=4, size=size)
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("place", ["file", "/proc/no", "/dev/null/cache"])
def test_a_cache_that_cannot_be(place, tmp_path):
    (tmp_path / "file").write_text("text")
    with pytest.raises(OSError, match=f"'{tmp_path / place}/synthetic-wbc-4-32-"):
        checked_datalists("wbc", cache_dir=tmp_path / place, count=4, size=32)


def test_a_download_to_a_full_disk(known, server, capsys):
    arguments = ["download", "wbc", "--root", str(known), "--url", server.url("master.zip")]
    with files_of_at_most(2000):
        assert main(arguments) == 1
    assert re.fullmatch(r".*\.zip cannot be written \(file too large\): .* --root\.\n", capsys.readouterr().err)
    assert main(arguments) == 0


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


def test_the_cache_is_the_user_s_cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mine"))
    checked_datalists("wbc", count=4, size=32)
    (folder,) = (tmp_path / "mine" / "monai_iels").iterdir()
    assert folder.name.startswith("synthetic-wbc-4-32-seed0")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    checked_datalists("wbc", count=4, size=32)
    assert (tmp_path / "home" / ".cache" / "monai_iels" / folder.name).is_dir()


# archives that are not unpacked


def zip_of(file, *members, size=None):
    """Write a zip of ``(name, content, mode)``; all members declare ``size``, if given."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as stream:
        for name, content, mode in members:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16
            stream.writestr(entry, content, zipfile.ZIP_DEFLATED)
    if size is not None:
        head, *entries = file.read_bytes().split(b"PK\x01\x02")
        changed = [entry[:20] + struct.pack("<I", size) + entry[24:] for entry in entries]
        file.write_bytes(b"PK\x01\x02".join([head, *changed]))


def tar_of(file, name, size=0, kind=tarfile.REGTYPE, link=""):
    """Write a tar of one member's header; of what it says to hold, nothing is there."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.type, entry.linkname = size, kind, link
    header = entry.tobuf(tarfile.GNU_FORMAT)
    file.write_bytes(gzip.compress(header) if file.name.endswith("gz") else header)


LINK, FILE = 0o120777, 0o100644
ARCHIVES = {
    "a.zip: a link": (lambda f: zip_of(f, ("a", "/etc", LINK)), "a is a link or a device"),
    "a.zip: a link that is a folder": (lambda f: zip_of(f, ("a", "b", LINK), ("a/b", "x", FILE)), "a is a link"),
    "a.zip: a file that is a folder": (
        lambda f: zip_of(f, ("a", "b", FILE), ("a/b", "x", FILE)),
        "one path is a file and also a folder",
    ),
    "a.zip: a pipe": (lambda f: zip_of(f, ("a", "", 0o010644)), "a is a link or a device"),
    "a.zip: outside": (lambda f: zip_of(f, ("x/../../a", "b", FILE)), "lies outside"),
    "a.zip: absolute": (lambda f: zip_of(f, ("/tmp/a", "b", FILE)), "lies outside"),
    "a.zip: more than it says": (lambda f: zip_of(f, ("a", bytes(10**6), FILE), size=1000), "Bad CRC-32"),
    "a.zip: less than it says": (lambda f: zip_of(f, ("a", b"x", FILE), size=1000), "does not have as many bytes"),
    "a.zip: beyond the ratio": (
        lambda f: zip_of(f, *((f"{i}", b"x", FILE) for i in range(3)), size=2**32 - 2),
        r"3 files of 12.9GB or more in an archive of \d+B, at most 1000000 files of 10.0GB are unpacked",
    ),
    "a.tar: a link": (lambda f: tar_of(f, "a", 0, tarfile.SYMTYPE, "/etc/passwd"), "a is a link or a device"),
    "a.tar: a hard link": (lambda f: tar_of(f, "a", 0, tarfile.LNKTYPE, "/etc/passwd"), "a is a link or a device"),
    "a.tar: a device": (lambda f: tar_of(f, "a", 0, tarfile.CHRTYPE), "a is a link or a device"),
    "a.tar: a pipe": (lambda f: tar_of(f, "a", 0, tarfile.FIFOTYPE), "a is a link or a device"),
    "a.tar: outside": (lambda f: tar_of(f, "../a"), "lies outside"),
    "a.tar.gz: too large": (lambda f: tar_of(f, "a", 10**15), r"1 files of 1.00PB or more"),
    "a.tgz: beyond the ratio": (
        lambda f: tar_of(f, "a", 2 * 10**10),
        r"1 files of 20.0GB or more .*, at most .* files of 10.0GB",
    ),
    "a.tar.gz: no gzip": (lambda f: f.write_bytes(b"text"), "broken archive"),
    "a.ZIP: no zip": (lambda f: f.write_bytes(b"text"), r"broken archive \(File is not a zip file\)"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_that_is_not_unpacked(name, tmp_path):
    make, sentence = ARCHIVES[name]
    archive = tmp_path / "in" / name.split(":")[0]
    archive.parent.mkdir()
    make(archive)
    with pytest.raises(DataError, match=sentence) as caught:
        read_wbc(archive.parent, cache_dir=tmp_path / "cache")
    assert len(str(caught.value).splitlines()) == 1
    assert str(caught.value).startswith(f"{archive}: ")
    assert list((tmp_path / "cache").iterdir()) == []


def test_an_archive_that_the_disk_has_no_room_for(tmp_path):
    needed = shutil.disk_usage(tmp_path).free + 10**9
    if needed > 190 * 10**9:
        pytest.skip("the disk has more room than any archive may take")
    tar_of(tmp_path / "a.tar", "a", needed)
    os.truncate(tmp_path / "a.tar", 1024 + needed + 512)  # a hole, which takes no room
    with pytest.raises(DataError, match=r"a\.tar: its contents need .*GB, but only .*GB are free\. Nothing was"):
        read_wbc(tmp_path, cache_dir=tmp_path / "cache")


@pytest.mark.parametrize(
    ("limits", "refused"),
    [
        ({}, False),
        ({"_SMALL": 1000}, True),
        ({"_SMALL": 1000, "_RATIO": 2000}, False),
        ({"_BYTES": 10**6}, False),
        ({"_BYTES": 10**6 - 1}, True),
        ({"_MEMBERS": 2}, False),
        ({"_MEMBERS": 1}, True),
    ],
)
def test_the_limits_of_an_archive(limits, refused, tmp_path, monkeypatch):
    for name, limit in limits.items():
        monkeypatch.setattr(_archives, name, limit)
    zip_of(tmp_path / "a.zip", ("a", bytes(10**6), FILE), ("b", b"", FILE))  # shrinks to about a thousandth
    if refused:
        with pytest.raises(DataError, match=r"a\.zip: \d files of .* are unpacked\. Nothing was unpacked"):
            _archives.unpack(tmp_path / "a.zip", tmp_path / "cache")
    else:
        assert (_archives.unpack(tmp_path / "a.zip", tmp_path / "cache") / "a").stat().st_size == 10**6


def test_an_archive_with_a_damaged_end_is_not_unpacked(drawn, tmp_path):
    archive = Path(shutil.make_archive(str(tmp_path / "in" / "Dataset 1"), "gztar", drawn / "wbc"))
    data = bytearray(archive.read_bytes())
    data[-6] ^= 0xFF  # in the checksum
    archive.write_bytes(data)
    with pytest.raises(DataError, match=r"broken archive \(CRC check failed"):
        read_wbc(archive.parent, cache_dir=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


# stray values in labels


def labels_of(folder, values):
    """Write images and labels, and return their datalists and how a training reads them."""
    for name, stray in values.items():
        for kind in ("images", "labels"):
            pixels = np.zeros((8, 9), np.uint8)
            pixels[0, : len(stray)] = stray
            (folder / kind).mkdir(exist_ok=True)
            Image.fromarray(pixels).save(folder / kind / name)
    return paired_datalists(folder, validation=0.3)


def test_all_labels_with_stray_values_are_named_with_what_accepts_them(tmp_path):
    datalists = labels_of(tmp_path, {"a.png": [1], "b.png": [255], "c.png": [1, 254], "d.png": [0]})
    with pytest.raises(DataError) as caught:
        check_labels(datalists, labels([0, 255]))
    (problem,) = caught.value.problems
    assert problem.file == str(tmp_path / "labels")
    assert set(re.findall(r"(\w+\.png) \(([\d, ]+)\)", problem.problem)) == {("a.png", "1"), ("c.png", "1, 254")}
    assert "2 of 4 files" in problem.problem
    lines = [json.loads(line) for line in re.findall(r'--label_values "(.*?)"', problem.remedy)]
    assert lines == [[0, [255, 1, 254]], [0, 255, 1, 254]]
    assert "--num_classes 4" in problem.remedy
    for line in lines:
        check_labels(datalists, labels(line))


def test_a_wrong_guess_of_the_values_is_answered_with_the_right_ones(tmp_path):
    datalists = labels_of(tmp_path, {"a.png": [0, 128, 255], "b.png": [0, 128]})
    with pytest.raises(DataError, match=r"all 2 files .* 127 is in no file.* label_values: \[0, 128, 255\]"):
        check_labels(datalists, labels([0, 127, 255]))
    check_labels(datalists, labels([0, 128, 255]))


def test_ignored_values_are_not_stray_and_become_255(tmp_path):
    datalists = labels_of(tmp_path, {"a.png": [1], "b.png": [7, 255], "c.png": [0]})
    check_labels(datalists, labels([0, 1], [7, 255]))
    with pytest.raises(DataError, match="values other than 0, 1 and, for ignored pixels, 7: b") as caught:
        check_labels(datalists, labels([0, 1], [7]))
    assert '--ignored_values "[7, 255]"' in str(caught.value)
    loaded = LoadFiled("label", GREY)({"label": str(tmp_path / "labels" / "b.png")})
    label = LabelValuesd("label", [0, 1], ignored=[7, 255])(loaded)["label"]
    assert label[0, :3, 0].tolist() == [IGNORED, IGNORED, 0]


@pytest.mark.parametrize(
    ("values", "ignored", "sentence"),
    [
        ([0, 255], [255], "ignored_values: 255 also stands for a class in label_values; keep it in one of them"),
        ([0, 1], [0.5], r"ignored_values must be a list of whole numbers, such as \[255\], got \[0\.5\]"),
        ([0, 1], "x", "ignored_values must be a list of whole numbers"),
        ([0, 1], 255.0, "ignored_values must be a list of whole numbers"),
        (list(range(256)), [], "label_values must have at most 255 classes, since 255 marks ignored pixels, got 256"),
    ],
)
def test_impossible_ignored_values(values, ignored, sentence):
    with pytest.raises(ValueError, match=sentence):
        LabelValuesd("label", values, ignored)
    LabelValuesd("label", list(range(255)), [255])


def test_many_stray_values_are_not_proposed_as_classes(tmp_path):
    datalists = labels_of(tmp_path, {"a.png": range(9), "b.png": [255], "c.png": [0]})
    with pytest.raises(DataError, match="8 different values, as in a mask that was resized") as caught:
        check_labels(datalists, labels([0, 255]))
    assert "--label_values" not in str(caught.value)


@pytest.mark.parametrize(("strays", "proposed"), [([1, 2, 3, 4, 5], True), ([1, 2, 3, 4, 5, 6], False)])
def test_a_few_stray_values_are_proposed_as_classes(strays, proposed, tmp_path):
    datalists = labels_of(tmp_path, {"a.png": strays, "b.png": [255], "c.png": [0]})
    with pytest.raises(DataError) as caught:
        check_labels(datalists, labels([0, 255]))
    assert ("--num_classes 7;" in str(caught.value)) is proposed


def test_fractions_are_not_proposed_as_classes(tmp_path):
    for number in range(2):
        label = np.full((4, 5, 6), number / 2)
        nibabel.save(nibabel.Nifti1Image(label, np.eye(4)), tmp_path / f"{number}.nii")
    datalists = {"training": [{"label": str(tmp_path / f"{number}.nii")} for number in range(2)]}
    with pytest.raises(DataError, match=r"1\.nii \(0\.5\)\. These are 1 different values, as in a mask"):
        check_labels(datalists, labels([0, 1], reader=NibabelReader()))


def test_only_label_keys_are_checked_and_unreadable_labels_are_named_too(tmp_path):
    datalists = labels_of(tmp_path, {"a.png": [7], "b.png": [255], "c.png": [0]})
    check_labels(datalists, [])
    check_labels(datalists, labels([0, 255], key="fov"))
    check_labels(datalists, [LoadFiled("label", GREY)])
    truncate(tmp_path / "labels" / "b.png")
    with pytest.raises(DataError, match=r"(?s)b\.png: the file is truncated.*a\.png \(7\)"):
        check_labels(datalists, labels([0, 255]))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (5, "must be one whole number or list of them per class"),
        ("0, 255", "got '0, 255'"),
        ([], r"got \[\]"),
        ([0, "a"], "got"),
        ([0, 2.5], "got"),
        ([0, True], "got"),
        ([0, [1, 255], 255], "255 stands for more than one class"),
    ],
)
def test_label_values_that_cannot_be(values, sentence):
    with pytest.raises(ValueError, match=f"label_values.*{sentence}"):
        LabelValuesd("label", values)


# what reaches the network


def test_images_arrive_in_monai_s_conventions(tmp_path):
    image = np.zeros((20, 30, 4), np.uint8)
    image[..., 0], image[..., 3] = np.arange(30), 255
    image[5, 7] = (200, 100, 50, 128)
    Image.fromarray(image).save(tmp_path / "a.png")
    load = Compose([LoadFiled("image", RGB), ScaleIntensityRanged("image", 0, 255, 0, 1)])
    loaded = load({"image": str(tmp_path / "a.png")})["image"]
    assert loaded.shape == (3, 30, 20)
    assert loaded.dtype == torch.float32
    torch.testing.assert_close(loaded[:, 7, 5].as_tensor() * 255, torch.tensor([200.0, 100.0, 50.0]))
    assert loaded.meta["filename_or_obj"] == str(tmp_path / "a.png")
    assert tuple(loaded.meta["spatial_shape"]) == (30, 20)


def test_a_mistake_in_a_program_is_not_blamed_on_a_file(tmp_path):
    Image.new("RGB", (9, 8)).save(tmp_path / "a.png")
    reader = PILReader(converter=operator.methodcaller("no_such_method"))
    with pytest.raises(AttributeError, match="no_such_method"):
        LoadFiled("image", reader)({"image": str(tmp_path / "a.png")})


def test_a_photograph_with_a_preview_is_one_page(copy):
    root = copy("refuge")
    file = read_refuge(root)["training"][0]["image"]
    image = Image.open(file).convert("RGB")
    image.save(file, "MPO", save_all=True, append_images=[image.resize((8, 8))])
    assert getattr(Image.open(file), "n_frames", 1) == 2
    assert check_source(SOURCES["refuge"], root).problems == ()


def test_a_label_is_written_back_in_its_source_geometry(drawn, tmp_path):
    for name, reader in (("wbc", GREY), ("hippocampus", NibabelReader())):
        case = READERS[name](drawn / name)["training"][0]
        label = LoadFiled("label", reader)(case)["label"]
        suffix = ".png" if name == "wbc" else ".nii.gz"
        save = SaveImage(tmp_path, output_ext=suffix, separate_folder=False, output_dtype=np.uint8, print_log=False)
        save(label)
        (written,) = tmp_path.glob(f"*{suffix}")
        if name == "wbc":
            np.testing.assert_array_equal(np.asarray(Image.open(written)), np.asarray(Image.open(case["label"])))
        else:
            a, b = nibabel.load(written), nibabel.load(case["label"])
            np.testing.assert_array_equal(a.dataobj, b.dataobj)
            np.testing.assert_allclose(a.affine, b.affine)


# your own files


@pytest.mark.parametrize("label", ["labels/{id}.png", "images/{id}_mask.png"])
def test_pairs_of_your_own(label, tmp_path):
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


def test_pairs_that_are_none(tmp_path):
    place = r"Give the folder that has images/{id}.png and labels/{id}.png, or correct these paths in dataset.yaml\."
    with pytest.raises(DataError, match=rf"typo: there is no such folder\. {place}"):
        paired_datalists(tmp_path / "typo")
    (tmp_path / "imgs").mkdir()
    with pytest.raises(DataError, match=rf"images: there is no such folder here, only imgs\. {place}") as caught:
        paired_datalists(tmp_path)
    assert "source" not in str(caught.value)
    with pytest.raises(ValueError, match=r"must contain {id} once, got 'images/\*\.png'"):
        paired_datalists(tmp_path, image="images/*.png")
    for validation in (0, 1):
        with pytest.raises(ValueError, match=f"validation must lie between 0 and 1, got {validation}"):
            paired_datalists(tmp_path, validation=validation)
    for test in (-0.1, 0.9):
        with pytest.raises(ValueError, match=f"test must be at least 0, and less than 1 together with .*, got {test}"):
            paired_datalists(tmp_path, test=test)
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
    with pytest.raises(DataError, match=r"Move it elsewhere, or correct `image` and `label` in dataset\.yaml\."):
        paired_datalists(tmp_path)


@pytest.mark.parametrize("suffix", [".nrrd", ".mha"])
def test_pairs_of_volumes(suffix, tmp_path):
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


# patients


@pytest.fixture(scope="module")
def patients(tmp_path_factory):
    """Write 60 pairs of 20 patients, who have one to five images each."""
    folder = tmp_path_factory.mktemp("patients")
    rows = ["file,patient,site"]
    for patient in range(20):
        for number in range(patient % 5 + 1):
            name = f"p{patient:02}_{number}"
            rows.append(f"{name},{patient},{'ab'[patient % 2]}")
            for kind in ("images", "labels"):
                (folder / kind).mkdir(exist_ok=True)
                Image.fromarray(np.zeros((4, 5), np.uint8)).save(folder / kind / f"{name}.png")
    (folder / "patients.csv").write_text("\n".join(rows))
    return folder


def patients_of(cases):
    return {Path(case["image"]).name.split("_")[0] for case in cases}


@pytest.mark.parametrize("how", [{"group": "^(.+)_"}, {"group": "patient", "table": "patients.csv"}])
def test_no_patient_is_in_two_sections(how, patients):
    splits = set()
    for seed in range(30):
        found = paired_datalists(patients, validation=0.2, test=0.1, seed=seed, **how)
        assert list(found) == ["training", "validation", "test"]
        assert len({case["image"] for cases in found.values() for case in cases}) == 60
        assert sum(len(patients_of(cases)) for cases in found.values()) == 20
        assert abs(len(found["validation"]) - 12) <= 2  # half of the largest patient
        assert abs(len(found["test"]) - 6) <= 2
        assert found == paired_datalists(patients, validation=0.2, test=0.1, seed=seed, **how)
        splits.add(str(found))
    assert len(splits) == 30


def test_without_a_group_patients_are_divided_and_a_warning_says_so(patients, caplog):
    found = paired_datalists(patients, validation=0.2)
    assert patients_of(found["training"]) & patients_of(found["validation"])
    (warning,) = caplog.messages
    assert warning.startswith("p01_0.png and p01_1.png look like images of one patient")
    proposed = re.search(r"group: '(.*?)'\.", warning)[1]
    together = paired_datalists(patients, validation=0.2, group=proposed)
    assert not patients_of(together["training"]) & patients_of(together["validation"])
    assert paired_datalists(patients, validation=0.2, group="(.+)") == found
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("names", ["img_{}", "{}", "case-{}", "scan 2024 {}"])
def test_names_that_only_count_cause_no_warning(names, tmp_path, caplog):
    labels_of(tmp_path, {f"{names.format(number)}.png": [255] for number in range(8)})
    assert caplog.messages == []


def test_a_few_large_patients_still_have_a_validation_section(tmp_path):
    labels_of(tmp_path, {f"{patient}_{number}.png": [255] for patient in "abc" for number in range(7)})
    found = paired_datalists(tmp_path, validation=0.1, group="(.)_")
    assert {name: len(cases) for name, cases in found.items()} == {"training": 14, "validation": 7}


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        (
            {"group": r"(x\d+)"},
            r"group '\(x.* does not match 60 of 60 images: p00_0.png, .*, \.\.\.; correct it .* '\^\(\.\+\)_', or",
        ),
        ({"group": "p0(.)_"}, "does not match 30 of 60 images"),
        ({"group": "(p)"}, "puts all 60 images into one group, 'p'"),
        ({"group": "p.._"}, r"must have parentheses around the patient, such as '\^\(.\+\)_', got 'p\.\._'"),
        ({"group": "(p"}, r"must be a regular expression, got '\(p' \("),
        (
            {"group": "age", "table": "patients.csv"},
            r"must be a column of .* \(file, patient, site\), got 'age'",
        ),
        ({"group": "patient", "table": "none.csv"}, r"none\.csv: cannot be opened"),
        ({"table": "patients.csv"}, "group or section must name a column of patients.csv"),
        ({"section": "site"}, "section 'site' is the column of a table .*; add table"),
        ({"section": "site", "group": "(.+)_", "table": "patients.csv"}, "section 'site' is .*; remove group"),
        ({"section": "age", "table": "patients.csv"}, "section must be a column of .*, got 'age'"),
        (
            {"section": "site", "table": "patients.csv"},
            "section of p00_0.png in .* must be one of training, validation, test, got 'a'",
        ),
    ],
)
def test_groups_that_cannot_be_found(how, sentence, patients):
    with pytest.raises(ValueError, match=sentence) as caught:
        paired_datalists(patients, **how)
    assert len(str(caught.value).splitlines()) == 1


def test_a_case_that_the_table_lacks(patients, tmp_path):
    shutil.copytree(patients, tmp_path / "copy")
    table = tmp_path / "copy" / "patients.csv"
    table.write_text(table.read_text().replace("p07_1,", "p99_1,").replace("p08_0,", "p08_0.png,"))
    with pytest.raises(ValueError, match=r"patients.csv for 1 of 60 images: p07_1.png; add it to the table"):
        paired_datalists(tmp_path / "copy", group="patient", table="patients.csv")


@pytest.mark.parametrize("separator", [";", "\t"])
def test_a_table_of_another_country(separator, patients, tmp_path):
    shutil.copytree(patients, tmp_path / "copy")
    table = tmp_path / "copy" / "patients.csv"
    expected = paired_datalists(tmp_path / "copy", group="patient", table="patients.csv")
    table.write_text("\ufeff" + table.read_text().replace(",", separator), encoding="utf-8")
    assert paired_datalists(tmp_path / "copy", group="patient", table="patients.csv") == expected


def test_a_split_that_exists_already(patients, tmp_path):
    shutil.copytree(patients, tmp_path / "copy")
    names = {0: "training", 1: "validation", 2: "test"}
    rows = [f"{file.name},{names[int(file.stem[1:3]) % 3]}" for file in sorted((patients / "images").iterdir())]
    table = tmp_path / "copy" / "split.csv"
    table.write_text("\n".join(["file,section", *rows]))
    found = paired_datalists(tmp_path / "copy", section="section", table="split.csv", seed=3)
    assert list(found) == ["training", "validation", "test"]
    for number, name in names.items():
        expected = [file.name for file in sorted((patients / "images").iterdir()) if int(file.stem[1:3]) % 3 == number]
        assert [Path(case["image"]).name for case in found[name]] == expected
    table.write_text(table.read_text().replace("validation", "training"))
    with pytest.raises(ValueError, match=r"the column 'section' of .*split.csv names no image for validation"):
        paired_datalists(tmp_path / "copy", section="section", table="split.csv")


# mistakes with files of your own


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
        "has 900000000 pixels, at most 178956970 can be read",
    ),
    "no pixels": (lambda i, m: i.write_bytes(png_header(0, 0)), "the file cannot be read"),
    "no image": (lambda i, m: i.write_text("hello"), "the file cannot be read"),
    "an empty file": (lambda i, m: i.write_bytes(b""), "the file is empty"),
    "a web page": (lambda i, m: web_page(m), "a web page"),
    "a folder": (lambda i, m: instead(i, Path.mkdir), "this is a folder, not a file"),
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
    "a truncated label": (lambda i, m: truncate(m), "the file is truncated"),
    "an image of two pages": (lambda i, m: several(i), "the file has 2 pages"),
    "a label of two pages": (lambda i, m: several(m), "the file has 2 pages"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_with_files_of_your_own(name, tmp_path):
    damage, sentence = MISTAKES[name]
    labels_of(tmp_path, {f"c{number}.png": [255] for number in range(4)})
    damage(tmp_path / "images" / "c1.png", tmp_path / "labels" / "c1.png")
    with pytest.raises(DataError, match=sentence) as caught:
        check_labels(paired_datalists(tmp_path), labels([0, 255]))
    assert len(str(caught.value).splitlines()) == len(caught.value.problems)
    str(caught.value).encode("utf-8")


@pytest.mark.parametrize("shape", [(4, 5, 0), (4, 5), (4, 5, 6, 2)])
def test_a_volume_that_is_none(shape, copy):
    root = copy("hippocampus")
    file = read_hippocampus(root)["training"][0]["image"]
    nibabel.save(nibabel.Nifti1Image(np.zeros(shape, np.uint8), np.eye(4)), file)
    with pytest.raises(DataError, match=r"the volume has the shape [x0-9 ]+\. Save") as caught:
        checked_datalists("hippocampus", root)
    assert caught.value.problems[0].file == file


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("what", ["folder", "file", "archive"])
def test_what_you_may_not_read(what):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o777)
        labels_of(root, {f"c{number}.png": [255] for number in range(4)})
        zip_of(root / "a.zip", ("a", "x", FILE))
        path = {"folder": root / "labels", "file": root / "labels" / "c1.png", "archive": root / "a.zip"}[what]
        path.chmod(0)
        os.seteuid(65534)
        try:
            with pytest.raises(DataError, match=rf"{path.name}: cannot be opened .*denied"):
                read_wbc(root, cache_dir=root / "c") if what == "archive" else paired_datalists(root)
        finally:
            os.seteuid(0)
