# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Convex curve motion on shapes whose convexity is known, and on textures within a dent."""

import math

import pytest
import torch
from evolutions.shapes import CRESCENT, DISK, NOTCHED, SIZE, X, Y, field, of_one_channel
from skimage.measure import regionprops
from torch.nn.functional import softplus

pytestmark = pytest.mark.usefixtures("way")


def rotated(degrees, level):
    angle = math.radians(degrees)
    return level(X * math.cos(angle) + Y * math.sin(angle), Y * math.cos(angle) - X * math.sin(angle))


@pytest.mark.parametrize("shift", [0.0, 0.3, 0.5])
def test_digital_disks_are_convex_at_every_size(shift):
    radii = torch.arange(1, 40, 0.5, dtype=torch.float64)[:, None, None]
    disks = radii - ((X - shift) ** 2 + (Y - shift) ** 2).sqrt()
    assert not of_one_channel().concave(disks[:, None]).any()


@pytest.mark.parametrize("degrees", range(0, 90, 10))
def test_digital_rectangles_and_ellipses_are_convex_at_every_angle(degrees):
    motion = of_one_channel()
    rectangle = rotated(degrees, lambda a, b: torch.minimum(30 - a.abs(), 12 - b.abs()))
    ellipse = rotated(degrees, lambda a, b: 1 - ((a / 35) ** 2 + (b / 15) ** 2).sqrt())
    for phi in (rectangle[None, None], ellipse[None, None]):
        assert not motion.concave(phi).any()
        assert torch.equal(motion.evolve(phi, -0.1, 20), phi)


def test_a_region_cut_by_the_border_is_convex():
    phi = -torch.ones(1, 1, 40, 50)
    phi[..., :25, :30] = 1
    assert not of_one_channel().concave(phi).any()


def test_balls_and_boxes_are_convex_and_a_dented_ball_is_not():
    axes = torch.meshgrid(*[torch.arange(25, dtype=torch.float64) - 12] * 3, indexing="ij")
    distance = sum(axis**2 for axis in axes).sqrt()
    ball, box = 9.3 - distance, 7 - torch.stack([axis.abs() for axis in axes]).amax(0)
    dented = torch.minimum(ball, ((axes[0] - 9) ** 2 + axes[1] ** 2 + axes[2] ** 2).sqrt() - 5)
    motion = of_one_channel(radii=(3, 6))
    assert not motion.concave(torch.stack([ball, box])[:, None]).any()
    assert motion.concave(dented[None, None]).any()


def test_only_a_narrow_gap_between_two_disks_is_concave():
    """The paper's condition knows nothing of components: a gap counts as concave where it is narrow for a radius."""
    gap = torch.maximum(20 - ((X + 21) ** 2 + Y**2).sqrt(), 20 - ((X - 21) ** 2 + Y**2).sqrt())[None, None]
    flagged = of_one_channel().concave(gap)[0, 0]
    assert flagged.any()
    assert flagged[X.abs() > 10].sum() == 0
    apart = torch.maximum(20 - ((X + 27) ** 2 + Y**2).sqrt(), 20 - ((X - 27) ** 2 + Y**2).sqrt())[None, None]
    assert not of_one_channel().concave(apart).any()


def solidity(phi):
    return regionprops((phi[0, 0] > 0).int().numpy())[0].solidity


@pytest.mark.parametrize("shape", [NOTCHED, CRESCENT], ids=["notched disk", "crescent"])
def test_concavity_grows_backward_and_shrinks_forward(shape):
    motion, phi = of_one_channel(), shape[None, None]
    forward, backward = [phi], [phi]
    for _ in range(6):
        forward.append(motion.evolve(forward[-1], 0.1, 10))
        backward.append(motion.evolve(backward[-1], -0.1, 10))
    rising, falling = [solidity(phi) for phi in forward], [solidity(phi) for phi in backward]
    assert rising == sorted(rising)
    assert falling == sorted(falling, reverse=True)
    assert rising[-1] - rising[0] > 0.05
    assert falling[0] - falling[-1] > 0.05
    # Only the concave side moves: the far side of the outline stays where it was.
    far = (X < -25) if shape is CRESCENT else (Y > 25)
    assert torch.equal(backward[-1][0, 0][far], phi[0, 0][far])


def test_forward_motion_ends_at_a_convex_region():
    motion = of_one_channel()
    convex = motion.evolve(NOTCHED[None, None], 0.1, 400)
    assert solidity(convex) > 0.98 > 0.9 > solidity(NOTCHED[None, None])
    assert not motion.concave(convex).any()
    assert torch.equal(motion.evolve(convex, 0.1, 10), convex)


def dent(texture):
    """A disk with a dent of 16x16 pixels, in which the given texture makes logits just below 0."""
    phi = torch.where(DISK > 0, 2.0, -2.0)
    inside = (slice(24, 40), slice(40, 56))
    phi[inside] = texture - 3.0
    return phi[None, None], inside


CHECKERBOARD = (torch.arange(16)[:, None] + torch.arange(16)) % 2
ONE_LINE = (torch.arange(16) == 8).expand(16, 16).int()
ONE_PIXEL = torch.zeros(16, 16).index_put((torch.tensor([8]), torch.tensor([8])), torch.tensor(1.0))


@pytest.mark.parametrize("texture", [CHECKERBOARD, ONE_LINE, ONE_PIXEL], ids=["checkerboard", "line", "hole"])
def test_both_sided_differences_see_what_central_ones_do_not(texture):
    """Of a checkerboard, a line and a hole of one pixel within a dent, the tops move under "both" only."""
    phi, inside = dent(texture.double())
    tops = torch.zeros(SIZE, SIZE, dtype=torch.bool)
    tops[inside] = texture > 0
    tops[:26], tops[38:], tops[:, :42], tops[:, 54:] = (
        False,
        False,
        False,
        False,
    )  # all but those beside the dent's sides
    assert tops.any()
    central, both = (of_one_channel(gradient=gradient, radii=(15,)) for gradient in ("central", "both"))
    assert central.moving(phi)[0, 0][tops].all()
    assert torch.equal(central.evolve(phi, -0.1, 1)[0, 0][tops], phi[0, 0][tops])
    assert (both.evolve(phi, -0.1, 1)[0, 0][tops] < phi[0, 0][tops] - 0.05).all()


def test_a_checkerboard_in_the_background_pays_under_both_sided_differences_only():
    """Why they need a longer warm-up: until a network knows the background, it can learn a pattern instead."""
    board = 1.0 - 2 * ((torch.arange(48)[:, None] + torch.arange(48)) % 2)
    phi = [(0.3 * field(48, 48) + 0.3 + amplitude * board)[None, None] for amplitude in (0.0, 2.0)]
    cost = {
        gradient: [softplus(of_one_channel(gradient=gradient).evolve(each, -0.1, 60)).mean() for each in phi]
        for gradient in ("central", "both")
    }
    assert softplus(phi[1]).mean() > softplus(phi[0]).mean() + 0.3  # without the layer it is expensive
    assert cost["both"][1] < cost["both"][0] - 0.1
    assert cost["central"][1] > cost["central"][0] - 0.05
