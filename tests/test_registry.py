# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The registry and serving with a real server: what is registered, what loads, what it predicts."""

import base64
import gzip
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import mlflow
import nibabel
import numpy as np
import pandas as pd
import pytest
import torch
from helpers import TWO_LEVELS, history, run
from monai.bundle import ConfigParser
from PIL import Image
from programs import Program
from scipy import ndimage
from servers import answers, free_port, options, wait_for

import monai_iels
from monai_iels.cli import main
from monai_iels.registry import _registering, register
from monai_iels.registry._registering import _inference_config, _log_predictor, server_in_use
from monai_iels.registry._versions import beats_champion
from monai_iels.run_folder import RunFolder
from monai_iels.tracking import Journal


def network_of(output):
    args = json.loads((output / "inference.json").read_text())
    config = {**ConfigParser.load_config_file(Path(args["bundle_root"]) / "configs" / "inference.json"), **args}
    network = ConfigParser(config).get_parsed_content("network_def")
    network.load_state_dict(torch.load(output / "model.pt", weights_only=True))
    return network.eval()


@pytest.fixture(scope="module")
def sharp(server, tmp_path_factory):
    """Train for long enough that the labels are of all classes, and register."""
    output = tmp_path_factory.mktemp("sharp")
    overrides = options("wbc", output, epochs=8, sample_count=20, learning_rate=0.01, iel_steps=0)
    overrides |= {"tracking_uri": server.uri, "network_def": TWO_LEVELS}
    run("Training", **overrides, register_model="sharp")
    return output


@pytest.fixture(scope="module")
def cells(server, tmp_path_factory):
    """Register a training after its end, with the bundle's own network."""
    output = tmp_path_factory.mktemp("cells")
    run("Training", **options("wbc", output, tracking_uri=server.uri))
    assert register(str(output), "cells")
    return output


@pytest.fixture(scope="module")
def cell(sharp):
    """The first image of the sample, as large as no network saw it, and not square."""
    return Image.open(min((sharp / "cache").rglob("*.bmp"))).convert("RGB").resize((96, 128), Image.Resampling.BICUBIC)


@pytest.fixture(scope="module")
def predictor(sharp, server):
    with server_in_use(server.uri):
        return mlflow.pyfunc.load_model("models:/sharp-predict/1")


def in_base64(image, form="PNG"):
    stream = io.BytesIO()
    image.save(stream, form)
    return base64.b64encode(stream.getvalue()).decode()


def table(*cells):
    return pd.DataFrame({"image": list(cells)})


def decoded(text):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(text))))


def dice(found, expected):
    """Return the mean Dice over the classes of the data set."""
    pairs = [(found == value, expected == value) for value in (0, 128, 255)]
    return np.mean([2 * (a & b).sum() / (a.sum() + b.sum()) for a, b in pairs])


