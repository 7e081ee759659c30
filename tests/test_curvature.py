# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Curvature motion against circles, spheres, planes, and a formula with explicit neighbors."""

import math

import pytest
import torch

from monai_iels import HeatDiffusion, InverseEvolutionLayer
from monai_iels.evolutions.curvature import CurvatureMotion


def field(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def distance(half, spacing):
    """The distance of each pixel to the center of a grid that reaches ``half`` along each axis."""
    axes = [torch.arange(-round(half / h), round(half / h) + 1, dtype=torch.float64) * h for h in spacing]
    return torch.linalg.vector_norm(torch.stack(torch.meshgrid(*axes, indexing="ij")), dim=0)[None, None]


@pytest.mark.parametrize("slope", [1.0, 5.0, -2.0])
@pytest.mark.parametrize("spacing", [(1.0, 1.0), (0.5, 1.0), (1.0, 1.0, 1.0), (0.5, 1.0, 1.0)])
def test_circles_and_spheres_move_by_their_curvature(spacing, slope):
    r = distance(16, spacing)
    velocity = CurvatureMotion(spacing, epsilon=1e-6).velocity(slope * (10 - r))
    ring = (r > 8) & (r < 14)
    expected = -slope * (len(spacing) - 1) / r
    assert (velocity - expected)[ring].abs().max() < 0.02 * abs(slope) / 8 * (len(spacing) - 1)


def test_a_circle_shrinks_as_the_closed_form_says():
    r, dt, steps = distance(20, (1.0, 1.0)), 0.1, 200
    evolved = CurvatureMotion(epsilon=1e-3).evolve(12 - r, dt, steps)[0, 0, 20, 20:]
    edge = int((evolved > 0).sum()) - 1
    radius = edge + (evolved[edge] / (evolved[edge] - evolved[edge + 1])).item()
    assert radius == pytest.approx(math.sqrt(12**2 - 2 * dt * steps), abs=0.1)


@pytest.mark.parametrize("dims", [2, 3])
def test_planes_stand_still(dims):
    axes = torch.meshgrid(*[torch.arange(9.0, dtype=torch.float64)] * dims, indexing="ij")
    inner = (slice(None), slice(None), *[slice(2, -2)] * dims)
    tilted = sum((k + 1) * axis for k, axis in enumerate(axes))[None, None]
    edge = torch.tanh(axes[0] - 4)[None, None]
    assert CurvatureMotion().velocity(tilted)[inner].abs().max() < 1e-12
    assert CurvatureMotion().evolve(edge, -0.1, 50).sub(edge).abs().max() < 1e-12
    assert HeatDiffusion().velocity(edge).abs().max() > 0.1


def neighbors_formula(u, h, epsilon):
    """One pixel at a time, from its eight neighbors, with repeated borders; ``u`` is (H, W)."""
    out = torch.zeros_like(u)
    rows, columns = u.shape

    def at(i, j):
        return u[min(max(i, 0), rows - 1), min(max(j, 0), columns - 1)].item()

    for i in range(rows):
        for j in range(columns):
            gy, gx = (at(i + 1, j) - at(i - 1, j)) / 2 / h[0], (at(i, j + 1) - at(i, j - 1)) / 2 / h[1]
            yy = (at(i + 1, j) - 2 * at(i, j) + at(i - 1, j)) / h[0] ** 2
            xx = (at(i, j + 1) - 2 * at(i, j) + at(i, j - 1)) / h[1] ** 2
            corners = at(i + 1, j + 1) - at(i + 1, j - 1) - at(i - 1, j + 1) + at(i - 1, j - 1)
            xy = corners / 4 / h[0] / h[1]
            along = gy**2 * yy + 2 * gy * gx * xy + gx**2 * xx
            out[i, j] = ((gy**2 + gx**2) * (yy + xx) - along) / (gy**2 + gx**2 + epsilon**2)
    return out


def test_equals_the_laplacian_without_its_part_across_level_lines():
    u, h = field(2, 3, 7, 8), (1.0, 1.5)
    velocity = CurvatureMotion(h).velocity(u)
    for n, c in ((0, 0), (1, 2)):
        torch.testing.assert_close(velocity[n, c], neighbors_formula(u[n, c], h, 0.1))


def test_a_field_that_is_constant_along_an_axis_moves_as_in_2d():
    u = field(1, 1, 6, 7)
    torch.testing.assert_close(
        CurvatureMotion().velocity(u[..., None].expand(1, 1, 6, 7, 4)),
        CurvatureMotion().velocity(u)[..., None].expand(1, 1, 6, 7, 4),
    )


def test_flat_fields_and_peaks_stand_still_with_a_gradient_that_is_finite():
    u = torch.zeros(1, 1, 7, 7, dtype=torch.float64)
    u[..., 3, 3] = 1.0
    assert CurvatureMotion().velocity(u)[..., 3, 3] == 0
    for start in (u, torch.zeros_like(u)):
        leaf = start.clone().requires_grad_()
        CurvatureMotion().evolve(leaf, -0.1, 5).square().sum().backward()
        assert leaf.grad.isfinite().all()


def test_backward_in_time_wiggles_grow_and_forward_they_shrink():
    x = torch.arange(32, dtype=torch.float64)
    wiggle = 0.5 * torch.cos(2 * math.pi * x / 8)
    u = (x[:, None] - 15.5 - wiggle)[None, None]

    def height(u):
        return (u[0, 0, 15] - u[0, 0, 15].mean()).abs().max()

    motion = CurvatureMotion(epsilon=1e-3)
    assert height(motion.evolve(u, -0.1, 10)) > 1.5 * height(u)
    assert height(motion.evolve(u, 0.1, 10)) < 0.75 * height(u)


def test_a_number_added_to_all_channels_changes_nothing():
    u = field(1, 3, 8, 8)
    torch.testing.assert_close(CurvatureMotion().evolve(u + 5, -0.05, 3), CurvatureMotion().evolve(u, -0.05, 3) + 5)


@pytest.mark.parametrize("shape", [(4, 5), (3, 4, 3)])
def test_gradients(shape):
    motion, u = CurvatureMotion(epsilon=1.0), field(1, 2, *shape).requires_grad_()
    assert torch.autograd.gradcheck(lambda u: motion.evolve(u, -0.05, 2), (u,))


def test_a_step_keeps_its_input_alone():
    saved = {}
    u = field(1, 2, 16, 16).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.setdefault(id(t), t).numel(), lambda _: None):
        out = CurvatureMotion().evolve(u, -0.01, 10)
    assert sum(t.numel() for t in saved.values()) <= 10 * out.numel()


def test_the_layer_takes_a_time_step_and_neither_gain_nor_reach():
    assert InverseEvolutionLayer(CurvatureMotion(), dt=0.1, steps=10).gains() == {}
    for strength in ("gain", "reach"):
        with pytest.raises(ValueError, match=f"got `{strength}`"):
            InverseEvolutionLayer(CurvatureMotion(), **{strength: 6})


@pytest.mark.parametrize("arguments", [{"epsilon": 0}, {"epsilon": math.nan}, {"spacing": (math.inf, 1.0)}])
def test_arguments_out_of_range(arguments):
    with pytest.raises(ValueError, match=f"Expected `{next(iter(arguments))}`"):
        CurvatureMotion(**arguments)


def test_there_are_no_outlines_in_1d():
    with pytest.raises(ValueError, match="Expected a field in 2-D or 3-D"):
        CurvatureMotion().velocity(torch.zeros(1, 1, 8))
