# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Stencils against closed forms and replicate padding."""

import math

import numpy as np
import pytest
import torch

from monai_iels.operators.stencil import gradient, gradient_norm, laplacian

SHAPES = [(7,), (8,), (5, 8), (6, 9), (1, 4), (4, 3, 5), (2, 1, 6)]


def field(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def spacing_for(shape):
    return tuple(1.0 + 0.5 * axis for axis in range(len(shape)))


def test_a_quadratic_has_a_constant_laplacian_inside():
    x = torch.arange(8, dtype=torch.float64) * 0.5
    u = (x[:, None] ** 2 + 3 * x[None] ** 2)[None, None]
    torch.testing.assert_close(laplacian(u, 0.5)[..., 1:-1, 1:-1], torch.full((1, 1, 6, 6), 8.0).double())


def test_a_linear_field_has_a_constant_gradient_inside_and_half_of_it_at_the_border():
    u = (2.0 * torch.arange(6, dtype=torch.float64))[None, None]
    (slope,) = gradient(u, 0.5)
    torch.testing.assert_close(slope[0, 0], torch.tensor([2.0, 4, 4, 4, 4, 2]).double())


@pytest.mark.parametrize("shape", SHAPES)
def test_stencils_equal_differences_with_replicated_borders(shape):
    u, spacing = field(2, 3, *shape), spacing_for(shape)
    padded = np.pad(u.numpy(), [(0, 0), (0, 0), *[(1, 1)] * len(shape)], mode="edge")
    center = tuple([slice(None)] * 2 + [slice(1, -1)] * len(shape))
    laplace, slopes = 0.0, []
    for axis, h in enumerate(spacing, start=2):
        after, before = (np.roll(padded, -s, axis)[center] for s in (1, -1))
        laplace = laplace + (after + before - 2 * u.numpy()) / h**2
        slopes.append((after - before) / (2 * h))
    torch.testing.assert_close(laplacian(u, spacing), torch.as_tensor(laplace))
    torch.testing.assert_close(torch.stack(gradient(u, spacing)), torch.as_tensor(np.stack(slopes)))
    norm = np.sqrt(sum(s**2 for s in slopes))
    torch.testing.assert_close(gradient_norm(u, spacing), torch.as_tensor(norm))


@pytest.mark.parametrize("shape", [(6,), (4, 5), (3, 4, 3)])
def test_derivatives_equal_finite_differences(shape):
    u = field(1, 2, *shape).requires_grad_()
    assert torch.autograd.gradcheck(lambda u: laplacian(u, spacing_for(shape)), (u,))
    assert torch.autograd.gradcheck(lambda u: gradient_norm(u, spacing_for(shape)), (u,))


def test_gradient_norm_has_a_zero_derivative_where_it_is_zero_or_not_finite():
    u = field(1, 1, 9, 9)
    u[..., :4] = 1.0
    u[..., 7, 7] = math.nan
    u[..., 1, 7] = math.inf
    u.requires_grad_()
    norm = gradient_norm(u)
    torch.where(norm.isfinite(), norm, 0).sum().backward()
    assert u.grad.isfinite().all()
    assert (u.grad[..., :2] == 0).all()
    assert u.grad.abs().sum() > 0
