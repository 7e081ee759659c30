# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Signs of errors, against closed forms."""

import math

import numpy as np
import pytest
import torch
from advice.labels import disc

from monai_iels import PolygonLabel
from monai_iels.advice import measure
from monai_iels.advice._signs import Repeats, odd_slices, smoothed, specks_of


def test_a_disc_is_convex_and_bends_alike_everywhere():
    signs = measure(disc(), (1.0, 1.0))
    assert signs.breadth == pytest.approx(30, rel=0.05)
    assert (signs.specks, signs.dents) == (0, 0)
    assert signs.wiggles < 0.05
    assert signs.straightness < 0.485  # pixels make steps
    assert measure(disc(300, 130), (1.0, 1.0)).straightness < signs.straightness
    assert math.isnan(signs.slices)


def test_a_square_has_four_corners():
    label = np.zeros((96, 96), np.int16)
    label[20:76, 20:76] = 1
    signs = measure(label, (1.0, 1.0))
    assert signs.straightness > 0.7
    assert signs.corners > 2
    assert signs.wiggles < 0.01
    assert signs.breadth == pytest.approx(28, rel=0.25)  # edges along the grid count as a quarter longer


def test_a_polygon_lies_between_disc_and_square():
    polygon = np.asarray(PolygonLabel(24)(torch.from_numpy(disc())[None].float()))[0].astype(np.int16)
    assert measure(disc(), (1, 1)).straightness < measure(polygon, (1, 1)).straightness
    assert measure(polygon, (1, 1)).corners > 1


def test_a_notch_is_a_gap_and_a_dent():
    label = disc()
    label[:48, 46:50] = 0
    assert measure(label, (1.0, 1.0)).gaps > 0.036
    assert smoothed(label > 0)[30, 47]
    label[:48, 40:56] = 0
    assert measure(label, (1.0, 1.0)).dents > 0
    assert smoothed(disc() > 0)[48, 47]
    assert not smoothed(disc() > 0)[10, 47]


def test_specks_are_tiny_islands_and_holes_and_may_repeat():
    label = disc()
    label[48, 48], label[2:4, 2:4] = 0, 1
    specks = specks_of(label)
    assert specks.sum() == 5
    same, other = Repeats(), Repeats()
    for shift in range(4):
        same.add(specks)
        other.add(np.roll(specks, 7 * shift, (0, 1)))
    assert same.correlation() == pytest.approx(1)
    assert abs(other.correlation()) < 0.01


def test_a_shifted_slice_is_odd():
    volume = np.repeat((disc(32, 8) > 0)[..., None], 9, axis=2)
    volume[..., 4] = np.roll(volume[..., 4], 3, axis=0)
    odd = odd_slices(volume, (1.0, 1.0, 1.0), 2)
    assert odd[..., 4].any()
    assert not odd[..., [0, 1, 2, 6, 7, 8]].any()


def test_thick_slices_are_looked_at_one_by_one():
    y, x, z = np.ogrid[:48, :48, :12]
    ball = ((y - 24) ** 2 + (x - 24) ** 2 + (4 * (z - 6)) ** 2 < 18**2).astype(np.int16)
    assert measure(ball, (1.0, 1.0, 4.0)).axis == 2
    thick = np.moveaxis(ball, 2, 0)
    assert measure(thick, (4.0, 1.0, 1.0)).axis == 0
    assert measure(thick, (4.0, 1.0, 1.0)).straightness < 0.485 < measure(thick, (1.0, 1.0, 1.0)).straightness
