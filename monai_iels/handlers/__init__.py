# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""What MONAI's and Ignite's handlers lack."""

from monai_iels.handlers._layer_pictures import LayerPictures
from monai_iels.handlers._phases import Phases, attach
from monai_iels.handlers._reports import EvaluationReport, TrainingReport
from monai_iels.handlers._tracking import Tracking
from monai_iels.handlers._training import (
    MovingAverage,
    SeedEachEpoch,
    StopOnNan,
    TrainingCheckpoint,
    TrainingStopped,
    averaged_over_processes,
    batch_size_per_process,
)
