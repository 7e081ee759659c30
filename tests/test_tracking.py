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

"""Tracking with real servers and real processes: what is recorded, and what survives."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import mlflow
import pytest
from monai.bundle import create_workflow
from servers import Server, free_port, options, runs_of, start_process, steps_of, wait_for
from test_bundle import FEATURES, configs, history, run

from monai_iels.handlers.__main__ import main as handlers_main
from monai_iels.handlers.journal import Journal, deliver


def test_a_training_is_tracked_end_to_end(tracked, server):
    (found,) = runs_of(server.uri, "end to end")
    data = found.data
    assert found.info.status == "FINISHED"
    assert found.info.run_name.startswith("wbc-synthetic-")
    for key, value in {
        "epochs": "2",
        "noise_fraction": "0.2",
        "iel_dt": "0.1",
        "iel_steps": "20",
        "iel_spacing": "2.0",
        "seed": "0",
        "network": "BasicUNet",
        "dataset_synthetic": "True",
        "features": str(FEATURES),
    }.items():
        assert data.params[key] == value
    assert float(data.params["gain_2d"]) == pytest.approx(38.3, abs=0.1)
    assert "HeatDiffusion" in data.params["evolution"]
    assert len(data.params["dataset_fingerprint"]) == 64
    assert {"bundle", "bundle_version", "version.monai", "version.torch", "git_revision"} <= set(data.tags)
    for name in ("loss", "learning_rate", "seconds", "val_mean_dice", "val_roughness", "system/memory_mb"):
        assert steps_of(server.uri, found.info.run_id, name) == [1, 2]
    rows = history(tracked)
    values = [m.value for m in mlflow.MlflowClient(server.uri).get_metric_history(found.info.run_id, "val_mean_dice")]
    assert values == pytest.approx([row["val_mean_dice"] for row in rows])
    names = {item.path for item in mlflow.MlflowClient(server.uri).list_artifacts(found.info.run_id)}
    assert {"config.json", "history.csv", "curves.png", "training.log", "start.png", "best.png", "last.png"} <= names
    inside = {item.path for item in mlflow.MlflowClient(server.uri).list_artifacts(found.info.run_id, "evaluation")}
    assert inside == {"evaluation/cases.csv", "evaluation/summary.csv", "evaluation/contact_sheet.png"}


def test_the_embedded_default_stays_below_output_dir(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(configs("wbc", "train"), **options("wbc", tmp_path / "out"))
    uri = f"sqlite:///{tmp_path / 'out' / 'mlflow.db'}"
    (found,) = runs_of(uri, "monai_iels")
    assert found.info.status == "FINISHED"
    assert found.info.artifact_uri.startswith((tmp_path / "out" / "mlartifacts").as_uri())
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_tracking_can_be_off(tmp_path):
    run(configs("wbc", "train"), **options("wbc", tmp_path, track=False, epochs=1))
    assert not {"tracking", "mlflow.db"} & {p.name for p in tmp_path.iterdir()}


def test_the_address_in_the_environment_goes_first(server, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    run(configs("wbc", "train"), **options("wbc", tmp_path, epochs=1, experiment_name="by environment"))
    assert [r.info.status for r in runs_of(server.uri, "by environment")] == ["FINISHED"]


def test_monai_s_own_tracking_does_not_double_it(server, tmp_path):
    overrides = options("wbc", tmp_path, epochs=1, tracking_uri=server.uri, experiment_name="once")
    run(configs("wbc", "train"), **overrides, tracking="mlflow")
    (found,) = runs_of(server.uri, "once")
    assert steps_of(server.uri, found.info.run_id, "val_mean_dice") == [1]
    assert not [key for key in found.data.metrics if key.startswith("Loss")]


@pytest.mark.parametrize(("away", "back"), [("stop", "start"), ("freeze", "thaw")])
def test_a_server_that_is_away_and_comes_back(away, back, tmp_path):
    """Every epoch is there exactly once, though the server was dead, or did not answer, for most of the run."""
    server = Server(tmp_path)
    try:
        process = start_process(
            tmp_path / "out", epochs=20, tracking_uri=server.uri, experiment_name="killed", sample_count=20
        )
        wait_for(lambda: runs_of(server.uri, "killed") and history_length(tmp_path / "out") >= 2, 90)
        getattr(server, away)()
        length = history_length(tmp_path / "out")
        wait_for(lambda: history_length(tmp_path / "out") >= min(length + 8, 18) or process.poll() is not None, 90)
        getattr(server, back)()
        assert handlers_main(["replay", str(tmp_path / "out")]) == 0  # while the training goes on, and delivers, too
        assert process.wait() == 0
        assert handlers_main(["replay", str(tmp_path / "out")]) == 0
        (found,) = runs_of(server.uri, "killed")
        assert found.info.status == "FINISHED"
        assert steps_of(server.uri, found.info.run_id, "val_mean_dice") == list(range(1, 21))
        log = Path(f"{tmp_path / 'out'}.log").read_text()
        assert log.count("Tracking is not delivered for now") == (1 if away == "stop" else log.count("answers again"))
        assert "Traceback" not in log
        names = [item.path for item in mlflow.MlflowClient(server.uri).list_artifacts(found.info.run_id)]
        assert sorted(names) == sorted({*names, "history.csv", "cases.csv", "curves.png", "last.png"})
        assert not list((tmp_path / "out" / "tracking" / "files").glob("[!.]*"))
        journal = Journal(tmp_path / "out" / "tracking")
        (journal.folder / "delivered").unlink()  # as if it had been killed before it noted anything
        assert deliver(journal) == found.info.run_id
        assert steps_of(server.uri, found.info.run_id, "val_mean_dice") == list(range(1, 21))
        assert len(runs_of(server.uri, "killed")) == 1
    finally:
        if server.process.poll() is None:
            server.stop()


def history_length(output):
    return len(history(output)) if (output / "history.csv").exists() else 0


def test_no_server_at_all(tmp_path, capsys):
    uri = f"http://127.0.0.1:{free_port()}"
    run(configs("wbc", "train"), **options("wbc", tmp_path, tracking_uri=uri, register_model="nothing"))
    assert len(history(tmp_path)) == 2
    assert handlers_main(["replay", str(tmp_path)]) == 1
    assert "expected a server that takes" in capsys.readouterr().err
    assert handlers_main(["replay", str(tmp_path / "pictures")]) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("covered", [True, False])
def test_a_signal_counts_where_other_code_hides_it(number, covered, tmp_path):
    overrides = options("wbc", tmp_path)
    workflow = create_workflow(config_file=configs("wbc", "train"), **overrides)
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
    with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else SystemExit):
        workflow.run()
    assert signal.getsignal(number) is before
    assert Journal(tmp_path / "tracking").status() == "KILLED"
    assert trainer.state.iteration == 1


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, "KILLED"), (signal.SIGINT, "KILLED")])
def test_a_signal_is_told_and_the_next_run_does_not_join(number, status, server, tmp_path):
    name = f"signal-{int(number)}"
    process = start_process(tmp_path / "out", epochs=200, tracking_uri=server.uri, experiment_name=name)
    wait_for(lambda: history_length(tmp_path / "out") >= 2, 90)
    process.send_signal(number)
    assert process.wait() != 0
    (first,) = runs_of(server.uri, name)
    assert first.info.status == status
    run(configs("wbc", "train"), **options("wbc", tmp_path / "next", tracking_uri=server.uri, experiment_name=name))
    assert sorted(r.info.status for r in runs_of(server.uri, name)) == ["FINISHED", status]
    resumed = options("wbc", tmp_path / "out", tracking_uri=server.uri, experiment_name=name, resume=True)
    count = history_length(tmp_path / "out") + 1
    run(configs("wbc", "train"), **{**resumed, "epochs": count})
    again = mlflow.MlflowClient(server.uri).get_run(first.info.run_id)
    assert again.info.status == "FINISHED"
    assert again.data.tags["stopped"] == ""
    assert again.data.tags["resumed.epochs"] == str(count)
    with pytest.raises(RuntimeError):
        run(configs("wbc", "train"), **{**resumed, "features": [4] * 6})
    assert mlflow.MlflowClient(server.uri).get_run(first.info.run_id).info.status == "FINISHED"
    workflow = create_workflow(config_file=configs("wbc", "train"), **{**resumed, "epochs": count + 1})
    workflow.parser.get_parsed_content("train#trainer").loss_function = explode
    with pytest.raises(RuntimeError):
        workflow.run()
    assert mlflow.MlflowClient(server.uri).get_run(first.info.run_id).info.status == "FAILED"
    assert steps_of(server.uri, first.info.run_id, "loss") == list(range(1, count + 1))


def explode(prediction, label):
    raise RuntimeError("out of memory")


def test_an_exception_is_told(server, tmp_path):
    workflow = create_workflow(
        config_file=configs("wbc", "train"),
        **options("wbc", tmp_path, tracking_uri=server.uri, experiment_name="exception"),
    )
    workflow.parser.get_parsed_content("train#trainer").loss_function = explode
    with pytest.raises(RuntimeError) as caught:
        workflow.run()
    assert str(caught.value.__cause__) == "out of memory"
    (found,) = runs_of(server.uri, "exception")
    assert found.info.status == "FAILED"
    assert found.data.tags["stopped"] == "RuntimeError: out of memory"


def test_nan_is_told(server, tmp_path):
    overrides = options("wbc", tmp_path, tracking_uri=server.uri, experiment_name="nan", iel_spacing=0.05, iel_steps=40)
    with pytest.warns(UserWarning, match="amplifies"), pytest.raises(SystemExit) as caught:
        run(configs("wbc", "train"), **overrides)
    assert caught.value.code == 1
    (found,) = runs_of(server.uri, "nan")
    assert found.info.status == "FAILED"
    assert "raise iel_spacing" in found.data.tags["stopped"]


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
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    journal.begin(key="k", tracking_uri=uri, experiment="e", artifact_location=tmp_path.as_uri(), name="n")
    journal.append("params", values={"a": 1})
    journal.append("params", values={"a": 2})  # MLflow never takes another value
    journal.append("metrics", step=1, values={"b": 3.0})
    run_id = deliver(journal)
    assert mlflow.MlflowClient(uri).get_run(run_id).data.metrics == {"b": 3.0}
    assert json.loads((tmp_path / "tracking" / "refused.jsonl").read_text())["values"] == {"a": 2}
    assert "refused params" in caplog.text


def test_a_torn_last_line_of_a_journal_is_no_entry(tmp_path):
    journal = Journal(tmp_path)
    journal.begin(key="k", tracking_uri="", experiment="e", artifact_location=None, name="n")
    journal.append("metrics", step=1, values={"a": 1.0})
    with journal.file.open("a") as stream:
        stream.write('{"kind": "metr')
    assert [entry["kind"] for entry in journal.entries()] == ["open", "metrics"]
    journal.append("resumed")
    assert [entry["kind"] for entry in journal.entries()] == ["open", "metrics", "resumed"]


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
            run(configs("wbc", "train"), **options("wbc", tmp_path / "out", tracking_uri=server.uri))
            (found,) = runs_of(server.uri, "monai_iels")
            assert found.info.status == "FINISHED"
            assert steps_of(server.uri, found.info.run_id, "loss") == [1, 2]
        finally:
            server.stop()
    finally:
        database.terminate()
        database.wait()
