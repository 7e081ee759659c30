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

"""Pictures of what goes into the layer and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import numpy as np
import torch
from monai.networks.utils import eval_mode, train_mode

from monai_iels._files import atomic
from monai_iels._pictures import fullest_slice, layer_sheet, upright, upright_image
from monai_iels._run_folder import RunFolder
from monai_iels.handlers._phases import Phases, attach
from monai_iels.networks import IELNet


@dataclass(eq=False, repr=False)
class LayerPictures:
    """Draw what goes into the layer and what comes out: before training, after it, and with the best weights.

    A row is a training case: the image, the truth, the label that it is trained with, what the network predicts before
    and after the layer in training, and what it predicts in evaluation. The same of the first validation cases, with
    the last weights, is saved as arrays in ``validation.npz``, for pictures that compare trainings.

    Args:
        output_dir: folder of the run.
        network: the network in training.
        training: the training cases. If labels are noisy, the labels before noise are under ``truth``.
        validation: the cases that the network is validated with.
        postprocessing: what happens to their predictions before validation.
        count: number of cases.
    """

    output_dir: str
    network: torch.nn.Module
    training: Any
    validation: Any
    postprocessing: Callable[[dict[str, Any]], dict[str, Any]]
    count: int = 3

    def __post_init__(self) -> None:
        """Find the folder, and the network with its layer."""
        self.folder = RunFolder(self.output_dir)
        self.iel_net = next(module for module in self.network.modules() if isinstance(module, IELNet))

    def attach(self, engine: Any) -> None:
        """Follow a trainer."""
        attach(engine, Phases.BEGIN, self.draw_start)
        attach(engine, Phases.SUMMARIZE, self.draw_end)

    @idist.one_rank_only()
    def draw_start(self, engine: Any) -> None:
        """Draw the untrained network."""
        if engine.state.epoch == 0:
            self._draw(self.folder.start_picture, "Before training", engine.state.device)

    @idist.one_rank_only()
    def draw_end(self, engine: Any) -> None:
        """Draw the last weights, then the best ones."""
        device = engine.state.device
        self._draw(self.folder.pictures / "last.png", f"After epoch {engine.state.epoch}", device)
        arrays: dict[str, Any] = {}
        for index, row in enumerate(self._rows(self.validation, device)):
            for name, pixels in row.items():
                arrays[f"{index}/{name}"] = pixels
        with atomic(self.folder.panels) as part:
            np.savez_compressed(part, **arrays)
        if not self.folder.best_weights.exists():
            return
        inner = self.iel_net.network
        last = {key: value.clone() for key, value in inner.state_dict().items()}
        inner.load_state_dict(self.folder.load_best_weights())
        try:
            self._draw(self.folder.pictures / "best.png", "Best weights", device)
        finally:
            inner.load_state_dict(last)

    def _draw(self, file: Path, title: str, device: torch.device) -> None:
        rows = self._rows(self.training, device)
        with atomic(file) as part:
            layer_sheet(rows, f"{title}: inputs and outputs of {self.iel_net.layer}", part)

    def _rows(self, dataset: Any, device: torch.device) -> list[dict[str, np.ndarray]]:
        return [self._row(dataset[index], device) for index in range(min(self.count, len(dataset)))]

    def _row(self, case: Mapping[str, Any], device: torch.device) -> dict[str, np.ndarray]:
        image = case["image"].as_tensor()[None].to(device)
        with train_mode(self.iel_net), torch.no_grad():
            before = self.iel_net.network(image)[0]
            after = before if self.iel_net.layer is None else self.iel_net.layer(before[None])[0]
        with eval_mode(self.iel_net):
            evaluated = self.postprocessing({**case, "pred": self.iel_net(image)[0].cpu()})["pred"]
        classes = {
            "truth": case.get("truth", case["label"])[0],
            "training label": case["label"][0],
            "noisy label": case["label_with_noise"][0] if "label_with_noise" in case else None,
            "before the layer": before.argmax(0),
            "after the layer": after.argmax(0),
            "evaluation": evaluated.argmax(0),
        }
        index = fullest_slice(classes["truth"].cpu().numpy())
        row = {"image": upright_image(image[0].cpu().numpy(), index)}
        for name, values in classes.items():
            if values is not None:
                row[name] = upright(values.cpu().numpy(), index)
        return row
