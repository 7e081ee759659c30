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
"""Fine-tuning: a training that starts from the weights of another one."""

from torch import nn

from monai_iels._prediction import check_weights


def load_pretrained(file: str, network: nn.Module) -> str:
    """Load weights into a network, and say so.

    The last layer may have another number of classes in the file. It then keeps its random weights.

    Raises:
        RunError: if the file cannot be read, or if another layer does not fit.
    """
    state = network.state_dict()
    last = next(reversed(state)).rpartition(".")[0]
    weights = check_weights(file, network, "pretrained", [name for name in state if name.rpartition(".")[0] == last])
    fitting = {name: weights[name] for name in state if name in weights and weights[name].shape == state[name].shape}
    network.load_state_dict({**state, **fitting})
    begun = f"The training starts from the weights in {file}"
    if len(fitting) == len(state):
        return f"{begun}."
    return f"{begun}, but for the last layer ({last}), which has another number of classes there and starts anew."
