# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""FillHull and OpenCloseLabel against SciPy and scikit-image."""

import numpy as np
import pytest
import torch
from monai.data import MetaTensor
from scipy import ndimage
from skimage.morphology import ball, closing, convex_hull_image, disk

from monai_iels import BiteLabel, FillHull, FillHulld, OpenCloseLabel, OpenCloseLabeld


def balls(shape, *centers, radius):
    """Return a label with balls, as a NumPy array."""
    grid = np.indices(shape)
    masks = [((grid - np.reshape(center, (-1, *[1] * len(shape)))) ** 2).sum(0) <= radius**2 for center in centers]
    return np.any(masks, 0).astype(np.uint8)[None]


class TestFillHull:
    def test_crumbs_of_a_volume_have_hulls_too(self):
        """As an untrained network predicts them; one of them was too flat for the hull's library."""
        crumbs = np.random.default_rng(20).random((1, 24, 24, 24)) > 0.85
        filled = FillHull(components=True)(crumbs.astype(np.uint8))
        assert (filled[crumbs] == 1).all()
        assert filled.sum() > crumbs.sum()

    @pytest.mark.parametrize("shape", [(24, 31), (11, 14, 9)])
    @pytest.mark.parametrize("seed", range(8))
    def test_the_hull_is_that_of_an_independent_implementation(self, shape, seed):
        mask = np.random.default_rng(seed).random((1, *shape)) < 0.015
        expected = convex_hull_image(mask[0], offset_coordinates=False)
        assert expected.sum() > mask.sum() > len(shape)
        np.testing.assert_array_equal(FillHull(components=False)(mask.astype(np.uint8))[0], expected)

    @pytest.mark.parametrize(("shape", "element"), [((40, 50), disk), ((18, 20, 22), ball)])
    @pytest.mark.parametrize("radius", [1, 3])
    def test_the_closing_is_that_of_an_independent_implementation(self, shape, element, radius):
        """Two boxes with a gap of four pixels, at the edge of the image, and one far away."""
        mask = np.zeros(shape, dtype=np.uint8)
        mask[:5, :7] = mask[:5, 11:17] = mask[-4:, -6:] = 1
        closed = closing(np.pad(mask, 10), element(radius))[(slice(10, -10),) * len(shape)]
        numbers, count = ndimage.label(closed, np.ones((3,) * len(shape)))
        hulls = [convex_hull_image(numbers == n, offset_coordinates=False) for n in range(1, count + 1)]
        assert count == (3 if radius == 1 else 2)
        np.testing.assert_array_equal(FillHull(radius=radius)(mask[None])[0], np.any(hulls, 0))

    @pytest.mark.parametrize("radius", [0, 2, 30])
    def test_what_is_convex_stays_as_it_is(self, radius):
        corner = np.zeros((1, 20, 20), dtype=np.uint8)
        corner[0, :8, :9] = 1
        for convex in (balls((40, 40), (20, 20), radius=13.3), balls((21, 22, 23), (10, 11, 12), radius=8), corner):
            np.testing.assert_array_equal(FillHull(radius=radius)(convex), convex)

    def test_filling_twice_is_filling_once(self):
        label = BiteLabel(8, 4)(balls((48, 48), (24, 24), radius=18))
        once = FillHull(radius=2)(label)
        assert once.sum() > label.sum()
        np.testing.assert_array_equal(FillHull(radius=2)(once), once)

    @pytest.mark.parametrize("shape", [(9, 9), (9, 9, 9)])
    def test_lines_planes_pixels_and_empty_labels_have_hulls_of_their_dimension(self, shape):
        fill = FillHull(components=False)
        label = np.zeros((1, *shape))
        np.testing.assert_array_equal(fill(label), label)
        label[(0, *[4] * len(shape))] = 1
        np.testing.assert_array_equal(fill(label), label)
        label[(0, *[0] * len(shape))] = 1
        assert [tuple(p) for p in np.argwhere(fill(label)[0])] == [(i,) * len(shape) for i in range(5)]
        flat = np.zeros((1, *shape))
        flat[0, 2, 0], flat[0, 2, 8] = 1, 1
        assert np.argwhere(fill(flat)[0])[:, 0].tolist() == [2] * int(np.prod(shape[1:]))

    def test_components_have_a_hull_each_and_touching_objects_become_one(self):
        apart, touching = np.zeros((1, 12, 24)), np.zeros((1, 12, 24))
        apart[0, 1:6, 1:6] = apart[0, 5:11, 14:20] = 1
        touching[0, 1:6, 1:6] = touching[0, 6:12, 6:12] = 1
        np.testing.assert_array_equal(FillHull()(apart), apart)
        assert FillHull(components=False)(apart).sum() > apart.sum()
        np.testing.assert_array_equal(FillHull()(touching), FillHull(components=False)(touching))
        assert FillHull()(touching).sum() > touching.sum()

    def test_what_a_region_gains_gets_the_nearest_class_and_others_keep_theirs(self):
        label = np.zeros((1, 12, 12))
        label[0, 2:10, 2:10] = 1
        label[0, 2:6, 5:7] = 0  # a slot in the disc
        label[0, 7:9, 3:9] = 2
        label[0, 8, 5:7] = 1  # a dent in the cup
        whole = FillHull(regions=((1, 2),))(label)
        assert (whole[0, 2:10, 2:10] > 0).all()
        np.testing.assert_array_equal(whole[label > 0], label[label > 0])
        assert (whole[0, 2:6, 5:7] == 1).all()
        vessel = label.copy()
        vessel[0, 2:10, 7] = 0  # through disc and cup
        filled = FillHull(regions=((1, 2),), radius=1)(vessel)
        assert filled[0, 2:8, 7].tolist() == [1, 1, 1, 1, 1, 2]
        both = FillHull(regions=((1, 2), (2,)))(label)
        assert (both[0, 8, 5:7] == 2).all()
        np.testing.assert_array_equal(FillHull()(label), FillHull(((1,), (2,)))(label))
        np.testing.assert_array_equal(FillHull(((5,),))(label), label)

    def test_types_stay_and_the_dictionary_version_gives_the_same(self):
        label = MetaTensor(torch.as_tensor(BiteLabel(4, 3)(balls((32, 32), (16, 16), radius=12))))
        filled = FillHulld("label", ((1,),), 2.0, False)({"label": label, "other": label})
        assert torch.equal(filled["label"], FillHull(((1,),), 2.0, False)(label))
        assert not torch.equal(filled["label"], label)
        assert filled["label"].dtype == torch.uint8
        assert filled["other"] is label
        assert FillHull()(label.bool().numpy()).dtype == bool

    def test_wrong_use_is_named(self):
        with pytest.raises(ValueError, match="`radius` must be at least 0, got -1"):
            FillHull(radius=-1)
        for regions in ((), ((),)):
            with pytest.raises(ValueError, match="`regions` must be groups of channels or classes"):
                FillHulld("label", regions)
        with pytest.raises(ValueError, match=r"2-D or 3-D, of shape \(1, \*spatial\), got \(1, 5\)"):
            FillHull()(np.zeros((1, 5)))
        with pytest.raises(ValueError, match="class numbers from 0, got the values -1, 0"):
            FillHull()(np.array([[[-1, 0]]]))


