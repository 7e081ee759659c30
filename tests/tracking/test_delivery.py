# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The delivery to MLflow: entries are independent, and what a server refuses or cannot take costs only itself."""

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mlflow
import pytest
from helpers import new_database
from mlflow.exceptions import MlflowException
from servers import Gate, runs_of, steps_of
from tracking.journals import new_journal, replay

from monai_iels.tracking import DeliveryThread, Journal, deliver, how_to_look
from monai_iels.tracking._entries import FIELDS
from monai_iels.tracking._mlflow import _Delivery, deliver_pending


def test_the_pages_of_an_experiment_and_of_a_run_are_told(server, tmp_path):
    journal = new_journal(tmp_path, server.uri)
    run_id = deliver(journal)
    experiment = mlflow.MlflowClient(server.uri).get_run(run_id).info.experiment_id
    assert journal.progress().experiment_id == experiment
    page = f"{server.uri}/#/experiments/{experiment}/runs"
    assert how_to_look(server.uri, experiment, run_id).splitlines() == [
        f"  {page}/{run_id}?workflowType=machine_learning (this run)",
        f"  {page}?workflowType=machine_learning (all runs)",
    ]


def test_trainings_may_tell_of_the_same_data_at_the_same_moment(tmp_path):
    uri, journals = new_database(tmp_path), [Journal(tmp_path / str(number)) for number in range(8)]
    for journal in journals:
        journal.begin(tracking_uri=uri, experiment="e", name="n")
        deliver(journal)
        for digest in range(20):  # each is a race of its own
            journal.append("data", name="d", digest=f"{digest:02}", source="s", context="training", cases=3)
    with ThreadPoolExecutor(len(journals)) as pool:
        runs = list(pool.map(lambda journal: deliver_pending(journal, uri, threading.Event()), journals))
    for run_id in runs:
        told = mlflow.MlflowClient(uri).get_run(run_id).inputs.dataset_inputs
        assert sorted(one.dataset.digest for one in told) == [f"{digest:02}" for digest in range(20)]


def test_what_a_server_refuses_for_good_does_not_hold_up_the_rest(tmp_path, caplog):
    journal = Journal(tmp_path / "tracking")
    uri = new_database(tmp_path)
    journal.begin(key="k", tracking_uri=uri, experiment="e", name="n")
    journal.append("params", values={"a": 1})
    journal.append("params", values={"a": 2})  # MLflow never takes another value
    journal.append("metrics", step=1, values={"b": 3.0})
    run_id = deliver(journal)
    assert mlflow.MlflowClient(uri).get_run(run_id).data.metrics == {"b": 3.0}
    assert json.loads((tmp_path / "tracking" / "refused.jsonl").read_text())["values"] == {"a": 2}
    assert "refused params" in caplog.text


def test_a_journal_is_delivered_to_another_server(server, tmp_path, monkeypatch, capsys, caplog):
    """By --tracking_uri, or MLFLOW_TRACKING_URI; what went to the first one and is not kept is told."""
    first, second = (new_database(tmp_path / name) for name in ("first", "second"))
    journal = new_journal(tmp_path / "out" / "tracking", first)
    (tmp_path / "a.txt").write_text("a")
    journal.add_files([tmp_path / "a.txt"])
    journal.append("metrics", step=1, values={"a": 1.0})
    assert replay(str(tmp_path / "out")) == 0
    assert "3 entries delivered" in capsys.readouterr().out
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")  # goes after the option
    assert replay(str(tmp_path / "out"), "--tracking_uri", second) == 0
    (moved,) = runs_of(second, "e")
    assert f"3 entries delivered to run {moved.info.run_id} at {second}." in capsys.readouterr().out
    assert moved.data.metrics == {"a": 1.0}
    assert moved.info.artifact_uri.startswith((tmp_path / "second" / "mlartifacts").as_uri())
    assert f"a.txt went to another server before and is not kept here; run {moved.info.run_id} lacks it." in caplog.text
    caplog.clear()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", first)
    assert replay(str(tmp_path / "out")) == 0
    assert len(runs_of(first, "e")) == 1
    assert "lacks" not in caplog.text  # it has the file


def test_mlflow_can_be_told_of_every_kind_of_entry():
    assert not [kind for kind in FIELDS if not hasattr(_Delivery, f"_send_{kind}")]


def test_a_refused_tag_costs_only_itself(server, tmp_path):
    journal = new_journal(tmp_path, server.uri)
    journal.append("tags", values={"mlflow.parentRunId": "parent", "a=b\n": "illegal", "cohort": "c"})
    journal.append("params", values={"a": 1, "b" * 300: 2})
    journal.append("metrics", step=1, values={"a": 1.0, "b=\n": 2.0})
    data = mlflow.MlflowClient(server.uri).get_run(deliver(journal)).data
    assert data.tags.items() >= {"mlflow.parentRunId": "parent", "cohort": "c"}.items()
    assert (data.params, data.metrics) == ({"a": "1"}, {"a": 1.0})
    refused = [json.loads(line)["values"] for line in (tmp_path / "refused.jsonl").read_text().splitlines()]
    assert refused == [{"a=b\n": "illegal"}, {"b" * 300: 2}, {"b=\n": 2.0}]


