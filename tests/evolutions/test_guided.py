# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Guided diffusion against heat, a dense matrix, and images with edges; and the ways the layer gets its image."""

import math

import pytest
import torch
from monai.data import MetaTensor
from torch.profiler import ProfilerActivity, profile

from monai_iels import ForwardEvolutionLayer, GuidedDiffusion, HeatDiffusion, InverseEvolutionLayer
from monai_iels.operators.conductance import conductances

SHAPES = [(9,), (6, 8), (4, 3, 5)]


def field(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def spacing_of(shape):
    return tuple(1.0 + 0.5 * axis for axis in range(len(shape)))


def smoothed(image):
    """Weights (1, 2, 1) / 4 along each axis, with the border repeated."""
    for axis in range(image.ndim):
        size = image.shape[axis]
        lower = image.index_select(axis, torch.tensor([max(i - 1, 0) for i in range(size)]))
        upper = image.index_select(axis, torch.tensor([min(i + 1, size - 1) for i in range(size)]))
        image = (lower + 2 * image + upper) / 4
    return image


def dense_matrix(image, spacing, percentile):
    """The operator of one image ``(C, *spatial)`` as a matrix, face by face."""
    channels, shape = [smoothed(channel) for channel in image], image.shape[1:]
    index = torch.arange(math.prod(shape)).reshape(shape)
    pairs = []
    for axis, h in enumerate(spacing):
        one, other = index.narrow(axis, 0, shape[axis] - 1), index.narrow(axis, 1, shape[axis] - 1)
        pairs += [(int(i), int(j), h) for i, j in zip(one.flatten(), other.flatten(), strict=True)]
    edges = [math.sqrt(sum(float(c.flatten()[i] - c.flatten()[j]) ** 2 for c in channels)) for i, j, _ in pairs]
    s = torch.tensor(edges, dtype=torch.float64).quantile(percentile / 100).item()
    matrix = torch.zeros(index.numel(), index.numel(), dtype=torch.float64)
    for (i, j, h), edge in zip(pairs, edges, strict=True):
        weight = math.exp(-((edge / s) ** 2)) / h**2
        matrix[i, j] += weight
        matrix[j, i] += weight
        matrix[i, i] -= weight
        matrix[j, j] -= weight
    return matrix


@pytest.mark.parametrize("percentile", [70, 30])
@pytest.mark.parametrize("shape", SHAPES)
def test_steps_equal_powers_of_a_dense_matrix(shape, percentile):
    image, u, spacing = field(2, 3, *shape, seed=1), field(2, 4, *shape), spacing_of(shape)
    bound = GuidedDiffusion(spacing, percentile).guided_by(image)
    evolved, velocity = bound.evolve(u, -0.1, 6), bound.velocity(u)
    for n in range(2):
        matrix = dense_matrix(image[n], spacing, percentile)
        rows = u[n].flatten(1)
        torch.testing.assert_close(velocity[n].flatten(1), rows @ matrix)
        step = torch.eye(len(matrix), dtype=torch.float64) - 0.1 * matrix
        torch.testing.assert_close(evolved[n].flatten(1), rows @ torch.linalg.matrix_power(step, 6))


@pytest.mark.parametrize("shape", SHAPES)
def test_with_a_constant_image_it_is_heat(shape):
    u, spacing = field(2, 3, *shape), spacing_of(shape)
    image = torch.full((2, 1, *shape), 0.3, dtype=torch.float64)
    expected = HeatDiffusion(spacing).evolve(u, -0.1, 5)
    torch.testing.assert_close(GuidedDiffusion(spacing).guided_by(image).evolve(u, -0.1, 5), expected)
    assert not torch.allclose(GuidedDiffusion(spacing).guided_by(field(2, 1, *shape)).evolve(u, -0.1, 5), expected)


@pytest.mark.parametrize("contrast", [1e-30, None])
def test_nothing_crosses_an_edge_of_the_image(contrast):
    u = torch.zeros(1, 1, 6, 8, dtype=torch.float64)
    u[..., 4:] = 1.0
    image = u if contrast else u + 1e-6 * field(6, 8)  # the edge is far above the 70th percentile
    evolved = GuidedDiffusion(contrast=contrast, smoothing=0).guided_by(image).evolve(u, 0.2, 50)
    torch.testing.assert_close(evolved, u)
    assert HeatDiffusion().evolve(u, 0.2, 50)[..., 4].max() < 0.9


def test_the_contrast_decides_how_much_crosses():
    image, u = torch.tensor([[[0.0, 2.0]]]), torch.tensor([[[0.0, 1.0]]])
    for contrast in (1.0, 2.0, 5.0):
        evolved = GuidedDiffusion(contrast=contrast, smoothing=0).guided_by(image).evolve(u, 0.1, 1)
        torch.testing.assert_close(evolved[0, 0, 0], torch.tensor(0.1 * math.exp(-((2 / contrast) ** 2))))


def test_a_thin_line_survives_where_the_image_has_it():
    image, u = torch.zeros(1, 1, 15, 15), torch.zeros(1, 1, 15, 15)
    image[..., 7] = u[..., 7] = 1.0
    guided = GuidedDiffusion(contrast=0.1).guided_by(image).evolve(u, 0.1, 20)
    assert guided[..., 7].min() > 0.95
    assert HeatDiffusion().evolve(u, 0.1, 20)[..., 7].max() < 0.3


def test_every_image_has_its_own_contrast():
    image, u = field(1, 1, 12, 12, seed=1), field(1, 1, 12, 12)
    expected = GuidedDiffusion().guided_by(image).evolve(u, -0.1, 3)
    both = GuidedDiffusion().guided_by(torch.cat([image, 100 * image])).evolve(torch.cat([u, u]), -0.1, 3)
    torch.testing.assert_close(both, torch.cat([expected, expected]))


def test_flat_background_does_not_change_the_contrast():
    image = torch.tensor([0.0, 1.0, 3.0, 6.0] + [6.0] * 100, dtype=torch.float64)[None, None]
    (g,) = conductances(image, percentile=50, contrast=None, smoothing=0)
    expected = torch.exp(-((torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64) / 2) ** 2))
    torch.testing.assert_close(g[0, 0, :3], expected)
    assert (g[0, 0, 3:] == 1).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_mass_is_conserved_and_constants_are_fixed(shape):
    guided = GuidedDiffusion(3.0).guided_by(field(2, 2, *shape, seed=1).float())
    u = field(2, 3, *shape).float()
    axes = tuple(range(2, u.ndim))
    torch.testing.assert_close(guided.evolve(u, -0.1, 20).sum(axes), u.sum(axes), rtol=1e-5, atol=1e-4)
    constant = torch.full_like(u, 3.3)
    torch.testing.assert_close(guided.evolve(constant, -0.1, 20), constant, rtol=1e-5, atol=0)


