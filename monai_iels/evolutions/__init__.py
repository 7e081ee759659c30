# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Evolution equations ``u_t = F(u)``, written forward in time; one equation, one file."""

from monai_iels.evolutions.base import Evolution
from monai_iels.evolutions.curve_motion import ConvexCurveMotion
from monai_iels.evolutions.guided import GuidedDiffusion
from monai_iels.evolutions.heat import HeatDiffusion

__all__ = ["ConvexCurveMotion", "Evolution", "GuidedDiffusion", "HeatDiffusion"]
