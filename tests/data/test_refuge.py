# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""REFUGE: official folders and archives."""

import shutil

import pytest
from data_sets import only_problem, read_refuge
from PIL import Image

from monai_iels.data import SOURCES, check_source, fingerprint


@pytest.mark.parametrize("name", ["masks", "REFUGE_with_masks", "contest", "test/mask"])
def test_names_of_folders_above_the_data_do_not_matter(name, drawn, tmp_path):
    root = tmp_path / name
    shutil.copytree(drawn / "refuge", root / "inner")
    for place in (root, root / "inner"):
        assert {k: len(v) for k, v in read_refuge(place).items()} == {"training": 2, "validation": 2, "test": 2}


def test_one_archive_per_folder_is_read_unless_a_folder_has_everything(drawn, tmp_path):
    for folder in sorted((drawn / "refuge").iterdir()):
        shutil.make_archive(str(tmp_path / "in" / folder.name), "zip", folder)
    packed = read_refuge(tmp_path / "in", cache_dir=tmp_path / "cache")
    assert fingerprint(packed) == fingerprint(read_refuge(drawn / "refuge"))
    shutil.copytree(drawn / "refuge", tmp_path / "in" / "all")
    plain = read_refuge(tmp_path / "in", cache_dir=tmp_path / "other")
    assert plain == read_refuge(tmp_path / "in" / "all")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("gone", ["REFUGE-Test-GT", "REFUGE-Validation400-GT", "REFUGE-Validation400"])
def test_a_section_without_its_images_or_masks_is_named(gone, copy, tmp_path):
    root = copy("refuge")
    shutil.rmtree(root / gone)
    assert f"no folder '{gone}' with " in only_problem("refuge", root, tmp_path).problem


def test_the_test_section_may_be_missing(copy):
    root = copy("refuge")
    for name in ("REFUGE-Test400", "REFUGE-Test-GT"):
        shutil.rmtree(root / name)
    assert {name: len(cases) for name, cases in read_refuge(root).items()} == {
        "training": 2,
        "validation": 2,
        "test": 0,
    }


def test_a_photograph_with_a_preview_counts_as_one_page(copy):
    root = copy("refuge")
    file = read_refuge(root)["training"][0]["image"]
    image = Image.open(file).convert("RGB")
    image.save(file, "MPO", save_all=True, append_images=[image.resize((8, 8))])
    assert getattr(Image.open(file), "n_frames", 1) == 2
    assert check_source(SOURCES["refuge"], root).problems == ()
