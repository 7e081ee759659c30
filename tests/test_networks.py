# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""IELNet around MONAI's networks."""

import copy
import pickle
from collections import OrderedDict, UserDict

import pytest
import torch
from monai.networks.nets import BasicUNet, BasicUNetPlusPlus, DynUNet, SegResNet, SegResNetVAE, UNet
from torch import nn
from torch.optim.swa_utils import AveragedModel

from monai_iels import GuidedDiffusion, HeatDiffusion, IELNet, InverseEvolutionLayer

LAYER = InverseEvolutionLayer(HeatDiffusion(2.0), dt=0.1, steps=20)

NETWORKS = {
    "BasicUNet": lambda dims: BasicUNet(dims, 1, 3, features=(4, 4, 8, 8, 8, 4)),
    "UNet": lambda dims: UNet(dims, 1, 3, channels=(4, 8, 8), strides=(2, 2)),
    "SegResNet": lambda dims: SegResNet(dims, init_filters=8, in_channels=1, out_channels=3),
    "BasicUNetPlusPlus": lambda dims: BasicUNetPlusPlus(dims, 1, 3, features=(4, 4, 8, 8, 8, 4), deep_supervision=True),
    "DynUNet with deep supervision": lambda dims: DynUNet(
        dims, 1, 3, [3] * 4, [1, 2, 2, 2], [2] * 3, filters=[4, 8, 8, 8], deep_supervision=True, deep_supr_num=2
    ),
}


def heads_of(out):
    if isinstance(out, torch.Tensor):
        return list(out.unbind(1)) if out.shape[1] == 3 and out.shape[2] == 3 else [out]
    return list(out)


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("name", NETWORKS)
def test_train_applies_the_layer_and_eval_is_the_network(name, dims):
    torch.manual_seed(0)
    network = NETWORKS[name](dims)
    net, x = IELNet(network, LAYER), torch.randn(2, 1, *[32] * dims)

    net.train()
    torch.manual_seed(1)
    bare = heads_of(network(x))
    torch.manual_seed(1)
    out = net(x)
    assert type(out) is type(network(x))
    assert len(heads_of(out)) == len(bare) == {"DynUNet with deep supervision": 3, "BasicUNetPlusPlus": 4}.get(name, 1)
    for head, plain in zip(heads_of(out), bare, strict=True):
        torch.testing.assert_close(head, LAYER(plain))
        assert not torch.allclose(head, plain)
    sum(head.square().mean() for head in heads_of(out)).backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())

    net.eval()
    with torch.no_grad():
        for head, plain in zip(heads_of(net(x)), heads_of(network(x)), strict=True):
            assert torch.equal(head, plain)


class Returns(nn.Module):
    """A network that returns what it is told to make of its input."""

    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, x, *args, **kwargs):
        return self.make(x, *args, **kwargs)


def test_heads_may_be_in_lists_tuples_and_dictionaries():
    x = torch.randn(2, 3, 16, 16)
    half = x[..., ::2, ::2]
    for make in (
        lambda x: [x, half],
        lambda x: (x, half),
        lambda x: OrderedDict(out=x, aux=half),
        lambda x: [[x], (half, None)],
    ):
        net = IELNet(Returns(make), LAYER)
        out, heads = net(x), []
        assert type(out) is type(make(x))
        torch.utils._pytree.tree_map_only(torch.Tensor, heads.append, out)
        torch.testing.assert_close(heads[0], LAYER(x))
        torch.testing.assert_close(heads[1], LAYER(half))


def test_an_auxiliary_loss_passes_through_unchanged():
    vae = SegResNetVAE(
        (16, 16), spatial_dims=2, init_filters=8, in_channels=1, out_channels=2, vae_nz=4, vae_estimate_std=False
    )
    out, loss = IELNet(vae, LAYER)(torch.randn(1, 1, 16, 16))
    assert out.shape == (1, 2, 16, 16)
    assert loss.ndim == 0


def test_further_arguments_reach_the_network():
    net = IELNet(Returns(lambda x, scale: scale * x), LAYER)
    x = torch.randn(1, 2, 8, 8)
    torch.testing.assert_close(net(x, scale=2.0), LAYER(2 * x))
    torch.testing.assert_close(net(x, 2.0), LAYER(2 * x))


def test_a_network_may_be_called_in_other_ways():
    x = torch.randn(1, 2, 8, 8)
    torch.testing.assert_close(IELNet(nn.Identity(), LAYER)(input=x), LAYER(x))
    torch.testing.assert_close(IELNet(Returns(lambda x: x["image"]), LAYER)({"image": x}), LAYER(x))
    logits, mask = IELNet(Returns(lambda x: (x, x.argmax(1, keepdim=True))), LAYER)(x)
    torch.testing.assert_close(logits, LAYER(x))
    assert torch.equal(mask, x.argmax(1, keepdim=True))


