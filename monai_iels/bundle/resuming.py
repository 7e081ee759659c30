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

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from monai.bundle import ConfigParser
from monai.bundle.utils import ID_SEP_KEY

from monai_iels.data.files import Datalists
from monai_iels.data.source import case_files
from monai_iels.errors import first_line

__all__ = ["CASES", "check_resumed", "digest_of"]

logger = logging.getLogger(__name__)

CASES = "cases_digest"
_PROGRAM = {ConfigParser.meta_key, "finalize", "imports", "initialize", "known_keys", "run"}
_MAY_CHANGE = {"bundle_root", "cache_dir", "dataset_dir", "device", "output_dir"}  # where
_MAY_CHANGE |= {"epochs", "num_workers", "resume", "val_interval"}  # how long, how fast, how often
_MAY_CHANGE |= {"experiment_name", "register_model", "run_name", "run_tags", "system_metrics", "track", "tracking_uri"}


def check_resumed(folder: Path, config: Mapping[str, Any]) -> None:
    """Compare a config with that of the training that is resumed, and say what happens to each change.

    Args:
        folder: the training's output folder.
        config: the config of this run, with the :func:`digest_of` its cases.

    Raises:
        ValueError: for settings that may not change, with both values, and for other data.
    """
    file = folder / "config.json"
    try:
        before = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{file}: cannot be read ({first_line(error)}), so nobody knows with which settings the training began; "
            "begin anew without --resume"
        ) from None
    now = json.loads(json.dumps(config, default=str))
    refused = []
    for key in sorted((before.keys() & now.keys()) - _PROGRAM - {CASES}):
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
    if before.get(CASES, now[CASES]) != now[CASES]:
        raise ValueError(
            f"--resume: the cases in {now['dataset_dir']} are not those that the training began with in "
            f"{before['dataset_dir']}. Resume with the same data, or choose another --output_dir."
        )


def digest_of(datalists: Datalists) -> str:
    """Return a digest of the names and sizes of all files, wherever they lie."""
    files = [
        (section, Path(file).name, Path(file).stat().st_size)
        for section, cases in datalists.items()
        for case in cases
        for file in case_files(case)
    ]
    return hashlib.sha256(json.dumps(files).encode()).hexdigest()


def _differences(place: str, before: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the places at which two configs differ, with both values."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in sorted(before.keys() | now.keys()):
            yield from _differences(f"{place}{ID_SEP_KEY}{key}", before.get(key), now.get(key))
    elif before != now:
        yield place, before, now
