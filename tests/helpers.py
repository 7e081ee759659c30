# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""What tests of bundles share: small settings, a run in this process, and a run in another one."""

import csv
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from monai.bundle import create_workflow
from PIL import Image

from monai_iels.data import SOURCES
from monai_iels.tracking import local_database

ROOT = Path(__file__).parents[1]
BUNDLES = ROOT / "bundles"
NAMES = list(SOURCES)
FEATURES = [4, 4, 8, 8, 8, 4]
SMALL = {
    "wbc": {"datalists#count": 10, "datalists#size": 48, "image_size": [32, 32]},
    "dsb2018": {"datalists#count": 10, "datalists#size": 48, "image_size": [32, 32], "batch_size": 4},
    "drive": {"datalists#count": 4, "datalists#size": 64, "image_size": [48, 48]},
    "refuge": {"datalists#count": 12, "datalists#size": 64, "image_size": [64, 64]},
    "hippocampus": {"datalists#count": 8, "datalists#size": 32, "image_size": [32, 32, 32]},
    "cityscapes": {
        "datalists#count": 8,
        "datalists#size": 32,
        "image_size": [48, 32],
        "iel_warmup": 0,
        "val_interval": 1,
    },
}
U_NET = {"_target_": "BasicUNet", "spatial_dims": 2, "in_channels": 3, "out_channels": 19, "features": FEATURES}
TWO_LEVELS = {"_target_": "UNet", "spatial_dims": 2, "in_channels": 3, "out_channels": 3}  # exported in a second
TWO_LEVELS |= {"channels": [8, 16], "strides": [2], "num_res_units": 1}
SMALL["cityscapes"]["network_def"] = U_NET  # its own networks are in test_street_networks.py


def options(name, output, **more):
    """Return the overrides of a run that takes seconds."""
    common = {"bundle_root": str(BUNDLES / name), "output_dir": str(output), "features": FEATURES, "epochs": 2}
    common["tracking_uri"] = local_database(output)
    if more.get("track") and "tracking_uri" not in more:
        new_database(output)
    return {**common, "learning_rate": 0.003, "track": False, "pictures": False, **SMALL[name], **more}


def corrupt(fraction=0.1, window=2, shared=True):
    """Return the error of labels that is noise in windows, as a bundle's config has it."""
    drawn = {"window": window, "fraction": fraction, "shared": shared, "seed": "@seed"}
    return {"_target_": "monai_iels.CorruptLabel", "num_classes": "@num_classes", **drawn}


def new_database(folder):
    """Put an empty database of MLflow's into a folder, and return its address; MLflow would take seconds to make it."""
    if not (Path(folder) / "mlflow.db").exists():
        Path(folder).mkdir(parents=True, exist_ok=True)
        shutil.copy(_empty_database(), folder)
    return local_database(folder)


@cache
def _empty_database():
    folder = Path(tempfile.mkdtemp())
    SqlAlchemyStore(local_database(folder), "mlflow-artifacts:/")  # files of its first experiment go to a server
    return folder / "mlflow.db"


def configs(name, *files):
    return [str(BUNDLES / name / "configs" / f"{file}.json") for file in files]


def prepare(workflow_name, **arguments):
    """Build and initialize a workflow, as the command line does."""
    return create_workflow(f"monai_iels.{workflow_name.removeprefix('monai_iels.')}", **arguments)


def run(workflow_name, **arguments):
    workflow = prepare(workflow_name, **arguments)
    workflow.run()
    workflow.finalize()
    return workflow


def command(*arguments, **kwargs):
    """Run the command line in another process, from its very start."""
    words = [sys.executable, "-m", "monai.bundle", "run", *map(str, arguments)]
    environment = {**os.environ, **kwargs.pop("env", {})}
    return subprocess.run(words, capture_output=True, text=True, env=environment, check=False, **kwargs)


def noise(done):
    """Return what a process said that is not for its user; MONAI's notice comes before anything of ours is loaded."""
    strange = [line for line in done.stderr.splitlines() if not line.startswith("parsing config_file ")]
    return strange + re.findall(r".* - INFO - .*|.*(?:[Dd]eprecat|FutureWarning).*", done.stdout)


def words(overrides):
    return [word for key, value in overrides.items() for word in (f"--{key}", str(value).replace(" ", ""))]


def cached(folder):
    """Return the key that shares synthetic images between trainings."""
    return {"datalists#cache_dir": str(folder / "cache")}


def said(workflow_name, **overrides):
    """Run a workflow, and return what the command line would print instead of a traceback."""
    try:
        run(workflow_name, logging_file=False, **overrides)
    except SystemExit as error:
        return str(error.code)
    except BaseException as error:
        return f"a traceback:\n{error!r}"
    return "accepted"


def tree(folder):
    """Return every file below a folder with its contents; locks are no results."""
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.suffix != ".lock"
    }


def history(output):
    with (Path(output) / "history.csv").open(newline="", encoding="utf-8") as stream:
        return [{k: float(v) for k, v in row.items()} for row in csv.DictReader(stream)]


def own_bundle(folder):
    """Make the bundle that the page describes, and files for it."""
    page = (ROOT / "docs" / "do" / "bundle.md").read_text("utf-8")
    shutil.copytree(BUNDLES / "shared", folder / "shared")
    (folder / "mine").mkdir()
    file = folder / "mine" / "dataset.yaml"
    text = re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1]
    assert "group: '^(.+)_'" in text
    file.write_text(text.replace("'^(.+)_'", "'(.+)'"))  # each of the images below is of another patient
    rng = np.random.default_rng(0)
    for number in range(10):
        label = np.zeros((40, 50), np.uint8)
        label[10 : 20 + number, 8:30] = 255
        image = (label[..., None] // 2 + rng.integers(0, 60, (40, 50, 3))).astype(np.uint8)
        for name, pixels in (("images", image), ("labels", label)):
            (folder / "data" / name).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(folder / "data" / name / f"case{number}.png")
    return file
