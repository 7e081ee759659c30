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
"""Passwords in tracking addresses: the process remembers them, and no file or log gets them."""

import json
import logging
import re
from pathlib import Path
from typing import Any

from monai.bundle import ConfigParser

from monai_iels.runs._keys import is_plain
from monai_iels.tracking import remember_secrets, without_secrets

_ADDRESS = r"(https?|sqlite|postgresql|mysql|mssql|databricks(-uc)?)(\+\w+)?:|databricks$"


def hide_secrets(parser: ConfigParser) -> None:
    """Remove user names and passwords from the tracking addresses of a config.

    MONAI's ``--tracking mlflow`` has already written the config to a file by then; that file is written again.

    Raises:
        ValueError: if ``tracking_uri`` is not an address.
    """
    logging.getLogger("monai.bundle.scripts").addFilter(_is_without_address)
    before = json.dumps(parser.get(), default=str)
    address = parser.get_parsed_content("tracking_uri")
    if address is not None and not re.match(_ADDRESS, str(address)):
        raise ValueError(
            f"--tracking_uri must be an address such as http://HOST:5000, got {without_secrets(str(address))}"
        )
    if address and remember_secrets(address) != address:
        parser["tracking_uri"] = without_secrets(address)
    _hide(parser.get())
    if json.dumps(parser.get(), default=str) != before:
        parser.parse(reset=True)
        _export_again(parser)


def _is_without_address(record: logging.LogRecord) -> bool:
    """Filter MONAI's summary of the arguments: it would print the address with its password."""
    return "tracking_uri" not in str(record.msg)


def _hide(config: Any) -> None:
    """Hide the secrets of addresses that components were given directly."""
    for key, value in config.items() if isinstance(config, dict) else enumerate(config):
        if key == "tracking_uri" and isinstance(value, str) and is_plain(value):
            config[key] = remember_secrets(value)
        elif isinstance(value, dict | list):
            _hide(value)


def _export_again(parser: ConfigParser) -> None:
    exported = str(parser.get("save_execute_config", "")).strip("'")  # a path, or "FOLDER + '/NAME'"
    for file in (Path(exported), Path(parser.get_parsed_content("output_dir")) / Path(exported).name):
        if file.is_file():
            parser.export_config_file(parser.get(), str(file), indent=2)
