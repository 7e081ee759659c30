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

"""Cityscapes: street scenes of many cities, with 19 classes and pixels that do not count."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from monai.config import PathLike
from PIL import Image
from tqdm import tqdm

from iels_drawings.cityscapes import draw_cityscapes
from monai_iels.data._cache import made_once, state_of, write_image
from monai_iels.data._cases import Case, Datalists, Pairing, all_cases
from monai_iels.data._check import check_headers
from monai_iels.data._images import explained
from monai_iels.data._problems import Problems
from monai_iels.data._search import Search, walk
from monai_iels.data._source import Source, generator
from monai_iels.images import IGNORED, as_mask

_FOLDERS = {"training": "train", "validation": "val"}
_IMAGE, _LABEL_IDS, _TRAIN_IDS = "_leftImg8bit.png", "_gtFine_labelIds.png", "_gtFine_labelTrainIds.png"

_CLASSES = (
    ("road", 7),
    ("sidewalk", 8),
    ("building", 11),
    ("wall", 12),
    ("fence", 13),
    ("pole", 17),
    ("traffic light", 19),
    ("traffic sign", 20),
    ("vegetation", 21),
    ("terrain", 22),
    ("sky", 23),
    ("person", 24),
    ("rider", 25),
    ("car", 26),
    ("truck", 27),
    ("bus", 28),
    ("train", 31),
    ("motorcycle", 32),
    ("bicycle", 33),
)
"""Name and label id of each class, in the order of their train ids."""

_NAMES, _IDS = zip(*_CLASSES, strict=True)
_TABLE = np.arange(256, dtype=np.uint8)  # what is no label id stays as it is, and is found as a stray value
_TABLE[:34] = IGNORED
_TABLE[list(_IDS)] = np.arange(len(_IDS))


def as_train_ids(image: Image.Image) -> Image.Image:
    """Return a label with the train ids of the 19 classes, and 255 for all else; by its name it may have label ids."""
    mask = as_mask(image)
    return Image.fromarray(_TABLE[np.asarray(mask)]) if _has_label_ids(getattr(image, "filename", "")) else mask


def _has_label_ids(file: str | Path) -> bool:
    return str(file).lower().endswith(_LABEL_IDS.lower())


def _find(search: Search) -> Datalists:
    """List the official training and validation images, whose cities differ.

    The official test set is left out: its labels are withheld, and its label files only mark all pixels as ignored.
    """
    images = search.folder("leftImg8bit", f"*/*/*{_IMAGE}")
    labels = search.folder("gtFine", "*/*/*_gtFine_label*Ids.png")
    return {section: _pair(images / name, labels / name, search.problems) for section, name in _FOLDERS.items()}


def _pair(images: Path, labels: Path, problems: Problems) -> list[Case]:
    """Match the images of a section with their train ids, or with their label ids where there are no train ids."""
    pairing = Pairing({"image": f"{{id}}{_IMAGE}", "label": f"{{id}}{_LABEL_IDS}"})
    folders = {"image": images, "label": labels}
    paths = {key: list(walk(folder, problems)) for key, folder in folders.items()}
    found = {
        "image": _by_id(paths["image"], _IMAGE),
        "label": _by_id(paths["label"], _LABEL_IDS) | _by_id(paths["label"], _TRAIN_IDS),
    }
    for key, files in found.items():
        for identity, path in files.items():
            pairing.add(identity, key, path, problems)
    for key in pairing.lacking():
        problems.add("missing", folders[key], f"there are no files named {pairing.names[key].format(id='<city>/<id>')}")
    return pairing.complete(problems)


def _by_id(paths: Sequence[Path], ending: str) -> dict[str, Path]:
    """Return the files that end so, by city and name; the release has others beside them, which are passed over."""
    files = [path for path in paths if path.name.lower().endswith(ending.lower())]
    return {f"{path.parent.name}/{path.name[: -len(ending)]}": path for path in files}


def _prepare(datalists: Datalists, cache_dir: PathLike | None) -> Datalists:
    """Replace label ids by files with train ids in the cache."""
    cases = [case for case in all_cases(datalists) if _has_label_ids(str(case["label"]))]
    if cases:
        name = f"cityscapes-labels-{state_of(str(case['label']) for case in cases)}"
        folder = made_once(cache_dir, name, lambda empty: _convert_labels(cases, empty))
        for case in cases:
            case["label"] = str(folder / _converted_name(case))
    return datalists


def _convert_labels(cases: list[Case], folder: Path) -> None:
    """Write the train ids of each case.

    Raises:
        DataError: naming each label that cannot be read, or does not have the image's size.
    """
    check_headers({"converted": cases})
    problems = Problems()
    for case in tqdm(cases, desc="Converting labels", unit="image", disable=None):
        label = str(case["label"])
        with problems.collect(), explained(label), Image.open(label) as image:
            write_image(np.asarray(as_train_ids(image)), folder / _converted_name(case))
    problems.raise_if_any()


def _converted_name(case: Case) -> str:
    section, city, name = Path(str(case["label"])).parts[-3:]
    return f"{section}/{city}/{name[: -len(_LABEL_IDS)]}{_TRAIN_IDS}"


def _sample(folder: Path, index: int, seed: int, size: int) -> None:
    """Draw a case of one of four invented cities; every second pair of cases has label ids alone."""
    section, city = ("train", "val")[index % 2], f"drawn{1 + index % 4}"
    image, label = draw_cityscapes(generator(seed, index), (size, 2 * size))
    name = f"{section}/{city}/{city}_{index // 4:06}_000019"
    write_image(image, folder / "leftImg8bit" / f"{name}{_IMAGE}")
    write_image(label, folder / "gtFine" / f"{name}{_LABEL_IDS}")
    if index % 4 < 2:
        write_image(_TABLE[label], folder / "gtFine" / f"{name}{_TRAIN_IDS}")


CITYSCAPES = Source(
    name="cityscapes",
    title="Cityscapes",
    layout=(
        "leftImg8bit/train/aachen/aachen_000000_000019_leftImg8bit.png      a photograph\n"
        "gtFine/train/aachen/aachen_000000_000019_gtFine_labelIds.png       its label ids: 0 to 33\n"
        "gtFine/train/aachen/aachen_000000_000019_gtFine_labelTrainIds.png  its train ids, if you made them\n"
        "leftImg8bit/val/frankfurt/frankfurt_000000_000294_leftImg8bit.png\n"
        "gtFine/val/frankfurt/frankfurt_000000_000294_gtFine_labelIds.png\n"
        "(one folder per city; other files and the test set, whose labels are withheld, are passed over)"
    ),
    terms=(
        "Free for non-commercial research and teaching after registration, not to be passed on; cite Cordts et al.,\n"
        "CVPR 2016. Register at https://www.cityscapes-dataset.com, download `leftImg8bit_trainvaltest.zip` (11 GB)\n"
        "and `gtFine_trainvaltest.zip` (241 MB)."
    ),
    classes=_NAMES,
    values=tuple(range(len(_NAMES))),
    ignored=(IGNORED,),
    counts={"training": 2975, "validation": 500},
    find=_find,
    prepare=_prepare,
    convert=as_train_ids,
    sample=_sample,
    size=256,
)
