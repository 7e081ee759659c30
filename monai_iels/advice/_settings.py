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

"""What to try against each error: overrides of a bundle, and what was measured of them."""

from __future__ import annotations

import dataclasses
from typing import Any

from monai_iels.advice._diagnosis import BITTEN, CLEAN, POLYGONS, RAGGED, SCATTERED, SHARED, SLICES
from monai_iels.advice._gains import GAINS


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
_KEYS = ["image", "label", "truth"]
_FLIPS = {
    **_ALONE,
    "augmentation": [
        {"_target_": "RandFlipd", "keys": _KEYS, "allow_missing_keys": True, "prob": 0.5, "spatial_axis": axis}
        for axis in (0, 1)
    ],
}


def alone(evidence: str = "") -> Setting:
    """Return the network without any remedy."""
    return Setting("U-Net", _ALONE, evidence)


def settings_for(answer: str, axis: int = -1) -> list[Setting]:
    """Return what to try, the best first.

    Args:
        answer: one of the adviser's answers.
        axis: the axis of the slices, for slices that disagree.
    """
    return [alone(_NOTHING_HELPS), _across(axis)] if answer == SLICES else _SETTINGS[answer]


def _measured(name: str, overrides: dict[str, Any], error: str, method: str | None = None, words: str = "") -> Setting:
    """Return a setting with what it gained against an error, in the words of a sentence."""
    gains = ", ".join(f"{gain:+.3f} Dice on {data}" for data, gain in GAINS[error][method or name].items())
    return Setting(name, overrides, f"{gains}{words}.")


def _across(axis: int) -> Setting:
    spacing = ["1.0" if number == axis % 3 else 'float("inf")' for number in range(3)]
    equation = {"_target_": "monai_iels.HeatDiffusion", "spacing": f"$[{', '.join(spacing)}]"}
    return _measured("U-Net + heat layer across slices", {**_LAYER, "evolution": equation}, "slices that disagree")


_NOTHING_HELPS = "Train the network alone: nothing that we measured helped."
_CONVEX_ONLY = "; only for convex objects"
_SHARED_NOISE, _RAGGED_LABELS, _COARSE = (
    "noise at the same places",
    "ragged outlines (Markov)",
    "coarse polygons, moved (COCO-N)",
)
_GCE_NAME = "generalized cross-entropy"
_SETTINGS = {
    CLEAN: [
        alone("Train the network alone: on clean labels a heat layer or a majority filter may cost a little."),
        _measured(_GCE_NAME, _GCE, "too large or too small", words=", if labels are too large or too small"),
    ],
    SHARED: [
        _measured(
            "flips", _FLIPS, _SHARED_NOISE, words=". They move the noise; leave them out if left and right matter"
        ),
        _measured(_GCE_NAME, _GCE, _SHARED_NOISE),
        _measured("U-Net + heat layer", _HEAT, _SHARED_NOISE),
        _measured("majority filter", _MAJORITY, _SHARED_NOISE),
    ],
    SCATTERED: [
        alone("Train the network alone: it averages such noise out."),
        _measured(_GCE_NAME, _GCE, "noise of each image"),
    ],
    RAGGED: [
        _measured("T-Loss", {**_ALONE, "loss": "@t_loss"}, _RAGGED_LABELS, words="; much worse with other errors"),
        _measured(_GCE_NAME, _GCE, _RAGGED_LABELS),
        _measured("U-Net + guided layer", _GUIDED, _RAGGED_LABELS),
    ],
    POLYGONS: [
        alone(_NOTHING_HELPS),
        _measured(_GCE_NAME, _GCE, _COARSE),
        _measured("U-Net + guided layer", _GUIDED, _COARSE),
    ],
    BITTEN: [
        _measured(
            "hull of the labels",
            {**_ALONE, "repair": "@hull_of_label"},
            "dents",
            "closing and hull on the labels",
            _CONVEX_ONLY,
        ),
        _measured("U-Net + convexity layer", _CONVEX, "dents", "U-Net + 60 steps, central", _CONVEX_ONLY),
    ],
}
