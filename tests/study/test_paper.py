# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Each experiment of the paper is one command: with the paper's settings, up to the first step of its trainings.

What the paper did is written here from its text, not from the bundles: time step and number of layers, noise, network,
loss, and the number of images and epochs where it says them. The paper's spacing is 1; its authors' release, whose
kernel is divided by 4, has 2, and so have we.
"""

import shlex
from importlib.util import find_spec
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from helpers import BUNDLES, prepare
from ignite.engine import Events
from monai.bundle import ConfigParser
from monai.losses import DiceLoss
from monai.networks.nets import BasicUNet

from monai_iels import ConvexCurveMotion, CorruptLabel, Evolved, ForwardEvolutionLayer, HeatDiffusion
from monai_iels.cli import make_parser
from monai_iels.study import make_plan, read_study

HEAT = HeatDiffusion(spacing=2.0)
U_NET = [64, 128, 256, 512, 1024, 64]


class Expected(NamedTuple):
    """What a training of the paper has: layers of 0.1, share and window of its noise, and anything else."""

    layers: int
    noise: tuple[float, int] | None = None
    other: dict = {}  # noqa: RUF012


EXPERIMENTS = {
    "1: study run bundles/wbc/studies/noisy_labels.yaml --preset paper": {
        "clean labels / U-Net": Expected(0),
        "clean labels / U-Net + layer": Expected(20),
        "shared 2x2 noise, 10 % / U-Net": Expected(0, (0.1, 2)),
        "shared 2x2 noise, 10 % / U-Net + layer": Expected(20, (0.1, 2)),
    },
    "2: study run bundles/dsb2018/studies/noisy_labels.yaml --preset paper": {
        "clean labels / U-Net": Expected(0),
        "clean labels / U-Net + layer": Expected(30),
        "shared 3x3 noise, 10 % / U-Net": Expected(0, (0.1, 3)),
        "shared 3x3 noise, 10 % / U-Net + layer": Expected(30, (0.1, 3)),
    },
    "3: study run bundles/cityscapes/studies/noisy_labels.yaml --preset paper": {
        "DeepLabV3+, clean labels / network alone": Expected(0),
        "DeepLabV3+, clean labels / network + layer": Expected(35),
        "DeepLabV3+, shared 5x5 noise, 10 % / network alone": Expected(0, (0.1, 5)),
        "DeepLabV3+, shared 5x5 noise, 10 % / network + layer": Expected(35, (0.1, 5)),
        "HRNetV2, clean labels / network alone": Expected(0),
        "HRNetV2, clean labels / network + layer": Expected(30),
        "HRNetV2, shared 5x5 noise, 10 % / network alone": Expected(0, (0.1, 5)),
        "HRNetV2, shared 5x5 noise, 10 % / network + layer": Expected(30, (0.1, 5)),
    },
    "4: study run bundles/drive/studies/number_of_layers.yaml --preset paper": {
        "U-Net": Expected(0),
        "5 steps": Expected(5),
        "10 steps": Expected(10),
        "15 steps": Expected(15),
        "20 steps": Expected(20),
    },
    "5: study run bundles/dsb2018/studies/other_methods.yaml --preset paper": {
        "U-Net + layer": Expected(30, (0.2, 3)),
        "heat on labels": Expected(0, (0.2, 3), {"heat": "repair"}),
        "heat on predictions": Expected(0, (0.2, 3), {"heat": "smoothing"}),
    },
    "6: study run bundles/dsb2018/studies/other_methods.yaml --preset paper": {
        "U-Net": Expected(0, (0.2, 3)),
        "U-Net + layer": Expected(30, (0.2, 3)),
        "forward layers": Expected(0, (0.2, 3), {"forward": 30}),
        "gradient loss, weight 1": Expected(0, (0.2, 3), {"gradient": 1}),
        "gradient loss, weight 2": Expected(0, (0.2, 3), {"gradient": 2}),
    },
    "7: study run bundles/drive/studies/weight_penalty.yaml --preset paper": {
        "U-Net": Expected(0, (0.5, 1)),
        "U-Net + layer": Expected(10, (0.5, 1)),
        "weight penalty 0.1": Expected(0, (0.5, 1), {"penalty": 0.1}),
        "weight penalty 1": Expected(0, (0.5, 1), {"penalty": 1}),
    },
    "8: study run bundles/refuge/studies/convexity.yaml --preset paper": {
        "U-Net": Expected(0),
        "U-Net + 20 steps, central": Expected(20),
    },
}
OF_A_BUNDLE = {
    "wbc": {"epochs": 20, "learning_rate": 1e-4, "features": U_NET},
    "dsb2018": {"features": U_NET},
    "cityscapes": {},
    "drive": {"features": U_NET, "image_size": [512, 512]},
    "refuge": {"epochs": 50, "learning_rate": 2e-4, "features": U_NET, "image_size": [512, 512]},
}
TINY = {
    "features": [2] * 6,
    "image_size": [32, 32],
    "batch_size": 2,
    "device": "cpu",
    "train#handlers": [],
}
TINY |= {"datalists#count": 8, "datalists#size": 48}
STREETS = {"DeepLabV3+": "DeepLabV3Plus", "HRNetV2": "_HRNetV2"}
BACKBONES = {"deeplabv3plus": "resnet18", "hrnetv2_w48": "hrnet_w18_small"}
TRAININGS = [(command, variant) for command, variants in EXPERIMENTS.items() for variant in variants]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder whose synthetic images all trainings share."""
    return tmp_path_factory.mktemp("paper")


