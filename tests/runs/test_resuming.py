# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Trainings that are resumed: what may have changed, and what is refused."""

import json
import shutil

import pytest
from helpers import cached, history, options, said, tree


def train(finished, output, **overrides):
    common = options("wbc", output, **cached(finished))
    return said("Training", **{**common, **overrides})


CHANGES = {"learning_rate": 0.01, "seed": 3, "datalists#count": 12, "features": [8] * 6}
CHANGES |= {
    "iel_gain": 5,
    "batch_size": 1,
    "image_size": [48, 48],
    "train#trainer#amp": True,
    "optimizer#momentum": 0.5,
}


@pytest.mark.parametrize("key", CHANGES)
def test_resuming_with_other_settings_is_refused_with_both_values(key, finished):
    before = tree(finished / "wbc")
    found = train(finished, finished / "wbc", epochs=4, **{"resume": True, key: CHANGES[key]})
    recorded = json.loads((finished / "wbc" / "config.json").read_text())
    for part in key.split("#"):
        recorded = recorded[part]
    assert found.startswith(f"--resume: {key.replace('#', '::')} was {recorded!r} and is now {CHANGES[key]!r}")
    assert tree(finished / "wbc") == before


def test_resuming_with_other_data_is_refused(finished, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(next((finished / "cache").glob("synthetic-wbc-10-*")), data)
    shutil.copytree(finished / "wbc", tmp_path / "out")
    same = {"resume": True, "epochs": 3, "dataset_dir": str(data)}
    assert train(finished, tmp_path / "out", **same) == "accepted"  # the same files in another place
    assert json.loads((tmp_path / "out" / "evaluate.json").read_text())["dataset_dir"] == str(data)
    for file in (data / "Dataset 1").glob("001.*"):
        file.unlink()
    found = train(finished, tmp_path / "out", **{**same, "epochs": 4})
    assert found.startswith(f"--resume: the cases in {data} are not those that the training began with in {data}.")


STATES = {
    "settings missing": ("config.json", None, "config.json cannot be read"),
    "settings cut": ("config.json", b'{"epochs": 2, "ba', "config.json cannot be read"),
    "state garbage": ("last.pt", b"garbage", "no state of the training can be read; start again without --resume"),
}


@pytest.mark.parametrize("kind", STATES)
def test_resuming_what_is_damaged_is_refused(kind, finished, tmp_path):
    name, content, expected = STATES[kind]
    output = tmp_path / "out"
    shutil.copytree(finished / "wbc", output)
    (output / "previous.pt").unlink()
    (output / name).unlink() if content is None else (output / name).write_bytes(content)
    weights = (output / "model.pt").read_bytes()
    assert expected in train(finished, output, resume=True, epochs=4)
    assert (output / "model.pt").read_bytes() == weights


def test_resuming_without_a_state_moves_the_old_model_aside(finished, tmp_path):
    output = tmp_path / "out"
    shutil.copytree(finished / "wbc", output)
    for name in ("last.pt", "previous.pt"):
        (output / name).unlink()
    assert train(finished, output, resume=True, epochs=1) == "accepted"
    assert (output / "earlier" / "1" / "model.pt").read_bytes() == (finished / "wbc" / "model.pt").read_bytes()


def test_resuming_may_change_where_and_how_long(finished, tmp_path, caplog):
    shutil.copytree(finished / "wbc", tmp_path / "moved")
    for name in ("evaluation", "predictions"):
        (tmp_path / "moved" / name).mkdir()
        (tmp_path / "moved" / name / "old").write_text("of the model before")
    overrides = {"resume": True, "epochs": 3, "num_workers": 1, "val_interval": 3, "register_model": None}
    assert train(finished, tmp_path / "moved", **overrides) == "accepted"
    assert len(history(tmp_path / "moved")) == 3
    for name in ("evaluation", "predictions"):
        assert (tmp_path / "moved" / "earlier" / "1" / name / "old").exists()
        assert not (tmp_path / "moved" / name).exists()


def test_a_new_model_has_no_predictions_of_the_one_before(finished, tmp_path):
    shutil.copytree(finished / "wbc", tmp_path / "out")
    (tmp_path / "out" / "predictions").mkdir()
    assert train(finished, tmp_path / "out", epochs=1) == "accepted"
    assert not (tmp_path / "out" / "predictions").exists()
    assert {"predictions", "model.pt", "config.json"} <= {
        p.name for p in (tmp_path / "out" / "earlier" / "1").iterdir()
    }
