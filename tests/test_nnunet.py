# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The trainers for nnU-Net, with the real nnU-Net: plans, training, resume, prediction, two processes."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import nibabel
import numpy as np
import pytest
import torch
from programs import run_ranks
from servers import wait_for

from monai_iels import ConvexCurveMotion, HeatDiffusion, InverseEvolutionLayer
from monai_iels.cli import main

pytest.importorskip("nnunetv2", reason="nnU-Net is not installed: .ci/nnunet installs it and runs this file")
from nnunetv2.training.loss.compound_losses import DC_and_BCE_loss, DC_and_CE_loss
from nnunetv2.training.loss.dice import MemoryEfficientSoftDiceLoss
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

from monai_iels.nnunet import nnUNetTrainerConvex, nnUNetTrainerIEL

DATASET = "Dataset001_Drawn"
LABELS = {"background": 0, "body": 1, "core": 2}
REGIONS = {"background": 0, "whole": [1, 2], "core": [2]}
SMALL = {"nnUNet_n_proc_DA": "0", "nnUNet_def_n_proc": "1", "nnUNet_compile": "f", "OMP_NUM_THREADS": "1"}


def run(*words, **environment):
    """Run a command to its end and return what it printed."""
    done = subprocess.run(
        [str(word) for word in words],
        env={**os.environ, **environment},
        input="\n",  # later versions of nnU-Net ask before they draw splits
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def draw(folder, count=6):
    """Write volumes with slices of 3 mm in nnU-Net's layout: a ball and its core, in noise."""
    rng = np.random.default_rng(0)
    for name in ("imagesTr", "labelsTr", "imagesTs"):
        (folder / name).mkdir(parents=True)
    x, y, z = np.ogrid[-1:1:32j, -1:1:32j, -1:1:12j]
    for case in range(count):
        distance = np.sqrt((x - rng.uniform(-0.2, 0.2)) ** 2 + (y - rng.uniform(-0.2, 0.2)) ** 2 + z**2)
        label = (distance < 0.7).astype(np.uint8) + (distance < 0.4)
        image = (label + rng.normal(0, 0.1, label.shape)).astype(np.float32)
        affine = np.diag([1.0, 1.0, 3.0, 1.0])
        nibabel.Nifti1Image(image, affine).to_filename(folder / "imagesTr" / f"case_{case}_0000.nii.gz")
        nibabel.Nifti1Image(label, affine).to_filename(folder / "labelsTr" / f"case_{case}.nii.gz")
    description = {"channel_names": {"0": "MRI"}, "labels": LABELS, "numTraining": count, "file_ending": ".nii.gz"}
    (folder / "dataset.json").write_text(json.dumps(description))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Plan and preprocess drawn volumes, with networks that are small enough for a CPU."""
    home = tmp_path_factory.mktemp("nnunet")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("raw", "preprocessed", "results"):
            (home / name).mkdir()
            patch.setenv(f"nnUNet_{name}", str(home / name))
        for name, value in SMALL.items():
            patch.setenv(name, value)
        draw(home / "raw" / DATASET)
        run(
            "nnUNetv2_plan_and_preprocess",
            "-d",
            1,
            "-c",
            "2d",
            "3d_fullres",
            "-np",
            1,
            1,
            "-npfp",
            1,
            nnUNet_n_proc_DA="1",
        )
        file = home / "preprocessed" / DATASET / "nnUNetPlans.json"
        plans = json.loads(file.read_text())
        for configuration in plans["configurations"].values():
            configuration["batch_size"] = 2
            network = configuration["architecture"]["arch_kwargs"]
            network["features_per_stage"] = [4] * network["n_stages"]
        file.write_text(json.dumps(plans))
        yield home


@pytest.fixture
def settings(home):
    """Write `iel.yaml` beside the plans."""
    file = home / "preprocessed" / DATASET / "iel.yaml"
    yield file.write_text
    file.unlink(missing_ok=True)


def trainer(home, kind=nnUNetTrainerIEL, configuration="3d_fullres", **changes):
    folder = home / "preprocessed" / DATASET
    plans, dataset = (json.loads((folder / name).read_text()) for name in ("nnUNetPlans.json", "dataset.json"))
    plans["continue_training"] = False
    made = kind(plans, configuration, 0, {**dataset, **changes}, torch.device("cpu"))
    made.initialize()
    return made


def heads_and_targets(made, channels=3, ignored=None):
    """Return logits and labels of each scale of deep supervision: noise, and the shape of an L, which is concave."""
    random = torch.Generator().manual_seed(0)
    patch = np.array(made.configuration_manager.patch_size)
    sizes = [tuple(np.round(patch * scale).astype(int)) for scale in made._get_deep_supervision_scales()]
    heads = [torch.randn(2, channels, *size, generator=random) for size in sizes]
    for head in heads:
        head[:, 1] += 3
        head[:, 1, ..., : head.shape[-2] // 2, : head.shape[-1] // 2] -= 6
        head.requires_grad_()
    targets = [torch.randint(0, 3, (2, 1, *size), generator=random) for size in sizes]
    if ignored is not None:
        for target in targets:
            target[torch.rand(target.shape, generator=random) < 0.2] = ignored
    return heads, targets


def spacings(made):
    """Return the spacing of each scale, in units of the smallest: the plans' spacing times the pooling so far."""
    pooled, result = np.ones(len(made.configuration_manager.spacing)), []
    for strides in made.configuration_manager.pool_op_kernel_sizes[:-1]:
        pooled = pooled * strides
        result.append(tuple(np.array(made.configuration_manager.spacing) * pooled))
    return result


def heat(spacing):
    return InverseEvolutionLayer(HeatDiffusion(spacing), gain=15)


def curves(spacing):
    return InverseEvolutionLayer(ConvexCurveMotion(regions=((1,), (2,)), spacing=spacing), reach=6)


# The loss


@pytest.mark.parametrize(("kind", "layer"), [(nnUNetTrainerIEL, heat), (nnUNetTrainerConvex, curves)])
@pytest.mark.parametrize("configuration", ["2d", "3d_fullres"])
def test_gradients_are_those_of_a_layer_and_a_loss_at_each_scale_by_hand(home, kind, layer, configuration):
    made = trainer(home, kind, configuration)
    heads, targets = heads_and_targets(made)
    made.warmup(made.num_epochs)
    made.loss(heads, targets).backward()
    inner = DC_and_CE_loss(
        {"batch_dice": made.configuration_manager.batch_dice, "smooth": 1e-5, "do_bg": False, "ddp": False},
        {},
        dice_class=MemoryEfficientSoftDiceLoss,
    )
    if configuration == "3d_fullres":
        assert spacings(made)[0] == (3.0, 1.0, 1.0)
    weights = [0.5**scale for scale in range(len(heads) - 1)]
    for scale, spacing in enumerate(spacings(made)[:-1]):
        loss = weights[scale] / sum(weights) * inner(layer(spacing)(heads[scale]), targets[scale])
        (expected,) = torch.autograd.grad(loss, heads[scale])
        torch.testing.assert_close(heads[scale].grad, expected)
    (bare,) = torch.autograd.grad(inner(heads[0], targets[0]) / sum(weights), heads[0])
    assert (heads[0].grad - bare).norm() > 0.1 * bare.norm()


def test_under_autocast_the_layer_works_in_float32(home):
    made = trainer(home)
    heads, targets = heads_and_targets(made)
    made.warmup(made.num_epochs)
    with torch.autocast("cpu", torch.bfloat16):
        evolved = made.loss.evolved([head.bfloat16() for head in heads], targets)
        loss = made.loss([head.bfloat16() for head in heads], targets)
    assert {head.dtype for head in evolved} == {torch.float32}
    torch.testing.assert_close(evolved[0], heat((3.0, 1.0, 1.0))(heads[0].bfloat16().float()))
    torch.testing.assert_close(loss, made.loss([head.bfloat16().float() for head in heads], targets))


def test_training_has_the_layer_after_a_warm_up_and_validation_is_nnunet_s_own(home, settings):
    settings("epochs: 9\ngain: 6\n")
    made = trainer(home)
    heads, targets = heads_and_targets(made)
    batch = {"data": torch.randn(2, 1, *made.configuration_manager.patch_size), "target": targets}
    plain = nnUNetTrainer._build_loss(made)
    losses = []
    for epoch in (0, 1, 2, 3, 8):
        made.current_epoch = epoch
        made.on_train_epoch_start()
        losses.append(made.loss(heads, targets).item())
    first, second, third, full, last = losses
    assert first == pytest.approx(plain(heads, targets).item(), rel=1e-5)
    assert first < second < third < full == last

    made.on_validation_epoch_start()
    with torch.no_grad():
        expected = plain(made.network(batch["data"]), targets)
    assert made.validation_step(deepcopy(batch))["loss"] == expected.numpy()


def test_without_a_gain_it_is_nnunet_s_loss(home, monkeypatch):
    monkeypatch.setenv("nnUNet_iel_gain", "null")
    made = trainer(home)
    heads, targets = heads_and_targets(made)
    made.warmup(made.num_epochs)
    torch.testing.assert_close(made.loss(heads, targets), nnUNetTrainer._build_loss(made)(heads, targets))


# Labels


def test_what_a_network_says_at_ignored_voxels_changes_nothing(home):
    made = trainer(home, labels={**LABELS, "ignore": 3})
    heads, targets = heads_and_targets(made, ignored=3)
    made.warmup(made.num_epochs)
    value = made.loss(heads, targets)
    changed = [head.detach().clone() for head in heads]
    for head, target in zip(changed, targets, strict=True):
        head[(target == 3).expand_as(head)] += 100 * torch.randn(())
    torch.testing.assert_close(made.loss(changed, targets), value.detach(), rtol=0, atol=0)


@pytest.mark.parametrize("kind", [nnUNetTrainerIEL, nnUNetTrainerConvex])
def test_regions_have_a_channel_each(home, kind):
    made = trainer(home, kind, labels=REGIONS, regions_class_order=[1, 2])
    heads, targets = heads_and_targets(made, channels=2)
    targets = [torch.cat([target > 0, target > 1], 1).float() for target in targets]
    made.warmup(made.num_epochs)
    made.loss(heads, targets).backward()
    evolution = ConvexCurveMotion(regions=((0,), (1,)), activation="sigmoid", spacing=(3.0, 1.0, 1.0))
    layer = heat((3.0, 1.0, 1.0)) if kind is nnUNetTrainerIEL else InverseEvolutionLayer(evolution, reach=6)
    dice = {"batch_dice": made.configuration_manager.batch_dice, "do_bg": True, "smooth": 1e-5, "ddp": False}
    inner = DC_and_BCE_loss({}, dice, dice_class=MemoryEfficientSoftDiceLoss)
    (expected,) = torch.autograd.grad(inner(layer(heads[0]), targets[0]), heads[0])
    weight = 1 / sum(0.5**scale for scale in range(len(heads) - 1))
    torch.testing.assert_close(heads[0].grad, weight * expected)


def test_regions_are_named_by_their_labels(home, settings):
    settings("regions: [[body, core], [core]]\nreach: 4\nradii: [3, 6]\n")
    layer = trainer(home, nnUNetTrainerConvex).loss.layer[0]
    assert layer.evolution.regions == ((1, 2), (2,))
    assert layer.evolution.radii == (3, 6)
    assert layer.dt * layer.steps == pytest.approx(4)


# Settings


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("gian: 15", r"iel\.yaml: unknown key 'gian': did you mean 'gain'\?"),
        ("gain: 0.5", r"iel\.yaml: gain must be a number above 1, or null for no layer, got 0\.5"),
        ("gain: high", r"iel\.yaml: gain must be a number above 1, or null for no layer, got 'high'"),
        (
            "epochs: 3\nwarmup: 3",
            r"warmup must be a whole number of epochs, at least 0 and below the 3 epochs of the tr",
        ),
        ("epochs: 0", r"epochs must be a whole number, at least 1, got 0"),
        ("threads: 0", r"threads must be a whole number, at least 1, or null, got 0"),
        ("radii: 5", r"radii must be a list of millimeters above 0, such as \[5, 10, 15\], got 5"),
        ("regions: [[hat]]", r"regions: there is no label 'hat' in dataset\.json; it has body, core"),
        ("regions: body", r"regions must be groups of labels of dataset\.json, such as .*, got 'body'"),
        (
            "gain 15",
            r"iel\.yaml must hold keys and values \(settings of the layer, such as `gain: 15`\), got 'gain 15'",
        ),
        ("gain: [", r"iel\.yaml must hold settings .* but it is broken in line"),
    ],
)
def test_a_bad_setting_is_one_sentence(home, settings, text, sentence):
    settings(text)
    with pytest.raises(ValueError, match=sentence):
        trainer(home, nnUNetTrainerConvex)