def test_an_output_without_logits_is_named():
    with pytest.raises(TypeError, match=r"the network must return logits.*got UserDict"):
        IELNet(Returns(lambda x: UserDict(out=x)), LAYER)(torch.randn(1, 2, 8, 8))
    with pytest.raises(TypeError, match="got list"):
        IELNet(Returns(lambda x: [x.mean((2, 3))]), LAYER)(torch.randn(1, 2, 8, 8))


def test_a_network_without_spatial_output_is_named():
    with pytest.raises(ValueError, match=r"must have a spatial axis.*got shape \(2, 3\)"):
        IELNet(Returns(lambda x: x.mean((2, 3))), LAYER)(torch.randn(2, 3, 8, 8))


def test_without_a_layer_it_is_the_baseline():
    network, x = NETWORKS["UNet"](2), torch.randn(1, 1, 16, 16)
    for net in (IELNet(network), IELNet(network, None)):
        assert torch.equal(net.train()(x), network(x))


def with_statistics():
    """Return a network with parameters and buffers."""
    return nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3))


def assert_equal_states(one, other):
    assert list(one) == list(other)
    assert all(torch.equal(one[key], other[key]) for key in one)


def old_state(network, prefix=""):
    """Return what the state of a wrapper was before it had the keys of its network."""
    return {f"{prefix}network.{key}": value for key, value in network.state_dict().items()}


def test_the_state_dict_is_the_network_s():
    network = with_statistics()
    net = IELNet(network, LAYER)
    assert_equal_states(net.state_dict(), network.state_dict())
    assert net.state_dict()._metadata == network.state_dict()._metadata
    assert net.state_dict(keep_vars=True)["0.weight"] is network[0].weight
    assert list(net.buffers()) == list(network.buffers())
    assert_equal_states(nn.ModuleDict({"module": net}).state_dict(), nn.ModuleDict({"module": network}).state_dict())


def test_hooks_of_the_network_s_state_run():
    network, seen = with_statistics(), []
    network.register_state_dict_pre_hook(lambda module, prefix, keep_vars: seen.append(prefix))
    network.register_state_dict_post_hook(lambda module, state, prefix, _: state.__delitem__(f"{prefix}0.bias"))
    assert "parts.net.0.bias" not in nn.ModuleDict({"parts": nn.ModuleDict({"net": IELNet(network)})}).state_dict()
    assert seen == ["parts.net."]


@pytest.mark.parametrize("state", [lambda network: network.state_dict(), old_state], ids=["plain", "older"])
@pytest.mark.parametrize("assign", [False, True])
def test_it_loads_states_of_the_network_and_older_ones_of_the_wrapper(state, assign):
    source, net = with_statistics(), IELNet(with_statistics(), LAYER)
    result = net.load_state_dict(state(source), assign=assign)
    assert not result.missing_keys
    assert not result.unexpected_keys
    assert_equal_states(net.network.state_dict(), source.state_dict())


@pytest.mark.parametrize("old", [False, True], ids=["plain", "older"])
def test_it_loads_inside_of_another_module(old):
    """As in DistributedDataParallel, where the network is ``module``, between other parts."""
    source, net = with_statistics(), IELNet(with_statistics(), LAYER)
    parent = nn.ModuleDict({"before": nn.Linear(2, 2), "module": net, "module2": nn.Linear(2, 2)})
    state = {key: value for key, value in parent.state_dict().items() if not key.startswith("module.")}
    parts = old_state(source, "module.") if old else {f"module.{key}": x for key, x in source.state_dict().items()}
    parent.load_state_dict({**state, **parts})
    assert_equal_states(net.state_dict(), source.state_dict())
    parent.load_state_dict(parent.state_dict())


def test_a_wrapper_in_a_wrapper_and_a_part_named_network():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.network = with_statistics()

    for make in (Outer, lambda: IELNet(with_statistics())):
        source, net = make(), IELNet(make(), LAYER)
        for state in (source.state_dict(), old_state(source)):
            net.load_state_dict(with_zeros(net.state_dict()))
            net.load_state_dict(state)
            assert_equal_states(net.state_dict(), source.state_dict())
            nn.ModuleList([net]).load_state_dict({f"0.{key}": value for key, value in state.items()})
            assert_equal_states(net.state_dict(), source.state_dict())


def with_zeros(state):
    return {key: torch.zeros_like(value) for key, value in state.items()}


