# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Errors in labels: what each changes, by how much, and that nothing but the seed and the label decides it."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from monai.data import MetaTensor
from scipy import ndimage
from skimage.metrics import hausdorff_distance

from monai_iels import (
    CocoLabel,
    CorruptLabel,
    CutLabel,
    GrowLabel,
    MarkovLabel,
    MixAnnotators,
    OmitObjects,
    PolygonLabel,
    ScaleLabel,
    WobbleLabel,
)
from monai_iels.transforms.label_errors import redrawn, signed_distance

ERRORS = {
    "wobble": WobbleLabel(size=2.0, length=6.0),
    "shift": WobbleLabel(size=3.0, length=math.inf),
    "grow": GrowLabel(2.0),
    "shrink": GrowLabel(-2.0),
    "scale": ScaleLabel(share=1.0, strength=0.4),
    "polygon": PolygonLabel(every=12),
    "omit": OmitObjects(fraction=0.6),
    "cut": CutLabel(count=2, width=3.0),
    "markov": MarkovLabel(steps=40, expand=0.6, flip=0.1, smoothing=1.0),
    "coco": CocoLabel("medium", scale=0.4),
    "mix": MixAnnotators([GrowLabel(2.0), GrowLabel(-2.0)]),
}
each_error = pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)


def ball(radius, center, shape):
    places = np.indices(shape) - np.reshape(center, (-1, *(1,) * len(shape)))
    return (places**2).sum(0) < radius**2


def label_of(dims):
    """Three balls of class 1, each with one of class 2 inside of it; the first is at the edge."""
    shape = (72, 72) if dims == 2 else (48, 40, 24)
    label = np.zeros(shape)
    for center in [(9, 10), (30, 28), (36, 8)] if dims == 3 else [(8, 14), (40, 40), (60, 12)]:
        center = center if dims == 2 else (*center, 12)
        label[ball(10, center, shape)] = 1
        label[ball(5, center, shape)] = 2
    return torch.from_numpy(label)[None]


def with_file(label, name="case_7.png", spacing=1.0):
    affine = torch.diag(torch.tensor([spacing] * 3 + [1.0], dtype=torch.float64))
    return MetaTensor(label, affine=affine, meta={"filename_or_obj": name})


@each_error
@pytest.mark.parametrize("dims", [2, 3])
class TestEach:
    def test_a_label_is_changed_into_a_label(self, error, dims):
        label = label_of(dims)
        before = label.clone()
        changed = error(label)
        assert changed.shape == label.shape
        assert changed.dtype == label.dtype
        assert set(changed.unique().tolist()) <= {0.0, 1.0, 2.0}
        assert 0.002 < (changed != label).double().mean() < 0.4
        assert torch.equal(label, before)

    def test_the_seed_and_the_label_alone_decide(self, error, dims):
        label = with_file(label_of(dims))
        first = error(label)
        error(with_file(label_of(dims), "another.png"))
        assert torch.equal(error(label), first)
        assert torch.equal(error(with_file(label_of(dims), "/elsewhere/case_7.png")), first)
        assert torch.equal(error(label.to(torch.uint8)).double(), first)

    def test_pixels_without_a_class_stay_without_one(self, error, dims):
        label = label_of(dims)
        label[:, :12, -9:] = 255
        error.ignore_index = 255
        try:
            changed = error(label)
        finally:
            error.ignore_index = None
        assert torch.equal(changed == 255, label == 255)

    def test_an_empty_and_a_full_label_have_no_outline_to_draw_wrongly(self, error, dims):
        empty = torch.zeros_like(label_of(dims))
        assert torch.equal(error(empty), empty)
        full = torch.ones_like(empty)
        changed = error(full)
        if isinstance(error, CutLabel | OmitObjects | CocoLabel | MarkovLabel):  # these do not need an outline
            assert set(changed.unique().tolist()) <= {0.0, 1.0}
        else:
            assert torch.equal(changed, full)

    def test_no_class_appears_around_objects_of_another(self, error, dims):
        label = torch.zeros(1, *((64, 48) if dims == 2 else (48, 32, 16)))
        shape = tuple(label.shape[1:])
        centers = [(16, 24), (48, 24)] if dims == 2 else [(12, 16, 8), (36, 16, 8)]
        for number, center in enumerate(centers, 1):
            label[0][torch.from_numpy(ball(7, center, shape))] = number
        changed = error(label)[0]
        middle = shape[0] // 2
        assert set(changed[: middle - 8].unique().tolist()) <= {0.0, 1.0}
        assert set(changed[middle + 8 :].unique().tolist()) <= {0.0, 2.0}

    def test_tiny_labels_are_allowed(self, error, dims):
        tiny = torch.zeros(1, *(5,) * dims)
        tiny[0, 2, 2] = 1
        assert error(tiny).shape == tiny.shape


