# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""What a person reads: one line per epoch and a summary after training, tables and pictures after evaluation."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import numpy as np
import pandas as pd
import torch
from ignite.engine import Events
from ignite.handlers import EpochOutputStore, ProgressBar
from ignite.metrics import Average
from monai.utils import string_list_all_gather

from monai_iels._files import drawing, write_table
from monai_iels._terminal import duration, shown
from monai_iels.handlers._phases import Phases, attach
from monai_iels.measures import KEY_METRIC, MEASURES, measure_of
from monai_iels.metrics import SetIoUMetric
from monai_iels.pictures import Colors, Tile, classes_of, contact_sheet, study_curves, tiles
from monai_iels.run_folder import RunFolder, best_and_last
from monai_iels.tracking import DeliveryThread, Journal

logger = logging.getLogger(__name__)


class TrainingReport:
    """Show a progress bar with the loss, one line per epoch, and at the end a summary.

    The bar appears on a terminal only. The numbers go to ``history.csv``, those of each case to ``cases.csv``, and
    ``curves.png`` shows them at the end.

    Args:
        output_dir: folder of the run.
        evaluator: the engine that validates the network.

    Attributes:
        metrics: the numbers of the last epoch.
    """

    def __init__(self, output_dir: str, evaluator: Any) -> None:
        self.folder = RunFolder(output_dir)
        self.evaluator = evaluator
        self.metrics: dict[str, float] = {}

    def attach(self, engine: Any) -> None:
        """Follow a trainer, and the names of the cases that its evaluator validates."""
        EpochOutputStore(lambda output: [_name(item) for item in output]).attach(self.evaluator, "names")
        Average(lambda output: output["loss"]).attach(engine, "loss")
        if idist.get_rank() == 0:
            bar = ProgressBar(bar_format=None, unit="batch", disable=None)
            bar.attach(engine, output_transform=lambda output: {"loss": output["loss"]})
        attach(engine, Phases.BEGIN, self.start)
        engine.add_event_handler(Events.EPOCH_STARTED, self.start_epoch)
        attach(engine, Phases.REPORT, self.report_epoch)
        attach(engine, Phases.SUMMARIZE, self.summarize)

    def start(self, engine: Any) -> None:
        """Begin a training, or take over the numbers of the epochs that it continues."""
        self.history, self.cases = self.folder.read_epochs(engine.state.epoch)

    def start_epoch(self, engine: Any) -> None:
        """Begin an epoch."""
        self.began = time.monotonic()
        self.learning_rate = engine.optimizer.param_groups[0]["lr"]

    def report_epoch(self, engine: Any) -> None:
        """Write the epoch's numbers, and log them in one line (a collective: every rank must call it)."""
        is_validated = self.evaluator.state.epoch == engine.state.epoch
        names: list[str] = []
        if is_validated:
            names = string_list_all_gather([name for batch in self.evaluator.state.names for name in batch])
        if idist.get_rank() > 0:
            return
        epoch = float(engine.state.epoch)
        self.metrics = {"loss": float(engine.state.metrics["loss"]), "learning_rate": self.learning_rate}
        if is_validated:
            self.metrics |= {name: float(value) for name, value in self.evaluator.state.metrics.items()}
            cases = pd.DataFrame({"epoch": epoch, "case": names})
            for name, details in self.evaluator.state.metric_details.items():
                cases[name] = _per_part(details).nanmean(dim=1)[: len(names)].numpy()
            self.cases = pd.concat([self.cases, cases], ignore_index=True)
        self.metrics["seconds"] = time.monotonic() - self.began
        row = pd.DataFrame([{"epoch": epoch, **self.metrics}])
        self.history = pd.concat([self.history, row], ignore_index=True)
        self.folder.write_epoch(self.history, self.cases)
        self._log_epoch(engine.state)

    def _log_epoch(self, state: Any) -> None:
        epoch, last = state.epoch, state.max_epochs
        line = f"epoch {epoch:>{len(str(last))}}/{last}  loss {self.metrics['loss']:.4f}"
        for name, measure in MEASURES.items():
            if measure.per_epoch and name in self.metrics:
                line += f"  {measure.title} {self.metrics[name]:.3f}"
                if measure.truth in self.metrics:
                    line += f" (truth {self.metrics[measure.truth]:.3f})"
        if epoch < last:
            line += f"  {duration((last - epoch) * self.history['seconds'].tail(5).mean())} left"
        if self.evaluator.state.epoch == self.evaluator.state.best_metric_epoch == epoch:
            line += "  best so far"
        logger.info(line)

    @idist.one_rank_only()
    def summarize(self, engine: Any) -> None:
        """Log what came out, and where it is."""
        found = best_and_last(self.history)
        if found is None:
            return
        best, last = found
        with drawing(self.folder.curves) as part:
            study_curves({"": {"this training": [self.history.set_index("epoch")]}}, part)
        measures = [m for name, m in MEASURES.items() if name in best and not m.on_noisy_labels]
        rows = {m.title: (best[m.name], last[m.name], best.get(m.truth, np.nan)) for m in measures}
        table = pd.DataFrame(rows, index=["best", "last", "truth"]).T.dropna(how="all")
        pictures = (self.folder.curves, self.folder.last_picture)
        logger.info(
            f"\n{table.to_string(float_format='{:.4f}'.format, na_rep='')}\n\n"
            f"Best weights (epoch {best['epoch']:.0f}): {shown(self.folder.best_weights)}\n"
            f"Pictures: {', '.join(shown(file) for file in pictures if file.exists())}"
        )


