# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The processes of a study: started, resumed, stopped; and what its folder keeps of each command."""

import json
import shutil
import signal
import sys
from concurrent.futures import ThreadPoolExecutor

import programs
import pytest
from helpers import BUNDLES, FEATURES, corrupt, history, new_database
from programs import start_helper
from servers import wait_for

from monai_iels.cli import run_program
from monai_iels.study import Study, check_overrides, make_plan, read_study, select_variants, write_summary
from monai_iels.study._running import TrainingProcesses, _prepare_data

TINY = {"features": FEATURES, "epochs": 4, "image_size": [32, 32], "datalists#count": 10, "datalists#size": 48}
TINY |= {"learning_rate": 0.003, "label_error": corrupt(0.2), "pictures": False}


def write_study(file, columns, seeds=2, bundle=str(BUNDLES / "wbc")):
    file.write_text(json.dumps({"bundle": bundle, "seeds": seeds, "columns": columns}))
    return file


def test_a_training_is_a_process(tmp_path, monkeypatch):
    start_helper()
    monkeypatch.setattr("monai_iels.study._running.sys.executable", programs.__file__)
    overrides = {**TINY, "epochs": 1, "datalists#count": 20}
    study = Study("s", BUNDLES / "wbc", {"a": overrides}, [0], tmp_path / "s.yaml")
    plan = make_plan(study, tmp_path / "out", "cpu", "synthetic", new_database(tmp_path))
    (training,) = plan.trainings("parent")
    assert TrainingProcesses(1).run(training) == training.journal.status() == "FINISHED"
    assert [row["epoch"] for row in history(training.folder.path)] == [1]


STUB = """#!{python}
import json, os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[sys.argv.index("--args_file") + 1]).parent
(folder / "seen.json").write_text(json.dumps([sys.argv[1:], dict(os.environ)]))
print("the last words", flush=True)
{ending}
"""


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """Run a small program instead of a training, and return a training of which it ends in some way."""

    def make(ending):
        program = tmp_path / "program"
        program.write_text(STUB.format(python=sys.executable, ending=ending))
        program.chmod(0o755)
        monkeypatch.setattr("monai_iels.study._running.sys.executable", str(program))
        study = Study("s", BUNDLES / "wbc", {"a": {}}, [0], tmp_path / "s.yaml")
        return make_plan(study, tmp_path / "out", "cpu", "synthetic", None).trainings("parent")[0]

    return make


def seen(training):
    return json.loads((training.folder.path / "seen.json").read_text())


@pytest.mark.parametrize(
    ("ending", "status", "reason"),
    [
        ("sys.exit(3)", "FAILED", "the last words"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "KILLED", "exit code -9"),
    ],
)
def test_a_training_that_cannot_tell_how_it_ended_is_recorded(stub, ending, status, reason, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")
    training = stub(ending)
    assert TrainingProcesses(3, {"PASSWORD": "x"}).run(training) == status
    assert training.journal.status() == status
    tags = [entry.values for entry in training.journal.entries() if entry.kind == "tags"]
    assert tags == [{**training.arguments["run_tags"], "stopped": reason}]
    words, environment = seen(training)
    assert words[:3] == ["-m", "monai.bundle", "run"]
    assert environment["PASSWORD"] == "x"
    assert environment["OMP_NUM_THREADS"] == "3"
    journal = training.journal.entries()
    assert TrainingProcesses(3).run(training) == status  # again: the run is closed already
    assert training.journal.entries() == journal


@pytest.mark.parametrize(
    ("before", "saved", "resumed"),
    [("KILLED", True, "True"), ("FAILED", True, "False"), ("KILLED", False, "False"), (None, True, "True")],
)
def test_a_training_is_resumed_unless_it_failed(stub, before, saved, resumed):
    training = stub("sys.exit(0)")
    training.journal.begin(key="k", tracking_uri="", experiment="e", name="n")
    if before:
        training.journal.append("status", status=before)
    if saved:
        training.folder.last_state.touch()
    TrainingProcesses(1).run(training)
    words, _ = seen(training)
    assert words[-2:] == ["--resume", resumed]


def test_all_trainings_are_stopped_together(stub):
    training = stub("time.sleep(60)")
    processes = TrainingProcesses(1)
    with ThreadPoolExecutor() as pool:
        future = pool.submit(processes.run, training)
        wait_for((training.folder.path / "seen.json").exists, 60)
        processes.stop()
        assert future.result() == "KILLED"
    assert [child.returncode for child in processes.children] == [-signal.SIGTERM]
    assert not training.journal.entries()  # it never began
    (training.folder.path / "seen.json").unlink()
    assert processes.run(training) == "KILLED"
    assert not (training.folder.path / "seen.json").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("ignored", [False, True])  # nohup ignores SIGHUP
def test_signals_end_a_command_as_ctrl_c_does(number, ignored, monkeypatch):
    monkeypatch.setattr("monai_iels.cli.main", lambda: signal.raise_signal(number))
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)
        with pytest.raises(SystemExit if ignored else KeyboardInterrupt):
            run_program()
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def test_a_folder_keeps_all_that_was_asked_for(tmp_path):
    file = write_study(tmp_path / "s.yaml", {"A": {}, "B": {}, "C": {}}, seeds=3)
    names = (["A"], 2, "synthetic"), (["B"], 1, "synthetic"), (["C"], 3, str(tmp_path))
    summaries = []
    for variants, seeds, data in names:
        plan = make_plan(select_variants(read_study(file, seeds), variants), tmp_path / "out", "cpu", data, None)
        write_summary(plan)
        summaries.append(json.loads(plan.folder.summary.read_text()))
    assert [list(summary["variants"]) for summary in summaries] == [["A"], ["A", "B"], ["A", "B", "C"]]
    assert [summary["seeds"] for summary in summaries] == [[0, 1], [0, 1], [0, 1, 2]]
    assert [summary["command"] for summary in summaries] == [
        "monai-iels study run s.yaml --preset cpu --seeds 2 --variants A",
        "monai-iels study run s.yaml --preset cpu --seeds 2 --variants A B",
        "monai-iels study run s.yaml --preset cpu --seeds 3 --dataset_dir DIR",
    ]


def test_parameters_of_the_run_are_no_keys_of_the_config_that_lists_the_data(tmp_path):
    shutil.copytree(BUNDLES / "wbc" / "configs", tmp_path / "mine" / "configs")
    preset = {**TINY, "pretrained": "%model.pt", "known_keys": "mine", "mine": 3}  # MONAI would open a file after %
    (tmp_path / "mine" / "presets.yaml").write_text(json.dumps({"cpu": preset}))
    study = Study("s", tmp_path / "mine", {"a": {}}, [0], tmp_path / "s.yaml")
    plan = make_plan(study, tmp_path / "out", "cpu", "synthetic", "sqlite:///mlflow.db")
    check_overrides(study)
    _prepare_data(plan)
    assert len(list((tmp_path / "out" / "cache").glob("synthetic-*-10-48-*"))) == 1
