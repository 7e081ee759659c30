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

"""What MONAI's and Ignite's handlers lack."""

from monai_iels.handlers._layer_pictures import LayerPictures
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

__all__ = [
    "EvaluationReport",
    "LayerPictures",
    "MovingAverage",
    "SeedEachEpoch",
    "StopOnNan",
    "Tracking",
    "TrainingCheckpoint",
    "TrainingReport",
    "TrainingStopped",
    "averaged_over_processes",
    "batch_size_per_process",
]
