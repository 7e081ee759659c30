# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""A door for nnU-Net v2: its trainer, with a layer between the network and the loss; needs the extra ``nnunet``.

Settings can be read where nnU-Net is not installed.
"""

from typing import TYPE_CHECKING, Any

from monai_iels.nnunet._settings import read_settings, regions_of

if TYPE_CHECKING:
    from monai_iels.nnunet._trainers import nnUNetTrainerConvex, nnUNetTrainerIEL

__all__ = ["nnUNetTrainerConvex", "nnUNetTrainerIEL"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from monai_iels.nnunet import _trainers

    return getattr(_trainers, name)
