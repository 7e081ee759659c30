# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Both layers, for every evolution and for one that a user writes."""

import copy
import math
import pickle
import warnings

import pytest
import torch
from monai.data import MetaTensor

from monai_iels import (
    ConvexCurveMotion,
    Evolution,
    ForwardEvolutionLayer,
    HeatDiffusion,
    InverseEvolutionLayer,
)
from monai_iels.evolutions.heat import _diffuse
from monai_iels.operators.marching import _moving


class Transport(Evolution):
    """A user's equation: one class, one method."""

    def velocity(self, u):
        return u.roll(1, -1) - u


EVOLUTIONS = {
    "heat": HeatDiffusion(2.0),
    "curve motion": ConvexCurveMotion(radii=(2, 4), band=2),
    "curve motion of two regions": ConvexCurveMotion(radii=(2, 4), band=2, regions=((1, 2), (2,))),
    "a user's own": Transport(),
}
every_evolution = pytest.mark.parametrize("evolution", EVOLUTIONS.values(), ids=EVOLUTIONS.keys())
both_layers = pytest.mark.parametrize("layer_type", [InverseEvolutionLayer, ForwardEvolutionLayer])


def field(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@every_evolution
def test_the_layers_run_in_opposite_directions(evolution):
    u = field(2, 3, 16, 18)
    inverse, forward = InverseEvolutionLayer(evolution, 0.1, 3), ForwardEvolutionLayer(evolution, 0.1, 3)
    torch.testing.assert_close(inverse(u), evolution.evolve(u, -0.1, 3), rtol=0, atol=0)
    torch.testing.assert_close(forward(u), evolution.evolve(u, 0.1, 3), rtol=0, atol=0)
    assert not torch.allclose(inverse(u), forward(u))


@both_layers
@every_evolution
def test_a_layer_is_the_same_in_training_and_prediction(layer_type, evolution):
    layer, u = layer_type(evolution, 0.1, 3), field(1, 3, 12, 12)
    assert torch.equal(layer.train()(u), layer.eval()(u))
    assert not layer.state_dict()
    assert not list(layer.parameters())


@every_evolution
def test_evolve_takes_euler_steps(evolution):
    u = field(2, 3, 16, 18).double()
    expected = u
    for _ in range(4):
        expected = expected - 0.05 * evolution.velocity(expected)
    torch.testing.assert_close(evolution.evolve(u, -0.05, 4), expected)


@every_evolution
def test_a_batch_equals_each_element_alone(evolution):
    u, layer = field(3, 3, 14, 15), InverseEvolutionLayer(evolution, 0.1, 4)
    torch.testing.assert_close(layer(u), torch.cat([layer(image) for image in u.split(1)]))


@every_evolution
def test_a_compiled_layer_equals_the_eager_one(evolution):
    """One graph, forward and backward; torch's own code for it, which takes long to build, is tested with a network."""
    torch.compiler.reset()
    layer, u, v = InverseEvolutionLayer(evolution, 0.1, 2), *(field(1, 3, 12, 14).requires_grad_() for _ in range(2))
    eager, compiled = layer(u), torch.compile(layer, fullgraph=True, backend="aot_eager")(v)
    torch.testing.assert_close(compiled, eager)
    eager.square().sum().backward()
    compiled.square().sum().backward()
    torch.testing.assert_close(v.grad, u.grad)


@every_evolution
def test_a_compiled_layer_may_be_scheduled(evolution):
    torch.compiler.reset()
    layer, u = InverseEvolutionLayer(evolution, 0.1, 1), field(1, 3, 12, 14)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for layer.dt in (0.1, 0.05, 0.025):
        torch.testing.assert_close(compiled(u), layer(u))
    for layer.share in (0.0, 0.5, 1.0):
        torch.testing.assert_close(compiled(u), evolution.evolve(u, -0.025 * layer.share, 1))


@every_evolution
def test_a_layer_runs_on_the_meta_device(evolution):
    u = torch.empty(2, 3, 16, 12, device="meta", requires_grad=True)
    out = InverseEvolutionLayer(evolution, 0.1, 3)(u)
    out.sum().backward()
    assert out.device.type == u.grad.device.type == "meta"
    assert out.shape == u.grad.shape == u.shape


def test_the_operations_themselves_run_on_the_meta_device():
    """The layers run them through their registered shapes there, so their own lines are run here."""
    for spatial in ((9,), (8, 9), (4, 5, 6)):
        u = torch.empty(2, 3, *spatial, device="meta")
        assert _diffuse(u, -0.1, 20, (2.0,) * len(spatial)).shape == u.shape
        assert _moving(u, (2.0, 3.0), 1.0, (1.0,) * len(spatial)).shape == u.shape


@both_layers
@every_evolution
def test_copies_and_pickles_give_the_same(layer_type, evolution):
    layer, u = layer_type(evolution, 0.1, 3), field(1, 3, 12, 12)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(twin(u), layer(u))
        assert repr(twin) == repr(layer)


@every_evolution
def test_meta_tensors_stay_meta_tensors(evolution):
    u = MetaTensor(field(1, 3, 12, 12), meta={"filename_or_obj": "case.png"}).requires_grad_()
    out = InverseEvolutionLayer(evolution, 0.1, 2)(u)
    assert isinstance(out, MetaTensor)
    assert out.meta["filename_or_obj"] == "case.png"
    torch.testing.assert_close(out.as_tensor(), evolution.evolve(u.as_tensor(), -0.1, 2), rtol=0, atol=0)
    out.sum().backward()
    assert u.grad is not None


@every_evolution
def test_zero_steps_change_nothing_and_inference_mode_works(evolution):
    u = field(1, 3, 12, 12)
    assert torch.equal(InverseEvolutionLayer(evolution, 0.1, 0)(u), u)
    layer = InverseEvolutionLayer(evolution, 0.1, 2)
    with torch.inference_mode():
        quiet = layer(u)
    torch.testing.assert_close(quiet.clone(), layer(u), rtol=0, atol=0)


def test_the_time_step_may_be_scheduled():
    layer, u = InverseEvolutionLayer(HeatDiffusion(2.0), 0.1, 5), field(1, 3, 12, 12)
    layer.dt = 0.0
    torch.testing.assert_close(layer(u), u)


def test_repr_shows_evolution_time_step_and_gain():
    assert repr(InverseEvolutionLayer(HeatDiffusion(2.0), dt=0.1, steps=20)) == (
        "InverseEvolutionLayer(HeatDiffusion(spacing=2.0), dt=0.1, steps=20, gain=38.3 (2-D), 190 (3-D))"
    )
    assert "gain=38.3 (2-D))" in repr(InverseEvolutionLayer(HeatDiffusion((2.0, 2.0)), dt=0.1, steps=20))
    assert repr(InverseEvolutionLayer(Transport(), dt=0.1, steps=20)).endswith("(Transport(), dt=0.1, steps=20)")
    assert "regions=((1, 2),)" in repr(InverseEvolutionLayer(ConvexCurveMotion(regions=[[1, 2]]), dt=0.1, steps=20))


@both_layers
@pytest.mark.parametrize("dt", [0, -0.1, math.nan, math.inf, "0.1"])
def test_dt_must_be_positive(layer_type, dt):
    with pytest.raises(ValueError, match=f"`dt` must be positive, got {dt}: "):
        layer_type(HeatDiffusion(2.0), dt, 20)


@both_layers
@pytest.mark.parametrize("steps", [-1, 2.0, "3", None])
def test_steps_must_be_a_count(layer_type, steps):
    with pytest.raises(ValueError, match=r"`steps` must be a whole number, at least 0|`dt` needs `steps`"):
        layer_type(HeatDiffusion(2.0), 0.1, steps)


@both_layers
def test_an_evolution_is_needed(layer_type):
    with pytest.raises(TypeError, match=r"`evolution` must be an Evolution such as .*, got 'heat'"):
        layer_type("heat", 0.1, 20)


def test_a_gain_that_does_not_train_is_warned_of_and_the_remedies_work():
    with pytest.warns(
        UserWarning, match=r"amplifies up to 1.27e\+05 times in 2-D.*spacing=1.987 or dt=0.0253"
    ) as caught:
        InverseEvolutionLayer(HeatDiffusion(1.0), dt=0.1, steps=20)
    assert caught[0].filename == __file__
    assert HeatDiffusion(1.987).gain(-0.1, 20, 2) == pytest.approx(40, rel=0.01)
    assert HeatDiffusion(1.0).gain(-0.0253, 20, 2) == pytest.approx(40, rel=0.01)
    with pytest.warns(UserWarning, match=r"in 3-D.*spacing=\[2.108, 4.216, 2.108\]"):
        InverseEvolutionLayer(HeatDiffusion((1.0, 2.0, 1.0)), dt=0.1, steps=20)
    with pytest.warns(UserWarning, match=r"ForwardEvolutionLayer.*For a gain of 1, use spacing=2.0 or dt=0.25"):
        ForwardEvolutionLayer(HeatDiffusion(1.0), dt=1.0, steps=20)


def test_the_warning_begins_at_a_gain_of_a_thousand():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        InverseEvolutionLayer(HeatDiffusion(2.0), dt=0.1, steps=37)
    with pytest.warns(UserWarning, match=r"1.02e\+03"):
        InverseEvolutionLayer(HeatDiffusion(2.0), dt=0.1, steps=38)


@pytest.mark.parametrize("steps", [20, 30, 35])
def test_the_paper_s_settings_do_not_warn(steps):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        InverseEvolutionLayer(HeatDiffusion(2.0), dt=0.1, steps=steps)
        InverseEvolutionLayer(ConvexCurveMotion(), dt=0.1, steps=60)


@pytest.mark.parametrize("spacing", [1.0, 2.0, (1.0, 3.0), (1.0, 1.0, 2.5)])
@pytest.mark.parametrize("steps", [None, 11])
def test_a_gain_is_what_the_worst_detail_is_amplified_by(spacing, steps):
    """A checkerboard is amplified by the gain in 2-D and 3-D, however it is made."""
    for dims in (1, 2, 3) if isinstance(spacing, float) else (len(spacing),):
        layer = InverseEvolutionLayer(HeatDiffusion(spacing), steps=steps, gain=15, spatial_dims=dims)
        axes = torch.meshgrid(*[torch.arange(6)] * dims, indexing="ij")
        checkerboard = (1.0 - 2.0 * (sum(axes) % 2))[None, None].double()
        grown = [layer(checkerboard).abs().max(), layer(torch.ones_like(checkerboard)).abs().max()]
        # The finest mode of a grid of six pixels is nearly the checkerboard: sin(5 pi / 12)^2 of its eigenvalue.
        assert 9 < grown[0] <= 15
        assert grown[1] == pytest.approx(1)
        assert layer.gains() == pytest.approx({dims: 15})
        assert layer.steps == (steps or 20)


def test_a_layer_knows_its_dimension_where_it_can():
    heat, slices = HeatDiffusion(2.0), HeatDiffusion((2.0, 2.0, 2.5))
    assert InverseEvolutionLayer(heat, 0.1, 20).spatial_dims is None
    assert InverseEvolutionLayer(ConvexCurveMotion(), reach=2).spatial_dims is None
    assert InverseEvolutionLayer(heat, 0.1, 20, spatial_dims=3).spatial_dims == 3
    assert InverseEvolutionLayer(slices, 0.1, 20).spatial_dims == 3
    assert InverseEvolutionLayer(slices, gain=15).spatial_dims == 3
    assert InverseEvolutionLayer(heat, gain=15).spatial_dims == 2
    assert InverseEvolutionLayer(heat, gain=15, spatial_dims=3).spatial_dims == 3
    assert InverseEvolutionLayer(heat, gain=15).dt == InverseEvolutionLayer(heat, gain=15, spatial_dims=2).dt
    assert set(InverseEvolutionLayer(heat, 0.1, 20).gains()) == {2, 3}
    assert set(InverseEvolutionLayer(heat, 0.1, 20, spatial_dims=3).gains()) == {3}


@both_layers
def test_logits_of_another_dimension_are_refused_with_the_remedy(layer_type):
    image, volume, heat = field(1, 2, 6, 6), field(1, 2, 6, 6, 6), HeatDiffusion(2.0)
    sentence = r"logits must be 2-D as the layer is, got 3-D ones of shape \(1, 2, 6, 6, 6\): build .* spatial_dims=3"
    with pytest.raises(ValueError, match=sentence):
        layer_type(heat, 0.1, 2, spatial_dims=2)(volume)
    with pytest.raises(ValueError, match=r"logits must be 3-D.*spatial_dims=2"):
        layer_type(heat, 0.1, 2, spatial_dims=3)(image)
    with pytest.raises(ValueError, match="`spacing` must have one value for each of 3 spatial axes"):
        layer_type(HeatDiffusion((2.0, 2.0)), 0.1, 2)(volume)
    with pytest.raises(ValueError, match="logits must have a spatial axis"):
        layer_type(heat, 0.1, 2, spatial_dims=2)(image[0, 0])
    layer_type(heat, 0.1, 2, spatial_dims=3)(volume)
    for u in (image, volume):
        torch.testing.assert_close(layer_type(heat, 0.1, 2)(u), layer_type(heat, 0.1, 2, spatial_dims=u.ndim - 2)(u))


def test_a_gain_in_2d_refuses_volumes():
    """Its time step would be too large for them."""
    with pytest.raises(ValueError, match="build the layer with spatial_dims=3"):
        InverseEvolutionLayer(HeatDiffusion(), gain=15)(field(1, 2, 6, 6, 6))


@both_layers
@pytest.mark.parametrize(
    ("spacing", "dims", "message"),
    [
        ((1.0, 1.0), 3, r"one value for each of spatial_dims=3 axes, got HeatDiffusion\(spacing=\(1.0, 1.0\)\)"),
        (1.0, 0, "`spatial_dims` must be 1, 2 or 3, got 0"),
        (1.0, "2", "`spatial_dims` must be 1, 2 or 3, got '2'"),
    ],
)
def test_an_impossible_dimension_is_refused(layer_type, spacing, dims, message):
    with pytest.raises(ValueError, match=message):
        layer_type(HeatDiffusion(spacing), 0.01, 2, spatial_dims=dims)


def test_a_reach_is_how_far_an_outline_moves():
    """A straight side of a dent moves by the reach, in pixels or in millimeters, in steps of a tenth of a pixel."""
    for spacing, reach in ((1.0, 4.0), (0.5, 2.0), ((0.5, 0.5), 3.0)):
        h = spacing if isinstance(spacing, float) else spacing[0]
        motion = ConvexCurveMotion((8 * h,), 3 * h, ((0,),), "sigmoid", spacing)
        layer = ForwardEvolutionLayer(motion, reach=reach)
        assert layer.steps == round(10 * reach / h)
        assert layer.dt * layer.steps == pytest.approx(reach)
        y, x = (torch.arange(80) * h for _ in range(2))
        slot = torch.maximum(y[:, None] - 40 * h, (x - 40 * h).abs()[None] - 3 * h)  # three pixels to each side
        filled = layer(slot[None, None])[0, 0]
        assert (slot[38, 37:44] < 0).sum() == 5
        assert ((filled[38, 37:44] < 0).sum() == 0) == (reach > 3 * h)
    assert InverseEvolutionLayer(ConvexCurveMotion(), steps=20, reach=6).dt == pytest.approx(0.3)
    assert InverseEvolutionLayer(ConvexCurveMotion(spacing=(2.5, 0.5, 1.0)), reach=2).steps == 40


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "a layer needs one of `gain`, `reach`, or `dt` with `steps`, got none"),
        ({"dt": 0.1}, "`dt` needs `steps`"),
        ({"dt": 0.1, "steps": 2, "gain": 15}, "got dt and gain"),
        ({"gain": 15, "reach": 2}, "got gain and reach"),
        ({"gain": 0.5}, "`gain` must be at least 1, got 0.5"),
        ({"gain": "15"}, "`gain` must be at least 1, got '15'"),
        ({"reach": 2}, r"`reach` is for outlines that move, got HeatDiffusion\(spacing=2.0\)"),
    ],
)
def test_a_strength_is_given_in_one_way(arguments, message):
    with pytest.raises(ValueError, match=message):
        InverseEvolutionLayer(HeatDiffusion(2.0), **arguments)
    with pytest.raises(ValueError, match="`gain` needs an evolution whose gain is known, got ConvexCurveMotion"):
        InverseEvolutionLayer(ConvexCurveMotion(), gain=15)
    with pytest.raises(ValueError, match="`reach` must be at least 0, got -1"):
        InverseEvolutionLayer(ConvexCurveMotion(), reach=-1)


