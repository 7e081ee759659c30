# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The folder of a study: which files it holds."""

import os
from pathlib import Path

from monai_iels.run_folder import RunFolder
from monai_iels.study._definition import slug


class StudyFolder:
    """Everything that a study writes; each training has a :class:`RunFolder` of its own in it.

    Args:
        path: the ``output_dir`` of the study.

    Attributes:
        summary: what was asked for.
        lock: keeps other processes out.
        tracking: folder of the journal of the run that all trainings are nested under.
        cache: folder for data that the trainings share.
        results: all numbers of the page.
        table: one row per variant.
        report: the page as Markdown.
        page: the page as HTML, with its pictures in it.
        curves: metrics per epoch.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(path))
        self.summary = self.path / "study.json"
        self.lock = self.path / ".study.lock"
        self.tracking = self.path / "tracking"
        self.cache = self.path / "cache"
        self.results = self.path / "results.json.gz"
        self.table = self.path / "table.csv"
        self.report = self.path / "report.md"
        self.page = self.path / "report.html"
        self.curves = self.path / "curves.png"

    def training(self, variant: str, seed: int) -> RunFolder:
        """Return the folder of one training."""
        return RunFolder(self.path / slug(variant) / f"seed-{seed}")

    def panels(self, group: str = "") -> Path:
        """Return the predictions of all variants of a group, image by image."""
        return self.path / f"{slug(f'panels {group}')}.png"

    def all_panels(self) -> list[Path]:
        """Return the pictures of predictions that there are."""
        return sorted(self.path.glob("panels*.png"))
