# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Predictions, file by file, with this package and with MONAI alone."""

import json
import shutil
from pathlib import Path

import itk
import monai.bundle
import nibabel
import numpy as np
import onnx
import pytest
import torch
from dicom import write_series
from helpers import (
    BUNDLES,
    FEATURES,
    NAMES,
    command,
    configs,
    options,
    prepare,
    run,
    words,
)
from monai.bundle import ConfigParser, ConfigWorkflow
from PIL import Image


@pytest.mark.parametrize("name", [n for n in NAMES if n != "hippocampus"])
def test_inference_in_two_dimensions(name, trained, tmp_path):
    inputs = tmp_path / "my images"
    inputs.mkdir()
    rng = np.random.default_rng(0)
    sizes = {"tiny.png": (9, 17), "wide.jpg": (40, 150), "gray.png": (60, 50)}
    for file, (height, width) in sizes.items():
        pixels = rng.integers(0, 255, (height, width, 3), np.uint8)
        Image.fromarray(pixels[..., 0] if file == "gray.png" else pixels).save(inputs / file)
    (inputs / "notes.txt").write_text("not an image")
    args = json.loads((trained / name / "inference.json").read_text())
    run(**{**args, "dataset_dir": str(inputs), "output_dir": str(tmp_path / "out")})
    (config,) = configs(name, "inference")
    values = set(ConfigParser(ConfigParser.load_config_file(config)).get_parsed_content("written_values"))
    for file, (height, width) in sizes.items():
        label = Image.open(tmp_path / "out" / f"{Path(file).stem}_label.png")
        overlay = Image.open(tmp_path / "out" / f"{Path(file).stem}_overlay.png")
        assert label.size == overlay.size == (width, height)
        assert label.mode == "L"
        assert overlay.mode == "RGB"
        assert set(np.unique(label)) <= values
    assert len(list((tmp_path / "out").iterdir())) == 2 * len(sizes)


@pytest.mark.parametrize("form", [".nii.gz", ".nrrd", ".mha", "dicom", "flipped"])
def test_inference_of_volumes_in_the_source_geometry(form, trained, tmp_path):
    values = np.random.default_rng(0).integers(0, 1000, (20, 24, 36)).astype(np.int16)
    volume = itk.image_from_array(values)
    volume.SetSpacing((1.0, 1.5, 2.0))
    volume.SetOrigin((-10.0, 20.0, 30.0))
    source = tmp_path / ("series" if form == "dicom" else f"case{'.nii.gz' if form == 'flipped' else form}")
    if form == "flipped":
        volume.SetDirection(np.diag([-1.0, 1.0, -1.0]))
    if form == "dicom":
        write_series(volume, source)
    else:
        itk.imwrite(volume, str(source))
    args = json.loads((trained / "hippocampus" / "inference.json").read_text())
    run(**{**args, "dataset_dir": str(source), "output_dir": str(tmp_path / "out")})
    (file,) = (tmp_path / "out").iterdir()
    label = nibabel.load(file)
    assert label.shape == (36, 24, 20)
    expected = np.diag([-1.0, -1.5, 2.0, 1.0])
    if form == "flipped":
        expected = np.diag([1.0, -1.5, -2.0, 1.0])
    expected[:3, 3] = 10.0, -20.0, 30.0
    np.testing.assert_allclose(label.affine, expected, atol=1e-4)
    assert set(np.unique(label.dataobj)) <= {0, 1, 2}


def test_inference_sees_what_training_saw(trained, tmp_path):
    """The same network, on an image of the training size, gives the same labels in evaluation and inference."""
    workflow = prepare("Training", **options("wbc", trained / "wbc"))
    case = workflow.parser.get_parsed_content("validate#dataset")[0]
    pixels = (case["image"].numpy() * 255).round().astype(np.uint8)
    Image.fromarray(np.moveaxis(pixels, 0, -1).swapaxes(0, 1)).save(tmp_path / "case.png")
    network = workflow.parser.get_parsed_content("network_def").eval()
    network.load_state_dict(torch.load(trained / "wbc" / "model.pt", weights_only=True))
    with torch.no_grad():
        expected = network(torch.as_tensor(pixels / 255, dtype=torch.float32)[None]).argmax(1)[0].T
    args = json.loads((trained / "wbc" / "inference.json").read_text())
    run(**{**args, "dataset_dir": str(tmp_path / "case.png"), "output_dir": str(tmp_path)})
    label = np.asarray(Image.open(tmp_path / "case_label.png"))
    np.testing.assert_array_equal(label, np.array([0, 128, 255])[expected.numpy()])


def test_inference_needs_monai_alone(trained, tmp_path):
    """The bundle's config predicts where monai_iels is not installed, and the labels are those of Inference."""
    rng = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    Image.fromarray(rng.integers(0, 255, (40, 50, 3), np.uint8)).save(tmp_path / "images" / "case.png")
    blocker = tmp_path / "blocker"
    blocker.mkdir()
    (blocker / "sitecustomize.py").write_text(
        "import sys\nclass No:\n    def find_spec(self, name, *a):\n"
        "        if name.startswith('monai_iels'): raise ImportError(name)\nsys.meta_path.insert(0, No())\n"
    )
    args = json.loads((trained / "wbc" / "inference.json").read_text())
    run(**{**args, "dataset_dir": str(tmp_path / "images"), "output_dir": str(tmp_path / "ours")})
    small = {"bundle_root": BUNDLES / "wbc", "dataset_dir": tmp_path / "images", "output_dir": tmp_path / "plain"}
    weights = shutil.copy(trained / "wbc" / "model.pt", blocker)  # a path without spaces
    small |= {"checkpoint": weights, "features": FEATURES, "image_size": [32, 32]}
    arguments = ["--config_file", *configs("wbc", "inference"), *words(small)]
    done = command(*arguments, cwd=tmp_path, env={"PYTHONPATH": str(blocker)})
    assert done.returncode == 0, done.stderr
    plain, ours = (np.asarray(Image.open(tmp_path / kind / "case_label.png")) for kind in ("plain", "ours"))
    assert plain.shape == (40, 50)
    np.testing.assert_array_equal(plain, ours)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["blocker", "images", "ours", "plain"]