@pytest.mark.parametrize("shape", [(6,), (4, 5), (3, 4, 2)])
def test_backward_is_the_adjoint(shape):
    guided = GuidedDiffusion(spacing_of(shape)).guided_by(field(2, 1, *shape, seed=2))
    u, v = field(2, 2, *shape).requires_grad_(), field(2, 2, *shape, seed=1)
    (guided.evolve(u, -0.1, 7) * v).sum().backward()
    torch.testing.assert_close(u.grad, guided.evolve(v, -0.1, 7))
    assert torch.autograd.gradcheck(lambda u: guided.evolve(u, -0.1, 7), (u,))
    assert torch.autograd.gradgradcheck(lambda u: guided.evolve(u, -0.1, 7), (u,))


def test_the_image_gets_no_gradient():
    image, u = field(1, 1, 6, 6).requires_grad_(), field(1, 2, 6, 6).requires_grad_()
    GuidedDiffusion().guided_by(image).evolve(u, -0.1, 3).square().sum().backward()
    assert image.grad is None
    assert u.grad.abs().min() > 0


@pytest.mark.parametrize("steps", [1, 20, 500])
def test_only_conductances_are_kept_for_backward(steps):
    image, u = field(2, 3, 16, 16), field(2, 5, 16, 16).requires_grad_()
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.numel()), lambda _: None):
        GuidedDiffusion().guided_by(image).evolve(u, -0.001, steps)
    assert sum(saved) == 2 * 2 * 15 * 16
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        out = GuidedDiffusion().guided_by(image).evolve(u, -0.001, steps)
    assert sum(event.self_cpu_memory_usage for event in prof.key_averages()) == out.nbytes + 8 * sum(saved)


def test_the_gain_bounds_the_amplification_and_gives_the_time_step():
    layer = InverseEvolutionLayer(GuidedDiffusion(), gain=15)
    assert layer.dt == pytest.approx(InverseEvolutionLayer(HeatDiffusion(), gain=15).dt)
    assert layer.gains() == pytest.approx({2: 15})
    assert InverseEvolutionLayer(GuidedDiffusion(), gain=15, spatial_dims=3).gains() == pytest.approx({3: 15})
    matrix = dense_matrix(field(1, 5, 6), (1.0, 1.0), 70)
    growth = (1 - layer.dt * torch.linalg.eigvalsh(matrix)).abs().max() ** layer.steps
    assert 1 < growth < 15
    assert "GuidedDiffusion(spacing=1.0, percentile=70.0" in repr(layer)


