# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""The registry: a trained network as a registered model that loads without pickle and without this package.

A name has two models: NAME is the network, with logits as output; NAME-predict takes images and returns labels.
"""

from monai_iels.registry._registering import register, server_in_use
from monai_iels.registry._versions import beats_champion, export_version, promote
