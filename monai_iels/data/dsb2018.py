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

"""2018 Data Science Bowl: nuclei in images of many kinds, one label file a nucleus."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from monai.config import PathLike
from PIL import Image
from tqdm import tqdm

from monai_iels.data.cache import cache_folder, complete_or_nothing, write_image
from monai_iels.data.files import Case, Datalists, folder_below, listing
from monai_iels.data.images import open_mask, open_shape
from monai_iels.data.problems import DataError, Problem
from monai_iels.data.source import Archive, Source, case_files, generator, split
from monai_iels.data.synthetic.dsb2018 import draw_dsb2018

__all__ = ["DSB2018", "merge_nuclei", "read_dsb2018"]

_PROPORTIONS = ((1.0, 1.0), (1.0, 1.0), (1.0, 1.25), (1.0, 1.0), (1.4, 1.4), (2.0, 2.7))
"""Height and width of the drawn images over their nominal size, in turn: the originals have nine sizes."""


def read_dsb2018(root: PathLike, seed: int = 0, cache_dir: PathLike | None = None) -> Datalists:
    """List the images of stage 1: 603 for training, 67 for validation.

    The paper states 607 and 67, which are 674, but the official training set has 670 images: its split cannot be had.
    These are 90 and 10 of a hundred, shuffled by ``seed``. The label files of an image, one a nucleus, are merged into
    one semantic mask, once; the masks are kept in ``cache_dir``.

    Args:
        root: a folder with ``stage1_train.zip``, ``stage1_train`` or the images' own folders.
        seed: seed of the split.
        cache_dir: where the zip is unpacked and the merged masks are kept; the user's cache folder by default.

    Returns:
        ``{"training": [...], "validation": [...]}`` of ``{"image": "<id>.png", "label": "<id>.png"}``; images are RGBA,
        in a label 0 is background and 255 a nucleus.
    """
    return DSB2018.read(root, seed, cache_dir)


def _find(root: Path, seed: int, cache_dir: PathLike | None, problems: list[Problem]) -> Datalists:
    folder = folder_below(root, "stage1_train", "*/images/*.png", cache_dir)
    cases: list[Case] = []
    for directory in listing(folder):
        if not directory.is_dir():
            problems.append(Problem("extra", str(directory), "a folder <id>", "a file", "Move the file elsewhere."))
        elif case := _find_case(directory, problems):
            cases.append(case)
    return split(cases, 0.1, seed)


def _find_case(directory: Path, problems: list[Problem]) -> Case | None:
    found: dict[str, list[str]] = {}
    for name, expected in (("images", f"{directory.name}.png"), ("masks", "one PNG file a nucleus")):
        paths = listing(directory / name) if (directory / name).is_dir() else []
        found[name] = [str(path) for path in paths if path.suffix.lower() == ".png"]
        for path in paths:
            if str(path) not in found[name]:
                problems.append(Problem("extra", str(path), "PNG files only", "another", "Move the file elsewhere."))
        if not found[name]:
            remedy = "Unpack the archive again, or move this image's folder elsewhere."
            problems.append(Problem("unmatched", str(directory / name), expected, "none", remedy))
    for image in found["images"]:
        if Path(image).stem != directory.name:
            expected = f"the image {directory.name}.png"
            problems.append(Problem("extra", image, expected, "another name", "Rename it, or move it elsewhere."))
    if not found["images"] or not found["masks"]:
        return None
    return {"image": found["images"][0], "label": found["masks"]}


def merge_nuclei(masks: list[str], size: tuple[int, ...]) -> np.ndarray:
    """Return the union of several masks as an array ``(height, width)`` of 0 and 255.

    Args:
        masks: the files.
        size: width and height of the image.

    Raises:
        DataError: naming each mask that cannot be read, or is not of the image's size.
    """
    merged = np.zeros(size[::-1], bool)
    problems: list[Problem] = []
    for mask in masks:
        try:
            pixels = open_mask(mask)
        except DataError as error:
            problems.extend(error.problems)
            continue
        if pixels.shape != merged.shape:
            expected, found = (f"{width} x {height}" for height, width in (merged.shape, pixels.shape))
            remedy = "Copy the file again from its source."
            problems.append(Problem("size", mask, f"the size of its image, {expected}", found, remedy))
        else:
            merged |= pixels > 0
    if problems:
        raise DataError(problems)
    return np.where(merged, np.uint8(255), np.uint8(0))


def _prepare(datalists: Datalists, cache_dir: PathLike | None) -> Datalists:
    """Replace the masks of each case by one merged file in the cache, which is made where it is not there yet."""
    cases = [case for section in datalists.values() for case in section]
    state = hashlib.sha256()
    for file in sorted(file for case in cases for file in case_files({"label": case["label"]})):
        stat = os.stat(file)
        state.update(f"{file} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    folder = cache_folder(cache_dir) / f"dsb2018-labels-{state.hexdigest()[:12]}"
    merged = {str(case["image"]): folder / f"{Path(str(case['image'])).stem}.png" for case in cases}
    missing = [case for case in cases if not merged[str(case["image"])].is_file()]
    problems: list[Problem] = []
    for case in tqdm(missing, desc="Merging nuclei", unit="image", disable=None if missing else True):
        try:
            pixels = merge_nuclei(case_files({"label": case["label"]}), open_shape(str(case["image"])))
        except DataError as error:
            problems.extend(error.problems)
            continue
        with complete_or_nothing(merged[str(case["image"])]) as path:
            write_image(Image.fromarray(pixels), path)
    if problems:
        raise DataError(problems)
    return {
        name: [{**case, "label": str(merged[str(case["image"])])} for case in section]
        for name, section in datalists.items()
    }


def _sample(folder: Path, count: int, seed: int, size: int) -> Iterator[None]:
    for index in range(count):
        scale = _PROPORTIONS[index % len(_PROPORTIONS)]
        image, nuclei = draw_dsb2018(generator(seed, index), (round(size * scale[0]), round(size * scale[1])))
        identity = hashlib.sha256(f"{seed} {index}".encode()).hexdigest()
        directory = folder / "stage1_train" / identity
        for name in ("images", "masks"):
            (directory / name).mkdir(parents=True)
        write_image(Image.fromarray(image).convert("RGBA"), directory / "images" / f"{identity}.png")
        for nucleus in range(1, int(nuclei.max()) + 1):
            name = hashlib.sha256(f"{identity} {nucleus}".encode()).hexdigest()
            mask = np.where(nuclei == nucleus, np.uint8(255), np.uint8(0))
            write_image(Image.fromarray(mask), directory / "masks" / f"{name}.png")
        yield


DSB2018 = Source(
    name="dsb2018",
    title="DSB2018",
    layout=(
        "stage1_train/<id>/images/<id>.png  an RGBA image\n"
        "stage1_train/<id>/masks/*.png      one mask a nucleus: 0 and 255"
    ),
    terms="CC0. Source: Broad Bioimage Benchmark Collection, BBBC038, https://bbbc.broadinstitute.org/BBBC038",
    classes=("background", "nucleus"),
    values=(0, 255),
    counts={"training": 603, "validation": 67},
    find=_find,
    prepare=_prepare,
    sample=_sample,
    size=256,
    archive=Archive(
        url="https://data.broadinstitute.org/bbbc/BBBC038/stage1_train.zip",
        folder="stage1_train",
        sha256="9808e1ce974b3a43696ca1be29bbbfd689d06e209e8ee2e7e8ec4247bee3aa24",
    ),
)
