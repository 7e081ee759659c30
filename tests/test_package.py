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

"""What the package shows: its public names, and nothing that could be taken for a component of MONAI's."""

import importlib
import inspect
import pkgutil

import monai.bundle
import pytest

import monai_iels

MODULES = [m.name for m in pkgutil.walk_packages(monai_iels.__path__, "monai_iels.")]


def test_public_names():
    assert monai_iels.__all__ == [
        "ConvexCurveMotion",
        "ConvexityMetric",
        "CorruptLabel",
        "CorruptLabelD",
        "CorruptLabelDict",
        "CorruptLabeld",
        "Evolution",
        "Evolve",
        "EvolveD",
        "EvolveDict",
        "Evolved",
        "ForwardEvolutionLayer",
        "GeneralizedCrossEntropyLoss",
        "GradientEnergyLoss",
        "HeatDiffusion",
        "IELNet",
        "InverseEvolutionLayer",
        "RoughnessMetric",
    ]
    for name in monai_iels.__all__:
        assert inspect.getdoc(getattr(monai_iels, name))


@pytest.mark.parametrize("name", MODULES)
def test_all_is_exact(name):
    module = importlib.import_module(name)
    exported = getattr(module, "__all__", [])
    assert exported == sorted(exported, key=lambda key: (not key.isupper(), not key[0].isupper(), key))
    own = {
        key
        for key, value in vars(module).items()
        if not key.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == name
    }
    assert own <= set(exported)
    assert all(hasattr(module, key) for key in exported)


def test_no_name_is_one_of_monai_s():
    locator = monai.bundle.ComponentLocator(excludes=["monai_iels"])
    assert locator.get_component_module_name("BasicUNet")
    theirs = set(locator._components_table)
    for name in MODULES:
        module = importlib.import_module(name)
        ours = {
            key
            for key, value in vars(module).items()
            if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__ == name
        }
        assert not {key for key in ours & theirs if not key.startswith("_")}


def test_a_bundle_finds_the_components():
    config = {
        "net": {
            "_target_": "monai_iels.IELNet",
            "network": {"_target_": "torch.nn.Identity"},
            "layer": {
                "_target_": "monai_iels.InverseEvolutionLayer",
                "evolution": {"_target_": "monai_iels.HeatDiffusion", "spacing": [2, 2]},
                "dt": 0.1,
                "steps": 20,
            },
        }
    }
    net = monai.bundle.ConfigParser(config).get_parsed_content("net")
    assert net.layer.evolution == monai_iels.HeatDiffusion((2.0, 2.0))
