# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Bundles without our workflows: MONAI alone trains and predicts, its federated client and MONAI Label use them."""

import contextlib
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import monai.bundle
import nibabel
import numpy as np
import pytest
import torch
from helpers import BUNDLES, FEATURES, NAMES, SMALL, U_NET, configs, history, new_database, run
from mlflow import MlflowClient
from monai.bundle import ConfigParser, create_workflow
from monai.fl.client import MonaiAlgo
from monai.fl.utils.constants import ExtraItems
from monai.fl.utils.exchange_object import ExchangeObject
from monai.networks.nets import BasicUNet
from PIL import Image
from programs import Program
from torch.nn.functional import interpolate, pad

from monai_iels.data import SOURCES
from monai_iels.torchvision_operators import make_importable

NOTICE = r"Plain MONAI\. With (--workflow_name monai_iels\.Training --bundle_root \S+) in place of --config_file, .+"
SIX_TIMES = {"train#dataset#data": "$@datalists['training'] * 6"}
CLIENTS = {"wbc": SIX_TIMES, "hippocampus": {**SIX_TIMES, "batch_size": 2, "learning_rate": 0.003}}
CLIENTS["hippocampus"]["image_size"] = [32, 48, 32]  # nothing is cropped
ALONE = """
import sys
sys.modules["monai_iels"] = None  # to import it is an error
from monai.bundle import create_workflow
for folder in sys.argv[1:]:
    places = {"bundle_root": folder, "dataset_dir": folder + "/input", "output_dir": folder + "/alone"}
    workflow = create_workflow(config_file=folder + "/configs/inference.json", workflow_type="infer", **places)
    workflow.run()
    workflow.finalize()
"""


def settings(name, output, **more):
    """Return the overrides of a run that takes seconds; all are keys of the config."""
    common = {"bundle_root": str(BUNDLES / name), "output_dir": str(output), "features": FEATURES, "epochs": 2}
    return {**common, "learning_rate": 0.01, "loss#loss#lambda_dice": 1.0, **SMALL[name], **more}


def run_plain(name, *files, **overrides):
    workflow = create_workflow(config_file=configs(name, *files), **overrides)
    workflow.run()
    workflow.finalize()


def names_in(folder):
    return {path.name for path in folder.iterdir()}


def weights_of(output):
    return torch.load(output / "model.pt", weights_only=True)


def are_equal(these, those):
    return these.keys() == those.keys() and all(torch.equal(these[key], those[key]) for key in these)


def tracked_run(address):
    """Return the only run of a tracking server, and its Dice per epoch."""
    client = MlflowClient(address)
    (found,) = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])
    points = client.get_metric_history(found.info.run_id, "val_mean_dice")
    return found, [(point.step, point.value) for point in points]


def validated(output):
    return [(row["epoch"], row["val_mean_dice"]) for row in history(output) if "val_mean_dice" in row]


def database(output):
    return f"sqlite:///{output}/mlflow.db"


@pytest.fixture(scope="module", params=NAMES)
def plain(request, tmp_path_factory):
    """Train with MONAI alone, in an empty folder; return the bundle's name, its output, and what was printed."""
    name, folder = request.param, tmp_path_factory.mktemp("plain")
    before = set((BUNDLES / name).rglob("*"))
    (folder / "here").mkdir()
    new_database(folder / "out")
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
        patch.chdir(folder / "here")
        run_plain(name, "train", **settings(name, folder / "out"))
    assert names_in(folder / "here") == set()
    assert names_in(folder) == {"here", "out"}
    assert set((BUNDLES / name).rglob("*")) == before
    return name, folder / "out", printed.getvalue()


def test_a_bundle_trains_and_says_what_the_workflow_adds(plain):
    name, output, printed = plain
    assert [epoch for epoch, _ in validated(output)] == [1, 2]
    assert all(parameter.isfinite().all() for parameter in weights_of(output).values())
    (line,) = [line for line in printed.splitlines() if "--workflow_name" in line]
    assert re.fullmatch(NOTICE, line)[1].endswith(str(BUNDLES / name))


def test_it_is_tracked_below_its_folder(plain):
    name, output, _ = plain
    found, dice = tracked_run(database(output))
    assert re.fullmatch(f"{name}-synthetic-[0-9a-f]{{6}}", found.info.run_name)
    assert found.info.status == "FINISHED"
    assert dice == validated(output)


