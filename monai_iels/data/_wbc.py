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

"""White blood cells: 300 stained cells, each with its nucleus and cytoplasm outlined."""

from pathlib import Path

import numpy as np

from iels_drawings.wbc import draw_wbc
from monai_iels.data._cache import write_image
from monai_iels.data._cases import Datalists, pair, split
from monai_iels.data._search import Search
from monai_iels.data._source import Archive, Source, generator

_VALUES = (0, 128, 255)


def _find(search: Search) -> Datalists:
    """List the cells, a tenth of them for validation: as many as in the paper, which does not say which ones."""
    folder = search.folder("Dataset 1", "*.bmp")
    cases = pair(folder, {"image": "{id}.bmp", "label": "{id}.png"}, search.problems)
    return split(cases, 0.1, search.seed)


def _sample(folder: Path, index: int, seed: int, size: int) -> None:
    image, label = draw_wbc(generator(seed, index), (size, size))
    path = folder / "Dataset 1" / f"{index + 1:03}.bmp"
    write_image(image, path)
    write_image(np.asarray(_VALUES, np.uint8)[label], path.with_suffix(".png"))


WBC = Source(
    name="wbc",
    title="WBC",
    layout=(
        "Dataset 1/001.bmp  an RGB image of one cell\n"
        "Dataset 1/001.png  its mask: 0 background, 128 cytoplasm, 255 nucleus"
    ),
    terms="GPL-3.0; cite Zheng et al., Micron 107, 2018. Source: https://github.com/zxaoyou/segmentation_WBC",
    classes=("background", "cytoplasm", "nucleus"),
    values=_VALUES,
    counts={"training": 270, "validation": 30},
    find=_find,
    sample=_sample,
    size=120,
    archive=Archive(
        url="https://github.com/zxaoyou/segmentation_WBC/archive/refs/heads/master.zip",
        folder="segmentation_WBC",
        contents="86f0a156f24967a07d434390e8cac6a87f30c95850c334b879d9d02be9b2f777",
    ),
)
