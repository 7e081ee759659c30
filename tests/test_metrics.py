# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Convexity and roughness against shapes whose values are known, by hand counts, and over two processes."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from ignite.engine import Engine
from monai.bundle import ConfigParser
from monai.data import MetaTensor
from monai.handlers import IgniteMetricHandler, MetricsSaver
from monai.metrics import DiceMetric
from programs import run_ranks
from scipy.spatial import ConvexHull
from sklearn.metrics import jaccard_score

from monai_iels import ConvexityMetric, RoughnessMetric, SetIoUMetric


def one_hot(*masks):
    """Return a batch of (background, region) from masks."""
    region = torch.stack([torch.as_tensor(mask) for mask in masks]).bool()
    return torch.stack([~region, region], 1).float()


def convexity(mask):
    return ConvexityMetric()(one_hot(mask)).item()


def blank(*shape):
    return torch.zeros(*shape, dtype=torch.bool)


SQUARE, L_SHAPE, CROSS, DIAGONAL = blank(12, 12), blank(12, 12), blank(12, 12), torch.eye(3).bool()
SQUARE[3:9, 2:10] = True
L_SHAPE[2:10, 2:4] = L_SHAPE[8:10, 2:10] = True
CROSS[5:7, 1:11] = CROSS[1:11, 5:7] = True
Y, X = torch.meshgrid(torch.arange(101) - 50, torch.arange(101) - 50, indexing="ij")
DISK = X**2 + Y**2 <= 40**2
CRESCENT = DISK & ((X - 25) ** 2 + Y**2 > 30**2)


