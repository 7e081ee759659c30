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

"""Train a small network on noisy labels with and without the layer, and show both, from the same seed.

Run ``python docs/gallery/before_after.py``.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
from monai.bundle import create_workflow

from monai_iels._pictures import layer_sheet

FIGURES = Path(__file__).parents[1] / "figures"
BUNDLE = Path(__file__).parents[2] / "bundles" / "wbc"
SETTINGS = {
    "features": [16, 16, 32, 32, 64, 16],
    "image_size": [64, 64],
    "epochs": 15,
    "learning_rate": 0.0002,
    "lr_step": 6,
    "noise_fraction": 0.2,
    "track": False,
}


def main() -> None:
    """Train twice on the embedded sample, half a minute together, and write the pictures."""
    predictions = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, steps in (("U-Net", 0), ("U-Net + layer", 20)):
            out = Path(folder) / name
            create_workflow(
                config_file=str(BUNDLE / "configs" / "train.json"),
                logging_file=False,
                bundle_root=str(BUNDLE),
                output_dir=str(out),
                cache_dir=f"{folder}/cache",
                iel_steps=steps,
                **SETTINGS,
            ).run()
            with np.load(out / "pictures" / "validation.npz") as arrays:
                predictions[name] = dict(arrays)
            if steps:
                shutil.copy(out / "pictures" / "last.png", FIGURES / "quickstart.png")
    rows = []
    for index in range(3):
        first = predictions["U-Net"]
        row = {"image": first[f"{index}/image"], "truth": first[f"{index}/truth"]}
        row["labels like the training's"] = first[f"{index}/noisy label"]
        rows.append({**row, **{name: arrays[f"{index}/evaluation"] for name, arrays in predictions.items()}})
    layer_sheet(rows, "Trained on noisy labels, shown on images it has not seen", FIGURES / "before_after.png")
    print(f"Wrote {FIGURES / 'before_after.png'}")


if __name__ == "__main__":
    main()
