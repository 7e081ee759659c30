# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Methods by name: each can be built in every bundle, and does to labels, predictions and losses what its line says."""

from pathlib import Path

import pytest
import torch
import yaml
from helpers import BUNDLES, NAMES
from monai.bundle import ConfigParser
from monai.data import MetaTensor
from monai.transforms import Compose

from monai_iels import study

METHODS = yaml.safe_load(Path(study.__file__).with_name("methods.yaml").read_text("utf-8"))


def bundle_with(name, **overrides):
    parser = ConfigParser(ConfigParser.load_config_file(BUNDLES / name / "configs" / "train.json"))
    parser.update(study.with_methods(overrides))
    return parser


@pytest.mark.parametrize("bundle", NAMES)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_can_be_built_in_every_bundle(method, bundle):
    parser = bundle_with(bundle, method=method)
    if method == "d_convexity_loss" and parser["spatial_dims"] == 3:
        pytest.skip("for images alone, as its line says")
    for key in METHODS[method]:
        top = key.split("#")[0]
        built = parser.get_parsed_content(top)
        assert built
        if top == "layer":
            assert built.steps > 0
        if top == "loss":
            classes, size = parser["num_classes"], (8,) * parser["spatial_dims"]
            loss = built(torch.zeros(1, classes, *size), torch.zeros(1, 1, *size))
            assert torch.isfinite(loss)


@pytest.mark.parametrize("bundle", ["wbc", "hippocampus"])
def test_the_majority_filter_takes_out_what_is_alone(bundle):
    parser = bundle_with(bundle, method="majority_filter")
    label = torch.zeros(1, *[9] * parser["spatial_dims"])
    label[:, 3:] = 1
    noisy = label.clone()
    noisy[(0, *[6] * parser["spatial_dims"])] = 2
    repaired = Compose(parser.get_parsed_content("repair"))({"label": MetaTensor(noisy)})["label"]
    torch.testing.assert_close(repaired.as_tensor(), label, check_dtype=False)


@pytest.mark.parametrize("bundle", ["refuge", "hippocampus"])
def test_hulls_fill_labels_and_predictions_by_region(bundle):
    own = {"repair#0#radius": 1.0, "smoothing#transforms#1#radius": 1.0, "regions": [[1, 2]]}
    parser = bundle_with(bundle, method=["hull_of_label", "hull_of_prediction"], **own)
    label = torch.zeros(1, *[12] * parser["spatial_dims"])
    label[:, 2:10, 2:10] = 1
    label[:, 6:8, 4:8] = 2
    dented = label.clone()
    dented[:, 4:, 5] = 0
    logits = 3 * torch.nn.functional.one_hot(dented[0].long(), 3).movedim(-1, 0).float()
    repaired = Compose(parser.get_parsed_content("repair"))({"label": MetaTensor(dented)})["label"].as_tensor()
    predicted = parser.get_parsed_content("smoothing")({"pred": MetaTensor(logits)})["pred"].as_tensor()
    assert torch.equal(repaired > 0, label > 0)
    assert torch.equal(repaired[dented > 0], dented[dented > 0])
    assert predicted.shape == logits.shape
    assert torch.equal(predicted.argmax(0), repaired[0])
