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

"""The JSON files of a study: whole, or not there."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from monai_iels.handlers.training import complete_file

__all__ = ["read_json", "write_json"]


def read_json(file: Path, *expected: str) -> dict[str, Any]:
    """Read a file that a study has written.

    Raises:
        ValueError: if it is broken, or lacks what is expected.
    """
    try:
        content = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{file}: expected what a study writes, found '{error}'. Run the study again.") from None
    if not isinstance(content, dict) or not content.keys() >= set(expected):
        raise ValueError(f"{file}: expected {', '.join(expected)}, found no such keys. Run the study again.")
    return content


def write_json(content: Mapping[str, Any], file: Path, indent: int | None = 1) -> None:
    """Write a file that :func:`read_json` reads."""
    with complete_file(file) as part:
        part.write_text(
            json.dumps(content, indent=indent, separators=None if indent else (",", ":")) + "\n", encoding="utf-8"
        )
