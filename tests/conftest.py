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

"""What tests of several files share: a server, and a training that is tracked on it."""

import os
import sys

import pytest

os.environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"  # else each server starts five processes that import MLflow


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    from servers import Server

    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def _no_address_from_outside(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    yield
    mlflow = sys.modules.get("mlflow")
    if mlflow is not None and mlflow.active_run():
        mlflow.end_run()


@pytest.fixture(scope="module")
def tracked(server, tmp_path_factory):
    """Train with noise and a registered model against the server."""
    from helpers import configs, run
    from servers import options

    output = tmp_path_factory.mktemp("tracked") / "out"
    overrides = options("wbc", output, noise_fraction=0.2, tracking_uri=server.uri, experiment_name="end to end")
    run(configs("wbc", "train"), **overrides, register_model="cells", system_metrics=True)
    run(configs("wbc", "train", "evaluate"), **overrides)
    return output
