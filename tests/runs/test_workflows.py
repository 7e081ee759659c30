# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""A run as an object: in Python, nested, twice in one process, two bundles side by side; its folder and its rules."""

import errno
import json
import logging
import os
import shlex
import shutil
import sys

import numpy as np
import pytest
import torch
from filelock import FileLock, Timeout
from helpers import BUNDLES, cached, configs, history, options, prepare, run
from monai.bundle import ConfigParser, ConfigWorkflow
from PIL import Image

import monai_iels.runs
from monai_iels._files import atomic, read_table, write_json, write_table
from monai_iels._terminal import bundle_command
from monai_iels.run_folder import RunFolder
from monai_iels.runs._error_sentences import sentence
from monai_iels.settings import TRAINING, check_rules
from monai_iels.tracking import how_to_look

# several runs in a process

HERE = sys.modules[__name__]


def train_inside(**settings):
    run("Training", **settings)
    return "dict"


def test_two_lines_of_python_train(tmp_path):
    arguments = options("wbc", tmp_path)
    monai_iels.Training(arguments.pop("bundle_root"), **arguments).run()
    assert (tmp_path / "model.pt").exists()
    assert "epoch 2/2" in (tmp_path / "training.log").read_text()


def test_a_training_that_runs_again_begins_anew(tmp_path):
    training = monai_iels.Training(**options("wbc", tmp_path, epochs=1))
    training.run()
    training.run()
    (first,), (second,) = history(tmp_path / "earlier" / "1"), history(tmp_path)
    assert first["loss"] == second["loss"]


def test_python_s_own_paths_and_tuples(tmp_path):
    arguments = options("wbc", tmp_path, epochs=1, image_size=(32, 32))
    monai_iels.Training(**{**arguments, "output_dir": tmp_path / "out", "bundle_root": BUNDLES / "wbc"}).run()
    assert (tmp_path / "out" / "model.pt").exists()


def test_several_processes_train_together_also_with_a_config_of_one_s_own(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    given = {**options("wbc", tmp_path), "config_file": configs("wbc", "train")[0]}
    for files in (given, {**given, "config_file": configs("wbc", "train", "multi_gpu_train")}):
        network = monai_iels.Training(**files).parser["train#trainer#network"]
        assert network["_target_"] == "torch.nn.parallel.DistributedDataParallel"
    with pytest.raises(monai_iels.runs.RunError, match="runs in one process"):
        monai_iels.Evaluation(**options("wbc", tmp_path)).run()


@pytest.mark.parametrize("name", ["Evaluation", "Inference"])
def test_a_parameter_of_a_training_is_none_of_other_workflows(name, tmp_path):
    with pytest.raises(monai_iels.runs.RunError, match=r"'resume' is a parameter of monai_iels\.Training alone"):
        prepare(name, bundle_root=str(BUNDLES / "wbc"), output_dir=str(tmp_path), resume=True)


def test_a_training_inside_another_s_config_has_its_own_config(tmp_path, monkeypatch):
    """A training runs while a component of another one is built, and both keep their folders, keys and locks."""
    monkeypatch.setitem(sys.modules, "nesting", HERE)
    inner = options("wbc", tmp_path / "inner", epochs=1, **cached(tmp_path))
    outer = options("wbc", tmp_path / "outer", epochs=1, **cached(tmp_path))
    nested = {"_target_": "nesting.train_inside", **inner}
    run("Training", **outer, initialize=[nested, "$monai.utils.set_determinism(seed=@seed)"])
    for name in ("inner", "outer"):
        assert json.loads((tmp_path / name / "config.json").read_text())["output_dir"] == str(tmp_path / name)
        assert (tmp_path / name / "model.pt").exists()


def test_a_mistyped_key_is_refused_inside_another_run(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "nesting", HERE)
    inner = options("wbc", tmp_path / "inner", epoch=3)
    outer = options("wbc", tmp_path / "outer", initialize=[{"_target_": "nesting.train_inside", **inner}])
    with pytest.raises(monai_iels.runs.RunError, match="unknown key 'epoch': did you mean 'epochs'"):
        run("Training", **outer)
    assert not (tmp_path / "inner").exists()


def test_no_class_of_monai_is_changed(tmp_path):
    """A config that other people wrote is parsed by MONAI alone, whatever was imported and has run."""
    run("Training", **options("wbc", tmp_path, epochs=1))
    for kind in (ConfigParser, ConfigWorkflow):
        own = [value for value in vars(kind).values() if callable(value)]
        assert {function.__module__.split(".")[0] for function in own if hasattr(function, "__module__")} <= {"monai"}


def test_a_run_that_ends_leaves_the_lock_of_another_alone(tmp_path):
    folder = RunFolder(tmp_path / "first")
    with folder.locked():
        run("Training", **options("wbc", tmp_path / "second", epochs=1))
        with pytest.raises(Timeout):
            FileLock(tmp_path / "first" / ".training.lock").acquire(timeout=0)
        with pytest.raises(ValueError, match="another training is running in"), folder.locked():
            pass
    with folder.locked():
        pass


def test_a_run_leaves_the_process_as_it_was(tmp_path):
    hook, handlers = sys.excepthook, list(logging.getLogger("monai_iels").handlers)
    overrides = options("wbc", tmp_path, epochs=1)
    run("Training", logging_file=False, **overrides)
    with pytest.raises(monai_iels.runs.RunError):
        run("Training", logging_file=False, **overrides, epoch=3)
    assert sys.excepthook is hook
    assert logging.getLogger("monai_iels").handlers == handlers
    assert "epoch 1/1" in (tmp_path / "training.log").read_text()


def test_keys_of_your_own_are_known_when_you_say_so(tmp_path):
    overrides = options("wbc", tmp_path, my_key=3)
    with pytest.raises(monai_iels.runs.RunError, match="unknown key 'my_key'"):
        prepare("Training", **overrides)
    parser = prepare("Training", **overrides, known_keys=["my_key"]).parser
    assert parser.get_parsed_content("my_key") == 3


def test_keys_of_your_own_are_known_to_what_follows_a_training(tmp_path, capsys):
    """Evaluation by the file that the training wrote, and prediction; the layer that never works fully is announced."""
    own = {"my_key": 3, "known_keys": ["my_key"]}
    run("Training", **options("wbc", tmp_path, epochs=1, iel_warmup=4), **own)
    assert "The layer warms up for 4 epochs, but the training has only 1" in capsys.readouterr().out
    evaluate, inference = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("evaluate", "inference"))
    assert evaluate["my_key"] == 3
    run(**evaluate, logging_file=False)
    assert (tmp_path / "evaluation" / "cases.csv").exists()
    Image.fromarray(np.zeros((40, 40, 3), np.uint8)).save(tmp_path / "image.png")
    run(**inference, logging_file=False, dataset_dir=str(tmp_path / "image.png"))
    assert (tmp_path / "predictions" / "image_label.png").exists()


