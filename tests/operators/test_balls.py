# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Counts in balls against all pairs of pixels, and known sizes."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from monai_iels.operators.balls import ball_size, count_within


def brute_force_count(mask, radius, spacing):
    points = np.argwhere(np.ones(mask.shape)) * np.asarray(spacing)
    distance = np.sqrt(((points[:, None] - points[None]) ** 2).sum(-1))
    return ((distance <= radius) @ mask.ravel().astype(int)).reshape(mask.shape)


@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(st.integers(1, 8), min_size=1, max_size=3),
    spacing=st.lists(st.sampled_from([0.5, 1.0, 1.5, 2.0]), min_size=3, max_size=3),
    radius=st.sampled_from([1, 1.5, 2, 3, 4, 9, 20]),
    seed=st.integers(0, 99),
)
def test_counts_equal_those_of_all_pairs(shape, spacing, radius, seed):
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
def test_small_balls_have_the_known_numbers_of_pixels(radius, spacing, size):
    assert ball_size(radius, spacing) == size


def test_rounded_spacing_keeps_the_pixel_at_the_radius():
    assert 3 * 0.1 > 0.3
    assert ball_size(0.3, (0.1,)) == 7
    assert ball_size(0.3, (0.1, 1.0)) == 7


def test_a_full_ball_is_counted_without_overflow():
    mask = torch.ones(1, 1, 41, 41, 41, dtype=torch.bool)
    assert count_within(mask, 20, (1.0, 1.0, 1.0))[0, 0, 20, 20, 20].item() == ball_size(20, (1, 1, 1)) == 33401


def test_a_mask_may_lie_in_memory_in_any_order():
    mask = (torch.arange(2 * 3 * 9 * 7).view(2, 3, 9, 7) % 5 > 1).contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(count_within(mask, 2, (1, 1)), count_within(mask.contiguous(), 2, (1, 1)))
