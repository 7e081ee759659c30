# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""What nnU-Net finds: it imports the files of the folder that the variable ``nnUNet_extTrainer`` names."""

from monai_iels.nnunet import nnUNetTrainerConvex, nnUNetTrainerIEL

__all__ = ["nnUNetTrainerConvex", "nnUNetTrainerIEL"]
