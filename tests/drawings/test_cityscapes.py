# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Synthetic street scenes: all classes, on the picture where the label says, in every size."""

import numpy as np
import pytest
from scipy import ndimage, spatial

from monai_iels.data import SOURCES
from monai_iels.drawings import draw_cityscapes

CLASSES = [7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33]
SCENES = [draw_cityscapes(np.random.default_rng(seed), (128, 256)) for seed in range(24)]


def test_every_class_is_in_many_scenes_and_some_pixels_are_ignored():
    assert len(CLASSES) == len(SOURCES["cityscapes"].classes)
    for number in CLASSES:
        assert sum((label == number).any() for _, label in SCENES) >= 6, number
    for _, label in SCENES:
        assert len(set(np.unique(label)) & set(CLASSES)) > 12
        assert 0.03 < np.mean(~np.isin(label, CLASSES)) < 0.25


def test_the_same_seed_gives_the_same_scene_and_another_seed_another():
    for again, scene in zip(draw_cityscapes(np.random.default_rng(0), (128, 256)), SCENES[0], strict=True):
        np.testing.assert_array_equal(again, scene)
    assert len({image.tobytes() for image, _ in SCENES}) == len(SCENES)
    assert len({label.tobytes() for _, label in SCENES}) == len(SCENES)


@pytest.mark.parametrize("shape", [(24, 48), (32, 64), (100, 130), (256, 512)])
def test_a_scene_has_the_size_that_was_asked_for(shape):
    image, label = draw_cityscapes(np.random.default_rng(0), shape)
    assert (image.shape, image.dtype) == ((*shape, 3), np.uint8)
    assert (label.shape, label.dtype) == (shape, np.uint8)


def test_sky_is_above_the_buildings_and_the_road_below_all():
    for _, label in SCENES:
        height = {number: np.argwhere(label == number)[:, 0].mean() for number in (23, 11, 7)}
        assert height[23] < height[11] < height[7]
        assert np.argwhere(label == 23)[:, 0].max() < np.argwhere(label == 7)[:, 0].min()


def test_the_label_fits_the_picture():
    """Where the label changes, so does the picture: its contrast is larger there than within objects."""
    for image, label in SCENES:
        contrast = ndimage.gaussian_gradient_magnitude(image.astype(float).mean(-1), 0.7)
        edge = ndimage.morphological_gradient(label, size=3) > 0
        assert contrast[edge].mean() > 2 * contrast[~edge].mean()


def test_colors_and_rows_tell_classes_apart():
    """A nearest-neighbor rule is right about most pixels of scenes that it never saw; a third of them are road."""
    blurred = np.stack([ndimage.uniform_filter(image.astype(float), (5, 5, 1)) for image, _ in SCENES])
    rows = np.broadcast_to(np.arange(128.0)[:, None, None], (len(SCENES), 128, 256, 1))
    features, labels = np.concatenate([blurred, rows], axis=-1), np.stack([label for _, label in SCENES])
    known, new = (labels[part, ::3, ::3] != 0 for part in (slice(18), slice(18, None)))
    tree = spatial.KDTree(features[:18, ::3, ::3][known])
    answers = labels[:18, ::3, ::3][known][tree.query(features[18:, ::3, ::3][new])[1]]
    assert np.mean(answers == labels[18:, ::3, ::3][new]) > 0.55
