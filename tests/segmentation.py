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
