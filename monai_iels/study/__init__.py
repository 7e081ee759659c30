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

"""Studies: a bundle trained in several variants with several seeds, side by side, and one page on how they compare.

``python -m monai_iels.study run bundles/wbc/studies/noisy_labels.yaml --dataset_dir DIR`` trains what is missing and
writes the page; ``python -m monai_iels.study report FOLDER`` only writes it.
"""

from monai_iels.study.comparison import difference, table
from monai_iels.study.definition import Study, check_overrides, choose, presets, read_study
from monai_iels.study.report import write_report
from monai_iels.study.results import collect
from monai_iels.study.running import run_study

__all__ = [
    "Study",
    "check_overrides",
    "choose",
    "collect",
    "difference",
    "presets",
    "read_study",
    "run_study",
    "table",
    "write_report",
]
