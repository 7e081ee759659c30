# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The address of a tracking server: which one is used, and that it never has a password in it."""

import json
import os

import mlflow
import pytest
from helpers import BUNDLES, TWO_LEVELS, run
from servers import Gate, files_with, options, runs_of
from tracking.journals import new_journal, replay

from monai_iels.cli import main
from monai_iels.runs import RunError
from monai_iels.tracking import Journal, choose_address, local_database, plain_address


def test_a_project_that_cannot_be_written_to_is_tracked_in_the_output_folder(tmp_path, caplog):
    (tmp_path / "mlflow").write_text("a file where the folder would be")
    assert choose_address(None, tmp_path / "bundle", tmp_path / "out") == local_database(tmp_path / "out")
    assert f"{tmp_path / 'mlflow'} cannot be written to: this run is tracked in" in caplog.text
    assert choose_address("http://h", tmp_path / "bundle", tmp_path / "out") == "http://h"


def test_one_order_of_addresses(tmp_path, monkeypatch):
    journal, places = new_journal(tmp_path / "tracking", "http://own"), (tmp_path / "bundle", tmp_path)
    for variable in ("http://environment", ""):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", variable)
        assert choose_address("http://typed", *places, before="http://before") == "http://typed"
        assert choose_address(None, *places, before="http://before") == (variable or "http://before")
        assert journal.address("http://typed") == "http://typed"
        assert journal.address() == (variable or "http://own")
    assert choose_address(None, *places) == local_database(tmp_path / "mlflow")


def test_an_address_that_is_none_is_told(tmp_path):
    with pytest.raises(RunError) as caught:
        run("Training", **options("wbc", tmp_path / "out", tracking_uri=5000))
    assert str(caught.value) == "--tracking_uri must be an address such as http://HOST:5000, got 5000"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "uri",
    [
        "http://u:p@h:5000/mlflow",
        "http://u:p@ss@h",
        "https://u:p/ss@h:5000",
        "http://u:p?s#s@h",
        "HTTP://u:p@h",
        " http://u:p@h",
        "'http://u:p@h'",
        "http:/u:p@h",
        "u:p@h:5000",
        "http://token@h",
        "postgresql://u:p@h/db",
        "postgresql+psycopg2://u:p%40ss@h/db",
        "postgresql://h/db?user=u&password=p@ss",
        "mssql+pyodbc:///?odbc_connect=PWD%3Dp",
    ],
)
def test_an_address_with_a_password_is_refused(uri):
    sentence = "must not contain a user name and password: set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
    with pytest.raises(ValueError, match=sentence) as caught:
        plain_address(uri)
    assert uri not in str(caught.value)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "http://h:5000",
        "https://h/mlflow?view=1",
        "postgresql://u@h/db",
        "postgresql://h/db?sslmode=require",
        "databricks://profile",
        "sqlite:////home/me@work:1/mlflow.db",
        "file:///home/a:me@work/mlruns",
        "/home/a:me@work/mlruns",
    ],
)
def test_an_address_without_a_password_stays_as_it_is(uri):
    assert plain_address(uri) == uri


SECRET = "http://me:Xy9qTb@Zw8kVn@127.0.0.1:9"


def key_of_the_handler():
    """Return the key of the address that the handler of a training is given."""
    handlers = json.loads((BUNDLES / "wbc" / "configs" / "train.json").read_text())["train"]["handlers"]
    (number,) = [n for n, one in enumerate(handlers) if one["_target_"].endswith(".Tracking")]
    return f"train#handlers#{number}#tracking_uri"


@pytest.mark.parametrize("place", ["environment", "tracking_uri", "handler"])
def test_a_training_refuses_a_password_in_an_address(place, tmp_path, monkeypatch, capfd):
    """Wherever it comes from; it is written nowhere."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", SECRET if place == "environment" else "")
    given = {"environment": {}, "tracking_uri": {"tracking_uri": SECRET}, "handler": {key_of_the_handler(): SECRET}}
    with pytest.raises(RunError, match="set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD") as caught:
        run("Training", **{**options("wbc", tmp_path, epochs=1, tracking_uri=None), **given[place]})
    assert "Xy9qTb" not in str(caught.value) + "".join(capfd.readouterr())
    assert not files_with(tmp_path, "Xy9qTb", "Zw8kVn")


@pytest.mark.parametrize(
    "words", [["registry", "promote", "cells", "1"], ["registry", "register", "cells"], ["tracking", "replay", "."]]
)
def test_a_command_refuses_a_password_in_an_address(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    new_journal(tmp_path / "tracking", "http://127.0.0.1:9")
    assert main([*words, "--tracking_uri", SECRET]) == 1
    told = capsys.readouterr().err
    assert "MLFLOW_TRACKING_PASSWORD" in told
    assert "Xy9qTb" not in told
    assert len(told.splitlines()) == 1


def test_a_password_in_the_environment_is_used_and_written_nowhere(server, tmp_path, monkeypatch, capfd):
    """Not below the output folder, nor in the server's artifacts, database and log."""
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "me")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "Xy9qTb@Z/w8kVn")
    with Gate(server, "me", "Xy9qTb@Z/w8kVn") as gate:
        overrides = options("wbc", tmp_path, epochs=1, tracking_uri=f"http://{gate.host}")
        overrides["network_def"] = TWO_LEVELS
        run("Training", **overrides, register_model="secret", tracking="mlflow", experiment_name="a secret")
        run("Evaluation", **overrides)
        assert replay(str(tmp_path)) == 0
    (found,) = runs_of(server.uri, "a secret")
    assert found.info.status == "FINISHED"
    assert Journal(tmp_path / "tracking").own_address() == f"http://{gate.host}"
    client = mlflow.MlflowClient(server.uri)
    assert "evaluation" in {item.path for item in client.list_artifacts(found.info.run_id)}
    assert client.search_model_versions(f"run_id='{found.info.run_id}'")
    assert not list(tmp_path.glob("config_*.json"))  # MONAI's --tracking would write one
    assert not files_with(tmp_path, "Xy9qTb", "w8kVn")
    assert not files_with(server.folder, "Xy9qTb", "w8kVn")
    assert "Xy9qTb" not in "".join(capfd.readouterr())
    names = [name for name, value in os.environ.items() if "Xy9qTb" in value]
    assert names == ["MLFLOW_TRACKING_PASSWORD"]


def test_a_server_that_wants_a_password_is_told(server, tmp_path, capsys):
    with Gate(server, "me", "Xy9qTb") as gate:
        new_journal(tmp_path / "tracking", f"http://{gate.host}")
        assert replay(str(tmp_path)) == 1
    assert "if it wants a password, MLFLOW_TRACKING_PASSWORD." in capsys.readouterr().err
