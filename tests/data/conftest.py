# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Small synthetic sets, copies of them to be damaged, and a server for downloads."""

import dataclasses
import http.server
import shutil
import threading
import time
from pathlib import Path

import pytest
from data_sets import SMALL, read_wbc

from monai_iels.data import SOURCES, fingerprint


@pytest.fixture(scope="session")
def drawn(tmp_path_factory):
    """Make a small synthetic set of each, below one folder."""
    folder = tmp_path_factory.mktemp("drawn")
    for name, (count, size) in SMALL.items():
        SOURCES[name].synthesize(folder / name, count, seed=3, size=size)
    return folder


@pytest.fixture
def copy(drawn, tmp_path):
    """Return a function that copies a synthetic set, to be damaged."""
    return lambda name: Path(shutil.copytree(drawn / name, tmp_path / name))


class Server(http.server.ThreadingHTTPServer):
    """A file server that sends only ``limit`` bytes of a file, then hangs or hangs up."""

    def __init__(self, folder):
        self.folder, self.limit, self.hang, self.requests = folder, None, False, 0
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def url(self, name):
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = self.server.folder / Path(self.path).name
        if not path.exists():
            return self.send_error(404)
        data = path.read_bytes()
        self.server.requests += 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: self.server.limit])
        self.wfile.flush()
        if self.server.hang:
            time.sleep(30)
        return None

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(drawn, tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()
    shutil.make_archive(str(folder / "master"), "zip", drawn / "wbc")
    server = Server(folder)
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def known(drawn, monkeypatch, tmp_path):
    """Make the synthetic set the official one."""
    archive = {**SOURCES["wbc"].archive, "contents": fingerprint(read_wbc(drawn / "wbc"))}
    monkeypatch.setitem(SOURCES, "wbc", dataclasses.replace(SOURCES["wbc"], archive=archive))
    return tmp_path / "downloaded"
