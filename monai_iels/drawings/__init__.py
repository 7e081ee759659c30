# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Drawings that stand in for the six data sets: same look, same difficulty, no image file shipped.

Every drawing is deterministic: the same state of its random generator gives the same picture. They need NumPy, SciPy
and Pillow alone.
"""

from monai_iels.drawings._cityscapes import draw_cityscapes
from monai_iels.drawings._drive import draw_drive
from monai_iels.drawings._dsb2018 import draw_dsb2018
from monai_iels.drawings._hippocampus import draw_hippocampus
from monai_iels.drawings._refuge import draw_refuge
from monai_iels.drawings._wbc import draw_wbc
