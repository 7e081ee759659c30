# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Synthetic nuclei: several kinds of microscopy, and instances that fit what is seen."""

import numpy as np
import pytest
from scipy import ndimage

from monai_iels.drawings import draw_dsb2018

DRAWN = [draw_dsb2018(np.random.default_rng(seed), (128, 128)) for seed in range(120)]


def test_most_images_are_fluorescence_and_some_are_stained_tissue_or_bright_field():
    bright = [np.median(image) > 100 for image, _ in DRAWN]
    colored = [np.ptp(image.astype(int), axis=-1).mean() > 10 for image, _ in DRAWN]
    assert 0.1 < np.mean(bright) < 0.4
    assert any(colored)
    assert all(light for light, color in zip(bright, colored, strict=True) if color)
    assert sum(bright) > sum(colored)


def test_nuclei_are_whole_numbered_and_differ_in_size_between_images():
    for _, label in DRAWN:
        assert set(np.unique(label)) == set(range(label.max() + 1))
        assert np.bincount(label.ravel()).min() >= 12
        for number in range(1, label.max() + 1):
            parts, _ = ndimage.label(label == number)
            assert np.bincount(parts.ravel())[1:].max() > 0.8 * (label == number).sum()
    sizes = [np.median(np.bincount(label.ravel())[1:]) for _, label in DRAWN if label.any()]
    assert max(sizes) > 8 * min(sizes)
    assert len(sizes) > 110


def test_nuclei_stand_out_from_their_ground():
    for image, label in DRAWN:
        gray = image.astype(float).mean(-1)
        around = ndimage.binary_dilation(label > 0, iterations=6) & ~ndimage.binary_dilation(label > 0, iterations=2)
        difference = gray[label > 0].mean() - gray[around].mean()
        assert abs(difference) > 2 * gray[around].std() or abs(difference) > 20
        assert (difference > 0) == (np.median(gray) < 100)


def test_the_same_seed_gives_the_same_image():
    for again, first in zip(draw_dsb2018(np.random.default_rng(0), (128, 128)), DRAWN[0], strict=True):
        np.testing.assert_array_equal(again, first)


@pytest.mark.parametrize("shape", [(24, 24), (48, 80), (256, 256)])
def test_an_image_has_the_size_that_was_asked_for(shape):
    image, label = draw_dsb2018(np.random.default_rng(0), shape)
    assert (image.shape, image.dtype) == ((*shape, 3), np.uint8)
    assert (label.shape, label.dtype) == (shape, np.int32)
    assert label.any()
