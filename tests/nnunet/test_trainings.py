# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Whole trainings with the real nnU-Net: resume, prediction, signals, two processes."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from programs import run_ranks
from servers import wait_for

pytest.importorskip("nnunetv2", reason="nnU-Net is not installed: .ci/nnunet installs it and runs this folder")
from nnunet.drawn import DATASET, run
from nnunet.trainers import trainer

OURS = (sys.executable, "-m", "monai_iels", "nnunet", "train", 1)


def checkpoint(home, name="checkpoint_final.pth"):
    folder = home / "results" / DATASET / "nnUNetTrainerIEL__nnUNetPlans__2d" / "fold_0"
    return torch.load(folder / name, weights_only=False)


@pytest.fixture(scope="module")
def trained(home):
    """Train one epoch, then resume for another."""
    file = home / "preprocessed" / DATASET / "iel.yaml"
    outputs = []
    for epochs, more in ((1, ()), (2, ("--c",))):
        file.write_text(f"epochs: {epochs}\niterations: 2\n")
        outputs.append(run(*OURS, "2d", 0, "-tr", "nnUNetTrainerIEL", "-device", "cpu", *more))
    file.unlink()
    return outputs


def test_a_training_runs_and_resumes(home, trained):
    first, second = trained
    assert "InverseEvolutionLayer(GuidedDiffusion(spacing=(1.0, 1.0)" in first
    assert "Epoch 0" in first
    assert "Mean Validation Dice" in first
    assert "Epoch 0" not in second
    assert "Epoch 1" in second
    assert checkpoint(home)["current_epoch"] == 2


PLAIN = os.environ.get("MONAI_IELS_PLAIN_NNUNET")


@pytest.mark.skipif(PLAIN is None, reason="MONAI_IELS_PLAIN_NNUNET names no Python with nnU-Net alone, see .ci/nnunet")
def test_prediction_where_monai_iels_was_never_installed_is_that_with_it(home, trained, tmp_path):
    names = {checkpoint(home, name)["trainer_name"] for name in ("checkpoint_final.pth", "checkpoint_best.pth")}
    assert names == {"nnUNetTrainer"}
    code = "from importlib.util import find_spec; print(*map(find_spec, ('nnunetv2', 'monai', 'monai_iels')))"
    assert run(PLAIN, "-I", "-c", code).endswith(" None None\n")
    by_name = ("nnUNetv2_predict", "-d", 1, "-c", "2d", "-tr", "nnUNetTrainerIEL")
    copied = shutil.copytree(home / "results" / DATASET / "nnUNetTrainerIEL__nnUNetPlans__2d", tmp_path / "copied")
    by_path = ("nnUNetv2_predict_from_modelfolder", "-m", copied)
    common = ("-i", home / "raw" / DATASET / "imagesTr", "-f", 0, "-device", "cpu", "-npp", 1, "-nps", 1)
    for python, folder, (program, *words) in (
        (sys.executable, "with", by_name),
        (PLAIN, "without, by name", by_name),
        (PLAIN, "without, by path", by_path),
    ):
        command = (Path(python).parent / program, *words, *common, "-o", tmp_path / folder, "--save_probabilities")
        run(*command, nnUNet_extTrainer="", PYTHONPATH="")
    files = sorted(tmp_path.glob("with/*.npz"))
    assert len(files) == 6
    for file in files:
        for other in tmp_path.glob(f"without*/{file.name}"):
            with np.load(file) as ours, np.load(other) as plain:
                np.testing.assert_array_equal(ours["probabilities"], plain["probabilities"])
    assert len(list(tmp_path.glob("without*/*.npz"))) == 12


STUCK = """
import ctypes
from monai_iels.nnunet import nnUNetTrainerIEL


class nnUNetTrainerStuck(nnUNetTrainerIEL):
    def train_step(self, batch):
        print("stuck", flush=True)
        lock, c = ctypes.create_string_buffer(64), ctypes.CDLL(None)
        c.pthread_mutex_lock(lock)
        c.pthread_mutex_lock(lock)  # waits for itself
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads the processes of Linux")
def test_sigterm_ends_a_training_and_its_workers_even_where_compiled_code_does_not_return(home, tmp_path):
    """As torch does with OMP_THREAD_LIMIT=1, since nnU-Net asks it for a thread per core."""
    (tmp_path / "stuck.py").write_text(STUCK)
    with subprocess.Popen(
        [*map(str, OURS), "2d", "2", "-tr", "nnUNetTrainerStuck", "-device", "cpu"],
        env={**os.environ, "nnUNet_extTrainer": str(tmp_path), "nnUNet_n_proc_DA": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as program:
        try:
            assert "stuck\n" in iter(program.stdout.readline, "")
            assert len(processes(program.pid)) == 3  # with the workers for training and validation
            program.terminate()
            assert program.wait(30) == 143
            assert program.stdout.read().endswith("Ended by SIGTERM; --c continues from the last checkpoint.\n")
            wait_for(lambda: not processes(program.pid), seconds=5)
        finally:
            for process in processes(program.pid):
                os.kill(process, signal.SIGKILL)


def processes(session):
    """Return the processes of a session that run."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, its_session = file.read_text().rpartition(")")[2].split()[:4]
            if int(its_session) == session and state != "Z":
                found.append(int(file.parent.name))
    return found


