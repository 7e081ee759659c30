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

"""What to try against each error: overrides of a bundle, and what is known about them."""

from __future__ import annotations

import dataclasses
from typing import Any

from monai_iels.advice._diagnosis import BITTEN, CLEAN, POLYGONS, RAGGED, SCATTERED, SHARED, SLICES


@dataclasses.dataclass(frozen=True)
class Setting:
    """One thing to try.

    Args:
        name: its name as a variant of a study.
        overrides: values for keys of a bundle.
        evidence: what was measured, in a sentence.
    """

    name: str
    overrides: dict[str, Any]
    evidence: str


_ALONE = {"iel_steps": 0}
_LAYER = {"iel_gain": 15, "iel_reach": None, "iel_steps": 20, "iel_warmup": "$@epochs // 3"}
_HEAT = {**_LAYER, "evolution": {"_target_": "monai_iels.HeatDiffusion", "spacing": "@iel_spacing"}}
_GUIDED = {**_LAYER, "evolution": {"_target_": "monai_iels.GuidedDiffusion", "spacing": "@iel_spacing"}}
_GCE = {**_ALONE, "loss": "@generalized_cross_entropy"}
_MAJORITY = {**_ALONE, "repair": "@majority_filter"}
_CONVEX = {
    "iel_gain": None,
    "iel_reach": 6.0,
    "iel_steps": 20,
    "iel_spacing": 1.0,
    "iel_warmup": "$@epochs // 3",
    "evolution": {
        "_target_": "monai_iels.ConvexCurveMotion",
        "radii": [5, 10, 15],
        "band": 3,
        "regions": "$@regions or [[number] for number in range(1, @num_classes)]",
        "spacing": "@iel_spacing",
    },
}
_NAME_OF_GCE = "generalized cross-entropy"


def alone(evidence: str) -> Setting:
    """Return the network without any remedy."""
    return Setting("U-Net", _ALONE, evidence)


def settings_for(answer: str, axis: int = -1) -> list[Setting]:
    """Return what to try, the best first.

    Args:
        answer: one of the adviser's answers.
        axis: the axis of the slices, for slices that disagree.
    """
    return [_across(axis)] if answer == SLICES else _SETTINGS[answer]


def _across(axis: int) -> Setting:
    spacing = ["1.0" if number == axis % 3 else 'float("inf")' for number in range(3)]
    equation = {"_target_": "monai_iels.HeatDiffusion", "spacing": f"$[{', '.join(spacing)}]"}
    return Setting(
        "U-Net + heat layer across slices",
        {**_LAYER, "evolution": equation},
        "Try heat that flows across slices only.",
    )


# Gains in Dice over the network alone: docs/results/label_errors.md, three seeds on white blood cells, one on nuclei.
_SETTINGS = {
    CLEAN: [
        alone("Train the network alone: on clean nuclei the heat layer cost 0.014 Dice, a majority filter 0.026."),
        Setting(
            _NAME_OF_GCE,
            _GCE,
            "In case of errors that cannot be seen: +0.038 Dice for white blood cells drawn too large or too small, "
            "+0.003 for nuclei.",
        ),
    ],
    SHARED: [
        Setting(_NAME_OF_GCE, _GCE, "+0.052 Dice on white blood cells, +0.097 on nuclei."),
        Setting("U-Net + heat layer", _HEAT, "+0.052 Dice on white blood cells, +0.061 on nuclei."),
        Setting("majority filter", _MAJORITY, "+0.044 Dice on white blood cells, +0.045 on nuclei."),
    ],
    SCATTERED: [
        alone("Train the network alone: nothing helped on white blood cells; all remedies were within 0.005 Dice."),
        Setting(_NAME_OF_GCE, _GCE, "Within 0.005 Dice of the network alone on white blood cells."),
    ],
    RAGGED: [
        Setting(_NAME_OF_GCE, _GCE, "+0.026 Dice on white blood cells, -0.011 on nuclei."),
        Setting(
            "T-Loss",
            {**_ALONE, "loss": "@t_loss"},
            "+0.010 Dice on white blood cells, within chance; +0.041 on nuclei. Much worse with other errors.",
        ),
        Setting(
            "U-Net + guided layer", _GUIDED, "+0.005 Dice on white blood cells, +0.003 on nuclei: hardly anything."
        ),
    ],
    POLYGONS: [
        alone("Train the network alone: on nuclei nothing helped; the heat layer cost 0.066 Dice, a filter 0.109."),
        Setting(_NAME_OF_GCE, _GCE, "-0.009 Dice on nuclei, within chance; +0.016 for wobbling white blood cells."),
    ],
    BITTEN: [
        Setting(
            "hull of the labels",
            {**_ALONE, "repair": "@hull_of_label"},
            "+0.061 Dice on synthetic optic discs, +0.094 on nuclei with dents; only for convex objects.",
        ),
        Setting(
            "U-Net + convexity layer",
            _CONVEX,
            "+0.009 Dice on synthetic optic discs, +0.026 on nuclei (reach 6); only for convex objects.",
        ),
    ],
}
