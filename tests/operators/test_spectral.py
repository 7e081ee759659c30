# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The cosine transform against the stencil that it diagonalizes, and against single modes."""

import math

import pytest
import torch

from monai_iels.operators.spectral import eigenvalues, from_modes, to_modes
from monai_iels.operators.stencil import laplacian

SHAPES = [(7,), (8,), (5, 8), (6, 9), (1, 4), (4, 3, 5), (2, 1, 6)]


def field(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def spacing_for(shape):
    return tuple(1.0 + 0.5 * axis for axis in range(len(shape)))


@pytest.mark.parametrize("shape", SHAPES)
def test_modes_turn_back_into_the_field(shape):
    u = field(2, 3, *shape)
    torch.testing.assert_close(from_modes(to_modes(u), shape), u)


@pytest.mark.parametrize("shape", SHAPES)
def test_modes_diagonalize_the_laplacian(shape):
    u, spacing = field(2, 3, *shape), spacing_for(shape)
    spectral = from_modes(to_modes(u) * eigenvalues(shape, spacing, u), shape)
    torch.testing.assert_close(spectral, laplacian(u, spacing))


def test_a_cosine_is_one_coefficient():
    size, k = 8, 3
    u = torch.cos(math.pi * k * (torch.arange(size, dtype=torch.float64) + 0.5) / size)[None, None]
    assert to_modes(u)[0, 0].abs().gt(1e-12).nonzero().tolist() == [[k, 0]]
    u = torch.cos(math.pi * (size - k) * (torch.arange(size, dtype=torch.float64) + 0.5) / size)[None, None]
    assert to_modes(u)[0, 0].abs().gt(1e-12).nonzero().tolist() == [[k, 1]]
