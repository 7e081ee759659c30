# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Ask the adviser about synthetic cells with noise at the same places; draw its contact sheet and print its words.

Run ``python docs/gallery/advise.py``.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from monai.data import MetaTensor
from PIL import Image

from monai_iels import CorruptLabel
from monai_iels.advice import Advice, advise, labels_in_folder, labels_of_source
from monai_iels.advice._sheet import draw_sheet
from monai_iels.data import SOURCES

FIGURES = Path(__file__).parents[1] / "figures"


def main() -> None:
    """Write the picture."""
    FIGURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        advice = example(Path(folder))
        worst = [(advice.files.label(file), advice.signs[file]) for file in advice.worst(4)]
        draw_sheet(worst, advice.diagnosis.answer, FIGURES / "advise.png")
    print(f"{advice}\n\nWrote {FIGURES / 'advise.png'}")


def example(folder: Path) -> Advice:
    """Ask about twenty synthetic cells with noise at the same places."""
    SOURCES["wbc"].synthesize(folder / "cells", 20)
    noise = CorruptLabel(num_classes=3, window=2, fraction=0.1)
    clean = labels_of_source("wbc", folder / "cells")
    (folder / "labels").mkdir()
    for file in clean.files:
        label = MetaTensor(clean.read(file), meta={"filename_or_obj": Path(file).name})
        noisy = np.asarray(noise(label))[0].T.astype(np.uint8)  # MONAI has the width first, Pillow the height
        Image.fromarray(np.ascontiguousarray(noisy)).save(folder / "labels" / f"{Path(file).stem}.png")
    return advise(labels_in_folder(folder / "labels"))


if __name__ == "__main__":
    main()
