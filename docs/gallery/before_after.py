# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Run the quickstart: train on noisy labels with and without the layer, and keep two of its pictures.

Run ``python docs/gallery/before_after.py``.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from monai_iels.study import read_results, read_study, run_study, write_report

FIGURES = Path(__file__).parents[1] / "figures"
QUICKSTART = Path(__file__).parents[2] / "bundles" / "wbc" / "studies" / "quickstart.yaml"


def main() -> None:
    """Run the study in a temporary folder, and copy its comparison and the picture of the layer at work."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        run_study(read_study(QUICKSTART), out, "cpu", jobs=2, tracking_uri=f"sqlite:///{folder}/mlflow.db")
        write_report(read_results(out), out, out)
        shutil.copy(out / "panels.png", FIGURES / "before_after.png")
        shutil.copy(out / "u-net-layer" / "seed-0" / "pictures" / "last.png", FIGURES / "quickstart.png")
    print(f"Wrote {FIGURES / 'before_after.png'}")


if __name__ == "__main__":
    main()