def test_it_is_tracked_where_the_environment_says(tmp_path, monkeypatch):
    address = new_database(tmp_path / "server")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    run_plain("wbc", "train", **settings("wbc", tmp_path / "out", epochs=1))
    assert tracked_run(address)[1] == validated(tmp_path / "out")
    assert not (tmp_path / "out" / "mlflow.db").exists()


def test_the_workflow_learns_the_same_weights(plain, tmp_path):
    """It checks, tries a case and draws pictures; no bit changes by that."""
    name, output, _ = plain
    overrides = settings(name, tmp_path / "out")
    run("Training", **overrides, track=False)
    assert are_equal(weights_of(output), weights_of(tmp_path / "out"))
    if name == "wbc":
        run("Training", **overrides, track=False, seed=1)
        assert not are_equal(weights_of(output), weights_of(tmp_path / "out"))


def test_it_evaluates_what_it_trained(plain):
    name, output, _ = plain
    run_plain(name, "train", "evaluate", **settings(name, output))
    header, *cases = (output / "evaluation" / "cases.csv").read_text().splitlines()
    found = [float(case.split(",")[header.split(",").index("mean_dice")] or "nan") for case in cases]
    best = max(history(output), key=lambda row: row.get("val_set_iou", row["val_mean_dice"]))
    assert np.nanmean(found) == pytest.approx(best["val_mean_dice"], abs=1e-6)


def test_the_command_and_the_one_that_it_names(tmp_path):
    overrides = settings("wbc", tmp_path / "out", epochs=1)
    words = [word for key, value in overrides.items() for word in (f"--{key}", str(value).replace(" ", ""))]
    new_database(tmp_path / "out")
    (tmp_path / "here").mkdir()
    places = {"stdout": tmp_path / "log", "stderr": tmp_path / "errors", "cwd": tmp_path / "here"}
    plainly = Program("monai.bundle", "run", "--config_file", *configs("wbc", "train"), *words, **places)
    assert plainly.wait() == 0, (tmp_path / "errors").read_text()
    assert names_in(tmp_path / "here") == set()
    first, *others = (tmp_path / "log").read_text().splitlines()
    assert not [line for line in others if "--workflow_name" in line]
    assert [line for line in others if line.startswith("epoch 1/1 ")]
    weights, named = weights_of(tmp_path / "out"), re.fullmatch(NOTICE, first)[1].split()
    carefully = Program("monai.bundle", "run", *named, *words, "--track", "false", **places)
    assert carefully.wait() == 0, (tmp_path / "errors").read_text()
    assert are_equal(weights, weights_of(tmp_path / "out" / "earlier" / "1"))
    assert are_equal(weights, weights_of(tmp_path / "out"))


@pytest.mark.parametrize("name", NAMES)
def test_a_federated_client_trains_and_evaluates(name, tmp_path, monkeypatch):
    """It is given the bundle's folder and overrides, and nothing else."""
    monkeypatch.chdir(tmp_path)
    new_database(tmp_path / "out")
    overrides = {**settings(name, tmp_path / "out"), **CLIENTS.get(name, {})}
    bundle_root = overrides.pop("bundle_root")
    client = MonaiAlgo(bundle_root=bundle_root, train_kwargs={**overrides}, eval_kwargs={**overrides})
    client.initialize({ExtraItems.CLIENT_NAME: "clinic"})
    network = network_of(name)
    rounds = [{key: value.clone() for key, value in network.state_dict().items()}]
    for _ in range(2):
        client.train(ExchangeObject(weights={**rounds[-1]}))
        learned = client.get_weights().weights  # by how much they differ
        assert learned.keys() == rounds[-1].keys()
        assert any(difference.any() for difference in learned.values())
        rounds.append({key: value + learned[key] for key, value in rounds[-1].items()})
    scores = [client.evaluate(ExchangeObject(weights={**weights})).metrics["val_mean_dice"] for weights in rounds]
    if name in CLIENTS:
        cases = client.eval_workflow.parser.get_parsed_content("datalists")["validation"]
        expected = [mean_dice(network, weights, cases, overrides["image_size"]) for weights in rounds]
        print(name, scores, expected)
        assert scores == pytest.approx(expected, abs=1e-5)
        assert scores[-1] > max(0.1, scores[0])
    assert np.isfinite(scores).all()
    client.finalize()
    assert names_in(tmp_path) == {"out"}
    found, dice = tracked_run(database(tmp_path / "out"))  # both rounds
    assert found.info.run_name.startswith("clinic_")
    assert found.info.status == "FINISHED"
    assert [step for step, _ in dice] == [1, 2]


