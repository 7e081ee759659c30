# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Convex curve motion against a slow, independent Algorithm 1; its derivatives, memory and errors."""

import itertools
import math

import numpy as np
import pytest
import torch
from evolutions.shapes import NOTCHED, SIZE, field, of_one_channel
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile

from benchmarks.direct import curve_motion, shifted_sum
from benchmarks.operations import operations
from monai_iels import ConvexCurveMotion
from monai_iels.operators.marching import march, moving

pytestmark = pytest.mark.usefixtures("way")


class BruteForce:
    """Algorithm 1 of the paper for one image ``(C, *spatial)``, pixel by pixel over all pairs of pixels."""

    def __init__(self, radii, band, regions, activation, spacing, gradient):
        self.radii, self.band, self.regions, self.activation, self.spacing = radii, band, regions, activation, spacing
        self.gradient = gradient

    def level_set(self, u, region):
        if self.activation == "sigmoid":
            return u[region[0]]
        outside = [k for k in range(len(u)) if k not in region]
        if len(region) == len(outside) == 1:
            return u[region[0]] - u[outside[0]]
        return np.log(np.exp(u[list(region)]).sum(0)) - np.log(np.exp(u[outside]).sum(0))

    def distances(self, shape):
        points = np.argwhere(np.ones(shape)) * np.asarray(self.spacing)
        return np.sqrt(((points[:, None] - points[None]) ** 2).sum(-1))

    def masks(self, phi):
        f = (phi > 0).ravel()
        distance = self.distances(phi.shape)
        concave = np.zeros_like(f)
        for r in self.radii:
            reach = [range(-math.ceil(r / h), math.ceil(r / h) + 1) for h in self.spacing]
            ball = sum(
                math.hypot(*(k * h for k, h in zip(offset, self.spacing, strict=True))) <= r
                for offset in itertools.product(*reach)
            )
            concave |= ~f & (2 * ((distance <= r) & f).sum(1) > ball)
        near = ((distance <= self.band) & concave).any(1)
        return concave.reshape(phi.shape), near.reshape(phi.shape)

    def norm(self, phi):
        padded = np.pad(phi, 1, mode="edge")
        center = (slice(1, -1),) * phi.ndim
        squares = np.zeros_like(phi)
        for axis, h in enumerate(self.spacing):
            before = (phi - np.roll(padded, 1, axis)[center]) / h
            after = (np.roll(padded, -1, axis)[center] - phi) / h
            both = self.gradient == "both"
            squares += np.maximum(before**2, after**2) if both else ((before + after) / 2) ** 2
        return np.sqrt(squares)

    def evolve(self, u, dt, steps):
        for _ in range(steps):
            moved = u.copy()
            for region in self.regions:
                phi = self.level_set(u, region)
                moved[list(region)] += dt * self.masks(phi)[1] * self.norm(phi)
            u = moved
        return u


CONFIGURATIONS = st.one_of(
    st.tuples(st.just(2), st.just("softmax"), st.just(((1,),))),
    st.tuples(st.just(3), st.just("softmax"), st.sampled_from([((1,),), ((1, 2),), ((1, 2), (2,)), ((0,), (2,))])),
    st.tuples(st.just(2), st.just("sigmoid"), st.sampled_from([((0,),), ((0,), (1,))])),
)
SPATIAL = st.one_of(
    st.tuples(st.integers(1, 14), st.integers(1, 14)),
    st.tuples(st.integers(1, 6), st.integers(2, 7), st.integers(2, 7)),
)


