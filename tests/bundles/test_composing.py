# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The files of a bundle: what `compose` writes, and what it refuses."""

import configparser
import json
import re
import shutil
from pathlib import Path

import pytest
from helpers import (
    BUNDLES,
    NAMES,
    ROOT,
    configs,
    own_bundle,
)
from monai.bundle import ConfigParser
from packaging.specifiers import SpecifierSet

import monai_iels
import monai_iels.runs
from monai_iels.cli import main
from monai_iels.data import SOURCES


def test_composed_files_are_up_to_date():
    assert main(["bundle", "check", str(BUNDLES)]) == 0


def test_a_stale_file_is_named(tmp_path, capsys):
    for name in ("shared", "wbc"):
        shutil.copytree(BUNDLES / name, tmp_path / name)
    file = tmp_path / "wbc" / "configs" / "train.json"
    file.write_text(file.read_text().replace('"epochs": 20', '"epochs": 21'))
    assert main(["bundle", "check", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith(f"{file} is not what compose writes: run monai-iels bundle compose")
    assert main(["bundle", "compose", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"Wrote {file}\n"
    assert main(["bundle", "check", str(tmp_path)]) == 0
    assert main(["bundle", "compose", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("Nothing changed: ")


def test_compose_outside_the_checkout(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["bundle", "compose", "bundles"]) == 1
    told = "there is no folder bundles here: start in the folder that contains it"
    assert capsys.readouterr().err.strip() == told


@pytest.mark.parametrize(("argument", "sentence"), [("validaton: 0.2", "unexpected keyword argument 'validaton'")])
def test_a_mistyped_argument_of_your_datalists(argument, sentence, tmp_path, capsys):
    file = own_bundle(tmp_path)
    file.write_text(file.read_text().replace("  validation: 0.2", f"  {argument}"))
    assert main(["bundle", "compose", str(tmp_path)]) == 1
    assert re.match(rf"{re.escape(str(file))}: datalists: .*{sentence}", capsys.readouterr().err)


@pytest.mark.parametrize("line", ["datalists:", "classes:", "  name:", "  data_source:"])
def test_a_bundle_of_your_own_that_lacks_something(line, tmp_path, capsys):
    file = own_bundle(tmp_path)
    text = file.read_text()
    end = r"(\n  .*)*\n" if line == "datalists:" else r"\n"
    file.write_text(re.sub(rf"(?m)^{line}.*{end}", "", text, count=1))
    assert file.read_text() != text
    assert main(["bundle", "compose", str(tmp_path)]) == 1
    assert re.match(rf"{re.escape(str(file))}: (metadata#)?{line.strip(' :')} is missing", capsys.readouterr().err)
    assert not (tmp_path / "mine" / "configs").exists()


@pytest.mark.parametrize(
    ("line", "nearest"),
    [("epoch: 3", "epochs"), ("augmentatoin: []", "augmentation"), ("metadata: {tsak: x}", "task")],
)
def test_a_key_that_nothing_defines(line, nearest, tmp_path, capsys):
    shutil.copytree(BUNDLES / "shared", tmp_path / "shared")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "dataset.yaml").write_text(f"source: wbc\n{line}\n")
    assert main(["bundle", "compose", str(tmp_path)]) == 1
    assert f"did you mean '{nearest}'?" in capsys.readouterr().err
    assert not (tmp_path / "new" / "configs").exists()


def test_no_bundles_there(tmp_path, capsys):
    assert main(["bundle", "compose", str(tmp_path)]) == 1
    assert "there is no folder with a dataset.yaml" in capsys.readouterr().err


def test_one_entry_swaps_the_physics():
    train = [ConfigParser.load_config_file(configs(name, "train")[0]) for name in ("wbc", "refuge")]
    physics = ("layer", "network_def", "train", "validate")
    assert [key for key in physics if train[0][key] != train[1][key]] == ["layer"]
    assert train[1]["layer"]["evolution"]["_target_"] == "monai_iels.ConvexCurveMotion"
    assert train[0].keys() - train[1].keys() == {"iel_gain"}
    assert train[1].keys() - train[0].keys() == {"iel_reach"}


@pytest.mark.parametrize("name", NAMES)
def test_a_person_can_read_a_training(name):
    text = Path(configs(name, "train")[0]).read_text("utf-8")
    assert len(json.loads(text)) <= 45
    assert len(text.splitlines()) <= 400
    assert max(map(len, text.splitlines())) <= 250


@pytest.mark.parametrize(
    ("name", "overrides", "dt", "steps", "gain"),
    [
        ("wbc", {}, None, 20, 15),
        ("wbc", {"iel_gain": 38.34}, 0.1, 20, 38.34),
        ("wbc", {"layer#gain": None, "layer#dt": 0.1, "layer#steps": 20}, 0.1, 20, 38.3),
        ("hippocampus", {"layer#evolution#spacing": [1.0, 1.0, 2.0], "layer#steps": 4}, 0.107, 4, 15),
        ("drive", {}, None, 20, 6),
        ("wbc", {"iel_gain": None}, None, 0, 1),
        ("wbc", {"layer#steps": 0}, None, 0, 1),
        ("refuge", {}, 0.1, 20, None),
        ("refuge", {"iel_reach": 6}, 0.1, 60, None),
        ("refuge", {"iel_reach": 3, "layer#evolution#spacing": 0.5}, 0.05, 60, None),
        ("refuge", {"iel_reach": None}, None, 0, None),
    ],
)
def test_the_strength_of_a_layer_is_one_key(name, overrides, dt, steps, gain):
    parser = ConfigParser(ConfigParser.load_config_file(configs(name, "train")[0]))
    parser.update({**overrides, "iel_warmup": 4})
    layer = parser.get_parsed_content("layer")
    assert layer.steps == steps
    if dt:
        assert layer.dt == pytest.approx(dt, rel=0.01)
    assert layer.spatial_dims == parser["spatial_dims"]
    assert layer.gains() == (pytest.approx({layer.spatial_dims: gain}, rel=0.01) if gain else {})
    warmup = parser.get_parsed_content("train#handlers#1#parameter_setter")
    assert warmup.layers == [layer]


@pytest.mark.parametrize("dims", [2, 3])
def test_a_bundle_of_ones_own_has_a_gain_of_15(dims):
    parser = ConfigParser(ConfigParser.load_config_file(BUNDLES / "shared" / "train.yaml"))
    parser["spatial_dims"] = dims
    assert parser.get_parsed_content("layer").gains() == pytest.approx({dims: 15})
    motion = {"_target_": "monai_iels.ConvexCurveMotion"}
    parser["layer"] = {"_target_": "monai_iels.InverseEvolutionLayer", "evolution": motion, "reach": "@iel_reach"}
    layer = parser.get_parsed_content("layer")
    assert layer.dt * layer.steps == pytest.approx(6)


@pytest.mark.parametrize("name", NAMES)
def test_a_data_set_is_a_page_of_yaml(name):
    assert len((BUNDLES / name / "dataset.yaml").read_text().splitlines()) <= 60


@pytest.mark.parametrize("name", NAMES)
def test_metadata_has_what_the_specification_asks_for(name):
    metadata = json.loads(Path(configs(name, "metadata")[0]).read_text())
    mandatory = "version monai_version pytorch_version numpy_version required_packages_version task description authors"
    assert set(f"{mandatory} copyright network_data_format".split()) <= set(metadata)
    assert metadata["changelog"][metadata["version"]]
    assert not [key for key, value in metadata.items() if value is None]
    data = metadata["network_data_format"]
    image, pred = data["inputs"]["image"], data["outputs"]["pred"]
    keys = "type format num_channels spatial_shape dtype value_range is_patch_data channel_def"
    assert set(f"{keys} modality".split()) <= set(image)
    assert set(keys.split()) <= set(pred)
    assert len(pred["channel_def"]) == pred["num_channels"] == len(SOURCES[name].classes)
    assert image["modality"]
    for file in ("LICENSE", "docs/README.md", "docs/data_license.txt", "configs/logging.conf"):
        assert (BUNDLES / name / file).stat().st_size


@pytest.mark.parametrize("name", NAMES)
def test_a_bundle_has_what_the_model_zoo_asks_for(name):
    folder = BUNDLES / name
    metadata = ConfigParser.load_config_file(folder / "configs" / "metadata.json")
    assert (folder / "LICENSE").exists()
    assert metadata["version"] in metadata["changelog"]
    assert all(metadata[key] for key in ("task", "description", "authors", "copyright", "schema"))


@pytest.mark.parametrize(("name", "extras"), [("wbc", ["bundles"]), ("cityscapes", ["bundles", "cityscapes"])])
def test_metadata_requires_what_training_needs(name, extras):
    """Bundles ask for all that this package installs, from the same versions on; what is tested passes."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    lines = setup["options"]["install_requires"].split()
    for extra in extras:
        lines += setup["options.extras_require"][extra].split()
    bounds = {line.partition(">=")[0]: f">={line.partition('>=')[2]}" for line in lines}
    lines = [line.partition(";")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    tested = {**dict(line.split("==") for line in lines if "==" in line), "monai_iels": monai_iels.__version__}
    required = ConfigParser.load_config_file(configs(name, "metadata")[0])["required_packages_version"]
    assert required == {key: bounds[key] for key in bounds.keys() - {"torch", "monai", "numpy"}} | {
        "monai_iels": ">=0.1"
    }
    assert [key for key, bound in required.items() if tested[key] not in SpecifierSet(bound)] == []
