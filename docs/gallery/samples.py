# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Draw the contact sheets of the synthetic images: whole images above, labels below.

Run ``python docs/gallery/samples.py``. With ``--data DIR``, a folder that has some of the real sets
in folders of the same names, each sheet gets the real images beside the synthetic ones; choose another ``--output`` for
those, since some of the data sets may not be passed on.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from PIL import Image

from monai_iels.data import SOURCES, LabelValues, Source, as_mask, read_file
from monai_iels.images import format_of
from monai_iels.pictures import color_of, save_figure

COLUMNS = 5
WIDTH = 9.0  # inches
COLUMNS_OF_STREETS = 3  # their images are twice as wide as high


def main(arguments: Sequence[str] = ()) -> None:
    """Draw a sheet a data set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="a folder with real data sets, to put beside the synthetic ones")
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "figures")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    for source in SOURCES.values():
        with tempfile.TemporaryDirectory() as folder:
            roots = [source.synthesize(Path(folder) / "synthetic", count=3 * COLUMNS)]  # REFUGE trains with a third
            if options.data and (options.data / source.name).is_dir():
                roots.insert(0, options.data / source.name)
            sheet(source, roots, Path(folder) / "cache", options.output / f"sample_{source.name}.png")


def colors_of(source: Source) -> list[list[int]] | None:
    """Return the official colors of a data set's classes, if it has any, from its bundle."""
    file = Path(__file__).parents[2] / "bundles" / source.name / "configs" / "train.json"
    return json.loads(file.read_text("utf-8"))["colors"]


def sheet(source: Source, roots: list[Path], cache: Path, file: Path) -> None:
    """Show some cases of each root in two rows."""
    columns = COLUMNS_OF_STREETS if colors_of(source) else COLUMNS
    height = WIDTH / columns * (0.5 if colors_of(source) else 1.0)
    size = (WIDTH, 2 * height * len(roots) + (1.5 if colors_of(source) else 0.7))
    figure, axes = plt.subplots(2 * len(roots), columns, figsize=size, constrained_layout=True)
    for rows, root in zip(axes.reshape(len(roots), 2, columns), roots, strict=True):
        cases = source.read(root, cache_dir=cache)["training"]
        for column, case in enumerate(cases[:: max(1, len(cases) // columns)][:columns]):
            image = pixels(str(case["image"]), lambda picture: picture.convert("RGB"))
            label = pixels(str(case["label"]), as_mask)
            image = np.clip(image / np.percentile(image, 99.5), 0, 1)
            rows[0, column].imshow(image, cmap="gray")
            show_label(rows[1, column], image, label, source)
    for axis in axes.flat:
        axis.set_axis_off()
    name_classes(figure, source, f"{source.title}, {'real above, synthetic below' if len(roots) > 1 else 'synthetic'}")
    save_figure(figure, file, dpi=110)
    plt.close(figure)
    print(f"Wrote {file}")


def pixels(file: str, converter: Callable[[Image.Image], Image.Image]) -> np.ndarray:
    """Return an image, or of a volume the middle slice from the side, crown up."""
    loaded = read_file(file, format_of(file).reader(converter)).numpy()
    return np.rot90(loaded[0, loaded.shape[1] // 2]) if loaded.ndim == 4 else np.squeeze(loaded.T)


def name_classes(figure: Figure, source: Source, title: str) -> None:
    """Say what is shown, and which color stands for which class."""
    if official := colors_of(source):
        named = {name: np.divide(color, 255) for name, color in zip(source.classes, official, strict=True)}
    else:
        named = {name: color_of(number) for number, name in enumerate(source.classes) if number}
    figure.suptitle(f"{title}{': ignored pixels are black' if official else ''}", fontsize=12)
    handles = [Patch(color=color, label=name) for name, color in named.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=5, fontsize=11, frameon=False)


def show_label(axis: Axes, image: np.ndarray, label: np.ndarray, source: Source) -> None:
    """Show a label in the official colors, or else a close-up of the image with outlines."""
    if colors_of(source) is None:
        close_up(axis, image, label, source)
        return
    shown = np.zeros((*label.shape, 3), np.uint8)
    for values, color in zip(LabelValues(source.values).classes, colors_of(source), strict=True):
        shown[np.isin(label, values)] = color
    axis.imshow(shown)


def close_up(axis: Axes, image: np.ndarray, label: np.ndarray, source: Source) -> None:
    """Show the part that has labels, with the outline of each class but the background."""
    classes = [np.isin(label, values) for values in LabelValues(source.values).classes[1:]]
    rows, columns = (np.flatnonzero(np.any(classes, axis=(0, other))) for other in (2, 1))
    margin = max(np.ptp(rows), np.ptp(columns)) // 3 if rows.size else 0
    if rows.size:
        axis.set_xlim(max(columns[0] - margin, 0), min(columns[-1] + margin, label.shape[1] - 1))
        axis.set_ylim(min(rows[-1] + margin, label.shape[0] - 1), max(rows[0] - margin, 0))
    axis.imshow(image, cmap="gray")
    for number, inside in enumerate(classes, start=1):
        if inside.any():
            width = 0.4 if source.name == "drive" else 1.2  # vessels are thinner than a thick line
            axis.contour(inside, levels=[0.5], colors=[color_of(number)], linewidths=width)


if __name__ == "__main__":
    main(sys.argv[1:])