class TestOpenCloseLabel:
    @pytest.mark.parametrize("dims", [2, 3])
    def test_specks_are_removed_and_gaps_filled(self, dims):
        axes = torch.meshgrid(*[torch.arange(32) - 15.5] * dims, indexing="ij")
        distance = sum(axis**2 for axis in axes).sqrt()[None]
        label = (distance < 13).byte() + (distance < 7)
        noisy = label.clone()
        for corner, value in ((15, 1), (9, 2), (22, 0), (0, 1)):
            noisy[(0, *[slice(corner, corner + 2)] * (dims - 1), slice(15, 17))] = value
        assert not torch.equal(noisy, label)
        repaired = OpenCloseLabel()(noisy)
        assert repaired.dtype == label.dtype
        rounded = OpenCloseLabel()(label)  # some voxels of the outlines change
        assert (rounded != label).float().mean() < 0.001
        assert (repaired != rounded).sum() < 0.2 * (noisy != label).sum()
        assert torch.equal(OpenCloseLabel(0.0)(noisy), noisy)
        assert torch.equal(OpenCloseLabeld("label")({"label": noisy})["label"], repaired)

    def test_opening_is_that_of_scipy(self):
        label = torch.as_tensor(np.random.default_rng(0).integers(0, 2, (1, 30, 30)))
        label[0, :9, 20:] = 1
        classes = [(label[0] == number).numpy() for number in (0, 1)]
        square = np.ones((3, 3))

        def opened_and_closed(mask):
            opened = ndimage.binary_dilation(ndimage.binary_erosion(mask, square), square)
            return ndimage.binary_erosion(ndimage.binary_dilation(np.pad(opened, 2), square), square)[2:-2, 2:-2]

        claims = [opened_and_closed(mask) for mask in classes]
        repaired = OpenCloseLabel(1.5)(label)[0].numpy()
        alone = claims[0] != claims[1]
        assert alone.any()
        assert np.array_equal(repaired[alone], claims[1][alone])

    def test_ignored_pixels_stay_and_others_do_not_join_them(self):
        label = torch.zeros(1, 20, 20)
        label[:, 10:] = 3
        label[:, 5:15, 8:12] = 255
        noisy = label.clone()
        noisy[:, 12, 15] = 0
        assert torch.equal(OpenCloseLabel(ignore_index=255)(noisy), label)
        everywhere = torch.full((1, 4, 4), 255)
        assert torch.equal(OpenCloseLabel(1.5, ignore_index=255)(everywhere), everywhere)

    def test_a_negative_radius_is_refused(self):
        with pytest.raises(ValueError, match="`radius` must be at least 0, got -1"):
            OpenCloseLabel(-1)
