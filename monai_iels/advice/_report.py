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

"""The adviser's words: a table of the signs, the belief, what to try, and what labels cannot tell."""

from __future__ import annotations

import math
from collections.abc import Sequence

from monai_iels.advice._diagnosis import (
    BITTEN,
    CLEAN,
    CORNERS,
    DENTS,
    DISAGREEMENT,
    GAPS,
    POLYGONS,
    RAGGED,
    REPEATS,
    SCATTERED,
    SHARED,
    SLICES,
    SPECKS,
    STRAIGHTNESS,
    THINNEST,
    WIGGLES,
    Diagnosis,
)
from monai_iels.advice._settings import Setting

_SIGNS: tuple[tuple[str, float | None, str], ...] = (
    ("specks", SPECKS, "share of the image in tiny islands and holes"),
    ("repeats", REPEATS, "specks at the same places in all labels: 0 by chance, 1 always"),
    ("roughness", None, "share of the image that a 3x3 majority filter changes"),
    ("wiggles", WIGGLES, "how much outlines turn inward: 0 for convex objects"),
    ("straightness", STRAIGHTNESS, "outlines are straight between few bends"),
    ("corners", CORNERS, "these bends are sharp and point outward"),
    ("dents", DENTS, "share of the objects' hulls that is far from the objects"),
    ("gaps", GAPS, "share of the objects that smoothing would add: slits, notches"),
    ("slices", DISAGREEMENT, "how much more labels jump between slices than within them"),
)
_SHARES = {"specks", "roughness", "dents", "gaps"}
_MEANINGS = {
    CLEAN: "nothing in the labels alone points to an error",
    SHARED: "small spots of wrong classes, at the same places in all labels, as a tool or a template leaves them",
    SCATTERED: "small spots of wrong classes, at other places in each label",
    RAGGED: "outlines wiggle more than those of real objects do, as with a trembling hand or a thresholding tool",
    POLYGONS: "outlines were clicked with few corners",
    SLICES: "neighboring slices do not fit together, as if each had been drawn alone",
    BITTEN: "notches, slits or dents, as where a vessel or a bright spot was left out of an object",
}
_CANNOT_TELL = """What this cannot tell:

- Some errors look clean: outlines drawn too large or too small, shifted labels, gentle waves, whole objects left out,
  annotators with different habits. Compare some labels with their images.
- Objects that are ragged by nature, such as vessels, may be called ragged or bitten. The limits were chosen on white
  blood cells, nuclei and the hippocampus.
- If labels have several errors, only one is named.
- Gains in Dice are of other data, with artificial errors and small networks. Only a study on your data tells."""


def report(diagnosis: Diagnosis, settings: Sequence[Setting]) -> str:
    """Return all words of the adviser, in Markdown that also reads well on a terminal."""
    noun = "label" if diagnosis.count == 1 else "labels"
    parts = [
        f"{diagnosis.count} {noun} looked at, without their images.",
        table(diagnosis),
        _belief(diagnosis),
        "To try:\n\n" + "\n".join(f"{n}. {each.name}: {each.evidence}" for n, each in enumerate(settings, 1)),
        _CANNOT_TELL,
    ]
    if diagnosis.may_repeat:
        parts.insert(
            3,
            "The labels have different sizes, so whether the noise is at the same places cannot be told. What follows\n"
            "is against noise that is; against noise of each image, training the network alone is enough.",
        )
    if diagnosis.signs["breadth"] < THINNEST:
        parts.insert(
            2,
            f"The objects are thinner than {THINNEST:.0f} pixels: their outlines have no room for most of these signs.",
        )
    return "\n\n".join(parts)


def table(diagnosis: Diagnosis) -> str:
    """Return the signs with their limits; an arrow marks those that are beyond."""
    rows = [("sign", "here", "limit", "", "what it is")]
    for name, limit, meaning in _SIGNS:
        value = diagnosis.signs[name]
        if math.isnan(value):
            continue
        is_beyond = limit is not None and value > limit
        rows.append((name, _number(name, value), _number(name, limit), "<--" if is_beyond else "", meaning))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _number(name: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{100 * value:.1f} %" if name in _SHARES else f"{value:.3f}"


def _belief(diagnosis: Diagnosis) -> str:
    return (
        f"Believed: {diagnosis.answer} ({diagnosis.certainty}): {_MEANINGS[diagnosis.answer]}.\n"
        f"Runner-up: {diagnosis.runner_up}. "
        f"In {100 * diagnosis.share:.0f} % of random re-draws of these labels the answer is the same.\n"
        "Labels of another kind than those that the limits are from may look like this and be right: see labels.png."
    )
