# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Other remedies against label errors: the losses by themselves, and each as one key of a bundle."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from helpers import FEATURES, history, options, prepare, run
from ignite.engine import Events
from programs import run_ranks
from scipy import ndimage, stats

import monai_iels.runs
from monai_iels import (
    BootstrappedCrossEntropyLoss,
    GeneralizedCrossEntropyLoss,
    LabeledPixelsLoss,
    OpenCloseLabel,
    OpenCloseLabeld,
    SpatialLabelSmoothingLoss,
    StudentTLoss,
    SymmetricCrossEntropyLoss,
)

RANDOM = torch.Generator().manual_seed(0)
SHAPES = [(5, 4), (3, 4, 5)]
ALIKE = [GeneralizedCrossEntropyLoss(), SymmetricCrossEntropyLoss(), BootstrappedCrossEntropyLoss()]
ALIKE += [BootstrappedCrossEntropyLoss(0.8, hard=True)]
LOSSES = [*ALIKE, StudentTLoss(), SpatialLabelSmoothingLoss()]
WITH_GAPS = [LabeledPixelsLoss(loss) for loss in ALIKE]
WITH_GAPS += [StudentTLoss(ignore_index=255), SpatialLabelSmoothingLoss(ignore_index=255)]


def example(shape, classes=3, dtype=torch.float64):
    """Return random logits of two images, and random labels."""
    u = torch.randn(2, classes, *shape, generator=RANDOM, dtype=torch.float64).to(dtype)
    return u, torch.randint(0, classes, (2, 1, *shape), generator=RANDOM)


# closed forms


@pytest.mark.parametrize("shape", SHAPES)
def test_symmetric_cross_entropy_by_hand(shape):
    u, label = example(shape)
    p = u.softmax(1)
    one_hot = F.one_hot(label[:, 0], 3).movedim(-1, 1).double()
    forward = -(one_hot * p.log()).sum(1).mean()
    reverse = -(p * one_hot.log().clamp(min=-4)).sum(1).mean()
    torch.testing.assert_close(SymmetricCrossEntropyLoss(0.3, 0.7)(u, label), 0.3 * forward + 0.7 * reverse)
    torch.testing.assert_close(SymmetricCrossEntropyLoss(1.0, 0.0)(u, label), F.cross_entropy(u, label[:, 0]))


@pytest.mark.parametrize("shape", SHAPES)
def test_bootstrapping_by_hand(shape):
    u, label = example(shape)
    p, entropy = u.softmax(1), F.cross_entropy(u, label[:, 0])
    one_hot = F.one_hot(label[:, 0], 3).movedim(-1, 1)
    for hard in (False, True):
        torch.testing.assert_close(BootstrappedCrossEntropyLoss(1.0, hard)(u, label), entropy)
        opinion = F.one_hot(p.argmax(1), 3).movedim(-1, 1) if hard else p
        mixture = 0.6 * one_hot + 0.4 * opinion
        torch.testing.assert_close(
            BootstrappedCrossEntropyLoss(0.6, hard)(u, label), -(mixture * p.log()).sum(1).mean()
        )


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("nu", [0.01, 1.0, 30.0])
def test_t_loss_is_the_likelihood_of_the_residuals_in_coordinates_of_their_own(shape, classes, nu):
    u, label = example(shape, classes)
    residual = F.one_hot(label[:, 0], classes) - u.softmax(1).movedim(1, -1)
    plane = torch.linalg.svd(torch.ones(1, classes, dtype=torch.float64)).Vh[1:]  # those that sum to 0
    coordinates = (residual @ plane.T / 2**0.5).flatten(1).numpy()
    of_t = stats.multivariate_t(np.zeros(coordinates.shape[1]), np.eye(coordinates.shape[1]), df=nu)
    expected = -of_t.logpdf(coordinates).mean() / coordinates.shape[1]
    assert StudentTLoss(nu)(u, label).item() == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_t_loss_of_two_classes_is_that_of_the_foreground():
    u, label = example((5, 4), classes=2)
    residual = (label - u.softmax(1)[:, 1:]).flatten(1).numpy()
    expected = -stats.multivariate_t(np.zeros(20), np.eye(20), df=1.0).logpdf(residual).mean() / 20
    assert StudentTLoss()(u, label).item() == pytest.approx(expected, rel=1e-5)


