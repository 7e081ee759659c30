# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""A short training with noisy labels, and an engine whose losses are given."""

import pytest
import torch
from helpers import options, run
from ignite.engine import Engine

NOISE = {"_target_": "monai_iels.CorruptLabel", "num_classes": 3, "window": 2, "fraction": 0.2, "shared": True}


@pytest.fixture(scope="session")
def settings():
    error = {"label_error": {**NOISE, "seed": 0}}
    common = {"iel_warmup": 2, "lr_scheduler#step_size": 1, "epochs": 3, "datalists#count": 6}
    return {**common, **error, "track": True, "pictures": True}


@pytest.fixture(scope="session")
def straight(settings, tmp_path_factory):
    """Train with the handlers as they stand in the config."""
    folder = tmp_path_factory.mktemp("straight")
    run("Training", **options("wbc", folder, **settings))
    return folder


@pytest.fixture
def engine_with():
    """Return a function that makes an engine whose iterations have these losses."""

    def make(loss):
        return Engine(lambda engine, batch: {"loss": torch.tensor(loss(engine.state.iteration))})

    return make
