#!/usr/bin/env python
# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Programs in processes of their own, without the ten seconds that each would need to import MONAI.

A helper process imports MONAI once. For every program it forks a process, which then runs the module or script as
``python -m`` does: with its own folder, environment, output files, signals and exit code. Where such a program starts
another one by ``sys.executable -m``, this file is the interpreter: it has that program forked, too, and passes signals
and its exit code on.
"""

import gc
import importlib
import os
import resource
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from functools import cache
from multiprocessing.connection import Client, Connection
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path

IMPORTED = ("monai.bundle", "monai_iels.runs", "monai_iels.study", "monai_iels.handlers", "fire", "torch._dynamo")
IMPORTED += ("mlflow.store.tracking.sqlalchemy_store", "mlflow.cli", "mlflow.server.fastapi_app", "uvicorn.main")
IMPORTED += ("torch.distributed.run",)
ADDRESS = "MONAI_IELS_TEST_PROGRAMS"  # where the helper listens, for this process and its programs
RUNNING = set()


class Program:
    """A running program, with the methods of `subprocess.Popen` that the tests use.

    Args:
        target: name of a module, or a script.
        arguments: its words.
        stdout: file for what it prints.
        stderr: file for its errors; by default the same file.
        cwd: its folder.
        env: further variables of its environment.
        file_limit: largest file that it may write, in bytes.
        outlives_test: whether several tests share it; else it is killed at the end of its test.
    """

    def __init__(
        self,
        target,
        *arguments,
        stdout=os.devnull,
        stderr=None,
        cwd=None,
        env=None,
        file_limit=None,
        outlives_test=False,
    ):
        words = [str(target), *map(str, arguments)]
        start_helper()
        self.connection = Client(os.environ[ADDRESS])
        self.connection.send((words, str(cwd or Path.cwd()), {**os.environ, **(env or {})}, file_limit))
        for file in (stdout, stderr or stdout):
            with open(file, "ab") as stream:
                send_handle(self.connection, stream.fileno(), None)
        self.pid, self.returncode = self.connection.recv(), None
        if not outlives_test:
            RUNNING.add(self)

    def poll(self, timeout=0):
        if self.returncode is None and self.connection.poll(timeout):
            self.returncode = self.connection.recv()
            RUNNING.discard(self)
        return self.returncode

    def wait(self, timeout=600):
        if self.poll(timeout) is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return self.returncode

    def send_signal(self, number):
        os.kill(self.pid, number)


def kill_all():
    """End the programs that a test that failed has left behind."""
    for program in list(RUNNING):
        program.send_signal(signal.SIGKILL)
        program.wait()


def run_ranks(script, *arguments, count, stdout):
    """Run a script in several processes, each with the variables that torchrun would set."""
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(count)}
    places = [{**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]
    ranks = [Program(script, *arguments, stdout=stdout, env=place) for place in places]
    assert [rank.wait() for rank in ranks] == [0] * count, Path(stdout).read_text()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@cache
def start_helper():
    """Start the helper process, unless there is one; it ends with this one, when its input closes.

    Whoever asks it for a program before it has imported everything waits for its answer.
    """
    if ADDRESS in os.environ:
        return None
    os.environ[ADDRESS] = tempfile.mktemp(prefix="programs-")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.environ[ADDRESS])
        listener.listen()
        command = [sys.executable, __file__, str(listener.fileno())]
        return subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[listener.fileno()])


def serve(listener):
    """Import MONAI, then fork a process for each connection, until the standard input closes."""
    for module in IMPORTED:
        importlib.import_module(module)
    for module in [name for name in sys.modules if name.startswith("mlflow.server")]:
        del sys.modules[module]  # it reads the environment when it is imported, so each program imports it anew
    sys.modules["monai_iels.handlers"].LayerPictures.__init__.__defaults__ = (None, 1)  # as in conftest.py
    gc.freeze()  # else each program frees what was imported when it ends, which takes seconds
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while sys.stdin not in select.select([sys.stdin, listener], [], [])[0]:
        with Connection(listener.accept()[0].detach()) as connection:
            if os.fork() == 0:
                fork(connection)
    os.unlink(os.environ[ADDRESS])


def fork(connection):
    """Fork the program that a connection asks for; tell its number, and how it ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    question, outputs = connection.recv(), [recv_handle(connection) for _ in range(2)]
    if child := os.fork():
        connection.send(child)
        connection.send(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        os._exit(0)
    connection.close()
    become(outputs, *question)
    sys.exit()


def become(outputs, words, folder, environment, file_limit):
    """Make this process what a shell would have started, and run the program."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, file in enumerate(outputs, start=1):
        os.dup2(file, number)
    if file_limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv, sys.path[0], sys.executable = words, folder, __file__
    if words[0].endswith(".py"):
        runpy.run_path(words[0], run_name="__main__")
    else:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)


def stand_in(target, *arguments):
    """Be ``python -m target`` for the process that started this one."""
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    program = Program(target, *arguments, stdout=os.dup(1), stderr=os.dup(2))
    for number in signals:
        signal.signal(number, lambda number, frame: program.send_signal(number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    code = program.wait(None)
    for number in signals:
        signal.signal(number, signal.SIG_DFL)
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    if "-m" in sys.argv[1:3]:  # torchrun has -u before it
        stand_in(*sys.argv[sys.argv.index("-m") + 1 :])
    serve(socket.socket(fileno=int(sys.argv[1])))
