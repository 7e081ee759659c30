# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""White blood cells: 300 stained cells, each with its nucleus and cytoplasm outlined."""

from pathlib import Path

import numpy as np

from monai_iels.data._cache import write_image
from monai_iels.data._cases import Datalists, pair, split
from monai_iels.data._search import Search
from monai_iels.data._source import Source, generator
from monai_iels.drawings import draw_wbc


def _find(search: Search) -> Datalists:
    """List the cells, a tenth of them for validation: as many as in the paper, which does not say which ones."""
    folder = search.folder("Dataset 1", "*.bmp")
    cases = pair(folder, {"image": "{id}.bmp", "label": "{id}.png"}, search.problems)
    return split(cases, 0.1, search.seed)


def _sample(folder: Path, index: int, seed: int, size: int) -> None:
    image, label = draw_wbc(generator(seed, index), (size, size))
    path = folder / "Dataset 1" / f"{index + 1:03}.bmp"
    write_image(image, path)
    write_image(np.asarray(WBC.values, np.uint8)[label], path.with_suffix(".png"))


WBC = Source.from_page("wbc", find=_find, sample=_sample)
