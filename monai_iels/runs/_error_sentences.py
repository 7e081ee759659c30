# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""One sentence instead of a traceback, for what a user can repair."""

import errno
import os
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType

import torch

import monai_iels
from monai_iels._terminal import first_line

_DISK_FULL = (errno.EDQUOT, errno.EFBIG, errno.ENOSPC)
_NOT_WRITABLE = (errno.EACCES, errno.EEXIST, errno.EIO, errno.EISDIR, errno.ENOTDIR, errno.EROFS)
_REMEDIES = {
    **dict.fromkeys(
        _DISK_FULL,
        "cannot be written ({}). Make room, then repeat the command; a training continues with --resume true.",
    ),
    **dict.fromkeys(_NOT_WRITABLE, "cannot be read or written ({}). Choose another folder."),
}
_INTERRUPTED = "Interrupted. Repeat the command; a training continues after its last full epoch with --resume true."


class RunError(SystemExit):
    """A run cannot go on; its text is one sentence that says why and what to do.

    ``python -m monai.bundle`` prints the sentence and ends with exit code 1, where other exceptions print a traceback.
    """


@contextmanager
def one_sentence(interrupted: str = _INTERRUPTED) -> Iterator[None]:
    """Raise :class:`RunError` for every error that has a plain sentence; decorates the methods of workflows.

    Args:
        interrupted: what is said after Ctrl-C.
    """
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        try:
            text = sentence(error, interrupted)
        except RuntimeError as late:  # torch tells by a signal, at any moment, that a process for loading died
            text = sentence(late, interrupted)
        if text is None:
            raise
        raise RunError(text) from error


def sentence(error: BaseException, interrupted: str = _INTERRUPTED) -> str | None:
    """Return what a user should know about an error, or None if only the traceback tells."""
    chain = list(_causes(error))
    if any(isinstance(link, KeyboardInterrupt) for link in chain):
        return interrupted
    found = (_own_words(link) or _system_words(link) for link in chain)
    return next(filter(None, found), None) or _config_words(chain)


def _own_words(error: BaseException) -> str | None:
    """Return the text of an error that this package raised itself."""
    raised_in = _functions(error)[-1:]
    ours = bool(raised_in) and raised_in[0].co_filename.startswith(str(Path(monai_iels.__file__).parent))
    return str(error) if ours and isinstance(error, ValueError | FileNotFoundError | ImportError) else None


def _system_words(error: BaseException) -> str | None:
    """Return a sentence about a disk or too little memory."""
    if isinstance(error, OSError) and error.errno in _REMEDIES:
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{_REMEDIES[error.errno].format(os.strerror(error.errno).lower())}"
    if isinstance(error, torch.OutOfMemoryError):
        return "The device has too little memory. Lower --batch_size, --image_size or --features."
    if "DataLoader worker" in str(error) or _is_lost_connection(error):
        return (
            f"A process that loads data ended ({first_line(error)}), often because of too little memory. "
            "Lower --num_workers, then repeat the command; a training continues with --resume true."
        )
    return None


def _is_lost_connection(error: BaseException) -> bool:
    """Return whether a process that loads data was killed while it handed over a batch; torch's error does not say."""
    is_lost = isinstance(error, ConnectionError | EOFError)
    return is_lost and any(function.co_name == "_try_get_data" for function in _functions(error))


def _config_words(chain: list[BaseException]) -> str | None:
    """Return a sentence about a component or an expression of the config that does not work."""
    last = chain[-1]
    if isinstance(last, ModuleNotFoundError) and "Cannot locate" in str(last):
        return f"a component could not be built: {first_line(last)}"
    missing = re.search(r"(?:`@|id=')([^`']+)[`'] is not (?:defined|found) in the config", "".join(map(str, chain)))
    if missing is not None:
        return f"the config has no key '{missing[1]}'; correct what refers to it, or leave --config_file out"
    component = re.search(r"Failed to instantiate component '([^']+)'", "".join(map(str, chain)))
    if component is not None and isinstance(last, TypeError | ValueError):
        return f"{component[1]} could not be built: {first_line(last)}"
    expression = re.search(r"Failed to evaluate ConfigExpression:\s*(.*)", str(chain[0]), re.DOTALL)
    if expression is not None and [function.co_filename for function in _functions(last)[-1:]] == ["<string>"]:
        shown = " ".join(re.sub(r"__local_refs\['([^']+)'\]", r"@\1", expression[1]).split())
        return f"a setting does not work in {shown}: {first_line(last)}"
    return None


def _functions(error: BaseException) -> list[CodeType]:
    """Return the functions that an error went through, the outermost first, without reading their sources."""
    return [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what caused it, the outermost first."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
