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

"""Errors in one sentence: ours without the way there, and the first line of other packages'."""

import re
import sys
import traceback
from pathlib import Path
from types import TracebackType

__all__ = ["first_line", "in_one_sentence"]


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says, or its kind where it says nothing."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def in_one_sentence(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print what this package says about a user's mistake, without the way there; anything else in full."""
    if issubclass(kind, KeyboardInterrupt):
        print("Interrupted. A training goes on after its last full epoch with --resume true.", file=sys.stderr)
        return
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    home = str(Path(__file__).parent)
    for link in chain:
        frames = traceback.extract_tb(link.__traceback__)
        if isinstance(link, ValueError | FileNotFoundError) and frames and frames[-1].filename.startswith(home):
            print(link, file=sys.stderr)
            return
    component = re.search(r"Failed to instantiate component '([^']+)'", "".join(map(str, chain)))
    if component is not None and isinstance(chain[-1], TypeError | ValueError):
        print(f"{component[1]}: expected arguments that it takes, found '{chain[-1]}'.", file=sys.stderr)
        return
    sys.__excepthook__(kind, error, trace)