def test_two_bundles_in_one_process_use_their_own_configs(tmp_path):
    """Neither shadows the other, in any order: their labels have other values."""
    Image.fromarray(np.zeros((40, 40, 3), np.uint8)).save(tmp_path / "image.png")
    small = {"features": [4] * 6, "image_size": [32, 32]}
    for name, value in (("one", 10), ("two", 20)):
        shutil.copytree(BUNDLES / "wbc", tmp_path / name)
        file = tmp_path / name / "configs" / "inference.json"
        config = {**json.loads(file.read_text()), **small, "label_values": [value] * 3}
        write_json(config, file)
        (tmp_path / name / "models").mkdir()
        weights = ConfigParser(config).get_parsed_content("network_def").state_dict()
        torch.save(weights, tmp_path / name / "models" / "model.pt")
    for name, value in (("one", 10), ("two", 20), ("one", 10)):
        run("Inference", bundle_root=str(tmp_path / name), dataset_dir=str(tmp_path / "image.png"))
        label = Image.open(tmp_path / name / "eval" / "image_label.png")
        assert np.unique(label).tolist() == [value]


# rules


@pytest.fixture(scope="module")
def values():
    parser = ConfigParser(ConfigParser.load_config_file(configs("wbc", "train")[0]))
    return {key: parser.get_parsed_content(key) for key in TRAINING if key in parser}


LIMITS = [
    ("image_size", [17, 17], [16, 17]),
    ("image_size", [17, 17], [17, 16]),
    ("datalists#size", 24, 23),
    ("datalists#count", 4, 3),
    ("epochs", 1, 0),
    ("seed", 0, -1),
    ("iel_gain", 1.1, 1),
    ("iel_gain", None, "none of it"),
    ("label_error", [str], []),
    ("val_interval", 20, 21),
    ("regions", [[2]], [[3]]),
    ("train#average#decay", 0.99, 1),
    ("lr_scheduler#step_size", 1, 0),
    ("features", [1] * 6, [1] * 5),
]


@pytest.mark.parametrize(("key", "accepted", "refused"), LIMITS)
def test_the_limits_of_a_setting(key, accepted, refused, values):
    check_rules(TRAINING, {**values, key: accepted})
    with pytest.raises(ValueError, match=f"--{key} must be"):
        check_rules(TRAINING, {**values, key: refused})


# the folder of a run


def write_half(target, error):
    """Begin to write a file, or a folder, and fail."""
    with atomic(target) as part:
        part.write_text("half") if target.suffix else part.mkdir()
        raise error


