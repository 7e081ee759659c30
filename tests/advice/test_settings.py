# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""What the adviser proposes: every setting trains, and was measured."""

import csv
import re

import pytest
from helpers import BUNDLES, NAMES
from monai.bundle import ConfigParser

from monai_iels.advice import MEANINGS, settings_for
from monai_iels.study import with_methods


@pytest.mark.parametrize("bundle", NAMES)
@pytest.mark.parametrize("answer", MEANINGS)
def test_every_setting_can_be_built_in_every_bundle(answer, bundle):
    for setting in settings_for(answer):
        parser = ConfigParser(ConfigParser.load_config_file(BUNDLES / bundle / "configs" / "train.json"))
        parser.update(with_methods(setting.overrides))
        for key in ("layer", "iel_warmup", "loss", "repair", "augmentation"):
            parser.get_parsed_content(key)
        assert setting.evidence


TABLES = {"white blood cells": "wbc", "nuclei": "dsb2018", "hippocampi": "hippocampus"}
TABLES |= {"synthetic optic discs": "refuge", "nuclei with dents": "dsb2018"}
GROUPS = {
    "nothing to be seen": "too large or too small",
    "ragged outlines": "ragged outlines (Markov)",
    "coarse polygons": "coarse polygons, moved (COCO-N)",
}
METHODS = {
    "hull of the labels": "closing and hull on the labels",
    "U-Net + convexity layer": "U-Net + 60 steps, central",
}
MEASURED = [
    (answer, setting.name, data, float(gain))
    for answer in MEANINGS
    for setting in settings_for(answer)
    for gain, data in re.findall(r"([+-][\d.]+) Dice on ([\w ]+)", setting.evidence)
]


def test_most_settings_were_measured():
    assert len(MEASURED) == 34
    assert all("Dice" in s.evidence for answer in MEANINGS for s in settings_for(answer) if s.name != "U-Net")


@pytest.mark.parametrize(("answer", "name", "data", "gain"), MEASURED)
def test_gains_are_those_of_the_published_tables(answer, name, data, gain):
    study = "convexity" if answer == "parts left out" else "augmentation" if name == "flips" else "label_errors"
    with (BUNDLES.parent / "docs" / "results" / f"{TABLES[data]}-{study}" / "table.csv").open(newline="") as stream:
        rows = {(row["group"], row["variant"]): row for row in csv.DictReader(stream)}
    if name == "flips":
        expected = float(rows["flips", "U-Net"]["dice"]) - float(rows["no augmentation", "U-Net"]["dice"])
    else:
        row = rows["" if answer == "parts left out" else GROUPS.get(answer, answer), METHODS.get(name, name)]
        assert row["seeds"] == "3"
        expected = float(row["dice_gain"])
    assert gain == pytest.approx(expected, abs=6e-4)
