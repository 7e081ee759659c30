# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0
"""The one command ``monai-iels advise|data|bundle|study|registry|tracking|nnunet``, also ``python -m monai_iels``."""

import logging
import signal
import sys
from collections.abc import Sequence

from monai_iels._terminal import first_line
from monai_iels.cli._parser import make_parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 if all is well, 1 if not, 2 for a wrong command, 130 for Ctrl-C."""
    options = make_parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("monai_iels").setLevel(logging.INFO)
    try:
        return options.run(options) or 0
    except KeyboardInterrupt:
        print("Interrupted. Files under their final names are complete; the same command continues.", file=sys.stderr)
        return 130
    except Exception as error:
        text = _sentence(error, options.writes)
        if text is None:
            raise
        print(text, file=sys.stderr)
        return 1


def _sentence(error: Exception, option: str) -> str | None:
    """Return what a user should know about an error, or None if only the traceback tells.

    Args:
        error: the error.
        option: what chooses the folder that the command writes into, if anything does.
    """
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"this command needs {error.name}: install it with pip install 'monai_iels[bundles]'"
    if isinstance(error, OSError) and error.errno is not None:
        reason = (error.strerror or str(error)).lower()
        what = f"{error.filename or 'a file'} cannot be {'written' if option else 'read or written'} ({reason})"
        return f"{what}: free space there, or choose another folder{f' with {option}.' if option else ''}"
    if isinstance(error, ValueError | OSError | ModuleNotFoundError):
        return str(error)
    from_server = type(error).__module__.startswith(("mlflow.", "sqlalchemy."))
    return first_line(error) if from_server else None


def run_program() -> None:
    """Start the command as a program, which SIGTERM and a closed terminal (SIGHUP) end as Ctrl-C does.

    So unfinished files are removed, and the trainings of a study end with it. A signal that is ignored stays so.
    """
    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):  # Windows has no SIGHUP
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    sys.path.append("")  # as with `python -m`: a bundle may name a module in the folder that one starts from
    sys.exit(main())
