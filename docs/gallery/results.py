# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Plot the results of the studies, from the tables in ``docs/results``.

Run ``python docs/gallery/results.py``.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from monai_iels.pictures import save_figure

RESULTS = Path(__file__).parents[1] / "results"
FIGURES = Path(__file__).parents[1] / "figures"
ALONE, LAYER = "#7f7f7f", "#d95f02"
BETTER, WORSE = "#2166ac", "#b2182b"  # the ends of the heat map's colors

# study, group, variant without and with the layer, by kind of labels and line of the figure
WITH_AND_WITHOUT = {
    "Noise at the same places in all labels": {
        "white blood cells, 10 %": ("wbc-noisy_labels", "shared 2x2 noise, 10 %", "U-Net", "U-Net + layer"),
        "the same, wider network": ("wbc-wider_network", "", "U-Net", "U-Net + layer"),
        "nuclei, 20 %, gain 237": ("dsb2018-other_methods", "", "U-Net", "U-Net + layer"),
        "nuclei, 20 %, gain 15, wider": ("dsb2018-wider_network", "", "U-Net", "U-Net + layer"),
        "hippocampus (3-D), 20 %": ("hippocampus-noisy_labels", "shared 2x2x2 noise, 20 %", "U-Net", "U-Net + layer"),
        "synthetic vessels, 50 %": ("drive-weight_penalty", "", "U-Net", "U-Net + layer"),
    },
    "The same noise, random flips": {
        "white blood cells, 20 %": ("wbc-augmentation", "flips", "U-Net", "U-Net + heat layer"),
        "nuclei, 20 %": ("dsb2018-augmentation", "flips", "U-Net", "U-Net + heat layer"),
    },
    "Noise that differs from image to image": {
        "white blood cells, 10 % ": ("wbc-noisy_labels", "2x2 noise of each image, 10 %", "U-Net", "U-Net + layer"),
        "synthetic vessels, 50 % ": ("drive-weight_penalty", "noise of each image", "U-Net", "U-Net + layer"),
    },
    "Clean labels": {
        "white blood cells": ("wbc-noisy_labels", "clean labels", "U-Net", "U-Net + layer"),
        "nuclei, gain 15 (one seed)": ("dsb2018-gain", "clean labels", "gain 1 (no layer)", "gain 15 (15 steps)"),
        "nuclei, gain 237 (one seed)": ("dsb2018-gain", "clean labels", "gain 1 (no layer)", "gain 237 (30 steps)"),
        "synthetic vessels, gain 6": ("drive-number_of_layers", "", "U-Net", "10 steps"),
    },
    "Labels with dents (curve motion)": {
        "synthetic optic discs, 60 steps": ("refuge-convexity", "", "U-Net", "U-Net + 60 steps, central"),
        "nuclei, 60 steps": ("dsb2018-convexity", "", "U-Net", "U-Net + 60 steps, central"),
        "hull of the hippocampus (3-D), 60 steps": (
            "hippocampus-convexity",
            "labels with dents",
            "U-Net",
            "U-Net + 60 steps, central",
        ),
    },
    "Clean labels (curve motion)": {
        "nuclei, 60 steps ": ("dsb2018-convexity", "clean labels", "U-Net", "U-Net + 60 steps, central"),
        "hull of the hippocampus (3-D), 60 steps ": (
            "hippocampus-convexity",
            "clean labels",
            "U-Net",
            "U-Net + 60 steps, central",
        ),
    },
}
LABEL_ERRORS = {"wbc": "white blood cells", "dsb2018": "nuclei", "hippocampus": "hippocampus (3-D)"}


def main() -> None:
    """Write the pictures of the results page."""
    FIGURES.mkdir(exist_ok=True)
    with plt.rc_context({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False}):
        drawings = {
            "with_and_without": with_and_without,
            "label_errors": label_errors,
        }
        for name, draw in drawings.items():
            figure = draw()
            save_figure(figure, FIGURES / f"results_{name}.png")
            plt.close(figure)
            print(f"Wrote {FIGURES / f'results_{name}.png'}")


def rows(study: str, group: str = "") -> pd.DataFrame:
    """Return the table of a study, or of one of its groups, by variant."""
    table = pd.read_csv(RESULTS / study / "table.csv", dtype={"group": str}).fillna(
        {"group": "", "dice_deviation": 0.0}
    )
    return table[table.group == group].set_index("variant")