class TestConvexity:
    @pytest.mark.parametrize(
        ("mask", "expected"),
        [
            (SQUARE, 1.0),
            (L_SHAPE, 28 / 46),  # hull: 8 x 8 less the triangle of 6 x 6
            (CROSS, 36 / 68),  # hull: 10 x 10 less four triangles of 4 x 4
            (DIAGONAL, 3 / 5),  # corners touch: one component
            (torch.ones(1, 1).bool(), 1.0),
            (torch.ones(1, 7).bool(), 1.0),
        ],
        ids=["rectangle", "L", "cross", "diagonal", "pixel", "line"],
    )
    def test_polygons_have_their_known_convexity(self, mask, expected):
        assert convexity(mask) == pytest.approx(expected, abs=1e-6)

    @pytest.mark.parametrize("mask", [DISK, CRESCENT, CROSS], ids=["disk", "crescent", "cross"])
    def test_the_hull_is_that_of_all_corners(self, mask):
        corners = np.argwhere(mask.numpy())[:, None] + np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
        assert convexity(mask) == pytest.approx(mask.sum().item() / ConvexHull(corners.reshape(-1, 2)).volume)

    def test_a_disk_and_a_crescent_have_their_known_convexity(self):
        assert convexity(DISK) == pytest.approx(0.977, abs=0.001)
        # The hull of the crescent: the disk less what the chord between its horns cuts off.
        corner_x = (40**2 - 30**2 + 25**2) / 50
        horn = math.sqrt(40**2 - corner_x**2)
        cut = 40**2 * math.acos(corner_x / 40) - corner_x * horn
        assert convexity(CRESCENT) == pytest.approx(CRESCENT.sum().item() / (math.pi * 40**2 - cut), abs=0.02)

    def test_two_components_have_a_hull_each(self):
        two = SQUARE.clone()
        two[10:12, 10:12] = True
        assert convexity(two) == 1.0
        touching = blank(12, 12)
        touching[1:5, 1:5] = touching[5:9, 5:9] = True
        assert convexity(touching) == pytest.approx(32 / 48)
        mixed = blank(12, 24)
        mixed[:, :12] = L_SHAPE
        mixed[2:6, 16:20] = True
        assert convexity(mixed) == pytest.approx((28 + 16) / (46 + 16))

    def test_a_component_in_the_notch_of_another_has_its_own_hull(self):
        nested = L_SHAPE.clone()
        nested[3:6, 6:9] = True
        assert convexity(nested) == pytest.approx((28 + 9) / (46 + 9))

    def test_cubes_that_touch_in_a_corner_are_one(self):
        cubes = blank(5, 5, 5)
        cubes[:2, :2, :2] = cubes[2:4, 2:4, 2:4] = True
        assert convexity(cubes) < 0.6

    def test_volumes_have_their_known_convexity(self):
        box = blank(6, 7, 8)
        box[1:5, 2:6, 3:7] = True
        assert convexity(box) == 1.0
        c_shape = box.clone()
        c_shape[2:4, 2:4] = False  # a slot of 2 x 2 x 4 in a cube of 4
        assert convexity(c_shape) == pytest.approx((64 - 16) / 64)
        axes = torch.meshgrid(*[torch.arange(31) - 15] * 3, indexing="ij")
        ball = sum(axis**2 for axis in axes) <= 12**2
        corners = np.argwhere(ball.numpy())[:, None] + np.indices((2, 2, 2)).reshape(3, -1).T
        assert convexity(ball) == pytest.approx(ball.sum().item() / ConvexHull(corners.reshape(-1, 3)).volume)
        assert 0.85 < convexity(ball) < 0.95

    def test_empty_is_nan_and_not_averaged(self):
        metric = ConvexityMetric(get_not_nans=True)
        values = metric(one_hot(SQUARE, blank(12, 12), L_SHAPE))
        assert values.isnan().flatten().tolist() == [False, True, False]
        mean, count = metric.aggregate()
        assert mean.item() == pytest.approx((1 + 28 / 46) / 2)
        assert count.item() == 2
        metric.reset()
        metric(one_hot(blank(12, 12)))
        empty = DiceMetric(include_background=False, get_not_nans=True)
        empty(one_hot(blank(12, 12)), one_hot(blank(12, 12)))
        assert [float(x) for x in metric.aggregate()] == [float(x) for x in empty.aggregate()]

    def test_with_a_reference_empty_is_as_in_dice(self):
        predictions, references = one_hot(SQUARE, blank(12, 12)), one_hot(blank(12, 12), SQUARE)
        dice = DiceMetric(include_background=False)(predictions, references)
        assert dice.isnan().flatten().tolist() == [True, False]
        torch.testing.assert_close(ConvexityMetric()(predictions, references), dice, equal_nan=True)
        assert ConvexityMetric(reference=True)(predictions, references).nan_to_num(-1).flatten().tolist() == [-1, 1]

    def test_background_and_regions_count_as_asked(self):
        classes = torch.zeros(1, 3, 12, 12)
        classes[:, 1, 2:10, 2:10] = 1
        classes[:, 1, 4:8, 4:8] = 0
        classes[:, 2, 4:8, 4:8] = 1
        classes[:, 0] = 1 - classes[:, 1:].sum(1)
        assert ConvexityMetric()(classes).tolist() == [[48 / 64, 1.0]]
        assert ConvexityMetric(include_background=True)(classes).shape == (1, 3)
        assert ConvexityMetric(regions=((1, 2), (2,)))(classes).tolist() == [[1.0, 1.0]]

    def test_values_are_reduced_as_asked_for_every_type(self):
        batch = torch.cat([one_hot(SQUARE, L_SHAPE), one_hot(CROSS, SQUARE)[:, 1:]], 1)
        values = ConvexityMetric()(batch)
        assert values.shape == (2, 2)
        metric = ConvexityMetric(reduction="mean_batch")
        metric(batch)
        torch.testing.assert_close(metric.aggregate(), values.mean(0))
        torch.testing.assert_close(metric.aggregate("none"), values)
        listed = ConvexityMetric()(list(batch))
        torch.testing.assert_close(listed, values)
        assert type(ConvexityMetric()(MetaTensor(batch))) is torch.Tensor


