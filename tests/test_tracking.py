# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Tracking with real servers and real processes: what is recorded, and what survives."""

import getpass
import json
import os
import shutil
import signal
import subprocess
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import mlflow
import pytest
from helpers import BUNDLES, FEATURES, TWO_LEVELS, history, new_database, prepare, run
from mlflow.exceptions import MlflowException
from servers import Gate, Server, files_with, free_port, options, runs_of, start_process, steps_of, wait_for

from monai_iels.cli import main, make_parser
from monai_iels.handlers import Tracking, TrainingStopped
from monai_iels.runs import RunError
from monai_iels.tracking import (
    DeliveryThread,
    Journal,
    RunDescription,
    TrackingError,
    choose_address,
    deliver,
    environment_for,
    how_to_look,
    local_database,
    remember_secrets,
    signed_in,
    without_secrets,
)
from monai_iels.tracking._entries import FIELDS
from monai_iels.tracking._mlflow import _Delivery, deliver_pending


def replay(*arguments):
    options = make_parser().parse_args(["tracking", "replay", *arguments])
    return options.run(options)


def test_a_training_is_tracked_end_to_end(tracked, server):
    (found,) = runs_of(server.uri, "end to end")
    data = found.data
    assert found.info.status == "FINISHED"
    assert found.info.run_name.startswith("wbc-synthetic-")
    for key, value in {
        "epochs": "2",
        "noise_fraction": "0.2",
        "iel_dt": "0.1",
        "iel_steps": "15",
        "iel_spacing": "2.0",
        "seed": "0",
        "network": "BasicUNet",
        "dataset_synthetic": "True",
        "features": str(FEATURES),
    }.items():
        assert data.params[key] == value
    assert data.params["gain"] == "15.4"
    assert "HeatDiffusion" in data.params["evolution"]
    assert len(data.params["dataset_fingerprint"]) == 64
    assert {"bundle", "bundle_version", "version.monai", "version.torch", "git_revision"} <= set(data.tags)
    assert data.tags["mlflow.user"] == getpass.getuser()
    assert data.tags["mlflow.source.name"] == str(BUNDLES / "wbc")
    assert data.tags["mlflow.source.git.commit"] == data.tags["git_revision"]
    note = data.tags["mlflow.note.content"]
    cases = "(synthetic images; cases: 9 for training, 1 for validation)"
    assert f"trained on **wbc** {cases}. 20% of each training label is noise. Layer: HeatDiffusion(" in note
    assert f"Predict: `python -m monai.bundle run --args_file {tracked / 'inference.json'} --dataset_dir" in note
    for name in ("loss", "learning_rate", "seconds", "val_mean_dice", "val_roughness", "system/memory_mb"):
        assert steps_of(server.uri, found.info.run_id, name) == [1, 2]
    rows = history(tracked)
    values = [m.value for m in mlflow.MlflowClient(server.uri).get_metric_history(found.info.run_id, "val_mean_dice")]
    assert values == pytest.approx([row["val_mean_dice"] for row in rows])
    assert data.metrics["best_val_mean_dice"] == max(values)
    assert data.metrics["last_val_mean_dice"] == values[-1]
    names = {item.path for item in mlflow.MlflowClient(server.uri).list_artifacts(found.info.run_id)}
    assert {"config.json", "history.csv", "curves.png", "training.log", "start.png", "best.png", "last.png"} <= names
    inside = {item.path for item in mlflow.MlflowClient(server.uri).list_artifacts(found.info.run_id, "evaluation")}
    files = ("cases.csv", "classes.csv", "summary.csv", "contact_sheet.png")
    assert inside == {f"evaluation/{file}" for file in files}


def test_a_training_names_all_pictures_that_it_has_made(tracked):
    (line,) = [line for line in (tracked / "training.log").read_text().splitlines() if line.startswith("Pictures: ")]
    files = [Path(word) for word in line.removeprefix("Pictures: ").split(", ")]
    assert [file.name for file in files] == ["curves.png", "last.png", "best.png"]
    assert all(file.exists() for file in files)


