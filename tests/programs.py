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

"""Programs in processes of their own, without the ten seconds that each would need to import MONAI.

A helper process imports MONAI once. For every program it forks a process, which then runs the module or script as
``python -m`` does: with its own folder, environment, output files, signals and exit code.
"""

import importlib
import os
import resource
import runpy
import signal
import socket
import subprocess
import sys
import time
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

IMPORTED = ("monai.bundle", "monai_iels.bundle", "monai_iels.study", "fire", "torch._dynamo")
IMPORTED += ("mlflow.store.tracking.sqlalchemy_store",)


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
    """

    def __init__(self, target, *arguments, stdout=os.devnull, stderr=None, cwd=None, env=None, file_limit=None):
        words = [str(target), *map(str, arguments)]
        files = [str(stdout), str(stderr or stdout)]
        environment = {**os.environ, **(env or {})}
        self.pid = ask((words, files, str(cwd or Path.cwd()), environment, file_limit))
        self.returncode = None

    def poll(self):
        if self.returncode is None:
            self.returncode = ask(self.pid)
        return self.returncode

    def wait(self, timeout=600):
        end = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.01)
        return self.returncode

    def send_signal(self, number):
        os.kill(self.pid, number)


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
def helper():
    """Start the helper process; it ends with this one, when its connection closes."""
    ours, its = Pipe()
    subprocess.Popen([sys.executable, __file__, str(its.fileno())], pass_fds=[its.fileno()])
    its.close()
    return ours


def ask(question):
    helper().send(question)
    return helper().recv()


def serve(connection):
    """Answer questions: a number asks for the exit code of that process, anything else starts one.

    Returns:
        In the process that is to run the program: what to run.
    """
    while True:
        try:
            question = connection.recv()
        except EOFError:
            sys.exit()
        if isinstance(question, int):
            done, status = os.waitpid(question, os.WNOHANG)
            connection.send(os.waitstatus_to_exitcode(status) if done else None)
        elif child := os.fork():
            connection.send(child)
        else:
            connection.close()
            return question


def become(words, files, folder, environment, file_limit):
    """Make this process what a shell would have started, and run the program."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    if file_limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv, sys.path[0] = words, folder
    if words[0].endswith(".py"):
        runpy.run_path(words[0], run_name="__main__")
    else:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    for module in IMPORTED:
        importlib.import_module(module)
    become(*serve(Connection(int(sys.argv[1]))))
