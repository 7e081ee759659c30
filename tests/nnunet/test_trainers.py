# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The trainers for nnU-Net, with the real nnU-Net: their losses, labels and settings."""

from copy import deepcopy

import numpy as np
import pytest
import torch

from monai_iels import ConvexCurveMotion, GuidedDiffusion, HeatDiffusion, InverseEvolutionLayer

pytest.importorskip("nnunetv2", reason="nnU-Net is not installed: .ci/nnunet installs it and runs this folder")
from nnunet.drawn import LABELS, REGIONS
from nnunet.trainers import heads_and_targets, image_for, trainer
from nnunetv2.training.loss.compound_losses import DC_and_BCE_loss, DC_and_CE_loss
from nnunetv2.training.loss.dice import MemoryEfficientSoftDiceLoss
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

from monai_iels.nnunet import nnUNetTrainerConvex, nnUNetTrainerIEL


def spacings(made):
    """Return the spacing of each scale, in units of the smallest: the plans' spacing times the pooling so far."""
    pooled, result = np.ones(len(made.configuration_manager.spacing)), []
    for strides in made.configuration_manager.pool_op_kernel_sizes[:-1]:
        pooled = pooled * strides
        result.append(tuple(np.array(made.configuration_manager.spacing) * pooled))
    return result


def guided(spacing):
    return InverseEvolutionLayer(GuidedDiffusion(spacing), gain=15)


def heat(spacing):
    return InverseEvolutionLayer(HeatDiffusion(spacing), gain=15)


def curves(spacing):
    return InverseEvolutionLayer(ConvexCurveMotion(regions=((1,), (2,)), spacing=spacing), reach=6)


def shrunk(image, head):
    """Return the mean of the image over each pixel of a head."""
    for axis in range(2, image.ndim):
        image = image.unflatten(axis, (head.shape[axis], -1)).mean(axis + 1)
    return image


@pytest.mark.parametrize(
    ("kind", "text", "layer"),
    [
        (nnUNetTrainerIEL, "gain: 15", guided),
        (nnUNetTrainerIEL, "evolution: heat", heat),
        (nnUNetTrainerConvex, "reach: 6", curves),
    ],
)
@pytest.mark.parametrize("configuration", ["2d", "3d_fullres"])
def test_gradients_are_those_of_a_layer_and_a_loss_at_each_scale_by_hand(
    home, settings, kind, text, layer, configuration
):
    settings(text)
    made = trainer(home, kind, configuration)
    heads, targets = heads_and_targets(made)
    image = image_for(made)
    made.warmup(made.num_epochs)
    made.loss(heads, targets, image=image).backward()
    inner = DC_and_CE_loss(
        {"batch_dice": made.configuration_manager.batch_dice, "smooth": 1e-5, "do_bg": False, "ddp": False},
        {},
        dice_class=MemoryEfficientSoftDiceLoss,
    )
    if configuration == "3d_fullres":
        assert spacings(made)[0] == (3.0, 1.0, 1.0)
    weights = [0.5**scale for scale in range(len(heads) - 1)]
    for scale, spacing in enumerate(spacings(made)[:-1]):
        evolved = layer(spacing)(heads[scale], shrunk(image, heads[scale]))
        loss = weights[scale] / sum(weights) * inner(evolved, targets[scale])
        (expected,) = torch.autograd.grad(loss, heads[scale])
        torch.testing.assert_close(heads[scale].grad, expected)
    (bare,) = torch.autograd.grad(inner(heads[0], targets[0]) / sum(weights), heads[0])
    assert (heads[0].grad - bare).norm() > 0.1 * bare.norm()


def test_under_autocast_the_layer_works_in_float32(home):
    made = trainer(home)
    heads, targets = heads_and_targets(made)
    image = image_for(made)
    made.warmup(made.num_epochs)
    with torch.autocast("cpu", torch.bfloat16):
        evolved = made.loss.evolved([head.bfloat16() for head in heads], targets, image)
        loss = made.loss([head.bfloat16() for head in heads], targets, image=image)
    assert {head.dtype for head in evolved} == {torch.float32}
    torch.testing.assert_close(evolved[0], guided((3.0, 1.0, 1.0))(heads[0].bfloat16().float(), image))
    torch.testing.assert_close(loss, made.loss([head.bfloat16().float() for head in heads], targets, image=image))


def test_training_has_the_layer_after_a_warm_up_and_validation_is_nnunet_s_own(home, settings):
    settings("epochs: 9\ngain: 6\n")
    made = trainer(home)
    heads, targets = heads_and_targets(made)
    batch = {"data": image_for(made), "target": targets}
    plain = nnUNetTrainer._build_loss(made)
    losses = []
    for epoch in (0, 1, 2, 3, 8):
        made.current_epoch = epoch
        made.on_train_epoch_start()
        losses.append(made.loss(heads, targets, image=batch["data"]).item())
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


