# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""A door for nnU-Net v2: its trainer, with a layer between the network and the loss; needs the extra ``nnunet``."""

from monai_iels.nnunet._trainers import nnUNetTrainerConvex, nnUNetTrainerIEL

__all__ = ["nnUNetTrainerConvex", "nnUNetTrainerIEL"]