class TestRoughness:
    def test_roughness_equals_a_count_by_hand(self):
        """3 x 4 pixels have 8 pairs down and 9 across; the labels below differ in 3 and 5 of them."""
        label = torch.tensor([[0, 0, 1, 1], [0, 2, 1, 1], [0, 2, 2, 0]])
        classes = torch.nn.functional.one_hot(label, 3).movedim(-1, 0)[None].float()
        down = (label[1:] != label[:-1]).sum().item()
        across = (label[:, 1:] != label[:, :-1]).sum().item()
        assert (down, across) == (3, 5)
        for include_background in (True, False):
            assert RoughnessMetric(include_background)(classes).item() == pytest.approx(8 / 17)

    def test_a_checkerboard_a_constant_and_a_volume_have_their_known_roughness(self):
        board = (torch.arange(6)[:, None] + torch.arange(6)) % 2 == 0
        assert RoughnessMetric()(one_hot(board)).item() == 1.0
        assert RoughnessMetric()(one_hot(blank(6, 6))).item() == 0.0
        half = blank(4, 4, 4)
        half[2:] = True
        assert RoughnessMetric()(one_hot(half)).item() == pytest.approx(16 / 144)
        assert RoughnessMetric()(one_hot(blank(1, 1))).isnan().all()

    def test_the_reference_is_measured_next_to_it(self):
        noisy = SQUARE.clone()
        noisy[::3, ::3] ^= True
        for metric_type in (RoughnessMetric, ConvexityMetric):
            prediction, reference = metric_type(), metric_type(reference=True)
            prediction(one_hot(noisy), one_hot(SQUARE))
            reference(one_hot(noisy), one_hot(SQUARE))
            alone = metric_type()
            alone(one_hot(SQUARE))
            assert reference.aggregate() == alone.aggregate() != prediction.aggregate()
            with pytest.raises(ValueError, match="a reference `y` is needed"):
                metric_type(reference=True)(one_hot(SQUARE))


def test_wrong_use_is_named():
    for metric in (RoughnessMetric(), ConvexityMetric()):
        with pytest.raises(ValueError, match=r"must be one-hot, of 0 and 1, got values from 0 to 2: use AsDiscrete"):
            metric(torch.arange(3.0).expand(1, 1, 4, 3))
        with pytest.raises(ValueError, match="must be one-hot, of 0 and 1"):
            metric(torch.full((1, 2, 4, 4), math.nan))
    with pytest.raises(ValueError, match=r"2-D or 3-D, of shape \(B, C, \*spatial\), got \(1, 2, 5\)"):
        ConvexityMetric()(torch.zeros(1, 2, 5))
    with pytest.raises(ValueError, match=r"channels of `regions` \(\(1, 2\),\), got 2 channels"):
        ConvexityMetric(regions=((1, 2),))(one_hot(SQUARE))
    for regions in ((), ((),)):
        with pytest.raises(ValueError, match="`regions` must be groups"):
            ConvexityMetric(regions=regions)
    with pytest.raises(ValueError, match="median"):
        RoughnessMetric(reduction="median")
    with pytest.raises(ValueError, match=r"shape \(B, C, \*spatial\), got \(2, 3\)"):
        RoughnessMetric()(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="has no values yet: call it before `aggregate`"):
        ConvexityMetric().aggregate()


def test_monai_s_handler_adds_the_metrics_to_an_engine(tmp_path):
    noisy = SQUARE.clone()
    noisy[::3, ::3] ^= True
    engine = Engine(lambda engine, batch: (one_hot(noisy), one_hot(SQUARE)))
    for name, metric in {
        "roughness": RoughnessMetric(),
        "roughness_reference": RoughnessMetric(reference=True),
        "convexity": ConvexityMetric(),
        "convexity_reference": ConvexityMetric(regions=((1,),), reference=True),
    }.items():
        IgniteMetricHandler(metric).attach(engine, name)
    MetricsSaver(tmp_path, metric_details="*", batch_transform=lambda batch: [{}]).attach(engine)
    engine.run([0, 1], max_epochs=1)
    assert engine.state.metrics["convexity_reference"] == 1.0
    assert engine.state.metrics["convexity"] == pytest.approx(convexity(noisy))
    assert engine.state.metrics["roughness"] > 2 * engine.state.metrics["roughness_reference"]
    assert (tmp_path / "metrics.csv").read_text().count("\n") == 4
    assert (tmp_path / "roughness_raw.csv").exists()