def test_the_registered_network_is_the_checkpoint(cells, server, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
    client = mlflow.MlflowClient(server.uri, server.uri)
    version = client.get_model_version_by_alias("cells", "champion")
    assert client.get_model_version_by_alias("cells", "candidate").version == version.version
    assert version.tags["source"] == "wbc"
    assert version.tags["dataset_synthetic"] == "True"
    assert float(version.tags["val_mean_dice"]) == max(row["val_mean_dice"] for row in history(cells))
    with server_in_use(server.uri):
        loaded = mlflow.pytorch.load_model("models:/cells@champion")
    network = network_of(cells)
    for shape in ((1, 3, 32, 32), (3, 3, 64, 48)):
        x = torch.rand(shape)
        with torch.no_grad():
            torch.testing.assert_close(loaded(x), network(x), rtol=0, atol=1e-5)


PREDICT = """
import os, sys
from importlib.machinery import PathFinder
installed = list(sys.path)
class No:
    def find_spec(self, name, *rest):
        if name == "monai_iels":
            copy = PathFinder.find_spec(name, [path for path in sys.path if path not in installed])
            if copy is None: raise ImportError(name)
            return copy
sys.meta_path.insert(0, No())
sys.modules.update(dict.fromkeys(("itk", "ignite", "fire")))  # as if not installed
os.environ["MLFLOW_ALLOW_PICKLE_DESERIALIZATION"] = "false"
import mlflow, numpy as np
mlflow.set_tracking_uri(sys.argv[1]); mlflow.set_registry_uri(sys.argv[1])
image = np.load(sys.argv[2])
assert "monai_iels" not in sys.modules
model = mlflow.pyfunc.load_model("models:/sharp-predict@champion")
print(sys.modules["monai_iels"].__file__)
np.savez(sys.argv[3], label=model.predict(image), probabilities=model.predict(image, params={"probabilities": True}))
network = mlflow.pytorch.load_model("models:/sharp@champion")
import torch
with torch.no_grad():
    np.save(sys.argv[4], network(torch.linspace(0, 1, 2 * 3 * 48 * 64).reshape(2, 3, 48, 64)).numpy())
"""


def test_prediction_with_the_copy_of_this_package_and_without_pickle(sharp, server, cell, tmp_path):
    out, logits, image = tmp_path / "out.npz", tmp_path / "logits.npy", tmp_path / "image.npy"
    np.save(image, np.asarray(cell.resize((70, 45))))
    words = [sys.executable, "-c", PREDICT, server.uri, image, out, logits]
    done = subprocess.run(words, check=True, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    used = Path(done.stdout.splitlines()[-1])
    assert used.parts[-3:] == ("code", "monai_iels", "__init__.py")
    assert not used.is_relative_to(Path(monai_iels.__file__).parent)
    x = torch.linspace(0, 1, 2 * 3 * 48 * 64).reshape(2, 3, 48, 64)
    with torch.no_grad():
        np.testing.assert_allclose(np.load(logits), network_of(sharp)(x).numpy(), rtol=0, atol=1e-5)
    found = np.load(out)
    label, probabilities = found["label"], found["probabilities"]
    assert label.shape == (45, 70)
    assert label.dtype == np.uint8
    assert set(np.unique(label)) == {0, 128, 255}
    assert probabilities.shape == (3, 45, 70)
    np.testing.assert_allclose(probabilities.sum(0), 1, atol=1e-5)
    Image.fromarray(np.load(image)).save(tmp_path / "image.png")
    args = json.loads((sharp / "inference.json").read_text())
    run(**{**args, "dataset_dir": str(tmp_path / "image.png"), "output_dir": str(tmp_path)})
    np.testing.assert_array_equal(label, np.asarray(Image.open(tmp_path / "image_label.png")))


def by_hand(output, image):
    """Segment an image without the bundle: SciPy resizes it, the network judges it, SciPy resizes the probabilities."""
    pixels = np.asarray(image, np.float32).transpose(2, 1, 0) / 255  # bundles have the first axis along the width
    with torch.no_grad():
        probabilities = network_of(output)(torch.as_tensor(zoomed(pixels, (32, 32)))[None]).softmax(1)[0].numpy()
    return np.array([0, 128, 255], np.uint8)[zoomed(probabilities, image.size).argmax(0)].T


def zoomed(channels, size):
    """Resize by linear interpolation between the centers of pixels."""
    factors = [n / m for n, m in zip(size, channels.shape[1:], strict=True)]
    return np.stack([ndimage.zoom(c, factors, order=1, mode="nearest", grid_mode=True) for c in channels])


def test_an_image_gets_the_same_labels_at_any_size(sharp, predictor, service, cell):
    native = by_hand(sharp, cell)
    assert set(np.unique(native)) == {0, 128, 255}
    for factor in (1, 2, 4):
        image = cell.resize((cell.width * factor, cell.height * factor), Image.Resampling.BICUBIC)
        _, answer = post(service, {"dataframe_records": [{"image": in_base64(image)}], "params": {"format": "file"}})
        for label in (predictor.predict(np.asarray(image)), decoded(answer["predictions"][0]["label"])):
            assert dice(label, by_hand(sharp, image)) > 0.99
            back = Image.fromarray(label).resize(cell.size, Image.Resampling.NEAREST)
            assert dice(np.asarray(back), native) > 0.97


@pytest.fixture(scope="module")
def volumes(server, tmp_path_factory):
    """A trained 3-D model, registered, and its folder."""
    output = tmp_path_factory.mktemp("volumes")
    overrides = options("hippocampus", output, learning_rate=0.01, iel_steps=0, tracking_uri=server.uri)
    overrides["network_def"] = {**TWO_LEVELS, "spatial_dims": 3, "in_channels": 1}
    run("Training", **overrides, register_model="hippo")
    with server_in_use(server.uri):
        return mlflow.pyfunc.load_model("models:/hippo-predict@candidate"), output


def test_volumes_are_predicted_in_their_own_shape(volumes, server):
    model, output = volumes
    volume = np.random.default_rng(0).random((21, 37, 29)).astype(np.float32)
    assert model.predict(volume).shape == volume.shape
    with server_in_use(server.uri):
        network = mlflow.pytorch.load_model("models:/hippo@candidate")
    x = torch.rand(1, 1, 32, 48, 32)
    with torch.no_grad():
        torch.testing.assert_close(network(x), network_of(output)(x), rtol=0, atol=1e-5)


def test_a_predictor_requires_what_reads_its_files_and_carries_a_clean_copy(volumes, predictor, sharp, server):
    with server_in_use(server.uri):
        needed = [
            Path(mlflow.pyfunc.get_model_dependencies(f"models:/{name}/1")).read_text()
            for name in ("hippo-predict", "sharp-predict")
        ]
        copy = Path(mlflow.artifacts.download_artifacts("models:/sharp-predict/1")) / "code" / "monai_iels"
    assert [f"itk-io=={version('itk-io')}" in text for text in needed] == [True, False]
    assert (copy / "images" / "__init__.py").exists()
    assert not list(copy.rglob("*.pyc"))
    assert sum(file.stat().st_size for file in copy.rglob("*")) < 2_000_000


def test_a_volume_that_may_name_other_files_is_refused(volumes):
    model, _ = volumes
    header = b"ObjectType = Image\nNDims = 3\nDimSize = 4 4 4\nElementType = MET_UCHAR\nElementDataFile = /etc/passwd\n"
    with pytest.raises(mlflow.exceptions.MlflowException, match="Image 1 is no readable NIfTI file") as caught:
        model.predict(table(base64.b64encode(header).decode()))
    assert caught.value.get_http_status_code() == 400


def turned(file):
    """Return a volume of the sample as another scanner might store it: other axes, spacing and origin."""
    image = nibabel.load(file)
    values = np.asanyarray(image.dataobj)[::-1, :, ::2].transpose(1, 0, 2)
    affine = np.array([[0, -1.0, 0, 90], [1.0, 0, 0, -30], [0, 0, 2.0, 12], [0, 0, 0, 1]])
    return nibabel.Nifti1Image(values, affine)


@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
def test_a_nifti_file_is_predicted_in_its_own_space(ending, volumes, tmp_path):
    model, output = volumes
    (tmp_path / "in").mkdir()
    file = tmp_path / "in" / f"case{ending}"
    nibabel.save(turned(min((output / "cache").rglob("images*/*.nii.gz"))), file)
    request = table(base64.b64encode(file.read_bytes()).decode())
    (answer,) = model.predict(request, params={"format": "file"})["label"]
    label = nibabel.Nifti1Image.from_bytes(gzip.decompress(base64.b64decode(answer)))
    args = json.loads((output / "inference.json").read_text())
    run(**{**args, "dataset_dir": str(file), "output_dir": str(tmp_path / "out")})
    expected = nibabel.load(tmp_path / "out" / "case_label.nii.gz")
    np.testing.assert_allclose(label.affine, expected.affine, atol=1e-5)
    assert label.get_data_dtype() == np.uint8
    assert len(np.unique(expected.dataobj)) > 1
    assert np.mean(np.asarray(label.dataobj) != np.asarray(expected.dataobj)) < 0.001
    np.testing.assert_array_equal(model.predict(request)["label"][0], np.asarray(label.dataobj))


def test_a_volume_that_is_damaged_or_too_large_is_refused(volumes):
    model, _ = volumes
    sound = nibabel.Nifti1Image(np.random.default_rng(0).random((16, 16, 16)).astype(np.float32), np.eye(4))
    data = gzip.compress(sound.to_bytes())
    holes = np.ones((8, 8, 8), np.float32)
    holes[0, 0, :3] = np.nan, np.inf, -np.inf
    huge = sound.header.copy()
    huge.set_data_shape((5000, 5000, 5000))
    flat = sound.header.copy()
    flat.set_sform(np.diag([1.0, 1, 0, 1]), code=1)
    wide = nibabel.Nifti1Image(np.zeros((8, 8, 8), np.uint8), np.diag([100.0, 100, 100, 1]))
    cases = {
        data[: len(data) // 2]: "Image 1 is truncated or damaged",
        data[:-8] + bytes(8): "Image 1 is truncated or damaged .CRC check failed",
        data[:200]: "Image 1 is",
        b"no volume": "Image 1 is no readable NIfTI file",
        base64.b64decode(in_base64(Image.new("RGB", (8, 8)))): "Image 1 is no readable NIfTI file",
        nibabel.Nifti1Image(holes, np.eye(4)).to_bytes(): "Image 1 has 3 NaN or infinite values",
        nibabel.Nifti1Image(np.zeros((4, 4, 4, 2)), np.eye(4)).to_bytes(): "Image 1 is of another kind",
        gzip.compress(huge.binaryblock + bytes(4)): "has 125000000000 values",
        wide.to_bytes(): "has 512000000 values .8 x 8 x 8., but at most 64000000 are allowed",
        flat.binaryblock + bytes(4): "Image 1 has an affine that cannot be inverted",
    }
    for content, sentence in cases.items():
        with pytest.raises(mlflow.exceptions.MlflowException, match=sentence) as caught:
            model.predict(table(base64.b64encode(content).decode()))
        assert caught.value.get_http_status_code() == 400


def test_the_champion_moves_only_for_better_on_the_same_data(sharp, server, tmp_path):
    client = mlflow.MlflowClient(server.uri, server.uri)

    def champion():
        return client.get_model_version_by_alias("rivals", "champion").version

    def registered(folder, dice, **params):
        """Register the same training again, as if it had another score or other data."""
        shutil.copytree(sharp, tmp_path / folder)
        scores = pd.read_csv(sharp / "history.csv").assign(val_mean_dice=dice)
        scores.to_csv(tmp_path / folder / "history.csv", index=False)
        journal = Journal(tmp_path / folder / "tracking")
        if params:
            journal.append("params", values=params)
        before = len(client.search_model_versions("name='rivals'"))
        journal.save_progress(replace(journal.progress(), arrived=set(range(len(journal.entries())))))
        assert register(str(tmp_path / folder), "rivals")
        assert len(client.search_model_versions("name='rivals'")) == before + 1
        return client.get_model_version_by_alias("rivals", "candidate").version

    first = registered("first", dice=0.9)
    assert champion() == first
    registered("other data", dice=0.999, dataset_fingerprint="another")
    assert champion() == first
    tags = client.get_model_version("rivals", first).tags
    for worse in ({"val_mean_dice": "0.0"}, {"val_mean_dice": "0.999", "section": "test"}):
        assert not beats_champion(client, "rivals", {**tags, **worse})
    better = registered("better", dice=0.998)
    assert champion() == better


def test_volumes_of_several_channels_are_refused_before_anything_is_logged(monkeypatch):
    config = {"spatial_dims": 3, "in_channels": 2}
    monkeypatch.setattr(_registering, "_inference_config", lambda folder: config)
    with pytest.raises(ValueError, match="takes volumes of one channel, this network 2"):
        _registering._log_models(None, None, "several", "run")


def test_list_promote_export(cells, server, tmp_path, capsys):
    where = ["--tracking_uri", server.uri]
    assert main(["registry", "list", *where]) == 0
    out = capsys.readouterr().out
    assert "wbc (synthetic)" in out
    assert "champion" in out
    assert main(["registry", "promote", "cells", "1", "--alias", "tested", *where]) == 0
    client = mlflow.MlflowClient(server.uri, server.uri)
    tested = client.get_model_version_by_alias("cells", "tested")
    assert tested.version == "1"
    assert f"{float(tested.tags['val_mean_dice']):.4f}" in out
    assert main(["registry", "export", "cells", "1", str(tmp_path / "back" / "model.pt"), *where]) == 0
    weights = torch.load(tmp_path / "back" / "model.pt", weights_only=True)
    torch.testing.assert_close(weights, torch.load(cells / "model.pt", weights_only=True))
    assert main(["registry", "export", "nothing", "1", str(tmp_path / "x.pt"), *where]) == 1
    assert not (tmp_path / "x.pt").exists()


def test_a_folder_without_a_database_is_left_alone(tmp_path, capsys):
    assert main(["registry", "list", "--root", str(tmp_path)]) == 1
    assert "there is no tracked training in" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_network_that_loads_otherwise_is_not_announced(sharp, server, monkeypatch, caplog):
    log = mlflow.pytorch.log_model

    def store_other_weights(network, **arguments):
        state = {name: value.clone() for name, value in network.state_dict().items()}
        with torch.no_grad():
            list(network.parameters())[-1].add_(0.01)
        info = log(network, **arguments)
        network.load_state_dict(state)
        return info

    monkeypatch.setattr(mlflow.pytorch, "log_model", store_other_weights)
    assert_not_announced(sharp, server)
    assert "the logits differ after loading" in caplog.text


def spoil_weights(file):
    weights = torch.load(file, weights_only=True)
    for weight in weights.values():
        weight.mul_(1.1)
    torch.save(weights, file)


def spoil_config(**changes):
    return lambda file: file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


SPOILED = {
    "weights": ("weights", spoil_weights),
    "no resizing": ("config", spoil_config(fitting=[])),
    "another intensity": (
        "config",
        spoil_config(intensity={"_target_": "AdjustContrastd", "keys": "image", "gamma": 2.0}),
    ),
    "other label values": ("config", spoil_config(label_values=[0, 1, 2])),
}


@pytest.fixture(params=SPOILED)
def spoiled(request, monkeypatch, tmp_path):
    """Store another file than the right one with the predictor."""
    log = mlflow.pyfunc.log_model
    key, spoil = SPOILED[request.param]

    def store_spoiled(artifacts, **arguments):
        file = Path(shutil.copy(artifacts[key], tmp_path))
        spoil(file)
        return log(artifacts={**artifacts, key: str(file)}, **arguments)

    monkeypatch.setattr(mlflow.pyfunc, "log_model", store_spoiled)


def test_a_predictor_that_loads_otherwise_is_refused(spoiled, sharp, server):
    config = _inference_config(RunFolder(sharp))
    sentence = "of its labels differ from the bundle's"
    with server_in_use(server.uri), mlflow.start_run(), pytest.raises(RuntimeError, match=sentence):
        _log_predictor(RunFolder(sharp), config, set())


@pytest.mark.parametrize("spoiled", ["weights"], indirect=True)
def test_a_predictor_that_is_refused_is_not_announced(spoiled, sharp, server, caplog):
    assert_not_announced(sharp, server)
    assert "of its labels differ from the bundle's" in caplog.text


def assert_not_announced(output, server):
    """Try to register a training again, and see that the registry stays as it was."""
    client = mlflow.MlflowClient(server.uri, server.uri)

    def state():
        models = [client.get_registered_model(name) for name in ("sharp", "sharp-predict")]
        return [(m.aliases, len(client.search_model_versions(f"name='{m.name}'"))) for m in models]

    before = state()
    assert not register(str(output), "sharp")
    assert state() == before


# serving


@pytest.fixture(scope="module")
def service(sharp, server, tmp_path_factory):
    port = free_port()
    assert "MLFLOW_REGISTRY_URI" not in os.environ
    environment = {"MLFLOW_TRACKING_URI": server.uri, "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false"}
    arguments = ["models", "serve", "-m", "models:/sharp-predict/1", "-p", str(port), "--env-manager", "local"]
    log = tmp_path_factory.mktemp("service") / "log"
    process = Program("mlflow", *arguments, env=environment, stdout=log, outlives_test=True)
    wait_for(lambda: answers(f"http://127.0.0.1:{port}/ping"), 120)
    yield f"http://127.0.0.1:{port}/invocations"
    os.killpg(process.pid, signal.SIGTERM)
    process.wait()


def post(url, content):
    request = urllib.request.Request(url, json.dumps(content).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_serving_takes_arrays_and_files(service, predictor, cell):
    pixels = np.asarray(cell)
    expected = predictor.predict(pixels)
    text = in_base64(cell)
    split = {"dataframe_split": {"columns": ["image"], "data": [[text], [text]]}}
    for content in ({"inputs": pixels.tolist()}, {"inputs": pixels.astype(float).tolist()}):
        status, answer = post(service, content)
        assert status == 200
        np.testing.assert_array_equal(np.array(answer["predictions"], np.uint8), expected)
    status, answer = post(service, {**split, "params": {"format": "array"}})
    assert [np.array_equal(row["label"], expected) for row in answer["predictions"]] == [True, True]
    status, answer = post(service, {**split, "params": {"format": "file"}})
    assert [np.array_equal(decoded(row["label"]), expected) for row in answer["predictions"]] == [True, True]
    status, answer = post(service, {"inputs": pixels.tolist(), "params": {"format": "file"}})
    np.testing.assert_array_equal(decoded(answer["predictions"][0]["label"]), expected)
    status, answer = post(service, {**split, "params": {"probabilities": True}})
    np.testing.assert_allclose(np.sum(answer["predictions"][1]["probabilities"], 0), 1, atol=1e-5)


def test_sixteen_clients_at_once_and_a_large_image(service, predictor, cell):
    images = [cell.resize((60 + 9 * number, 400)) for number in range(15)] + [cell.resize((2000, 2000))]

    def ask(image):
        return post(service, {"dataframe_records": [{"image": in_base64(image)}], "params": {"format": "file"}})

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(ask, images))
    assert [status for status, _ in found] == [200] * 16
    for image, (_, answer) in zip(images, found, strict=True):
        expected = predictor.predict(np.asarray(image))
        np.testing.assert_array_equal(decoded(answer["predictions"][0]["label"]), expected)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "TIFF", "BMP"])
def test_a_file_is_read_as_the_bundle_reads_it(form, predictor, cell):
    image = Image.open(io.BytesIO(base64.b64decode(in_base64(cell, form)))).convert("RGB")
    found = predictor.predict(table(in_base64(cell, form), in_base64(cell.convert("L"))))["label"]
    np.testing.assert_array_equal(found[0], predictor.predict(np.asarray(image)))
    assert found[1].shape == found[0].shape


def test_a_model_says_its_parameters_and_its_limit(predictor):
    params = {param.name: param.default for param in predictor.metadata.signature.params}
    assert params == {"probabilities": False, "format": "array"}
    assert predictor.model_config["max_values"] == 64_000_000
    assert "'image'" in predictor.metadata.metadata["input"]


def bomb(side):
    """Return the PNG of a large black image, whose header says another size."""
    data = bytearray(base64.b64decode(in_base64(Image.new("1", (64, 64)))))
    data[16:24] = side.to_bytes(4, "big") * 2
    data[29:33] = zlib.crc32(data[12:29]).to_bytes(4, "big")
    return base64.b64encode(data).decode()


def test_what_cannot_be_segmented_gets_status_400_and_one_sentence(predictor, cell):
    text = in_base64(cell)
    gray = Image.fromarray(np.full((8, 8), 40000, np.uint16))
    pixels = np.asarray(cell).astype(float)
    pixels[0, 0] = np.nan, np.inf, 0
    cases = [
        (np.broadcast_to(np.uint8(0), (8000, 8000, 3)), {}, "has 192000000 values .8000 x 8000 x 3., but at most"),
        (table(bomb(5000)), {}, "has 75000000 values .5000 x 5000 x 3., but at most 64000000"),
        (table(bomb(20000)), {}, "Image 1 is no readable .* file: Image size .* exceeds limit"),
        (table(*[bomb(3000)] * 3), {}, "has 81000000 values"),
        (pixels, {}, "The array has 2 values that are NaN or infinite"),
        (table(text[:-7]), {}, "Image 1 is no base64"),
        (table(text, "?" * 40), {}, "Image 2 is no base64"),
        (table(text[: len(text) // 8 * 4]), {}, "Image 1 is damaged"),
        (table(base64.b64encode(b"no image").decode()), {}, "Image 1 is no readable PNG, JPEG, TIFF, BMP, GIF file"),
        (table(3.0), {}, "Image 1 must be the text of a file in base64, got float"),
        (table(in_base64(gray)), {}, "Image 1 has the mode I;16; save it with 8 bits per channel"),
        (pd.DataFrame({"picture": [text]}), {}, "needs one column 'image'"),
        (table(), {}, "a row per file, got 0 rows"),
        (table(text), {"format": "png"}, "Format must be 'array' or 'file', got 'png'"),
        (table(text), {"format": "file", "probabilities": True}, "Probabilities come as an array only"),
        (np.zeros((8, 8)), {}, "must have the shape .height, width, 3., got .8, 8."),
        (np.array([["a"]]), {}, "must have the shape"),
    ]
    for request, params, sentence in cases:
        with pytest.raises(mlflow.exceptions.MlflowException, match=sentence) as caught:
            predictor.predict(request, params=params)
        assert caught.value.get_http_status_code() == 400
        assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"inputs": np.zeros((8, 8), int).tolist()}, "must have the shape (height, width, 3), got (8, 8)"),
        ({"inputs": np.zeros((8, 8, 4), int).tolist()}, "got (8, 8, 4)"),
        ({"inputs": np.full((8, 8, 3), 0.5).tolist()}, "whole numbers from 0 to 255 (uint8), got float64 from 0.5 to"),
        ({"inputs": np.full((8, 8, 3), 300).tolist()}, "got int64 from 300 to 300"),
        ({"inputs": np.full((8, 8, 3), -1).tolist()}, "got int64 from -1 to -1"),
        ({"inputs": np.full((8, 8, 3), np.nan).tolist()}, "192 values that are NaN or infinite"),
        ({"inputs": np.zeros((0, 8, 3), int).tolist()}, "must have the shape"),
        ({"inputs": [[[1, 2, 3]], [[1, 2]]]}, ""),
        ({"inputs": "cell.png"}, "a file goes into the column 'image'"),
        ({"dataframe_records": [{"image": "c2VsbA=="}]}, "Image 1 is no readable PNG"),
        ({"dataframe_records": [{"image": bomb(5000)}]}, "at most 64000000 are allowed"),
    ],
)
def test_a_wrong_request_gets_a_clear_answer(content, sentence, service):
    status, answer = post(service, content)
    assert status == 400
    assert sentence in answer["message"]