def network_of(name):
    """Make a bundle's small network without its config, with weights of the federation."""
    config = ConfigParser.load_config_file(configs(name, "train")[0])
    arguments = {"spatial_dims": config["spatial_dims"], "in_channels": 1 if name == "hippocampus" else 3}
    torch.manual_seed(7)
    act = ("LeakyReLU", {"negative_slope": 0.1 if name == "cityscapes" else 0.01})
    return BasicUNet(**arguments, out_channels=config["num_classes"], features=FEATURES, act=act).eval()


def mean_dice(network, weights, cases, size):
    """Measure Dice without MONAI's transforms and metrics: read, resize or pad, predict and count."""
    network.load_state_dict(weights)
    scores = []
    for case in cases:
        image, truth = volume(case, size) if case["image"].endswith(".nii.gz") else picture(case, size)
        with torch.no_grad():
            guess = network(image)[0].argmax(0)
        pairs = [(guess == value, truth == value) for value in (1, 2) if (truth == value).any()]
        scores.append(np.mean([2 * int((a & b).sum()) / int(a.sum() + b.sum()) for a, b in pairs]))
    return np.mean(scores)


def picture(case, size):
    image = torch.tensor(np.asarray(Image.open(case["image"]).convert("RGB")).T / np.float32(255))
    label = torch.tensor(np.asarray(Image.open(case["label"]).convert("L")).T / 127.5).round()
    resized = interpolate(label[None, None], size, mode="nearest-exact")
    return interpolate(image[None], size, mode="bilinear"), resized[0, 0]


