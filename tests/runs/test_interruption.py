# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Trainings that are killed, repeated, resumed, and shared between processes."""

import json
import os
import re
import shutil
import signal
import time

import pytest
import torch
from filelock import FileLock
from helpers import (
    BUNDLES,
    command,
    history,
    noise,
    options,
    run,
    words,
)
from programs import Program, run_ranks

import monai_iels
import monai_iels.runs


def start(tmp_path, output, *arguments):
    overrides = options("drive", output, epochs=4, **{"datalists#cache_dir": str(tmp_path / "cache")})
    command = ["run", "--workflow_name", "monai_iels.Training", *words(overrides), *arguments]
    return Program("monai.bundle", *command, stdout=tmp_path / f"{output.name}.log")


def test_kill_and_resume_is_bit_identical(tmp_path):
    """DRIVE has augmentation and a shuffled order; a run is killed in mid-epoch, and its last checkpoint cut short."""
    through, killed = tmp_path / "through", tmp_path / "killed"
    assert start(tmp_path, through).wait() == 0
    process = start(tmp_path, killed)
    while not (killed / "previous.pt").exists() and process.poll() is None:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert len(history(killed)) < 4
    last = killed / "last.pt"
    if last.exists():
        last.write_bytes(last.read_bytes()[:1000])
    assert start(tmp_path, killed, "--resume", "True").wait() == 0
    log = (tmp_path / "killed.log").read_text()
    assert "Resuming after epoch" in log
    for name in ("model.pt", "last.pt"):
        one, two = (torch.load(folder / name, weights_only=True) for folder in (through, killed))
        torch.testing.assert_close(one, two, rtol=0, atol=0)
    rows = [[{k: v for k, v in row.items() if k != "seconds"} for row in history(f)] for f in (through, killed)]
    assert rows[0] == rows[1]


def test_resuming_nothing_begins_anew_and_the_next_training_moves_it_aside(tmp_path):
    for epochs, resume in ((1, True), (2, False)):
        run("Training", **options("wbc", tmp_path, epochs=epochs, resume=resume))
    assert len(history(tmp_path)) == 2
    assert len(history(tmp_path / "earlier" / "1")) == 1
    assert (tmp_path / "earlier" / "1" / "model.pt").exists()


def test_one_training_in_a_folder_at_a_time(tmp_path):
    (tmp_path / "out").mkdir()
    with FileLock(tmp_path / "out" / ".training.lock"), pytest.raises(monai_iels.runs.RunError) as caught:
        run("Training", **options("wbc", tmp_path / "out"))
    assert str(caught.value).startswith(f"another training is running in {tmp_path / 'out'}; wait for it")
    assert {path.name for path in (tmp_path / "out").iterdir()} <= {".training.lock", "cache"}


def test_resume_after_the_end(trained, tmp_path):
    shutil.copytree(trained / "wbc", tmp_path / "out")
    run("Training", **options("wbc", tmp_path / "out", resume=True))
    assert len(history(tmp_path / "out")) == 2
    run("Training", **options("wbc", tmp_path / "out", resume=True, epochs=3))
    assert len(history(tmp_path / "out")) == 3


RANKS = """
import json, sys
import torch
import monai.bundle
import monai_iels.handlers
overrides, output = json.loads(sys.argv[1])
torch.set_num_threads(1)
workflow = monai.bundle.create_workflow("monai_iels.Training", **overrides)
parser = workflow.parser
trainer, evaluator = (parser.get_parsed_content(k) for k in ("train#trainer", "validate#evaluator"))
network = parser.get_parsed_content("network_def")
seen = {"cases": []}
def first(engine):
    if engine.state.iteration == 1:
        seen["loss"] = float(engine.state.output["loss"])
        seen["gradients"] = [p.grad.clone() for p in network.parameters()]
from ignite.engine import Events
trainer.add_event_handler(Events.ITERATION_COMPLETED, first)
evaluator.add_event_handler(Events.ITERATION_COMPLETED, lambda e: seen["cases"].extend(
    item["image"].meta["filename_or_obj"] for item in e.state.batch))
workflow.run()
rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
try:
    seen["share of 31"] = monai_iels.handlers.batch_size_per_process(31)
except ValueError as error:
    seen["share of 31"] = str(error)
seen["dice"] = evaluator.state.metrics["val_mean_dice"]
torch.save(seen, f"{output}-{rank}.pt")
workflow.finalize()
"""


def test_two_processes_do_what_one_does(tmp_path):
    (tmp_path / "ranks.py").write_text(RANKS)
    seen = {}
    for count in (1, 2):
        overrides = options("wbc", tmp_path / f"out{count}", epochs=1, batch_size=30)
        overrides |= {"datalists#count": 33, "datalists#cache_dir": str(tmp_path / "cache")}
        job = json.dumps([overrides, str(tmp_path / f"seen{count}")])
        run_ranks(tmp_path / "ranks.py", job, count=count, stdout=tmp_path / "log")
        seen[count] = [torch.load(tmp_path / f"seen{count}-{rank}.pt") for rank in range(count)]
    (one,), two = seen[1], seen[2]
    assert sum(s["loss"] for s in two) / 2 == pytest.approx(one["loss"], abs=1e-5)
    for a, b, c in zip(one["gradients"], two[0]["gradients"], two[1]["gradients"], strict=True):
        torch.testing.assert_close(b, c)
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert two[0]["dice"] == two[1]["dice"] == pytest.approx(one["dice"], abs=0.01)
    assert sorted(two[0]["cases"] + two[1]["cases"]) == sorted(one["cases"])
    assert len(history(tmp_path / "out2")) == 1
    assert one["share of 31"] == 31
    assert {s["share of 31"] for s in two} == {"--batch_size must be a multiple of the 2 processes, got 31"}


def test_from_another_folder_with_spaces_and_a_relative_root(tmp_path):
    place = tmp_path / "a folder with spaces"
    place.mkdir()
    shutil.copytree(BUNDLES / "wbc", place / "my bundle")
    arguments = ["--workflow_name", "monai_iels.Training", "--bundle_root", "my bundle"]
    small = {k: v for k, v in options("wbc", "").items() if k not in ("bundle_root", "output_dir")}
    done = command(*arguments, *words({**small, "epochs": 1}), cwd=place)
    assert done.returncode == 0, done.stderr
    assert [p.name for p in place.iterdir()] == ["my bundle"]
    assert (place / "my bundle" / "eval" / "model.pt").exists()
    assert done.stdout.startswith("=== SYNTHETIC IMAGES")
    assert noise(done) == []
    step = re.search(r"evaluate it case by case: .* -m monai.bundle run (--args_file '[^']+')", done.stdout)[1]
    log = tmp_path / "log"
    assert Program("monai.bundle", "run", "--args_file", step.split("'")[1], stdout=log, cwd=place).wait() == 0, log
    assert (place / "my bundle" / "eval" / "evaluation" / "cases.csv").exists()
    assert "deprecated" not in log.read_text()
