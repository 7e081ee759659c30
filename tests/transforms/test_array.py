# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Evolve, CorruptLabel and BiteLabel, as arrays and in dictionaries."""

import hashlib
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from monai.data import MetaTensor, set_track_meta
from monai.transforms import (
    Activations,
    AsDiscrete,
    AsDiscreted,
    Compose,
    allow_missing_keys_mode,
)
from scipy import ndimage

from monai_iels import (
    BiteLabel,
    BiteLabeld,
    ConvexCurveMotion,
    CorruptLabel,
    CorruptLabeld,
    Evolution,
    Evolve,
    Evolved,
    HeatDiffusion,
    InverseEvolutionLayer,
)


def field(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def two_halves(*shape):
    label = torch.zeros(1, *shape, dtype=torch.uint8)
    label[..., shape[-1] // 2 :] = 1
    return label


class TestEvolve:
    @pytest.mark.parametrize("dt", [0.1, -0.1])
    @pytest.mark.parametrize("shape", [(2, 12, 14), (2, 6, 7, 8)])
    @pytest.mark.parametrize("evolution", [HeatDiffusion(2.0), ConvexCurveMotion(radii=(2,), band=1)])
    def test_array_equals_dictionary_equals_the_evolution(self, evolution, shape, dt):
        u = field(*shape)
        expected = evolution.evolve(u[None], dt, 3)[0]
        assert not torch.equal(expected, u)
        torch.testing.assert_close(Evolve(evolution, dt, 3)(u), expected, rtol=0, atol=0)
        out = Evolved(["a", "b"], evolution, dt, 3)({"a": u, "b": u.numpy(), "c": u})
        torch.testing.assert_close(out["a"], expected, rtol=0, atol=0)
        np.testing.assert_array_equal(out["b"], expected.numpy())
        assert out["c"] is u

    def test_types_come_back_as_they_went_in(self):
        evolve, u = Evolve(HeatDiffusion(), 0.1, 2), field(1, 8, 8)
        assert type(evolve(u.numpy())) is np.ndarray
        assert type(evolve(u)) is torch.Tensor
        meta = MetaTensor(u, affine=torch.diag(torch.tensor([2.0, 3, 1, 1])), meta={"filename_or_obj": "a.png"})
        out = evolve(meta)
        assert isinstance(out, MetaTensor)
        assert out.meta["filename_or_obj"] == "a.png"
        assert torch.equal(out.affine, meta.affine)
        assert evolve(u.double()).dtype == torch.float64
        assert evolve(u.half()).dtype == evolve((u > 0).to(torch.uint8)).dtype == torch.float32
        assert evolve((u > 0).numpy()).dtype == np.float32

    def test_the_input_is_not_changed(self):
        u = field(1, 8, 8)
        before = u.clone()
        Evolve(HeatDiffusion(), -0.1, 2)(u)
        assert torch.equal(u, before)

    def test_the_spacing_may_come_from_the_image_itself(self):
        u = MetaTensor(field(1, 6, 7, 8), affine=torch.diag(torch.tensor([1.0, 2, 3, 1])))
        heat = HeatDiffusion()
        torch.testing.assert_close(
            Evolve(heat, 0.1, 3, use_pixdim=True)(u).as_tensor(),
            HeatDiffusion((1.0, 2.0, 3.0)).evolve(u.as_tensor()[None], 0.1, 3)[0],
        )
        assert heat.spacing == 1.0
        flat = MetaTensor(field(1, 6, 7), affine=torch.diag(torch.tensor([1.0, 2, 3, 1])))
        torch.testing.assert_close(
            Evolve(heat, 0.1, 3, use_pixdim=True)(flat).as_tensor(),
            HeatDiffusion((1.0, 2.0)).evolve(flat.as_tensor()[None], 0.1, 3)[0],
        )
        dictionary = Evolved("x", heat, 0.1, 3, use_pixdim=True)({"x": flat})["x"]
        torch.testing.assert_close(dictionary, Evolve(heat, 0.1, 3, use_pixdim=True)(flat))
        with pytest.raises(TypeError, match="takes the spacing from a MetaTensor, got ndarray"):
            Evolve(heat, 0.1, 3, use_pixdim=True)(np.zeros((1, 4, 4)))

    def test_label_pre_processing_of_the_paper_removes_window_noise(self):
        label = two_halves(32, 32)
        noisy = CorruptLabel(num_classes=2, window=2, fraction=0.1)(label)
        smooth = Evolve(HeatDiffusion(2.0), dt=0.1, steps=100)
        clean = Compose([AsDiscrete(to_onehot=2), smooth, AsDiscrete(argmax=True)])(noisy)
        assert (noisy != label).float().mean() > 0.04
        assert (clean != label).float().mean() < 0.01
        dictionary = Compose(
            [
                AsDiscreted("label", to_onehot=2),
                Evolved("label", HeatDiffusion(2.0), 0.1, 100),
                AsDiscreted("label", argmax=True),
            ]
        )
        assert torch.equal(dictionary({"label": noisy})["label"], clean)

    def test_prediction_post_processing_of_the_paper_removes_noise(self):
        label = two_halves(32, 32)
        logits = AsDiscrete(to_onehot=2)(label).float() * 4 + 2 * field(2, 32, 32)
        smooth = Evolve(HeatDiffusion(2.0), dt=0.1, steps=100)
        steps = [Activations(softmax=True), smooth, AsDiscrete(argmax=True)]
        before = (Compose([steps[0], steps[2]])(logits) != label).float().mean()
        after = (Compose(steps)(logits) != label).float().mean()
        assert after < 0.25 * before

    def test_theorem_2_holds_in_miniature(self):
        """A smooth field through the inverse layer, then smoothed forward in small steps, returns as dt goes to 0."""
        y, x = (torch.linspace(0, np.pi, 24, dtype=torch.float64) for _ in range(2))
        u = (torch.cos(y)[:, None] * torch.cos(2 * x))[None]
        heat, time, errors = HeatDiffusion(2.0), 2.0, []
        for steps in (20, 40, 80):
            amplified = InverseEvolutionLayer(heat, time / steps, steps)(u[None])[0]
            returned = Evolve(heat, time / 10_000, 10_000)(amplified)
            errors.append((returned - u).abs().max().item())
        ratios = [coarse / fine for coarse, fine in itertools.pairwise(errors)]
        assert ratios == pytest.approx([2, 2], abs=0.1)
        assert errors[-1] < 0.01

    def test_a_missing_key_raises_an_error_unless_it_may_be_missing(self):
        with pytest.raises(KeyError, match="label"):
            Evolved("label", HeatDiffusion(), 0.1, 1)({})
        assert Evolved("label", HeatDiffusion(), 0.1, 1, allow_missing_keys=True)({"x": 1}) == {"x": 1}
        transform = Evolved("label", HeatDiffusion(), 0.1, 1)
        with allow_missing_keys_mode(transform):
            assert transform({}) == {}

    def test_an_evolution_of_a_user_works(self):
        class Decay(Evolution):
            def velocity(self, u):
                return -u

        torch.testing.assert_close(Evolve(Decay(), 0.5, 2)(torch.ones(1, 2, 2)), torch.full((1, 2, 2), 0.25))

    def test_wrong_arguments_are_named(self):
        with pytest.raises(TypeError, match="`evolution` must be an Evolution"):
            Evolve("heat", 0.1, 1)
        with pytest.raises(ValueError, match="`steps`"):
            Evolve(HeatDiffusion(), 0.1, -1)
        with pytest.raises(ValueError, match="`dt` must be finite, got nan"):
            Evolved("x", HeatDiffusion(), float("nan"), 1)


def checksum(label):
    return hashlib.sha256(np.asarray(label).astype(np.uint8).tobytes()).hexdigest()[:16]


class TestCorruptLabel:
    def test_pixels_without_a_class_stay_without_one(self):
        label = np.arange(400).reshape(1, 20, 20) % 3
        label[0, 5:15, 5:15] = 255
        noisy = CorruptLabel(3, window=2, fraction=0.9, ignore_index=255)(label)
        np.testing.assert_array_equal(noisy == 255, label == 255)
        assert 0.4 < (noisy != label)[label != 255].mean() < 0.7
        with pytest.raises(ValueError, match="255"):
            CorruptLabel(3)(label)

    @pytest.mark.parametrize("shape", [(112, 112), (113, 111), (35, 50, 35)])
    @pytest.mark.parametrize("window", [1, 2, 3, 5])
    @pytest.mark.parametrize("fraction", [0.05, 0.1, 0.5, 1.0])
    @pytest.mark.parametrize("shared", [True, False])
    def test_the_fraction_is_as_asked(self, shape, window, fraction, shared):
        noisy = CorruptLabel(10**9, window, fraction, shared=shared)(np.zeros((1, *shape), dtype=np.int64))
        tolerance = 0.51 * window ** len(shape) / np.prod(shape)  # half a window
        assert tolerance < 0.005
        assert (noisy > 0).mean() == pytest.approx(fraction, abs=tolerance)

    def test_every_class_is_drawn_as_often(self):
        noisy = CorruptLabel(4, 1, 1.0)(np.zeros((1, 200, 200)))
        np.testing.assert_allclose(np.bincount(noisy.astype(int).ravel()) / 40_000, 0.25, atol=0.01)

    def test_a_window_has_one_class_and_stands_on_the_tiling(self):
        noisy = CorruptLabel(3, 4, 0.5)(np.zeros((1, 32, 32)))
        blocks = noisy.reshape(8, 4, 8, 4).swapaxes(1, 2).reshape(64, 16)
        assert (blocks == blocks[:, :1]).all()
        assert len(np.unique(blocks)) == 3

    def test_other_pixels_are_left_alone(self):
        label = np.random.default_rng(0).integers(0, 3, (1, 64, 64))
        noisy = CorruptLabel(3, 2, 0.1)(label)
        assert 0.04 < (noisy != label).mean() < 0.1

    def test_the_noise_is_the_same_on_a_later_day(self):
        label = MetaTensor(two_halves(112, 112), meta={"filename_or_obj": "/anywhere/007.png"})
        plain = two_halves(112, 112)
        assert checksum(CorruptLabel(3)(label)) == "94c9a8a4d337e8fc"
        assert checksum(CorruptLabel(3, window=3, fraction=0.2, seed=5, shared=False)(label)) == "20663b6c41aebb62"
        assert checksum(CorruptLabel(3)(plain)) == "bbe5c1d09bc96ce0"
        assert checksum(CorruptLabel(3)(torch.zeros(1, 9, 10, 11))) == "3cc6c4961850554a"

    def test_the_folder_does_not_matter_but_the_file_s_name_and_values_do(self):
        def noise(name, values):
            return CorruptLabel(100, shared=False)(MetaTensor(values, meta={"filename_or_obj": name}))

        zeros, halves = torch.zeros(1, 64, 64), two_halves(64, 64).float()
        assert torch.equal(noise("/here/1.png", zeros), noise("C:\\there\\1.png", zeros))
        assert torch.equal(noise(Path("/here/1.png"), zeros), noise("1.png", zeros))
        assert not torch.equal(noise("/here/1.png", zeros), noise("/here/2.png", zeros))
        assert not torch.equal(noise("/a/label.png", zeros) > 1, noise("/b/label.png", halves) > 1)
        assert torch.equal(noise(["1.png"], zeros), CorruptLabel(100, shared=False)(zeros))

    def test_windows_and_classes_are_drawn_apart(self):
        label = MetaTensor(torch.zeros(1, 64, 64), meta={"filename_or_obj": "a.png"})
        shared, own = (CorruptLabel(100, shared=shared)(label) for shared in (True, False))
        assert sorted(shared[shared > 0].tolist()) != shared[shared > 0].tolist()
        assert sorted(shared.flatten().tolist()) == sorted(own.flatten().tolist())

    def test_shared_windows_are_the_same_pixels_for_two_labels_and_their_own_are_not(self):
        labels = [MetaTensor(torch.zeros(1, 64, 64), meta={"filename_or_obj": f"{i}.png"}) for i in range(2)]
        for shared in (True, False):
            corrupt = CorruptLabel(100, shared=shared)
            one, two = (corrupt(label) > 0 for label in labels)
            overlap = (one & two).sum() / one.sum()
            assert (overlap > 0.95) if shared else (overlap < 0.3)
            assert not torch.equal(corrupt(labels[0]), corrupt(labels[1]))

    def test_seeds_differ(self):
        label = two_halves(64, 64)
        assert not torch.equal(CorruptLabel(2, seed=0)(label), CorruptLabel(2, seed=1)(label))

    def test_types_come_back_as_they_went_in(self):
        for dtype in (torch.uint8, torch.int64, torch.float32):
            label = MetaTensor(two_halves(16, 16).to(dtype), meta={"filename_or_obj": "a.png"})
            noisy = CorruptLabel(2)(label)
            assert isinstance(noisy, MetaTensor)
            assert noisy.dtype == dtype
            assert noisy.meta["filename_or_obj"] == "a.png"
        noisy = CorruptLabel(2)(two_halves(16, 16).numpy())
        assert type(noisy) is np.ndarray
        assert noisy.dtype == np.uint8
        assert type(CorruptLabel(2)(two_halves(16, 16))) is torch.Tensor

    def test_the_label_s_type_does_not_change_its_noise(self):
        label = two_halves(16, 16)
        expected = CorruptLabel(2)(label)
        assert torch.equal(CorruptLabel(2)(label.float()).to(torch.uint8), expected)
        np.testing.assert_array_equal(CorruptLabel(2)(label.numpy()), expected.numpy())

    def test_a_fraction_of_zero_is_the_identity(self):
        label = two_halves(16, 16)
        before = label.clone()
        assert torch.equal(CorruptLabel(2, fraction=0)(label), label)
        CorruptLabel(2, fraction=0.5)(label)
        assert torch.equal(label, before)

    def test_a_foreign_class_is_named_with_its_file(self):
        label = MetaTensor(128 * two_halves(8, 8), meta={"filename_or_obj": "cells/001.png"})
        with pytest.raises(
            ValueError, match=r"must have the classes 0 to 2, got the values 0, 128 in cells/001.png: map them"
        ):
            CorruptLabel(3)(label)
        with pytest.raises(ValueError, match=r"got the values 0, 0.5: map"):
            CorruptLabel(3)(np.array([[0.0, 0.5]]))
        with pytest.raises(ValueError, match=r"classes 0 to 1, got the values -1, 0, "):
            CorruptLabel(2)(np.arange(-1, 20)[None])
        with pytest.raises(ValueError, match=r"shape \(1, \*spatial\), with class numbers, got \(3, 8, 8\) in a.png"):
            CorruptLabel(3)(MetaTensor(torch.zeros(3, 8, 8), meta={"filename_or_obj": "a.png"}))
        with pytest.raises(ValueError, match=r"shape \(1, \*spatial\)"):
            CorruptLabel(3)(np.zeros((1, 0, 4)))

    def test_a_type_that_cannot_hold_the_classes_is_named(self):
        for dtype, num_classes in ((np.int8, 200), (np.uint8, 300), (bool, 3)):
            with pytest.raises(ValueError, match=f"holds {num_classes} classes, got {np.dtype(dtype)}"):
                CorruptLabel(num_classes)(np.zeros((1, 8, 8), dtype=dtype))
        assert CorruptLabel(2)(np.zeros((1, 8, 8), dtype=bool)).dtype == bool

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"fraction": 2}, "`fraction` must be at least 0 and at most 1, got 2"),
            ({"fraction": -0.1}, "`fraction` must be at least 0 and at most 1, got -0.1"),
            ({"fraction": float("nan")}, "`fraction` must be at least 0 and at most 1, got nan"),
            ({"window": 0}, "`window` must be a whole number, at least 1, got 0"),
            ({"num_classes": 1}, "`num_classes` must be a whole number, at least 2, got 1"),
            ({"num_classes": 2.5}, "`num_classes` must be a whole number, at least 2, got 2.5"),
            ({"window": (2, 2)}, "`window` must be a whole number"),
            ({"seed": None}, "`seed` must be a whole number, at least 0, got None"),
        ],
    )
    def test_wrong_arguments_are_named(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            CorruptLabel(**{"num_classes": 3, **arguments})
        with pytest.raises(ValueError, match=message):
            CorruptLabeld("label", **{"num_classes": 3, **arguments})

    @pytest.mark.parametrize(
        "arguments", [{"window": 3}, {"fraction": 0.4}, {"seed": 3}, {"shared": False}, {"num_classes": 5}]
    )
    def test_array_equals_dictionary(self, arguments):
        label, arguments = two_halves(32, 32), {"num_classes": 3, **arguments}
        noisy = CorruptLabeld("label", **arguments)({"label": label, "image": label})
        assert torch.equal(noisy["label"], CorruptLabel(**arguments)(label))
        assert not torch.equal(noisy["label"], CorruptLabel(num_classes=3)(label))
        assert noisy["image"] is label

    def test_meta_data_is_dropped_where_it_is_not_tracked(self):
        label = MetaTensor(two_halves(16, 16), meta={"filename_or_obj": "a.png"})
        set_track_meta(False)
        try:
            assert type(CorruptLabel(2)(label)) is type(Evolve(HeatDiffusion(), 0.1, 1)(label)) is torch.Tensor
        finally:
            set_track_meta(True)

    def test_a_missing_key_raises_an_error_unless_it_may_be_missing(self):
        with pytest.raises(KeyError, match="label"):
            CorruptLabeld("label", 2)({})
        assert CorruptLabeld("label", 2, allow_missing_keys=True)({}) == {}


def balls(shape, *centers, radius):
    """Return a label with balls, as a NumPy array."""
    grid = np.indices(shape)
    masks = [((grid - np.reshape(center, (-1, *[1] * len(shape)))) ** 2).sum(0) <= radius**2 for center in centers]
    return np.any(masks, 0).astype(np.uint8)[None]


class TestBiteLabel:
    @pytest.mark.parametrize(
        "label",
        [
            balls((48, 60), (14, 14), (30, 44), radius=11),
            balls((24, 26, 40), (11, 11, 10), (12, 13, 29), radius=8),
        ],
        ids=["2-D", "3-D"],
    )
    def test_each_object_loses_a_ball_around_a_pixel_of_its_outline(self, label):
        bitten = BiteLabel(count=1, radius=3)(label)
        assert (bitten <= label).all()
        objects, count = ndimage.label(label[0])
        inner = ndimage.binary_erosion(label[0])
        assert count == 2
        for number in range(1, count + 1):
            lost = (bitten[0] == 0) & (objects == number)
            distances = [
                ((np.argwhere(objects == number) - center) ** 2).sum(1) <= 9 for center in np.argwhere(lost & ~inner)
            ]
            pixels = lost[objects == number]
            assert any((within == pixels).all() for within in distances)

    def test_more_bites_take_more_and_none_takes_nothing(self):
        label = balls((64, 64), (32, 32), radius=24)
        lost = [int(label.sum()) - int(BiteLabel(count, 3)(label).sum()) for count in (0, 1, 4, 16)]
        assert lost[0] == 0 < lost[1] < lost[2] < lost[3]
        assert BiteLabel(10**6, 1)(label).sum() < BiteLabel(40, 1)(label).sum()
        assert (BiteLabel(1, 100)(label) == 0).all()

    def test_objects_are_of_all_classes_together_and_the_image_s_edge_is_no_outline(self):
        label = np.zeros((1, 20, 20))
        label[0, :, :10], label[0, :, 10:] = 1, 2
        np.testing.assert_array_equal(BiteLabel(5, 3)(label), label)
        label[0, :, 0] = 0
        lost = np.argwhere(BiteLabel(3, 2)(label)[0] != label[0])
        assert len(lost)
        assert (lost[:, 1] <= 3).all()

    def test_the_bites_are_the_same_on_a_later_day_and_follow_name_values_and_seed(self):
        def bites(name, values, **options):
            return BiteLabel(3, 2, **options)(MetaTensor(values, meta={"filename_or_obj": name}))

        label = torch.as_tensor(balls((40, 40), (20, 20), radius=15))
        assert checksum(bites("/anywhere/007.png", label)) == "0c714a93ce7bf2c2"
        assert torch.equal(bites("/here/1.png", label), bites("C:\\there\\1.png", label))
        assert torch.equal(bites("1.png", label).float(), bites("1.png", label.float()))
        assert not torch.equal(bites("1.png", label), bites("2.png", label))
        assert not torch.equal(bites("1.png", label), bites("1.png", label, seed=1))

    def test_types_stay_and_the_dictionary_version_gives_the_same(self):
        label = MetaTensor(two_halves(16, 16), meta={"filename_or_obj": "a.png"})
        bitten = BiteLabeld("label", 2, 2.0, seed=3)({"label": label, "other": label})
        assert torch.equal(bitten["label"], BiteLabel(2, 2.0, seed=3)(label))
        assert not torch.equal(bitten["label"], label)
        assert bitten["label"].dtype == torch.uint8
        assert bitten["label"].meta["filename_or_obj"] == "a.png"
        assert bitten["other"] is label
        assert BiteLabeld("label", allow_missing_keys=True)({}) == {}
        assert type(BiteLabel()(label.numpy())) is np.ndarray

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"count": -1}, "`count` must be a whole number, at least 0, got -1"),
            ({"count": 1.5}, "`count` must be a whole number, at least 0, got 1.5"),
            ({"radius": -1}, "`radius` must be at least 0, got -1"),
            ({"radius": float("nan")}, "`radius` must be at least 0, got nan"),
        ],
    )
    def test_wrong_arguments_are_named(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            BiteLabeld("label", **arguments)

    def test_wrong_labels_are_named(self):
        with pytest.raises(ValueError, match=r"class numbers from 0, got the values 0, 0.5 in a.png"):
            BiteLabel()(MetaTensor(torch.tensor([[0.0, 0.5]]), meta={"filename_or_obj": "a.png"}))
        with pytest.raises(ValueError, match=r"shape \(1, \*spatial\)"):
            BiteLabel()(np.zeros((2, 8, 8)))
