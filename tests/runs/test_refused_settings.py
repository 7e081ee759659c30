# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Settings that cannot be used: each ends in one plain sentence, and nothing is touched."""

import re

import pytest
from helpers import BUNDLES, cached, configs, options, said, tree


def train(finished, output, **overrides):
    common = options("wbc", output, **cached(finished))
    return said("Training", **{**common, **overrides})


SETTINGS = {
    "epochs": [0, -1, 1.5, "many", True],
    "batch_size": [0, "two"],
    "val_interval": [0, 3],
    "lr_scheduler#step_size": [0, "often"],
    "learning_rate": [0, -1, "fast", float("inf"), float("nan")],
    "seed": ["abc", -5, 0.5],
    "datalists#seed": [-1, "x"],
    "datalists#count": [1, "ten"],
    "datalists#size": [5, "small"],
    "iel_warmup": [-3, 1.5],
    "iel_gain": [1, -3, "strong"],
    "iel_steps": [20],
    "layer#gain": [-3, "strong"],
    "layer#steps": [-1, "20 steps"],
    "layer#evolution#spacing": [0, -2.0, "wide", [1, 1, 1]],
    "label_error": ["noise", 3, [3]],
    "label_error#_target_": ["monai_iels.CorruptLabel"],
    "label_error#fraction": [2],
    "num_workers": [-1, "all"],
    "num_classes": [2, 1, 4, "three"],
    "loss#loss#lambda_dice": [-1],
    "train#average#decay": [1, -0.1, "slow"],
    "features": [[4, 4], "wide", [4, 4, 4, 4, 4, 0]],
    "image_size": [[8, 8], [32], 32, [32, 32, 32]],
    "label_values": [[0, 1], "none"],
    "spatial_dims": [1, 4, "two"],
    "network_def#in_channels": [0, 1],
    "device": ["cuda:0", "gpu", 3],
    "bundle_root": ["/no/such/folder", 5],
    "dataset_dir": ["/no/such/folder", __file__],
    "source": ["wcb"],
    "section": ["test"],
    "pictures": ["few"],
    "track": ["sometimes"],
    "resume": ["maybe"],
    "epoch": [3],
    "output_dir": ["", 7, "~/out"],
    "run_name": [5],
    "run_tags": ["fast"],
    "regions": ["disc", [1, 2], [[5]]],
    "register_model": ["a/b", "untracked"],
    "tracking_uri": ["myserver:5000", "ftp://host", 5000],
    "network_def#_target_": ["BasicUnett"],
    "geometry": ["turned"],
    "layer#evolution#spacng": [1.0],
    "loss": ["dice", "@my_loss"],
    "layer": [3],
    "train#network": ["unet"],
    "train#handlers": [[]],
    "config_file": ["x.json"],
    "experiment_name": [2024],
}
CASES = [(key, value) for key, values in SETTINGS.items() for value in values]


@pytest.mark.parametrize(("key", "value"), CASES, ids=[f"{key}={value}" for key, value in CASES])
def test_a_setting_that_cannot_be_used(key, value, finished):
    """A finished training stays as it is when the next one in its folder is refused."""
    before = tree(finished / "wbc")
    found = train(finished, finished / "wbc", **{key: value})
    assert found != "accepted"
    assert len(found.splitlines()) == 1
    assert key.split("#")[-1] in found or str(value) in found
    assert tree(finished / "wbc") == before


@pytest.mark.parametrize("kind", ["file", "below a file", "proc"])
def test_an_output_folder_that_cannot_be_written(kind, finished, tmp_path):
    (tmp_path / "file").write_text("mine")
    output = {"file": tmp_path / "file", "below a file": tmp_path / "file" / "out", "proc": "/proc/out"}[kind]
    found = train(finished, output)
    assert found.startswith(f"{output}: cannot be written to (")
    assert tree(tmp_path) == {"file": b"mine"}


@pytest.mark.parametrize(("workflow", "name"), [("Evaluation", "evaluate"), ("Training", "multi_gpu_train")])
@pytest.mark.filterwarnings("ignore:Can't merge entry")
def test_changes_to_a_config_alone_say_what_they_need(workflow, name):
    found = said(workflow, bundle_root=str(BUNDLES / "wbc"), config_file=configs("wbc", name))
    assert re.fullmatch(r"the config has no key '\w+'; correct what refers to it, or leave --config_file out", found)


def test_an_evaluation_needs_both_configs_and_takes_them_by_itself(finished, tmp_path):
    given = {"output_dir": str(finished / "wbc"), "report_dir": str(tmp_path), **cached(finished)}
    small = {key: value for key, value in options("wbc", tmp_path).items() if key not in given}
    found = said("Evaluation", **small, **given, config_file=configs("wbc", "train"))
    assert found == "the config has no key 'checkpoint'; correct what refers to it, or leave --config_file out"
    assert said("Evaluation", **small, **given) == "accepted"
    assert (tmp_path / "cases.csv").exists()


@pytest.mark.parametrize("workflow", ["Training", "Evaluation", "Inference"])
def test_a_config_that_is_not_there(workflow, tmp_path):
    found = said(workflow, bundle_root=str(BUNDLES / "wbc"), config_file=str(tmp_path / "x.json"))
    assert found == f"--config_file must be a file, or a list of files, got '{tmp_path / 'x.json'}'"
    found = said(workflow, bundle_root=str(tmp_path))
    assert found.startswith("--bundle_root must be the folder of a bundle, with configs/")


@pytest.mark.parametrize("key", ["init_id", "run_id", "final_id", "run", "tracking"])
def test_what_says_how_monai_runs_a_config_is_no_setting(key, finished, tmp_path):
    found = train(finished, tmp_path / "out", **{key: "anything"})
    assert found == f"--{key} is for --config_file without --workflow_name; leave it out"
    assert not (tmp_path / "out").exists()


def test_a_strength_that_the_layer_does_not_use_is_refused(finished, tmp_path):
    heat = {"_target_": "monai_iels.InverseEvolutionLayer", "evolution": {"_target_": "monai_iels.HeatDiffusion"}}
    for layer in ({"layer": {**heat, "gain": 15}}, {"layer#gain": 15}):
        found = train(finished, tmp_path / "out", iel_gain=6, **layer)
        assert found.startswith("--iel_gain has no effect, since the layer has a strength of its own; change")
    assert not (tmp_path / "out").exists()


def test_a_part_of_a_label_error_needs_a_label_error(finished, tmp_path):
    found = train(finished, tmp_path / "out", **{"label_error#fraction": 0.2})
    assert found == "--label_error#fraction: the config has no such part; set the key as a whole"
