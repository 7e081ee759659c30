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

"""Draw the adviser's contact sheet of synthetic cells whose outlines are ragged.

Run ``python docs/gallery/advise.py``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from iels_drawings.wbc import draw_wbc
from monai_iels import MarkovLabel
from monai_iels.advice._reading import Label
from monai_iels.advice._sheet import draw_sheet
from monai_iels.advice._signs import measure

FIGURES = Path(__file__).parents[1] / "figures"


def main() -> None:
    """Write the picture."""
    FIGURES.mkdir(exist_ok=True)
    error = MarkovLabel(100, 0.5, 0.05, smoothing=1.0)
    labels = []
    for seed in range(4):
        truth = draw_wbc(np.random.default_rng(seed))[1]
        classes = np.searchsorted(np.unique(truth), truth)
        ragged = np.asarray(error(torch.from_numpy(classes.T.copy())[None].float()))[0].astype(np.int16)
        label = Label(f"cell_{seed}.png", ragged, (1.0, 1.0))
        labels.append((label, measure(ragged, label.spacing)))
    draw_sheet(labels, "ragged outlines", FIGURES / "advise.png")
    print(f"Wrote {FIGURES / 'advise.png'}")


if __name__ == "__main__":
    main()
