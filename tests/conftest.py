# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""How the tests run: on all cores, however they are started; and a server and a training that several files share."""

import gc
import logging
import os
import sys
from pathlib import Path

import pytest

# Set before torch is imported, and inherited by every process that the tests start.
os.environ["OMP_NUM_THREADS"] = "1"  # the workers already use all cores
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])  # not activated
os.environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"  # else each server starts five processes that import MLflow
for name in [name for name in os.environ if name.startswith("MLFLOW_TRACKING_")]:
    del os.environ[name]  # no server of the user's is written to

LONGEST_FIRST = ["test_registering", "test_plain_bundles", "test_serving", "test_tracked_trainings", "test_package"]
LONGEST_FIRST += ["test_interruption", "test_inference", "test_running", "test_damaged_input", "test_own_bundles"]
LONGEST_FIRST += ["test_refused_settings", "test_prediction", "test_volumes", "test_training", "test_curve_motion"]
LONGEST_FIRST += ["test_moving_average", "test_definition", "test_paper", "test_lightning", "test_guided"]


def pytest_xdist_auto_num_workers(config):
    """Run folders on all cores, and one worker more since tests wait for servers; single files in this process."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(cores, 8) + 1 if any(Path(word).is_dir() for word in config.args) else 0


def pytest_configure(config):
    """Let all workers share the process that imports MONAI for their programs; it imports while they do."""
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        from programs import start_helper

        start_helper()


def pytest_collection_finish():
    gc.freeze()  # what was imported stays; looking through it again and again takes a tenth of the time


def pytest_collection_modifyitems(items):
    """Begin with the longest files; each runs in one worker, since its tests share fixtures."""
    items.sort(key=lambda item: [*LONGEST_FIRST, item.path.stem].index(item.path.stem))


@pytest.fixture(scope="session", autouse=True)
def _pictures_of_one_case():
    """Draw one case in each picture of a training, not three: pictures take most of the time of so small a training."""
    from monai_iels.handlers import LayerPictures

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LayerPictures.__init__, "__defaults__", (None, 1))
        yield


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    from servers import Server

    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.stop()


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_tracked_in_the_checkout():
    from helpers import BUNDLES

    before = (BUNDLES / "mlflow").exists()
    yield
    assert (BUNDLES / "mlflow").exists() == before


@pytest.fixture(autouse=True)
def _no_open_run():
    yield
    mlflow = sys.modules.get("mlflow")
    if mlflow is not None and mlflow.active_run():
        mlflow.end_run()


@pytest.fixture(autouse=True)
def _no_program_outlives_its_test():
    yield
    programs = sys.modules.get("programs")
    if programs is not None:
        programs.kill_all()


@pytest.fixture(scope="session")
def tracked(server, tmp_path_factory):
    """Train with noise against the server, and evaluate."""
    from helpers import corrupt, run
    from servers import options

    output = tmp_path_factory.mktemp("tracked") / "out"
    overrides = options("wbc", output, label_error=corrupt(0.2), tracking_uri=server.uri, pictures=True)
    run("Training", **overrides, experiment_name="end to end", system_metrics=True)
    run("Evaluation", **overrides)
    return output


class TrainedBundles:
    """A folder with a training of each bundle, for two epochs on its synthetic sample, made when it is asked for."""

    def __init__(self, folder):
        self.folder = folder

    def __truediv__(self, name):
        from helpers import options, run

        if not (self.folder / name).exists():
            run("Training", **options(name, self.folder / name))
        return self.folder / name


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    return TrainedBundles(tmp_path_factory.mktemp("trained runs"))


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """Train two bundles for two epochs, one in 2-D and one in 3-D, with a cache beside them."""
    from helpers import cached, options, run

    folder = tmp_path_factory.mktemp("finished")
    for name in ("wbc", "hippocampus"):
        run("Training", **options(name, folder / name, **cached(folder)))
    return folder


@pytest.fixture(scope="module", autouse=True)
def _logging_as_before():
    """Undo what a bundle's logging.conf does to the loggers of the process."""
    yield
    for name in ("", "monai_iels"):
        logging.getLogger(name).handlers.clear()
    logging.getLogger("monai_iels").propagate = True
