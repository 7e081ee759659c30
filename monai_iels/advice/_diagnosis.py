# Copyright the monai_iels contributors
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#     http://www.apache.org/licenses/LICENSE-2.0
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""From signs to a belief: a table of rules, of which the first that fits decides."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from monai_iels.advice._signs import Signs

CLEAN = "nothing to be seen"
SHARED = "noise at the same places"
SCATTERED = "noise of each image"
RAGGED = "ragged outlines"
POLYGONS = "coarse polygons"
SLICES = "slices that disagree"
BITTEN = "parts left out"
ANSWERS = (CLEAN, SHARED, SCATTERED, RAGGED, POLYGONS, SLICES, BITTEN)

# Limits, chosen on one half of the labels of three data sets, and tested on the other: benchmarks/advice.md.
SPECKS = 0.012  # clean labels have less than 0.001; noise in 5 % of the pixels 0.02
REPEATS = 0.15  # by chance 0; windows at the same places 0.4 to 0.6
STRAIGHTNESS = 0.485  # clean labels have up to 0.46, polygons at least 0.51
CORNERS = 1.5  # clean labels have up to 1.45, polygons at least 1.55
SHARPEST_CORNERS = 2.6  # strips that are cut out have more, polygons at most 2.2
DISAGREEMENT = 3.0  # clean volumes have up to 1.6, shifted slices at least 4
GAPS = 0.036  # clean labels have up to 0.015
WIGGLES = 0.37  # clean labels have up to 0.25, or 0.34 if objects are grown together; ragged ones at least 0.4
STRONG_WIGGLES = 0.7  # more than strips and bites make
DENTS = 0.045  # clean labels have up to 0.02, or 0.044 if objects are grown together
CORNERS_OF_BITES = (
    1.15  # a bite turns sharply outward at both ends, and slowly inward; a ragged outline does both alike
)
THINNEST = 4.0  # pixels; the outline of a thinner structure has no room for these signs
_RESAMPLED = 200
_FEWEST = 5


@dataclasses.dataclass(frozen=True)
class Limit:
    """One condition of a rule: a sign is above, or not above, a limit."""

    sign: str
    limit: float
    above: bool = True

    def margin(self, signs: Mapping[str, float]) -> float:
        """Return by what factor a sign is beyond the limit: 1 at the limit; 0 for a sign that was not measured."""
        value = signs[self.sign]
        if math.isnan(value):
            return 0.0
        ratio = max(value, 0.0) / self.limit
        return ratio if self.above else 1 / max(ratio, 0.01)


@dataclasses.dataclass(frozen=True)
class Rule:
    """An answer, and the conditions that must all hold."""

    answer: str
    limits: tuple[Limit, ...]

    def margin(self, signs: Mapping[str, float]) -> float:
        """Return the margin of the condition that holds least; above 1 the rule fits."""
        return min(limit.margin(signs) for limit in self.limits)


_THICK = Limit("breadth", THINNEST)
RULES = (
    Rule(SHARED, (Limit("specks", SPECKS), Limit("repeats", REPEATS))),
    Rule(SCATTERED, (Limit("specks", SPECKS),)),
    Rule(
        POLYGONS,
        (
            _THICK,
            Limit("straightness", STRAIGHTNESS),
            Limit("corners", CORNERS),
            Limit("corners", SHARPEST_CORNERS, above=False),
            Limit("dents", DENTS, above=False),
        ),
    ),
    Rule(SLICES, (Limit("slices", DISAGREEMENT),)),
    Rule(BITTEN, (_THICK, Limit("gaps", GAPS), Limit("wiggles", STRONG_WIGGLES, above=False))),
    Rule(BITTEN, (_THICK, Limit("dents", DENTS), Limit("corners", CORNERS_OF_BITES))),
    Rule(RAGGED, (_THICK, Limit("wiggles", WIGGLES))),
)
"""The first rule that fits decides; if none fits, nothing is to be seen."""


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What the signs of a set of labels say.

    Args:
        answer: one of :data:`ANSWERS`.
        share: how often the same answer comes if labels are drawn again from the set, from 0 to 1.
        runner_up: the answer that comes next, or the nearest to its limits.
        signs: the set's signs: the median of the labels', of ``specks`` and ``roughness`` the mean; and ``repeats``.
        count: number of labels.
    """

    answer: str
    share: float
    runner_up: str
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
    if not labels:
        raise ValueError("Expected the signs of at least one label, got none.")
    names = [field.name for field in dataclasses.fields(Signs)]
    table = np.array([dataclasses.astuple(label) for label in labels], float)
    signs = _summary(names, table, repeats)
    answer = answer_for(signs)
    random = np.random.RandomState(0)
    drawn = [table[random.randint(len(table), size=len(table))] for _ in range(_RESAMPLED)]
    answers = Counter(answer_for(_summary(names, rows, repeats)) for rows in drawn)
    others = [other for other, _ in answers.most_common() if other != answer]
    return Diagnosis(answer, answers[answer] / _RESAMPLED, (others or [_nearest(signs, answer)])[0], signs, len(labels))


def answer_for(signs: Mapping[str, float]) -> str:
    """Return the answer of the first rule that fits."""
    return next((rule.answer for rule in RULES if rule.margin(signs) > 1), CLEAN)


def _summary(names: Sequence[str], table: np.ndarray, repeats: float) -> dict[str, float]:
    """Return the medians of what was measured, and the means of shares of the image."""
    known = ~np.isnan(table)
    middle = [
        float(np.median(column[has])) if has.any() else math.nan for column, has in zip(table.T, known.T, strict=True)
    ]
    means = dict(zip(names[:2], table[:, :2].mean(0).tolist(), strict=True))
    return {**dict(zip(names, middle, strict=True)), **means, "repeats": repeats}


def _nearest(signs: Mapping[str, float], answer: str) -> str:
    """Return the answer, other than the one given, whose rule is nearest to fitting."""
    if answer != CLEAN:
        return CLEAN
    return max(RULES, key=lambda rule: rule.margin(signs)).answer