def test_a_bad_setting_ends_the_command_with_its_sentence(home, settings):
    settings("gain: 0\n")
    words = [*map(str, OURS), "2d", "0", "-tr", "nnUNetTrainerIEL", "-device", "cpu"]
    done = subprocess.run(words, input="\n", capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("iel.yaml: gain must be a number above 1, or null for no layer, got 0")
    assert "Traceback" not in done.stderr


def test_monai_s_runner_trains_with_it(home, settings, monkeypatch):
    """The runner's own command and environment; on a CPU it needs one word more than the runner can say."""
    from monai.apps.nnunet import nnUNetV2Runner

    settings("epochs: 1\niterations: 1\n")
    places = {f"nnunet_{name}": str(home / name) for name in ("raw", "preprocessed", "results")}
    config = {"datalist": {}, "dataroot": str(home), "modality": "MRI", "dataset_name_or_id": 1, **places}
    runner = nnUNetV2Runner(config, trainer_class_name="nnUNetTrainerConvex", work_dir=str(home))
    (program, *words), environment = runner.train_single_model_command("2d", 1, 0, {})
    assert program == "nnUNetv2_train"
    output = run(*OURS[:-1], *words, "-device", "cpu", **environment)
    assert "InverseEvolutionLayer(ConvexCurveMotion(" in output
    assert "Mean Validation Dice" in output


def test_numbers_go_to_mlflow_as_the_page_says(home, tmp_path, monkeypatch):
    import mlflow

    page = (Path(__file__).parents[2] / "docs" / "do" / "nnunet.md").read_text("utf-8")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(re.search(r"```python\n(import mlflow.*?)```", page, re.DOTALL)[1], names)
    made = trainer(home, names["nnUNetTrainerTracked"])
    for epoch, dice in enumerate([[0.5, 0.25], [0.75, 0.5]]):
        made.logger.log("dice_per_class_or_region", dice, epoch)
    run_id = mlflow.active_run().info.run_id
    mlflow.end_run()
    logged = mlflow.MlflowClient().get_metric_history(run_id, "dice_per_class_or_region/class_2")
    assert [(metric.step, metric.value) for metric in logged] == [(0, 0.25), (1, 0.5)]
    assert mlflow.get_run(run_id).data.params["gain"] == "15"


RANKS = """
import os, sys, torch
from torch import distributed as dist
sys.path.insert(0, sys.argv[1])
import nnunetv2.training.nnUNetTrainer.nnUNetTrainer as theirs
import json
from pathlib import Path
from nnunet.drawn import DATASET
from nnunet.trainers import heads_and_targets, nnUNetTrainerIEL

dist.init_process_group("gloo")
parallel = theirs.DDP
theirs.DDP = lambda network, device_ids: parallel(network)  # nnU-Net has it for CUDA only
rank = dist.get_rank()
folder = Path(os.environ["nnUNet_preprocessed"]) / DATASET
plans, dataset = (json.loads((folder / name).read_text()) for name in ("nnUNetPlans.json", "dataset.json"))
plans["continue_training"] = False
torch.manual_seed(0)
trainer = nnUNetTrainerIEL(plans, "2d", 0, dataset)
trainer.device, trainer.grad_scaler = torch.device("cpu"), None
trainer.initialize()
trainer.current_epoch = trainer.num_epochs - 1
trainer.on_train_epoch_start()
assert trainer.loss.training
torch.manual_seed(rank)
targets = [target[rank : rank + 1] for target in heads_and_targets(trainer)[1]]
image = torch.randn(1, 1, *trainer.configuration_manager.patch_size)
loss = trainer.train_step({"data": image, "target": targets})["loss"]
trainer.on_train_epoch_end([{"loss": loss}])
trainer.on_validation_epoch_start()
assert not trainer.loss.training
if rank == 0:
    trainer.save_checkpoint("saved.pth")
torch.save(trainer.network.module.state_dict(), f"{sys.argv[2]}{rank}.pt")
dist.barrier()
"""


def test_two_processes_train_one_network_with_the_layer(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ranks.py").write_text(RANKS)
    for name, gain in (("with", "15"), ("without", "null")):
        monkeypatch.setenv("nnUNet_iel_gain", gain)
        run_ranks(tmp_path / "ranks.py", Path(__file__).parents[1], name, count=2, stdout=tmp_path / "log")
    weights = {file.stem: dict(torch.load(file)) for file in tmp_path.glob("*.pt")}
    torch.testing.assert_close(weights["with0"], weights["with1"], rtol=0, atol=0)
    assert any(not torch.equal(value, weights["without0"][key]) for key, value in weights["with0"].items())
    assert torch.load("saved.pth", weights_only=False)["trainer_name"] == "nnUNetTrainer"
