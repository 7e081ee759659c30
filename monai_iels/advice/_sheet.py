# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The contact sheet: the labels with the strongest signs, and the places that gave them away."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from monai_iels.advice._diagnosis import BITTEN, CLEAN, POLYGONS, RAGGED, SCATTERED, SHARED, SLICES
from monai_iels.advice._reading import Label
from monai_iels.advice._signs import Signs, middle_of, objects_of, odd_slices, smoothed, specks_of
from monai_iels.pictures import color_of, save_figure

_RED = "#e6004c"
_COLUMNS = 4
_SPECKS, _OUTLINE = "tiny islands and holes", "what smoothing would change"
MARKED = {  # the sign that the worst labels have most of, and what is red
    CLEAN: ("wiggles", _OUTLINE),
    SHARED: ("specks", _SPECKS),
    SCATTERED: ("specks", _SPECKS),
    RAGGED: ("wiggles", _OUTLINE),
    POLYGONS: ("straightness", _OUTLINE),
    SLICES: ("slices", "differs from both neighboring slices"),
    BITTEN: ("gaps", _OUTLINE),
}


def draw_sheet(labels: Sequence[tuple[Label, Signs]], answer: str, file: Path) -> None:
    """Draw labels side by side, with their file names, and mark suspicious places.

    Args:
        labels: the labels to show, and their signs.
        answer: what is believed of the set; it decides what is marked.
        file: the PNG file.
    """
    lines = math.ceil(len(labels) / _COLUMNS)
    figure = Figure(figsize=(2.5 * _COLUMNS, 2.75 * lines + 0.6), layout="constrained")
    fields = figure.subplots(lines, _COLUMNS, squeeze=False).ravel()
    for axis, (label, signs) in zip(fields, labels, strict=False):
        _draw(axis, label, signs, answer)
    for axis in fields[len(labels) :]:
        axis.set_axis_off()
    figure.suptitle(f"{answer}; red: {MARKED[answer][1]}", fontsize=12)
    save_figure(figure, file, dpi=110)


def _draw(axis: Axes, label: Label, signs: Signs, answer: str) -> None:
    classes, marked, aspect = _plane(label, signs, answer)
    colors = np.array([to_rgb("black"), *(to_rgb(color_of(number)) for number in range(1, classes.max() + 1))])
    axis.imshow(np.where(marked[..., None], to_rgb(_RED), 0.5 * colors[classes]), aspect=aspect)
    rows, columns = np.nonzero(classes if classes.any() else np.ones_like(classes))
    window = {"xlim": (columns.min() - 3, columns.max() + 3), "ylim": (rows.max() + 3, rows.min() - 3)}
    axis.set(**window, facecolor="black", xticks=[], yticks=[])
    axis.set_xlabel(label.name[-30:], fontsize=8.5, parse_math=False)


def _plane(label: Label, signs: Signs, answer: str) -> tuple[np.ndarray, np.ndarray, float]:
    """Return classes and marks as rows and columns, of a volume in the slice with most marks, and a pixel's height."""
    classes = label.classes[middle_of(label.classes)]
    marked = _marks(classes, label.spacing, signs, answer)
    if classes.ndim == 2:
        return classes.T, marked.T, label.spacing[1] / label.spacing[0]
    # Slices that disagree are seen from the side, anything else within a slice.
    across = (signs.axis + 1) % 3 if answer == SLICES else signs.axis % 3
    planes, marks = np.moveaxis(classes, across, 0), np.moveaxis(marked, across, 0)
    index = int(np.argmax(marks.sum((1, 2)) + 1e-6 * (planes > 0).sum((1, 2))))
    width, height = (size for axis, size in enumerate(label.spacing) if axis != across)
    return planes[index].T[::-1], marks[index].T[::-1], height / width


def _marks(classes: np.ndarray, spacing: Sequence[float], signs: Signs, answer: str) -> np.ndarray:
    """Return the suspicious places of a label."""
    specks = specks_of(classes)
    if answer in (SHARED, SCATTERED):
        return specks
    objects = objects_of(classes, specks)
    return odd_slices(objects, spacing, signs.axis % 3) if answer == SLICES else smoothed(objects) != objects
