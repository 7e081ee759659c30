# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Drawn volumes that the real nnU-Net has planned and preprocessed."""

import json

import pytest
from nnunet.drawn import DATASET, SMALL, draw, run


@pytest.fixture(scope="package")
def home(tmp_path_factory):
    """Plan and preprocess drawn volumes, with networks that are small enough for a CPU."""
    home = tmp_path_factory.mktemp("nnunet")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("raw", "preprocessed", "results"):
            (home / name).mkdir()
            patch.setenv(f"nnUNet_{name}", str(home / name))
        for name, value in SMALL.items():
            patch.setenv(name, value)
        draw(home / "raw" / DATASET)
        words = ("-d", 1, "-c", "2d", "3d_fullres", "-np", 1, 1, "-npfp", 1)
        run("nnUNetv2_plan_and_preprocess", *words, nnUNet_n_proc_DA="1")
        file = home / "preprocessed" / DATASET / "nnUNetPlans.json"
        plans = json.loads(file.read_text())
        for configuration in plans["configurations"].values():
            configuration["batch_size"] = 2
            network = configuration["architecture"]["arch_kwargs"]
            network["features_per_stage"] = [4] * network["n_stages"]
        plans["configurations"]["3d_lowres"] = {"inherits_from": "3d_fullres"}
        plans["configurations"]["3d_cascade_fullres"] = {"inherits_from": "3d_fullres", "previous_stage": "3d_lowres"}
        file.write_text(json.dumps(plans))
        yield home


@pytest.fixture
def settings(home):
    """Write `iel.yaml` beside the plans."""
    file = home / "preprocessed" / DATASET / "iel.yaml"
    yield file.write_text
    file.unlink(missing_ok=True)
