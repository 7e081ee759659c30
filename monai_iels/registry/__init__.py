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
"""The registry: a trained network as a registered model that loads without pickle and without this package.

A name has two models: NAME is the network, with logits as output; NAME-predict takes images and returns labels.
"""

from monai_iels.registry._registering import register, server_in_use
from monai_iels.registry._versions import Version, export_version, list_versions, promote

__all__ = ["Version", "export_version", "list_versions", "promote", "register", "server_in_use"]
