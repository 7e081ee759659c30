# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Losses with a layer inside, of labels with gaps, and those that the layers are compared with."""

import math
import re
from pathlib import Path

import pytest
import torch
import yaml
from monai.bundle import ConfigParser
from monai.data import MetaTensor
from monai.losses import DeepSupervisionLoss, DiceCELoss, DiceLoss

from monai_iels import (
    ConvexCurveMotion,
    GeneralizedCrossEntropyLoss,
    GradientEnergyLoss,
    GuidedDiffusion,
    HeatDiffusion,
    IELLoss,
    IELNet,
    InverseEvolutionLayer,
    LabeledPixelsLoss,
    QuasiConcavityLoss,
)
from monai_iels.operators.extension import extend


def field(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def nothing(input, target):
    return torch.zeros((), dtype=input.dtype)


def test_a_ramp_has_its_slope_squared_times_its_length():
    h = 0.25
    ramp = (3.0 * h * torch.arange(9, dtype=torch.float64)).expand(1, 1, 5, 9)
    energy = GradientEnergyLoss(nothing, spacing=h).energy(ramp)
    torch.testing.assert_close(energy, torch.full((1, 1, 1, 1), 9.0 * (8 * h) * (5 * h)).double())


def test_the_energy_converges_to_the_integral_when_pixels_shrink():
    """For cos(pi x) cos(2 pi y) on the unit square it is 5 pi^2 / 4."""
    errors = []
    for size in (32, 64):
        x = (torch.arange(size, dtype=torch.float64) + 0.5) / size
        u = (torch.cos(math.pi * x)[:, None] * torch.cos(2 * math.pi * x))[None, None]
        errors.append(abs(GradientEnergyLoss(nothing, spacing=1 / size)(u, None).item() - 1.25 * math.pi**2))
    assert errors[1] < 0.3 * errors[0] < 0.1


@pytest.mark.parametrize("shape", [(5, 6), (3, 4, 5)])
def test_the_gradient_of_the_energy_is_the_laplacian(shape):
    """Heat diffusion is the gradient flow of this energy, so there is no artificial edge at the border."""
    spacing = tuple(1.0 + axis for axis in range(len(shape)))
    u = field(2, 3, *shape).requires_grad_()
    GradientEnergyLoss(nothing, spacing=spacing, reduction="sum")(u, None).backward()
    torch.testing.assert_close(u.grad, -2 * math.prod(spacing) * HeatDiffusion(spacing).velocity(u.detach()))


def test_constants_have_no_energy_and_derivatives_equal_finite_differences():
    assert GradientEnergyLoss(nothing).energy(torch.full((2, 2, 4, 4), 7.0)).abs().max() == 0
    u = field(1, 2, 4, 5).requires_grad_()
    assert torch.autograd.gradcheck(lambda u: GradientEnergyLoss(nothing, 0.5)(u, None), (u,))


@pytest.mark.parametrize("weight", [0.0, 1.0, 2.0])
def test_the_energy_is_added_to_the_loss(weight):
    u, label = field(2, 3, 8, 8).float(), torch.randint(0, 3, (2, 1, 8, 8))
    inner = DiceCELoss(to_onehot_y=True, softmax=True)
    loss = GradientEnergyLoss(inner, weight)
    torch.testing.assert_close(loss(u, label), inner(u, label) + weight * loss.energy(u).mean())


def test_energies_are_reduced_as_asked():
    u, label = field(2, 3, 8, 8), torch.ones(2, 3, 8, 8)
    energies = GradientEnergyLoss(nothing).energy(u)
    assert energies.shape == (2, 3, 1, 1)
    for reduction, expected in (("mean", energies.mean()), ("sum", energies.sum()), ("none", energies)):
        torch.testing.assert_close(GradientEnergyLoss(nothing, reduction=reduction)(u, label), expected)
    with pytest.raises(ValueError, match=r"the loss must be a number or of shape \(2, 3, 1, 1\).*got \(2, 8, 8\)"):
        GradientEnergyLoss(torch.nn.CrossEntropyLoss(reduction="none"), reduction="none")(u, label.argmax(1))
    both = GradientEnergyLoss(DiceLoss(sigmoid=True, reduction="none"), reduction="none")(u, label)
    assert both.shape == (2, 3, 1, 1)


def test_half_precision_does_not_overflow():
    u = (300 * field(1, 1, 16, 16)).half()
    assert GradientEnergyLoss(lambda input, target: 0.0)(u, None).isfinite()


def test_the_energy_works_with_meta_tensors_autocast_and_deep_supervision():
    u, label = field(2, 2, 8, 8).float(), torch.randint(0, 2, (2, 1, 8, 8))
    loss = GradientEnergyLoss(DiceCELoss(to_onehot_y=True, softmax=True))
    torch.testing.assert_close(loss(MetaTensor(u), MetaTensor(label)).as_tensor(), loss(u, label))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(loss.energy(u), loss.energy(u.clone()))
        assert loss(u, label).isfinite()
    assert DeepSupervisionLoss(loss)([u, u[..., ::2, ::2]], label.float()).isfinite()


def test_wrong_arguments_are_named():
    with pytest.raises(TypeError, match="`loss` must be a loss such as"):
        GradientEnergyLoss("dice")
    with pytest.raises(ValueError, match="`weight` must be at least 0, got -1"):
        GradientEnergyLoss(nothing, -1)
    with pytest.raises(ValueError, match="median"):
        GradientEnergyLoss(nothing, reduction="median")
    with pytest.raises(ValueError, match="`spacing`"):
        GradientEnergyLoss(nothing, spacing=0)
    assert "weight=2.0, spacing=1.0, reduction=mean" in repr(GradientEnergyLoss(torch.nn.CrossEntropyLoss(), 2.0))


def test_generalized_cross_entropy_is_between_cross_entropy_and_the_absolute_error():
    u, label = field(2, 3, 5, 4), torch.randint(0, 3, (2, 1, 5, 4), generator=torch.Generator().manual_seed(0))
    probability = u.softmax(1).gather(1, label)
    torch.testing.assert_close(GeneralizedCrossEntropyLoss(1.0)(u, label), (1 - probability).mean())
    entropy = torch.nn.functional.cross_entropy(u, label[:, 0])
    torch.testing.assert_close(GeneralizedCrossEntropyLoss(1e-4)(u, label), entropy, rtol=1e-3, atol=0)
    expected = ((1 - probability**0.7) / 0.7).mean()
    torch.testing.assert_close(GeneralizedCrossEntropyLoss()(u, label.float()), expected)


def test_generalized_cross_entropy_pulls_less_at_labels_that_seem_wrong():
    u = torch.tensor([[4.0, 0.0]]).reshape(1, 2, 1, 1).requires_grad_()
    wrong = torch.ones(1, 1, 1, 1)
    gradients = []
    for q in (1e-3, 0.7, 1.0):
        (gradient,) = torch.autograd.grad(GeneralizedCrossEntropyLoss(q)(u, wrong), u)
        gradients.append(float(gradient.abs().max()))
    assert gradients[0] > 5 * gradients[1] > 5 * gradients[2]


def test_generalized_cross_entropy_refuses_what_it_cannot_take():
    with pytest.raises(ValueError, match="`q` must be above 0 and at most 1, got 0"):
        GeneralizedCrossEntropyLoss(0)
    with pytest.raises(ValueError, match="the target must have shape"):
        GeneralizedCrossEntropyLoss()(field(1, 2, 4, 4), torch.zeros(1, 4, 4))
    assert repr(GeneralizedCrossEntropyLoss()) == "GeneralizedCrossEntropyLoss(q=0.7)"


Y, X = torch.meshgrid(*[torch.arange(48, dtype=torch.float64) - 23.5] * 2, indexing="ij")


def log_odds(probability):
    """Return logits of two classes."""
    return torch.stack([torch.zeros_like(probability), torch.logit(probability)])[None]


def bump(y=0.0, x=0.0, width=9.0):
    return 0.9 * torch.exp(-((Y - y) ** 2 + (X - x) ** 2) / (2 * width**2))


def penalty(probability, **options):
    return QuasiConcavityLoss(nothing, **options).penalty(log_odds(probability)).item()


def test_convex_level_sets_cost_nothing():
    ellipse = 0.9 * torch.exp(-((Y / 6) ** 2 + ((X + Y / 2) / 12) ** 2) / 2)
    for convex in (bump(), ellipse, torch.sigmoid(0.3 * X), torch.sigmoid(8 - X.square() / 9)):
        assert penalty(convex) < 1e-12
    assert penalty(torch.sigmoid(0.3 * X + 0.1 * Y)) < 1e-9  # what the differences leave of a straight level line


def test_concave_level_sets_cost_the_integral_of_slope_times_curvature():
    """In a crater p = f(r) the level lines are circles: Q = f'^3 / r, and the penalty is the mean of f'^4 / r."""
    crater = 1 - bump(width=12.0)
    r = (X**2 + Y**2).sqrt()[1:-1, 1:-1]
    slope = r / 144 * bump(width=12.0)[1:-1, 1:-1]
    assert penalty(crater) == pytest.approx((slope**4 / r).mean().item(), rel=0.05)


def test_a_crescent_and_two_bumps_cost_more_than_one():
    crescent = bump(width=12.0) * (1 - bump(x=8.0, width=6.0))
    two = torch.maximum(bump(x=-11, width=5.0), bump(x=11, width=5.0))
    merged = 1 - (1 - bump(x=-8, width=5.0)) * (1 - bump(x=8, width=5.0))
    for concave in (crescent, merged):
        assert penalty(concave) > 1e-8 > 1e5 * penalty(bump())
    assert 0 < penalty(two) < 0.1 * penalty(merged)  # apart, only the saddle between them costs
    assert penalty(bump(), margin=1e-3) > 0


def test_descent_on_the_penalty_fills_a_dent():
    disc = torch.sigmoid(10 - (X**2 + Y**2).sqrt())
    dented = torch.minimum(disc, torch.where(Y > 0, torch.sigmoid(X.abs() - 2.0), 1.0))
    logits = log_odds(dented.clamp(1e-3, 1 - 1e-3)).requires_grad_()
    QuasiConcavityLoss(nothing)(logits, None).backward()
    at_the_bottom = logits.grad[0, 1][(X.abs() < 2) & (Y > 0) & (Y < 3)]
    assert at_the_bottom.sum() < 0  # descent raises the logits there


def test_the_penalty_of_regions_is_that_of_their_summed_probability():
    u = field(2, 3, 9, 9)
    together = torch.stack([u[:, 0], torch.logsumexp(u[:, 1:], 1)], 1)
    loss = QuasiConcavityLoss(nothing, regions=((1, 2), (2,)))
    assert loss.penalty(u).shape == (2, 2)
    torch.testing.assert_close(loss.penalty(u)[:, :1], QuasiConcavityLoss(nothing).penalty(together))
    single = QuasiConcavityLoss(nothing, regions=((0,),), sigmoid=True)
    torch.testing.assert_close(single.penalty(together[:, 1:] - together[:, :1]), loss.penalty(u)[:, :1])


def test_the_penalty_is_added_to_the_loss_and_its_gradients_check():
    u, label = field(2, 2, 8, 8).float(), torch.randint(0, 2, (2, 1, 8, 8))
    inner = DiceCELoss(to_onehot_y=True, softmax=True)
    loss = QuasiConcavityLoss(inner, weight=10.0)
    torch.testing.assert_close(loss(u, label), inner(u, label) + 10 * loss.penalty(u).mean())
    torch.testing.assert_close(loss(MetaTensor(u), MetaTensor(label)).as_tensor(), loss(u, label))
    v = field(1, 2, 5, 6).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: QuasiConcavityLoss(nothing)(v, None), (v,))
    flat = torch.zeros(1, 2, 4, 4, requires_grad=True)
    QuasiConcavityLoss(nothing, margin=0.1)(flat, None).backward()
    assert flat.grad.abs().max() == 0
    assert "weight=10.0, regions=((1,),), sigmoid=False, margin=0.0" in repr(loss)


