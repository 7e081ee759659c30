# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The warm-up, against the schedule of MONAI that the bundles had, and against what a layer then does."""

import pytest
import torch
from monai.handlers import ParamSchedulerHandler

from monai_iels import HeatDiffusion, IELLoss, IELNet, InverseEvolutionLayer, Warmup


def layer(gain=15.0):
    return InverseEvolutionLayer(HeatDiffusion(), gain=gain)


@pytest.mark.parametrize("epochs", [0, 1, 4, 7, 20])
def test_it_is_monai_s_linear_schedule(epochs):
    """Numbers of trainings that were measured with it stay the same."""
    warmed, full = layer(), layer().dt
    warmup = Warmup(warmed, epochs)
    for epoch in range(epochs + 4):
        warmup(epoch)
        expected = ParamSchedulerHandler._linear(0.0, epochs // 2, epochs + 1, full, epoch + 1)
        assert warmed.dt * warmed.share == pytest.approx(expected, rel=1e-15, abs=0)
        assert warmed.dt == full
    assert warmed.share == 1
    warmup(0)  # a training that starts anew
    assert warmed.share == (0 if epochs > 1 else 1 / (epochs + 1))


def test_a_layer_is_off_then_grows_then_is_itself():
    u = torch.rand(1, 2, 8, 8, dtype=torch.float64)
    warmed = layer()
    warmup = Warmup(warmed, 4)
    distances = []
    for epoch in range(6):
        warmup(epoch)
        distances.append(float((warmed(u) - u).norm()))
    assert distances[:2] == pytest.approx([0, 0], abs=1e-12)
    assert 0 < distances[2] < distances[3] < distances[4] == distances[5]
    torch.testing.assert_close(warmed(u), layer()(u), rtol=0, atol=0)


@pytest.mark.parametrize(
    "container",
    [
        lambda *layers: torch.nn.ModuleList(layers),
        lambda *layers: IELLoss(torch.nn.CrossEntropyLoss(), layers),
        lambda *layers: torch.nn.Sequential(*[IELNet(torch.nn.Identity(), layer) for layer in layers]),
    ],
)
def test_all_layers_of_a_module_warm_up_each_to_its_own_strength(container):
    layers = [layer(5), layer(20)]
    warmup = Warmup(container(*layers), 2)
    assert warmup.layers == layers
    for epoch, share in enumerate([0, 0.5, 1]):
        warmup(epoch)
        assert [layer.share for layer in layers] == [share, share]
        assert [layer.gains()[2] for layer in layers] == pytest.approx(
            [(1 + share * (gain ** (1 / 20) - 1)) ** 20 for gain in (5, 20)]
        )


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_a_second_warmup_of_a_layer_warms_it_up_anew(epoch):
    """As when a cell of a notebook is run again, whenever the first one was interrupted."""
    net = IELNet(torch.nn.Identity(), layer())
    Warmup(net, 4)(epoch)
    second, u = Warmup(net, 4), torch.rand(1, 2, 8, 8, dtype=torch.float64)
    second(0)
    torch.testing.assert_close(net(u), u)
    second(4)
    assert torch.equal(net(u), layer()(u))


def test_what_cannot_warm_up_is_refused():
    with pytest.raises(ValueError, match="`epochs` must be a whole number, at least 0, got -1"):
        Warmup(layer(), -1)
    with pytest.raises(ValueError, match=r"got 2\.5"):
        Warmup(layer(), 2.5)
    with pytest.raises(ValueError, match="`module` must be an InverseEvolutionLayer or have one in it, got Identity"):
        Warmup(torch.nn.Identity(), 3)
