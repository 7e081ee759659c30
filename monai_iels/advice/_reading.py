# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Finding and reading the labels to look at: of a known data set, of a bundle, or in a folder of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from monai.config import PathLike
from monai.data import MetaTensor
from monai.transforms import Orientation
from tqdm import tqdm

from monai_iels import data
from monai_iels.advice._signs import reduced
from monai_iels.bundles import composed_config, list_data
from monai_iels.images import IGNORED, as_mask, format_of, suffixes

_USUAL = ("labels", "masks", "labelstr", "label", "mask")  # folders of labels, in lower case
_MOST_CLASSES = 64  # a file with more values is no label


class Label(NamedTuple):
    """One label: the name of its file, its class numbers, and the distance between its pixels along each axis."""

    name: str
    classes: np.ndarray
    spacing: tuple[float, ...]


class LabelFiles(NamedTuple):
    """Label files, and how each is read as class numbers ``(1, *spatial)``."""

    files: list[str]
    read: Callable[[str], MetaTensor]

    def chosen(self, count: int) -> list[str]:
        """Return at most ``count`` of the files, evenly over all."""
        if count < 1:
            raise ValueError(f"--cases must be at least 1, got {count}")
        places = np.linspace(0, len(self.files) - 1, min(count, len(self.files))).round().astype(int)
        return [self.files[place] for place in places]

    def labels(self, count: int) -> Iterator[Label]:
        """Read at most ``count`` labels."""
        return map(self.label, tqdm(self.chosen(count), desc="Looking at labels", unit="label", disable=None))

    def label(self, file: str) -> Label:
        """Read one label; a volume is turned so that its axes point right, forward and up."""
        label = self.read(file)
        if label.ndim not in (3, 4):
            raise ValueError(f"{file}: the label has {label.ndim - 1} axes, not 2 or 3")
        if label.ndim == 4:
            label = Orientation(axcodes="RAS", labels=None)(label)  # type: ignore[assignment]
        classes = np.asarray(label[0])
        classes, factor = reduced(np.where(classes == IGNORED, 0, classes).astype(np.int16))
        return Label(Path(file).name, classes, tuple(factor * float(size) for size in label.pixdim[: classes.ndim]))


def find_labels(root: Path, cache_dir: PathLike | None = None) -> LabelFiles:
    """Return the labels in a folder: of a known data set in its official layout, or of a folder with a usual name.

    Raises:
        ValueError: if there are no labels, or nothing says which files are labels.
    """
    if not root.is_dir():
        raise ValueError(f"{root}: there is no such folder; check the path given with --root")
    names = {path.name.lower(): path for path in data.listing(root) if path.is_dir()}
    if own := next((names[name] for name in _USUAL if name in names), None):
        return labels_in_folder(own)
    if not any(data.is_archive(path) for path in data.listing(root)):  # to try all data sets would unpack it for each
        for name in data.SOURCES:
            with suppress(data.DataError):
                return labels_of_source(name, root, cache_dir)
    remedy = "name the folder of the labels below it with --labels, a data set such as wbc or your bundle with --bundle"
    raise ValueError(f"{root}: nothing here says which files are labels, {data.contents(root)}; {remedy}")


def labels_of_source(name: str, root: PathLike, cache_dir: PathLike | None = None) -> LabelFiles:
    """Return the labels of one of the data sets."""
    source = data.SOURCES[name]
    return _listed(source.read(root, 0, cache_dir), "label", data.LabelValues(source.values, source.ignored))


def labels_of_bundle(bundle: Path, root: PathLike, cache_dir: PathLike | None = None) -> LabelFiles:
    """Return the labels of a bundle's data, read as its training does; of several annotators, those of the first."""
    parser = composed_config(bundle, root, cache_dir)
    (key, (reader, values)), *_ = data.label_readers(parser.get_parsed_content("loading")).items()
    return _listed(list_data(parser), str(key), values, reader)


def _listed(datalists: data.Datalists, key: str, values: data.LabelValues, reader: Any = None) -> LabelFiles:
    """Return the labels of all cases, read as class numbers; without a reader, as their format is."""
    files = sorted(data.all_files(datalists, [key]))
    reader = reader or format_of(files[0]).reader(as_mask)
    return LabelFiles(files, lambda file: values(data.read_file(file, reader)))


def labels_in_folder(folder: Path) -> LabelFiles:
    """Return all images or volumes below a folder; their values, in order, are the classes."""
    remedy = "name the folder of the labels below --root with --labels, such as --labels masks"
    if not folder.is_dir():
        raise ValueError(f"{folder}: there is no such folder; {remedy}")
    files = [str(path) for path in data.walk(folder, data.Problems())]
    files = [file for file in files if file.lower().endswith(suffixes(2) + suffixes(3))]
    if not files:
        raise ValueError(f"{folder}: there are no label files here, {data.contents(folder)}; {remedy}")
    return LabelFiles(files, _read_any)


def _read_any(file: str) -> MetaTensor:
    """Read a label whose values are not known: 0 is the background, others are numbered in their order."""
    if format_of(file).is_lossy:
        remedy = "save the masks again as PNG, from the program they are of"
        raise ValueError(f"{file}: a JPEG has other values near outlines than the mask that was saved; {remedy}")
    label = data.read_file(file, format_of(file).reader(as_mask))
    values, numbers = torch.unique(label.as_tensor(), return_inverse=True)
    if len(values) > _MOST_CLASSES:
        problem = f"the file has {len(values)} different values, as an image or a mask saved as JPEG does"
        raise ValueError(f"{file}: {problem}; give labels with one value per class")
    return MetaTensor(numbers + int(values[0] != 0), meta=label.meta)  # without a 0 there is no background
