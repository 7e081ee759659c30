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

"""What a person reads: one line an epoch and a summary after training, tables and pictures after evaluation."""

from __future__ import annotations

import csv
import logging
import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ignite.engine import Events
from monai.utils import string_list_all_gather
from tqdm import tqdm

from monai_iels.handlers.tracking import track_files
from monai_iels.handlers.training import complete_file, is_first_rank, mean_loss
from monai_iels.networks import IELNet
from monai_iels.pictures import Panel, contact_sheet, curves, layer_sheet, most_of, panel, upright, upright_image

__all__ = ["EvaluationReport", "LayerPictures", "TrainingReport", "duration", "read_csv", "write_csv"]

logger = logging.getLogger(__name__)

_SHOWN = {"val_mean_dice": "Dice", "val_mean_iou": "IoU", "val_roughness": "roughness", "val_convexity": "convexity"}


class TrainingReport:
    """Show a progress bar with the loss, one line an epoch, and at the end a summary with the next step.

    The bar appears on a terminal only. The numbers are kept in ``history.csv``, those of each case in ``cases.csv``;
    ``curves.png`` shows them at the end.

    Args:
        output_dir: folder for the files.
        evaluator: the engine that judges the network.
    """

    def __init__(self, output_dir: str, evaluator: Any) -> None:
        self.folder = Path(os.path.abspath(output_dir))
        self.evaluator = evaluator
        self.history: list[dict[str, Any]] = []
        self.cases: list[dict[str, Any]] = []
        self.names: list[str] = []

    def attach(self, engine: Any) -> None:
        """Follow a trainer, and the names of the cases that its evaluator judges."""
        self.evaluator.add_event_handler(Events.STARTED, lambda: self.names.clear())
        self.evaluator.add_event_handler(Events.ITERATION_COMPLETED, self.name_cases)
        engine.add_event_handler(Events.EPOCH_STARTED, self.start_epoch)
        engine.add_event_handler(Events.ITERATION_COMPLETED, self.count)
        engine.add_event_handler(Events.EPOCH_COMPLETED, self.end_epoch)
        if is_first_rank():
            engine.add_event_handler(Events.COMPLETED, self.summarize)

    def start_epoch(self, engine: Any) -> None:
        """Begin an epoch; before the first one, take over what was recorded before an interruption."""
        epoch, state = engine.state.epoch, engine.state
        if not self.history and epoch > 1:
            self.history = [row for row in self._read("history.csv") if row["epoch"] < epoch]
            self.cases = [row for row in self._read("cases.csv") if row["epoch"] < epoch]
        self.began = time.monotonic()
        self.learning_rate = engine.optimizer.param_groups[0]["lr"]
        self.losses: list[torch.Tensor] = []
        self.bar = tqdm(
            total=state.epoch_length,
            desc=f"epoch {epoch}/{state.max_epochs}",
            leave=False,
            disable=None if is_first_rank() else True,
            unit="batch",
        )

    def count(self, engine: Any) -> None:
        """Keep the loss of an iteration."""
        self.losses.append(engine.state.output["loss"].detach())
        if not self.bar.disable:
            self.bar.set_postfix(loss=f"{float(self.losses[-1]):.4f}", refresh=False)
        self.bar.update()

    def name_cases(self, evaluator: Any) -> None:
        """Keep the names of the cases of a validation's iteration."""
        self.names += [_name(item) for item in evaluator.state.batch]

    def end_epoch(self, engine: Any) -> None:
        """Say how the epoch went, in one line, and leave its numbers in ``engine.state.epoch_report``."""
        self.bar.close()
        loss = mean_loss(self.losses)
        epoch, last = engine.state.epoch, engine.state.max_epochs
        names = string_list_all_gather(self.names) if self.evaluator.state.epoch == epoch else []
        if not is_first_rank():
            return
        row = {"epoch": float(epoch), "loss": loss}
        row["learning_rate"] = self.learning_rate
        judged = self.evaluator.state
        if judged.epoch == epoch:
            row.update({name: float(value) for name, value in judged.metrics.items()})
            table = _per_case(judged.metric_details)
            self.cases += [
                {"epoch": float(epoch), "case": name, **{key: float(values[index]) for key, values in table.items()}}
                for index, name in enumerate(names)
            ]
            self._write("cases.csv", self.cases)
        row["seconds"] = time.monotonic() - self.began
        engine.state.epoch_report = row
        self.history.append(row)
        self._write("history.csv", self.history)
        recent = [r["seconds"] for r in self.history[-5:]]
        left = (last - epoch) * sum(recent) / len(recent)
        best = "  best so far" if judged.epoch == epoch == judged.best_metric_epoch else ""
        metrics = "".join(f"  {_shown(name, row)}" for name in _SHOWN if name in row)
        time_left = f", {duration(left)} left" if epoch < last else ""
        logger.info(
            f"epoch {epoch:>{len(str(last))}}/{last}  loss {row['loss']:.4f}{metrics}  "
            f"{duration(row['seconds'])}{time_left}{best}"
        )

    def summarize(self, engine: Any) -> None:
        """Say what came out, where it is, and what to do next."""
        if stopped := getattr(engine.state, "stopped", None):
            logger.error(f"The training ended early. {stopped}")
        self.history = self.history or self._read("history.csv")
        judged = [row for row in self.history if "val_mean_dice" in row]
        if not judged:
            return
        curves(self.history, self.folder / "curves.png")
        best = max(judged, key=lambda row: row["val_mean_dice"])
        last = judged[-1]
        lines = [f"{'':<12}{'best':>10}{'last':>10}{'truth':>10}"]
        for name, title in _SHOWN.items():
            truth = best.get(f"{name}_of_truth")
            cells = (best[name], last[name], truth)
            lines.append(f"{title:<12}" + "".join(f"{'' if v is None else f'{v:.4f}':>10}" for v in cells))
        evaluate, predict = (shlex.quote(str(self.folder / f"{name}.json")) for name in ("evaluate", "inference"))
        lines += [
            "",
            f"Best weights (epoch {best['epoch']:.0f}): {self.folder / 'model.pt'}",
            f"Curves: {self.folder / 'curves.png'}, from {self.folder / 'history.csv'}",
            f"Next, judge it case by case: python -m monai.bundle run --args_file {evaluate}",
            f"Or predict: python -m monai.bundle run --args_file {predict} --dataset_dir YOUR_IMAGES",
        ]
        logger.info("\n".join(["", *lines]))

    def _read(self, name: str) -> list[dict[str, Any]]:
        file = self.folder / name
        return read_csv(file) if file.exists() else []

    def _write(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with complete_file(self.folder / name) as part:
            write_csv(part, rows)


def read_csv(file: Path) -> list[dict[str, Any]]:
    """Read a table whose columns are numbers, but for that of the cases' names; empty cells are left out."""
    with file.open(newline="", encoding="utf-8") as stream:
        return [
            {key: value if key == "case" else float(value) for key, value in row.items() if value}
            for row in csv.DictReader(stream)
        ]


def _name(item: Mapping[str, Any]) -> str:
    return Path(str(item["image"].meta["filename_or_obj"])).name


def _per_case(details: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the metrics of each case, a mean over the classes that it has."""
    tables = {name: torch.as_tensor(values).detach().cpu().double() for name, values in details.items()}
    return {name: values.reshape(len(values), -1).nanmean(dim=1).numpy() for name, values in tables.items()}


def _shown(name: str, row: Mapping[str, float]) -> str:
    truth = f" (truth {row[f'{name}_of_truth']:.3f})" if f"{name}_of_truth" in row else ""
    return f"{_SHOWN[name]} {row[name]:.3f}{truth}"


def duration(seconds: float) -> str:
    """Return a time as people say it."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"


class LayerPictures:
    """Draw what goes into the layer and what comes out, at the start, at the end, and with the best weights.

    A row is a training case: the image, the truth, the label that it is trained with, what the network predicts before
    and after the layer in training, and what it predicts in evaluation. The same of the first validation cases, with
    the last weights, is kept as arrays in ``validation.npz``, for pictures that compare trainings.

    Args:
        output_dir: folder of ``model.pt``; the pictures are in its folder ``pictures``.
        network: the network in training.
        training: the training cases, whose labels before noise are under ``truth`` where there is any.
        validation: the cases that the network is judged with.
        postprocessing: what happens to their predictions before they are judged.
        count: number of cases.
    """

    def __init__(
        self,
        output_dir: str,
        network: torch.nn.Module,
        training: Any,
        validation: Any,
        postprocessing: Callable[[dict[str, Any]], dict[str, Any]],
        count: int = 3,
    ) -> None:
        self.folder = Path(output_dir)
        self.network = next(module for module in network.modules() if isinstance(module, IELNet))
        self.training = training
        self.validation = validation
        self.postprocessing = postprocessing
        self.count = count

    def attach(self, engine: Any) -> None:
        """Follow a trainer."""
        if is_first_rank():
            engine.add_event_handler(Events.STARTED, self.at_start)
            engine.add_event_handler(Events.COMPLETED, self.at_end)

    def at_start(self, engine: Any) -> None:
        """Draw the untrained network."""
        if engine.state.epoch == 0:
            self.draw("start", "Before training", engine.state.device)

    def at_end(self, engine: Any) -> None:
        """Draw the last weights, then the best ones."""
        self.draw("last", f"After epoch {engine.state.epoch}", engine.state.device)
        rows = self._rows(self.validation, engine.state.device)
        arrays: dict[str, Any] = {
            f"{index}/{name}": pixels for index, row in enumerate(rows) for name, pixels in row.items()
        }
        np.savez_compressed(self.folder / "pictures" / "validation.npz", **arrays)
        if not (self.folder / "model.pt").exists():
            return
        inner = self.network.network
        last = {key: value.clone() for key, value in inner.state_dict().items()}
        inner.load_state_dict(torch.load(self.folder / "model.pt", map_location="cpu", weights_only=True))
        self.draw("best", "Best weights", engine.state.device)
        inner.load_state_dict(last)

    def draw(self, name: str, title: str, device: torch.device) -> None:
        """Write one sheet."""
        rows = self._rows(self.training, device)
        (self.folder / "pictures").mkdir(parents=True, exist_ok=True)
        layer = self.network.layer
        layer_sheet(rows, f"{title}: inputs and outputs of {layer}", self.folder / "pictures" / f"{name}.png")

    def _rows(self, dataset: Any, device: torch.device) -> list[dict[str, np.ndarray]]:
        return [self._row(dataset[index], device) for index in range(min(self.count, len(dataset)))]

    @torch.no_grad()
    def _row(self, case: Mapping[str, Any], device: torch.device) -> dict[str, np.ndarray]:
        image = case["image"].as_tensor()[None].to(device)
        was_training = self.network.training
        self.network.train()
        before = self.network.network(image)
        after = before if self.network.layer is None else self.network.layer(before)
        self.network.eval()
        judged = self.postprocessing({**case, "pred": self.network(image)[0].cpu()})["pred"][None]
        self.network.train(was_training)
        label = case["label"].as_tensor()[0].cpu().numpy()
        truth = case["truth"].as_tensor()[0].cpu().numpy() if "truth" in case else label
        index = most_of(truth)
        classes = {"truth": truth, "training label": label}
        if "label_with_noise" in case:
            classes["noisy label"] = case["label_with_noise"].as_tensor()[0].cpu().numpy()
        guesses = {"before the layer": before, "after the layer": after, "evaluation": judged}
        classes.update({name: logits.argmax(1)[0].cpu().numpy() for name, logits in guesses.items()})
        row = {"image": upright_image(image[0].cpu().numpy(), index)}
        return {**row, **{name: upright(values, index) for name, values in classes.items()}}


class EvaluationReport:
    """Write a table of all cases, its summary, and a contact sheet of the worst, median and best.

    Args:
        output_dir: folder for ``cases.csv``, ``summary.csv`` and ``contact_sheet.png``.
        classes: names of the classes, background first.
        regions: groups of classes that the convexity is of, one number each; each class by itself if None.
        section: name of the section that is judged.
        training_dir: folder of the training, whose tracked run gets the files, too.
    """

    def __init__(
        self,
        output_dir: str,
        classes: Sequence[str],
        regions: Sequence[Sequence[int]] | None = None,
        section: str = "validation",
        training_dir: str | None = None,
    ) -> None:
        self.folder = Path(output_dir)
        self.training_dir = training_dir
        self.section = section
        self.classes = tuple(classes)
        groups = regions if regions is not None else [[index] for index in range(1, len(self.classes))]
        self.regions = ["+".join(self.classes[index] for index in group) for group in groups]

    def attach(self, engine: Any) -> None:
        """Follow an evaluator."""
        if torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
            raise ValueError("Expected one process for an evaluation, found several. Run it without torchrun.")
        self.cases: list[tuple[str, Any]] = []
        engine.add_event_handler(Events.ITERATION_COMPLETED, self.collect)
        engine.add_event_handler(Events.COMPLETED, self.write)

    def collect(self, engine: Any) -> None:
        """Keep a small picture of each case."""
        for item, output in zip(engine.state.batch, engine.state.output, strict=True):
            name = _name(item)
            self.diagonal = float(np.linalg.norm(output["label"].shape[1:]))
            image, truth, guess = (output[key].detach().cpu().numpy() for key in ("image", "label", "pred"))
            self.cases.append((name, panel(name, 0.0, image, truth.argmax(0), guess.argmax(0))))

    def write(self, engine: Any) -> None:
        """Write the tables and the sheet."""
        self.folder.mkdir(parents=True, exist_ok=True)
        table = {
            name.removeprefix("val_"): np.asarray(torch.as_tensor(details).detach().cpu(), dtype=np.float64)
            for name, details in engine.state.metric_details.items()
        }
        rows = [self._row(index, name, table) for index, (name, _) in enumerate(self.cases)]
        write_csv(self.folder / "cases.csv", rows)
        numbers = {key: np.array([row[key] for row in rows], dtype=np.float64) for key in rows[0] if key != "case"}
        summary = [_statistics(key, values) for key, values in numbers.items()]
        write_csv(self.folder / "summary.csv", summary)
        panels = [
            Panel(case.name, row["mean_dice"], case.image, case.truth, case.prediction)
            for row, (_, case) in zip(rows, self.cases, strict=True)
        ]
        contact_sheet(
            [p for p in panels if p.score == p.score] or panels, self.classes, self.folder / "contact_sheet.png"
        )
        if self.training_dir is not None:
            names = ("cases.csv", "summary.csv", "contact_sheet.png")
            track_files(self.training_dir, [self.folder / name for name in names], "evaluation")
        width = max(len(row["metric"]) for row in summary)
        lines = [f"{'':<{width}}{'mean':>10}{'median':>10}{'worst 5 %':>10}"]
        for row in summary:
            cells = (row[column] for column in ("mean", "median", "worst_5_percent"))
            lines.append(f"{row['metric']:<{width}}" + "".join(f"{cell:>10.4f}" for cell in cells))
        lines += [
            "",
            f"{len(rows)} cases of the {self.section} section: {self.folder / 'cases.csv'}",
            f"Worst, median and best: {self.folder / 'contact_sheet.png'}",
        ]
        logger.info("\n".join(lines))

    def _row(self, index: int, name: str, table: Mapping[str, np.ndarray]) -> dict[str, Any]:
        row: dict[str, Any] = {"case": name}
        for metric, values in table.items():
            parts = np.atleast_1d(values[index])
            if metric.startswith("hausdorff"):  # a class that is missed altogether is as far away as can be
                parts = np.where(np.isfinite(parts), parts, self.diagonal)
            finite = parts[np.isfinite(parts)]
            row[metric] = float(finite.mean()) if finite.size else float("nan")
            names = self.regions if metric.startswith("convexity") else self.classes[1:]
            if parts.size == len(names) > 1:
                row.update({f"{metric}_{name}": float(value) for name, value in zip(names, parts, strict=True)})
        return row


def _statistics(metric: str, values: np.ndarray) -> dict[str, Any]:
    finite = values[np.isfinite(values)]
    if not finite.size:
        finite = np.array([np.nan])
    tail = 95 if metric.startswith(("hausdorff", "roughness")) else 5
    return {
        "metric": metric,
        "mean": float(finite.mean()),
        "standard_deviation": float(finite.std()),
        "median": float(np.median(finite)),
        "worst_5_percent": float(np.percentile(finite, tail)),
        "cases": int(np.isfinite(values).sum()),
    }


def write_csv(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a table with every column that a row has; a text that a spreadsheet would run gets an apostrophe."""
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(dict.fromkeys(name for row in rows for name in row)))
        writer.writeheader()
        writer.writerows({name: _as_text(value) for name, value in row.items()} for row in rows)


def _as_text(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else value
