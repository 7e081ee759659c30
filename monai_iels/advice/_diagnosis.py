# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""From signs to a belief: rules, of which the first that fits decides."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from monai_iels.advice._signs import Signs

CLEAN = "nothing to be seen"
SHARED = "noise at the same places"
SCATTERED = "noise of each image"
RAGGED = "ragged outlines"
POLYGONS = "coarse polygons"
SLICES = "slices that disagree"
BITTEN = "parts left out"
MEANINGS = {
    CLEAN: "nothing in the labels alone points to an error",
    SHARED: "small spots of wrong classes, at the same places in all labels, as a tool or a template leaves them",
    SCATTERED: "small spots of wrong classes, at other places in each label",
    RAGGED: "outlines wiggle more than those of real objects do, as with a trembling hand or a thresholding tool",
    POLYGONS: "outlines were clicked with few corners",
    SLICES: "neighboring slices do not fit together, as if each had been drawn alone",
    BITTEN: "notches, slits or dents, as where a vessel or a bright spot was left out of an object",
}
ANSWERS = tuple(MEANINGS)

# Chosen on one half of the labels of three data sets, and tested on the other: benchmarks/advice.md.
LIMITS = {
    "specks": 0.012,  # clean labels have less than 0.001; noise in 5 % of the pixels 0.02
    "repeats": 0.15,  # by chance 0; windows at the same places 0.4 to 0.6
    "wiggles": 0.37,  # clean labels have up to 0.25, or 0.34 if objects are grown together; ragged ones at least 0.4
    "straightness": 0.485,  # clean labels have up to 0.46, polygons at least 0.51
    "corners": 1.5,  # clean labels have up to 1.45, polygons at least 1.55
    "dents": 0.045,  # clean labels have up to 0.02, or 0.044 if objects are grown together
    "gaps": 0.036,  # clean labels have up to 0.015
    "slices": 3.0,  # clean volumes have up to 1.6, shifted slices at least 4
    "breadth": 4.0,  # pixels; the outline of a thinner structure has no room for these signs
}
_RESAMPLED = 200
_FEWEST = 5


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What the signs of a set of labels say.

    Args:
        answer: one of :data:`ANSWERS`.
        share: how often the same answer comes if labels are drawn again from the set, from 0 to 1.
        signs: the set's signs: the median of the labels', of ``specks`` the mean; and ``repeats``.
        count: number of labels.
    """

    answer: str
    share: float
    signs: dict[str, float]
    count: int

    @property
    def may_repeat(self) -> bool:
        """Whether there is noise of which cannot be told if it repeats, as no two labels have the same size."""
        return self.answer == SCATTERED and math.isnan(self.signs["repeats"])

    @property
    def certainty(self) -> str:
        """Return in words how sure the answer is."""
        if self.count < _FEWEST:
            return f"unsure: {self.count} label{'s are' if self.count > 1 else ' is'} too few"
        if self.share < 0.6:
            return "unsure"
        return "likely" if self.share < 0.95 else "clear"


def diagnose(labels: Sequence[Signs], repeats: float) -> Diagnosis:
    """Return what is believed of a set of labels.

    Args:
        labels: the signs of each label.
        repeats: the correlation of their specks.
    """
    table = pd.DataFrame([dataclasses.asdict(label) for label in labels])
    signs = _summary(table, repeats)
    answer = _answer_for(signs)
    random = np.random.RandomState(0)
    drawn = [table.iloc[random.randint(len(table), size=len(table))] for _ in range(_RESAMPLED)]
    share = float(np.mean([_answer_for(_summary(rows, repeats)) == answer for rows in drawn]))
    return Diagnosis(answer, share, signs, len(labels))


def _answer_for(signs: Mapping[str, float]) -> str:
    """Return the answer of the first rule that fits; a sign that was not measured fits none."""
    beyond = {sign for sign, limit in LIMITS.items() if signs[sign] > limit}
    fits = {
        SHARED: {"specks", "repeats"} <= beyond,
        SCATTERED: "specks" in beyond,
        # Strips that are cut out have sharper corners; those of polygons are at most 2.2.
        POLYGONS: {"breadth", "straightness", "corners"} <= beyond
        and signs["corners"] < 2.6
        and signs["dents"] < LIMITS["dents"],
        SLICES: "slices" in beyond,
        # Strips and bites make fewer wiggles. A bite turns sharply outward at both ends, and slowly inward; a ragged
        # outline does both alike.
        BITTEN: ({"breadth", "gaps"} <= beyond and signs["wiggles"] < 0.7)
        or ({"breadth", "dents"} <= beyond and signs["corners"] > 1.15),
        RAGGED: {"breadth", "wiggles"} <= beyond,
    }
    return next((answer for answer, is_so in fits.items() if is_so), CLEAN)


def _summary(table: pd.DataFrame, repeats: float) -> dict[str, float]:
    """Return the medians of what was measured, and the mean of specks, which some labels may be free of."""
    return {**table.median(), "specks": table["specks"].mean(), "repeats": repeats}