def volume(case, size):
    image, label = (torch.tensor(nibabel.load(case[key]).get_fdata(dtype=np.float32)) for key in ("image", "label"))
    image = (image - image.mean()) / image.std(correction=0)
    missing = [wanted - side for wanted, side in zip(size, image.shape, strict=True)]
    margins = [margin for total in reversed(missing) for margin in (total // 2, total - total // 2)]
    return pad(image, margins)[None, None], pad(label, margins)


@pytest.mark.parametrize("name", NAMES)
def test_inference_names_monai_torch_and_ignite_alone(name):
    text = (BUNDLES / name / "configs" / "inference.json").read_text()
    targets = re.findall(r'"_target_": "([^"]*)"', text)
    assert len(targets) == text.count("_target_") > 10
    assert not [target for target in targets if not target.startswith(("monai.", "torch.", "ignite."))]
    assert "iels" not in text
    config = json.loads(text)
    assert {re.fullmatch(r"\$import (\w+)", line)[1] for line in config["imports"]} <= sys.stdlib_module_names
    keys = {"device", "bundle_root", "network_def", "preprocessing", "inferer", "postprocessing", "output_dir"}
    assert keys <= config.keys()
    assert not (BUNDLES / name / "scripts").exists()


@pytest.fixture(scope="module")
def with_weights(tmp_path_factory):
    """Copy each bundle, give it a small network with weights by which all classes appear, and predict an image."""
    folders = {}
    for name in NAMES:
        folders[name] = folder = tmp_path_factory.mktemp("bundles") / name
        shutil.copytree(BUNDLES / name, folder)
        file = folder / "configs" / "inference.json"
        config = {**json.loads(file.read_text()), "features": FEATURES, "image_size": SMALL[name]["image_size"]}
        if name == "cityscapes":
            config["network_def"] = {**U_NET, "_target_": "monai.networks.nets.BasicUNet"}
        file.write_text(json.dumps(config))
        network = ConfigParser(config).get_parsed_content("network_def").eval()
        torch.manual_seed(0)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.normal_(0, 0.3)
            logits = network(torch.rand(1, 1 if name == "hippocampus" else 3, *config["image_size"]))
            network.final_conv.bias -= logits.mean((0, *range(2, logits.ndim)))
        (folder / "models").mkdir()
        torch.save(network.state_dict(), folder / "models" / "model.pt")
        draw(folder / "input", config["spatial_dims"])
        places = {"bundle_root": str(folder), "dataset_dir": str(folder / "input"), "output_dir": str(folder / "ours")}
        run("Inference", **places, pictures=False)
    return folders


def draw(folder, dims):
    """Draw an image of another size than any network's, and in 3-D of another spacing and orientation."""
    folder.mkdir()
    noise = torch.rand(1, 3 if dims == 2 else 1, *[6] * dims, generator=torch.Generator().manual_seed(0))
    size = (53, 75) if dims == 2 else (36, 42, 30)
    soft = interpolate(noise, size, mode="bilinear" if dims == 2 else "trilinear")[0].mul(255).byte().numpy()
    if dims == 2:
        Image.fromarray(np.moveaxis(soft, 0, -1)).save(folder / "one.png")
    else:
        nibabel.save(nibabel.Nifti1Image(soft[0], np.diag([-1.25, 1.0, 0.75, 1.0])), folder / "one.nii.gz")


def read(folder, name):
    """Return a written prediction, and its affine in 3-D."""
    if name == "hippocampus":
        image = nibabel.load(folder)
        return np.asarray(image.dataobj), image.affine
    return np.asarray(Image.open(folder)), None


def predicted_by_us(folder, name):
    (file,) = (folder / "ours").iterdir()
    labels, affine = read(file, name)
    config = ConfigParser(ConfigParser.load_config_file(folder / "configs" / "inference.json"))
    values = config.get_parsed_content("written_values")
    found = set(np.unique(labels))
    assert found <= set(values)
    assert len(found) >= min(len(values), 10)
    return labels, affine, values


def test_monai_predicts_where_this_package_cannot_be_imported(with_weights, tmp_path):
    words = [sys.executable, "-c", ALONE, *map(str, with_weights.values())]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert names_in(tmp_path) == set()
    for name, folder in with_weights.items():
        ours, affine, _ = predicted_by_us(folder, name)
        (file,) = (folder / "alone").iterdir()
        labels, found = read(file, name)
        np.testing.assert_array_equal(labels, ours, name)
        if affine is not None:
            np.testing.assert_allclose(found, affine, atol=1e-6)


def test_monai_exports_a_network_of_ours_for_prediction_without_us(with_weights, tmp_path):
    """The networks for street scenes are ours, so the bundle predicts with an exported one."""
    folder = tmp_path / "cityscapes"
    shutil.copytree(with_weights["cityscapes"], folder)
    config = ConfigParser.load_config_file(configs("cityscapes", "inference")[0])
    config["image_size"] = SMALL["cityscapes"]["image_size"]
    (folder / "configs" / "inference.json").write_text(json.dumps(config))
    weights = folder / "models" / "model.pt"
    monai.bundle.ckpt_export(
        "network_def",
        filepath=str(folder / "models" / "model.ts"),
        ckpt_file=str(weights),
        config_file=configs("cityscapes", "train"),
        meta_file=configs("cityscapes", "metadata")[0],
        network_def=U_NET,
    )
    weights.unlink()
    places = {"bundle_root": str(folder), "dataset_dir": str(folder / "input"), "output_dir": str(folder / "alone")}
    workflow = create_workflow(config_file=str(folder / "configs" / "inference.json"), workflow_type="infer", **places)
    workflow.run()
    (file,) = (folder / "alone").iterdir()
    np.testing.assert_array_equal(read(file, "cityscapes")[0], predicted_by_us(folder, "cityscapes")[0])


@pytest.fixture(scope="module")
def infer_task():
    pytest.importorskip("monailabel", reason="MONAI Label is not installed: .ci/monailabel installs it and runs this")
    make_importable()
    from monailabel.tasks.infer.bundle import BundleInferTask

    return BundleInferTask


@pytest.mark.parametrize("name", NAMES)
def test_monai_label_predicts_with_a_bundle(name, infer_task, with_weights):
    """It shows classes by their number in ``channel_def``; files of ours have the values of the data set."""
    folder = with_weights[name]
    ours, affine, values = predicted_by_us(folder, name)
    task = infer_task(str(folder), {})
    assert task.is_valid()
    assert task.dimension == (2 if affine is None else 3)
    first = 0 if name == "cityscapes" else 1  # no background
    assert task.labels == {title: number for number, title in enumerate(SOURCES[name].classes) if number >= first}
    (image,) = (folder / "input").iterdir()
    request = {"image": str(image), "model_filename": "model.pt", "device": "cpu", "result_dtype": "uint8"}
    file, answer = task({**request, "result_extension": "".join(image.suffixes)})
    labels, found = read(Path(file), name)
    print(f"{name}: {np.mean(np.asarray(values)[labels] == ours):.4f} of {labels.size} pixels are equal")
    np.testing.assert_array_equal(np.asarray(values)[labels], ours)
    assert answer["label_names"] == task.labels
    if affine is not None:
        np.testing.assert_allclose(found, affine, atol=1e-6)
