# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Pictures of what goes into the layer and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import torch
from monai.networks.utils import eval_mode

from monai_iels._files import drawing
from monai_iels.handlers._phases import Phases, attach
from monai_iels.layers import InverseEvolutionLayer
from monai_iels.pictures import Colors, Sheet, Tile, classes_of, tiles
from monai_iels.run_folder import RunFolder

_LARGEST_TILE = 640  # pixels along an axis


@dataclass(eq=False, repr=False)
class LayerPictures:
    """Draw what goes into the layer and what comes out: before training, after it, and with the best weights.

    A row is a training case: the image, the truth, the label that it is trained with, what the network predicts, and
    what the layer makes of it for the loss. The predictions of the first validation cases, with the last weights, are
    saved as arrays in ``validation.npz``, for pictures that compare trainings. If a picture cannot be drawn, a warning
    says so, and the training goes on.

    Args:
        output_dir: folder of the run.
        network: the network in training.
        layer: the layer between it and the loss.
        evolved: returns what the loss sees of logits, from these, the label and the image.
        inferer: applies the network to an image.
        training: the training cases. If labels are noisy, the labels before noise are under ``truth``.
        validation: the cases that the network is validated with.
        postprocessing: what happens to their predictions before validation.
        classes: names of the classes, background first.
        colors: red, green and blue of each class; by default the first has none, as it is background.
        count: number of cases.
    """

    output_dir: str
    network: torch.nn.Module
    layer: InverseEvolutionLayer
    evolved: Callable[..., Any]
    inferer: Callable[..., torch.Tensor]
    training: Any
    validation: Any
    postprocessing: Callable[[dict[str, Any]], dict[str, Any]]
    classes: Sequence[str]
    colors: Colors = None
    count: int = 3

    def __post_init__(self) -> None:
        """Find the folder."""
        self.folder = RunFolder(self.output_dir)

    def attach(self, engine: Any) -> None:
        """Follow a trainer."""
        attach(engine, Phases.BEGIN, self.draw_start)
        attach(engine, Phases.DRAW, self.draw_end)

    @idist.one_rank_only()
    def draw_start(self, engine: Any) -> None:
        """Draw the untrained network."""
        if engine.state.epoch == 0:
            self._draw(self.folder.start_picture, "Before training", engine.state.device)

    @idist.one_rank_only()
    def draw_end(self, engine: Any) -> None:
        """Draw the last weights, then the best ones."""
        device = engine.state.device
        self._draw(self.folder.last_picture, f"After epoch {engine.state.epoch}", device)
        with drawing(self.folder.panels) as part:
            self._sheet(self.validation, device).save(part)
        if not self.folder.best_weights.exists():
            return
        last = {key: value.clone() for key, value in self.network.state_dict().items()}
        self.network.load_state_dict(self.folder.load_best_weights())
        try:
            self._draw(self.folder.best_picture, "With the best weights", device)
        finally:
            self.network.load_state_dict(last)

    def _draw(self, file: Path, when: str, device: torch.device) -> None:
        with drawing(file) as part:
            sheet, spatial_dims = self._sheet(self.training, device), self.training[0]["image"].ndim - 1
            cases = "training cases" if spatial_dims == 2 else "one slice of each training case"
            sheet.draw(f"{when}: {cases}", part)

    def _sheet(self, dataset: Any, device: torch.device) -> Sheet:
        cases = [dataset[index] for index in range(min(self.count, len(dataset)))]
        return Sheet([self._row(case, device) for case in cases], self.classes, self.colors)

    def _row(self, case: Mapping[str, Any], device: torch.device) -> dict[str, Tile]:
        image, label = (case[key].as_tensor()[None].to(device) for key in ("image", "label"))
        with eval_mode(self.network):
            logits = self.inferer(image, self.network)
            trained = self.evolved(logits, label, image)[0]
        evaluated = self.postprocessing({**case, "pred": logits[0].cpu()})["pred"]
        labels = {"noisy label": "label_with_noise"} if "label_with_noise" in case else {"training label": "label"}
        classes = {"truth": case.get("truth", case["label"])[0]}
        classes |= {title: case[key][0] for title, key in labels.items()}
        classes["prediction"] = classes_of(evaluated, has_background=self.colors is None)
        if self.layer.steps:
            classes["after the layer (for the loss)"] = trained.argmax(0)
        arrays = {name: values.cpu().numpy() for name, values in classes.items()}
        return tiles(image[0].cpu().numpy(), arrays, largest=_LARGEST_TILE)
