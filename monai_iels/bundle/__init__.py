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

"""The bundles: composing their configs, starting a run, its folder, and what is recorded of it.

``python -m monai_iels.bundle compose bundles/`` writes each bundle's ``configs`` from ``bundles/shared`` and its
``dataset.yaml``; ``python -m monai_iels.bundle check bundles/`` tells whether they are up to date.
"""

from monai_iels.bundle.composing import compose
from monai_iels.bundle.output import end_run, prepare_output
from monai_iels.bundle.record import describe, settings, tags
from monai_iels.bundle.starting import (
    check_settings,
    checked_weights,
    local_rank,
    share_of_batch,
    start_run,
    try_first_case,
)

__all__ = [
    "check_settings",
    "checked_weights",
    "compose",
    "describe",
    "end_run",
    "local_rank",
    "prepare_output",
    "settings",
    "share_of_batch",
    "start_run",
    "tags",
    "try_first_case",
]
