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
from monai_iels.transforms import BiteLabel as BiteLabel
from monai_iels.transforms import BiteLabelD as BiteLabelD
from monai_iels.transforms import BiteLabeld as BiteLabeld
from monai_iels.transforms import BiteLabelDict as BiteLabelDict
from monai_iels.transforms import CocoLabel as CocoLabel
from monai_iels.transforms import CocoLabelD as CocoLabelD
from monai_iels.transforms import CocoLabeld as CocoLabeld
from monai_iels.transforms import CocoLabelDict as CocoLabelDict
from monai_iels.transforms import CorruptLabel as CorruptLabel
from monai_iels.transforms import CorruptLabelD as CorruptLabelD
from monai_iels.transforms import CorruptLabeld as CorruptLabeld
from monai_iels.transforms import CorruptLabelDict as CorruptLabelDict
from monai_iels.transforms import CutLabel as CutLabel
from monai_iels.transforms import CutLabelD as CutLabelD
from monai_iels.transforms import CutLabeld as CutLabeld
from monai_iels.transforms import CutLabelDict as CutLabelDict
from monai_iels.transforms import Evolve as Evolve
from monai_iels.transforms import EvolveD as EvolveD
from monai_iels.transforms import Evolved as Evolved
from monai_iels.transforms import EvolveDict as EvolveDict
from monai_iels.transforms import FillHull as FillHull
from monai_iels.transforms import FillHullD as FillHullD
from monai_iels.transforms import FillHulld as FillHulld
from monai_iels.transforms import FillHullDict as FillHullDict
from monai_iels.transforms import GrowLabel as GrowLabel
from monai_iels.transforms import GrowLabelD as GrowLabelD
from monai_iels.transforms import GrowLabeld as GrowLabeld
from monai_iels.transforms import GrowLabelDict as GrowLabelDict
from monai_iels.transforms import MarkovLabel as MarkovLabel
from monai_iels.transforms import MarkovLabelD as MarkovLabelD
from monai_iels.transforms import MarkovLabeld as MarkovLabeld
from monai_iels.transforms import MarkovLabelDict as MarkovLabelDict
from monai_iels.transforms import MixAnnotators as MixAnnotators
from monai_iels.transforms import MixAnnotatorsD as MixAnnotatorsD
from monai_iels.transforms import MixAnnotatorsd as MixAnnotatorsd
from monai_iels.transforms import MixAnnotatorsDict as MixAnnotatorsDict
from monai_iels.transforms import OmitObjects as OmitObjects
from monai_iels.transforms import OmitObjectsD as OmitObjectsD
from monai_iels.transforms import OmitObjectsd as OmitObjectsd
from monai_iels.transforms import OmitObjectsDict as OmitObjectsDict
from monai_iels.transforms import OpenCloseLabel as OpenCloseLabel
from monai_iels.transforms import OpenCloseLabelD as OpenCloseLabelD
from monai_iels.transforms import OpenCloseLabeld as OpenCloseLabeld
from monai_iels.transforms import OpenCloseLabelDict as OpenCloseLabelDict
from monai_iels.transforms import PolygonLabel as PolygonLabel
from monai_iels.transforms import PolygonLabelD as PolygonLabelD
from monai_iels.transforms import PolygonLabeld as PolygonLabeld
from monai_iels.transforms import PolygonLabelDict as PolygonLabelDict
from monai_iels.transforms import ScaleLabel as ScaleLabel
from monai_iels.transforms import ScaleLabelD as ScaleLabelD
from monai_iels.transforms import ScaleLabeld as ScaleLabeld
from monai_iels.transforms import ScaleLabelDict as ScaleLabelDict
from monai_iels.transforms import WobbleLabel as WobbleLabel
from monai_iels.transforms import WobbleLabelD as WobbleLabelD
from monai_iels.transforms import WobbleLabeld as WobbleLabeld
from monai_iels.transforms import WobbleLabelDict as WobbleLabelDict
from monai_iels.warmup import Warmup as Warmup

__version__: str