def test_a_run_is_shown_with_its_data_and_its_model(tracked, server):
    """With MLflow's own entities; delivering everything once more changes nothing."""
    client = mlflow.MlflowClient(server.uri)
    (journal,) = (Journal(tracked / "tracking"),)
    for _ in range(2):
        run_id = deliver(journal)
        found = client.get_run(run_id)
        data = {used.tags[0].value: used.dataset for used in found.inputs.dataset_inputs}
        assert sorted(data) == ["training", "validation"]
        assert {used.name for used in data.values()} == {"wbc"}
        assert data["training"].digest != data["validation"].digest
        assert json.loads(data["training"].profile) == {"num_rows": 9}
        models = client.search_logged_models([found.info.experiment_id])
        (model,) = [model for model in models if model.name == "wbc-synthetic"]  # others were registered
        assert len(found.outputs.model_outputs) == len(models)
        assert (model.status, model.tags["weights"]) == ("READY", str(tracked / "model.pt"))
        assert [(metric.key, metric.value) for metric in model.metrics] == [
            ("best_val_mean_dice", found.data.metrics["best_val_mean_dice"])
        ]
        (journal.folder / "delivered").unlink()


def test_an_experiment_opens_as_machine_learning(server, tmp_path):
    """The tags are set where they are missing, and never changed."""
    client = mlflow.MlflowClient(server.uri)
    client.create_experiment("older", tags={"mlflow.note.content": "mine"})
    for name in ("newer", "older"):
        journal = new_journal(tmp_path / name, server.uri, name)
        assert deliver(journal)
        tags = client.get_experiment_by_name(name).tags
        assert tags["mlflow.experimentKind"] == "custom_model_development"
        view = json.loads(tags["mlflow.sharedViewState.results"])
        assert "metrics.`best_val_mean_dice`" in json.loads(view["state"])["selectedColumns"]
    assert tags["mlflow.note.content"] == "mine"
    progress = journal.progress()
    page = f"{server.uri}/#/experiments/{progress.experiment_id}/runs"
    asked = "?workflowType=machine_learning"
    assert how_to_look(server.uri, progress.experiment_id, progress.run_id).splitlines() == [
        f"  {page}/{progress.run_id}{asked} (this run)",
        f"  {page}{asked}&viewStateShareKey=results (all runs)",
    ]


def test_trainings_of_a_project_share_one_database(tmp_path):
    """Two processes at the same moment, which both want to create it; nothing appears in the working folder."""
    project, work = tmp_path / "project", tmp_path / "work"
    work.mkdir()
    shutil.copytree(BUNDLES / "wbc", project / "wbc")
    common = {"bundle_root": str(project / "wbc"), "tracking_uri": None, "epochs": 1}
    processes = [start_process(tmp_path / f"out{seed}", seed=seed, cwd=work, **common) for seed in (1, 2)]
    assert [process.wait() for process in processes] == [0, 0]
    uri = local_database(project / "mlflow")
    found = runs_of(uri, "monai_iels")
    assert sorted(r.data.params["seed"] for r in found) == ["1", "2"]
    assert {r.info.status for r in found} == {"FINISHED"}
    assert found[0].info.artifact_uri.startswith((project / "mlflow" / "mlartifacts").as_uri())
    assert list(work.iterdir()) == []
    assert not (tmp_path / "out1" / "mlflow.db").exists()
    for seed in (1, 2):
        log = (tmp_path / f"out{seed}.log").read_text()
        assert "not delivered" not in log
        assert f"mlflow ui --backend-store-uri {uri}\n" in log
    assert replay(str(tmp_path / "out1")) == 0


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


def test_a_project_that_cannot_be_written_to_is_tracked_in_the_output_folder(tmp_path, caplog):
    (tmp_path / "mlflow").write_text("a file where the folder would be")
    assert choose_address(None, tmp_path / "bundle", tmp_path / "out") == local_database(tmp_path / "out")
    assert f"{tmp_path / 'mlflow'} cannot be written to: this run is tracked in" in caplog.text
    assert choose_address("http://h", tmp_path / "bundle", tmp_path / "out") == "http://h"