@every_evolution
@pytest.mark.parametrize("strength", [{"gain": 1}, {"gain": 1, "steps": 20}, {"reach": 0}, {"reach": 0.0, "steps": 5}])
def test_a_gain_of_1_and_a_reach_of_0_turn_a_layer_off(evolution, strength):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer = InverseEvolutionLayer(evolution, **strength)
    for u in (field(1, 3, 12, 12), field(1, 3, 6, 6, 6)):
        assert layer(u) is u
    assert layer.is_idle
    assert layer.steps == 0
    assert set(layer.gains().values()) <= {1.0}
    assert repr(layer).startswith(f"InverseEvolutionLayer({evolution}, dt=1, steps=0")


def test_zero_steps_turn_a_layer_off_beside_a_gain_or_a_reach():
    for evolution, strength in ((HeatDiffusion(2.0), {"gain": 15}), (ConvexCurveMotion(), {"reach": 2})):
        layer, u = InverseEvolutionLayer(evolution, steps=0, **strength), field(1, 3, 12, 12)
        assert layer.is_idle
        assert layer(u) is u


@both_layers
@every_evolution
def test_a_share_of_a_layer_takes_that_share_of_its_time_step(layer_type, evolution):
    layer, u = layer_type(evolution, 0.1, 3), field(1, 3, 12, 12)
    assert layer.share == 1
    layer.share = 0.0
    assert layer(u) is u
    for share in (0.5, 1.0):
        layer.share = share
        torch.testing.assert_close(layer(u), evolution.evolve(u, layer.direction * 0.1 * share, 3), rtol=0, atol=0)
        assert layer.dt == 0.1


def test_gains_and_repr_are_those_of_the_share():
    layer = InverseEvolutionLayer(HeatDiffusion(2.0), 0.1, 20, spatial_dims=2)
    layer.share = 0.5
    assert layer.gains() == {2: HeatDiffusion(2.0).gain(-0.05, 20, 2)}
    assert "dt=0.1, steps=20, share=0.5, gain=6.73 (2-D)" in repr(layer)


def test_a_velocity_of_another_shape_is_named():
    class Wrong(Evolution):
        def velocity(self, u):
            return u[..., :1]

    with pytest.raises(ValueError, match=r"Wrong.velocity must return the shape of its input, \(1, 1, 4, 4\)"):
        Wrong().evolve(torch.zeros(1, 1, 4, 4), 0.1, 1)
    with pytest.raises(TypeError, match="abstract"):
        Evolution()
