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

"""What labels alone tell about their errors, and what to try."""

from monai_iels.advice._advice import Advice, advise
from monai_iels.advice._diagnosis import Diagnosis
from monai_iels.advice._reading import LabelFiles, find_labels, labels_in_folder, labels_of_bundle, labels_of_source
from monai_iels.advice._settings import Setting
from monai_iels.advice._signs import Signs

__all__ = [
    "Advice",
    "Diagnosis",
    "LabelFiles",
    "Setting",
    "Signs",
    "advise",
    "find_labels",
    "labels_in_folder",
    "labels_of_bundle",
    "labels_of_source",
]
