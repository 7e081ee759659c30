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

"""REFUGE: optic disc and cup in fundus photographs."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from monai.config import PathLike
from PIL import Image

from monai_iels.data.cache import write_image
from monai_iels.data.files import Case, Datalists, not_found, places, walk
from monai_iels.data.problems import Problem
from monai_iels.data.source import Source, generator
from monai_iels.data.synthetic.refuge import draw_refuge

__all__ = ["REFUGE", "read_refuge"]

_VALUES = (255, 128, 0)
_SECTIONS = {"train": "training", "val": "validation", "test": "test"}
_IMAGES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff")


def read_refuge(root: PathLike, seed: int = 0, cache_dir: PathLike | None = None) -> Datalists:
    """List the photographs of REFUGE: the official 400 for training, 400 for validation and 400 for testing.

    One rule covers the official archives and the usual re-packed copies: the innermost folder with train, val or test
    in its name gives the section; it is a mask if that folder, or one inside of it, has ``mask`` in its name, or if any
    is called just so; and image and mask go together by the stems of their names.

    Args:
        root: the folder that all archives were unpacked into, or that holds the archives.
        seed: not used, since the split is the official one.
        cache_dir: where archives are unpacked, if ``root`` holds those instead of folders.

    Returns:
        ``{"training": [...], "validation": [...], "test": [...]}`` of ``{"image": "....jpg", "label": "....bmp"}``; in
        a label 255 is background, 128 the rim of the disc, 0 the cup.
    """
    return REFUGE.read(root, seed, cache_dir)


def _find(root: Path, seed: int, cache_dir: PathLike | None, problems: list[Problem]) -> Datalists:
    found: dict[str, dict[str, dict[str, Path]]] = {name: defaultdict(dict) for name in _SECTIONS.values()}
    expected = "folders of training and validation images with their masks"
    for number, place in enumerate(places(root, expected, cache_dir)):
        for path in walk(place, problems):
            folders = path.parent.relative_to(place).parts
            _sort_in(path, folders if number == 0 else (place.name, *folders), found, problems)
        if number == 0 and all(2 in map(len, found[name].values()) for name in ("training", "validation")):
            break  # folders come first; archives are opened only where those do not suffice
    missing = [name for name in ("training", "validation") if not found[name]]
    if missing:
        problems.append(not_found(root, f"images and masks of the {' and '.join(missing)} section"))
    return {name: _pairs(files, problems) for name, files in found.items()}


def _sort_in(
    path: Path, folders: Sequence[str], found: dict[str, dict[str, dict[str, Path]]], problems: list[Problem]
) -> None:
    """Put a file where the folders on its path say it belongs; one that is no image of any section is passed over."""
    names = [folder.lower() for folder in folders]
    hits = [(index, hit[0]) for index, name in enumerate(names) if (hit := re.search("|".join(_SECTIONS), name))]
    if not hits or path.suffix.lower() not in _IMAGES:
        return
    inner, section = hits[-1]
    masked = any("mask" in name for name in names[inner:]) or "mask" in names or "masks" in names
    key = "label" if masked else "image"
    files = found[_SECTIONS[section]][path.stem.lower()]
    if key in files:
        remedy = "Move one of them elsewhere."
        problems.append(Problem("extra", str(path), f"one {key} named {path.stem}", str(files[key]), remedy))
    files.setdefault(key, path)


def _pairs(files: dict[str, dict[str, Path]], problems: list[Problem]) -> list[Case]:
    cases: list[Case] = []
    for stem, case in sorted(files.items()):
        if len(case) == 2:
            cases.append({"image": str(case["image"]), "label": str(case["label"])})
            continue
        ((key, path),) = case.items()
        expected = f"a mask named {stem} with it" if key == "image" else f"an image named {stem} with it"
        remedy = "Copy the missing file from the source, or move this one elsewhere."
        problems.append(Problem("unmatched", str(path), expected, "none", remedy))
    return cases


_SAMPLE = (
    ("Training400/Glaucoma/g{:04}.jpg", "Annotation-Training400/Disc_Cup_Masks/Glaucoma/g{:04}.bmp"),
    ("REFUGE-Validation400/V{:04}.jpg", "REFUGE-Validation400-GT/Disc_Cup_Masks/V{:04}.bmp"),
    ("REFUGE-Test400/T{:04}.jpg", "REFUGE-Test-GT/Disc_Cup_Masks/T{:04}.bmp"),
)
"""Official image and mask of each section, drawn in turn."""


def _sample(folder: Path, count: int, seed: int, size: int) -> Iterator[None]:
    for index in range(count):
        number, section = divmod(index, len(_SAMPLE))
        glaucoma = number % 4 == 0
        image, label = draw_refuge(generator(seed, index), (size, size), glaucoma, traced=section == 0)
        names = [name.format(number + 1) for name in _SAMPLE[section]]
        if not glaucoma:
            names = [name.replace("Glaucoma/g", "Non-Glaucoma/n") for name in names]
        paths = [folder / name for name in names]
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
        write_image(Image.fromarray(image), paths[0], quality=95, subsampling=0)
        write_image(Image.fromarray(np.asarray(_VALUES, np.uint8)[label]), paths[1])
        yield


REFUGE = Source(
    name="refuge",
    title="REFUGE",
    layout="\n".join(name.format(1) for names in _SAMPLE for name in names)
    + "\n(Non-Glaucoma/n0001 beside Glaucoma/g0001; or re-packed: train|val|test/{Images,Masks}/*)",
    terms=(
        "For registered participants, not to be passed on; cite Orlando et al., Medical Image Analysis 59, 2020.\n"
        "Register at https://refuge.grand-challenge.org, join the challenge, and download the images and annotations\n"
        "of the training, validation and test sections."
    ),
    classes=("background", "rim", "cup"),
    values=_VALUES,
    counts={"training": 400, "validation": 400, "test": 400},
    find=_find,
    sample=_sample,
    size=512,
)