def _name(item: Mapping[str, Any]) -> str:
    return Path(str(item["image"].meta["filename_or_obj"])).name


def _per_part(details: Any) -> torch.Tensor:
    """Return the details of a metric as one row per case and one column per class or region."""
    values = torch.as_tensor(details).detach().cpu().double()
    return values.reshape(len(values), -1)


@dataclass(eq=False, repr=False)
class EvaluationReport:
    """Write a table of all cases, its summary, and a contact sheet of the worst, median and best.

    MONAI's ``MetricsSaver`` writes two files per metric. Here one table has all metrics, with the names of classes and
    regions, and a class that was missed has the largest possible Hausdorff distance.

    Args:
        output_dir: folder for ``cases.csv``, ``classes.csv``, ``summary.csv`` and ``contact_sheet.png``.
        classes: names of the classes, background first.
        include_background: whether the first class is one like the others.
        colors: red, green and blue of each class in the contact sheet; by default the first has none.
        regions: groups of classes whose convexity is measured, one number each; each class by itself if None.
        section: name of the section that is evaluated.
        pictures: whether to draw the contact sheet.
        training_dir: folder of the training, whose tracked run gets the files, too.
        tracking_uri: where that run is, by default ``MLFLOW_TRACKING_URI`` or where the training was tracked.
    """

    output_dir: str
    classes: Sequence[str]
    include_background: bool = False
    colors: Colors = None
    regions: Sequence[Sequence[int]] | None = None
    section: str = "validation"
    pictures: bool = True
    training_dir: str | None = None
    tracking_uri: str | None = None

    def attach(self, engine: Any) -> None:
        """Follow an evaluator.

        Raises:
            ValueError: if there are several processes.
        """
        if (count := idist.get_world_size()) > 1:
            raise ValueError(f"an evaluation runs in one process, got {count}; run it without torchrun")
        self.shown = [*self.classes][0 if self.include_background else 1 :]
        engine.add_event_handler(Events.STARTED, self.start)
        engine.add_event_handler(Events.ITERATION_COMPLETED, self.collect)
        engine.add_event_handler(Events.COMPLETED, self.write)

    def start(self, engine: Any) -> None:
        """Begin a report; a federated client evaluates after each round."""
        self.names: list[str] = []
        self.rows: list[dict[str, Tile]] = []
        self.iou = SetIoUMetric(self.include_background, "none")
        self.diagonals: list[float] = []
        self.units: set[str] = set()

    def collect(self, engine: Any) -> None:
        """Keep the name of each case, and a small picture if there will be any."""
        for item, output in zip(engine.state.batch, engine.state.output, strict=True):
            image, truth, guess = (output[key].detach().cpu() for key in ("image", "label", "pred"))
            self.iou(guess[None], truth[None])
            self.diagonals.append(float(np.linalg.norm(truth.shape[1:])))
            self.units.add(_unit(item["image"]))
            self.names.append(_name(item))
            if self.pictures:
                known = {"truth": truth, "prediction": guess}
                pixels = {name: classes_of(x, not self.include_background).numpy() for name, x in known.items()}
                self.rows.append(tiles(image.numpy(), pixels, largest=256))

    def write(self, engine: Any) -> None:
        """Write the tables and the sheet."""
        cases = self._cases(engine.state.metric_details)
        summary = _statistics(cases.drop(columns="case"))
        classes = pd.DataFrame({"class": self.shown, "iou_of_all_cases": self.iou.aggregate()})
        tables = {"cases": cases, "summary": summary.reset_index(), "classes": classes}
        files = [Path(self.output_dir) / f"{name}.csv" for name in tables]
        for file, table in zip(files, tables.values(), strict=True):
            write_table(table, file)
        table = summary[["mean", "median", "worst_5_percent"]].rename(columns={"worst_5_percent": "worst 5 %"})
        table.index = [name.removeprefix("mean_").replace("_", " ") for name in table.index]
        text = f"{table.to_string(float_format='%.4f')}\n\n"
        text += f"All {len(cases)} cases of the {self.section} section: {shown(files[0])}"
        if self.pictures:
            sheet = Path(self.output_dir) / "contact_sheet.png"
            with drawing(sheet) as part:
                scored = [*zip(self.names, cases[KEY_METRIC.removeprefix("val_")], self.rows, strict=True)]
                contact_sheet([c for c in scored if not np.isnan(c[1])] or scored, self.classes, part, self.colors)
                files.append(sheet)
                text += f"\nPicture of the worst, median and best cases: {shown(sheet)}"
        self._track(files)
        logger.info(text)

    def _track(self, files: Iterable[Path]) -> None:
        """Add files to the tracked run of the training that is evaluated, if there is one."""
        journal = Journal(RunFolder(self.training_dir).tracking) if self.training_dir else None
        if journal is not None and journal.file.exists():
            journal.add_files(files, "evaluation")
            delivery = DeliveryThread(journal, self.tracking_uri)
            delivery.start()
            delivery.finish()

    def _cases(self, metric_details: Mapping[str, Any]) -> pd.DataFrame:
        """Return one row per case: each metric's mean over classes or regions, and its parts if there are several."""
        groups = ["+".join(self.classes[index] for index in group) for group in self.regions or ()]
        cases: dict[str, Any] = {"case": self.names}
        for name, details in metric_details.items():
            measure, metric, values = measure_of(name), name.removeprefix("val_"), _per_part(details)
            if measure.is_distance:
                metric += f"_{'voxels' if len(self.units) > 1 else min(self.units)}"
                values = values.where(values.isfinite(), torch.tensor(self.diagonals)[:, None])  # a class was missed
            cases[metric] = values.where(values.isfinite(), torch.nan).nanmean(dim=1).numpy()
            parts = groups if measure.one_per == "region" and self.regions is not None else self.shown
            if values.shape[1] == len(parts) > 1:
                cases |= {f"{metric}_{part}": column.numpy() for part, column in zip(parts, values.T, strict=True)}
        return pd.DataFrame(cases)


def _unit(image: Any) -> str:
    """Return the unit of distances between the pixels or voxels of an image."""
    if image.ndim == 3:
        return "pixels"
    return "mm" if np.allclose(image.pixdim, 1, atol=1e-3) else "voxels"


def _statistics(cases: pd.DataFrame) -> pd.DataFrame:
    """Return one row per metric, over the cases that have a finite value."""
    finite = cases.where(np.isfinite(cases))
    large_is_bad = [measure_of(name).large_is_bad for name in finite]
    statistics = {
        "mean": finite.mean(),
        "standard_deviation": finite.std(ddof=0),
        "median": finite.median(),
        "worst_5_percent": finite.quantile(0.05).mask(large_is_bad, finite.quantile(0.95)),
        "cases": finite.count(),
    }
    return pd.DataFrame(statistics).rename_axis("metric")