def test_the_address_in_the_environment_goes_before_the_database(server, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    here = options("wbc", tmp_path, epochs=1, experiment_name="by environment", tracking_uri=None)
    run("Training", **here)
    assert [r.info.status for r in runs_of(server.uri, "by environment")] == ["FINISHED"]


def test_the_address_that_a_user_types_goes_first(server, tmp_path, monkeypatch):
    """Training, registration, resumed training and evaluation all use it, whatever the environment says."""
    other = local_database(tmp_path / "other")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", other)
    typed = options("wbc", tmp_path / "out", epochs=1, network_def=TWO_LEVELS, tracking_uri=server.uri)
    run("Training", **typed, experiment_name="typed", register_model="typed")
    run("Training", **{**typed, "epochs": 2}, experiment_name="typed", resume=True)
    (found,) = runs_of(server.uri, "typed")
    client = mlflow.MlflowClient(server.uri)
    run("Evaluation", **{**typed, "track": False})
    assert not client.list_artifacts(found.info.run_id, "evaluation")
    run(**json.loads((tmp_path / "out" / "evaluate.json").read_text()))
    assert steps_of(server.uri, found.info.run_id, "loss") == [1, 2]
    assert [file.path for file in client.list_artifacts(found.info.run_id, "evaluation")]
    assert client.get_registered_model("typed").aliases
    assert not (tmp_path / "other").exists()


def test_one_order_of_addresses(tmp_path, monkeypatch):
    journal, places = new_journal(tmp_path / "tracking", "http://own"), (tmp_path / "bundle", tmp_path)
    for variable in ("http://environment", ""):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", variable)
        assert choose_address("http://typed", *places, before="http://before") == "http://typed"
        assert choose_address(None, *places, before="http://before") == (variable or "http://before")
        assert journal.address("http://typed") == "http://typed"
        assert journal.address() == (variable or "http://own")
    assert choose_address(None, *places) == local_database(tmp_path / "mlflow")


def test_monai_s_own_tracking_does_not_double_it(server, tmp_path):
    overrides = options("wbc", tmp_path, epochs=1, tracking_uri=server.uri, experiment_name="once")
    run("Training", **overrides, run_name="mine", tracking="mlflow")
    (found,) = runs_of(server.uri, "once")
    assert found.info.run_name.startswith("mine-synthetic-")
    assert steps_of(server.uri, found.info.run_id, "val_mean_dice") == [1]
    assert not [key for key in found.data.metrics if key.startswith("Loss")]


def test_a_server_that_is_away_and_comes_back(tmp_path):
    """Every epoch is there exactly once, though the server was dead, then did not answer, for most of the run."""
    server, epochs = Server(tmp_path), 40
    try:
        process = start_process(
            tmp_path / "out", epochs=epochs, tracking_uri=server.uri, experiment_name="killed", sample_count=20
        )
        wait_for(lambda: runs_of(server.uri, "killed") and history_length(tmp_path / "out") >= 2, 300)
        for away, back in ((server.stop, server.start), (server.freeze, server.thaw)):
            away()
            later = min(history_length(tmp_path / "out") + 8, epochs - 2)
            wait_for(lambda: history_length(tmp_path / "out") >= later or process.poll() is not None, 300)  # noqa: B023
            back()
            assert replay(str(tmp_path / "out")) == 0  # while the training goes on, and delivers, too
        assert process.wait() == 0
        assert replay(str(tmp_path / "out")) == 0
        (found,) = runs_of(server.uri, "killed")
        assert found.info.status == "FINISHED"
        assert steps_of(server.uri, found.info.run_id, "val_mean_dice") == list(range(1, epochs + 1))
        log = Path(f"{tmp_path / 'out'}.log").read_text()
        assert log.count("Tracking is not delivered for now") == log.count("answers again") > 0
        assert "Traceback" not in log
        names = [item.path for item in mlflow.MlflowClient(server.uri).list_artifacts(found.info.run_id)]
        assert sorted(names) == sorted({*names, "history.csv", "cases.csv", "curves.png"})
        assert not list((tmp_path / "out" / "tracking" / "files").glob("[!.]*"))
        journal = Journal(tmp_path / "out" / "tracking")
        (journal.folder / "delivered").unlink()  # as if it had been killed before it noted anything
        assert deliver(journal) == found.info.run_id
        assert steps_of(server.uri, found.info.run_id, "val_mean_dice") == list(range(1, epochs + 1))
        assert len(runs_of(server.uri, "killed")) == 1
    finally:
        if server.process.poll() is None:
            server.stop()


def history_length(output):
    return len(history(output)) if (output / "history.csv").exists() else 0


def test_no_server_at_all(tmp_path, capsys):
    uri = f"http://127.0.0.1:{free_port()}"
    run("Training", **options("wbc", tmp_path, tracking_uri=uri, register_model="nothing"))
    assert len(history(tmp_path)) == 2
    assert replay(str(tmp_path)) == 1
    assert "entries could not be delivered to" in capsys.readouterr().err
    with pytest.raises(ValueError, match="there is no tracked training in"):
        replay(str(tmp_path / "pictures"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("covered", [True, False])
def test_a_signal_counts_where_other_code_hides_it(number, covered, tmp_path):
    overrides = options("wbc", tmp_path)
    workflow = prepare("Training", **overrides)
    trainer = workflow.parser.get_parsed_content("train#trainer")
    loss_function = trainer.loss_function

    def loss(*arguments):
        try:
            signal.raise_signal(number)
        except BaseException as error:
            if covered:
                raise RuntimeError("unexpected position") from error
        return loss_function(*arguments)

    trainer.loss_function = loss
    before = signal.getsignal(number)
    with pytest.raises(SystemExit):
        workflow.run()
    assert signal.getsignal(number) is before
    assert Journal(tmp_path / "tracking").status() == "KILLED"
    assert trainer.state.iteration == 1


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, "KILLED"), (signal.SIGINT, "KILLED")])
def test_a_signal_is_told_and_the_next_run_does_not_join(number, status, server, tmp_path):
    name = f"signal-{int(number)}"
    process = start_process(tmp_path / "out", epochs=200, tracking_uri=server.uri, experiment_name=name)
    wait_for(lambda: history_length(tmp_path / "out") >= 2, 300)
    process.send_signal(number)
    assert process.wait() != 0
    (first,) = runs_of(server.uri, name)
    assert first.info.status == status
    run("Training", **options("wbc", tmp_path / "next", tracking_uri=server.uri, experiment_name=name))
    assert sorted(r.info.status for r in runs_of(server.uri, name)) == ["FINISHED", status]
    resumed = options("wbc", tmp_path / "out", tracking_uri=server.uri, experiment_name=name, resume=True)
    count = history_length(tmp_path / "out") + 1
    run("Training", **{**resumed, "epochs": count})
    again = mlflow.MlflowClient(server.uri).get_run(first.info.run_id)
    assert again.info.status == "FINISHED"
    assert again.data.tags["stopped"] == ""
    assert {tag: text for tag, text in again.data.tags.items() if "resumed" in tag} == {"resumed.epochs": str(count)}
    with pytest.raises(RunError, match="features was"):
        run("Training", **{**resumed, "features": [4] * 6})
    assert mlflow.MlflowClient(server.uri).get_run(first.info.run_id).info.status == "FINISHED"
    workflow = prepare("Training", **{**resumed, "epochs": count + 1})
    workflow.parser.get_parsed_content("train#trainer").loss_function = explode
    with pytest.raises(RuntimeError):
        workflow.run()
    assert mlflow.MlflowClient(server.uri).get_run(first.info.run_id).info.status == "FAILED"
    assert steps_of(server.uri, first.info.run_id, "loss") == list(range(1, count + 1))