def test_what_a_proxy_does_not_find_while_its_server_is_away_waits(server, tmp_path):
    with Gate(server) as gate:
        journal = new_journal(tmp_path, f"http://{gate.host}")
        deliver(journal)
        gate.missing = "mlflow"
        journal.append("metrics", step=3, values={"a": 1.0})
        with pytest.raises(MlflowException):
            deliver(journal)
        assert journal.pending() == [1]
        assert not (tmp_path / "refused.jsonl").exists()
        gate.missing = "nothing"
        found = mlflow.MlflowClient(server.uri).get_run(deliver(journal))
        assert found.data.metrics == {"a": 1.0}


@pytest.mark.parametrize("name", ["deleted", "x" * 600], ids=["a deleted experiment", "too long a name"])
def test_a_run_that_cannot_be_opened_waits_with_everything(name, server, tmp_path, capsys):
    """Without a run nothing can be sent, so nothing is set aside or counted; it is delivered once the server agrees."""
    client = mlflow.MlflowClient(server.uri)
    journal = new_journal(tmp_path / "tracking", server.uri, name)
    (tmp_path / "a.txt").write_text("a")
    journal.add_files([tmp_path / "a.txt"])
    journal.append("metrics", step=1, values={"a": 1.0})
    if name == "deleted":
        client.delete_experiment(client.create_experiment(name))
    with pytest.raises(MlflowException) as caught:
        deliver(journal)
    assert caught.value.error_code == "INVALID_PARAMETER_VALUE"
    assert journal.pending() == [0, 1, 2]
    assert not journal.progress().run_id
    assert not (tmp_path / "tracking" / "refused.jsonl").exists()
    assert replay(str(tmp_path)) == 1
    assert "3 entries could not be delivered" in capsys.readouterr().err
    if name == "deleted":
        client.restore_experiment(client.get_experiment_by_name(name).experiment_id)
        run_id = deliver(journal)
        assert client.get_run(run_id).data.metrics == {"a": 1.0}
        assert [item.path for item in client.list_artifacts(run_id)] == ["a.txt"]
        assert journal.pending() == []


def environment():
    """Return the environment without the number of a session that MLflow itself sets and removes."""
    return {name: value for name, value in os.environ.items() if "TELEMETRY" not in name}


def test_the_delivery_does_not_touch_the_environment(server, tmp_path, monkeypatch):
    """Whoever starts it sets what MLflow reads there, and undoes it in the end; what the user has set stays."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "77")
    before = environment()
    with Gate(server, delay=0.05) as gate:
        delivery = DeliveryThread(new_journal(tmp_path, f"http://{gate.host}"))
        delivery.start()
        during = environment()
        for step in range(10):
            delivery.journal.append("metrics", step=step, values={"a": 1.0})
            delivery.notify()
            assert environment() == during
        assert delivery.finish()
    assert environment() == before
    assert during == {**before, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    assert steps_of(server.uri, delivery.journal.progress().run_id, "a") == list(range(10))


def test_a_broken_store_for_files_hides_no_numbers(server, tmp_path):
    journal = new_journal(tmp_path / "tracking", server.uri)
    for name, content in (("a.txt", "old"), ("b.txt", "b"), ("a.txt", "new")):
        (tmp_path / name).write_text(content)
        journal.add_files([tmp_path / name], "files")
    journal.append("metrics", step=1, values={"a": 1.0})
    journal.append("status", status="FINISHED")
    store = server.folder / "artifacts"
    aside = store.rename(server.folder / "aside") if store.exists() else None
    store.write_text("a file where a folder should be")
    try:
        with pytest.raises(RuntimeError, match=r"2 files could not be stored, b.txt because of"):
            deliver(journal)
    finally:
        store.unlink()
        if aside:
            aside.rename(store)
    client = mlflow.MlflowClient(server.uri)
    run_id = journal.progress().run_id
    found = client.get_run(run_id)
    assert (found.info.status, found.data.metrics) == ("FINISHED", {"a": 1.0})
    journal.append("metrics", step=2, values={"a": 2.0})
    assert deliver(journal) == run_id
    assert [item.path for item in client.list_artifacts(run_id, "files")] == ["files/a.txt", "files/b.txt"]
    assert Path(client.download_artifacts(run_id, "files/a.txt", str(tmp_path))).read_text() == "new"
    assert (journal.pending(), list((tmp_path / "tracking" / "files").iterdir())) == ([], [])


def test_a_slow_server_is_waited_for_while_it_takes_something(server, tmp_path):
    with Gate(server, delay=0.15) as gate:
        journal = new_journal(tmp_path, f"http://{gate.host}")
        for step in range(30):
            journal.append("metrics", step=step, values={"a": 1.0})
        delivery = DeliveryThread(journal)
        delivery.start()
        began = time.monotonic()
        assert delivery.finish(patience=2.5)
        assert time.monotonic() - began > 4.5
    assert steps_of(server.uri, delivery.journal.progress().run_id, "a") == list(range(30))
    journal.append("metrics", step=30, values={"a": 1.0})
    delivery = DeliveryThread(journal)
    delivery.start()
    assert not delivery.finish(patience=1.0)  # nobody answers