def test_a_variable_replaces_the_file_and_is_named_when_it_is_wrong(home, settings, monkeypatch):
    settings("gain: 5\nepochs: 30")
    monkeypatch.setenv("nnUNet_iel_gain", "8")
    made = trainer(home)
    assert made.settings["gain"] == 8
    assert made.settings["warmup"] == 10
    assert made.loss.layer[0].gains()[3] == pytest.approx(8)
    monkeypatch.setenv("nnUNet_iel_gain", "-8")
    with pytest.raises(ValueError, match="the variable nnUNet_iel_gain: gain must be a number above 1"):
        trainer(home)
    monkeypatch.setenv("nnUNet_iel_gain", "[")
    with pytest.raises(ValueError, match="nnUNet_iel_gain must be a value in YAML, but it is broken"):
        trainer(home)


def test_a_training_takes_as_many_threads_as_it_is_told(home, settings):
    before = torch.get_num_threads()
    try:
        for threads in (2, 1):
            settings(f"threads: {threads}")
            trainer(home)
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_regions_with_an_ignore_label_are_refused(home):
    with pytest.raises(ValueError, match=r"Dataset001_Drawn has regions and an ignore label.*remove one of them"):
        trainer(home, labels={**REGIONS, "ignore": 3}, regions_class_order=[1, 2])