def explode(prediction, label):
    raise RuntimeError("out of memory")


def test_an_exception_is_told(server, tmp_path):
    workflow = prepare("Training", **options("wbc", tmp_path, tracking_uri=server.uri, experiment_name="exception"))
    workflow.parser.get_parsed_content("train#trainer").loss_function = explode
    with pytest.raises(RuntimeError, match=r"^out of memory$"):
        workflow.run()
    (found,) = runs_of(server.uri, "exception")
    assert found.info.status == "FAILED"
    assert found.data.tags["stopped"] == "RuntimeError: out of memory"


def test_nan_is_told(server, tmp_path):
    overrides = {"experiment_name": "nan", "iel_spacing": 0.05, "iel_steps": 40, "pictures": True}
    assert start_process(tmp_path / "out", tracking_uri=server.uri, **overrides).wait() == 1
    (found,) = runs_of(server.uri, "nan")
    assert found.info.status == "FAILED"
    assert found.data.tags["stopped"].startswith("The loss became NaN or infinite in epoch 1. ")
    assert "set iel_gain to 15" in found.data.tags["stopped"]
    names = {item.path for item in mlflow.MlflowClient(server.uri).list_artifacts(found.info.run_id)}
    assert {"config.json", "training.log", "start.png", "last.png"} <= names
    assert "set iel_gain to 15" in (tmp_path / "out" / "training.log").read_text()
    assert not (tmp_path / "out" / "last.pt").exists()


