# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The registry with a real server: what is registered, what loads, who is the champion, what is refused."""

import shutil
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import mlflow
import pandas as pd
import pytest
import torch
from helpers import history
from monai.bundle import ConfigParser
from registry.models import network_of

from monai_iels.cli import main
from monai_iels.prediction import Predictor
from monai_iels.registry import _registering, beats_champion, register, server_in_use
from monai_iels.registry._registering import _inference_config, _log_predictor
from monai_iels.run_folder import RunFolder
from monai_iels.tracking import Journal


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
    config = {"spatial_dims": 3, "network_def": {"in_channels": 2}}
    monkeypatch.setattr(_registering, "_inference_config", lambda folder: config)
    with pytest.raises(ValueError, match="takes volumes of one channel, this network 2"):
        _registering._log_models(None, None, "several", "run")


def test_a_version_gets_an_alias_and_is_written_back_as_a_checkpoint(cells, server, tmp_path):
    where = ["--tracking_uri", server.uri]
    assert main(["registry", "promote", "cells", "1", "--alias", "tested", *where]) == 0
    client = mlflow.MlflowClient(server.uri, server.uri)
    assert client.get_model_version_by_alias("cells", "tested").version == "1"
    assert main(["registry", "export", "cells", "1", str(tmp_path / "back" / "model.pt"), *where]) == 0
    weights = torch.load(tmp_path / "back" / "model.pt", weights_only=True)
    torch.testing.assert_close(weights, torch.load(cells / "model.pt", weights_only=True))
    assert main(["registry", "export", "nothing", "1", str(tmp_path / "x.pt"), *where]) == 1
    assert not (tmp_path / "x.pt").exists()


def test_a_folder_without_a_database_is_left_alone(tmp_path, capsys):
    assert main(["registry", "promote", "cells", "1", "--root", str(tmp_path)]) == 1
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


SPOILED = {  # keys of the config; none of them: the weights
    "weights": {},
    "no resizing": {"fitting": []},
    "another intensity": {"intensity": {"_target_": "AdjustContrastd", "keys": "image", "gamma": 2.0}},
    "other label values": {"label_values": [7, 8, 9]},
}


@pytest.fixture(params=SPOILED)
def spoiled(request, monkeypatch, tmp_path):
    """Store other weights or another config than the right ones with the predictor."""
    log = mlflow.pyfunc.log_model
    changes = SPOILED[request.param]

    def store_spoiled(artifacts, model_config, **arguments):
        weights = torch.load(artifacts["weights"], weights_only=True)
        factor = 1.0 if changes else 1.1
        torch.save({name: factor * weight for name, weight in weights.items()}, tmp_path / "weights.pt")
        config = {**model_config, "inference": {**model_config["inference"], **changes}}
        return log(artifacts={"weights": str(tmp_path / "weights.pt")}, model_config=config, **arguments)

    monkeypatch.setattr(mlflow.pyfunc, "log_model", store_spoiled)


def test_a_predictor_that_loads_otherwise_is_refused(spoiled, sharp, server):
    folder = RunFolder(sharp)
    config = _inference_config(folder)
    predictor = Predictor(ConfigParser({**config, "device": "cpu"}), folder.load_best_weights())
    sentence = "of its labels differ after loading"
    with server_in_use(server.uri), mlflow.start_run(), pytest.raises(RuntimeError, match=sentence):
        _log_predictor(predictor, config, folder.best_weights)


@pytest.mark.parametrize("spoiled", ["weights"], indirect=True)
def test_a_predictor_that_is_refused_is_not_announced(spoiled, sharp, server, caplog):
    assert_not_announced(sharp, server)
    assert "of its labels differ after loading" in caplog.text


def assert_not_announced(output, server):
    """Try to register a training again, and see that the registry stays as it was."""
    client = mlflow.MlflowClient(server.uri, server.uri)

    def state():
        models = [client.get_registered_model(name) for name in ("sharp", "sharp-predict")]
        return [(m.aliases, len(client.search_model_versions(f"name='{m.name}'"))) for m in models]

    before = state()
    assert not register(str(output), "sharp")
    assert state() == before