@settings(max_examples=60, deadline=None)
@given(
    spatial=SPATIAL,
    configuration=CONFIGURATIONS,
    radii=st.lists(st.sampled_from([1, 1.5, 2, 3, 5, 8]), min_size=1, max_size=3),
    band=st.sampled_from([1, 2, 3]),
    spacing=st.sampled_from([(1.0, 1.0, 1.0), (2.0, 1.0, 0.5), (1.5, 1.5, 1.5)]),
    gradient=st.sampled_from(["central", "both"]),
    dt=st.sampled_from([0.1, -0.1, -0.7]),
    integer=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_steps_equal_those_of_brute_force(spatial, configuration, radii, band, spacing, gradient, dt, integer, seed):
    channels, activation, regions = configuration
    spacing = spacing[: len(spatial)]
    u = 2 * np.random.default_rng(seed).standard_normal((2, channels, *spatial))
    if integer and channels == 2:
        u = u.round()  # ties: phi = 0 and flat patches
    motion = ConvexCurveMotion(radii, band, regions, activation, spacing, gradient)
    oracle = BruteForce(radii, band, regions, activation, spacing, gradient)

    phi = motion.level_sets(torch.as_tensor(u))
    concave, near_concave = motion.concave(phi), motion.moving(phi)
    for image, region in itertools.product(range(2), range(len(regions))):
        expected_concave, expected_moving = oracle.masks(oracle.level_set(u[image], regions[region]))
        np.testing.assert_array_equal(concave[image, region].numpy(), expected_concave)
        np.testing.assert_array_equal(near_concave[image, region].numpy(), expected_moving)

    evolved = motion.evolve(torch.as_tensor(u), dt, 3).numpy()
    expected = np.stack([oracle.evolve(image, dt, 3) for image in u])
    np.testing.assert_allclose(evolved, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("regions", [((1,),), ((1, 2),), ((0, 3),)])
def test_the_region_shift_is_exact(regions):
    motion = ConvexCurveMotion(radii=(3, 5), band=2, regions=regions)
    u = 3 * field(2, 4, 20, 24)
    u[:, list(regions[0])] += 2
    phi = motion.level_sets(u)
    inside, outside = list(regions[0]), [k for k in range(4) if k not in regions[0]]
    torch.testing.assert_close(phi[:, 0], u[:, inside].logsumexp(1) - u[:, outside].logsumexp(1))
    slopes = [torch.as_tensor(np.gradient(np.pad(phi[:, 0].numpy(), [(0, 0), (1, 1), (1, 1)], "edge"), axis=a))
              for a in (1, 2)]  # fmt: skip
    norm = (slopes[0] ** 2 + slopes[1] ** 2).sqrt()[:, 1:-1, 1:-1]
    shift = -0.3 * motion.moving(phi)[:, 0] * norm
    moved = motion.evolve(u, -0.3, 1)
    assert shift.abs().max() > 0.1
    torch.testing.assert_close(motion.level_sets(moved)[:, 0], phi[:, 0] + shift)
    torch.testing.assert_close(moved[:, outside], u[:, outside], rtol=0, atol=0)
    torch.testing.assert_close(moved[:, inside] - u[:, inside], shift[:, None].expand_as(u[:, inside]))


SHARING = {
    "disc and cup": ((1, 2), (2,)),
    "apart": ((1,), (2,)),
    "overlapping, with merged channels": ((1, 2), (2, 3)),
    "no background": ((0,), (1, 2, 3)),
    "three": ((1,), (1, 2), (3,)),
}


def step_by_step(motion, u, dt, steps):
    for _ in range(steps):
        u = u + dt * motion.velocity(u)
    return u


@pytest.mark.parametrize("gradient", ["central", "both"])
@pytest.mark.parametrize("regions", SHARING.values(), ids=SHARING)
def test_regions_that_share_a_softmax_move_as_their_velocity_says(regions, gradient):
    motion = ConvexCurveMotion(radii=(2, 4), band=2, regions=regions, gradient=gradient)
    u = (3 * torch.nn.functional.interpolate(field(2, 4, 6, 5), size=(24, 20), mode="bicubic")).requires_grad_()
    evolved, expected = motion.evolve(u, -0.1, 7), step_by_step(motion, u, -0.1, 7)
    assert not torch.equal(evolved, u)
    torch.testing.assert_close(evolved, expected)
    weight = field(2, 4, 24, 20, seed=1)
    (found,), (by_steps,) = (torch.autograd.grad((out * weight).sum(), u) for out in (evolved, expected))
    torch.testing.assert_close(found, by_steps)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("regions", [((1, 2), (2,)), ((0,), (1, 2))])
def test_non_finite_logits_stay_as_they_are_where_regions_share_a_softmax(regions, value):
    """They are handed on, and the other regions, if their odds are finite, move there as everywhere else."""
    u = 3 * torch.nn.functional.interpolate(field(1, 3, 6, 5), size=(24, 20), mode="bicubic")
    for channel in range(3):
        broken = u.clone()
        broken[0, channel, 4::7, 3::5] = value
        broken.requires_grad_()
        motion = ConvexCurveMotion(radii=(2, 4), band=2, regions=regions, gradient="both")
        evolved = motion.evolve(broken, -0.1, 5)
        torch.testing.assert_close(evolved, step_by_step(motion, broken, -0.1, 5), equal_nan=True)
        assert torch.equal(evolved.isfinite(), broken.isfinite())
        (grad,) = torch.autograd.grad(evolved[evolved.isfinite()].sum(), broken)
        assert grad[broken.isfinite().all(1, keepdim=True).expand_as(grad)].isfinite().all()


def test_for_two_classes_the_level_set_is_the_difference():
    u = field(1, 2, 8, 8)
    assert torch.equal(ConvexCurveMotion().level_sets(u)[:, 0], u[:, 1] - u[:, 0])


@pytest.mark.parametrize("gradient", ["central", "both"])
@pytest.mark.parametrize("regions", [((1,),), ((1, 2), (2,))])
@pytest.mark.parametrize("spatial", [(9,), (5, 6), (3, 4, 3)])
def test_derivatives_equal_finite_differences(spatial, regions, gradient):
    motion = ConvexCurveMotion(radii=(1, 2), band=1, regions=regions, gradient=gradient)
    u = 2 * field(1, 3, *spatial)
    u[:, 1] += 3
    u.requires_grad_()
    assert motion.moving(motion.level_sets(u)).any()
    assert torch.autograd.gradcheck(lambda u: motion.evolve(u, -0.1, 3), (u,), fast_mode=True)


def test_derivatives_of_sigmoid_regions_equal_finite_differences():
    motion = ConvexCurveMotion(radii=(2, 3), band=1, regions=((0,), (2,)), activation="sigmoid")
    assert torch.autograd.gradcheck(lambda u: motion.evolve(u, 0.1, 3), (field(1, 3, 6, 7).requires_grad_(),))


def test_gradients_are_finite_where_the_level_set_is_flat():
    u = torch.where(NOTCHED > 0, 5.0, -5.0)[None, None].requires_grad_()
    motion = of_one_channel()
    assert motion.moving(u).any()
    motion.evolve(u, -0.1, 5).square().sum().backward()
    assert u.grad.isfinite().all()


@pytest.mark.parametrize(
    ("value", "row", "stand_in"),
    [
        (math.nan, 15, 1.0),  # deep inside: nothing around it is concave
        (-math.inf, 15, 1.0),
        (math.inf, -45, 1.0),
        (math.nan, -45, -1.0),
        (math.inf, 15, 1.0),
        (-math.inf, -45, -1.0),
    ],
)
def test_a_non_finite_logit_changes_no_other_pixel(value, row, stand_in):
    motion, place = of_one_channel(), (SIZE // 2 + row, SIZE // 2)
    broken, whole = NOTCHED.clone(), NOTCHED.clone()
    broken[place], whole[place] = value, stand_in
    evolved, expected = (motion.evolve(phi[None, None], -0.1, 20)[0, 0] for phi in (broken, whole))
    assert torch.equal(evolved.isfinite(), broken.isfinite())
    assert torch.equal(evolved.isnan(), broken.isnan())
    evolved[place] = expected[place]
    assert torch.equal(evolved, expected)
    assert not torch.equal(expected, whole)


@pytest.mark.parametrize("gradient", ["central", "both"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_non_finite_logits_at_the_moving_boundary_flip_none_beside_them(value, gradient):
    """Where the boundary moves, pixels beside a broken one stand still, NaN spreads to none, gradients are finite."""
    broken = NOTCHED.clone()
    place = (SIZE // 2 + 2, SIZE // 2)
    broken[place] = value
    u = broken[None, None].clone().requires_grad_()
    motion = of_one_channel(gradient=gradient)
    assert motion.moving(u)[0, 0][place]
    evolved = motion.evolve(u, -0.1, 20)
    assert torch.equal(evolved[0, 0].isfinite(), broken.isfinite())
    beside = ((torch.arange(SIZE)[:, None] - place[0]).abs() + (torch.arange(SIZE) - place[1]).abs()) == 1
    assert torch.equal(evolved[0, 0][beside], broken[beside])
    evolved[evolved.isfinite()].sum().backward()
    assert u.grad.isfinite().all()


def bytes_kept(motion, u, steps):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        out = motion.evolve(u, -0.01, steps)
    assert out.requires_grad
    return sum(event.self_cpu_memory_usage for event in prof.key_averages())


@pytest.mark.parametrize(("regions", "fields"), [(((1,),), 1 / 5), (((1, 2), (2,)), 3 / 5)])
def test_a_step_keeps_masks_and_every_fifth_the_level_set(regions, fields):
    """Regions that share a softmax keep the logits instead."""
    u = field(2, 3, 64, 64).float().requires_grad_()
    motion = ConvexCurveMotion(regions=regions, radii=(3,))
    bytes_kept(motion, u, 1)
    a_step = (bytes_kept(motion, u, 26) - bytes_kept(motion, u, 6)) / 20
    assert 0 < a_step <= 2 * 64 * 64 * (4 * fields + len(regions)) + 8  # and one number


def test_half_precision_and_autocast_are_computed_in_float32():
    u, motion = field(1, 3, 24, 24).bfloat16(), ConvexCurveMotion(radii=(2, 4))
    expected = motion.evolve(u.float(), -0.1, 5)
    assert torch.equal(motion.evolve(u, -0.1, 5), expected)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(motion.evolve(u, -0.1, 5), expected)


def test_velocity_is_one_step_and_steps_compose():
    u = field(2, 3, 16, 16)
    for regions in (((1,),), ((1, 2), (2,))):
        motion = ConvexCurveMotion(radii=(2, 4), regions=regions)
        torch.testing.assert_close(motion.evolve(u, -0.1, 1), u - 0.1 * motion.velocity(u))
        composed = motion.evolve(motion.evolve(u, -0.1, 1), -0.1, 3)
        torch.testing.assert_close(motion.evolve(u, -0.1, 4), composed)


@pytest.mark.parametrize("gradient", ["central", "both"])
def test_logits_grow_a_few_times_however_many_steps_there_are(gradient):
    motion = of_one_channel(gradient=gradient)
    assert motion.gain(-0.1, 60, 2) is None
    smooth = 3 * torch.nn.functional.interpolate(field(1, 1, 6, 6), size=(SIZE, SIZE), mode="bicubic")
    for phi in (field(1, 1, SIZE, SIZE), smooth, 4 * smooth.sign() + 0.5 * field(1, 1, SIZE, SIZE, seed=1)):
        assert all(motion.evolve(phi, -0.1, steps).norm() < 4 * phi.norm() for steps in (20, 60, 200))


def test_where_both_sides_are_equally_steep_each_has_half_of_the_derivative():
    peak = torch.tensor([1.0, 1, 1, 0, -1, 0, 1, 1, 1], dtype=torch.float64)[None, None].requires_grad_()
    motion = of_one_channel(gradient="both", radii=(4,), band=1)
    assert motion.moving(peak)[0, 0, 4]
    (grad,) = torch.autograd.grad(motion.evolve(peak, -0.1, 1)[0, 0, 4], peak)
    torch.testing.assert_close(grad[0, 0, 3:6], torch.tensor([-0.05, 1.1, -0.05], dtype=torch.float64))


@pytest.mark.parametrize("gradient", ["central", "both"])
@pytest.mark.parametrize(("regions", "most"), [(((1,),), 60), (((1, 2), (2,)), 92)])
def test_a_step_takes_few_operations_on_other_devices(regions, most, gradient, way):
    """Forward and backward; on a GPU each is a kernel to be launched."""
    if way != "torch on other devices":
        pytest.skip("the operations of a GPU are counted")
    u = field(1, 3, 64, 64).float().requires_grad_()
    motion = ConvexCurveMotion(regions=regions, gradient=gradient)
    assert operations(lambda: motion.evolve(u, -0.1, 20).sum().backward()) / 20 <= most


def test_it_is_what_convolutions_with_disks_compute():
    phi = 3 * torch.nn.functional.interpolate(field(2, 3, 5, 6), size=(40, 48), mode="bicubic")
    motion = ConvexCurveMotion(radii=(2, 5), band=2, regions=((0,), (1,), (2,)), activation="sigmoid")
    expected = curve_motion(phi, -0.1, 4, (2, 5), 2)
    torch.testing.assert_close(curve_motion(phi, -0.1, 4, (2, 5), 2, shifted_sum), expected, rtol=0, atol=1e-9)
    assert not torch.equal(expected, phi)
    torch.testing.assert_close(motion.evolve(phi, -0.1, 4), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("regions", [((1,),), ((1, 2), (2,))])
def test_second_derivatives_equal_finite_differences(regions):
    motion = ConvexCurveMotion(radii=(1, 2), band=1, regions=regions)
    u = 2 * field(1, 3, 4, 5)
    u[:, 1] += 3
    assert torch.autograd.gradgradcheck(lambda u: motion.evolve(u, -0.1, 2), (u.requires_grad_(),))
    flat = torch.where(NOTCHED > 0, 5.0, -5.0)[None, None].requires_grad_()
    (grad,) = torch.autograd.grad(of_one_channel().evolve(flat, -0.1, 2).square().sum(), flat, create_graph=True)
    grad.square().sum().backward()
    assert flat.grad.isfinite().all()


def test_the_operation_is_registered_correctly():
    phi = field(2, 3, 9, 8)
    torch.library.opcheck(torch.ops.monai_iels.moving.default, (phi, (2.0, 3.0), 1.0, (1.0, 2.0)))
    channels_last = phi.contiguous(memory_format=torch.channels_last)
    torch.library.opcheck(torch.ops.monai_iels.moving.default, (channels_last, (2.0, 3.0), 1.0, (1.0, 2.0)))
    assert torch.equal(moving(channels_last, (2.0,), 1.0, (1.0, 1.0)), moving(phi, (2.0,), 1.0, (1.0, 1.0)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"radii": (5, 0)}, "`radii` must be at least 1, got 0"),
        ({"radii": ()}, "`radii` must be at least one number"),
        ({"radii": (math.nan,)}, "`radii` must be at least 1, got nan"),
        ({"radii": 5}, "`radii` must be at least one number, such as .* got 5"),
        ({"radii": "15"}, "`radii` must be at least 1, got '1'"),
        ({"band": "3"}, "`band` must be at least 1, got '3'"),
        ({"regions": ((1,), (1,))}, "each region once"),
        ({"band": 0.5}, "`band` must be at least 1, got 0.5"),
        ({"band": math.inf}, "`band` must be at least 1, got inf"),
        ({"regions": ((1.0,),)}, "`regions` must be groups of channels"),
        ({"regions": ()}, "`regions` must be groups of channels"),
        ({"regions": ((),)}, "`regions` must be groups of channels"),
        ({"regions": (1,)}, "`regions` must be groups of channels"),
        ({"regions": ((-1,),)}, "`regions` must be groups of channels"),
        ({"regions": ((1, 1),)}, "each channel once"),
        ({"activation": "tanh"}, "'softmax' or 'sigmoid', got 'tanh'"),
        ({"activation": "sigmoid", "regions": ((0,), (0,))}, "each region once"),
        ({"activation": "sigmoid", "regions": ((0, 1),)}, "one channel each with activation='sigmoid'"),
        ({"spacing": -1}, "`spacing` must be positive"),
    ],
)
def test_wrong_arguments_are_named_in_the_constructor(arguments, message):
    with pytest.raises(ValueError, match=message):
        ConvexCurveMotion(**arguments)


def test_regions_must_fit_the_channels():
    with pytest.raises(ValueError, match=r"at least 3 channels for regions \(\(2,\),\), got 2"):
        ConvexCurveMotion(regions=((2,),)).evolve(torch.zeros(1, 2, 8, 8), 0.1, 1)
    with pytest.raises(ValueError, match=r"got 1: use activation='sigmoid'"):
        ConvexCurveMotion().evolve(torch.zeros(1, 1, 8, 8), 0.1, 1)
    with pytest.raises(ValueError, match="a softmax region must leave out a channel"):
        ConvexCurveMotion(regions=((0,),)).evolve(torch.zeros(1, 1, 8, 8), 0.1, 1)


def test_axes_of_length_one_and_tiny_images_are_allowed():
    assert torch.equal(of_one_channel().evolve(torch.ones(1, 1, 1, 1), -0.1, 3), torch.ones(1, 1, 1, 1))
    strip = field(1, 1, 1, 12)  # never fills half of a disk
    assert torch.equal(of_one_channel(radii=(1, 3)).evolve(strip, -0.1, 3), strip)
    line = torch.tensor([1.0, 1, 1, -1, 1, 1, 1])[None, None]
    for broken, expected in ((math.nan, False), (math.inf, True)):
        pixels = torch.tensor([1.0, -1.0, broken])[None, None]
        assert of_one_channel(radii=(1,)).concave(pixels).flatten().tolist() == [False, expected, False]
    assert of_one_channel(radii=(2,)).concave(line).flatten().tolist() == [False] * 3 + [True] + [False] * 3


def test_level_sets_may_lie_in_memory_in_any_order():
    phi = field(2, 3, 20, 22)
    moved = []
    for order in (torch.contiguous_format, torch.channels_last):
        start = phi.clone(memory_format=order).requires_grad_()
        shift = march(start, (1, 6), 0.1, 7, (2.0, 4.0), 2.0, (1.0, 1.0), "both")
        (shift * phi).sum().backward()
        moved.append((shift, start.grad))
    assert moved[0][0].any()
    assert moved[0][1].any()
    torch.testing.assert_close(moved[0], moved[1])