def test_t_loss_of_a_large_volume_in_single_precision():
    u, label = example((64, 64, 64))
    single, double = StudentTLoss(), StudentTLoss().double()
    losses = single(u.float(), label), double(u, label)
    torch.testing.assert_close(losses[0], losses[1].float(), rtol=1e-5, atol=1e-5)
    slopes = [torch.autograd.grad(loss, each.log_nu)[0] for loss, each in zip(losses, (single, double), strict=True)]
    torch.testing.assert_close(slopes[0].double(), slopes[1], rtol=1e-4, atol=0)
    for log_nu in (-15.0, 20.0):
        single.log_nu.data.fill_(log_nu)
        single(u.float(), label).backward()
        assert torch.isfinite(single.log_nu.grad)


def test_t_loss_learns_how_much_to_trust_and_counts_bad_images_less():
    sure = torch.stack([torch.full((8, 8), 6.0), torch.zeros(8, 8)])[None].repeat(2, 1, 1, 1).requires_grad_()
    label = torch.zeros(2, 1, 8, 8)
    label[1] = 1  # wrong everywhere
    label[0, 0, 0, 0] = 1  # wrong in a pixel
    loss = StudentTLoss()
    loss(sure, label).backward()
    assert loss.log_nu.grad.abs() > 0
    assert sure.grad[1, 1, 0, 0].abs() < 0.2 * sure.grad[0, 1, 0, 0].abs()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("sigma", "kernel_size"), [(1.0, 3), (0.7, 5)])
def test_spatial_label_smoothing_by_a_filter_of_its_own(shape, sigma, kernel_size):
    u, label = example(shape)
    at = np.arange(kernel_size) - kernel_size // 2
    distance = sum(np.meshgrid(*[at**2] * len(shape), indexing="ij"))
    kernel = np.exp(-distance / (2 * sigma**2))
    kernel[distance == 0] = kernel[distance > 0].sum()
    kernel /= kernel.sum()
    one_hot = F.one_hot(label[:, 0], 3).movedim(-1, 1).double().numpy()
    expected = torch.tensor(ndimage.correlate(one_hot, kernel[None, None], mode="nearest"))
    loss = SpatialLabelSmoothingLoss(sigma, kernel_size)
    soft = loss.smoothed(label, 3).double()
    torch.testing.assert_close(soft, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(soft.sum(1), torch.ones_like(soft[:, 0]), rtol=0, atol=1e-6)
    torch.testing.assert_close(loss(u, label), F.cross_entropy(u, expected), rtol=1e-5, atol=0)


@pytest.mark.parametrize("shape", SHAPES)
def test_spatial_label_smoothing_leaves_the_inside_of_regions(shape):
    u, label = example(shape)
    label[:] = 1
    torch.testing.assert_close(SpatialLabelSmoothingLoss()(u, label), F.cross_entropy(u, label[:, 0]))


# what all losses share


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("shape", [(3, 4), (3, 2, 3)])
def test_gradients(loss, shape):
    u, label = example(shape)
    assert torch.autograd.gradcheck(lambda v: loss.double()(v, label), u.requires_grad_(), atol=1e-4)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single_precision(loss, dtype):
    u, label = example((5, 4), dtype=dtype)
    loss = loss.float()
    with torch.autocast("cpu", torch.bfloat16):
        found = loss(60 * u, label)
    torch.testing.assert_close(found, loss((60 * u).float(), label), rtol=1e-3, atol=1e-5)
    assert found.dtype == torch.float32
    assert torch.isfinite(found)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("loss", WITH_GAPS, ids=repr)
def test_pixels_without_a_label_count_for_nothing(loss, shape):
    u, label = example(shape)
    label[:, :, 1] = 255
    label[1] = 255
    u.requires_grad_()
    loss(u, label).backward()
    ignored = (label == 255).expand_as(u)
    assert not u.grad[ignored].any()
    assert u.grad[~ignored].all()
    changed = torch.where(ignored, -u, u)
    torch.testing.assert_close(loss(changed, label), loss(u, label))
    label[:] = 255
    assert loss(u, label).item() == 0


def test_t_loss_and_smoothing_of_the_labeled_part_are_those_of_a_smaller_image():
    u, label = example((6, 4))
    label[:, :, 4:] = 255
    part = u[:, :, :4], label[:, :, :4]
    torch.testing.assert_close(StudentTLoss(ignore_index=255)(u, label), StudentTLoss()(*part))
    soft = SpatialLabelSmoothingLoss(ignore_index=255).smoothed(label, 3)
    torch.testing.assert_close(soft.sum(1)[:, :4], torch.ones(2, 4, 4))
    torch.testing.assert_close(soft[:, :, :3], SpatialLabelSmoothingLoss().smoothed(part[1], 3)[:, :, :3])


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_a_label_of_another_shape_is_refused(loss):
    with pytest.raises(ValueError, match=r"Expected classes of shape \(2, 1, 5, 4\)"):
        loss(example((5, 4))[0], torch.zeros(2, 5, 4))


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: SymmetricCrossEntropyLoss(-1.0), "`alpha` and `beta` >= 0, got -1.0"),
        (lambda: BootstrappedCrossEntropyLoss(1.5), "`beta` in"),
        (lambda: StudentTLoss(0.0), "`nu` > 1e-08, got 0.0"),
        (lambda: SpatialLabelSmoothingLoss(0.0), "`sigma` > 0"),
        (lambda: SpatialLabelSmoothingLoss(1.0, 4), "odd number from 3, got 4"),
        (lambda: OpenCloseLabel(-1.0), "`radius` >= 0"),
    ],
)
def test_wrong_arguments(build, sentence):
    with pytest.raises(ValueError, match=sentence):
        build()