@pytest.mark.parametrize("shape", [(12, 14), (6, 8, 5)])
@pytest.mark.parametrize("layer_type", [InverseEvolutionLayer, ForwardEvolutionLayer])
def test_a_compiled_layer_equals_the_eager_one(layer_type, shape):
    torch.compiler.reset()
    layer, image = layer_type(GuidedDiffusion(), 0.1, 3), field(2, 1, *shape, seed=1)
    u, v = (field(2, 3, *shape).requires_grad_() for _ in range(2))
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")(u, image)
    compiled.square().sum().backward()
    layer(v, image).square().sum().backward()
    torch.testing.assert_close(compiled, layer(v, image))
    torch.testing.assert_close(u.grad, v.grad)


def test_the_layer_runs_on_the_meta_device():
    u = torch.randn(1, 3, 12, 14, device="meta", requires_grad=True)
    out = InverseEvolutionLayer(GuidedDiffusion(), gain=15)(u, torch.randn(1, 1, 12, 14, device="meta"))
    out.sum().backward()
    assert u.grad.shape == out.shape == u.shape


def test_half_precision_integers_and_meta_tensors_are_allowed():
    image = MetaTensor((255 * torch.rand(1, 1, 9, 9)).byte())
    u = MetaTensor(field(1, 2, 9, 9).to(torch.bfloat16))
    layer = InverseEvolutionLayer(GuidedDiffusion(), gain=15)
    out = layer(u, image)
    assert isinstance(out, MetaTensor)
    assert out.dtype == torch.float32
    expected = layer(u.as_tensor().float(), image.as_tensor().float())
    torch.testing.assert_close(out.as_tensor(), expected, rtol=0, atol=0)
    assert torch.equal(InverseEvolutionLayer(GuidedDiffusion(), 0.1, 0)(expected, image), expected)


def test_an_image_of_another_size_is_averaged():
    image, u = field(1, 2, 12, 16), field(1, 3, 6, 8)
    small = torch.nn.functional.avg_pool2d(image, 2)
    layer = InverseEvolutionLayer(GuidedDiffusion(), gain=15)
    torch.testing.assert_close(layer(u, image), layer(u, small))


def test_large_images_use_a_sample_of_their_differences():
    image, u = field(1, 1, 300, 400, seed=1), field(1, 1, 300, 400)
    contrast = torch.cat([torch.diff(image, dim=axis).abs().flatten() for axis in (2, 3)]).quantile(0.7).item()
    exact = GuidedDiffusion(contrast=contrast, smoothing=0).guided_by(image).evolve(u, -0.1, 3)
    sampled = GuidedDiffusion(smoothing=0).guided_by(image).evolve(u, -0.1, 3)
    torch.testing.assert_close(sampled, exact, rtol=0.02, atol=0.02)


def test_axes_of_length_1_change_nothing():
    for shape in [(1, 5), (1, 1), (5, 1, 4)]:
        u, image = field(1, 2, *shape), field(1, 1, *shape, seed=1)
        out = GuidedDiffusion().guided_by(image).evolve(u, -0.1, 2)
        assert out.isfinite().all()
        squeezed = tuple(size for size in shape if size > 1) or (1,)
        flat = GuidedDiffusion().guided_by(image.reshape(1, 1, *squeezed)).evolve(u.reshape(1, 2, *squeezed), -0.1, 2)
        torch.testing.assert_close(out.reshape(flat.shape), flat)


def test_a_missing_image_is_named():
    with pytest.raises(ValueError, match=r"GuidedDiffusion needs an image, got none: call layer\(logits, image\)"):
        InverseEvolutionLayer(GuidedDiffusion(), gain=15)(torch.zeros(1, 2, 8, 8))


@pytest.mark.parametrize("shape", [(2, 1, 8, 8), (1, 8, 8), (1, 1, 8, 8, 8)])
def test_an_image_of_another_batch_is_refused(shape):
    with pytest.raises(
        ValueError, match=r"the image must be of shape \(B, C, \*spatial\) as the logits are, \(1, 2, 8"
    ):
        InverseEvolutionLayer(GuidedDiffusion(), gain=15)(torch.zeros(1, 2, 8, 8), torch.zeros(shape))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"percentile": 101}, "percentile"),
        ({"percentile": "70"}, "percentile"),
        ({"contrast": 0}, "contrast"),
        ({"contrast": math.inf}, "contrast"),
        ({"smoothing": -1}, "smoothing"),
        ({"smoothing": 0.5}, "smoothing"),
        ({"spacing": 0}, "spacing"),
    ],
)
def test_arguments_out_of_range_are_named(arguments, name):
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        GuidedDiffusion(**arguments)
