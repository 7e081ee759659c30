# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The networks for Cityscapes with random weights, at full size: a step of training, an evaluation, a prediction."""

import json
import shutil
import subprocess
import sys

import monai.bundle
import numpy as np
import pytest
import torch
from helpers import BUNDLES, ROOT, configs, history, new_database, run
from monai.bundle import verify_net_in_out
from PIL import Image

from monai_iels.street_networks import BACKBONES, street_network
from monai_iels.torchvision_operators import make_importable

make_importable()
pytest.importorskip("timm", reason='pip install "monai_iels[cityscapes]"')
pytest.importorskip("segmentation_models_pytorch", reason='pip install "monai_iels[cityscapes]"')

SMALL = {"deeplabv3plus": "resnet18", "hrnetv2_w48": "hrnet_w18_small"}
PARAMETERS = {"deeplabv3plus": 45.7e6, "hrnetv2_w48": 65.9e6}  # as their papers and libraries count them
NOISE = {"_target_": "monai_iels.CorruptLabel", "num_classes": 19, "window": 2, "fraction": 0.1, "seed": 0}
every_architecture = pytest.mark.parametrize("architecture", BACKBONES)


@every_architecture
def test_the_bundle_trains_evaluates_and_predicts(architecture, tmp_path):
    options = {
        "bundle_root": str(BUNDLES / "cityscapes"),
        "output_dir": str(tmp_path / "out"),
        "network_def#architecture": architecture,
        "datalists#count": 4,
        "datalists#size": 64,
        "image_size": [64, 64],
        "batch_size": 2,
        "epochs": 1,
        "label_error": NOISE,
        "iel_warmup": 0,
        "val_interval": 1,
        "track": False,
    }
    run("Training", **options)
    (row,) = history(tmp_path / "out")
    assert 0 < row["loss"] < 20
    assert 0 <= row["val_set_iou"] < 0.5
    weights = torch.load(tmp_path / "out" / "model.pt", weights_only=True)
    network = street_network(architecture, 19)
    network.load_state_dict(weights)
    assert sum(p.numel() for p in network.parameters()) == pytest.approx(PARAMETERS[architecture], rel=0.01)
    run("Evaluation", **options)
    assert (tmp_path / "out" / "evaluation" / "classes.csv").read_text().count("\n") == 20
    image = next((tmp_path / "out" / "cache").rglob("*_leftImg8bit.png"))
    arguments = json.loads((tmp_path / "out" / "inference.json").read_text())
    run(**{**arguments, "dataset_dir": str(image), "output_dir": str(tmp_path)})
    with Image.open(tmp_path / f"{image.stem}_label.png") as label:
        assert label.size == (128, 64)
        assert set(label.get_flattened_data()) <= {7, 8, 11, 12, 13, *range(17, 34)}


@every_architecture
def test_a_batch_of_one_can_be_trained(architecture):
    network = street_network(architecture, 5, backbones=SMALL)
    logits = network(torch.rand(1, 3, 64, 96))
    assert logits.shape == (1, 5, 64, 96)
    logits.square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


@every_architecture
def test_batch_norms_over_several_gpus_keep_the_network(architecture):
    """What multi_gpu_train.json makes of it is the same object, so that optimizer and checkpoints still fit."""
    network = street_network(architecture, 5, backbones=SMALL).eval()
    image, keys, parameters = torch.rand(1, 3, 64, 96), [*network.state_dict()], [*network.parameters()]
    expected = network(image)
    converted = torch.nn.SyncBatchNorm.convert_sync_batchnorm(network)
    assert converted is network
    assert [*converted.state_dict()] == keys
    assert all(a is b for a, b in zip(converted.parameters(), parameters, strict=True))
    norms = [module for module in converted.modules() if isinstance(module, torch.nn.modules.batchnorm._BatchNorm)]
    assert {type(norm) for norm in norms} == {torch.nn.SyncBatchNorm}
    torch.testing.assert_close(converted(image), expected)


def test_hrnetv2_looks_at_all_four_resolutions():
    network = street_network("hrnetv2_w48", 5, backbones=SMALL)
    features = network.backbone(torch.rand(1, 3, 64, 96))
    assert [tuple(f.shape[2:]) for f in features] == [(16, 24), (8, 12), (4, 6), (2, 3)]
    assert network.head[0].in_channels == sum(f.shape[1] for f in features)


@every_architecture
def test_a_backbone_starts_from_a_file(architecture, tmp_path):
    import timm
    import torchvision

    whole = {"deeplabv3plus": torchvision.models.resnet18, "hrnetv2_w48": lambda: timm.create_model("hrnet_w18_small")}
    stored = whole[architecture]().state_dict()
    torch.save(stored, tmp_path / "weights.pt")
    network = street_network(architecture, 5, weights=str(tmp_path / "weights.pt"), backbones=SMALL)
    backbone = network.encoder if architecture == "deeplabv3plus" else network.backbone
    for key, value in backbone.state_dict().items():
        torch.testing.assert_close(value, stored[key], rtol=0, atol=0)


