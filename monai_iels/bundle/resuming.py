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

"""Resuming a training: which settings may differ from those that it began with."""

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from monai.bundle import ConfigParser
from monai.bundle.utils import ID_SEP_KEY

__all__ = ["check_resumed"]

logger = logging.getLogger(__name__)

_PROGRAM = {ConfigParser.meta_key, "finalize", "imports", "initialize", "known_keys", "run"}
_MAY_CHANGE = {"bundle_root", "cache_dir", "dataset_dir", "device", "output_dir"}  # where
_MAY_CHANGE |= {"epochs", "num_workers", "resume", "val_interval"}  # how long, how fast, how often
_MAY_CHANGE |= {"experiment_name", "register_model", "run_name", "run_tags", "system_metrics", "track", "tracking_uri"}


def check_resumed(folder: Path, config: Mapping[str, Any]) -> None:
    """Compare a config with that of the training that is resumed, and say what happens to each change.

    Args:
        folder: the training's output folder.
        config: the config of this run.

    Raises:
        ValueError: for settings that may not change, with both values.
    """
    file = folder / "config.json"
    if not file.exists():
        return
    before, now = json.loads(file.read_text("utf-8")), json.loads(json.dumps(config, default=str))
    refused = []
    for key in sorted((before.keys() & now.keys()) - _PROGRAM):
        for place, old, new in _differences(key, before[key], now[key]):
            if key in _MAY_CHANGE:
                values = "" if key == "tracking_uri" else f": {new!r}, before {old!r}"  # it may have a password
                logger.info(f"The training is resumed with another {place}{values}.")
            else:
                refused.append(f"{place} was {old!r} and is now {new!r}")
    if refused:
        raise ValueError(
            f"--resume: {'; '.join(refused)}. Resume with the settings of {file}, or choose another --output_dir."
        )


def _differences(place: str, before: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the places at which two configs differ, with both values."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in sorted(before.keys() | now.keys()):
            yield from _differences(f"{place}{ID_SEP_KEY}{key}", before.get(key), now.get(key))
    elif before != now:
        yield place, before, now
