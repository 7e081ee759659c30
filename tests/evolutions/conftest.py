# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The three ways in which curve motion is computed."""

import pytest

from monai_iels.operators import balls
from monai_iels.operators.marching import _march_back_op, _march_op


@pytest.fixture(params=["compiled", "torch on a CPU", "torch on other devices"])
def way(request, monkeypatch):
    """Run a test in each of the ways."""
    pytest.importorskip("numba") if request.param == "compiled" else None
    if request.param == "torch on other devices":
        monkeypatch.setattr(balls, "_is_on_cpu", lambda x: False)
    is_compiled = request.param == "compiled"
    with _march_op.set_kernel_enabled("cpu", is_compiled), _march_back_op.set_kernel_enabled("cpu", is_compiled):
        yield request.param