def test_the_penalty_refuses_what_it_cannot_take():
    with pytest.raises(TypeError, match="`loss` must be a loss such as"):
        QuasiConcavityLoss("dice")
    for arguments, message in (
        ({"weight": -1}, "`weight` must be at least 0, got -1"),
        ({"margin": -1}, "`margin` must be at least 0, got -1"),
        ({"regions": ((),)}, "`regions` must be groups"),
        ({"regions": ((1, 2),), "sigmoid": True}, "`regions` must have one channel each"),
    ):
        with pytest.raises(ValueError, match=message):
            QuasiConcavityLoss(nothing, **arguments)
    with pytest.raises(ValueError, match=r"must be 2-D, .* at least 3x3 pixels, got \(1, 2, 4, 4, 4\): for 3-D use"):
        QuasiConcavityLoss(nothing).penalty(field(1, 2, 4, 4, 4))
    with pytest.raises(ValueError, match=r"channels of `regions` \(\(2,\),\), got 2 channels"):
        QuasiConcavityLoss(nothing, regions=((2,),)).penalty(field(1, 2, 4, 4))


# labels with gaps, and layers inside of a loss

LAYERS = {
    "heat": InverseEvolutionLayer(HeatDiffusion(), dt=0.018, steps=20),
    "curve motion": InverseEvolutionLayer(ConvexCurveMotion(radii=(2, 4), band=2), reach=2),
}


