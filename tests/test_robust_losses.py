# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Losses for labels that may be wrong, against formulas written out and SciPy; some of them in trainings."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import yaml
from helpers import corrupt, options, run
from monai.losses import DiceCELoss, DiceLoss
from programs import run_ranks
from scipy import ndimage, stats

import monai_iels.study
from monai_iels import (
    BootstrappedCrossEntropyLoss,
    GeneralizedCrossEntropyLoss,
    LabeledPixelsLoss,
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
def test_symmetric_cross_entropy_equals_its_formula(shape):
    u, label = example(shape)
    p = u.softmax(1)
    one_hot = F.one_hot(label[:, 0], 3).movedim(-1, 1).double()
    forward = -(one_hot * p.log()).sum(1).mean()
    reverse = -(p * one_hot.log().clamp(min=-4)).sum(1).mean()
    torch.testing.assert_close(SymmetricCrossEntropyLoss(0.3, 0.7)(u, label), 0.3 * forward + 0.7 * reverse)
    torch.testing.assert_close(SymmetricCrossEntropyLoss(1.0, 0.0)(u, label), F.cross_entropy(u, label[:, 0]))


@pytest.mark.parametrize("shape", SHAPES)
def test_bootstrapping_equals_its_formula(shape):
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


def test_t_loss_of_a_large_volume_is_accurate_in_single_precision():
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
def test_spatial_label_smoothing_equals_a_filter_of_scipy(shape, sigma, kernel_size):
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
def test_derivatives_equal_finite_differences(loss, shape):
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
    with pytest.raises(ValueError, match=r"the target must have shape \(2, 1, 5, 4\)"):
        loss(example((5, 4))[0], torch.zeros(2, 5, 4))


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: SymmetricCrossEntropyLoss(-1.0), "`alpha` must be at least 0, got -1.0"),
        (lambda: BootstrappedCrossEntropyLoss(1.5), "`beta` must be at least 0 and at most 1, got 1.5"),
        (lambda: StudentTLoss(0.0), "`nu` must be above 1e-08, got 0.0"),
        (lambda: SpatialLabelSmoothingLoss(0.0), "`sigma` must be above 0, got 0.0"),
        (lambda: SpatialLabelSmoothingLoss(1.0, 4), "`kernel_size` must be an odd number, at least 3, got 4"),
    ],
)
def test_wrong_arguments_are_named(build, sentence):
    with pytest.raises(ValueError, match=sentence):
        build()


# in trainings

METHODS = yaml.safe_load(Path(monai_iels.study.__file__).with_name("methods.yaml").read_text("utf-8"))
RIVALS = {
    "generalized_cross_entropy": GeneralizedCrossEntropyLoss,
    "symmetric_cross_entropy": SymmetricCrossEntropyLoss,
    "bootstrapping": BootstrappedCrossEntropyLoss,
    "t_loss": StudentTLoss,
    "label_smoothing": DiceCELoss,
    "spatial_label_smoothing": SpatialLabelSmoothingLoss,
    "dice_loss": DiceLoss,
}


def weights(output):
    return torch.load(output / "last.pt", weights_only=True)["network"]


@pytest.fixture(scope="module")
def default(tmp_path_factory):
    """Train with the default loss."""
    output = tmp_path_factory.mktemp("default")
    run("Training", **options("wbc", output, epochs=1, label_error=corrupt(), iel_gain="null"))
    return output


@pytest.mark.parametrize("name", RIVALS)
def test_each_loss_trains_in_a_bundle(name, default, tmp_path):
    given = options("wbc", tmp_path, epochs=1, label_error=corrupt(), iel_gain="null", **METHODS[name])
    loss = run("Training", **given).parser.get_parsed_content("loss")
    assert isinstance(loss.loss if isinstance(loss, LabeledPixelsLoss) else loss, RIVALS[name])
    assert ("loss" in torch.load(tmp_path / "last.pt", weights_only=True)) == (name == "t_loss")
    pairs = zip(weights(default).values(), weights(tmp_path).values(), strict=True)
    assert not all(torch.equal(a, b) for a, b in pairs)


def test_a_resumed_training_with_t_loss_is_the_same(tmp_path):
    given = {"label_error": corrupt(), **METHODS["t_loss"]}
    for name, *parts in (("whole", {"epochs": 3}), ("parts", {"epochs": 1}, {"epochs": 3, "resume": True})):
        for part in parts:
            run("Training", **options("wbc", tmp_path / name, **given, **part))
    whole, parts = (torch.load(tmp_path / name / "last.pt", weights_only=True) for name in ("whole", "parts"))
    assert float(whole["loss"]["log_nu"]) != 0
    torch.testing.assert_close(parts, whole, rtol=0, atol=0)


def test_labels_are_opened_and_closed_after_the_error_and_before_the_training(tmp_path):
    given = options("wbc", tmp_path, epochs=1, label_error=corrupt(), **METHODS["morphological_repair"])
    case = run("Training", **given).parser.get_parsed_content("train#dataset")[0]
    unlike = float((case["label"] != case["truth"]).float().mean())
    assert 0 < unlike < 0.05


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
        given = {"epochs": 1, "batch_size": 30, "datalists#count": 33, **METHODS["t_loss"]}
        given |= {"optimizer#_target_": "torch.optim.SGD"}  # its steps are as long as gradients
        overrides = options("wbc", tmp_path / f"out{count}", **given)
        overrides["datalists#cache_dir"] = str(tmp_path / "cache")
        job = json.dumps([overrides, str(tmp_path / f"seen{count}")])
        run_ranks(tmp_path / "ranks.py", job, count=count, stdout=tmp_path / "log")
        seen += [torch.load(tmp_path / f"seen{count}-{rank}.pt") for rank in range(count)]
    assert seen[0] != 0
    torch.testing.assert_close(torch.stack(seen), seen[0].expand(3), rtol=1e-4, atol=0)
    assert seen[1] == seen[2]