def test_what_is_not_finished_is_not_there(tmp_path):
    file = tmp_path / "new" / "file.json"
    write_json({"a": 1}, file)
    with pytest.raises(KeyboardInterrupt):
        write_half(file, KeyboardInterrupt())
    assert json.loads(file.read_text()) == {"a": 1}
    assert [path.name for path in file.parent.iterdir()] == ["file.json"]


def test_an_error_of_the_disk_names_the_file(tmp_path):
    with pytest.raises(OSError, match="No space left") as caught:
        write_half(tmp_path / "file.csv", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert caught.value.filename == str(tmp_path / "file.csv")
    assert not list(tmp_path.iterdir())


def test_a_folder_is_made_completely_or_not_at_all(tmp_path):
    with pytest.raises(ValueError, match="stop"):
        write_half(tmp_path / "made", ValueError("stop"))
    assert not list(tmp_path.iterdir())
    with atomic(tmp_path / "made") as part:
        part.mkdir()
        (part / "file").write_text("mine")
    with atomic(tmp_path / "made") as part:  # another process was slower
        part.mkdir()
        (part / "file").write_text("other")
    assert (tmp_path / "made" / "file").read_text() == "mine"


def test_tables_keep_names_and_numbers(tmp_path):
    import pandas as pd

    table = pd.DataFrame({"case": ["001", "=1+2", "nan"], "score": [0.1 + 0.2, float("nan"), 1e-17]})
    write_table(table, tmp_path / "table.csv")
    assert "\n'=1+2," in (tmp_path / "table.csv").read_text()
    found = read_table(tmp_path / "table.csv")
    assert list(found["case"]) == ["001", "'=1+2", "nan"]
    np.testing.assert_array_equal(found["score"], table["score"])
    assert read_table(tmp_path / "missing.csv").empty


def test_a_damaged_state_falls_back_to_the_one_before(tmp_path, caplog):
    folder = RunFolder(tmp_path)
    assert folder.load_state() is None
    assert not folder.can_resume
    for epoch in (1, 2):
        folder.save_state({"epoch": epoch}, {"weight": torch.ones(2)} if epoch == 1 else None)
    assert folder.load_state() == {"epoch": 2}
    folder.last_state.write_bytes(folder.last_state.read_bytes()[:50])
    assert folder.load_state() == {"epoch": 1}
    assert "last.pt is damaged" in caplog.text
    folder.previous_state.write_bytes(b"")
    with pytest.raises(ValueError, match="no state of the training can be read; start again without --resume"):
        folder.load_state()
    torch.testing.assert_close(folder.load_best_weights(), {"weight": torch.ones(2)})


def test_only_what_a_run_writes_is_moved_aside(tmp_path):
    folder = RunFolder(tmp_path)
    for name in ("model.pt", "history.csv", "notes.txt"):
        (tmp_path / name).write_text(name)
    (tmp_path / "predictions").mkdir()
    folder.move_aside(resumed=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["earlier", "history.csv", "model.pt", "notes.txt"]
    folder.move_aside(resumed=False)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["earlier", "notes.txt"]
    assert sorted(p.name for p in (tmp_path / "earlier" / "2").iterdir()) == ["history.csv", "model.pt"]


# what a user is told


def test_commands_work_also_where_no_environment_is_activated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = os.path.dirname(sys.executable)
    monkeypatch.setenv("PATH", own)
    assert bundle_command("my run/a.json") == "python -m monai.bundle run --args_file 'my run/a.json'"
    assert bundle_command(tmp_path / "a.json").endswith(" --args_file a.json")
    look = how_to_look("sqlite:////a b/mlflow.db", "1", "r").splitlines()
    assert look[0] == "  mlflow ui --backend-store-uri 'sqlite:////a b/mlflow.db'"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bundle_command("a.json") == f"{shlex.quote(sys.executable)} -m monai.bundle run --args_file a.json"
    elsewhere = how_to_look("sqlite:////a b/mlflow.db", "1", "r").splitlines()
    assert elsewhere[0] == f"  {shlex.quote(sys.executable)} -m{look[0].removeprefix(' ')}"
    assert elsewhere[1:] == look[1:]
    assert not any("mlflow ui" in line for line in how_to_look("http://127.0.0.1:5000", "1", "r").splitlines())


def test_a_loader_killed_while_it_hands_over_a_batch_is_explained():
    """Torch raises the connection's own error if the killed process is not gone yet."""
    loader = iter(torch.utils.data.DataLoader(torch.arange(4), num_workers=1))

    def lose_connection(timeout):
        raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")

    loader._data_queue.get = lose_connection
    with pytest.raises(ConnectionResetError) as caught:
        next(loader)
    assert sentence(caught.value).startswith("A process that loads data ended (")
    assert sentence(ConnectionResetError("elsewhere")) is None