def with_gaps(*spatial, classes=3, seed=0):
    """Return logits, and a label with a blob and single pixels that have none."""
    random = torch.Generator().manual_seed(seed)
    label = torch.randint(0, classes, (2, 1, *spatial), generator=random)
    label[torch.rand(label.shape, generator=random) < 0.1] = 255
    label[:, :, :4] = 255
    return field(2, classes, *spatial, seed=seed).requires_grad_(), label


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS.keys())
@pytest.mark.parametrize("spatial", [(14, 16), (8, 7, 9)])
def test_a_logit_without_a_label_changes_no_gradient_elsewhere(layer, spatial):
    """What the network says at ignored pixels is neither fitted nor amplified, nor does it reach others."""
    logits, label = with_gaps(*spatial)
    inner = DiceCELoss(softmax=True, to_onehot_y=True)
    loss = IELLoss(LabeledPixelsLoss(inner, 255), layer, ignore_index=255)
    ignored = (label == 255).expand_as(logits)
    changed = logits.detach().clone()
    changed[ignored] = 50 * field(int(ignored.sum()), seed=3)
    changed.requires_grad_()
    values = [loss(u, label) for u in (logits, changed)]
    for value in values:
        value.backward()
    assert values[0] > 0
    torch.testing.assert_close(values[0], values[1], rtol=0, atol=0)
    torch.testing.assert_close(logits.grad, changed.grad, rtol=0, atol=0)
    assert (logits.grad[ignored] == 0).all()
    assert (logits.grad[~ignored] != 0).any()
    with pytest.raises((RuntimeError, IndexError)):
        inner(logits, label)


