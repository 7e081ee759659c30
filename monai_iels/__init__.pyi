# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The public names and their rooms: for type checkers, editors and ``__init__.py``, which loads them."""

from monai_iels.evolutions import ConvexCurveMotion as ConvexCurveMotion
from monai_iels.evolutions import Evolution as Evolution
from monai_iels.evolutions import GuidedDiffusion as GuidedDiffusion
from monai_iels.evolutions import HeatDiffusion as HeatDiffusion
from monai_iels.layers import ForwardEvolutionLayer as ForwardEvolutionLayer
from monai_iels.layers import InverseEvolutionLayer as InverseEvolutionLayer
from monai_iels.losses import GradientEnergyLoss as GradientEnergyLoss
from monai_iels.losses import IELLoss as IELLoss
from monai_iels.losses import LabeledPixelsLoss as LabeledPixelsLoss
from monai_iels.losses import QuasiConcavityLoss as QuasiConcavityLoss
from monai_iels.metrics import ConvexityMetric as ConvexityMetric
from monai_iels.metrics import RoughnessMetric as RoughnessMetric
from monai_iels.metrics import SetIoUMetric as SetIoUMetric
from monai_iels.networks import IELNet as IELNet
from monai_iels.robust_losses import BootstrappedCrossEntropyLoss as BootstrappedCrossEntropyLoss
from monai_iels.robust_losses import GeneralizedCrossEntropyLoss as GeneralizedCrossEntropyLoss
from monai_iels.robust_losses import SpatialLabelSmoothingLoss as SpatialLabelSmoothingLoss
from monai_iels.robust_losses import StudentTLoss as StudentTLoss
from monai_iels.robust_losses import SymmetricCrossEntropyLoss as SymmetricCrossEntropyLoss
from monai_iels.runs import Evaluation as Evaluation
from monai_iels.runs import Inference as Inference
from monai_iels.runs import Training as Training
from monai_iels.transforms.array import BiteLabel as BiteLabel
from monai_iels.transforms.array import CorruptLabel as CorruptLabel
from monai_iels.transforms.array import Evolve as Evolve
from monai_iels.transforms.array import FillHull as FillHull
from monai_iels.transforms.array import OpenCloseLabel as OpenCloseLabel
from monai_iels.transforms.dictionary import BiteLabeld as BiteLabeld
from monai_iels.transforms.dictionary import CocoLabeld as CocoLabeld
from monai_iels.transforms.dictionary import CorruptLabeld as CorruptLabeld
from monai_iels.transforms.dictionary import CutLabeld as CutLabeld
from monai_iels.transforms.dictionary import Evolved as Evolved
from monai_iels.transforms.dictionary import FillHulld as FillHulld
from monai_iels.transforms.dictionary import GrowLabeld as GrowLabeld
from monai_iels.transforms.dictionary import LabelErrord as LabelErrord
from monai_iels.transforms.dictionary import MarkovLabeld as MarkovLabeld
from monai_iels.transforms.dictionary import MixAnnotatorsd as MixAnnotatorsd
from monai_iels.transforms.dictionary import OmitObjectsd as OmitObjectsd
from monai_iels.transforms.dictionary import OpenCloseLabeld as OpenCloseLabeld
from monai_iels.transforms.dictionary import PolygonLabeld as PolygonLabeld
from monai_iels.transforms.dictionary import ScaleLabeld as ScaleLabeld
from monai_iels.transforms.dictionary import WobbleLabeld as WobbleLabeld
from monai_iels.transforms.label_errors import CocoLabel as CocoLabel
from monai_iels.transforms.label_errors import CutLabel as CutLabel
from monai_iels.transforms.label_errors import GrowLabel as GrowLabel
from monai_iels.transforms.label_errors import MarkovLabel as MarkovLabel
from monai_iels.transforms.label_errors import MixAnnotators as MixAnnotators
from monai_iels.transforms.label_errors import OmitObjects as OmitObjects
from monai_iels.transforms.label_errors import PolygonLabel as PolygonLabel
from monai_iels.transforms.label_errors import ScaleLabel as ScaleLabel
from monai_iels.transforms.label_errors import WobbleLabel as WobbleLabel
from monai_iels.warmup import Warmup as Warmup

__version__: str
