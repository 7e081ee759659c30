# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Heat diffusion: the spectral propagation against closed forms, the loop of stencils, and the paper's theorem."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.direct import loop_of_convolutions
from benchmarks.operations import operations
from monai_iels import HeatDiffusion, InverseEvolutionLayer
from monai_iels.evolutions.heat import _diffuse

SHAPES = [(9,), (8,), (6, 8), (7, 9), (4, 6, 5), (3, 1, 4)]


def field(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def energy(u, spacing):
    """The discrete gradient energy of the paper's Theorem 1, with forward differences."""
    return sum((torch.diff(u, dim=axis) / h).square().sum() for axis, h in enumerate(spacing, start=2))


@pytest.mark.parametrize("dt", [0.05, -0.1])
@pytest.mark.parametrize("modes", [(0, 0), (0, 3), (2, 0), (4, 5), (6, 7)])
def test_eigenmodes_are_scaled_exactly(modes, dt):
    sizes, spacing, steps = (7, 8), (1.0, 1.5), 5
    axes = [torch.cos(math.pi * k * (torch.arange(m).double() + 0.5) / m) for k, m in zip(modes, sizes, strict=True)]
    mode = (axes[0][:, None] * axes[1])[None, None]
    rate = sum((2 - 2 * math.cos(math.pi * k / m)) / h**2 for k, m, h in zip(modes, sizes, spacing, strict=True))
    evolved = HeatDiffusion(spacing).evolve(mode, dt, steps)
    torch.testing.assert_close(evolved, (1 - dt * rate) ** steps * mode, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dt", [0.1, -0.1])
@pytest.mark.parametrize("shape", SHAPES)
def test_steps_equal_a_loop_of_stencils(shape, dt):
    u = field(2, 3, *shape)
    heat = HeatDiffusion(tuple(2.0 + 0.5 * axis for axis in range(len(shape))))
    expected = u
    for _ in range(20):
        expected = expected + dt * heat.velocity(expected)
    assert (heat.evolve(u, dt, 20) - expected).abs().max() <= 1e-12 * expected.abs().max()


def test_steps_equal_the_convolutions_of_the_paper():
    u = field(2, 3, 11, 12)
    torch.testing.assert_close(
        HeatDiffusion(2.0).evolve(u, -0.1, 20), loop_of_convolutions(u, -0.1, 20, 2.0), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_an_infinite_spacing_leaves_an_axis_out(axis):
    u, spacing = field(2, 2, 5, 6, 7), [math.inf] * 3
    spacing[axis] = 1.5
    lines = u.movedim(2 + axis, -1)
    along_one = HeatDiffusion(1.5).evolve(lines.reshape(-1, 1, lines.shape[-1]), -0.1, 5)
    expected = along_one.reshape(lines.shape).movedim(-1, 2 + axis)
    heat = HeatDiffusion(tuple(spacing))
    torch.testing.assert_close(heat.evolve(u, -0.1, 5), expected)
    torch.testing.assert_close(heat.evolve(u, -0.1, 1), u - 0.1 * heat.velocity(u))
    assert heat.gain(-0.1, 5, 3) == pytest.approx(HeatDiffusion(1.5).gain(-0.1, 5, 1))
    assert InverseEvolutionLayer(heat, gain=15).gains() == pytest.approx({3: 15})


def test_without_flow_between_slices_each_slice_diffuses_by_itself():
    u = field(1, 2, 4, 6, 7)
    expected = torch.stack([HeatDiffusion(2.0).evolve(plane, -0.1, 5) for plane in u.unbind(2)], 2)
    torch.testing.assert_close(HeatDiffusion((math.inf, 2.0, 2.0)).evolve(u, -0.1, 5), expected)


@pytest.mark.parametrize("spacing", [math.inf, (math.inf, math.inf), (math.inf, -1.0), (math.nan, 1.0)])
def test_at_least_one_axis_must_have_a_finite_spacing(spacing):
    with pytest.raises(ValueError, match="`spacing` must be positive and not infinite for every axis"):
        HeatDiffusion(spacing)


def test_a_strong_layer_along_one_axis_warns_with_a_spacing_that_keeps_the_others_out():
    with pytest.warns(UserWarning, match=r"use spacing=\[inf, [0-9.]+\]"):
        InverseEvolutionLayer(HeatDiffusion((math.inf, 1.0)), dt=0.5, steps=20)


def test_the_step_size_matters():
    """The loop and the propagation must be explicit Euler, not the exact flow that both approximate."""
    u, heat = field(1, 1, 8, 8), HeatDiffusion()
    assert not torch.allclose(heat.evolve(u, -0.1, 2), heat.evolve(u, -0.05, 4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(112, 112), (97, 131), (5, 6, 7)])
def test_constants_are_fixed_points_and_mass_is_conserved(shape, dtype):
    heat = HeatDiffusion(2.0)
    constant = torch.full((1, 1, *shape), 3.3, dtype=dtype)
    torch.testing.assert_close(heat.evolve(constant, -0.1, 30), constant, rtol=1e-6, atol=0)
    u = field(2, 2, *shape)
    axes = tuple(range(2, u.ndim))
    torch.testing.assert_close(heat.evolve(u, -0.1, 20).sum(axes), u.sum(axes))


@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(st.integers(1, 7), min_size=1, max_size=3),
    spacing=st.floats(0.2, 5),
    dt=st.floats(1e-6, 10),
    steps=st.integers(1, 5),
    seed=st.integers(0, 999),
)
def test_theorem_1_energy_never_falls_through_the_inverse_layer(shape, spacing, dt, steps, seed):
    u = field(1, 2, *shape, seed=seed)
    heat, per_axis = HeatDiffusion(spacing), (spacing,) * len(shape)
    amplified = energy(heat.evolve(u, -dt, steps), per_axis)
    assert amplified >= energy(u, per_axis) * (1 - 1e-9)


def test_energy_rises_backward_and_falls_forward():
    u, heat = field(1, 1, 16, 16), HeatDiffusion(2.0)
    assert energy(heat.evolve(u, -0.1, 20), (2, 2)) > 100 * energy(u, (2, 2))
    assert energy(heat.evolve(u, 0.1, 20), (2, 2)) < 0.5 * energy(u, (2, 2))


@pytest.mark.parametrize("steps", [20, 30])  # a gain of 38, in float32, and of 237, in float64
@pytest.mark.parametrize("kind", ["noise", "smooth", "offset"])
@pytest.mark.parametrize("shape", [(112, 112), (97, 131)])
def test_float32_loses_less_than_1e_5_of_the_maximum(shape, kind, steps):
    y, x = (torch.linspace(-1, 1, size, dtype=torch.float64) for size in shape)
    u = {
        "noise": field(1, 2, *shape),
        "smooth": (5 * torch.cos(3 * y[:, None] + 1) * torch.sin(4 * x[None])).expand(1, 2, *shape),
        "offset": 10 + 0.01 * field(1, 2, *shape),
    }[kind].float()
    exact = loop_of_convolutions(u.double(), -0.1, steps, 2.0)
    error = (HeatDiffusion(2.0).evolve(u, -0.1, steps) - exact).abs().max() / exact.abs().max()
    assert error < 1e-5


def test_forward_then_inverse_misses_the_identity_by_the_order_of_dt():
    y, x = (torch.linspace(0, math.pi, 32, dtype=torch.float64) for _ in range(2))
    u, heat = (torch.cos(2 * y)[:, None] * torch.cos(x))[None, None] + 0.1 * field(1, 1, 32, 32), HeatDiffusion(2.0)
    errors = []
    for steps in (50, 100, 200):
        dt = 1.0 / steps
        errors.append((heat.evolve(heat.evolve(u, dt, steps), -dt, steps) - u).abs().max())
    slopes = [math.log2(coarse / fine) for coarse, fine in itertools.pairwise(errors)]
    assert slopes == pytest.approx([1.0, 1.0], abs=0.1)


@pytest.mark.parametrize("shape", [(6,), (5, 4), (3, 4, 2)])
def test_backward_is_the_adjoint(shape):
    heat = HeatDiffusion(tuple(1.0 + axis for axis in range(len(shape))))
    u, v = field(2, 2, *shape).requires_grad_(), field(2, 2, *shape, seed=1)
    (heat.evolve(u, -0.1, 7) * v).sum().backward()
    torch.testing.assert_close((u.grad * u).sum(), (heat.evolve(u, -0.1, 7) * v).sum())
    torch.testing.assert_close(u.grad, heat.evolve(v, -0.1, 7))
    assert torch.autograd.gradcheck(lambda u: heat.evolve(u, -0.1, 7), (u,))
    assert torch.autograd.gradgradcheck(lambda u: heat.evolve(u, -0.1, 7), (u,))


def test_functional_gradients_work_and_forward_mode_says_that_it_does_not():
    heat, u = HeatDiffusion(2.0), field(1, 2, 6, 7)
    grad = torch.func.grad(lambda u: heat.evolve(u, -0.1, 3).square().sum())(u)
    torch.testing.assert_close(grad, 2 * heat.evolve(heat.evolve(u, -0.1, 3), -0.1, 3))
    with pytest.raises(NotImplementedError, match="jvp"):
        torch.func.jvp(lambda u: heat.evolve(u, -0.1, 3), (u,), (u,))


@pytest.mark.parametrize("steps", [1, 20, 1000])
def test_nothing_is_saved_for_backward(steps):
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.numel()), lambda _: None):
        HeatDiffusion(2.0).evolve(field(2, 3, 16, 16).requires_grad_(), -0.001, steps)
    assert sum(saved) == 0
    u = field(2, 3, 16, 16).requires_grad_()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        out = HeatDiffusion(2.0).evolve(u, -0.001, steps)
    assert sum(event.self_cpu_memory_usage for event in prof.key_averages()) == out.nbytes


