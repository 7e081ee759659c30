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
"""The data sets by name, and checked datalists for a training: from a folder, or drawn on the spot."""

from pathlib import Path

from monai.config import PathLike

from monai_iels.data._cache import made_once
from monai_iels.data._cases import Datalists, pair, split
from monai_iels.data._check import check_headers
from monai_iels.data._drive import DRIVE
from monai_iels.data._dsb2018 import DSB2018
from monai_iels.data._hippocampus import HIPPOCAMPUS
from monai_iels.data._problems import DataError, Problem, Problems
from monai_iels.data._refuge import REFUGE
from monai_iels.data._source import Source, report_empty_sections
from monai_iels.data._wbc import WBC

SYNTHETIC = "synthetic"
_DRAWINGS = 2  # raise it when the drawings change, so that no cache shows the old ones
SOURCES: dict[str, Source] = {source.name: source for source in (WBC, DSB2018, DRIVE, REFUGE, HIPPOCAMPUS)}


def checked_datalists(
    name: str,
    root: PathLike = SYNTHETIC,
    seed: int = 0,
    cache_dir: PathLike | None = None,
    count: int = 60,
    size: int | None = None,
) -> Datalists:
    """List a data set's files, after opening the header of each.

    Args:
        name: one of ``wbc``, ``dsb2018``, ``drive``, ``refuge``, ``hippocampus``.
        root: the folder of the data set, or ``"synthetic"`` for a drawn sample.
        seed: seed of the split, and of the drawing.
        cache_dir: where to put what is made once from the data; the user's cache folder by default.
        count: number of cases of a drawn sample.
        size: height of a drawn sample's images.

    Returns:
        one datalist per section, as MONAI's data sets take them.

    Raises:
        DataError: naming all files that are missing, unmatched, of another size, or whose headers cannot be read.
        OSError: if the cache cannot be written, with the folder as its file name.
    """
    if name not in SOURCES:
        raise ValueError(f"unknown data set '{name}': choose one of {', '.join(SOURCES)}")
    source = SOURCES[name]
    if str(root) != SYNTHETIC:
        return _read(source, root, seed, cache_dir)
    folder = f"{SYNTHETIC}-{name}-{count}-{size or source.size}-seed{seed}-drawing{_DRAWINGS}"
    root = made_once(cache_dir, folder, lambda empty: source.draw(empty, count, seed, size))
    try:
        return _read(source, root, seed, cache_dir)
    except DataError as error:
        remedy = f"This was drawn and has changed since: delete {root}, and it will be drawn again."
        raise error.replace(remedy=remedy) from error


def _read(source: Source, root: PathLike, seed: int, cache_dir: PathLike | None) -> Datalists:
    datalists = source.read(root, seed, cache_dir)
    check_headers(datalists)
    return datalists


def paired_datalists(
    root: PathLike,
    image: str = "images/{id}.png",
    label: str = "labels/{id}.png",
    validation: float = 0.1,
    seed: int = 0,
) -> Datalists:
    """List your own data, where the names of an image and its label share a part.

    Args:
        root: the folder of the data.
        image: path of an image relative to ``root``, with ``{id}`` for the shared part.
        label: path of its label.
        validation: fraction of the cases for validation.
        seed: seed of the split.

    Returns:
        one datalist per section, as MONAI's data sets take them.

    Raises:
        DataError: naming all files that are missing, unmatched, of another size, or whose headers cannot be read.
    """
    if str(root) == SYNTHETIC:
        raise ValueError("--dataset_dir must be the folder of your data: there is no synthetic sample of it")
    for pattern in (image, label):
        if pattern.count("{id}") != 1:
            raise ValueError(f"the path of images and labels must contain {{id}} once, got '{pattern}'")
    if not 0 < validation < 1:
        raise ValueError(f"validation must lie between 0 and 1, got {validation}")
    folder = Path(root).expanduser()
    if not folder.is_dir():
        remedy = f"Check the path for a typo: it must have {image} and {label}."
        raise DataError(Problem("missing", str(folder), "there is no such folder", remedy))
    problems = Problems()
    cases = pair(folder, {"image": image, "label": label}, problems)
    datalists = split(cases, validation, seed)
    report_empty_sections(datalists, folder, problems)
    problems.raise_if_any()
    check_headers(datalists)
    return datalists