def planned(command, variant, folder):
    """Return the bundle, and the arguments of the first training of a variant, as the command plans it."""
    options = make_parser().parse_args(shlex.split(command)[1:])
    study = read_study(BUNDLES.parent / options.study)
    plan = make_plan(study, folder, options.preset, "synthetic", "sqlite:///none.db")
    return study.bundle, next(each for each in plan.trainings() if each.variant == variant).arguments


@pytest.mark.parametrize(("command", "variant"), TRAININGS)
def test_an_experiment_of_the_paper_takes_its_first_step(command, variant, folder):
    bundle, arguments = planned(command, variant, folder)
    expected = EXPERIMENTS[command][variant]
    config = ConfigParser(ConfigParser.load_config_file(bundle / "configs" / "train.json"))
    config.update(arguments)
    assert {key: config[key] for key in OF_A_BUNDLE[bundle.name]} == OF_A_BUNDLE[bundle.name]

    small = dict(TINY)
    if bundle.name == "cityscapes":
        small |= {"network_def#backbones": BACKBONES, "network_def#weights": None, "image_size": [64, 64]}
    workflow = prepare(**{**arguments, **small, "output_dir": str(folder / "run")})
    parser = workflow.parser
    check_layer(parser.get_parsed_content("layer"), bundle.name, expected.layers)
    check_noise(parser, bundle.name, expected.noise)
    check_loss(parser, bundle.name, expected.other.get("gradient", 0))
    check_heat(parser, expected.other.get("heat"))
    if bundle.name == "cityscapes" and not all(map(find_spec, ("timm", "segmentation_models_pytorch"))):
        pytest.skip("the networks need the extra 'cityscapes'; everything else is as in the paper")
    check_network(parser, variant, expected.other.get("forward", 0))
    (group,) = parser.get_parsed_content("optimizer").param_groups
    own = 0.0005 if bundle.name == "cityscapes" else 0
    assert group["weight_decay"] == 2 * expected.other.get("penalty", own / 2)  # the gradient of |w|^2 is 2 w

    trainer, network = (parser.get_parsed_content(key) for key in ("train#trainer", "network_def"))
    before = [weight.clone() for weight in network.parameters()]
    losses = []
    trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda engine: losses.append(engine.state.output["loss"]))
    trainer.add_event_handler(Events.ITERATION_COMPLETED, trainer.terminate)
    trainer.run()
    assert len(losses) == 1
    assert torch.isfinite(torch.as_tensor(losses[0]))
    assert any(not torch.equal(old, new) for old, new in zip(before, network.parameters(), strict=True))