def test_the_gain_is_the_amplification_of_the_checkerboard():
    heat = HeatDiffusion(2.0)
    assert heat.gain(dt=-0.1, steps=20, spatial_dims=2) == pytest.approx(38.3376, abs=1e-4)
    assert heat.gain(dt=-0.1, steps=30, spatial_dims=2) == pytest.approx(237.376, abs=1e-3)
    assert heat.gain(dt=0.1, steps=20, spatial_dims=2) == 1.0
    assert heat.gain(dt=3.0, steps=2, spatial_dims=1) == pytest.approx(4.0)
    assert HeatDiffusion((1.0, 2.0)).gain(-0.1, 1, 2) == pytest.approx(1.5)
    assert heat.gain(dt=-100, steps=10**6, spatial_dims=3) == math.inf
    index = torch.arange(64)
    checkerboard = ((-1.0) ** (index[:, None] + index)).double()[None, None]
    amplified = heat.evolve(checkerboard, -0.1, 20).abs()[..., 25:-25, 25:-25]
    torch.testing.assert_close(amplified, torch.full_like(amplified, heat.gain(-0.1, 20, 2)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_and_returned_in_float32(dtype):
    u, heat = field(1, 2, 24, 24).to(dtype), HeatDiffusion(2.0)
    evolved = heat.evolve(1e3 * u, -0.1, 30)
    assert evolved.dtype == torch.float32
    assert evolved.abs().max() > torch.finfo(torch.float16).max
    torch.testing.assert_close(evolved, heat.evolve((1e3 * u).float(), -0.1, 30), rtol=0, atol=0)


def test_autocast_and_reduced_matmul_precision_change_nothing():
    u, heat = field(1, 2, 24, 24).float(), HeatDiffusion(2.0)
    expected = heat.evolve(u, -0.1, 30)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(heat.evolve(u, -0.1, 30), expected, rtol=0, atol=0)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        torch.testing.assert_close(heat.evolve(u, -0.1, 30), expected, rtol=0, atol=0)
    finally:
        torch.set_float32_matmul_precision(before)


def test_no_operation_runs_that_tf32_could_touch():
    names = set()

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.add(func.name())
            return func(*args, **(kwargs or {}))

    with Recorder():
        _diffuse(field(1, 2, 9, 8).float(), -0.1, 20, (2.0, 2.0))
    assert any("fft" in name for name in names)
    assert not [name for name in names if any(op in name for op in ("mm", "matmul", "conv", "addmv", "dot"))]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_non_finite_logits_stay_in_their_image_and_channel(value):
    u, heat = field(2, 2, 8, 8), HeatDiffusion(2.0)
    broken = u.clone()
    broken[0, 1, 3, 3] = value
    evolved = heat.evolve(broken, -0.1, 3)
    assert not evolved[0, 1].isfinite().all()
    torch.testing.assert_close(evolved[0, 0], heat.evolve(u, -0.1, 3)[0, 0])
    torch.testing.assert_close(evolved[1], heat.evolve(u, -0.1, 3)[1])


def test_axes_of_length_one_have_no_gradient():
    u = field(1, 1, 1, 9)
    torch.testing.assert_close(HeatDiffusion().evolve(u, 0.1, 5)[:, :, 0], HeatDiffusion().evolve(u[:, :, 0], 0.1, 5))
    single = field(1, 1, 1, 1)
    torch.testing.assert_close(HeatDiffusion().evolve(single, -0.1, 5), single)


def test_empty_batches_and_channels_last_are_allowed():
    heat = HeatDiffusion(2.0)
    assert heat.evolve(torch.empty(0, 2, 8, 8), -0.1, 3).shape == (0, 2, 8, 8)
    u = field(2, 3, 8, 6)
    torch.testing.assert_close(
        heat.evolve(u.contiguous(memory_format=torch.channels_last), -0.1, 3), heat.evolve(u, -0.1, 3)
    )


def test_the_operation_is_registered_correctly():
    u = field(2, 3, 6, 7)
    for v in (u, u.contiguous(memory_format=torch.channels_last)):
        torch.library.opcheck(torch.ops.monai_iels.diffuse.default, (v, -0.1, 3, (2.0, 1.0)))


def test_spacing_may_be_any_kind_of_number():
    numpy = pytest.importorskip("numpy")
    assert HeatDiffusion(numpy.array([1.0, 2.0])).spacing == (1.0, 2.0)
    assert HeatDiffusion([1, 2]) == HeatDiffusion((1.0, 2.0))
    assert HeatDiffusion(numpy.float32(2)).spacing == 2.0


@pytest.mark.parametrize("spacing", [0, -1.0, math.nan, math.inf, (), (1.0, 0.0), "wide", "12", None, (1.0, None)])
def test_spacing_must_be_positive(spacing):
    with pytest.raises(ValueError, match="`spacing` must be positive"):
        HeatDiffusion(spacing)


def test_wrong_arguments_are_named():
    heat, u = HeatDiffusion((1.0, 2.0)), torch.zeros(1, 2, 4, 4)
    with pytest.raises(ValueError, match=r"each of 3 spatial axes, got \(1.0, 2.0\)"):
        heat.evolve(torch.zeros(1, 2, 4, 4, 4), 0.1, 1)
    with pytest.raises(ValueError, match="each of 3 spatial axes"):
        heat.gain(0.1, 1, spatial_dims=3)
    with pytest.raises(ValueError, match="`dt` must be finite, got nan"):
        heat.evolve(u, math.nan, 1)
    with pytest.raises(ValueError, match="`dt` must be finite, got None"):
        heat.evolve(u, None, 1)
    with pytest.raises(ValueError, match="`steps` must be a whole number, at least 0, got -1: the sign of `dt`"):
        heat.evolve(u, 0.1, -1)
    with pytest.raises(ValueError, match=r"`steps` must be a whole number, at least 0, got 2\.0"):
        heat.evolve(u, 0.1, 2.0)
    for wrong in (torch.zeros(1, 2, 4, 4, dtype=torch.long), torch.zeros(1, 2, 4, 4, dtype=torch.complex64), [1.0]):
        with pytest.raises(TypeError, match="floating point tensor"):
            heat.evolve(wrong, 0.1, 1)
        with pytest.raises(TypeError, match="floating point tensor"):
            heat.velocity(wrong)
    with pytest.raises(ValueError, match=r"logits must have a spatial axis.*got shape \(1, 2\)"):
        heat.evolve(torch.zeros(1, 2), 0.1, 1)


def test_zero_steps_leave_the_field_alone():
    u = field(1, 2, 5, 5)
    assert torch.equal(InverseEvolutionLayer(HeatDiffusion(), 0.1, 0)(u), u)


def test_forward_and_backward_take_few_operations():
    """Forward and backward, in 2-D and 3-D; on a GPU each is a kernel to be launched."""
    for shape in ((1, 2, 32, 33), (1, 2, 8, 9, 10)):
        u = field(*shape).float().requires_grad_()
        assert operations(lambda u=u: HeatDiffusion(2.0).evolve(u, -0.1, 10).sum().backward()) <= 50
