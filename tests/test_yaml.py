# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""YAML as people mean it, and the mistakes in a ``dataset.yaml`` or ``presets.yaml``: one sentence each."""

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from helpers import own_bundle, run
from PIL import Image

from monai_iels._yaml import read_mapping
from monai_iels.cli import main
from monai_iels.runs import RunError
from monai_iels.study import preset_for_a_gpu, presets, read_study

BUNDLES = Path(__file__).parents[1] / "bundles"
NUMBERS = {
    "1e-4": 1e-4,
    "1.0e30": 1e30,
    "1E5": 1e5,
    "-2e+3": -2000.0,
    "1.e4": 1e4,
    ".5": 0.5,
    "-3": -3,
    "1_000": 1000,
    "010": 10,
    "0x1F": 31,
    "0o17": 15,
    ".inf": float("inf"),
    "12:30": "12:30",
    "2024-01-01": "2024-01-01",
    "1e": "1e",
    "0.1.0": "0.1.0",
    "off": False,
    "'off'": "off",
    "null": None,
}


@pytest.mark.parametrize("text", NUMBERS)
def test_a_value_means_what_people_mean(text, tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text(f"key: {text}\nlist: [{text}]\n")
    content = read_mapping(file, "values")
    assert content == {"key": NUMBERS[text], "list": [NUMBERS[text]]}
    assert type(content["key"]) is type(NUMBERS[text])


def test_other_users_of_yaml_are_left_alone(tmp_path):
    test_a_value_means_what_people_mean("1e-4", tmp_path)
    assert yaml.safe_load("[1e-4, 010, 12:30]") == ["1e-4", 8, 750]


def test_a_number_arrives_in_a_study_a_preset_and_a_bundle(tmp_path):
    file = own_bundle(tmp_path)
    file.write_text(file.read_text().replace("learning_rate: 0.001", "learning_rate: 1e-4"))
    assert main(["bundle", "compose", str(tmp_path)]) == 0
    assert json.loads((file.parent / "configs" / "train.json").read_text())["learning_rate"] == 1e-4
    (file.parent / "presets.yaml").write_text("cpu: {learning_rate: 1e-4}\n")
    assert presets(file.parent)["cpu"] == {"learning_rate": 1e-4}
    (tmp_path / "study.yaml").write_text("bundle: mine\ncolumns: {off: {}, on: {learning_rate: 1.0e-2}}\nseeds: 1\n")
    assert read_study(tmp_path / "study.yaml").variants == {"off": {}, "on": {"learning_rate": 0.01}}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "must hold keys and values .*, got an empty file"),
        ("[1]", r"must hold keys and values .*, got \[1\]"),
        ("text", "must hold keys and values .*, got 'text'"),
        ("5: 6", "keys must be words, got 5"),
        ("source: wbc\n\tepochs: 1", "broken in line 2: .*cannot start any token"),
        ("source: wbc\nepochs: [1", "in line 2"),
        ("source: wbc\nepochs: 1\nepochs: 2", "broken in line 3: duplicate key epochs, first in line 2"),
        ("source: wbc\n5x5: 1\n'5x5': 2", "broken in line 3: duplicate key 5x5, first in line 2"),
        ("source: wbc\nmetadata:\n  name: a\n  name: b", "broken in line 4: duplicate key name, first in line 3"),
        ("source: !!python/name:os.system x", "could not determine a constructor"),
        ("source: &a [*a]", "only what JSON can hold: Circular reference detected"),
        ("source: !!set {a}", "only what JSON can hold"),
        ("source: [1]", r"'source' must be a word, got \[1\]"),
        ("metadata: text", "'metadata' must be keys and values, got 'text'"),
        ("quality: 5", "'quality' must be text, got 5"),
        ("spatial_dims: 4", "'spatial_dims' must be 2 or 3, got 4"),
        ("classes: [no, yes]", r"'classes' must be a list of words .*, got \[False, True\]"),
        ("classes: 3", "'classes' must be a list of words"),
        (b"source: \xff", "can't decode byte"),
    ],
)
def test_a_broken_file_of_a_bundle_is_explained_in_one_line(content, sentence, tmp_path, capsys):
    shutil.copytree(BUNDLES / "shared", tmp_path / "shared")
    file = tmp_path / "new" / "dataset.yaml"
    file.parent.mkdir()
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert main(["bundle", "compose", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert re.search(sentence, error)
    assert error.startswith(str(file))
    assert len(error.splitlines()) == 1
    assert [path.name for path in file.parent.iterdir()] == ["dataset.yaml"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [("[1]", "must hold keys and values"), ("cpu: 5", "'cpu' must hold overrides"), ("a: 1\na: 2", "duplicate key a")],
)
def test_presets_that_are_no_overrides_are_explained(content, sentence, tmp_path):
    (tmp_path / "presets.yaml").write_text(content)
    with pytest.raises(ValueError, match=f"presets.yaml.*{sentence}"):
        preset_for_a_gpu(tmp_path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"none\.yaml must hold a thing in YAML, but it cannot be read: .*No such"):
        read_mapping(tmp_path / "none.yaml", "a thing")


def test_a_training_of_your_own_names_all_stray_labels_before_it_writes(tmp_path):
    file = own_bundle(tmp_path)
    assert main(["bundle", "compose", str(tmp_path)]) == 0
    for number, value in ((2, 77), (7, 1)):
        label = Image.open(tmp_path / "data" / "labels" / f"case{number}.png")
        label.putpixel((3, 4), value)
        label.save(label.filename)
    out = {"bundle_root": str(file.parent), "output_dir": str(tmp_path / "out"), "dataset_dir": str(tmp_path / "data")}
    with pytest.raises(RunError) as caught:
        run("Training", **out)
    assert "2 of 10 files have values other than 0, 255: case2.png (77), case7.png (1)" in str(caught.value)
    assert '--label_values "[0, [255, 1, 77]]"' in str(caught.value)
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