def check_network(parser, variant, forward_layers):
    network = parser.get_parsed_content("network_def")
    if (architecture := variant.split(",")[0]) in STREETS:
        assert type(network).__name__ == STREETS[architecture]
        return
    if forward_layers:
        network, layer = network
        assert isinstance(layer, ForwardEvolutionLayer)
        assert (layer.evolution, layer.dt, layer.steps) == (HEAT, 0.1, forward_layers)
    assert isinstance(network, BasicUNet)
    kinds = {type(module).__name__ for module in network.modules()}
    assert {"Conv2d", "ConvTranspose2d", "MaxPool2d", "InstanceNorm2d", "LeakyReLU"} <= kinds
    assert len([module for module in network.modules() if isinstance(module, torch.nn.MaxPool2d)]) == 4  # five levels


def check_layer(layer, bundle, layers):
    assert layer.steps == layers
    if bundle == "refuge":
        assert isinstance(layer.evolution, ConvexCurveMotion)
        assert (list(layer.evolution.radii), layer.evolution.band, layer.evolution.spacing) == ([5, 10, 15], 3, 1.0)
    else:
        assert layer.evolution == HEAT
    assert layer.dt == 0.1 or not layers


def check_noise(parser, bundle, noise):
    error = parser.get_parsed_content("label_error")
    if noise is None:
        assert error is None
        return
    assert isinstance(error, CorruptLabel)
    assert (error.fraction, error.window) == noise
    case = parser.get_parsed_content("train#preprocessing")(parser.get_parsed_content("datalists")["training"][0])
    if bundle != "cityscapes" and not parser["repair"]:  # street scenes are cropped
        changed = (case["label"] != case["truth"]).float().mean()
        classes = parser.get_parsed_content("num_classes")
        assert 0 < changed <= noise[0] * (classes - 1) / classes + 0.1


def check_loss(parser, bundle, weight):
    loss = parser.get_parsed_content("loss")
    classes = parser.get_parsed_content("num_classes")
    torch.manual_seed(0)
    logits, label = torch.randn(2, classes, 32, 32), torch.randint(classes, (2, 1, 32, 32))
    expected = F.cross_entropy(logits, label[:, 0])
    if bundle == "drive":  # as in the release
        expected = expected + DiceLoss(softmax=True, to_onehot_y=True)(logits, label)
    if weight:  # a mean over pixels, as cross-entropy is
        energy = logits.diff(dim=2).square().sum((2, 3)) + logits.diff(dim=3).square().sum((2, 3))
        expected = expected + weight * energy.mean() / (32 * 32)
    torch.testing.assert_close(loss(logits, label), expected)


def check_heat(parser, place):
    found = {"repair": parser.get_parsed_content("repair"), "smoothing": []}
    found["smoothing"] = getattr(parser.get_parsed_content("smoothing"), "transforms", [])
    for key, transforms in found.items():
        heat = [each.transform for each in transforms if isinstance(each, Evolved)]
        assert len(heat) == (key == place)
        assert all((each.evolution, each.dt, each.steps) == (HEAT, 0.1, 100) for each in heat)  # as in the release


def test_the_paper_s_eighty_images_of_vessels(folder):
    bundle, arguments = planned(next(each for each in EXPERIMENTS if each[0] == "4"), "U-Net", folder)
    config = ConfigParser(ConfigParser.load_config_file(bundle / "configs" / "train.json"))
    config.update({**arguments, "datalists": {"training": [{}] * 20}})
    assert len(config.get_parsed_content("train#dataset#data")) == 80
