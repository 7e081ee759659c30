# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Cityscapes: the official folders, and label ids that become classes."""

import shutil

import numpy as np
import pytest
from data_sets import labels, loading_of, only_problem, read_cityscapes, truncate
from helpers import BUNDLES
from monai.bundle import ConfigParser
from PIL import Image

from monai_iels.data import IGNORED, SOURCES, DataError, check_labels, check_source


def test_other_files_and_the_test_set_of_the_official_layout_are_passed_over(copy, tmp_path):
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


def test_classes_and_colors_are_the_official_ones():
    official = pytest.importorskip("cityscapesscripts.helpers.labels").labels
    source = SOURCES["cityscapes"]
    classes = {label.trainId: label for label in official if 0 <= label.trainId < 255}
    assert source.classes == [classes[number].name for number in range(19)]
    assert source.values == [classes[number].id for number in range(19)]
    for name in ("train", "inference"):
        config = ConfigParser(ConfigParser.load_config_file(BUNDLES / "cityscapes" / "configs" / f"{name}.json"))
        assert config["colors"] == [list(classes[number].color) for number in range(19)]
        assert config["label_values"] == source.values
    assert config.get_parsed_content("written_values") == source.values


def test_every_label_id_becomes_its_official_class(copy):
    official = pytest.importorskip("cityscapesscripts.helpers.labels").id2label
    root = copy("cityscapes")
    file = next(root.glob("gtFine/train/drawn3/*_gtFine_labelIds.png"))
    Image.fromarray(np.arange(32 * 64, dtype=np.uint16).reshape(32, 64).astype(np.uint8) % 34).save(file)
    assert check_source(SOURCES["cityscapes"], root).problems == ()
    (case,) = (c for c in read_cityscapes(root)["training"] if "drawn3" in c["image"])
    expected = np.array([official[number].trainId for number in range(34)])[np.asarray(Image.open(file))]
    np.testing.assert_array_equal(loading_of("cityscapes")(case)["label"][0].T, expected)
    assert (expected == IGNORED).any()


def test_a_damaged_label_is_named(copy, tmp_path):
    root = copy("cityscapes")
    file = next(root.glob("gtFine/train/drawn3/*_gtFine_labelIds.png"))
    truncate(file)
    assert only_problem("cityscapes", root, tmp_path).file == str(file)


def test_missing_labels_and_folders_of_labels_are_named(copy, tmp_path):
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


def test_a_value_that_is_no_label_id_is_named(copy, tmp_path):
    root = copy("cityscapes")
    file = next(root.glob("gtFine/train/drawn3/*_gtFine_labelIds.png"))
    pixels = np.array(Image.open(file))
    pixels[0, 0] = 77
    Image.fromarray(pixels).save(file)
    problem = only_problem("cityscapes", root, tmp_path)
    assert f"{file.name} (77)" in problem.problem
    with pytest.raises(DataError, match=rf"{file.name} \(77\)"):
        check_labels(read_cityscapes(root), labels(SOURCES["cityscapes"].values, SOURCES["cityscapes"].ignored))


def test_synthetic_streets_have_all_official_classes(tmp_path):
    root = SOURCES["cityscapes"].synthesize(tmp_path / "drawn", count=12, size=128)
    cases = read_cityscapes(root, cache_dir=tmp_path)
    found = [set(np.unique(Image.open(case["label"]))) for section in cases.values() for case in section]
    known = set(SOURCES["cityscapes"].values)
    assert all(values - known and len(values & known) > 12 for values in found)
    assert known < set.union(*found) <= {*range(34)}
