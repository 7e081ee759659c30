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

"""Runs of bundles: MONAI workflows that refuse mistakes before they begin, and explain what went wrong in a sentence.

``python -m monai.bundle run --workflow_name monai_iels.Training --bundle_root bundles/wbc`` trains;
``monai_iels.Evaluation`` and ``monai_iels.Inference`` evaluate and predict. The configs are plain MONAI, which
describe; the workflow acts.
"""

from monai_iels.runs._error_sentences import RunError
from monai_iels.runs._evaluation import Evaluation
from monai_iels.runs._inference import Inference
from monai_iels.runs._keys import known_keys, training_config
from monai_iels.runs._training import Training

__all__ = ["Evaluation", "Inference", "RunError", "Training", "known_keys", "training_config"]