def test_labeled_pixels_have_the_loss_that_torch_gives_them():
    logits, label = with_gaps(14, 16)
    loss = LabeledPixelsLoss(DiceCELoss(softmax=True, to_onehot_y=True, lambda_dice=0.0))
    expected = torch.nn.functional.cross_entropy(logits, label[:, 0], ignore_index=255)
    torch.testing.assert_close(loss(logits, label), expected)
    dice, kept = DiceLoss(softmax=True, to_onehot_y=True), label[:, 0] != 255
    chosen = torch.stack([logits[:, channel][kept] for channel in range(3)])[None]
    torch.testing.assert_close(LabeledPixelsLoss(dice)(logits, label), dice(chosen, label[:, 0][kept][None, None]))
    nothing_known = LabeledPixelsLoss(dice)(logits, torch.full_like(label, 255))
    nothing_known.backward()
    assert nothing_known == 0
    assert (logits.grad == 0).all()


@pytest.mark.parametrize(("share", "steps"), [(1.0, 0), (0.0, 20)])
def test_a_layer_that_does_nothing_fills_no_ignored_pixels(share, steps):
    layer = InverseEvolutionLayer(HeatDiffusion(2.0), 0.1, steps)
    layer.share = share  # as a warm-up sets it
    loss = IELLoss(LabeledPixelsLoss(torch.nn.CrossEntropyLoss(), 255), layer, ignore_index=255)
    logits, label = torch.randn(1, 3, 4, 4), torch.full((1, 1, 4, 4), 255)
    assert loss.evolved(logits, label) is logits
    layer.share, layer.steps = 0.1, 20
    assert loss.evolved(logits, label) is not logits


