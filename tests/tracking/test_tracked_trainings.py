# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Tracking with real servers and real processes: what a training records, and what survives."""

import getpass
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import mlflow
import pytest
from helpers import BUNDLES, FEATURES, TWO_LEVELS, history, prepare, run
from servers import Server, free_port, options, runs_of, start_process, steps_of, wait_for
from tracking.journals import history_length, replay

from monai_iels.runs import RunError
from monai_iels.tracking import Journal, deliver, local_database


def test_a_training_is_tracked_end_to_end(tracked, server):
    (found,) = runs_of(server.uri, "end to end")
    data = found.data
    assert found.info.status == "FINISHED"
    assert found.info.run_name.startswith("wbc-synthetic-")
    for key, value in {
        "epochs": "2",
        "iel_gain": "15",
        "seed": "0",
        "network": "BasicUNet",
        "dataset_synthetic": "True",
        "features": str(FEATURES),
    }.items():
        assert data.params[key] == value
    assert data.params["gain"] == "15"
    assert "CorruptLabel" in data.params["label_error"]
    assert int(data.params["layer_steps"]) > 0
    assert "HeatDiffusion" in data.params["evolution"]
    assert len(data.params["dataset_fingerprint"]) == 64
    assert {"bundle", "bundle_version", "version.monai", "version.torch", "git_revision"} <= set(data.tags)
    assert data.tags["mlflow.user"] == getpass.getuser()
    assert data.tags["mlflow.source.name"] == str(BUNDLES / "wbc")
    assert data.tags["mlflow.source.git.commit"] == data.tags["git_revision"]
    note = data.tags["mlflow.note.content"]
    cases = "(synthetic images; cases: 9 for training, 1 for validation)"
    assert f"trained on **wbc** {cases}. Error in each training label: " in note
    assert ". Layer: HeatDiffusion(" in note
    assert f"Predict: `python -m monai.bundle run --args_file {tracked / 'inference.json'} --dataset_dir" in note
    for name in ("loss", "learning_rate", "seconds", "val_mean_dice", "val_roughness", "system/memory_mb"):
        assert steps_of(server.uri, found.info.run_id, name) == [1, 2]
    rows = history(tracked)
    values = [m.value for m in mlflow.MlflowClient(server.uri).get_metric_history(found.info.run_id, "val_mean_dice")]
    assert values == pytest.approx([row["val_mean_dice"] for row in rows])
    assert data.metrics["best_val_mean_dice"] == max(values)
    assert data.metrics["last_val_mean_dice"] == values[-1]
    names = {item.path for item in mlflow.MlflowClient(server.uri).list_artifacts(found.info.run_id)}
    assert {"config.json", "history.csv", "curves.png", "training.log", "last.png"} <= names
    inside = {item.path for item in mlflow.MlflowClient(server.uri).list_artifacts(found.info.run_id, "evaluation")}
    files = ("cases.csv", "classes.csv", "summary.csv", "contact_sheet.png")
    assert inside == {f"evaluation/{file}" for file in files}


def test_a_training_names_all_pictures_that_it_has_made(tracked):
    (line,) = [line for line in (tracked / "training.log").read_text().splitlines() if line.startswith("Pictures: ")]
    files = [Path(word) for word in line.removeprefix("Pictures: ").split(", ")]
    assert [file.name for file in files] == ["curves.png", "last.png"]
    assert all(file.exists() for file in files)


def test_a_run_is_shown_with_its_data(tracked, server):
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
        (journal.folder / "delivered").unlink()


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
            tmp_path / "out",
            epochs=epochs,
            tracking_uri=server.uri,
            experiment_name="killed",
            **{"datalists#count": 20},
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
    unstable = {"layer#evolution#spacing": 0.05, "layer#gain": "null", "layer#dt": 0.1, "layer#steps": 40}
    overrides = {"experiment_name": "nan", **unstable, "pictures": True}
    assert start_process(tmp_path / "out", tracking_uri=server.uri, **overrides).wait() == 1
    (found,) = runs_of(server.uri, "nan")
    assert found.info.status == "FAILED"
    assert found.data.tags["stopped"].startswith("The loss became NaN or infinite in epoch 1. ")
    assert "set iel_gain to 15" in found.data.tags["stopped"]
    names = {item.path for item in mlflow.MlflowClient(server.uri).list_artifacts(found.info.run_id)}
    assert {"config.json", "training.log"} <= names
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
