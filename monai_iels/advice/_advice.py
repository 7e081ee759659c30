# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""From label files to advice, and its files: a contact sheet, overrides and a study."""

from __future__ import annotations

import dataclasses
import os
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from monai_iels._files import atomic, write_text
from monai_iels._terminal import module_command, shown
from monai_iels.advice._diagnosis import SHARED, Diagnosis, diagnose
from monai_iels.advice._reading import LabelFiles
from monai_iels.advice._report import report
from monai_iels.advice._settings import Setting, settings_for
from monai_iels.advice._sheet import MARKED, draw_sheet
from monai_iels.advice._signs import Repeats, Signs, measure, specks_of
from monai_iels.study import with_methods

_SHOWN = 12


@dataclasses.dataclass(frozen=True)
class Advice:
    """What is believed of a set of labels, and what to try.

    Args:
        files: the labels.
        diagnosis: what is believed of them.
        signs: the signs of each label, by its file.
        settings: what to try, the best first.
    """

    files: LabelFiles
    diagnosis: Diagnosis
    signs: dict[str, Signs]
    settings: list[Setting]

    def __str__(self) -> str:
        """Return the report."""
        return report(self.diagnosis, self.settings)

    def worst(self, count: int = _SHOWN) -> list[str]:
        """Return the files that have most of what the answer says, the worst first."""
        sign, _ = MARKED[self.diagnosis.answer]
        found = {file: np.nan_to_num(getattr(signs, sign), nan=-1.0) for file, signs in self.signs.items()}
        return sorted(found, key=lambda file: -found[file])[:count]

    def save(self, folder: Path, root: Path, bundle: Path | None = None) -> str:
        """Write ``labels.png``, ``override.yaml`` and ``study.yaml``, and return the next steps.

        Args:
            folder: where to write; not in the folder of the data.
            root: folder of the data.
            bundle: folder of the bundle that trains with them, if there is one.
        """
        with atomic(folder / "labels.png") as part:
            draw_sheet([(self.files.label(f), self.signs[f]) for f in self.worst()], self.diagnosis.answer, part)
        answer, best = self.diagnosis.answer, self.settings[0]
        columns = {"U-Net": {"layer#steps": 0}} | {setting.name: setting.overrides for setting in self.settings}
        study = {"bundle": os.path.abspath(bundle) if bundle else "mine", "seeds": 3, "columns": columns}
        words = f"{answer}: {best.name}. {best.evidence}"
        _write_yaml(with_methods(best.overrides), words, folder / "override.yaml")
        _write_yaml(study, f"{answer}: what to try.", folder / "study.yaml")
        return _next_steps(folder, root, bundle)


def advise(files: LabelFiles, count: int = 100) -> Advice:
    """Look at labels, without their images, and say what seems to be wrong with them.

    Args:
        files: the labels, such as those of :func:`labels_in_folder`.
        count: the largest number of labels to look at, evenly chosen.

    Raises:
        ValueError: if a label cannot be read, or none has an object.
    """
    signs, repeats, has_objects = {}, Repeats(), False
    for file, label in zip(files.chosen(count), files.labels(count), strict=True):
        specks = specks_of(label.classes)
        signs[file] = measure(label.classes, label.spacing, specks)
        repeats.add(specks)
        has_objects |= bool(label.classes.any())
    if not has_objects:
        raise ValueError("all labels are empty: give labels with objects; the background is 0")
    diagnosis = diagnose(list(signs.values()), repeats.correlation())
    remedies_of = SHARED if diagnosis.may_repeat else diagnosis.answer
    return Advice(files, diagnosis, signs, settings_for(remedies_of))


def _next_steps(folder: Path, root: Path, bundle: Path | None) -> str:
    """Return the commands that train with the settings, one after another or in a study."""
    if bundle is None:
        return (
            "Next: describe your images and labels in a bundle (docs/do/bundle.md), and run this command again with\n"
            f"--bundle bundles/mine: it then prints the commands that train. The settings are in {shown(folder)}."
        )
    place, data, home = (shlex.quote(shown(path)) for path in (folder, root, bundle))
    train = f"{module_command('monai.bundle')} run --workflow_name monai_iels.Training"
    study = f"{module_command('monai_iels')} study run {place}/study.yaml --dataset_dir {data}"
    return f"""Next, train with the first of them:

    {train} --args_file {place}/override.yaml --bundle_root {home} --dataset_dir {data} --output_dir {place}/training

or compare all of them, and the network alone, with three seeds:

    {study} --output_dir {place}/study"""


def _write_yaml(content: dict[str, Any], words: str, file: Path) -> None:
    write_text(f"# {words}\n{yaml.safe_dump(content, sort_keys=False, width=120, allow_unicode=True)}", file)
