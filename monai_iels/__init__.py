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

"""Inverse Evolution Layers for MONAI: train against what a network must not produce."""

from monai_iels.evolutions import ConvexCurveMotion, CurvatureMotion, Evolution, GuidedDiffusion, HeatDiffusion
from monai_iels.layers import ForwardEvolutionLayer, InverseEvolutionLayer
from monai_iels.losses import (
    GeneralizedCrossEntropyLoss,
    GradientEnergyLoss,
    IELLoss,
    LabeledPixelsLoss,
    QuasiConcavityLoss,
)
from monai_iels.metrics import ConvexityMetric, RoughnessMetric, SetIoUMetric
from monai_iels.networks import IELNet
from monai_iels.transforms import (
    BiteLabel,
    BiteLabelD,
    BiteLabeld,
    BiteLabelDict,
    CorruptLabel,
    CorruptLabelD,
    CorruptLabeld,
    CorruptLabelDict,
    Evolve,
    EvolveD,
    Evolved,
    EvolveDict,
    FillHull,
    FillHullD,
    FillHulld,
    FillHullDict,
)
from monai_iels.warmup import Warmup

__all__ = [
    "BiteLabel",
    "BiteLabelD",
    "BiteLabelDict",
    "BiteLabeld",
    "ConvexCurveMotion",
    "ConvexityMetric",
    "CorruptLabel",
    "CorruptLabelD",
    "CorruptLabelDict",
    "CorruptLabeld",
    "CurvatureMotion",
    "Evolution",
    "Evolve",
    "EvolveD",
    "EvolveDict",
    "Evolved",
    "FillHull",
    "FillHullD",
    "FillHullDict",
    "FillHulld",
    "ForwardEvolutionLayer",
    "GeneralizedCrossEntropyLoss",
    "GradientEnergyLoss",
    "GuidedDiffusion",
    "HeatDiffusion",
    "IELLoss",
    "IELNet",
    "InverseEvolutionLayer",
    "LabeledPixelsLoss",
    "QuasiConcavityLoss",
    "RoughnessMetric",
    "SetIoUMetric",
    "Warmup",
]

__version__ = "0.1.0"