def test_a_layer_inside_of_the_loss_is_one_behind_the_network():
    layer, network = LAYERS["heat"], torch.nn.Conv2d(1, 3, 3, padding=1).double()
    image, label = field(2, 1, 12, 12), with_gaps(12, 12)[1].clamp(0, 2)
    loss = DiceCELoss(softmax=True, to_onehot_y=True)
    whole = IELLoss(loss, layer)
    torch.testing.assert_close(whole(network(image), label), loss(IELNet(network, layer)(image), label))
    torch.testing.assert_close(whole.eval()(network(image), label), loss(network(image), label))
    torch.testing.assert_close(IELLoss(loss)(network(image), label), loss(network(image), label))
    assert not whole.state_dict()


@pytest.mark.parametrize("count", [1, 3], ids=["one layer", "one per head"])
def test_deep_supervision_has_a_layer_behind_each_head(count):
    """The gradients are those of a layer, and a loss, at each head by hand."""
    spacings = [(1.0, 1.0), (2.0, 1.0), (4.0, 2.0)][:count]
    layers = [InverseEvolutionLayer(HeatDiffusion(spacing), gain=8) for spacing in spacings]
    heads = [field(2, 3, *size, seed=i).requires_grad_() for i, size in enumerate([(16, 12), (8, 12), (4, 6)])]
    label = with_gaps(16, 12)[1].clamp(0, 2)
    inner = DiceCELoss(softmax=True, to_onehot_y=True)
    loss = IELLoss(DeepSupervisionLoss(inner), layers if count > 1 else layers[0])
    loss(heads, label.double()).backward()
    for i, head in enumerate(heads):
        small = torch.nn.functional.interpolate(label.double(), head.shape[2:], mode="nearest-exact")
        (expected,) = torch.autograd.grad(0.5**i * inner(layers[i % count](head), small), head)
        torch.testing.assert_close(head.grad, expected)
    bare = DeepSupervisionLoss(inner)(heads, label.double())
    torch.testing.assert_close(loss.eval()(heads, label.double()), bare)
    with pytest.raises(ValueError, match="zip"):
        IELLoss(nothing, [*layers, layers[0]]).evolved(heads[:count], label)