RANDOM = {
    "wobble": partial(WobbleLabel, 2.0, 6.0),
    "scale": partial(ScaleLabel, 0.5, 0.5),
    "polygon": partial(PolygonLabel, 12),
    "omit": partial(OmitObjects, 0.5),
    "cut": CutLabel,
    "markov": partial(MarkovLabel, 40),
    "coco": CocoLabel,
    "mix": partial(MixAnnotators, [GrowLabel(2.0), GrowLabel(-2.0)]),
}


@pytest.mark.parametrize("make", RANDOM.values(), ids=RANDOM)
def test_seeds_and_file_names_differ(make):
    label = label_of(2)
    by_seed = {make(seed=seed)(label).numpy().tobytes() for seed in range(12)}
    by_name = {make()(with_file(label, f"{name}.png")).numpy().tobytes() for name in range(12)}
    assert len(by_seed) > 1
    assert len(by_name) > 1


class TestWobble:
    def test_a_shift_moves_the_label_as_a_whole_by_the_size(self):
        label = torch.zeros(1, 64, 64)
        label[:, 24:40, 24:40] = 1
        moved = WobbleLabel(size=4.0, length=math.inf)(label)
        shift = np.argwhere(moved[0].numpy()).mean(0) - np.argwhere(label[0].numpy()).mean(0)
        assert moved.sum() == label.sum()
        assert math.sqrt((shift**2).mean()) == pytest.approx(4, abs=0.5)

    @pytest.mark.parametrize("spacing", [0.5, 1.0, 2.0])
    def test_the_size_is_in_millimeters(self, spacing):
        """A shift of 4 mm is 8, 4 and 2 pixels."""
        label = np.zeros((1, 64, 64))
        label[:, 24:40, 24:40] = 1
        moved = WobbleLabel(size=4.0, length=math.inf)(with_file(torch.from_numpy(label), spacing=spacing))
        shift = np.argwhere(moved[0].numpy()).mean(0) - np.argwhere(label[0]).mean(0)
        assert math.sqrt((shift**2).mean()) == pytest.approx(4 / spacing, abs=0.5)

    def test_outlines_move_by_about_the_size_and_smoothly(self):
        disc = torch.from_numpy(ball(30, (64, 64), (128, 128)))[None].double()
        distances = []
        for seed in range(8):
            wobbled = WobbleLabel(size=3.0, length=10.0, seed=seed)(disc)
            outline = wobbled[0].bool().numpy() ^ ndimage.binary_erosion(wobbled[0].bool())
            distances.append(signed_distance(disc[0].bool().numpy(), (1, 1))[outline])
            sizes = ndimage.sum_labels(wobbled[0], ndimage.label(wobbled[0])[0], [1, 2, 3])
            assert sizes.max() > 0.99 * wobbled.sum()
        assert np.std(np.concatenate(distances)) == pytest.approx(3, rel=0.3)

    def test_slices_move_by_themselves_and_only_within_their_plane(self):
        block = torch.zeros(1, 32, 32, 12)
        block[:, 10:22, 10:22, 3:9] = 1
        moved = WobbleLabel(size=2.0, length=math.inf, slices=-1)(block)
        areas = moved.sum((0, 1, 2))
        assert torch.equal(areas, block.sum((0, 1, 2)))
        centers = torch.stack([moved[0, :, :, z].nonzero().double().mean(0) for z in range(3, 9)])
        assert len(centers.unique(dim=0)) > 3


