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

"""The bundles: ``monai-iels bundle compose bundles`` writes the configs of each.

They are made from ``bundles/shared`` and what the bundle's ``dataset.yaml`` changes.
"""

from monai_iels.bundles._composing import compose
from monai_iels.bundles._data import check_data, composed_config, list_data

__all__ = ["check_data", "compose", "composed_config", "list_data"]
