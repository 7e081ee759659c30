# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Studies: train a bundle in several variants with several seeds, and write one page that compares them.

``monai-iels study run bundles/wbc/studies/noisy_labels.yaml --dataset_dir DIR`` trains what is missing and writes the
page. ``monai-iels study report FOLDER`` only writes the page.
"""

from monai_iels.study._comparison import compare_variants, paired_difference
from monai_iels.study._definition import Study, check_overrides, preset_for_a_gpu, presets, read_study, select_variants
from monai_iels.study._folder import StudyFolder
from monai_iels.study._methods import with_methods
from monai_iels.study._plan import make_plan, write_summary
from monai_iels.study._report import closing_words, write_report
from monai_iels.study._results import Results, RunResult, read_results
from monai_iels.study._running import run_study
from monai_iels.study._table import main_finding, make_tables