def test_equal_names_are_refused_before_anything_is_written(trained, tmp_path):
    for name in ("a.png", "a.jpg"):
        Image.fromarray(np.zeros((40, 40, 3), np.uint8)).save(tmp_path / name)
    args = json.loads((trained / "wbc" / "inference.json").read_text())
    with pytest.raises(SystemExit) as caught:
        run(**{**args, "dataset_dir": str(tmp_path), "output_dir": str(tmp_path / "out")})
    assert "a.png: their predictions would have the same name" in str(caught.value.code)
    assert not (tmp_path / "out").exists()


def test_inference_agrees_with_evaluation_on_an_image_of_another_size(trained, tmp_path):
    """Images are drawn with 48 pixels and trained on with 32; both judge at the same scale."""
    workflow = prepare("Training", **options("wbc", trained / "wbc"))
    case = workflow.parser.get_parsed_content("datalists")["validation"][0]
    args = json.loads((trained / "wbc" / "inference.json").read_text())
    run(**{**args, "dataset_dir": case["image"], "output_dir": str(tmp_path)})
    found = np.asarray(Image.open(next(tmp_path.glob("*_label.png"))))
    network = workflow.parser.get_parsed_content("network_def").eval()
    network.load_state_dict(torch.load(trained / "wbc" / "model.pt", weights_only=True))
    image = workflow.parser.get_parsed_content("validate#dataset")[0]["image"].as_tensor()
    with torch.no_grad():
        expected = network(image[None]).argmax(1)[0].T.float()
    expected = torch.nn.functional.interpolate(expected[None, None], found.shape, mode="nearest")[0, 0].numpy()
    assert (np.array([0, 128, 255])[expected.astype(int)] == found).mean() > 0.97


@pytest.mark.parametrize("name", NAMES)
def test_properties_are_complete(name, trained):
    train = prepare("Training", **options(name, trained / name))
    assert train.check_properties() == []
    assert train.max_epochs == 2
    infer = ConfigWorkflow(
        configs(name, "inference"),
        workflow_type="infer",
        **{
            k: v
            for k, v in options(name, trained / name).items()
            if k in ("bundle_root", "output_dir", "features", "network_def")
        },
        dataset_dir=str(BUNDLES / name / "docs"),
    )
    infer.initialize()
    assert infer.check_properties() == []


@pytest.mark.parametrize("name", [n for n in NAMES if n != "cityscapes"])
def test_monai_s_own_tools(name, trained, tmp_path):
    """Run what the model zoo runs, with MONAI's defaults, and compare what is exported with the network."""
    (config,), (meta,) = configs(name, "inference"), configs(name, "metadata")
    monai.bundle.verify_net_in_out("network_def", meta_file=meta, config_file=config, features=FEATURES)
    weights = str(trained / name / "model.pt")
    common = {"ckpt_file": weights, "meta_file": meta, "config_file": config, "features": FEATURES}
    monai.bundle.ckpt_export("network_def", filepath=str(tmp_path / "model.ts"), **common)
    parser = ConfigParser({**ConfigParser.load_config_file(config), "features": FEATURES})
    network = parser.get_parsed_content("network_def")
    network.load_state_dict(torch.load(weights, weights_only=True))
    image = ConfigParser.load_config_file(meta)["network_data_format"]["inputs"]["image"]
    scripted = torch.jit.load(str(tmp_path / "model.ts"))
    for n in (1, 2):
        shape = [eval(side, {"n": n}) for side in image["spatial_shape"]]
        x = torch.rand(1, image["num_channels"], *shape)
        assert network.train()(x).shape[2:] == x.shape[2:]
        with torch.no_grad():
            torch.testing.assert_close(scripted(x), network.eval()(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["wbc", "hippocampus"])
def test_monai_exports_to_onnx(name, trained, tmp_path):
    """In 2-D and in 3-D; the other bundles have the same network."""
    (config,), (meta,) = configs(name, "inference"), configs(name, "metadata")
    common = {"ckpt_file": str(trained / name / "model.pt"), "meta_file": meta, "config_file": config}
    monai.bundle.onnx_export("network_def", filepath=str(tmp_path / "model.onnx"), **common, features=FEATURES)
    onnx.checker.check_model(onnx.load(tmp_path / "model.onnx"))


def test_monai_loads_the_bundle(trained, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    shutil.copytree(BUNDLES / "wbc", tmp_path / "wbc")
    (tmp_path / "wbc" / "models").mkdir()
    shutil.copy(trained / "wbc" / "model.pt", tmp_path / "wbc" / "models" / "model.pt")
    network = monai.bundle.load("wbc", bundle_dir=str(tmp_path), source="github", net_override={"features": FEATURES})
    weights = torch.load(trained / "wbc" / "model.pt", weights_only=True)
    for key, value in network.state_dict().items():
        torch.testing.assert_close(value, weights[key])
    assert not list((tmp_path / "here").iterdir())