def test_a_bundle_names_them_beside_its_key_metric():
    images = [{"image": 4 * one_hot(mask)[0] - 2, "label": one_hot(mask)[0]} for mask in (SQUARE, L_SHAPE)]
    config = {
        "images": images,
        "evaluator": {
            "_target_": "SupervisedEvaluator",
            "device": "cpu",
            "val_data_loader": {
                "_target_": "DataLoader",
                "dataset": {"_target_": "Dataset", "data": "@images"},
                "batch_size": 2,
            },
            "network": {"_target_": "torch.nn.Identity"},
            "postprocessing": {"_target_": "AsDiscreted", "keys": "pred", "argmax": True, "to_onehot": 2},
            "key_val_metric": {
                "val_mean_dice": {
                    "_target_": "MeanDice",
                    "output_transform": "$monai.handlers.from_engine(['pred', 'label'])",
                }
            },
            "additional_metrics": {
                "val_convexity": {
                    "_target_": "IgniteMetricHandler",
                    "metric_fn": {"_target_": "monai_iels.ConvexityMetric"},
                    "output_transform": "$monai.handlers.from_engine(['pred', 'label'])",
                },
                "val_roughness": {
                    "_target_": "IgniteMetricHandler",
                    "metric_fn": {"_target_": "monai_iels.RoughnessMetric"},
                    "output_transform": "$monai.handlers.from_engine(['pred', 'label'])",
                },
            },
        },
        "imports": ["$import monai"],
    }
    evaluator = ConfigParser(config).get_parsed_content("evaluator")
    evaluator.run()
    assert evaluator.state.metrics["val_mean_dice"] == 1.0
    assert evaluator.state.metrics["val_convexity"] == pytest.approx((1 + 28 / 46) / 2)
    assert evaluator.state.metric_details["val_roughness"].shape == (2, 1)


RANKS = """
import sys
import torch
from monai_iels import ConvexityMetric, RoughnessMetric, SetIoUMetric
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
results = []
for metric in (ConvexityMetric(), RoughnessMetric(reference=True)):
    for image in torch.load(sys.argv[1])[rank]:
        metric(image, image)
    results.append(metric.aggregate().item())
torch.save(results, f"{rank}.pt")
torch.distributed.destroy_process_group()
"""


def test_values_of_all_processes_are_aggregated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("ranks.py").write_text(RANKS)
    torch.save([[one_hot(SQUARE), one_hot(L_SHAPE)], [one_hot(CROSS)]], "images.pt")
    run_ranks("ranks.py", "images.pt", count=2, stdout="log")
    expected = []
    for metric in (ConvexityMetric(), RoughnessMetric()):
        metric(one_hot(SQUARE, L_SHAPE, CROSS))
        expected.append(metric.aggregate().item())
    for rank in range(2):
        assert torch.load(tmp_path / f"{rank}.pt") == pytest.approx(expected)


class TestSetIoU:
    def test_it_counts_pixels_over_all_images(self):
        """Against scikit-learn's Jaccard score of all pixels in one row."""
        rng = np.random.default_rng(0)
        classes = [rng.integers(0, 4, (2, *shape)) for shape in ((5, 7), (9, 3), (2, 40))]
        metric = SetIoUMetric(include_background=True, reduction="none")
        for guess, truth in classes:
            metric(*(torch.nn.functional.one_hot(torch.as_tensor(x), 5).movedim(-1, 0)[None] for x in (guess, truth)))
        guesses, truths = (np.concatenate([pair[side].ravel() for pair in classes]) for side in (0, 1))
        expected = jaccard_score(truths, guesses, labels=range(4), average=None)
        np.testing.assert_allclose(metric.aggregate(), [*expected, np.nan])
        metric.reduction = "mean"
        assert metric.aggregate() == pytest.approx(expected.mean())

    def test_background_and_pixels_without_a_class_are_left_out(self):
        guess = torch.tensor([[[0.0, 0, 1]], [[1, 0, 0]]])[None]
        truth = torch.tensor([[[0.0, 0, 0]], [[1, 0, 1]]])[None]
        assert SetIoUMetric()(guess, truth).tolist() == [[[1, 2]]]

    def test_wrong_use_is_named(self):
        with pytest.raises(ValueError, match="'median'"):
            SetIoUMetric(reduction="median")
        with pytest.raises(ValueError, match="has no values yet"):
            SetIoUMetric().aggregate()
        with pytest.raises(ValueError, match=r"the predictions, \(1, 2, 3\), got \(1, 2, 4\)"):
            SetIoUMetric()(torch.ones(1, 2, 3), torch.ones(1, 2, 4))