# labels opened and closed


@pytest.mark.parametrize("dims", [2, 3])
def test_specks_are_removed_and_gaps_filled(dims):
    distance = sum(axis**2 for axis in torch.meshgrid(*[torch.arange(32) - 15.5] * dims, indexing="ij")).sqrt()[None]
    label = (distance < 13).byte() + (distance < 7)
    noisy = label.clone()
    for corner, value in ((15, 1), (9, 2), (22, 0), (0, 1)):
        noisy[(0, *[slice(corner, corner + 2)] * (dims - 1), slice(15, 17))] = value
    assert not torch.equal(noisy, label)
    repaired = OpenCloseLabel()(noisy)
    assert repaired.dtype == label.dtype
    rounded = OpenCloseLabel()(label)  # some voxels of the outlines change
    assert (rounded != label).float().mean() < 0.001
    assert (repaired != rounded).sum() < 0.2 * (noisy != label).sum()
    assert torch.equal(OpenCloseLabel(0.0)(noisy), noisy)
    assert torch.equal(OpenCloseLabeld("label")({"label": noisy})["label"], repaired)


def test_opening_is_that_of_scipy():
    label = torch.as_tensor(np.random.default_rng(0).integers(0, 2, (1, 30, 30)))
    label[0, :9, 20:] = 1
    classes = [(label[0] == number).numpy() for number in (0, 1)]
    square = np.ones((3, 3))

    def opened_and_closed(mask):
        opened = ndimage.binary_dilation(ndimage.binary_erosion(mask, square), square)
        return ndimage.binary_erosion(ndimage.binary_dilation(np.pad(opened, 2), square), square)[2:-2, 2:-2]

    claims = [opened_and_closed(mask) for mask in classes]
    repaired = OpenCloseLabel(1.5)(label)[0].numpy()
    alone = claims[0] != claims[1]
    assert alone.any()
    assert np.array_equal(repaired[alone], claims[1][alone])


