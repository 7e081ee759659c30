# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""What labels alone tell about their errors, and what to try."""

from monai_iels.advice._advice import Advice, advise
from monai_iels.advice._diagnosis import MEANINGS, Diagnosis, diagnose
from monai_iels.advice._reading import LabelFiles, find_labels, labels_in_folder, labels_of_bundle, labels_of_source
from monai_iels.advice._settings import Setting, settings_for
from monai_iels.advice._signs import Signs, measure
