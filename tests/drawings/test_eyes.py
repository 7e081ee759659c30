# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Synthetic photographs of eyes: what the studies of vessels and of optic discs are about."""

import numpy as np
import pytest
from scipy import ndimage

from monai_iels.drawings import draw_drive, draw_refuge


@pytest.mark.parametrize("seed", range(3))
def test_vessels_are_thin_and_in_the_field_of_view(seed):
    image, vessels, field = draw_drive(np.random.default_rng(seed), (292, 282))
    assert 0.05 < vessels[field > 0].mean() < 0.25
    assert not vessels[field == 0].any()
    assert ndimage.binary_erosion(vessels, iterations=2).sum() < 0.15 * vessels.sum()
    green = image[..., 1].astype(float)
    beside = ndimage.binary_dilation(vessels, iterations=3) & (vessels == 0) & (field > 0)
    assert green[vessels > 0].mean() < 0.9 * green[beside].mean()


@pytest.mark.parametrize("glaucoma", [False, True])
def test_a_traced_disc_leaves_out_vessels_and_a_careful_one_does_not(glaucoma):
    for seed in range(3):
        shape = (256, 256)
        (image, traced), (same, careful) = (
            draw_refuge(np.random.default_rng(seed), shape, glaucoma, each) for each in (True, False)
        )
        np.testing.assert_array_equal(image, same)
        assert set(np.unique(careful)) == {0, 1, 2}
        left_out = (careful > 0) & (traced == 0)
        np.testing.assert_array_equal(traced[~left_out], careful[~left_out])
        assert 0.02 < left_out.sum() / (careful > 0).sum() < 0.4
        green = image[..., 1].astype(float)
        assert green[left_out].mean() < 0.8 * green[traced > 0].mean()
        filled = ndimage.binary_closing(careful > 0, iterations=4)
        assert filled.sum() < 1.02 * (careful > 0).sum()


def test_glaucoma_enlarges_the_cup():
    shares = {}
    for glaucoma in (False, True):
        labels = [draw_refuge(np.random.default_rng(seed), (128, 128), glaucoma, False)[1] for seed in range(5)]
        shares[glaucoma] = np.mean([(label == 2).sum() / (label > 0).sum() for label in labels])
    assert shares[True] > 1.5 * shares[False]
