# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Measure a served model: one large image, sixteen clients at once, and the memory that is left after.

Run ``python benchmarks/serving.py``. It trains a small network on synthetic images, registers and serves it on this
machine, and prints seconds, ratios and megabytes of one run.
"""

import base64
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from monai_iels import Training
from monai_iels.tracking import local_database

BUNDLE = Path(__file__).parents[1] / "bundles" / "wbc"
FEATURES = [16, 32, 64, 128, 256, 16]


def main() -> None:
    """Train, serve, and print a table."""
    with tempfile.TemporaryDirectory() as folder:
        uri = local_database(folder)
        train(folder, uri)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", "models:/cells-predict/1"]
        environment = {**os.environ, "MLFLOW_TRACKING_URI": uri, "OMP_NUM_THREADS": "1"}
        environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        with open(os.devnull, "w") as log:
            server = subprocess.Popen(
                [*command, "-p", str(port), "--env-manager", "local"],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            measure(f"http://127.0.0.1:{port}", server.pid)
        finally:
            os.killpg(server.pid, signal.SIGTERM)


def train(folder: str, tracking_uri: str) -> None:
    """Train one epoch of a small network, and register it."""
    settings: dict[str, Any] = {"output_dir": folder, "features": FEATURES, "epochs": 1, "sample_count": 20}
    Training(BUNDLE, tracking_uri=tracking_uri, register_model="cells", **settings).run()


def measure(address: str, group: int) -> None:
    """Ask the server, and print what it took."""
    wait_for(f"{address}/ping")
    ask(address, picture(100))
    before = memory(group)
    image = picture(2000)
    served = seconds(lambda: ask(address, image))
    start = time.monotonic()
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: ask(address, image), range(16)))
    together = time.monotonic() - start
    time.sleep(2)
    rows = [
        ("2000x2000 PNG in, PNG out, over HTTP", f"{served:.1f} s", "10 s"),
        ("16 clients at once over 16 times one", f"{together / (16 * served):.2f}", "1"),
        ("clients of 16 that got the same labels", str(sum(a == answers[0] for a in answers)), "16"),
        ("memory of the server after over before", f"{memory(group) / before:.2f}", ""),
    ]
    print(f"features {FEATURES}, one thread per process\n\n| | measured | goal |\n|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


def picture(side: int) -> str:
    """Return a PNG of soft blobs in base64."""
    noise = np.random.default_rng(0).integers(0, 255, (side // 8, side // 8, 3), np.uint8)
    stream = io.BytesIO()
    Image.fromarray(noise).resize((side, side)).save(stream, "PNG")
    return base64.b64encode(stream.getvalue()).decode()


def ask(address: str, image: str) -> Any:
    """Return the label of one image, as a file in base64."""
    content = {"dataframe_split": {"columns": ["image"], "data": [[image]]}, "params": {"format": "file"}}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{address}/invocations", json.dumps(content).encode(), headers)
    with urllib.request.urlopen(request, timeout=300) as response:
        return json.load(response)["predictions"][0]["label"]


def seconds(work: Any) -> float:
    """Return the best of three."""
    times = []
    for _ in range(3):
        start = time.monotonic()
        work()
        times.append(time.monotonic() - start)
    return min(times)


def memory(group: int) -> float:
    """Return the resident memory of the largest process of a group, in megabytes."""
    found = subprocess.run(["ps", "-o", "rss=", "-g", str(group)], capture_output=True, text=True, check=True)
    return max(map(int, found.stdout.split())) / 1024


def wait_for(address: str) -> None:
    """Wait for the server, but not for ever."""
    for _ in range(600):
        try:
            urllib.request.urlopen(address, timeout=1)
            return
        except OSError:
            time.sleep(0.2)
    raise TimeoutError(f"{address} does not answer.")


if __name__ == "__main__":
    main()
