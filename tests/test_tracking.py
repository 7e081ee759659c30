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

"""Tracking and registry with real servers and real processes: what is recorded, what survives, what loads."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import mlflow
import numpy as np
import pytest
import torch
from monai.bundle import ConfigParser, create_workflow
from test_bundle import FEATURES, configs, history, run, words
from test_bundle import options as small_options

from monai_iels import registry
from monai_iels.handlers.__main__ import main as handlers_main
from monai_iels.handlers.journal import Journal, deliver


def options(name, output, **more):
    """Return the overrides of a run that takes seconds and is tracked."""
    return small_options(name, output, **{"track": True, **more})


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A real `mlflow server`, which can be killed and started again on the same port and database."""

    def __init__(self, folder, store=None):
        self.folder, self.port, self.process = folder, free_port(), None
        self.store = store or f"sqlite:///{folder / 'server.db'}"
        self.uri = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        log = (self.folder / "server.log").open("a")
        arguments = ["server", "--host", "127.0.0.1", "--port", str(self.port), "--backend-store-uri", self.store]
        arguments += ["--artifacts-destination", str(self.folder / "artifacts"), "--workers", "1"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", *arguments], stdout=log, stderr=log, start_new_session=True
        )
        wait_for(lambda: answers(f"{self.uri}/health"), 120)

    def freeze(self):
        os.killpg(self.process.pid, signal.SIGSTOP)

    def thaw(self):
        os.killpg(self.process.pid, signal.SIGCONT)

    def stop(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        wait_for(lambda: not answers(f"{self.uri}/health"), 20)


def answers(url):
    try:
        return urllib.request.urlopen(url, timeout=1).status == 200
    except OSError:
        return False


def wait_for(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def _no_address_from_outside(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    yield
    if mlflow.active_run():
        mlflow.end_run()


def runs_of(uri, experiment):
    client = mlflow.MlflowClient(uri)
    found = client.get_experiment_by_name(experiment)
    return client.search_runs([found.experiment_id]) if found else []


def steps_of(uri, run_id, metric):
    return [m.step for m in mlflow.MlflowClient(uri).get_metric_history(run_id, metric)]


def start_process(output, *arguments, **overrides):
    """Start a training in another process."""
    small = options("wbc", output, **overrides)
    command = [sys.executable, "-m", "monai.bundle", "run", "--config_file", *configs("wbc", "train"), *words(small)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with Path(f"{output}.log").open("w") as log:
        return subprocess.Popen([*command, *arguments], stdout=log, stderr=log, env=environment)


# tracking


@pytest.fixture(scope="module")
def tracked(server, tmp_path_factory):
    """Train with noise and a registered model against the server."""
    output = tmp_path_factory.mktemp("tracked") / "out"
    overrides = options("wbc", output, noise_fraction=0.2, tracking_uri=server.uri, experiment_name="end to end")
    run(configs("wbc", "train"), **overrides, register_model="cells", system_metrics=True)
    run(configs("wbc", "train", "evaluate"), **overrides)
    return output


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


# the registry


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
    where = ["--tracking-uri", server.uri]
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
