# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""What a person at the terminal reads: the reason of an error in one line, paths, commands and times."""

import os
import re
import shlex
import shutil
import sys


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says, but for places in ITK's sources, or its kind if it says nothing."""
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in lines if line and not re.match(r".*\.(hxx|cxx|h):\d+:$", line)), type(error).__name__)


def shown(path: str | os.PathLike[str]) -> str:
    """Return a path as people would type it: from the folder that they are in if it lies below it."""
    path, here = os.path.abspath(path), os.getcwd()
    return os.path.relpath(path, here) if path.startswith(here + os.sep) else path


def module_command(module: str) -> str:
    """Return what to type to run a module with this Python, also if no environment is activated."""
    python = "python" if _is_ours("python") else shlex.quote(shown(sys.executable))
    return f"{python} -m {module}"


def script_command(script: str) -> str:
    """Return what to type to run the script of an installed package, which can also be run as a module."""
    return script if _is_ours(script) else module_command(script)


def bundle_command(arguments: str | os.PathLike[str]) -> str:
    """Return the command that runs a bundle with the arguments in a file."""
    return f"{module_command('monai.bundle')} run --args_file {shlex.quote(shown(arguments))}"


def _is_ours(program: str) -> bool:
    """Return whether the shell finds the program of this Python's environment under its bare name."""
    return os.path.dirname(shutil.which(program) or "") == os.path.dirname(sys.executable)


def duration(seconds: float) -> str:
    """Return a time as people say it."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"
