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

"""Studies: train a bundle in several variants with several seeds, and write one page that compares them.

``monai-iels study run bundles/wbc/studies/noisy_labels.yaml --dataset_dir DIR`` trains what is missing and writes the
page. ``monai-iels study report FOLDER`` only writes the page.
"""

from monai_iels.study._comparison import compare_variants, paired_difference
from monai_iels.study._definition import Study, preset_for_a_gpu, read_study, select_variants
from monai_iels.study._report import write_report
from monai_iels.study._results import Results, RunResult, read_results
from monai_iels.study._running import run_study
from monai_iels.study._terminal_summary import closing_words

__all__ = [
    "Results",
    "RunResult",
    "Study",
    "closing_words",
    "compare_variants",
    "paired_difference",
    "preset_for_a_gpu",
    "read_results",
    "read_study",
    "run_study",
    "select_variants",
    "write_report",
]
