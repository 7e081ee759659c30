# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The spatial operators against closed forms and slow, independent computations."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from monai_iels.operators.balls import ball_size, count_within
from monai_iels.operators.spectral import eigenvalues, from_modes, to_modes
from monai_iels.operators.stencil import gradient, gradient_norm, laplacian

SHAPES = [(7,), (8,), (5, 8), (6, 9), (1, 4), (4, 3, 5), (2, 1, 6)]


def field(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def spacing_for(shape):
    return tuple(1.0 + 0.5 * axis for axis in range(len(shape)))


class TestStencil:
    def test_quadratic_has_a_constant_laplacian_inside(self):
        x = torch.arange(8, dtype=torch.float64) * 0.5
        u = (x[:, None] ** 2 + 3 * x[None] ** 2)[None, None]
        torch.testing.assert_close(laplacian(u, 0.5)[..., 1:-1, 1:-1], torch.full((1, 1, 6, 6), 8.0).double())

    def test_linear_field_has_a_constant_gradient_inside_and_half_of_it_at_the_border(self):
        u = (2.0 * torch.arange(6, dtype=torch.float64))[None, None]
        (slope,) = gradient(u, 0.5)
        torch.testing.assert_close(slope[0, 0], torch.tensor([2.0, 4, 4, 4, 4, 2]).double())

    @pytest.mark.parametrize("shape", SHAPES)
    def test_equals_replicate_padding(self, shape):
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
    def test_gradients(self, shape):
        u = field(1, 2, *shape).requires_grad_()
        assert torch.autograd.gradcheck(lambda u: laplacian(u, spacing_for(shape)), (u,))
        assert torch.autograd.gradcheck(lambda u: gradient_norm(u, spacing_for(shape)), (u,))

    def test_gradient_norm_has_a_zero_derivative_where_it_is_zero_or_not_finite(self):
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


class TestSpectral:
    @pytest.mark.parametrize("shape", SHAPES)
    def test_round_trip(self, shape):
        u = field(2, 3, *shape)
        torch.testing.assert_close(from_modes(to_modes(u), shape), u)

    @pytest.mark.parametrize("shape", SHAPES)
    def test_diagonalizes_the_laplacian(self, shape):
        u, spacing = field(2, 3, *shape), spacing_for(shape)
        spectral = from_modes(to_modes(u) * eigenvalues(shape, spacing, u), shape)
        torch.testing.assert_close(spectral, laplacian(u, spacing))

    def test_a_cosine_is_one_coefficient(self):
        size, k = 8, 3
        u = torch.cos(math.pi * k * (torch.arange(size, dtype=torch.float64) + 0.5) / size)[None, None]
        assert to_modes(u)[0, 0].abs().gt(1e-12).nonzero().tolist() == [[k, 0]]
        u = torch.cos(math.pi * (size - k) * (torch.arange(size, dtype=torch.float64) + 0.5) / size)[None, None]
        assert to_modes(u)[0, 0].abs().gt(1e-12).nonzero().tolist() == [[k, 1]]


def brute_force_count(mask, radius, spacing):
    points = np.argwhere(np.ones(mask.shape)) * np.asarray(spacing)
    distance = np.sqrt(((points[:, None] - points[None]) ** 2).sum(-1))
    return ((distance <= radius) @ mask.ravel().astype(int)).reshape(mask.shape)


class TestBalls:
    @settings(max_examples=60, deadline=None)
    @given(
        shape=st.lists(st.integers(1, 8), min_size=1, max_size=3),
        spacing=st.lists(st.sampled_from([0.5, 1.0, 1.5, 2.0]), min_size=3, max_size=3),
        radius=st.sampled_from([1, 1.5, 2, 3, 4, 9, 20]),
        seed=st.integers(0, 99),
    )
    def test_equals_counting_every_pair(self, shape, spacing, radius, seed):
        spacing = tuple(spacing[: len(shape)])
        masks = np.random.default_rng(seed).random((2, 2, *shape)) < 0.6
        counts = count_within(torch.as_tensor(masks), radius, spacing)
        for batch, channel in itertools.product(range(2), range(2)):
            expected = brute_force_count(masks[batch, channel], radius, spacing)
            np.testing.assert_array_equal(counts[batch, channel].numpy(), expected)

    @pytest.mark.parametrize(
        ("radius", "spacing", "size"),
        [(1, (1,), 3), (1, (1, 1), 5), (5, (1, 1), 81), (15, (1, 1), 709), (1, (1, 1, 1), 7), (2, (1, 2), 7)],
    )
    def test_known_sizes(self, radius, spacing, size):
        assert ball_size(radius, spacing) == size

    def test_rounded_spacing_keeps_the_pixel_at_the_radius(self):
        assert 3 * 0.1 > 0.3
        assert ball_size(0.3, (0.1,)) == 7
        assert ball_size(0.3, (0.1, 1.0)) == 7

    def test_a_full_ball_is_counted_without_overflow(self):
        mask = torch.ones(1, 1, 41, 41, 41, dtype=torch.bool)
        assert count_within(mask, 20, (1.0, 1.0, 1.0))[0, 0, 20, 20, 20].item() == ball_size(20, (1, 1, 1)) == 33401

    def test_a_channels_last_mask(self):
        mask = (field(2, 3, 9, 7) > 0).contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(count_within(mask, 2, (1, 1)), count_within(mask.contiguous(), 2, (1, 1)))