def test_two_trainings_at_once_stay_apart(server, tmp_path):
    common = {"tracking_uri": server.uri, "experiment_name": "together", "epochs": 3}
    processes = [start_process(tmp_path / f"out{seed}", seed=seed, **common) for seed in (1, 2)]
    assert [process.wait() for process in processes] == [0, 0]
    found = runs_of(server.uri, "together")
    assert sorted(r.data.params["seed"] for r in found) == ["1", "2"]
    for one in found:
        assert one.info.status == "FINISHED"
        assert steps_of(server.uri, one.info.run_id, "loss") == [1, 2, 3]


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


def test_a_torn_last_line_of_a_journal_is_no_entry(tmp_path):
    journal = Journal(tmp_path)
    journal.begin(key="k", tracking_uri="", experiment="e", name="n")
    journal.append("metrics", step=1, values={"a": 1.0})
    with journal.file.open("a") as stream:
        stream.write('{"kind": "metr')
    assert [entry.kind for entry in journal.entries()] == ["open", "metrics"]
    journal.append("resumed")
    assert [entry.kind for entry in journal.entries()] == ["open", "metrics", "resumed"]


def new_journal(folder, uri, experiment="e"):
    journal = Journal(folder)
    journal.begin(key=uuid.uuid4().hex, tracking_uri=uri, experiment=experiment, name="n")
    return journal


def test_a_run_ends_and_goes_on(tmp_path):
    journal = new_journal(tmp_path, "http://127.0.0.1:9")
    assert not journal.begin(tracking_uri="", experiment="another", name="another")
    assert [entry.kind for entry in journal.entries()] == ["open"]
    assert journal.status() is None
    journal.append("status", status="KILLED")
    assert journal.status() == "KILLED"
    assert journal.status(since=time.time() + 60) is None
    journal.append("resumed")
    assert journal.status() is None
    journal.append("status", status="FINISHED")
    assert journal.status() == "FINISHED"


def test_a_resumed_run_records_what_is_new(tmp_path):
    """Metrics that were recorded before are not recorded again, and only settings that changed become tags."""
    uri = new_database(tmp_path)
    report, engine = SimpleNamespace(metrics={}), SimpleNamespace(state=SimpleNamespace(epoch=0))

    def track(settings, resume):
        about, engine.state.epoch = RunDescription(settings, {"seed": "a tag"}), 0
        tracking = Tracking(str(tmp_path), report, uri, experiment_name="e", description=about, resume=resume)
        tracking.open(engine)
        return tracking

    for resume, epochs in ((False, 2), (True, 3), (True, 2)):
        tracking = track({"epochs": epochs, "seed": 0}, resume)
        for epoch in range(1, epochs + 1):
            engine.state.epoch, report.metrics = epoch, {"a": epoch}
            tracking.record(engine)
        if resume:
            tracking.close(engine)
        else:
            with pytest.raises(TrainingStopped):
                tracking.fail(engine, TrainingStopped("why"))
        tracking.close(engine)  # it has ended already
    entries = tracking.journal.entries()
    assert [entry.step for entry in entries if entry.kind == "metrics"] == [1, 2, 3]
    tags = [entry.values for entry in entries if entry.kind == "tags"]
    assert tags[0] == {"seed": "a tag"}
    assert tags[1] == {"stopped": "why"}
    assert tags[2:] == [{"stopped": "", "resumed.epochs": "3"}, {"stopped": "", "resumed.epochs": "2"}]
    assert tracking.journal.tags_and_parameters() == {"epochs": "2", "seed": "0", "stopped": ""}
    (found,) = runs_of(uri, "e")
    assert found.info.status == "FINISHED"
    assert found.data.tags["resumed.epochs"] == "2"
    track({}, resume=False).close(engine)
    assert len(list(tmp_path.glob("tracking-*"))) == 1  # the earlier journal stays


# secrets


@pytest.mark.parametrize(
    ("uri", "address"),
    [
        ("http://h:5000", "http://h:5000"),
        ("http://u:p@h:5000/mlflow", "http://h:5000/mlflow"),
        ("http://u:p@ss@h", "http://h"),
        ("https://u:p/ss@h:5000", "https://h:5000"),
        ("http://u:p?s#s@h", "http://h"),
        ("HTTP://u:p@h", "HTTP://h"),
        (" http://u:p@h", " http://h"),
        ("'http://u:p@h'", "'http://h'"),
        ("http:/u:p@h", "http:/h"),
        ("u:p@h:5000", "u:h:5000"),
        ("http://token@h", "http://h"),
        ("postgresql://u@h/db", "postgresql://u@h/db"),
        ("postgresql+psycopg2://u:p@h/db", "postgresql+psycopg2://h/db"),
        ("postgresql://h/db?sslmode=require", "postgresql://h/db?sslmode=require"),
        ("postgresql://h/db?user=u&password=p@ss", "postgresql://h/db?user=u"),
        ("mssql+pyodbc:///?odbc_connect=PWD%3Dp", "mssql+pyodbc:///"),
        ("sqlite:////home/me@work:1/mlflow.db", "sqlite:////home/me@work:1/mlflow.db"),
        ("/home/a:me@work/mlruns", "/home/a:me@work/mlruns"),
    ],
)
def test_an_address_without_its_secrets(uri, address):
    assert without_secrets(uri) == address