class TestGrow:
    @pytest.mark.parametrize("distance", [-4.0, -1.5, 1.0, 3.0])
    @pytest.mark.parametrize("spacing", [1.0, 0.5])
    def test_grown_labels_equal_brute_force(self, distance, spacing):
        region = np.random.default_rng(0).random((20, 24)) > 0.7
        region[5:15, 6:18] = True
        places = np.argwhere(np.ones_like(region)) * spacing
        other = np.argwhere(region if distance > 0 else ~region) * spacing
        near = (np.linalg.norm(places[:, None] - other, axis=2).min(1) <= abs(distance)).reshape(region.shape)
        grown = GrowLabel(distance)(with_file(torch.from_numpy(region)[None].double(), spacing=spacing))
        expected = near if distance > 0 else ~near
        np.testing.assert_array_equal(grown[0].numpy().astype(bool), expected)

    def test_an_inner_class_stays_inside(self):
        label = label_of(2)
        grown = GrowLabel(3.0)(label)
        assert (grown >= label).all()
        assert (grown == 2).sum() > (label == 2).sum()
        assert (GrowLabel(-3.0)(label) <= label).all()


def test_scale_changes_the_area_of_a_share_of_the_images():
    label = label_of(2)
    before = (label > 0).sum().item()
    ratios = [(ScaleLabel(0.7, 0.5)(with_file(label, f"{n}.png")) > 0).sum().item() / before for n in range(200)]
    rounded = np.round(ratios, 2)
    assert set(rounded) == {0.5, 1.0, 1.5}
    assert 0.6 < (rounded != 1).mean() < 0.8
    assert 0.2 < (rounded == 1.5).mean() < 0.5


@pytest.mark.parametrize("seed", range(4))
def test_equal_objects_are_scaled_alike_wherever_they_are(seed):
    label = torch.zeros(1, 160, 160)
    for y, x in np.ndindex(10, 10):
        label[0][torch.from_numpy(ball(3.5, (8 + 16 * y, 8 + 16 * x), (160, 160)))] = 1
    scaled = ScaleLabel(1.0, 0.5, seed=seed)(label)[0]
    areas = scaled.unfold(0, 16, 16).unfold(1, 16, 16).sum((2, 3))
    before = label.sum() / 100
    assert areas.mean() / before == pytest.approx(1.5 if areas.mean() > before else 0.5, abs=0.01)
    for half in (areas[:5], areas[5:], areas[:, :5], areas[:, 5:]):
        assert half.mean() == pytest.approx(areas.mean().item(), rel=0.05)


@pytest.mark.parametrize(("spacing", "distance", "pixels"), [(1.1, 3.3, 3), (0.1, 0.3, 3), (0.7, 4.9, 7)])
def test_a_distance_of_whole_pixels_is_reached_whatever_the_spacing(spacing, distance, pixels):
    label = torch.zeros(1, 40, 40)
    label[:, 15:25, :] = 1
    grown = GrowLabel(distance)(with_file(label, spacing=spacing))
    assert grown[0, :, 0].sum() == 10 + 2 * pixels
    shrunk = GrowLabel(-distance)(with_file(grown.as_tensor(), spacing=spacing))
    assert torch.equal(shrunk.as_tensor(), label)


