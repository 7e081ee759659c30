# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Predict with a bundle, from file to file."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from glob import escape, glob
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from monai.config import PathLike
from monai.data import MetaTensor
from PIL import Image
from tqdm import tqdm

from monai_iels import images
from monai_iels._files import atomic, write_table
from monai_iels._terminal import first_line, shown
from monai_iels.pictures import outline
from monai_iels.prediction import Predictor
from monai_iels.runs._error_sentences import one_sentence
from monai_iels.runs._weights import check_weights
from monai_iels.runs._workflow import BundleRun, check_writable
from monai_iels.settings import NETWORK, Rule, is_number, whole_number

_INTERRUPTED = "Interrupted: the predictions that exist are complete; the same command starts again"
_RULES = NETWORK | {
    "overlap": Rule(lambda value, _: is_number(value, 0, 1), "at least 0 and less than 1"),
    "sw_batch_size": whole_number(1),
    "extension": Rule(
        lambda value, settings: value in images.writable(settings["spatial_dims"]),
        f"one of {', '.join(images.writable(3))} for volumes and of {', '.join(images.writable(2))} for images",
    ),
}


class Inference(BundleRun):
    """Predict an image, a folder of images, a pattern, or the DICOM series in a folder.

    A training writes the arguments: ``python -m monai.bundle run --args_file OUT/inference.json --dataset_dir IMAGES``.
    The labels are those of the bundle's ``inference.json`` with MONAI alone. Here damaged files and NaN are refused,
    but do not stop the others (``problems.csv`` lists them), DICOM series are complete, no file is half written, and
    images get an overlay.

    Args:
        bundle_root: folder of the bundle.
        pictures: write an overlay for each image.
        known_keys: names of further keys, for configs of your own.
        config_file: a config to use in place of the bundle's.
        settings: values for keys of ``inference.json``, such as ``dataset_dir`` and ``output_dir``.

    Raises:
        RunError: in one sentence, if settings, places or weights cannot be used, or some files could not be predicted.
    """

    rules = _RULES
    kind = "infer"
    configs = ("inference",)

    def __init__(
        self,
        bundle_root: PathLike = ".",
        *,
        pictures: bool = True,
        known_keys: str | Sequence[str] = (),
        config_file: PathLike | Sequence[PathLike] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(("inference",), {"pictures": pictures}, bundle_root, config_file, known_keys, **settings)

    @one_sentence(_INTERRUPTED)
    def run(self) -> None:
        """Check settings, places and weights, predict case by case, and say where the predictions are."""
        self.ready()
        source, folder = str(self["dataset_dir"]), Path(str(self["output_dir"]))
        cases = find_cases(source, self["spatial_dims"])
        if os.path.realpath(folder) == os.path.realpath(source):
            raise ValueError(f"--output_dir must be another folder than that of the images, got {folder}")
        weights = check_weights(str(self["checkpoint"]), self["network_def"])
        check_writable(str(folder), "output_dir")
        predictor, problems = Predictor(self.parser, weights), []
        for case in tqdm(cases, desc="Predicting", unit="image", disable=None):
            step = "read"
            try:
                image = predictor.read(case["image"], case.get("series", ""))
                step = "predicted"
                labels = predictor.labels(image)
            except Exception as error:
                named = " ".join(filter(None, (case["image"], case.get("uid"))))
                problems.append((named, _why(case["image"], _innermost(error), step)))
            else:
                self._save(image, labels, folder / name_of(case))
        _report(len(cases), problems, folder)

    def _save(self, image: MetaTensor, labels: np.ndarray, target: Path) -> None:
        """Write all files of a case, or none."""
        extension = self["extension"]
        try:
            with ExitStack() as stack:
                file = stack.enter_context(atomic(Path(f"{target}_label{extension}")))
                images.format_of(file).write(labels, image, file)
                if self.options["pictures"] and labels.ndim == 2:
                    file = stack.enter_context(atomic(Path(f"{target}_overlay{extension}")))
                    self._overlay(image, labels).save(file)
        except OSError as error:
            reason = (error.strerror or first_line(error)).lower()
            remedy = "free space there, or choose another --output_dir"
            raise ValueError(f"{target.parent}: a prediction cannot be written ({reason}); {remedy}") from None

    def _overlay(self, image: MetaTensor, labels: np.ndarray) -> Image.Image:
        """Return a picture of an image with the outlines of its classes."""
        classes = np.zeros_like(labels)
        for number, value in enumerate(self["written_values"]):
            classes[labels == value] = number
        drawn = outline(image.as_tensor() / 255, torch.as_tensor(classes)[None], self["colors"])
        return Image.fromarray(drawn.mul(255).byte().numpy().transpose(2, 1, 0))


def find_cases(dataset_dir: str, spatial_dims: int) -> list[dict[str, str]]:
    """List what is to be predicted: a file, a folder of files, a pattern, or a folder of DICOM series."""
    suffixes = images.suffixes(spatial_dims)
    if os.path.isfile(dataset_dir):
        return [{"image": dataset_dir}]
    is_folder = os.path.isdir(dataset_dir)
    found = sorted(glob(f"{escape(dataset_dir)}/*" if is_folder else dataset_dir))
    cases = [{"image": file} for file in found if file.lower().endswith(suffixes) and os.path.isfile(file)]
    if not cases and spatial_dims == 3:
        cases = [case for folder in filter(os.path.isdir, [dataset_dir, *found]) for case in images.find_series(folder)]
    if not cases and not found and not is_folder and dataset_dir == escape(dataset_dir):
        raise ValueError(f"{dataset_dir}: there is no such file or folder; set --dataset_dir to your images")
    if not cases:
        kind = "image" if spatial_dims == 2 else "volume or DICOM series"
        listed = ", ".join(suffixes)
        raise ValueError(f"{dataset_dir}: there is no {kind} ({listed}); set --dataset_dir to a file or a folder")
    names: dict[str, str] = {}
    for case in cases:
        other = names.setdefault(name_of(case), case["image"])
        if other != case["image"]:
            raise ValueError(
                f"{other} and {case['image']}: their predictions would have the same name; rename or move one of them"
            )
    return cases


def name_of(case: Mapping[str, str]) -> str:
    """Return what the prediction of a case is called, as MONAI would: its name up to the last dot, without .gz."""
    name = os.path.basename(os.path.abspath(case["image"]))
    if "series" in case:
        return f"{name}_{case['uid']}".rstrip("_").replace(".", "-")
    return os.path.splitext(name.removesuffix(".gz"))[0]


def _why(file: str, error: BaseException, step: str) -> str:
    """Say in the end of a sentence why a case could not be read, or predicted."""
    if os.path.isfile(file) and not os.path.getsize(file):
        return "is empty; copy it again"
    if isinstance(error, ValueError) and str(error).startswith(("has ", "is ")):
        return str(error)
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in str(error):
        return "needs more memory than there is; cut it into parts, or save it smaller"
    if isinstance(error, KeyError):
        return f"cannot be prepared: the transforms of the training need {error}, which a new image has not"
    reason = first_line(error).replace(file, os.path.basename(file))
    return f"cannot be {step} ({reason})" + ("; copy it again" if step == "read" else "")


def _innermost(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _report(total: int, problems: Sequence[tuple[str, str]], folder: Path) -> None:
    """Say where the predictions are, and which files could not be predicted, also in ``problems.csv``."""
    count = total - len(problems)
    print(f"{count} prediction{'' if count == 1 else 's'} in {shown(folder)}")
    table = folder / "problems.csv"
    table.unlink(missing_ok=True)
    if problems:
        write_table(pd.DataFrame(problems, columns=["file", "problem"]), table)
        for file, problem in problems:
            print(f"{file}: {problem}", file=sys.stderr)
        raise ValueError(f"{len(problems)} of {total} were not predicted; they are listed in {shown(table)}")
