# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The order of handlers in a config does not matter."""

import json
import random
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from helpers import BUNDLES, options, run
from ignite.engine import Events

from monai_iels.handlers import Phases, attach
from monai_iels.run_folder import RunFolder
from monai_iels.tracking import Journal

OF_THE_FOLDER = ("mlflow.source.name", "mlflow.note.content")  # tags that name it
OF_THE_CHECKOUT = ("git_revision", "mlflow.source.git.commit")


def shuffled(folder, order):
    """Return a copy of the WBC bundle with the handlers of the training in another order."""
    shutil.copytree(BUNDLES / "wbc", folder, dirs_exist_ok=True)
    file = folder / "configs" / "train.json"
    config = json.loads(file.read_text())
    config["train"]["handlers"] = [config["train"]["handlers"][index] for index in order]
    assert config["train"]["trainer"]["train_handlers"] == "$[@train::report, @train::average, *@train::handlers]"
    config["train"]["trainer"]["train_handlers"] = "$[*@train#handlers, @train#average, @train#report]"
    file.write_text(json.dumps(config))
    return str(folder)


def outputs(folder):
    """Return everything that a training wrote, without times and random names."""
    run_folder = RunFolder(folder)
    with np.load(run_folder.panels) as arrays:
        panels = {name: arrays[name].tolist() for name in arrays.files}
    entries = []
    for entry in Journal(run_folder.tracking).entries():
        content = json.loads(entry.to_line())
        for name in ("time", "key", "tracking_uri", "weights"):
            content.pop(name, None)
        if entry.kind == "open":
            content.pop("name")
        for name in (
            "seconds",
            "output_dir",
            "bundle_root",
            "datalists#cache_dir",
            "tracking_uri",
            *OF_THE_FOLDER,
            *OF_THE_CHECKOUT,
        ):
            content.get("values", {}).pop(name, None)
        entries.append(content)
    return {
        "history": run_folder.read_history().drop(columns="seconds").to_dict("records"),
        "cases": run_folder.cases.read_bytes(),
        "best weights": torch.load(run_folder.best_weights),
        "state": torch.load(run_folder.last_state),
        "pictures": {path.name: path.read_bytes() for path in run_folder.pictures.glob("*.png")},
        "panels": panels,
        "journal": entries,
    }


def assert_same(one, two):
    for name in ("best weights", "state"):
        torch.testing.assert_close(one.pop(name), two.pop(name), rtol=0, atol=0)
    for name in ("history", "cases", "pictures", "panels", "journal"):
        assert one[name] == two[name], name


def handler_count():
    return len(json.loads((BUNDLES / "wbc" / "configs" / "train.json").read_text())["train"]["handlers"])


def orders():
    backward = list(range(handler_count()))[::-1]
    return [backward, random.Random(0).sample(backward, len(backward))]


@pytest.mark.parametrize("order", orders(), ids=str)
def test_the_order_of_the_handlers_does_not_matter(order, straight, tmp_path, settings):
    bundle = shuffled(tmp_path / "bundle", order)
    run("Training", **{**options("wbc", tmp_path / "out", **settings), "bundle_root": bundle})
    found = outputs(tmp_path / "out")
    assert set(found["pictures"]) == {"last.png"}
    assert [entry["kind"] for entry in found["journal"]].count("metrics") == 5  # three epochs, then best and last
    assert {"last.png", "history.csv", "curves.png"} <= {entry.get("name") for entry in found["journal"]}
    assert_same(found, outputs(straight))


def test_a_resumed_training_does_the_same_in_any_order(straight, tmp_path, settings):
    bundle = shuffled(tmp_path / "bundle", orders()[0])
    for epochs in (2, 3):
        changes = {"epochs": epochs, "resume": epochs == 3, "track": False}
        run("Training", **{**options("wbc", tmp_path / "out", **{**settings, **changes}), "bundle_root": bundle})
    one, two = RunFolder(straight), RunFolder(tmp_path / "out")
    torch.testing.assert_close(torch.load(one.last_state), torch.load(two.last_state), rtol=0, atol=0)
    assert one.cases.read_bytes() == two.cases.read_bytes()
    assert one.last_picture.read_bytes() == two.last_picture.read_bytes()
    pd.testing.assert_frame_equal(
        one.read_history().drop(columns="seconds"), two.read_history().drop(columns="seconds"), check_exact=True
    )


def test_phases_fire_in_order_and_behind_all_other_handlers(engine_with):
    engine, seen = engine_with(float), []
    for phase in reversed(list(Phases)):
        attach(engine, phase, lambda engine, phase=phase: seen.append(phase.name))
    for event in (Events.EPOCH_STARTED, Events.EPOCH_COMPLETED, Events.COMPLETED):
        engine.add_event_handler(event, lambda engine, event=event: seen.append(event.name))
    epoch = ["EPOCH_STARTED", "SEED", "EPOCH_COMPLETED", "REPORT", "RECORD", "SAVE"]
    expected = ["RESTORE", "BEGIN", *epoch, *epoch, "COMPLETED", "DRAW", "SUMMARIZE", "CLOSE"]
    engine.run([0], max_epochs=2)
    assert seen == expected
    engine.run([0], max_epochs=2)
    assert seen == 2 * expected  # nothing fires twice in a second run