# Whole trainings

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
    assert "InverseEvolutionLayer(HeatDiffusion(spacing=(1.0, 1.0))" in first
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


def test_the_command_names_the_folder_and_keeps_those_of_the_user(capsys, monkeypatch):
    monkeypatch.setenv("nnUNet_extTrainer", "/mine")
    assert main(["nnunet", "export"]) == 0
    name, _, folders = capsys.readouterr().out.strip().removeprefix("export ").partition("=")
    mine, ours = folders.split(os.pathsep)
    assert (name, mine) == ("nnUNet_extTrainer", "/mine")
    assert [file.name for file in Path(ours).glob("*.py")] == ["monai_iels_trainers.py"]


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

    page = (Path(__file__).parents[1] / "docs" / "do" / "nnunet.md").read_text("utf-8")
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
from test_nnunet import Path, heads_and_targets, json, nnUNetTrainerIEL, DATASET

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
        run_ranks(tmp_path / "ranks.py", Path(__file__).parent, name, count=2, stdout=tmp_path / "log")
    weights = {file.stem: dict(torch.load(file)) for file in tmp_path.glob("*.pt")}
    torch.testing.assert_close(weights["with0"], weights["with1"], rtol=0, atol=0)
    assert any(not torch.equal(value, weights["without0"][key]) for key, value in weights["with0"].items())
    assert torch.load("saved.pth", weights_only=False)["trainer_name"] == "nnUNetTrainer"
