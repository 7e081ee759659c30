# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""nnU-Net's trainer, with a layer between the outputs of the network and the loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from torch import nn

from monai_iels.evolutions import ConvexCurveMotion, GuidedDiffusion, HeatDiffusion
from monai_iels.layers import InverseEvolutionLayer
from monai_iels.losses import IELLoss
from monai_iels.nnunet._settings import read_settings, regions_of
from monai_iels.warmup import Warmup


class nnUNetTrainerIEL(nnUNetTrainer):
    """nnU-Net's trainer with a layer of guided or heat diffusion, against label noise; its strength is ``gain``.

    A layer is behind each output of the network. The spacing is that of the plans, at each scale of deep supervision.
    One unit of length of a layer is the smallest spacing, as pixels are elsewhere. The layer is part of the loss, which
    is in train mode for training steps only. Guided diffusion gets the image that the network sees.
    """

    num_epochs: int
    num_iterations_per_epoch: int

    def __init__(
        self,
        plans: dict[str, Any],
        configuration: str,
        fold: int,
        dataset_json: dict[str, Any],
        device: torch.device = torch.device("cuda"),  # noqa: B008 (nnU-Net's signature)
    ) -> None:
        super().__init__(plans, configuration, fold, dataset_json, device)
        if self.label_manager.has_regions and self.label_manager.has_ignore_label:
            raise ValueError(
                f"{self.plans_manager.dataset_name} has regions and an ignore label, and the layer cannot have both: "
                "remove one of them from labels in dataset.json, or train with nnUNetTrainer"
            )
        self.unit = min(self.configuration_manager.spacing)
        defaults = {
            "evolution": "guided",
            "gain": 15,
            "reach": 6 * self.unit,
            "radii": [radius * self.unit for radius in (5, 10, 15)],
            "regions": None,
            "epochs": self.num_epochs,
            "iterations": self.num_iterations_per_epoch,
            "threads": None,
        }
        self.settings = read_settings(self.preprocessed_dataset_folder_base, defaults)
        self.num_epochs = self.settings["epochs"]
        self.num_iterations_per_epoch = self.settings["iterations"]
        self.num_val_iterations_per_epoch = max(1, self.num_iterations_per_epoch // 5)  # nnU-Net's proportion
        if self.settings["threads"] is not None:  # on a CPU nnU-Net has set all cores, whatever OMP_NUM_THREADS is
            torch.set_num_threads(self.settings["threads"])

    def _layer(self, spacing: tuple[float, ...]) -> InverseEvolutionLayer:
        equation = {"guided": GuidedDiffusion, "heat": HeatDiffusion}[self.settings["evolution"]]
        return InverseEvolutionLayer(equation(spacing), gain=self.settings["gain"] or 1)

    def _build_loss(self) -> nn.Module:
        finest = np.divide(self.configuration_manager.spacing, self.unit)
        scales = self._get_deep_supervision_scales() or [1.0]
        layers = [self._layer(tuple((finest / scale).tolist())) for scale in scales]
        self.warmup = Warmup(nn.ModuleList(layers), self.settings["warmup"])
        self.print_to_log_file(
            f"The layer behind the finest of {len(layers)} outputs is {layers[0]}. "
            f"It is off before epoch {self.warmup.epochs // 2}, and works fully from epoch {self.warmup.epochs}."
        )
        behind = layers if self.enable_deep_supervision else layers[0]
        return IELLoss(super()._build_loss(), behind, ignore_index=self.label_manager.ignore_label)

    def on_train_epoch_start(self) -> None:
        """Switch the layer on, with the strength of the epoch."""
        super().on_train_epoch_start()
        self.loss.train()
        self.warmup(self.current_epoch)

    def train_step(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Take nnU-Net's step; its loss gets what the network does, but no segmentation of a cascade's first stage."""
        data = batch["data"].to(self.device, non_blocking=True)
        image = {"image": data[:, : len(self.configuration_manager.normalization_schemes)]}
        with self.loss.register_forward_pre_hook(lambda _, args, others: (args, others | image), with_kwargs=True):
            return super().train_step({**batch, "data": data})

    def on_validation_epoch_start(self) -> None:
        """Switch the layer off."""
        super().on_validation_epoch_start()
        self.loss.eval()

    def save_checkpoint(self, filename: str) -> None:
        """Save what nnU-Net's own trainer would, so that prediction needs nothing but nnU-Net."""
        plain = nnUNetTrainer.__new__(nnUNetTrainer)
        plain.__dict__ = self.__dict__
        plain.save_checkpoint(filename)


class nnUNetTrainerConvex(nnUNetTrainerIEL):
    """nnU-Net's trainer with a layer of curve motion, against concave outlines; its strength is ``reach``, in mm."""

    def _layer(self, spacing: tuple[float, ...]) -> InverseEvolutionLayer:
        has_regions = self.label_manager.has_regions
        evolution = ConvexCurveMotion(
            radii=[radius / self.unit for radius in self.settings["radii"]],
            regions=regions_of(self.settings["regions"], self.dataset_json["labels"], has_regions),
            activation="sigmoid" if has_regions else "softmax",
            spacing=spacing,
        )
        return InverseEvolutionLayer(evolution, reach=(self.settings["reach"] or 0) / self.unit)
