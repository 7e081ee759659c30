# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Runs of bundles: MONAI workflows that refuse mistakes before they begin, and explain what went wrong in a sentence.

``python -m monai.bundle run --workflow_name monai_iels.Training --bundle_root bundles/wbc`` trains;
``monai_iels.Evaluation`` and ``monai_iels.Inference`` evaluate and predict. The configs are plain MONAI, which
describe; the workflow acts.
"""

from monai_iels.runs._error_sentences import RunError
from monai_iels.runs._evaluation import Evaluation
from monai_iels.runs._inference import Inference
from monai_iels.runs._keys import check_strength, known_keys, training_config
from monai_iels.runs._training import Training
