# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Settings of the trainers for nnU-Net, which need no nnU-Net: the file, the variables, and the command."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from monai_iels.cli import main
from monai_iels.nnunet import read_settings, regions_of

DEFAULTS = {"evolution": "guided", "gain": 15, "reach": 6.0, "radii": [5, 10, 15], "regions": None}
DEFAULTS |= {"epochs": 1000, "iterations": 250, "threads": None}
LABELS = {"background": 0, "body": 1, "core": 2}


@pytest.fixture(autouse=True)
def _no_settings_of_the_user(monkeypatch):
    for name in [name for name in os.environ if name.startswith("nnUNet_iel_")]:
        monkeypatch.delenv(name)


def test_without_a_file_settings_are_the_defaults_and_a_third_of_the_epochs_warms_up(tmp_path):
    assert read_settings(str(tmp_path), DEFAULTS) == {**DEFAULTS, "warmup": 333}


def test_a_file_replaces_the_defaults_and_a_variable_replaces_the_file(tmp_path, monkeypatch):
    (tmp_path / "iel.yaml").write_text("evolution: heat\ngain: 5\nepochs: 30\nregions: [[body, core], [core]]\n")
    monkeypatch.setenv("nnUNet_iel_gain", "null")
    monkeypatch.setenv("nnUNet_iel_radii", "[3, 6.5]")
    settings = read_settings(str(tmp_path), DEFAULTS)
    changed = {"gain": None, "epochs": 30, "radii": [3, 6.5], "warmup": 10, "regions": [["body", "core"], ["core"]]}
    changed |= {"evolution": "heat"}
    assert settings == {**DEFAULTS, **changed}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("gian: 15", r"iel\.yaml: unknown key 'gian': did you mean 'gain'\?"),
        ("evolution: cold", r"iel\.yaml: evolution must be guided or heat, got 'cold'"),
        ("gain: 0.5", r"iel\.yaml: gain must be a number above 1, or null for no layer, got 0\.5"),
        ("gain: high", r"iel\.yaml: gain must be a number above 1, or null for no layer, got 'high'"),
        (
            "epochs: 3\nwarmup: 3",
            r"warmup must be a whole number of epochs, at least 0 and below the 3 epochs of the tr",
        ),
        ("epochs: 0", r"epochs must be a whole number, at least 1, got 0"),
        ("threads: 0", r"threads must be a whole number, at least 1, or null, got 0"),
        ("radii: 5", r"radii must be a list of millimeters above 0, such as \[5, 10, 15\], got 5"),
        ("regions: [[hat]]", r"regions: there is no label 'hat' in dataset\.json; it has body, core"),
        ("regions: body", r"regions must be groups of labels of dataset\.json, such as .*, got 'body'"),
        (
            "gain 15",
            r"iel\.yaml must hold keys and values \(settings of the layer, such as `gain: 15`\), got 'gain 15'",
        ),
        ("gain: [", r"iel\.yaml must hold settings .* but it is broken in line"),
    ],
)
def test_a_bad_setting_is_one_sentence(text, sentence, tmp_path):
    (tmp_path / "iel.yaml").write_text(text)
    with pytest.raises(ValueError, match=sentence):
        regions_of(read_settings(str(tmp_path), DEFAULTS)["regions"], LABELS, has_regions=False)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("-8", "the variable nnUNet_iel_gain: gain must be a number above 1, or null for no layer, got -8"),
        ("[", r"nnUNet_iel_gain must be a value in YAML, but it is broken"),
    ],
)
def test_a_variable_is_named_when_it_is_wrong(value, sentence, tmp_path, monkeypatch):
    (tmp_path / "iel.yaml").write_text("gain: 5")
    monkeypatch.setenv("nnUNet_iel_gain", value)
    with pytest.raises(ValueError, match=sentence):
        read_settings(str(tmp_path), DEFAULTS)


@pytest.mark.parametrize(
    ("groups", "labels", "has_regions", "channels"),
    [
        (None, LABELS, False, ((1,), (2,))),
        ([["body", "core"], ["core"]], LABELS, False, ((1, 2), (2,))),
        (None, {"background": 0, "whole": [1, 2], "core": [2]}, True, ((0,), (1,))),
        (None, {**LABELS, "ignore": 3}, False, ((1,), (2,))),
    ],
)
def test_groups_of_labels_become_channels(groups, labels, has_regions, channels):
    """A label's channel is its value; regions have a channel each, in their order."""
    assert regions_of(groups, labels, has_regions) == channels


def test_the_command_names_the_folder_and_keeps_those_of_the_user(capsys, monkeypatch):
    monkeypatch.setenv("nnUNet_extTrainer", "/mine")
    assert main(["nnunet", "export"]) == 0
    name, _, folders = capsys.readouterr().out.strip().removeprefix("export ").partition("=")
    mine, ours = folders.split(os.pathsep)
    assert (name, mine) == ("nnUNet_extTrainer", "/mine")
    assert [file.name for file in Path(ours).glob("*.py")] == ["monai_iels_trainers.py"]


WITHOUT = """
import sys
sys.modules["nnunetv2"] = None  # an import raises ImportError
import monai_iels.nnunet
from monai_iels.cli import main
raise SystemExit(main(["nnunet", "train", "4", "2d", "0"]))
"""


def test_without_nnunet_its_command_says_what_to_install():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "install it with pip install 'monai_iels[nnunet]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