def test_ignored_pixels_stay_and_others_do_not_join_them():
    label = torch.zeros(1, 20, 20)
    label[:, 10:] = 3
    label[:, 5:15, 8:12] = 255
    noisy = label.clone()
    noisy[:, 12, 15] = 0
    assert torch.equal(OpenCloseLabel(ignore_index=255)(noisy), label)
    everywhere = torch.full((1, 4, 4), 255)
    assert torch.equal(OpenCloseLabel(1.5, ignore_index=255)(everywhere), everywhere)


# as keys of a bundle

RIVALS = {
    "generalized_cross_entropy": GeneralizedCrossEntropyLoss,
    "symmetric_cross_entropy": SymmetricCrossEntropyLoss,
    "bootstrapping": BootstrappedCrossEntropyLoss,
    "t_loss": StudentTLoss,
    "label_smoothing": torch.nn.Module,
    "spatial_label_smoothing": SpatialLabelSmoothingLoss,
    "dice_loss": torch.nn.Module,
}


def weights(output, file="last.pt"):
    state = torch.load(output / file, weights_only=True)
    return state["network"] if file == "last.pt" else state


@pytest.fixture(scope="module")
def default(tmp_path_factory):
    """Train with the default loss."""
    output = tmp_path_factory.mktemp("default")
    run("Training", **options("wbc", output, epochs=1, noise_fraction=0.1, iel_steps=0))
    return output


@pytest.mark.parametrize("key", RIVALS)
def test_each_loss_is_one_key(key, default, tmp_path):
    given = options("wbc", tmp_path, epochs=1, noise_fraction=0.1, iel_steps=0, loss=f"@{key}")
    parser = run("Training", **given).parser
    loss = parser.get_parsed_content("loss")
    assert isinstance(loss.loss if isinstance(loss, LabeledPixelsLoss) else loss, RIVALS[key])
    assert ("loss" in torch.load(tmp_path / "last.pt", weights_only=True)) == (key == "t_loss")
    pairs = zip(weights(default).values(), weights(tmp_path).values(), strict=True)
    assert not all(torch.equal(a, b) for a, b in pairs)


def test_a_resumed_training_with_t_loss_is_the_same(tmp_path):
    given = {"noise_fraction": 0.1, "loss": "@t_loss"}
    for name, *parts in (("whole", {"epochs": 3}), ("parts", {"epochs": 1}, {"epochs": 3, "resume": True})):
        for part in parts:
            run("Training", **options("wbc", tmp_path / name, **given, **part))
    whole, parts = (torch.load(tmp_path / name / "last.pt", weights_only=True) for name in ("whole", "parts"))
    assert float(whole["loss"]["log_nu"]) != 0
    torch.testing.assert_close(parts, whole, rtol=0, atol=0)


def test_morphological_repair_is_one_key(tmp_path):
    given = options("wbc", tmp_path, epochs=1, noise_fraction=0.1, repair="@morphological_repair")
    case = run("Training", **given).parser.get_parsed_content("train#dataset")[0]
    unlike = float((case["label"] != case["truth"]).float().mean())
    assert 0 < unlike < 0.05


# a moving average of the weights


class Recorder:
    """Keep the weights after each step."""

    def __init__(self, network):
        self.network = network
        self.seen = []

    def attach(self, engine):
        engine.add_event_handler(Events.ITERATION_COMPLETED, self)

    def __call__(self, engine):
        self.seen.append({name: value.clone() for name, value in self.network.state_dict().items()})


BATCH_NORM = {"norm": "batch", "_target_": "BasicUNet", "spatial_dims": 2, "in_channels": 3, "out_channels": 3}
BATCH_NORM["features"] = FEATURES