def test_a_database_s_password_stays_in_memory(monkeypatch):
    address = remember_secrets("postgresql://me:Xy9qTb%40Zw8kVn@host/db")
    assert address == "postgresql://host/db"

    def connect():
        with signed_in(address) as uri:
            raise ValueError(f"no {uri} with Xy9qTb@Zw8kVn")

    with pytest.raises(TrackingError, match=r"^no postgresql://host/db with \*\*\*$") as caught:
        connect()
    assert caught.value.__suppress_context__
    assert environment_for(address) == {"MLFLOW_TRACKING_URI": "postgresql://me:Xy9qTb%40Zw8kVn@host/db"}
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:Xy9qTb@other")
    assert environment_for("http://other") == {
        "MLFLOW_TRACKING_URI": "http://me:Xy9qTb@other",
    }
    assert environment_for("http://another") == {"MLFLOW_TRACKING_URI": "http://another"}  # not told to strangers


@pytest.mark.parametrize("password", ["Xy9qTb@Zw8kVn", "Xy9qTb/Zw8kVn", "Xy9qTb%2FZw8kVn"])
def test_a_password_is_used_and_written_nowhere(password, server, tmp_path, capfd):
    """Not below the output folder, nor in the server's artifacts, database and log."""
    name = f"a secret with {password[6]}"
    with Gate(server, "me", password.replace("%2F", "/")) as gate:
        overrides = options("wbc", tmp_path, epochs=1, tracking_uri=f"http://me:{password}@{gate.host}")
        overrides["network_def"] = TWO_LEVELS
        extra = {"register_model": "secret", "tracking": "mlflow"} if "@" in password else {}
        run("Training", **overrides, **extra, experiment_name=name)
        run("Evaluation", **overrides)
    (found,) = runs_of(server.uri, name)
    assert found.info.status == "FINISHED"
    assert Journal(tmp_path / "tracking").own_address() == f"http://{gate.host}"
    client = mlflow.MlflowClient(server.uri)
    assert "evaluation" in {item.path for item in client.list_artifacts(found.info.run_id)}
    assert bool(client.search_model_versions(f"run_id='{found.info.run_id}'")) == bool(extra)
    assert json.loads((tmp_path / "evaluate.json").read_text())["tracking_uri"] == f"http://{gate.host}"
    assert not list(tmp_path.glob("config_*.json"))  # MONAI's --tracking would write one
    assert not files_with(tmp_path, "Xy9qTb", "Zw8kVn")
    assert not files_with(server.folder, "Xy9qTb", "Zw8kVn")
    assert "Xy9qTb" not in "".join(capfd.readouterr())
    assert not [name for name, value in os.environ.items() if name.startswith("MLFLOW") and "Xy9qTb" in value]


def test_an_address_that_is_none_is_told(tmp_path):
    with pytest.raises(RunError) as caught:
        run("Training", **options("wbc", tmp_path / "out", tracking_uri=5000))
    assert str(caught.value) == "--tracking_uri must be an address such as http://HOST:5000, got 5000"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("place", ["environment", "tracking_uri", "train#handlers#5#tracking_uri"])
def test_a_password_is_not_written_where_the_server_is_away(place, tmp_path, monkeypatch, capfd):
    uri = f"http://me:Xy9qTb@Zw8kVn@127.0.0.1:{free_port()}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri if place == "environment" else "")
    overrides = options("wbc", tmp_path, epochs=1, tracking_uri=None)
    run("Training", **overrides | ({} if place == "environment" else {place: uri}))
    assert "Xy9qTb" not in "".join(capfd.readouterr())
    assert "Tracking is not delivered for now" in (tmp_path / "training.log").read_text()
    assert not files_with(tmp_path, "Xy9qTb", "Zw8kVn")
    assert replay(str(tmp_path), "--tracking_uri", uri) == 1
    told = capfd.readouterr().err
    assert "If the server has moved, or wants a password, set --tracking_uri or MLFLOW_TRACKING_URI." in told
    assert "Xy9qTb" not in told
    assert len(told.splitlines()) == 1