def test_a_layer_that_needs_the_image_gets_it_from_the_loss():
    layer = InverseEvolutionLayer(GuidedDiffusion(), gain=15)
    image, logits, label = field(2, 1, 16, 16, seed=1), field(2, 3, 16, 16), torch.zeros(2, 16, 16, dtype=torch.long)
    loss = IELLoss(torch.nn.CrossEntropyLoss(), layer)
    assert loss.needs_image
    plain = torch.nn.functional.cross_entropy
    torch.testing.assert_close(loss(logits, label, image=image), plain(layer(logits, image), label))
    heads = [logits, logits[..., ::2, ::2]]
    each = loss.evolved(heads, [label, label[..., ::2, ::2]], image)
    for head, evolved in zip(heads, each, strict=True):
        torch.testing.assert_close(evolved, layer(head, image))
    with pytest.raises(ValueError, match="GuidedDiffusion needs an image, got none"):
        loss(logits, label)
    torch.testing.assert_close(loss.eval()(logits, label), plain(logits, label))


@pytest.mark.parametrize("layer", [None, InverseEvolutionLayer(HeatDiffusion(), gain=15)])
def test_other_layers_ignore_the_image(layer):
    loss = IELLoss(torch.nn.CrossEntropyLoss(), layer)
    logits, label = field(1, 3, 8, 8), torch.zeros(1, 8, 8, dtype=torch.long)
    assert not loss.needs_image
    torch.testing.assert_close(loss(logits, label, image=field(1, 1, 8, 8)), loss(logits, label))


def test_the_loss_of_auto3dseg_takes_a_layer():
    """As its segresnet does: the loss from the config of the page, inside of MONAI's deep supervision."""
    page = (Path(__file__).parents[1] / "docs" / "do" / "nnunet.md").read_text("utf-8")
    config = yaml.safe_load(re.search(r"```yaml\n(loss:.*?)```", page, re.DOTALL)[1])
    loss = DeepSupervisionLoss(ConfigParser(config["loss"]).get_parsed_content(instantiate=True))
    heads = [field(1, 3, *size, seed=i).requires_grad_() for i, size in enumerate([(8, 8, 8), (4, 4, 4)])]
    label = torch.randint(0, 3, (1, 1, 8, 8, 8)).double()
    loss(heads, label).backward()
    inner = DiceCELoss(softmax=True, to_onehot_y=True, squared_pred=True, smooth_nr=0, smooth_dr=1e-5)
    layer = InverseEvolutionLayer(HeatDiffusion(), gain=6, spatial_dims=3)
    (expected,) = torch.autograd.grad(inner(layer(heads[0]), label), heads[0])
    torch.testing.assert_close(heads[0].grad, expected)


@pytest.mark.parametrize("targets", ["one", "one per head"])
def test_gaps_of_a_label_are_those_of_each_head(targets):
    layer, label = LAYERS["heat"], with_gaps(16, 12)[1]
    heads = [field(2, 3, *size, seed=i).requires_grad_() for i, size in enumerate([(16, 12), (8, 6)])]
    small = label[..., 1::2, 1::2]  # the nearest pixel
    target = label if targets == "one" else [label, small]
    full, half = IELLoss(nothing, layer, ignore_index=255).evolved(heads, target)
    torch.testing.assert_close(full, layer(extend(heads[0], label != 255)))
    torch.testing.assert_close(half, layer(extend(heads[1], small != 255)))


def test_gaps_are_filled_as_beyond_the_border():
    """An edge is continued straight on; a single known pixel fills the whole image."""
    u = field(1, 2, 9, 12)
    half = torch.arange(12) < 7
    torch.testing.assert_close(extend(u, half.expand(1, 1, 9, 12))[..., 7:], u[..., 6:7].expand(1, 2, 9, 5))
    single = torch.zeros(1, 1, 4, 5, 6, dtype=torch.bool)
    single[..., 2, 3, 1] = True
    v = field(1, 2, 4, 5, 6)
    torch.testing.assert_close(extend(v, single), v[..., 2:3, 3:4, 1:2].expand_as(v))
    torch.testing.assert_close(extend(v, torch.zeros_like(single)), v)
