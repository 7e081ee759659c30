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

"""The bundles: their configs are composed here, and a run of one is an object.

``monai-iels bundle compose bundles`` writes each bundle's ``configs`` from ``bundles/shared`` and its
``dataset.yaml``. The configs call the methods of :func:`this_run` from MONAI's ``initialize`` and ``run``.
"""

from monai_iels._prediction import RunError
from monai_iels.bundle._composing import compose
from monai_iels.bundle._run import Run, averaged_over_processes, batch_size_per_process, this_run

__all__ = [
    "Run",
    "RunError",
    "averaged_over_processes",
    "batch_size_per_process",
    "compose",
    "this_run",
]
