# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""REFUGE: optic disc and cup in fundus photographs."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from monai_iels.data._cache import write_image
from monai_iels.data._cases import Datalists, complete, put
from monai_iels.data._search import Search, walk
from monai_iels.data._source import Source, generator
from monai_iels.drawings import draw_refuge
from monai_iels.images import suffixes

_SECTIONS = {"train": "training", "val": "validation", "test": "test"}


def _find(search: Search) -> Datalists:
    """List the photographs of the official sections.

    One rule covers the official archives and the usual re-packed copies. The innermost folder with ``train``, ``val``
    or ``test`` in its name gives the section. A file is a mask if that folder, or one inside of it, has ``mask`` in its
    name, or if any folder is named ``mask`` or ``masks``. An image and its mask share the stem of their names.
    """
    sections: dict[str, dict[str, dict[str, str]]] = {name: {"image": {}, "label": {}} for name in _SECTIONS.values()}
    for place in search.places():
        for path in walk(place, search.problems):
            folders = path.parent.relative_to(place).parts
            if classified := _classify(path, folders if place == search.root else (place.name, *folders)):
                section, key = classified
                put(sections[section][key], path.stem.lower(), path, search.problems)
        if place == search.root and all(
            sections[name]["image"].keys() & sections[name]["label"] for name in ("training", "validation")
        ):
            break  # archives are opened only if the folders do not suffice
    missing = []
    for name, found in sections.items():
        if name != "test" or any(found.values()):
            missing += [f"{name} {key}s" for key, files in found.items() if not files]
    if missing:
        search.problems.append(search.not_found(" and no ".join(missing)))
    names = dict.fromkeys(("image", "label"), "{id}.*")
    return {name: complete(found, names, search.problems) for name, found in sections.items()}


def _classify(path: Path, folders: Sequence[str]) -> tuple[str, str] | None:
    """Return the section and the key of a file by the folders on its path; nothing if it is no image of a section."""
    names = [folder.lower() for folder in folders]
    for index in reversed(range(len(names))):
        section = re.search("|".join(_SECTIONS), names[index])
        if section and path.suffix.lower() in suffixes(2):
            masked = any("mask" in name for name in names[index:]) or "mask" in names or "masks" in names
            return _SECTIONS[section[0]], "label" if masked else "image"
    return None


_SAMPLE = (
    ("Training400/Glaucoma/g{:04}.jpg", "Annotation-Training400/Disc_Cup_Masks/Glaucoma/g{:04}.bmp"),
    ("REFUGE-Validation400/V{:04}.jpg", "REFUGE-Validation400-GT/Disc_Cup_Masks/V{:04}.bmp"),
    ("REFUGE-Test400/T{:04}.jpg", "REFUGE-Test-GT/Disc_Cup_Masks/T{:04}.bmp"),
)
"""The official paths of an image and its mask in each section; the sections are drawn in turn."""


def _sample(folder: Path, index: int, seed: int, size: int) -> None:
    number, section = divmod(index, len(_SAMPLE))
    glaucoma = number % 4 == 0
    image, label = draw_refuge(generator(seed, index), (size, size), glaucoma, traced=section == 0)
    names = [name.format(number + 1) for name in _SAMPLE[section]]
    if not glaucoma:
        names = [name.replace("Glaucoma/g", "Non-Glaucoma/n") for name in names]
    write_image(image, folder / names[0], quality=95, subsampling=0)
    write_image(np.asarray(REFUGE.values, np.uint8)[label], folder / names[1])


REFUGE = Source.from_page("refuge", find=_find, sample=_sample)