@every_architecture
def test_weights_that_cannot_be_used_are_named(architecture, tmp_path):
    (tmp_path / "text.pt").write_text("not weights")
    torch.save({"a": torch.zeros(1)}, tmp_path / "other.pt")
    for name, message in [("missing.pt", "there is no such file"), ("text.pt", "cannot be"), ("other.pt", "cannot be")]:
        with pytest.raises(ValueError, match=f"{name}.*{message}"):
            street_network(architecture, 5, weights=str(tmp_path / name), backbones=SMALL)


def test_an_unknown_architecture_is_named():
    with pytest.raises(ValueError, match="deeplabv3plus, hrnetv2_w48, got 'unet'"):
        street_network("unet", 5)


@every_architecture
def test_a_registered_network_takes_along_what_it_needs(architecture, tmp_path):
    weights = tmp_path / "backbone.pt"
    network = street_network(architecture, 19, backbones=SMALL)
    torch.save((network.encoder if architecture == "deeplabv3plus" else network.backbone).state_dict(), weights)
    address = new_database(tmp_path)
    run(
        "Training",
        bundle_root=str(BUNDLES / "cityscapes"),
        output_dir=str(tmp_path / "out"),
        **{"network_def#architecture": architecture, "network_def#backbones": SMALL},
        **{"network_def#weights": str(weights), "datalists#count": 4, "datalists#size": 32, "image_size": [64, 64]},
        **{
            "batch_size": 2,
            "epochs": 1,
            "iel_warmup": 0,
            "val_interval": 1,
            "pictures": False,
            "tracking_uri": address,
            "register_model": "streets",
        },
    )
    weights.unlink()  # a trained network does not need it
    for name in ("evaluate", "inference"):
        assert json.loads((tmp_path / "out" / f"{name}.json").read_text())["network_def"]["weights"] is None
    program = (
        "import json, mlflow, numpy as np, sys\n"
        "mlflow.set_tracking_uri(sys.argv[1])\n"
        "model = mlflow.pyfunc.load_model('models:/streets-predict/1')\n"
        "labels = model.predict(np.zeros((40, 70, 3), np.uint8))\n"
        "import monai_iels\n"
        "requirements = open(mlflow.pyfunc.get_model_dependencies('models:/streets-predict/1')).read().split()\n"
        "print(json.dumps([labels.shape, monai_iels.__file__, requirements]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, address], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    shape, file, requirements = json.loads(done.stdout.splitlines()[-1])
    assert shape == [40, 70]
    assert not file.startswith(str(ROOT))  # the copy beside the model
    library = {"deeplabv3plus": "segmentation_models_pytorch", "hrnetv2_w48": "timm"}[architecture]
    assert {"monai", "torch", "scipy", library} <= {line.partition("==")[0] for line in requirements}


@every_architecture
def test_monai_alone_verifies_and_predicts_with_an_exported_network(architecture, tmp_path):
    """As the bundle's page says."""
    own = {"network_def#architecture": architecture, "network_def#backbones": SMALL}
    torch.manual_seed(0)
    network = street_network(architecture, 19, backbones=SMALL).eval()
    shutil.copytree(BUNDLES / "cityscapes" / "configs", tmp_path / "configs")
    (tmp_path / "models").mkdir()
    weights, exported = (str(tmp_path / "models" / name) for name in ("model.pt", "model.ts"))
    torch.save(network.state_dict(), weights)
    given = {"config_file": configs("cityscapes", "train"), "meta_file": str(tmp_path / "configs" / "metadata.json")}
    given |= {"ckpt_file": weights, "filepath": exported}
    monai.bundle.ckpt_export("network_def", **given, use_trace=True, input_shape=[1, 3, 64, 96], **own)
    for shape in ((1, 3, 64, 96), (2, 3, 128, 64)):
        x = torch.rand(shape)
        torch.testing.assert_close(torch.jit.load(exported)(x), network(x), rtol=0, atol=0)
    config = str(tmp_path / "configs" / "inference.json")
    verify_net_in_out("network_def", given["meta_file"], config, bundle_root=str(tmp_path))
    pixels = np.random.default_rng(0).integers(0, 256, (70, 130, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "image.png")
    places = {"bundle_root": str(tmp_path), "dataset_dir": str(tmp_path / "image.png"), "image_size": [96, 64]}
    monai.bundle.run(config_file=config, output_dir=str(tmp_path / "monai"), **places)
    made = {"_target_": "monai_iels.street_networks.street_network", "architecture": architecture}
    made |= {"num_classes": 19, "backbones": SMALL}
    run("Inference", network_def=made, output_dir=str(tmp_path / "ours"), **places)
    monai_label, our_label = (np.asarray(Image.open(tmp_path / x / "image_label.png")) for x in ("monai", "ours"))
    assert len(np.unique(our_label)) > 1
    np.testing.assert_array_equal(monai_label, our_label)
