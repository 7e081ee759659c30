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
        "flips": {"nuclei": 0.227},
        "generalized cross-entropy": {"white blood cells": 0.052, "nuclei": 0.097, "hippocampi": 0.023},
        "U-Net + heat layer": {"white blood cells": 0.052, "nuclei": 0.061, "hippocampi": 0.016},
        "majority filter": {"white blood cells": 0.044, "nuclei": 0.045, "hippocampi": 0.023},
    },
    "noise of each image": {
        "generalized cross-entropy": {"white blood cells": 0.004},
    },
    "too large or too small": {
        "generalized cross-entropy": {"white blood cells": 0.038, "nuclei": 0.003, "hippocampi": -0.006},
    },
    "ragged outlines (Markov)": {
        "T-Loss": {"white blood cells": 0.01, "nuclei": 0.041, "hippocampi": 0.026},
        "generalized cross-entropy": {"white blood cells": 0.026, "nuclei": -0.011, "hippocampi": 0.011},
        "U-Net + guided layer": {"white blood cells": 0.005, "nuclei": 0.003},
    },
    "coarse polygons, moved (COCO-N)": {
        "generalized cross-entropy": {"nuclei": -0.009},
        "U-Net + guided layer": {"nuclei": 0.0},
    },
    "slices that disagree": {
        "U-Net + heat layer across slices": {"hippocampi": 0.001},
    },
    "dents": {
        "closing and hull on the labels": {"synthetic optic discs": 0.062, "nuclei with dents": 0.094},
        "U-Net + 60 steps, central": {"synthetic optic discs": 0.01, "nuclei with dents": 0.027},
    },
}