def test_a_command_tells_an_error_in_one_line_without_the_password(monkeypatch, capsys):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    assert main(["registry", "list", "--tracking_uri", f"http://me:Xy9qTb@127.0.0.1:{free_port()}"]) == 1
    told = capsys.readouterr().err
    assert "127.0.0.1" in told
    assert "Xy9qTb" not in told
    assert len(told.splitlines()) == 1


# journals from elsewhere


@pytest.mark.parametrize(
    "entry",
    [
        {"file": "../../id_rsa"},
        {"file": "ABSOLUTE"},
        {"file": ".."},
        {"file": "..\\id_rsa"},
        {"file": "link"},
        {"file": "0-a.txt", "name": "../a.txt"},
        {"file": "0-a.txt", "place": "../elsewhere"},
        {"file": "0-a.txt", "place": "/elsewhere"},
    ],
    ids=str,
)
def test_a_journal_leads_to_no_file_outside_its_folder(entry, server, tmp_path):
    """It is neither sent nor deleted, and the rest of the journal is delivered."""
    secret = tmp_path / "id_rsa"
    secret.write_text("private")
    journal = new_journal(tmp_path / "out" / "tracking", server.uri, "from elsewhere")
    (journal.folder / "files" / "link").symlink_to(secret)
    (journal.folder / "files" / "0-a.txt").write_text("mine")
    entry = {"name": "a.txt", "place": "", **entry, "file": entry["file"].replace("ABSOLUTE", str(secret))}
    journal.append("artifact", **entry)
    journal.append("metrics", step=1, values={"a": 1.0})
    assert replay(str(tmp_path)) == 0
    run_id = journal.progress().run_id
    client = mlflow.MlflowClient(server.uri)
    assert client.get_run(run_id).data.metrics == {"a": 1.0}
    assert client.list_artifacts(run_id) == []
    assert secret.read_text() == "private"
    assert (journal.folder / "files" / "0-a.txt").read_text() == "mine"
    refused = json.loads((journal.folder / "refused.jsonl").read_text())
    assert " must be a " in refused.pop("reason")
    assert refused.items() >= entry.items()


@pytest.mark.parametrize("name", ["files", "refused.jsonl", "delivered", ".delivery.lock"])
def test_a_journal_with_links_is_refused(name, tmp_path, capsys):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "id_rsa").write_text("private")
    journal = new_journal(tmp_path / "tracking", "http://127.0.0.1:9")
    (journal.folder / "files").rmdir()
    (journal.folder / name).symlink_to(tmp_path / "precious")
    journal.append("artifact", file="id_rsa", name="id_rsa", place="")
    assert replay(str(tmp_path)) == 1
    assert f"{journal.folder / name} is a link" in capsys.readouterr().err
    assert (tmp_path / "precious" / "id_rsa").read_text() == "private"


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "{}",
        '{"kind": "data", "time": 1, "cases": "9"}',
        '{"kind": "shell", "time": 1}',
        '{"kind": "params", "time": 1}',
    ],
)
def test_a_file_that_is_no_journal_is_told(line, tmp_path, capsys):
    journal = new_journal(tmp_path / "tracking", "http://127.0.0.1:9")
    with journal.file.open("a") as stream:
        stream.write(f"{line}\n")
    assert replay(str(tmp_path)) == 1
    sentence = f"{journal.file}, line 2 must be an entry of a training's journal, got '{line}'\n"
    assert capsys.readouterr().err == sentence


def test_a_full_disk_at_the_start_costs_the_run_s_tracking_alone(tmp_path, capsys):
    """The first entry could not be written, the next ones could."""
    journal = Journal(tmp_path / "tracking")
    journal.folder.mkdir()
    journal.append("metrics", step=1, values={"a": 1.0})
    delivery = DeliveryThread(journal)
    delivery.start()
    assert not delivery.finish(patience=0.5)
    (journal.folder / "delivered").write_text('{"count": "x"}')
    assert replay(str(tmp_path)) == 1
    assert f"{journal.file} must begin with a run, got 'metrics'" in capsys.readouterr().err


