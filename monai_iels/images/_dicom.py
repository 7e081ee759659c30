# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""DICOM series, by ITK: the slices of a volume in one folder, which may hold several series."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
from monai.config import PathLike
from monai.data import ITKReader, MetaTensor

from monai_iels.images._format import Header, load_finite
from monai_iels.images._itk import ItkVolume, itk

_UNEVEN = 0.1  # share of the distance of slices by which one may be out of place


class Dicom(ItkVolume):
    """The first series of a folder, or one slice. There is no ending to list: a slice is no volume."""

    name = "DICOM"

    def has(self, file: PathLike) -> bool:
        """Return whether this is a folder or a slice."""
        return os.path.isdir(file) or str(file).lower().endswith(".dcm")

    def header(self, file: str) -> Header:
        """Return the shape and affine of the first series, from its first and last slice."""
        slices = next(iter(_files_of_series(file).values())) if os.path.isdir(file) else (file,)
        shape, affine = super().header(slices[0])
        if len(slices) > 1:
            ways = super().header(slices[-1]).affine[:, 3] - affine[:, 3]
            shape, affine[:, 2] = (*shape[:2], len(slices)), ways / (len(slices) - 1)
        return Header(shape, affine)

    def check(self, file: str) -> None:
        """Check the first series."""
        if os.path.isdir(file):
            _check_series(file, next(iter(_files_of_series(file))))


def find_series(folder: str) -> list[dict[str, str]]:
    """List the DICOM series of a folder; several are told apart by their UIDs."""
    files = _series_files(folder)
    uids = [str(dict(itk.imread(names[0]))["0020|000e"]).strip("\0 ") for names in files.values()]
    if len(set(uids)) < len(uids):
        uids = list(files)  # MONAI's keys tell parts of a series apart
    shown = uids if len(uids) > 1 else [""]
    return [{"image": folder, "series": key, "uid": uid} for key, uid in zip(files, shown, strict=False)]


def read_series(folder: str, series: str) -> MetaTensor:
    """Read a DICOM series of a folder, channel first, complete and finite.

    Args:
        folder: the folder.
        series: its key ``series``, as :func:`find_series` gives it.

    Raises:
        ValueError: with what is wrong, as the end of a sentence about the folder.
    """
    _check_series(folder, series)
    with warnings.catch_warnings():  # MONAI notes that there are several series
        warnings.simplefilter("ignore")
        return load_finite(folder, ITKReader(series_name=series))


def _series_files(folder: str) -> dict[str, tuple[str, ...]]:
    """Return the files of each DICOM series in a folder, grouped as MONAI's reader groups them."""
    generator = itk.GDCMSeriesFileNames.New()
    generator.SetUseSeriesDetails(True)
    generator.AddSeriesRestriction("0008|0021")
    generator.SetGlobalWarningDisplay(False)
    generator.SetDirectory(folder)
    return {key: tuple(generator.GetFileNames(key)) for key in generator.GetSeriesUIDs()}


def _files_of_series(folder: str) -> dict[str, tuple[str, ...]]:
    """Return the files of each DICOM series in a folder, and refuse a folder without any."""
    found = _series_files(folder)
    if not found:
        raise ValueError("has no DICOM series; give a file, or the folder of a series")
    return found


def _check_series(folder: str, series: str) -> None:
    """Refuse a series with a slice that is damaged or missing; ITK would move the other slices together."""
    files = _series_files(folder)
    unread = set(Path(folder).glob("[!.]*")).difference(*(map(Path, names) for names in files.values()))
    damaged = sorted(file.name for file in unread if file.is_file() and _looks_like_dicom(file))
    if damaged:
        raise ValueError(f"has DICOM files that cannot be read: {', '.join(damaged[:5])}; copy them again")
    gaps = np.diff(sorted(map(_place, files[series])))
    if gaps.size and np.ptp(gaps) > _UNEVEN * np.median(gaps):
        raise ValueError(f"has slices at uneven distances, from {gaps.min():g} to {gaps.max():g} mm: one is missing")


def _place(file: str) -> float:
    """Return where a slice lies along the axis that is normal to it, in millimeters."""
    affine = ItkVolume().header(file).affine
    normal = np.cross(affine[:3, 0], affine[:3, 1])
    return float(normal @ affine[:3, 3] / np.linalg.norm(normal))


def _looks_like_dicom(file: Path) -> bool:
    return file.suffix.lower() == ".dcm" or file.read_bytes()[128:132] == b"DICM"