@pytest.mark.parametrize("configuration", ["2d", "3d_fullres"])
def test_the_layer_of_each_scale_has_the_image_that_the_network_saw(home, configuration):
    made = trainer(home, configuration=configuration)
    made.warmup(made.num_epochs)
    network, seen = deepcopy(made.network), []
    made.network.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].clone()))
    batch = next(made.get_dataloaders()[0])  # augmented
    made.train_step(batch)

    def gradients(image):
        network.zero_grad()
        heads = network(seen[0])
        layers = map(guided, spacings(made))
        evolved = [layer(head, shrunk(image, head)) for layer, head in zip(layers, heads, strict=True)]
        nnUNetTrainer._build_loss(made)(evolved, batch["target"]).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 12)
        return torch.cat([weight.grad.flatten() for weight in network.parameters() if weight.grad is not None])

    got = torch.cat([weight.grad.flatten() for weight in made.network.parameters() if weight.grad is not None])
    torch.testing.assert_close(got, gradients(seen[0]), rtol=1e-4, atol=1e-5 * got.abs().max().item())
    assert (got - gradients(seen[0].flip(-1))).norm() > 0.01 * got.norm()


def test_in_a_cascade_the_layer_does_not_see_the_segmentation_of_the_stage_before(home):
    made = trainer(home, configuration="3d_cascade_fullres")
    made.warmup(made.num_epochs)
    images = []
    made.loss.layer[0].register_forward_pre_hook(lambda _, inputs: images.append(inputs[1]))
    data = image_for(made, channels=3)  # an image, and which pixels were body and core
    made.train_step({"data": data, "target": heads_and_targets(made)[1]})
    assert torch.equal(images[0], data[:, :1])


def test_a_checkpoint_is_one_of_nnunet_s_own_trainer(home, tmp_path):
    made, plain = trainer(home), trainer(home, nnUNetTrainer)
    made.train_step({"data": image_for(made), "target": heads_and_targets(made)[1]})
    made.save_checkpoint(str(tmp_path / "ours.pth"))
    plain.save_checkpoint(str(tmp_path / "theirs.pth"))
    ours, theirs = (torch.load(tmp_path / f"{name}.pth", weights_only=False) for name in ("ours", "theirs"))
    assert ours.keys() == theirs.keys()
    assert ours["network_weights"].keys() == theirs["network_weights"].keys()
    plain.load_checkpoint(str(tmp_path / "ours.pth"))
    torch.testing.assert_close(plain.network(image_for(made)), made.network(image_for(made)), rtol=0, atol=0)


def test_what_a_network_says_at_ignored_voxels_changes_nothing(home):
    made = trainer(home, labels={**LABELS, "ignore": 3})
    heads, targets = heads_and_targets(made, ignored=3)
    image = image_for(made)
    made.warmup(made.num_epochs)
    value = made.loss(heads, targets, image=image)
    changed = [head.detach().clone() for head in heads]
    for head, target in zip(changed, targets, strict=True):
        head[(target == 3).expand_as(head)] += 100 * torch.randn(())
    torch.testing.assert_close(made.loss(changed, targets, image=image), value.detach(), rtol=0, atol=0)


@pytest.mark.parametrize("kind", [nnUNetTrainerIEL, nnUNetTrainerConvex])
def test_regions_have_a_channel_each(home, kind):
    made = trainer(home, kind, labels=REGIONS, regions_class_order=[1, 2])
    heads, targets = heads_and_targets(made, channels=2)
    targets = [torch.cat([target > 0, target > 1], 1).float() for target in targets]
    image = image_for(made)
    made.warmup(made.num_epochs)
    made.loss(heads, targets, image=image).backward()
    evolution = ConvexCurveMotion(regions=((0,), (1,)), activation="sigmoid", spacing=(3.0, 1.0, 1.0))
    layer = guided((3.0, 1.0, 1.0)) if kind is nnUNetTrainerIEL else InverseEvolutionLayer(evolution, reach=6)
    dice = {"batch_dice": made.configuration_manager.batch_dice, "do_bg": True, "smooth": 1e-5, "ddp": False}
    inner = DC_and_BCE_loss({}, dice, dice_class=MemoryEfficientSoftDiceLoss)
    (expected,) = torch.autograd.grad(inner(layer(heads[0], image), targets[0]), heads[0])
    weight = 1 / sum(0.5**scale for scale in range(len(heads) - 1))
    torch.testing.assert_close(heads[0].grad, weight * expected)


def test_regions_are_named_by_their_labels(home, settings):
    settings("regions: [[body, core], [core]]\nreach: 4\nradii: [3, 6]\n")
    layer = trainer(home, nnUNetTrainerConvex).loss.layer[0]
    assert layer.evolution.regions == ((1, 2), (2,))
    assert layer.evolution.radii == (3, 6)
    assert layer.dt * layer.steps == pytest.approx(4)


def test_a_variable_replaces_the_file(home, settings, monkeypatch):
    settings("gain: 5\nepochs: 30")
    monkeypatch.setenv("nnUNet_iel_gain", "8")
    made = trainer(home)
    assert made.settings["gain"] == 8
    assert made.settings["warmup"] == 10
    assert made.loss.layer[0].gains()[3] == pytest.approx(8)


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