class TestPolygon:
    def test_what_two_polygons_cover_is_no_hole(self):
        squares = np.zeros((32, 48), bool)
        squares[8:24, 6:22] = squares[8:24, 26:42] = True
        larger = redrawn(squares, lambda outline: 1.5 * outline - 0.5 * outline.mean(0), -1)
        assert larger[8:24, 6:42].all()

    def test_corners_are_on_the_outline_and_everything_is_inside_of_their_hull(self):
        disc = torch.from_numpy(ball(24, (32, 32), (64, 64)))[None].double()
        for every in (6, 12, 24):
            coarse = PolygonLabel(every)(disc)
            assert (coarse > disc).sum() < 20  # chords of a disc are inside of it, but for its stairs
            points = 2 * math.pi * 24 * (4 / math.pi) / every  # an outline of pixels is longer than the circle
            angle = 2 * math.pi / points
            lost = 1 - math.sin(angle) / angle  # of a regular polygon
            assert 1 - coarse.sum() / disc.sum() == pytest.approx(lost, abs=0.03)

    def test_a_hole_stays_a_hole(self):
        ring = ball(24, (32, 32), (64, 64)) & ~ball(12, (32, 32), (64, 64))
        coarse = PolygonLabel(8)(torch.from_numpy(ring)[None].double())[0].numpy()
        assert coarse[32, 32] == 0
        assert coarse[32, 14] == 1

    def test_all_points_give_the_region_back(self):
        region = label_of(2)[0].numpy() > 0
        np.testing.assert_array_equal(redrawn(region, lambda outline: outline, -1), region)


def test_omitted_objects_are_whole_and_about_as_many_as_asked():
    label = torch.zeros(1, 200, 200)
    label[:, ::4, ::4] = 1
    left = OmitObjects(0.3)(label)
    assert 0.25 < 1 - left.sum() / label.sum() < 0.35
    three = OmitObjects(0.5, seed=3)(label_of(2))
    for n in range(1, 4):
        component = torch.from_numpy(ndimage.label(label_of(2)[0], np.ones((3, 3)))[0])[None] == n
        assert torch.equal(three[component], label_of(2)[component]) or not three[component].any()


@pytest.mark.parametrize("shape", [(48, 48), (32, 32, 32)])
def test_cuts_are_straight_strips_of_the_width(shape):
    block = torch.ones(1, *shape)
    block[:, :2] = 0
    lost = (block - CutLabel(count=1, width=4.0)(block))[0].numpy()
    places = np.argwhere(lost).astype(float)
    places -= places.mean(0)
    *_, directions = np.linalg.svd(places, full_matrices=False)
    beside = np.linalg.norm(places @ directions[1:].T, axis=1)
    assert beside.max() < 2.6  # half of the width, and what the pixels at the ends turn the line by
    assert np.ptp(places @ directions[0]) > 8


class TestMarkov:
    def test_growing_alone_stays_near_and_a_flip_of_one_is_a_dilation(self):
        region = torch.from_numpy(ball(10, (32, 32), (64, 64)))[None].double()
        grown = MarkovLabel(steps=5, expand=1.0, flip=1.0, smoothing=0.0)(region)
        expected = ndimage.binary_dilation(region[0], iterations=5)
        np.testing.assert_array_equal(grown[0].numpy().astype(bool), expected)
        shrunk = MarkovLabel(steps=5, expand=0.0, flip=1.0, smoothing=0.0)(region)
        np.testing.assert_array_equal(shrunk[0].numpy().astype(bool), ndimage.binary_erosion(region[0], iterations=5))

    def test_outlines_move_by_the_expected_bias(self):
        """Outlines move by about steps x flip x (2 expand - 1), and raggedly."""
        disc = ball(30, (64, 64), (128, 128))
        radii = {}
        for expand in (0.2, 0.5, 0.8):
            noisy = MarkovLabel(100, expand, 0.05)(torch.from_numpy(disc)[None].double())
            radii[expand] = math.sqrt(noisy.sum() / math.pi)
        assert radii[0.2] < radii[0.5] < radii[0.8]
        assert radii[0.8] - 30 > 2
        assert abs(radii[0.5] - 30) < 2

    def test_presets_are_arguments(self):
        for preset in MarkovLabel.presets.values():
            assert MarkovLabel(*preset).steps == preset[0]


