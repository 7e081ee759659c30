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

"""A run of a bundle."""

from monai_iels._prediction import RunError
from monai_iels.runs._keys import known_keys, training_config
from monai_iels.runs._run import Run, averaged_over_processes, batch_size_per_process, this_run

__all__ = [
    "Run",
    "RunError",
    "averaged_over_processes",
    "batch_size_per_process",
    "known_keys",
    "this_run",
    "training_config",
]
