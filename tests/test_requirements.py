# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Which versions are required: the lowest ones and the newest ones are tested, and bundles ask for the same."""

import configparser
import json
import re
from itertools import chain

import pytest
from helpers import NAMES, ROOT, configs
from packaging.requirements import Requirement

import monai_iels

SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg")
EXTRAS = {name: lines.split() for name, lines in SETUP["options.extras_require"].items()}
CORE = SETUP["options"]["install_requires"].split()
PINS = (ROOT / "constraints.txt").read_text("utf-8").lower().replace("_", "-")
NEWEST = dict(re.findall(r"^([\w.-]+)==([\w.]+)", PINS, re.MULTILINE))


def lowest(lines):
    """Return the lowest version of each package."""
    return dict(line.split(">=") for line in lines if not line.startswith("monai_iels"))


LINES = sorted({line for line in chain(CORE, *EXTRAS.values()) if not line.startswith("monai_iels")})


@pytest.mark.parametrize("line", LINES)
def test_the_version_that_is_pinned_is_allowed(line):
    requirement = Requirement(line)
    assert NEWEST[requirement.name.lower()] in requirement.specifier
    assert re.fullmatch(r"[\w.-]+>=[\d.]+", line)  # one lower bound, which .ci/lower_bounds turns into ==


def test_the_lowest_versions_that_users_may_have_are_installed_and_tested():
    """The other extras are for those who install with constraints.txt: their lowest version is the pinned one."""
    script = (ROOT / ".ci" / "lower_bounds").read_text("utf-8")
    tested = {name for name in EXTRAS if f'extras["{name}"]' in script}
    assert tested == {"bundles", "fast", "lightning"}
    for name in EXTRAS.keys() - tested:
        for package, version in lowest(EXTRAS[name]).items():
            assert package in lowest(EXTRAS["bundles"]) or NEWEST[package].startswith(version), package


@pytest.mark.parametrize("name", NAMES)
def test_a_bundle_asks_for_the_versions_that_this_package_allows(name):
    """As MONAI's metadata says it: the versions of MONAI, torch and NumPy, and ranges of other packages."""
    metadata = json.loads((ROOT / configs(name, "metadata")[0]).read_text("utf-8"))
    extras = [*EXTRAS["bundles"], *(EXTRAS["cityscapes"] if name == "cityscapes" else [])]
    expected = {**lowest([*CORE, *extras]), "monai_iels": monai_iels.__version__.rpartition(".")[0]}
    for package, key in {"monai": "monai", "torch": "pytorch", "numpy": "numpy"}.items():
        assert f"{metadata[f'{key}_version']}.0".startswith(f"{expected.pop(package)}.")
    assert metadata["required_packages_version"] == {package: f">={version}" for package, version in expected.items()}


@pytest.mark.parametrize("script", ["run", "nnunet", "monailabel", "lower_bounds"])
def test_a_script_runs_tests_that_exist(script):
    text = (ROOT / ".ci" / script).read_text("utf-8")
    names = re.findall(r"tests/[\w/.]+", text)
    assert names
    assert not [name for name in names if not (ROOT / name).exists()]
