# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The measures of a segmentation: one table of what they are called, which way is better, and where they are shown.

A new measure is one row here, and one handler in ``bundles/shared/train.yaml`` or ``evaluate.yaml``.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Measure:
    """One row of the table.

    Args:
        name: its name in the config, in ``history.csv`` and in MLflow; details such as a percentile may follow it.
        title: its name for people.
        large_is_bad: whether the worst cases are those with the largest values.
        has_truth: whether the truth has a value of its own, at which the measure is best.
        is_distance: whether it is in pixels, voxels or mm, as each image tells; infinite where a class was missed.
        on_noisy_labels: whether it compares with labels as noisy as those of the training; a study stops early by it.
        one_per: what has a value of its own: each ``class``, ``region`` or ``image``, or the whole ``set`` of cases.
        decides: its rank among the measures that can decide on the best epoch, 1 before 2; 0 if it never does.
        per_epoch: whether the line of each epoch and MLflow's table of runs show it.
        in_study: whether curves and the page of a study show it.
    """

    name: str
    title: str
    large_is_bad: bool = False
    has_truth: bool = False
    is_distance: bool = False
    on_noisy_labels: bool = False
    one_per: str = "class"
    decides: int = 0
    per_epoch: bool = False
    in_study: bool = False

    @property
    def column(self) -> str:
        """Its name in the tables of a study."""
        return self.name.removeprefix("val_").removeprefix("mean_")

    @property
    def truth(self) -> str:
        """The name of the truth's own value."""
        return f"{self.name}_of_truth"

    @property
    def best_at(self) -> str:
        """The value at which it is best."""
        return "the value of the truth" if self.has_truth else "0" if self.large_is_bad else "1"


KEY_METRIC = "val_mean_dice"
"""The metric that every bundle has. A study also shows it at the best epoch and where training would stop early."""

_ROWS = (
    Measure(KEY_METRIC, "Dice", decides=2, per_epoch=True, in_study=True),
    Measure("val_dice_on_noisy_labels", "Dice on noisy labels", on_noisy_labels=True),
    Measure("val_mean_iou", "IoU"),
    Measure("val_set_iou", "IoU of all cases", one_per="set", decides=1, in_study=True),  # without background
    Measure(
        "val_roughness", "roughness", large_is_bad=True, has_truth=True, one_per="image", per_epoch=True, in_study=True
    ),
    Measure("val_convexity", "convexity", has_truth=True, one_per="region", in_study=True),
    Measure("val_hausdorff", "Hausdorff distance", large_is_bad=True, is_distance=True),
)

MEASURES = {measure.name: measure for measure in _ROWS}
"""All measures by name, in the order in which reports show them."""


def measure_of(name: str) -> Measure:
    """Return the measure of a metric or column, with or without ``val_``; one without properties if it is not known.

    Examples:
        >>> measure_of("hausdorff_95_pixels_cup").title, measure_of("val_roughness_of_truth").title
        ('Hausdorff distance', 'roughness')
    """
    name = f"val_{name.removeprefix('val_')}"
    known = (measure for measure in MEASURES.values() if name.startswith(measure.name))
    return max(known, key=lambda measure: len(measure.name), default=Measure(name, name))


def deciding_metric(measured: Container[str]) -> str:
    """Return which of the measured metrics decides on the best epoch, and on the champion of registered versions."""
    deciding = (measure for measure in MEASURES.values() if measure.decides and measure.name in measured)
    return min(deciding, key=lambda measure: measure.decides, default=MEASURES[KEY_METRIC]).name


def compared() -> list[Measure]:
    """Return the measures that curves and the page of a study show: first those that can decide, by rank."""
    return sorted((m for m in MEASURES.values() if m.in_study), key=lambda m: m.decides or len(MEASURES))


def how_to_read(measures: Iterable[Measure]) -> list[str]:
    """Return which measures are best at which value, one clause per value.

    Examples:
        >>> how_to_read(MEASURES[name] for name in ("val_mean_iou", "val_roughness", "val_convexity"))
        ['IoU is best at 1', 'roughness and convexity are best at the value of the truth']
    """
    titles: dict[str, list[str]] = {}
    for measure in measures:
        titles.setdefault(measure.best_at, []).append(measure.title)
    listed = {value: " and ".join(", ".join(names).rsplit(", ", 1)) for value, names in titles.items()}
    return [f"{names} {'is' if len(titles[value]) == 1 else 'are'} best at {value}" for value, names in listed.items()]
