# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The weights of a network: a file that fits, and fine-tuning, which starts from another training's."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from monai_iels._terminal import first_line


def check_weights(
    file: str, network: nn.Module, option: str = "checkpoint", free: Sequence[str] = ()
) -> Mapping[str, Any]:
    """Return the weights of a network; refuse a file that is not there, cannot be read, or is of another network.

    Args:
        file: the file.
        network: the network.
        option: the key that names the file.
        free: names of weights that need not fit.

    Raises:
        ValueError: in one sentence.
    """
    if not os.path.isfile(file):
        raise ValueError(f"{file}: there are no weights of a network; train first, or set --{option}")
    try:
        weights = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = first_line(error)
        raise ValueError(f"{file}: cannot be read as weights ({reason}); set --{option} to a sound file") from None
    wanted = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    content = weights if isinstance(weights, Mapping) else {}
    found = {name: tuple(getattr(value, "shape", ())) for name, value in content.items()}
    if {"network", "optimizer", "epoch"} <= found.keys():
        raise ValueError(f"{file}: this is the state of a training; set --{option} to the model.pt beside it")
    if different := {str(name) for name, _ in wanted.items() ^ found.items()}.difference(free):
        name = min(different)
        raise ValueError(
            f"{file}: these are weights of another network ('{name}' is {found.get(name, 'missing')} in the file and "
            f"{wanted.get(name, 'missing')} in the network); set --features as in the training that wrote the file; "
            "its inference.json has them"
        )
    return content


def load_pretrained(file: str, network: nn.Module) -> str:
    """Load weights into a network, and say so.

    The last layer may have another number of classes in the file. It then keeps its random weights.

    Raises:
        ValueError: if the file cannot be read, or if another layer does not fit.
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
