# Copyright the monai_iels contributors
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#     http://www.apache.org/licenses/LICENSE-2.0
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""The registry and serving with a real server: what is registered, what loads, what it predicts."""

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import mlflow
import numpy as np
import pytest
import torch
from monai.bundle import ConfigParser
from servers import answers, free_port, options, wait_for
from test_bundle import configs, history, run

from monai_iels import registry
from monai_iels.handlers.journal import Journal


def network_of(output):
    args = json.loads((output / "inference.json").read_text())
    config = {**ConfigParser.load_config_file(args["config_file"]), **args}
    network = ConfigParser(config).get_parsed_content("network_def")
    network.load_state_dict(torch.load(output / "model.pt", weights_only=True))
    return network.eval()


def test_the_registered_network_is_the_checkpoint(tracked, server, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
    client = mlflow.MlflowClient(server.uri, server.uri)
    version = client.get_model_version_by_alias("cells", "champion")
    assert client.get_model_version_by_alias("cells", "candidate").version == version.version
    assert version.tags["source"] == "wbc"
    assert version.tags["dataset_synthetic"] == "True"
    assert float(version.tags["val_mean_dice"]) == max(row["val_mean_dice"] for row in history(tracked))
    with registry._tracking(server.uri):
        loaded = mlflow.pytorch.load_model("models:/cells@champion")
    network = network_of(tracked)
    for shape in ((1, 3, 32, 32), (3, 3, 64, 48)):
        x = torch.rand(shape)
        with torch.no_grad():
            torch.testing.assert_close(loaded(x), network(x), rtol=0, atol=1e-5)


PREDICT = """
import os, sys
class No:
    def find_spec(self, name, *rest):
        if name.split(".")[0] == "monai_iels": raise ImportError(name)
sys.meta_path.insert(0, No())
os.environ["MLFLOW_ALLOW_PICKLE_DESERIALIZATION"] = "false"
import mlflow, numpy as np
mlflow.set_tracking_uri(sys.argv[1]); mlflow.set_registry_uri(sys.argv[1])
image = np.load(sys.argv[2])
model = mlflow.pyfunc.load_model("models:/cells-predict@champion")
np.savez(sys.argv[3], label=model.predict(image), probabilities=model.predict(image, params={"probabilities": True}))
network = mlflow.pytorch.load_model("models:/cells@champion")
import torch
with torch.no_grad():
    np.save(sys.argv[4], network(torch.linspace(0, 1, 2 * 3 * 48 * 64).reshape(2, 3, 48, 64)).numpy())
