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

"""Gains in Dice over the U-Net alone, by error, method and data, three seeds each, as in ``docs/results``."""

GAINS = {
    "noise at the same places": {
        "flips": {"white blood cells": 0.053, "nuclei": 0.185},
        "generalized cross-entropy": {"white blood cells": 0.052, "nuclei": 0.174, "hippocampi": 0.029},
        "U-Net + heat layer": {"white blood cells": 0.052, "nuclei": 0.121, "hippocampi": 0.019},
        "majority filter": {"white blood cells": 0.044, "nuclei": 0.111, "hippocampi": 0.027},
    },
    "noise of each image": {
        "generalized cross-entropy": {"white blood cells": 0.004},
    },
    "too large or too small": {
        "generalized cross-entropy": {"white blood cells": 0.044, "nuclei": 0.015, "hippocampi": -0.009},
    },
    "ragged outlines (Markov)": {
        "T-Loss": {"white blood cells": 0.004, "nuclei": 0.027, "hippocampi": 0.023},
        "generalized cross-entropy": {"white blood cells": 0.01, "nuclei": -0.014, "hippocampi": 0.01},
        "U-Net + guided layer": {"white blood cells": 0.009, "nuclei": 0.005},
    },
    "coarse polygons, moved (COCO-N)": {
        "generalized cross-entropy": {"nuclei": 0.01},
        "U-Net + guided layer": {"nuclei": 0.004},
    },
    "slices that disagree": {
        "U-Net + heat layer across slices": {"hippocampi": 0.0},
    },
    "dents": {
        "closing and hull on the labels": {"synthetic optic discs": 0.062, "nuclei with dents": 0.094},
        "U-Net + 60 steps, central": {"synthetic optic discs": 0.01, "nuclei with dents": 0.027},
    },
}