def test_levels_of_coco_n_are_harder_and_harder():
    disc = ball(40, (80, 80), (160, 160))
    label = torch.from_numpy(disc)[None].double()
    mean = {}
    for level in CocoLabel.levels:
        drawn = [CocoLabel(level, seed=seed)(label)[0].numpy().astype(bool) for seed in range(30)]
        kept = [each for each in drawn if each.any()]
        assert 0 <= len(drawn) - len(kept) < 8  # one in twenty is left out
        mean[level] = np.mean([hausdorff_distance(each, disc) for each in kept])
    assert mean["easy"] < mean["medium"] < mean["hard"]


def test_annotators_have_their_shares():
    label = torch.zeros(1, 32, 32)
    label[:, 8:24, 8:24] = 1
    mixed = MixAnnotators([None, GrowLabel(2.0), GrowLabel(-2.0)], shares=[2, 1, 1])
    sums = [mixed(with_file(label, f"{n}.png")).sum().item() for n in range(200)]
    counts = [sums.count(value) for value in (256, GrowLabel(2.0)(label).sum().item(), 144)]
    assert sum(counts) == 200
    assert counts == [pytest.approx(100, abs=20), pytest.approx(50, abs=20), pytest.approx(50, abs=20)]


def test_annotators_keep_pixels_without_a_class():
    label = torch.zeros(1, 16, 16)
    label[:, 4:8, 4:8] = 255
    for mixed in (MixAnnotators([GrowLabel(1.0, ignore_index=255)]), MixAnnotators([GrowLabel(1.0)]).keeping(255)):
        assert torch.equal(mixed(label), label)
    assert GrowLabel(1.0, ignore_index=7).keeping(255).ignore_index == 7
    with pytest.raises(ValueError, match=r"`ignore_index` must be the same for all annotators, got \[7, 255\]"):
        MixAnnotators([GrowLabel(1.0, ignore_index=255), None], ignore_index=7)
    with pytest.raises(ValueError, match="must have the classes 0 to 1"):
        MixAnnotators([CorruptLabel(num_classes=2)])(torch.full((1, 4, 4), 3.0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WobbleLabel(slices=2)(torch.ones(1, 8, 8)), "`slices` must be an axis of a 2-D label, got 2"),
        (lambda: WobbleLabel(size=-1), "`size` must be at least 0, got -1"),
        (lambda: WobbleLabel(length=0), "`length` must be above 0, got 0: math.inf"),
        (lambda: GrowLabel(math.inf), "`distance` must be finite, got inf"),
        (lambda: GrowLabel("2"), "`distance` must be finite, got '2'"),
        (lambda: ScaleLabel(share=2), "`share` must be at least 0 and at most 1, got 2"),
        (lambda: PolygonLabel(0), "`every` must be a whole number, at least 1, got 0"),
        (lambda: OmitObjects(-0.1), "`fraction` must be at least 0 and at most 1, got -0.1"),
        (lambda: CutLabel(width=-1), "`width` must be at least 0, got -1"),
        (lambda: MarkovLabel(flip=1.5), "`flip` must be at least 0 and at most 1, got 1.5"),
        (lambda: CocoLabel("mild"), "`level` must be one of easy, medium, hard, got 'mild'"),
        (lambda: CocoLabel(scale=0), "`scale` must be above 0, got 0"),
        (lambda: MixAnnotators([]), "`annotators` must be label errors such as"),
        (lambda: MixAnnotators([None], shares=[1, 2]), "`shares` must be 1 numbers"),
        (lambda: PolygonLabel(4)(torch.ones(1, 8)), "2-D or 3-D, got 1-D"),
    ],
)
def test_wrong_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