def test_missing_and_unexpected_keys_are_named():
    net = IELNet(with_statistics(), LAYER)
    state = net.state_dict()
    state["2.weight"] = state.pop("0.weight")
    sentence = r'for Sequential:\s+Missing key.*: "0.weight".\s+Unexpected key.*: "2.weight"'
    with pytest.raises(RuntimeError, match=sentence):
        net.load_state_dict(state)
    with pytest.raises(RuntimeError, match=r"Missing key.*0\.weight"):
        net.load_state_dict(old_state(nn.Sequential(nn.Identity(), nn.BatchNorm2d(3))))
    result = net.load_state_dict(state, strict=False)
    assert result.missing_keys == ["0.weight"]
    assert result.unexpected_keys == ["2.weight"]
    with pytest.raises(RuntimeError, match=r"for ModuleList:\s+Missing key.*0\.weight.*\s+Unexpected key.*2\.weight"):
        nn.ModuleList([net]).load_state_dict({f"0.{key}": value for key, value in state.items()})
    with pytest.raises(RuntimeError, match="size mismatch"):
        net.load_state_dict({**net.state_dict(), "0.weight": torch.zeros(1)})


def test_states_survive_files_and_averages(tmp_path):
    net, other = IELNet(with_statistics(), LAYER), IELNet(with_statistics(), LAYER)
    torch.save(net.state_dict(), tmp_path / "model.pt")
    for target in (with_statistics(), other):
        target.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
        assert_equal_states(target.state_dict(), net.state_dict())
    average = AveragedModel(net)
    assert list(average.state_dict()) == ["n_averaged", *[f"module.{key}" for key in net.state_dict()]]
    average.load_state_dict(average.state_dict())
    twin = copy.deepcopy(net)
    twin.load_state_dict(with_zeros(net.state_dict()))
    assert net.network[0].weight.any()
    assert not twin.network[0].weight.any()
    torch.save(net, tmp_path / "whole.pt")
    assert_equal_states(torch.load(tmp_path / "whole.pt", weights_only=False).state_dict(), net.state_dict())


def test_copies_pickles_and_shows_the_layer():
    net, x = IELNet(NETWORKS["UNet"](2), LAYER).train(), torch.randn(2, 1, 16, 16)
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        torch.testing.assert_close(twin(x), net(x))
    assert "gain=38.3 (2-D)" in repr(net)


def test_compiled_training_and_prediction_equal_eager():
    torch.compiler.reset()
    net, x = IELNet(nn.Conv2d(1, 3, 3, padding=1), LAYER), torch.randn(2, 1, 16, 16)
    compiled = torch.compile(net, fullgraph=True)
    for mode in (True, False):
        torch.testing.assert_close(compiled.train(mode)(x), net.train(mode)(x))
    assert list(compiled.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"]
    compiled.load_state_dict(compiled.state_dict())


def test_the_network_trains():
    torch.manual_seed(0)
    image = torch.randn(4, 1, 32, 32)
    label = (nn.functional.avg_pool2d(image, 5, 1, 2)[:, 0] > 0).long()
    net = IELNet(BasicUNet(2, 1, 2, features=(8, 8, 8, 8, 8, 8)), LAYER).train()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(image), label)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


GUIDED = InverseEvolutionLayer(GuidedDiffusion(), dt=0.018, steps=20)


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_layer_that_needs_the_image_gets_the_input_of_the_network(name, dims):
    torch.manual_seed(0)
    network, x = NETWORKS[name](dims).train(), torch.randn(2, 1, *[32] * dims)
    torch.manual_seed(1)
    bare = heads_of(network(x))
    torch.manual_seed(1)
    out = heads_of(IELNet(network, GUIDED).train()(x))
    for head, plain in zip(out, bare, strict=True):
        torch.testing.assert_close(head, GUIDED(plain, x))
        assert not torch.allclose(head, GUIDED(plain, x.flip(-1)))


def test_smaller_heads_get_a_smaller_image():
    net, x = IELNet(Returns(lambda x: [x, nn.functional.avg_pool2d(x, 2)]), GUIDED).train(), torch.randn(2, 2, 16, 12)
    large, small = net(x)
    torch.testing.assert_close(large, GUIDED(x, x))
    half = nn.functional.avg_pool2d(x, 2)
    torch.testing.assert_close(small, GUIDED(half, half))


def test_the_image_may_be_a_keyword():
    x = torch.randn(1, 2, 8, 8)
    torch.testing.assert_close(IELNet(Returns(lambda x: x), GUIDED).train()(x=x), GUIDED(x, x))


def test_a_network_without_an_input_has_no_image():
    class Constant(nn.Module):
        def forward(self):
            return torch.zeros(1, 2, 8, 8)

    with pytest.raises(ValueError, match="GuidedDiffusion needs an image, got none"):
        IELNet(Constant(), GUIDED).train()()
