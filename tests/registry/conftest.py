# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Registered models that several files test, and a service."""

import os
import signal

import mlflow
import pytest
from helpers import TWO_LEVELS, run
from PIL import Image
from programs import Program
from servers import answers, free_port, options, wait_for

from monai_iels.registry import register, server_in_use


@pytest.fixture(scope="package")
def sharp(server, tmp_path_factory):
    """Train for long enough that the labels are of all classes, and register."""
    output = tmp_path_factory.mktemp("sharp")
    overrides = options("wbc", output, epochs=8, learning_rate=0.01, iel_gain="null", tracking_uri=server.uri)
    overrides |= {"network_def": TWO_LEVELS, "datalists#count": 20}
    run("Training", **overrides, register_model="sharp")
    return output


@pytest.fixture(scope="package")
def cells(server, tmp_path_factory):
    """Register a training after its end, with the bundle's own network."""
    output = tmp_path_factory.mktemp("cells")
    run("Training", **options("wbc", output, tracking_uri=server.uri))
    assert register(str(output), "cells")
    return output


@pytest.fixture(scope="package")
def cell(sharp):
    """The first image of the sample, as large as no network saw it, and not square."""
    return Image.open(min((sharp / "cache").rglob("*.bmp"))).convert("RGB").resize((96, 128), Image.Resampling.BICUBIC)


@pytest.fixture(scope="package")
def predictor(sharp, server):
    with server_in_use(server.uri):
        return mlflow.pyfunc.load_model("models:/sharp-predict/1")


@pytest.fixture(scope="package")
def volumes(server, tmp_path_factory):
    """A trained 3-D model, registered, and its folder."""
    output = tmp_path_factory.mktemp("volumes")
    overrides = options("hippocampus", output, learning_rate=0.01, iel_gain="null", tracking_uri=server.uri)
    overrides["network_def"] = {**TWO_LEVELS, "spatial_dims": 3, "in_channels": 1}
    run("Training", **overrides, register_model="hippo")
    with server_in_use(server.uri):
        return mlflow.pyfunc.load_model("models:/hippo-predict@candidate"), output


@pytest.fixture(scope="package")
def service(sharp, server, tmp_path_factory):
    port = free_port()
    assert "MLFLOW_REGISTRY_URI" not in os.environ
    environment = {"MLFLOW_TRACKING_URI": server.uri, "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false"}
    arguments = ["models", "serve", "-m", "models:/sharp-predict/1", "-p", str(port), "--env-manager", "local"]
    log = tmp_path_factory.mktemp("service") / "log"
    process = Program("mlflow", *arguments, env=environment, stdout=log, outlives_test=True)
    wait_for(lambda: answers(f"http://127.0.0.1:{port}/ping"), 120)
    yield f"http://127.0.0.1:{port}/invocations"
    os.killpg(process.pid, signal.SIGTERM)
    process.wait()
