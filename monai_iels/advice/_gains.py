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

"""Gains in Dice over the U-Net alone, by error, method and data, three seeds each; a test reads them in docs/results."""

GAINS = {
    "noise at the same places": {
        "U-Net + heat layer": {"white blood cells": 0.052, "nuclei": 0.061},
        "majority filter": {"white blood cells": 0.044, "nuclei": 0.045},
        "generalized cross-entropy": {"white blood cells": 0.052, "nuclei": 0.097},
        "U-Net + guided layer": {"white blood cells": 0.045, "nuclei": 0.061},
        "T-Loss": {"white blood cells": 0.0, "nuclei": -0.062},
    },
    "noise of each image": {
        "U-Net + heat layer": {"white blood cells": 0.002},
        "majority filter": {"white blood cells": 0.0},
        "generalized cross-entropy": {"white blood cells": 0.004},
        "U-Net + guided layer": {"white blood cells": 0.001},
        "T-Loss": {"white blood cells": 0.003},
    },
    "wobbling outlines": {
        "U-Net + heat layer": {"white blood cells": 0.001},
        "majority filter": {"white blood cells": 0.0},
        "generalized cross-entropy": {"white blood cells": 0.016},
        "U-Net + guided layer": {"white blood cells": 0.004},
        "T-Loss": {"white blood cells": 0.004},
    },
    "too large or too small": {
        "U-Net + heat layer": {"white blood cells": 0.003, "nuclei": -0.023},
        "majority filter": {"white blood cells": -0.012, "nuclei": -0.07},
        "generalized cross-entropy": {"white blood cells": 0.038, "nuclei": 0.003},
        "U-Net + guided layer": {"white blood cells": 0.002, "nuclei": -0.004},
        "T-Loss": {"white blood cells": -0.018, "nuclei": -0.205},
    },
    "ragged outlines (Markov)": {
        "U-Net + heat layer": {"white blood cells": 0.005, "nuclei": -0.002},
        "majority filter": {"white blood cells": 0.0, "nuclei": -0.043},
        "generalized cross-entropy": {"white blood cells": 0.026, "nuclei": -0.011},
        "U-Net + guided layer": {"white blood cells": 0.005, "nuclei": 0.003},
        "T-Loss": {"white blood cells": 0.01, "nuclei": 0.041},
    },
    "objects left out": {
        "U-Net + heat layer": {"nuclei": -0.517},
        "majority filter": {"nuclei": -0.009},
        "generalized cross-entropy": {"nuclei": 0.012},
        "U-Net + guided layer": {"nuclei": -0.003},
        "T-Loss": {"nuclei": -0.013},
    },
    "coarse polygons, moved (COCO-N)": {
        "U-Net + heat layer": {"nuclei": -0.066},
        "majority filter": {"nuclei": -0.109},
        "generalized cross-entropy": {"nuclei": -0.009},
        "U-Net + guided layer": {"nuclei": 0.0},
        "T-Loss": {"nuclei": -0.038},
    },
    "dents": {
        "closing and hull on the labels": {"synthetic optic discs": 0.062, "nuclei with dents": 0.094},
        "U-Net + 60 steps, central": {"synthetic optic discs": 0.01, "nuclei with dents": 0.027},
    },
}