def with_and_without() -> Figure:
    """Compare Dice without and with the layer on the left, and show the difference and its interval on the right."""
    lines = sum(len(cases) + 1 for cases in WITH_AND_WITHOUT.values())
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(8.4, 0.36 * lines + 1.2), sharey=True, width_ratios=(3, 2), layout="constrained"
    )
    place, ticks = 0, {}
    for title, cases in WITH_AND_WITHOUT.items():
        left.text(-0.02, place, title, fontweight="bold", ha="right", va="center", transform=left.get_yaxis_transform())
        for name, (study, group, without, with_layer) in cases.items():
            place += 1
            ticks[place] = name
            table = rows(study, group)
            difference(left, right, place, table.loc[without], table.loc[with_layer])
        place += 1
    left.set(yticks=list(ticks), yticklabels=list(ticks.values()), ylim=(lines - 0.4, -0.8), xlim=(0.4, 1))
    left.set_xlabel("Dice (± deviation over seeds)")
    right.set_xlabel("difference in Dice\n(95 % interval)")
    right.set_xlim(-0.15, 0.68)
    right.axvline(0, color="black", lw=0.8)
    right.text(0.02, -0.1, "better with the layer →", fontsize=9, color="0.3")
    for axis in (left, right):
        axis.tick_params(axis="y", length=0)
        axis.grid(axis="x", alpha=0.3)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles[:2], labels[:2], loc="outside upper right", ncols=2, frameon=False)
    return figure


def difference(left: Axes, right: Axes, place: int, without: pd.Series, with_layer: pd.Series) -> None:
    """Draw one line: both values, and the difference between them."""
    left.plot([without.dice, with_layer.dice], [place, place], color="0.8", lw=3, zorder=0)
    for row, color, marker, label in (
        (without, ALONE, "o", "U-Net"),
        (with_layer, LAYER, "D", "U-Net + layer"),
    ):
        left.errorbar(row.dice, place, xerr=row.dice_deviation, fmt=marker, color=color, capsize=2, label=label)
    gain = with_layer.dice_gain
    sides = [[gain - with_layer.dice_gain_low], [with_layer.dice_gain_high - gain]]
    color = BETTER if with_layer.dice_gain_low > 0 else WORSE if with_layer.dice_gain_high < 0 else "0.4"
    right.errorbar(gain, place, xerr=sides, fmt="o", color=color, capsize=3)
    right.text(
        max(with_layer.dice_gain_high, 0) + 0.03,
        place,
        f"{round(gain, 3) + 0.0:+.3f}",
        color=color,
        va="center",
        fontsize=9,
    )


def tables_of_label_errors() -> dict[str, pd.DataFrame]:
    """Return the table of each data set whose study of label errors is there."""
    found = {name: RESULTS / f"{name}-label_errors" / "table.csv" for name in LABEL_ERRORS}
    return {name: pd.read_csv(file) for name, file in found.items() if file.exists()}


def label_errors() -> Figure:
    """Draw what each remedy gains over the network alone, for each error and data set."""
    tables = tables_of_label_errors()
    figure, axes = plt.subplots(
        len(tables), 1, figsize=(8.4, 0.4 + 2.5 * len(tables)), squeeze=False, layout="constrained"
    )
    for axis, (name, table) in zip(axes[:, 0], tables.items(), strict=True):
        heat_map(axis, table)
        seeds = table.seeds.max()
        axis.set_ylabel(f"{LABEL_ERRORS[name]}\n{seeds} seed{'s' if seeds > 1 else ''}", fontweight="bold")
    words = "Dice of the U-Net alone, then differences to it. Blue: better; red: worse; colors end at 0.1."
    words += "\nBold: the 95 % interval leaves out zero."
    figure.supxlabel(words, fontsize=9.5)
    return figure


def is_sure(row: pd.Series) -> bool:
    """Return whether the interval of a gain leaves out zero; one seed is not enough to say so."""
    return bool(row.seeds > 1 and (row.dice_gain_low > 0 or row.dice_gain_high < 0))


def heat_map(axis: Axes, table: pd.DataFrame) -> None:
    """Draw one data set: the network's own Dice in the first column, then the gain of each remedy."""
    errors = [*table.group.unique()]
    baseline, *remedies = table.variant.unique()
    gains = table.pivot(index="group", columns="variant", values="dice_gain").loc[errors, remedies]
    extent = (0.5, len(remedies) + 0.5, len(errors), 0)
    axis.imshow(gains, cmap="RdBu", vmin=-0.1, vmax=0.1, aspect="auto", extent=extent)
    for _, row in table.iterrows():
        place = errors.index(row.group) + 0.5
        if row.variant == baseline:
            axis.text(0, place, f"{row.dice:.3f}", ha="center", va="center")
        elif not pd.isna(row.dice_gain):
            color = "white" if abs(row.dice_gain) > 0.06 else "black" if is_sure(row) else "0.4"
            weight = "bold" if is_sure(row) else "normal"
            text = f"{round(row.dice_gain, 3) + 0.0:+.3f}"
            column = remedies.index(row.variant) + 1
            axis.text(column, place, text, ha="center", va="center", color=color, fontweight=weight)
    axis.set(xlim=(-0.5, len(remedies) + 0.5), ylim=(len(errors), 0))
    axis.set(yticks=[place + 0.5 for place in range(len(errors))], yticklabels=errors, xticks=range(len(remedies) + 1))
    names = [textwrap.fill(name, 12) for name in (f"{baseline} alone", *remedies)]
    axis.set_xticklabels(names, fontsize=8.5)
    axis.xaxis.tick_top()
    axis.tick_params(length=0)
    axis.axhline(1, color="black", lw=1.2)  # below the clean labels
    axis.spines[:].set_visible(False)


if __name__ == "__main__":
    main()
