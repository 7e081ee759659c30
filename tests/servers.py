# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Real tracking servers and real processes, for the tests."""

import base64
import os
import re
import signal
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import mlflow
from helpers import new_database, words
from helpers import options as small_options
from programs import Program, free_port


def options(name, output, **more):
    """Return the overrides of a run that takes seconds and is tracked."""
    return small_options(name, output, **{"track": True, **more})


class Server:
    """A real `mlflow server`, which can be killed and started again on the same port and database."""

    def __init__(self, folder, store=None):
        self.folder, self.port = folder, free_port()
        self.store = store or new_database(folder)
        self.uri = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        arguments = ["server", "--host", "127.0.0.1", "--port", str(self.port), "--backend-store-uri", self.store]
        arguments += ["--artifacts-destination", str(self.folder / "artifacts"), "--workers", "1"]
        log = self.folder / "server.log"
        self.process = Program("mlflow", *arguments, stdout=log, outlives_test=True)
        wait_for(lambda: answers(f"{self.uri}/health"), 120)
        started = re.findall(r"Started server process \[(\d+)\]", log.read_text())  # mlflow starts another process
        self.pids = [int(started[-1]), self.process.pid]

    def freeze(self):
        self.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.send_signal(signal.SIGCONT)

    def stop(self):
        self.send_signal(signal.SIGKILL)
        self.process.wait()
        wait_for(lambda: not answers(f"{self.uri}/health"), 20)

    def send_signal(self, number):
        for pid in self.pids:
            os.kill(pid, number)


class Gate:
    """A proxy in front of a server: it asks for a user and a password, takes its time, or lacks some pages."""

    def __init__(self, server, user=None, password=None, delay=0.0, missing="nothing"):
        self.missing = missing
        gate = self
        wanted = user and "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

        class Handler(BaseHTTPRequestHandler):
            def forward(self):
                time.sleep(delay)
                body = self.read_body()
                if self.headers.get("Authorization") != wanted:
                    return self.answer(401, b"who are you?", {})
                if gate.missing in self.path:
                    return self.answer(404, b"not found", {})
                headers = {name: self.headers[name] for name in self.headers if name != "Transfer-Encoding"}
                request = urllib.request.Request(server.uri + self.path, body, headers, method=self.command)
                try:
                    with urllib.request.urlopen(request) as reply:
                        return self.answer(reply.status, reply.read(), reply.headers)
                except urllib.error.HTTPError as error:
                    return self.answer(error.code, error.read(), error.headers)

            def read_body(self):
                """Read what was sent, with its length or, as for an empty file, in chunks."""
                if "Transfer-Encoding" not in self.headers:
                    return self.rfile.read(int(self.headers.get("Content-Length", 0))) or None
                chunks = []
                while size := int(self.rfile.readline(), 16):
                    chunks.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(chunks)

            def answer(self, status, body, headers):
                self.send_response(status)
                self.send_header("Content-Type", headers.get("Content-Type", "text/plain"))
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments):
                pass

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = forward

        self.proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.proxy.server_address[1]}"
        threading.Thread(target=self.proxy.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.proxy.shutdown()
        self.proxy.server_close()


def files_with(folder, *secrets):
    """Return the files below a folder that have one of these words in them."""
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    return [path for path in files if any(secret.encode() in path.read_bytes() for secret in secrets)]


def answers(url):
    try:
        return urllib.request.urlopen(url, timeout=1).status == 200
    except OSError:
        return False


def wait_for(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def runs_of(uri, experiment):
    client = mlflow.MlflowClient(uri)
    found = client.get_experiment_by_name(experiment)
    return client.search_runs([found.experiment_id]) if found else []


def steps_of(uri, run_id, metric):
    return [m.step for m in mlflow.MlflowClient(uri).get_metric_history(run_id, metric)]


def start_process(output, *arguments, cwd=None, **overrides):
    """Start a training in another process."""
    small = words(options("wbc", output, **overrides))
    command = ["run", "--workflow_name", "monai_iels.Training", *small, *arguments]
    return Program("monai.bundle", *command, stdout=f"{output}.log", cwd=cwd)
