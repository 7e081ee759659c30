# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""What the tests of the registry share: a network without the bundle, and images as a service takes them."""

import base64
import io
import json
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from monai.bundle import ConfigParser
from PIL import Image


def network_of(output):
    args = json.loads((output / "inference.json").read_text())
    config = {**ConfigParser.load_config_file(Path(args["bundle_root"]) / "configs" / "inference.json"), **args}
    network = ConfigParser(config).get_parsed_content("network_def")
    network.load_state_dict(torch.load(output / "model.pt", weights_only=True))
    return network.eval()


def in_base64(image, form="PNG"):
    stream = io.BytesIO()
    image.save(stream, form)
    return base64.b64encode(stream.getvalue()).decode()


def table(*cells):
    return pd.DataFrame({"image": list(cells)})


def decoded(text):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(text))))


def dice(found, expected):
    """Return the mean Dice over the classes of the data set."""
    pairs = [(found == value, expected == value) for value in (0, 128, 255)]
    return np.mean([2 * (a & b).sum() / (a.sum() + b.sum()) for a, b in pairs])


def post(url, content):
    request = urllib.request.Request(url, json.dumps(content).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
