# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""A LightningModule that knows nothing of monai_iels, and batches for it."""

import torch
import torch.nn.functional as F
from lightning.pytorch import LightningModule
from torch.utils.data import DataLoader


class Segmentation(LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = torch.nn.Conv2d(1, 2, 3, padding=1)
        self.validated = []

    def forward(self, image):
        return self.net(image)

    def training_step(self, batch, index):
        image, label = batch
        return F.cross_entropy(self(image), label)

    def validation_step(self, batch, index):
        self.validated.append(self(batch[0]))

    def predict_step(self, batch, index):
        return self(batch[0])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.5)


def batches(cases=slice(None)):
    """Return two batches of two cases, or of those chosen."""
    images = torch.rand(2, 2, 1, 8, 8, generator=torch.Generator().manual_seed(0))[:, cases]
    return DataLoader([(image, (image[:, 0] > 0.5).long()) for image in images], batch_size=None)
