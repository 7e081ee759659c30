# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Evaluate a checkpoint of a bundle."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any

from monai.config import PathLike

from monai_iels.handlers import EvaluationReport
from monai_iels.runs._error_sentences import one_sentence
from monai_iels.runs._weights import check_weights
from monai_iels.runs._workflow import BundleRun, check_writable, warn_if_synthetic
from monai_iels.settings import RUN, TRAINING


class Evaluation(BundleRun):
    """Evaluate a checkpoint case by case, and write tables and a picture.

    A training writes the arguments: ``python -m monai.bundle run --args_file OUT/evaluate.json``.

    Args:
        bundle_root: folder of the bundle.
        pictures: draw the worst, median and best cases; false keeps all pixels out of the results.
        track: add the results to the training's tracked run.
        tracking_uri: address of its server; by default ``MLFLOW_TRACKING_URI``, or where the training was tracked.
        known_keys: names of further keys, for configs of your own.
        config_file: configs to use in place of the bundle's.
        settings: values for keys of ``train.json`` and ``evaluate.json``, such as ``section="test"``.

    Raises:
        RunError: in one sentence, if settings, labels or weights cannot be used.
    """

    rules = TRAINING
    configs = ("train", "multi_gpu_train", "evaluate")

    def __init__(
        self,
        bundle_root: PathLike = ".",
        *,
        pictures: bool = True,
        track: bool = True,
        tracking_uri: str | None = None,
        known_keys: str | Sequence[str] = (),
        config_file: PathLike | Sequence[PathLike] | None = None,
        **settings: Any,
    ) -> None:
        options = {name: value for name, value in locals().items() if name in RUN}
        super().__init__(("train", "evaluate"), options, bundle_root, config_file, known_keys, **settings)

    @one_sentence()
    def run(self) -> None:
        """Evaluate."""
        if int(os.environ.get("WORLD_SIZE", 1)) > 1:
            raise ValueError("an evaluation runs in one process; start it without torchrun")
        self.ready()
        warn_if_synthetic(self["dataset_dir"])
        self.check_labels()
        check_weights(self["checkpoint"], self["network_def"])
        check_writable(self["report_dir"], "report_dir")
        report = self.handler("validate#handlers", EvaluationReport)
        report.pictures = self.options["pictures"]
        report.training_dir = self["output_dir"] if self.options["track"] else None
        report.tracking_uri = self.options["tracking_uri"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of MONAI about itself
            warnings.filterwarnings("ignore", "the (prediction|ground truth) of class")  # the report counts these
            self["validate#evaluator"].run()
