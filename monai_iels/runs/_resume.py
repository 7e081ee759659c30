# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Resuming a training: which settings may differ from those that it began with."""

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from monai.bundle.utils import ID_SEP_KEY

from monai_iels.run_folder import RunFolder
from monai_iels.runs._keys import NOT_SETTINGS

logger = logging.getLogger(__name__)

CASES = "cases_digest"
_WHERE = {"bundle_root", "dataset_dir", f"datalists{ID_SEP_KEY}cache_dir", "device", "output_dir"}
_HOW_LONG = {"epochs", "num_workers", "val_interval"}
_MAY_CHANGE = _WHERE | _HOW_LONG


def check_resumed(folder: RunFolder, config: Mapping[str, Any]) -> None:
    """Compare a config with that of the training to resume: log harmless changes, refuse the others.

    Args:
        folder: the training's folder.
        config: the config of this run, with the digest of its cases under :data:`CASES`.

    Raises:
        ValueError: for settings that must not change, with both values, and for other data.
    """
    try:
        before = folder.read_config()
    except ValueError as error:
        raise ValueError(
            f"{error}, so the settings that the training began with are unknown; start again without --resume"
        ) from None
    now = json.loads(json.dumps(config, default=str))
    refused = []
    for key in sorted((before.keys() & now.keys()) - NOT_SETTINGS - {CASES}):
        for place, old, new in _differences(key, before[key], now[key]):
            if _MAY_CHANGE.isdisjoint((key, place)):
                refused.append(f"{place} was {old!r} and is now {new!r}")
            else:
                logger.info(f"Resuming with another {place}: {new!r}, before {old!r}.")
    if refused:
        raise ValueError(
            f"--resume: {'; '.join(refused)}. Resume with the settings in {folder.config}, or choose another "
            "--output_dir."
        )
    if before.get(CASES, now[CASES]) != now[CASES]:
        raise ValueError(
            f"--resume: the cases in {now['dataset_dir']} are not those that the training began with in "
            f"{before['dataset_dir']}. Resume with the same data, or choose another --output_dir."
        )


def _differences(place: str, before: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the places where two configs differ, with both values."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in sorted(before.keys() | now.keys()):
            yield from _differences(f"{place}{ID_SEP_KEY}{key}", before.get(key), now.get(key))
    elif before != now:
        yield place, before, now
