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

"""What a tracked run has to tell: its settings, the physics, the data and the versions."""

import contextlib
import hashlib
import importlib.metadata
import json
import logging
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from monai.bundle import ConfigParser
from torch import nn

import monai_iels
from monai_iels.bundle.config import INTERNAL, evaluating, is_plain
from monai_iels.data.datalists import SYNTHETIC
from monai_iels.data.files import Datalists
from monai_iels.data.source import fingerprint
from monai_iels.handlers.addresses import public, remember
from monai_iels.layers import InverseEvolutionLayer

_ADDRESS = r"(https?|sqlite|postgresql|mysql|mssql|databricks(-uc)?)(\+\w+)?:|databricks$"

__all__ = ["describe", "hide_secrets", "settings", "tags"]


def hide_secrets(parser: ConfigParser) -> None:
    """Take user names and passwords out of the tracking addresses of a config; the process remembers them.

    What MONAI's ``--tracking mlflow`` has written of the config by then is written anew.

    Raises:
        ValueError: for an address that is no text.
    """
    logging.getLogger("monai.bundle.scripts").addFilter(_hide_in_summary)
    before = json.dumps(parser.get(), default=str)
    resolved = parser.get_parsed_content("tracking_uri") if "tracking_uri" in parser else None
    if resolved is not None and not re.match(_ADDRESS, str(resolved)):
        raise ValueError(f"--tracking_uri must be an address such as http://HOST:5000, got {public(str(resolved))}")
    if resolved and remember(resolved) != resolved:
        parser["tracking_uri"] = public(resolved)
    _hide(parser.get())
    if json.dumps(parser.get(), default=str) == before:
        return
    parser.parse(reset=True)
    exported = str(parser.get("save_execute_config", "")).strip("'")  # a path, or "FOLDER + '/NAME'"
    for file in (Path(exported), Path(parser.get_parsed_content("output_dir")) / Path(exported).name):
        if file.is_file():
            parser.export_config_file(parser.get(), str(file), indent=2)


def _hide_in_summary(record: logging.LogRecord) -> bool:
    """Return whether MONAI may print this line of its summary: not the address as it was given."""
    return "tracking_uri" not in str(record.msg)


def _hide(config: Any) -> None:
    """Hide the secrets of the addresses that components were given directly."""
    for key, value in config.items() if isinstance(config, dict) else enumerate(config):
        if key == "tracking_uri" and isinstance(value, str) and is_plain(value):
            config[key] = remember(value)
        elif isinstance(value, dict | list):
            _hide(value)


def settings() -> dict[str, Any]:
    """Return the settings of the present run: plain values, and every entry that an override has changed."""
    parser = evaluating(ConfigParser)
    file = Path(parser.get_parsed_content("bundle_root")) / "configs" / "train.json"
    original = ConfigParser(ConfigParser.load_config_file(file) if file.exists() else parser.get())
    original.parse()
    chosen = {
        key: value
        for key, value in parser.get().items()
        if key not in INTERNAL and (is_plain(value) or value != original.get().get(key))
    }
    for key in ("bundle_root", "output_dir", "dataset_dir", "cache_dir"):
        value = str(parser.get_parsed_content(key))
        chosen[key] = value if value == SYNTHETIC else os.path.abspath(value)
    return chosen


def describe(
    layer: InverseEvolutionLayer, network: nn.Module, datalists: Datalists, dataset_dir: str
) -> dict[str, Any]:
    """Return what a tracked run has to tell beside its settings: the physics, the network and the data."""
    chosen = settings()
    chosen["tracking_uri"] = public(str(chosen.get("tracking_uri")))
    gains = {f"gain_{dims}d": gain for dims, gain in layer.gains().items()}
    prints = {name: fingerprint({name: cases}) for name, cases in datalists.items() if name != "test"}
    return {
        **{
            key: value if isinstance(value, str) or is_plain(value) else json.dumps(value)
            for key, value in chosen.items()
        },
        "evolution": repr(layer.evolution),
        **gains,
        "network": type(network).__name__,
        "network_parameters": sum(parameter.numel() for parameter in network.parameters()),
        "dataset_fingerprint": hashlib.sha256(json.dumps(prints, sort_keys=True).encode()).hexdigest(),
        "dataset_synthetic": str(dataset_dir) == SYNTHETIC,
        **{f"cases_{name}": len(cases) for name, cases in datalists.items()},
    }


def tags() -> dict[str, str]:
    """Return the bundle's name and version, the versions of the packages, and the git revision where there is one."""
    metadata = evaluating(ConfigParser).get(ConfigParser.meta_key, {})
    packages = {name: importlib.metadata.version(name) for name in ("monai", "torch", "mlflow", "pytorch-ignite")}
    found = {"bundle": metadata.get("name", ""), "bundle_version": metadata.get("version", "")}
    found.update({f"version.{name}": version for name, version in packages.items()})
    found["version.monai_iels"] = monai_iels.__version__
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(git, capture_output=True, text=True, check=True, timeout=5)
        found["git_revision"] = done.stdout.strip()
    return found
