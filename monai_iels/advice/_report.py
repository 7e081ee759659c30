# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The adviser's words: a table of the signs, the belief, what to try, and what labels cannot tell."""

from __future__ import annotations

import math
from collections.abc import Sequence

from monai_iels.advice._diagnosis import LIMITS, MEANINGS, Diagnosis
from monai_iels.advice._settings import Setting

_SIGNS = {
    "specks": "share of the image in tiny islands and holes",
    "repeats": "specks at the same places in all labels: 0 by chance, 1 always",
    "wiggles": "how much outlines turn inward: 0 for convex objects",
    "straightness": "outlines are straight between few bends",
    "corners": "these bends are sharp and point outward",
    "dents": "share of the objects' hulls that is far from the objects",
    "gaps": "share of the objects that smoothing would add: slits, notches",
    "slices": "how much more labels jump between slices than within them",
}
_CANNOT_TELL = f"""What this cannot tell:

- Some errors look clean: outlines drawn too large or too small, shifted labels, gentle waves, whole objects left out,
  annotators with different habits. Compare some labels with their images.
- Objects that are ragged by nature, such as vessels, may be called ragged or bitten, and outlines of objects thinner
  than {LIMITS["breadth"]:.0f} pixels have no room for most of these signs. The limits were chosen on white blood cells,
  nuclei and the hippocampus.
- If labels have several errors, only one is named.
- Gains in Dice are of other data, with artificial errors and small networks. Only a study on your data tells."""
_MAY_REPEAT = """
The labels have different sizes, so whether the noise is at the same places cannot be told. What follows
is against noise that is; against noise of each image, training the network alone is enough."""


def report(diagnosis: Diagnosis, settings: Sequence[Setting]) -> str:
    """Return all words of the adviser."""
    to_try = "\n".join(f"{n}. {each.name}: {each.evidence}" for n, each in enumerate(settings, 1))
    return f"""{diagnosis.count} label{"s" if diagnosis.count > 1 else ""} looked at, without their images.

{_table(diagnosis)}

Believed: {diagnosis.answer} ({diagnosis.certainty}): {MEANINGS[diagnosis.answer]}.
In {100 * diagnosis.share:.0f} % of random re-draws of these labels the answer is the same.
Labels of another kind than those that the limits are from may look like this and be right: see labels.png.
{_MAY_REPEAT if diagnosis.may_repeat else ""}
To try:

{to_try}

{_CANNOT_TELL}"""


def _table(diagnosis: Diagnosis) -> str:
    """Return the signs with their limits; an arrow marks those that are beyond."""
    rows = [("sign", "here", "limit", "", "what it is")]
    for name, meaning in _SIGNS.items():
        value, limit = diagnosis.signs[name], LIMITS[name]
        if not math.isnan(value):
            rows.append((name, f"{value:.3f}", f"{limit:.3f}", "<--" if value > limit else "", meaning))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
