# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The adviser: signs of closed forms, answers for known errors, its command, and the files that it writes."""

import csv
import math
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from helpers import BUNDLES, options, words
from monai.bundle import ConfigParser
from monai.data import MetaTensor
from PIL import Image
from programs import Program

from monai_iels import BiteLabel, CorruptLabel, GrowLabel, MarkovLabel, PolygonLabel, WobbleLabel
from monai_iels.advice import advise, labels_in_folder, labels_of_bundle, labels_of_source
from monai_iels.advice._diagnosis import (
    ANSWERS,
    BITTEN,
    CLEAN,
    LIMITS,
    POLYGONS,
    RAGGED,
    SCATTERED,
    SHARED,
    SLICES,
    diagnose,
)
from monai_iels.advice._settings import settings_for
from monai_iels.advice._signs import Repeats, gaps_of, measure, odd_slices, specks_of
from monai_iels.cli import main
from monai_iels.data import SOURCES
from monai_iels.run_folder import RunFolder
from monai_iels.study import read_study
from monai_iels.study._definition import check_overrides

VALUES = np.array([0, 128, 255], np.uint8)


def disc(size=96, radius=30):
    y, x = np.ogrid[:size, :size]
    return ((y - size // 2) ** 2 + (x - size // 2) ** 2 < radius**2).astype(np.int16)


def test_a_disc_is_convex_and_bends_alike_everywhere():
    signs = measure(disc(), (1.0, 1.0))
    assert signs.breadth == pytest.approx(30, rel=0.05)
    assert (signs.specks, signs.dents) == (0, 0)
    assert signs.wiggles < 0.05
    assert signs.straightness < LIMITS["straightness"]  # pixels make steps
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
    assert gaps_of(label > 0)[30, 47]
    label[:48, 40:56] = 0
    assert measure(label, (1.0, 1.0)).dents > 0
    assert not gaps_of(disc() > 0)[30, 47]


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


def test_an_enlarged_label_is_read_in_its_own_pixels(tmp_path):
    small = np.asarray(WobbleLabel(2.0, 8.0)(torch.from_numpy(disc())[None].float()))[0].astype(np.uint8)
    (tmp_path / "labels").mkdir()
    for factor in (1, 2, 3):
        Image.fromarray(small.repeat(factor, 0).repeat(factor, 1)).save(tmp_path / "labels" / f"{factor}.png")
    files = labels_in_folder(tmp_path / "labels")
    own, twice, thrice = files.labels(3)
    assert (own.spacing, twice.spacing, thrice.spacing) == ((1, 1), (2, 2), (3, 3))
    np.testing.assert_array_equal(twice.classes, own.classes)
    np.testing.assert_array_equal(thrice.classes, own.classes)


def test_thick_slices_are_looked_at_one_by_one():
    y, x, z = np.ogrid[:48, :48, :12]
    ball = ((y - 24) ** 2 + (x - 24) ** 2 + (4 * (z - 6)) ** 2 < 18**2).astype(np.int16)
    assert measure(ball, (1.0, 1.0, 4.0)).axis == 2
    thick = np.moveaxis(ball, 2, 0)
    assert measure(thick, (4.0, 1.0, 1.0)).axis == 0
    assert (
        measure(thick, (4.0, 1.0, 1.0)).straightness
        < LIMITS["straightness"]
        < measure(thick, (1.0, 1.0, 1.0)).straightness
    )


def test_noise_in_labels_of_different_sizes_may_repeat(tmp_path):
    (tmp_path / "labels").mkdir()
    for number in range(6):
        label = np.pad(disc(), ((0, number), (0, 1)))
        noisy = CorruptLabel(2, window=2, fraction=0.1)(torch.from_numpy(label)[None].float())
        Image.fromarray(np.asarray(noisy)[0].astype(np.uint8)).save(tmp_path / "labels" / f"{number}.png")
    advice = advise(labels_in_folder(tmp_path / "labels"))
    assert advice.diagnosis.answer == SCATTERED
    assert "different sizes" in str(advice)
    assert [setting.name for setting in advice.settings] == [setting.name for setting in settings_for(SHARED)]


def test_one_label_is_too_few_to_be_sure():
    found = diagnose([measure(disc(), (1.0, 1.0))], math.nan)
    assert found.answer == CLEAN
    assert found.certainty == "unsure: 1 label is too few"


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """Return synthetic cells in their official layout."""
    root = tmp_path_factory.mktemp("cells")
    SOURCES["wbc"].synthesize(root, 12)
    return root


def spoil(root, error, target=None):
    """Apply an error to the label files of cells, in place or as class numbers in another folder."""
    for file in map(Path, labels_of_source("wbc", root).files):
        classes = np.searchsorted(VALUES, np.array(Image.open(file)))
        label = MetaTensor(torch.from_numpy(classes)[None].float(), meta={"filename_or_obj": file.name})
        changed = np.asarray(error(label) if error else label)[0].astype(np.uint8)
        if target:
            target.mkdir(parents=True, exist_ok=True)
        Image.fromarray(changed if target else VALUES[changed]).save(target / file.name if target else file)


def test_a_bundle_reads_its_labels_as_its_data_set_does(cells):
    of_bundle, of_source = labels_of_bundle(BUNDLES / "wbc", cells), labels_of_source("wbc", cells)
    assert [Path(file).name for file in of_bundle.files] == [Path(file).name for file in of_source.files]
    for ours, theirs in zip(of_bundle.labels(4), of_source.labels(4), strict=True):
        np.testing.assert_array_equal(ours.classes, theirs.classes)
        assert len(np.unique(ours.classes)) == 3


ERRORS = {
    "clean": (None, CLEAN),
    "grown": (GrowLabel(2.0), CLEAN),
    "same places": (CorruptLabel(3, window=2, fraction=0.1, shared=True), SHARED),
    "each image": (CorruptLabel(3, window=2, fraction=0.1, shared=False), SCATTERED),
    "ragged": (MarkovLabel(100, 0.5, 0.05, smoothing=1.0), RAGGED),
    "polygons": (PolygonLabel(26), POLYGONS),
    "bites": (BiteLabel(2, 8.0), BITTEN),
}


@pytest.mark.parametrize("name", ERRORS)
def test_the_answer_for_an_error(name, cells, tmp_path):
    error, answer = ERRORS[name]
    spoil(cells, error, tmp_path / "labels")
    advice = advise(labels_in_folder(tmp_path / "labels"))
    assert advice.diagnosis.answer == answer
    assert advice.diagnosis.runner_up != answer
    assert answer in str(advice)
    advice.save(tmp_path / "out", tmp_path)
    assert Image.open(tmp_path / "out" / "labels.png").size[0] > 1000


def test_slices_that_disagree_are_seen_and_heat_flows_across_them(tmp_path):
    root = tmp_path / "volumes"
    SOURCES["hippocampus"].synthesize(root, 6)
    files = labels_of_source("hippocampus", root)
    error = WobbleLabel(2.0, math.inf, slices=1)
    wrong = type(files)(files.files, lambda file: error(files.read(file)))
    assert advise(files).diagnosis.answer == CLEAN
    advice = advise(wrong)
    assert advice.diagnosis.answer == SLICES
    assert advice.settings[-1].overrides["evolution"]["spacing"] == '$[float("inf"), 1.0, float("inf")]'
    advice.save(tmp_path / "out", root)
    assert (tmp_path / "out" / "labels.png").stat().st_size > 10_000


@pytest.mark.parametrize("answer", ANSWERS)
def test_every_setting_can_be_built(answer):
    bundle = "hippocampus" if answer == SLICES else "wbc"
    for setting in settings_for(answer):
        parser = ConfigParser(ConfigParser.load_config_file(BUNDLES / bundle / "configs" / "train.json"))
        parser.update({"bundle_root": str(BUNDLES / bundle), **setting.overrides})
        for key in ("warmup", "loss", "repair", "augmentation"):
            parser.get_parsed_content(key)
        assert setting.evidence


TABLES = {"white blood cells": "wbc", "nuclei": "dsb2018", "hippocampi": "hippocampus"}
TABLES |= {"synthetic optic discs": "refuge", "nuclei with dents": "dsb2018"}
GROUPS = {
    CLEAN: "too large or too small",
    RAGGED: "ragged outlines (Markov)",
    POLYGONS: "coarse polygons, moved (COCO-N)",
}
METHODS = {
    "hull of the labels": "closing and hull on the labels",
    "U-Net + convexity layer": "U-Net + 60 steps, central",
}
MEASURED = [
    (answer, setting.name, data, float(gain))
    for answer in ANSWERS
    for setting in settings_for(answer)
    for gain, data in re.findall(r"([+-][\d.]+) Dice on ([\w ]+)", setting.evidence)
]


def test_most_settings_were_measured():
    assert len(MEASURED) == 30
    assert all("Dice" in s.evidence for answer in ANSWERS for s in settings_for(answer) if s.name != "U-Net")


@pytest.mark.parametrize(("answer", "name", "data", "gain"), MEASURED)
def test_gains_are_those_of_the_published_tables(answer, name, data, gain):
    study = "convexity" if answer == BITTEN else "augmentation" if name == "flips" else "label_errors"
    with (BUNDLES.parent / "docs" / "results" / f"{TABLES[data]}-{study}" / "table.csv").open(newline="") as stream:
        rows = {(row["group"], row["variant"]): row for row in csv.DictReader(stream)}
    if name == "flips":
        expected = float(rows["flips", "U-Net"]["dice"]) - float(rows["no augmentation", "U-Net"]["dice"])
    else:
        row = rows["" if answer == BITTEN else GROUPS.get(answer, answer), METHODS.get(name, name)]
        assert row["seeds"] == "3"
        expected = float(row["dice_gain"])
    assert gain == pytest.approx(expected, abs=6e-4)


def test_the_command_prints_and_writes_what_trains(cells, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(BUNDLES.parent)
    root, out = tmp_path / "noisy", tmp_path / "out"
    SOURCES["wbc"].synthesize(root, 10, size=48)
    spoil(root, CorruptLabel(3, window=2, fraction=0.2, shared=True))
    assert main(["advise", "--root", str(root), "--bundle", "wbc", "--output_dir", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "Believed: noise at the same places" in printed
    assert "<--" in printed
    assert "What this cannot tell" in printed
    assert {file.name for file in out.iterdir()} == {"labels.png", "report.md", "override.yaml", "study.yaml"}
    assert all(line in (out / "report.md").read_text("utf-8") for line in printed.splitlines()[:20])

    study = read_study(out / "study.yaml")
    check_overrides(study)
    assert study.bundle == BUNDLES / "wbc"
    names = ["U-Net", "flips", "generalized cross-entropy", "U-Net + heat layer", "majority filter"]
    assert list(study.variants) == names

    assert len(yaml.safe_load((out / "override.yaml").read_text("utf-8"))["augmentation"]) == 2
    (line,) = [line for line in printed.splitlines() if "--workflow_name monai_iels.Training" in line]
    command = shlex.split(line)[2:]  # without python -m
    small = options("wbc", out / "training", epochs=1)
    for key in ("bundle_root", "output_dir"):
        assert Path(command[command.index(f"--{key}") + 1]).resolve() == Path(small.pop(key))
    process = Program(*command, *words(small), stdout=tmp_path / "log")
    assert process.wait() == 0, (tmp_path / "log").read_text()
    trained = RunFolder(out / "training")
    parser = ConfigParser(trained.read_config())
    assert [flip.flipper.spatial_axis for flip in parser.get_parsed_content("augmentation")] == [0, 1]
    assert parser.get_parsed_content("layer").steps == 0
    assert parser["dataset_dir"] == str(root)
    assert trained.best_weights.exists()


def test_the_command_finds_labels_and_says_how_to_go_on(cells, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["advise", "--root", str(cells), "--cases", "5"]) == 0
    printed = capsys.readouterr().out
    assert "5 labels looked at" in printed
    assert "Believed: nothing to be seen" in printed
    assert "--bundle bundles/mine" in printed
    assert (tmp_path / "advice" / "report.md").exists()


def refusal(capsys, *words):
    assert main(["advise", *map(str, words)]) == 1
    return capsys.readouterr().err


def test_bad_input_gets_one_sentence(cells, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert "there is no such folder" in refusal(capsys, "--root", "nowhere")
    Path("data/labels").mkdir(parents=True)
    assert "there are no label files here, it is empty" in refusal(capsys, "--root", "data")
    assert "there is no such folder" in refusal(capsys, "--root", "data", "--labels", "masks")
    assert "there is no bundle 'wbd'" in refusal(capsys, "--root", "data", "--bundle", "wbd")
    assert "must not lie in the folder of the data" in refusal(capsys, "--root", "data", "--output_dir", "data/out")
    Image.fromarray(np.zeros((32, 32), np.uint8)).save("data/labels/1.png")
    assert "all labels are empty" in refusal(capsys, "--root", "data")
    assert "--cases must be at least 1, got 0" in refusal(capsys, "--root", "data", "--cases", "0")
    noise = np.random.RandomState(0).randint(0, 256, (32, 32, 3)).astype(np.uint8)
    Image.fromarray(noise[..., 0]).save("data/labels/1.png")
    assert "different values, as an image or a mask saved as JPEG" in refusal(capsys, "--root", "data")
    Image.fromarray(noise).save("data/labels/1.png")
    assert "has colors" in refusal(capsys, "--root", "data")
    Image.fromarray(255 * disc().astype(np.uint8)).save("data/labels/1.jpg")
    Path("data/labels/1.png").unlink()
    assert "1.jpg: a JPEG has other values near outlines" in refusal(capsys, "--root", "data")
    Path("data/labels/1.jpg").unlink()
    assert not Path("advice").exists()
    Path("file").touch()
    assert "--output_dir must be a folder, got the file" in refusal(capsys, "--root", "data", "--output_dir", "file")
    Image.fromarray(disc().astype(np.uint8)).save("data/labels/1.png")
    assert main(["advise", "--root", "data"]) == 0
    assert "unsure: 1 label is too few" in capsys.readouterr().out
    Path("other").mkdir()
    Path("other/readme.txt").touch()
    assert "nothing here says which files are labels, only readme.txt" in refusal(capsys, "--root", "other")