"""


@pytest.fixture(scope="module")
def picture(tmp_path_factory):
    file = tmp_path_factory.mktemp("picture") / "image.npy"
    np.save(file, np.random.default_rng(0).integers(0, 255, (45, 70, 3), np.uint8))
    return file


def test_prediction_without_this_package_and_without_pickle(tracked, server, picture, tmp_path):
    out = tmp_path / "out.npz"
    logits = tmp_path / "logits.npy"
    subprocess.run([sys.executable, "-c", PREDICT, server.uri, picture, out, logits], check=True, cwd=tmp_path)
    x = torch.linspace(0, 1, 2 * 3 * 48 * 64).reshape(2, 3, 48, 64)
    with torch.no_grad():
        np.testing.assert_allclose(np.load(logits), network_of(tracked)(x).numpy(), rtol=0, atol=1e-5)
    found = np.load(out)
    label, probabilities = found["label"], found["probabilities"]
    assert label.shape == (45, 70)
    assert label.dtype == np.uint8
    assert set(np.unique(label)) <= {0, 128, 255}
    assert probabilities.shape == (3, 45, 70)
    np.testing.assert_allclose(probabilities.sum(0), 1, atol=1e-5)
    from PIL import Image

    Image.fromarray(np.load(picture)).save(tmp_path / "image.png")
    args = json.loads((tracked / "inference.json").read_text())
    run(args.pop("config_file"), **{**args, "dataset_dir": str(tmp_path / "image.png"), "predictions": str(tmp_path)})
    np.testing.assert_array_equal(label, np.asarray(Image.open(tmp_path / "image_label.png")))


def test_volumes_are_predicted_in_their_own_shape(server, tmp_path):
    overrides = options("hippocampus", tmp_path, epochs=1, tracking_uri=server.uri, register_model="hippo")
    run(configs("hippocampus", "train"), **overrides)
    with registry._tracking(server.uri):
        model = mlflow.pyfunc.load_model("models:/hippo-predict@candidate")
        volume = np.random.default_rng(0).random((21, 37, 29)).astype(np.float32)
        assert model.predict(volume).shape == volume.shape
        network = mlflow.pytorch.load_model("models:/hippo@candidate")
        x = torch.rand(1, 1, 32, 48, 32)
        with torch.no_grad():
            torch.testing.assert_close(network(x), network_of(tmp_path)(x), rtol=0, atol=1e-5)


def test_the_champion_moves_only_for_better_on_the_same_data(tracked, server, tmp_path):
    client = mlflow.MlflowClient(server.uri, server.uri)

    def champion():
        return client.get_model_version_by_alias("cells", "champion").version

    def registered(folder, dice=None, **params):
        """Register the same training again, as if it had another score or other data."""
        shutil.copytree(tracked, tmp_path / folder)
        if dice is not None:
            file = tmp_path / folder / "history.csv"
            rows = history(tracked)
            header, *lines = file.read_text().splitlines()
            at = header.split(",").index("val_mean_dice")
            cells = [line.split(",") for line in lines]
            for row in cells:
                row[at] = str(dice)
            file.write_text("\n".join([header, *(",".join(row) for row in cells)]) + "\n")
            assert rows
        if params:
            Journal(tmp_path / folder / "tracking").append("params", values=params)
        before = len(client.search_model_versions("name='cells'"))
        journal = Journal(tmp_path / folder / "tracking")
        journal.mark(len(journal.entries()), journal.delivered()["run_id"])
        assert registry.register(str(tmp_path / folder), "cells")
        assert len(client.search_model_versions("name='cells'")) == before + 1
        return client.get_model_version_by_alias("cells", "candidate").version

    first = champion()
    registered("worse", dice=0.0)
    assert champion() == first
    registered("other data", dice=0.999, dataset_fingerprint="another")
    assert champion() == first
    better = registered("better", dice=0.998)
    assert champion() == better


def test_list_promote_export(tracked, server, tmp_path, capsys):
    where = ["--tracking_uri", server.uri]
    assert registry.main(["list", *where]) == 0
    out = capsys.readouterr().out
    assert "wbc (synthetic)" in out
    assert "champion" in out
    assert registry.main(["promote", "cells", "1", "--alias", "tested", *where]) == 0
    client = mlflow.MlflowClient(server.uri, server.uri)
    assert client.get_model_version_by_alias("cells", "tested").version == "1"
    assert registry.main(["export", "cells", "1", str(tmp_path / "back" / "model.pt"), *where]) == 0
    weights = torch.load(tmp_path / "back" / "model.pt", weights_only=True)
    torch.testing.assert_close(weights, torch.load(tracked / "model.pt", weights_only=True))
    assert registry.main(["export", "nothing", "1", str(tmp_path / "x.pt"), *where]) == 1
    assert not (tmp_path / "x.pt").exists()


def test_a_folder_without_a_database_is_left_alone(tmp_path, capsys):
    assert registry.main(["list", "--root", str(tmp_path)]) == 1
    assert "expected the database of a training, found none" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_an_image_that_is_too_large_is_refused(tracked, server):
    with registry._tracking(server.uri):
        model = mlflow.pyfunc.load_model("models:/cells-predict/1")
    huge = np.broadcast_to(np.uint8(0), (8000, 8000, 3))
    with pytest.raises(mlflow.exceptions.MlflowException, match="at most 64000000 values, found shape") as caught:
        model.predict(huge)
    assert caught.value.get_http_status_code() == 400


def test_a_network_in_train_mode_cannot_be_logged(tracked):
    network = network_of(tracked)
    network.down_1.train()
    with pytest.raises(ValueError, match="found one in train mode"):
        registry._log_network(network, {})


# serving


@pytest.fixture(scope="module")
def service(tracked, server, tmp_path_factory):
    port = free_port()
    assert "MLFLOW_REGISTRY_URI" not in os.environ
    environment = {**os.environ, "MLFLOW_TRACKING_URI": server.uri, "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false"}
    arguments = ["models", "serve", "-m", "models:/cells-predict/1", "-p", str(port), "--env-manager", "local"]
    log = (tmp_path_factory.mktemp("service") / "log").open("w")
    process = subprocess.Popen(
        [sys.executable, "-m", "mlflow", *arguments], env=environment, stdout=log, stderr=log, start_new_session=True
    )
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


def test_serving_answers_with_the_mask(service, server, picture):
    image = np.load(picture)
    status, answer = post(service, {"inputs": image.tolist()})
    assert status == 200
    with registry._tracking(server.uri):
        local = mlflow.pyfunc.load_model("models:/cells-predict/1").predict(image)
    np.testing.assert_array_equal(np.array(answer["predictions"], np.uint8), local)


@pytest.mark.parametrize(
    ("pixels", "sentence"),
    [
        (np.zeros((8, 8), int), "shape"),
        (np.zeros((8, 8, 4), int), "shape"),
        (np.full((8, 8, 3), 0.5), "uint8"),
        (np.full((8, 8, 3), 300), "uint8"),
        (np.zeros((0, 8, 3), int), "shape"),
        (np.full((8, 8, 3), -1), "uint8"),
    ],
)
def test_a_wrong_request_gets_a_clear_answer(pixels, sentence, service):
    status, answer = post(service, {"inputs": pixels.tolist()})
    assert 400 <= status < 500
    assert sentence in answer["message"]
