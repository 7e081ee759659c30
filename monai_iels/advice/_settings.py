# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""What to try against each error, and what was measured of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from monai_iels._yaml import read_mapping


class Setting(NamedTuple):
    """One thing to try.

    Args:
        name: its name as a variant of a study.
        overrides: as those of a column of a study: values for keys of a bundle, and names of methods.
        evidence: what was measured, in a sentence.
    """

    name: str
    overrides: dict[str, Any]
    evidence: str


def settings_for(answer: str) -> list[Setting]:
    """Return what to try against one of the adviser's answers, the best first."""
    remedies = read_mapping(Path(__file__).with_name("remedies.yaml"), "what to try")
    return [Setting(**remedy) for remedy in remedies[answer]]
