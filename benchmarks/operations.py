# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""How many operations a function runs, and as on which device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

from torch.profiler import ProfilerActivity, profile

from monai_iels.operators import balls
from monai_iels.operators.marching import _march_back_op, _march_op

_VIEWS = (
    "empty new_empty as_strided narrow slice select view unsafe_view detach unbind expand reshape permute resize alias"
)
_VIEWS += (
    " transpose flatten squeeze unsqueeze result_type to split lift_fresh zeros real resolve_conj scalar_tensor set"
)
_NAMES = tuple(f"aten::{name}" for name in [*_VIEWS.split(), "_unsafe", "_reshape"])


def operations(function: Callable[[], object]) -> int:
    """Count the operations that compute something, without views of memory; on a GPU each is a kernel, or a few."""
    function()
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        function()
    return sum(_computes(event) and not any(map(_computes, event.cpu_children)) for event in prof.events())


@contextmanager
def in_torch() -> Iterator[None]:
    """Compute without numba."""
    with _march_op.set_kernel_enabled("cpu", False), _march_back_op.set_kernel_enabled("cpu", False):
        yield


@contextmanager
def as_on_other_devices() -> Iterator[None]:
    """Compute on the CPU what other devices compute: neither compiled, nor along chords."""
    with patch.object(balls, "_is_on_cpu", lambda x: False), in_torch():
        yield


def _computes(event: object) -> bool:
    name = str(getattr(event, "name", ""))
    return name.startswith("aten::") and not name.startswith(_NAMES)
