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

"""One sentence instead of a traceback, for what a user can mend."""

import errno
import os
import re
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import torch

import monai_iels
from monai_iels.errors import first_line

__all__ = ["print_sentences", "sentence"]

_FULL = {errno.EDQUOT, errno.EFBIG, errno.ENOSPC}
_CLOSED = {errno.EACCES, errno.EEXIST, errno.EIO, errno.EISDIR, errno.ENOTDIR, errno.EROFS}


def print_sentences() -> None:
    """Let ``python -m monai.bundle`` end with one sentence where there is one; other programs keep their own way."""
    if Path(sys.argv[0]).parts[-3:] == ("monai", "bundle", "__main__.py"):
        sys.excepthook = _print


def _print(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    said = sentence(error)
    if said is None:
        sys.__excepthook__(kind, error, trace)
    else:
        print(said, file=sys.stderr)


def sentence(error: BaseException) -> str | None:
    """Return what a user should know about an error, or None where only the traceback tells."""
    chain = list(_causes(error))
    home = str(Path(monai_iels.__file__).parent)
    for link in chain:
        frames = traceback.extract_tb(link.__traceback__)
        if isinstance(link, KeyboardInterrupt):
            return "Interrupted. A training goes on after its last full epoch with --resume true."
        if isinstance(link, ValueError | FileNotFoundError) and frames and frames[-1].filename.startswith(home):
            return str(link)
        if isinstance(link, OSError) and link.errno in _FULL | _CLOSED:
            place = f"{link.filename}: " if link.filename else ""
            remedy = "Make room, then go on with --resume true" if link.errno in _FULL else "Choose another folder"
            return f"{place}cannot be written ({os.strerror(link.errno).lower()}). {remedy}."
        if isinstance(link, torch.OutOfMemoryError):
            return "The device has too little memory. Lower --batch_size, --image_size or --features."
        if "DataLoader worker" in str(link):
            return (
                f"A process that loads data ended ({first_line(link)}), often for want of memory. "
                "Lower --num_workers, then go on with --resume true."
            )
    last = chain[-1]
    if isinstance(last, ModuleNotFoundError) and "Cannot locate" in str(last):
        return f"a component cannot be built: {first_line(last)}"
    component = re.search(r"Failed to instantiate component '([^']+)'", "".join(map(str, chain)))
    if component is not None and isinstance(last, TypeError | ValueError):
        return f"{component[1]} cannot be built: {first_line(last)}"
    frames = traceback.extract_tb(last.__traceback__)
    expression = re.search(r"Failed to evaluate ConfigExpression:\s*(.*)", str(error), re.DOTALL)
    if expression is not None and frames and frames[-1].filename == "<string>":
        shown = " ".join(re.sub(r"__local_refs\['([^']+)'\]", r"@\1", expression[1]).split())
        return f"a setting cannot be used in {shown}: {first_line(last)}"
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what caused it, the outermost first."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