def test_a_mark_from_elsewhere_leads_to_no_other_run(server, tmp_path):
    """A run is written to only if it is this journal's; one that is not there any more is made anew."""
    client = mlflow.MlflowClient(server.uri)
    other = client.create_run("0").info.run_id
    journal = new_journal(tmp_path, server.uri)
    journal.append("metrics", step=1, values={"a": 1.0})
    for run_id in (other, "0" * 32):
        journal.save_progress(replace(journal.progress(), arrived={0}, run_id=run_id))
        mine = deliver(journal)
        assert mine not in (other, "0" * 32)
        assert client.get_run(mine).data.metrics == {"a": 1.0}
    assert client.get_run(other).data.metrics == {}


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


# entries are independent


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


def test_an_old_server_gets_everything_but_the_model(server, tmp_path):
    """What it does not know is set aside; what a proxy does not find while its server is away waits."""
    with Gate(server, missing="logged-models") as gate:
        journal = new_journal(tmp_path, f"http://{gate.host}")
        journal.append("model", name="m", weights="model.pt", step=2, values={"best": 0.5})
        journal.append("status", status="FINISHED")
        found = mlflow.MlflowClient(server.uri).get_run(deliver(journal))
        assert (found.info.status, found.data.metrics, found.outputs.model_outputs) == ("FINISHED", {"best": 0.5}, [])
        assert json.loads((tmp_path / "refused.jsonl").read_text())["kind"] == "model"
        gate.missing = "mlflow"
        journal.append("metrics", step=3, values={"a": 1.0})
        with pytest.raises(MlflowException):
            deliver(journal)
        assert journal.pending() == [3]


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
    with Gate(server, "me", "Xy9qTb", delay=0.05) as gate:
        delivery = DeliveryThread(new_journal(tmp_path, remember_secrets(f"http://me:Xy9qTb@{gate.host}")))
        delivery.start()
        during = environment()
        for step in range(10):
            delivery.journal.append("metrics", step=step, values={"a": 1.0})
            delivery.notify()
            assert environment() == during
        assert delivery.finish()
    assert environment() == before
    changed = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true"}
    assert during == {**before, **changed}
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


def test_a_resumed_training_tracks_where_it_is_told(server, tmp_path):
    run("Training", **options("wbc", tmp_path, epochs=1, experiment_name="moved"))
    moved = options("wbc", tmp_path, epochs=2, resume=True, tracking_uri=server.uri, experiment_name="moved")
    run("Training", **moved)
    run("Training", **{**moved, "tracking_uri": None})  # stays where it was
    (found,) = runs_of(server.uri, "moved")
    assert found.info.status == "FINISHED"
    assert steps_of(server.uri, found.info.run_id, "loss") == [1, 2]
    assert Journal(tmp_path / "tracking").address() == server.uri


@pytest.mark.skipif(
    shutil.which("postgres") is None and not list(Path("/usr/lib/postgresql").glob("*/bin/postgres")),
    reason="no PostgreSQL on this machine",
)
def test_on_postgresql(tmp_path):
    """A server on PostgreSQL, started here as an unprivileged user."""
    pytest.importorskip("psycopg2")
    bin_ = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"))), Path(shutil.which("postgres") or "").parent)
    data, port = tmp_path / "pg", free_port()
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:3]:
        parent.chmod(0o755)
    data.mkdir()
    prefix = []
    if os.geteuid() == 0:
        shutil.chown(data, "postgres")
        prefix = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    subprocess.run([*prefix, bin_ / "initdb", "-D", data, "-U", "tracker", "--auth=trust"], check=True, cwd=data)
    database = subprocess.Popen([*prefix, bin_ / "postgres", "-D", data, "-p", str(port), "-k", data], cwd=data)
    try:
        ready = [bin_ / "pg_isready", "-h", "127.0.0.1", "-p", str(port)]
        wait_for(lambda: subprocess.run(ready, check=False).returncode == 0, 30)
        server = Server(tmp_path, f"postgresql+psycopg2://tracker@127.0.0.1:{port}/postgres")
        try:
            run("Training", **options("wbc", tmp_path / "out", tracking_uri=server.uri))
            (found,) = runs_of(server.uri, "monai_iels")
            assert found.info.status == "FINISHED"
            assert steps_of(server.uri, found.info.run_id, "loss") == [1, 2]
        finally:
            server.stop()
    finally:
        database.terminate()
        database.wait()
