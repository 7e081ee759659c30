# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Pictures of what goes into the layer and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
    """Draw what goes into the layer and what comes out, with the last weights.

    A row is a training case: the image, the truth, the label that it is trained with, what the network predicts, and
    what the layer makes of it for the loss. The predictions of the first validation cases are saved as arrays in
    ``validation.npz``, for pictures that compare trainings. If a picture cannot be drawn, a warning says so, and the
    training goes on.

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

    def attach(self, engine: Any) -> None:
        """Draw when a trainer has finished."""
        attach(engine, Phases.DRAW, self.draw)

    @idist.one_rank_only()
    def draw(self, engine: Any) -> None:
        """Draw training cases, and save validation cases as arrays, both with the last weights."""
        folder, device = RunFolder(self.output_dir), engine.state.device
        with drawing(folder.last_picture) as part:
            cases = "training cases" if self.training[0]["image"].ndim == 3 else "one slice of each training case"
            self._sheet(self.training, device).draw(f"After epoch {engine.state.epoch}: {cases}", part)
        with drawing(folder.panels) as part:
            self._sheet(self.validation, device).save(part)

    def _sheet(self, dataset: Any, device: torch.device) -> Sheet:
        cases = [dataset[index] for index in range(min(self.count, len(dataset)))]
        return Sheet([self._row(case, device) for case in cases], self.classes, self.colors)

    def _row(self, case: Mapping[str, Any], device: torch.device) -> dict[str, Tile]:
        image, label = (case[key].as_tensor()[None].to(device) for key in ("image", "label"))
        with eval_mode(self.network):
            logits = self.inferer(image, self.network)
            trained = self.evolved(logits, label, image)[0]
        evaluated = self.postprocessing({**case, "pred": logits[0].cpu()})["pred"]
        title, key = ("noisy label", "label_with_noise") if "label_with_noise" in case else ("training label", "label")
        classes = {"truth": case.get("truth", case["label"])[0], title: case[key][0]}
        classes["prediction"] = classes_of(evaluated, has_background=self.colors is None)
        if self.layer.steps:
            classes["after the layer (for the loss)"] = trained.argmax(0)
        arrays = {name: values.cpu().numpy() for name, values in classes.items()}
        return tiles(image[0].cpu().numpy(), arrays, largest=_LARGEST_TILE)