def test_the_average_is_validated_and_saved_and_the_training_is_the_same(tmp_path):
    given = {"epochs": 1, "noise_fraction": 0.1, "network_def": BATCH_NORM}
    run("Training", **options("wbc", tmp_path / "without", **given))
    workflow = prepare("Training", **options("wbc", tmp_path / "with", **given, ema_decay=0.7))
    recorder = Recorder(workflow.parser.get_parsed_content("network_def"))
    recorder.attach(workflow.parser.get_parsed_content("train#trainer"))
    workflow.run()
    torch.testing.assert_close(weights(tmp_path / "with"), weights(tmp_path / "without"), rtol=0, atol=0)
    average = recorder.seen[0]
    for seen in recorder.seen[1:]:
        average = {name: 0.7 * average[name] + 0.3 * value for name, value in seen.items()}
    buffers = {name for name, _ in recorder.network.named_buffers()}
    assert buffers
    average |= {name: recorder.seen[-1][name] for name in buffers}
    found = weights(tmp_path / "with", "model.pt")
    torch.testing.assert_close(found, average)
    raw = weights(tmp_path / "with")
    assert not any(torch.equal(found[name], raw[name]) for name in found.keys() - buffers)
    judged = workflow.parser.get_parsed_content("validate#evaluator").network
    torch.testing.assert_close(dict(judged.state_dict()), found, rtol=0, atol=0)
    assert "average" not in torch.load(tmp_path / "without" / "last.pt", weights_only=True)
    dice = history(tmp_path / "with")[-1]["val_mean_dice"]
    run("Evaluation", **options("wbc", tmp_path / "with", **given, ema_decay=0.7))
    evaluated = pd.read_csv(tmp_path / "with" / "evaluation" / "cases.csv")
    assert evaluated.filter(like="dice").mean(axis=None) == pytest.approx(dice, abs=1e-4)


def test_a_resumed_training_with_an_average_is_the_same(tmp_path):
    given = {"noise_fraction": 0.1, "ema_decay": 0.9}
    for name, *parts in (("whole", {"epochs": 3}), ("parts", {"epochs": 1}, {"epochs": 3, "resume": True})):
        for part in parts:
            run("Training", **options("wbc", tmp_path / name, **given, **part))
    for file in ("last.pt", "model.pt"):
        whole, parts = (torch.load(tmp_path / name / file, weights_only=True) for name in ("whole", "parts"))
        torch.testing.assert_close(parts, whole, rtol=0, atol=0)
    whole, parts = ([epoch["val_mean_dice"] for epoch in history(tmp_path / name)] for name in ("whole", "parts"))
    assert parts == whole


@pytest.mark.parametrize("decay", [1, -0.1, "slow"])
def test_a_decay_that_is_none(decay, tmp_path):
    with pytest.raises(monai_iels.runs.RunError, match="ema_decay must be a number from 0 to below 1"):
        run("Training", **options("wbc", tmp_path, ema_decay=decay))


# several processes

RANKS = """
import json, sys, torch
import ignite.distributed as idist
from monai.bundle import create_workflow
overrides, place = json.loads(sys.argv[1])
workflow = create_workflow("monai_iels.Training", **overrides)
workflow.run()
nu = workflow.parser.get_parsed_content("loss").log_nu.detach()
torch.save(nu, f"{place}-{idist.get_rank()}.pt")
workflow.finalize()
"""


def test_two_processes_learn_the_same_nu_as_one(tmp_path):
    (tmp_path / "ranks.py").write_text(RANKS)
    seen = []
    for count in (1, 2):
        given = {"epochs": 1, "batch_size": 30, "sample_count": 33, "loss": "@t_loss"}
        given |= {"optimizer#_target_": "torch.optim.SGD"}  # its steps are as long as gradients
        overrides = options("wbc", tmp_path / f"out{count}", **given)
        overrides.update(cache_dir=str(tmp_path / "cache"))
        job = json.dumps([overrides, str(tmp_path / f"seen{count}")])
        run_ranks(tmp_path / "ranks.py", job, count=count, stdout=tmp_path / "log")
        seen += [torch.load(tmp_path / f"seen{count}-{rank}.pt") for rank in range(count)]
    assert seen[0] != 0
    torch.testing.assert_close(torch.stack(seen), seen[0].expand(3), rtol=1e-4, atol=0)
    assert seen[1] == seen[2]
