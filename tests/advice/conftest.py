# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Synthetic cells that the tests of the adviser share."""

import pytest

from monai_iels.data import SOURCES


@pytest.fixture(scope="session")
def cells(tmp_path_factory):
    """Return synthetic cells in their official layout."""
    root = tmp_path_factory.mktemp("cells")
    SOURCES["wbc"].synthesize(root, 12)
    return root
