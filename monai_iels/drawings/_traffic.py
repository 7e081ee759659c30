# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""What stands and drives in a street: each function paints one thing at (across, ahead), in meters."""

import numpy as np

from monai_iels.drawings._shapes import Array, Numbers, blend, soft_step
from monai_iels.drawings._street import (
    BUS,
    CAR,
    DYNAMIC,
    FOCAL_LENGTH,
    LIGHT,
    MOTORCYCLE,
    PERSON,
    POLE,
    RAILS,
    RIDER,
    SIGN,
    STATIC,
    TRAIN,
    TRUCK,
    VEGETATION,
    Street,
    disk,
    face,
    side,
)

_DARK, GLASS, _METAL, _WHITE = (28, 28, 30), (52, 62, 72), (120, 122, 124), (225, 225, 220)
_RED, _BLUE, _YELLOW = (190, 30, 30), (30, 70, 160), (235, 195, 40)
_PAINTS = (
    _DARK,
    _METAL,
    _WHITE,
    (95, 97, 100),
    (170, 172, 175),
    _RED,
    _BLUE,
    (40, 50, 80),
    (60, 95, 60),
    (150, 130, 90),
)
_SKINS = ((225, 180, 150), (190, 140, 105), (120, 80, 60))


def _void(street: Street) -> float:
    """Draw the width of the unlabeled border around a thing: annotators leave one around some."""
    return street.rng.choice([0.0, 0.0, 1.2, 2.0])


def _paint_of(street: Street) -> Array:
    """Draw the color of a vehicle or of clothes."""
    paints = np.array(_PAINTS)
    return np.clip(paints[street.rng.integers(len(paints))] + street.rng.normal(0, 14, 3), 15, 240)


def _visible(across: float, width: float) -> float:
    """Return the side of a thing that the camera sees."""
    return across + width / 2 if across < 0 else across - width / 2


def paint_tree(street: Street, across: float, ahead: float) -> None:
    """Paint a trunk and a crown of ragged, overlapping clumps; trunks belong to the vegetation."""
    rng = street.rng
    tall, bark = rng.uniform(4.5, 9.0), rng.normal((75, 62, 50), 10)
    street.fill(face(across - 0.16, across + 0.16, 0, tall * 0.6, ahead), bark, VEGETATION)
    leaf = rng.normal((70, 98, 45), (22, 14, 12)) if rng.random() < 0.75 else rng.normal((150, 110, 50), 18)
    scale = FOCAL_LENGTH / ahead
    for _ in range(5):
        size = tall * rng.uniform(0.15, 0.27)
        place = (across + tall * rng.uniform(-0.2, 0.2), tall * rng.uniform(0.55, 0.85), ahead)
        (middle,) = street.project(np.array([place]))
        window = street.canvas.window(middle, 1.5 * size * scale)
        if street.label[window].size == 0:
            continue
        clump = street.canvas.blob(middle, (size * scale, size * scale * 1.15), 0.0, 0.15, window)
        clump += min(0.12 * size * scale, 3.0) * street.leaves[window]
        rows, _ = street.canvas.offsets(middle, window)
        shade = 1 + 0.25 * street.leaves[window] - 0.25 * rows / (size * scale)
        blend(street.image[window], street.veil(leaf * shade[..., None], ahead), soft_step(clump, 1.5))
        street.label[window][clump > 0] = VEGETATION


def paint_lamp(street: Street, across: float, ahead: float) -> None:
    """Paint a street lamp whose arm reaches over the road."""
    tall = street.rng.uniform(5.0, 8.0)
    tip = across - np.sign(across) * 1.3
    street.fill(face(across - 0.08, across + 0.08, 0, tall, ahead), _METAL, POLE)
    street.fill([(across, tall, ahead), (tip, tall + 0.2, ahead)], _METAL, POLE)
    street.fill(face(tip - 0.3, tip + 0.3, tall + 0.1, tall + 0.3, ahead), _WHITE, POLE)


def paint_sign(street: Street, across: float, ahead: float) -> None:
    """Paint a pole with one or two signs: round, triangular or square."""
    rng = street.rng
    top = rng.uniform(2.3, 2.9)
    street.fill(face(across - 0.045, across + 0.045, 0, top + 0.2, ahead), _METAL, POLE)
    for up in (top, top - 0.85)[: rng.integers(1, 3)]:
        kind, size = rng.integers(5), rng.uniform(0.34, 0.46)
        round_, square = (
            disk(across, up, ahead, size),
            np.array(face(across - size, across + size, up - size, up + size, ahead)),
        )
        triangle = np.array(
            [(across - size, up - size, ahead), (across + size, up - size, ahead), (across, up + size, ahead)]
        )
        outline = (round_, round_, square, triangle, square)[kind]
        rim, inner = ((_RED, _WHITE), (_BLUE, _BLUE), (_BLUE, _WHITE), (_RED, _WHITE), (_WHITE, _YELLOW))[kind]
        street.fill(outline, rim, SIGN, void=_void(street))
        middle = outline.mean(0)
        street.fill(middle + 0.62 * (outline - middle), inner, SIGN)


def paint_traffic_light(street: Street, across: float, ahead: float) -> None:
    """Paint a pole with a dark box and its three lamps, one of which is lit."""
    rng = street.rng
    up = rng.uniform(2.2, 3.4)
    street.fill(face(across - 0.06, across + 0.06, 0, up + 0.9, ahead), _METAL, POLE)
    street.fill(face(across - 0.24, across + 0.24, up, up + 1.15, ahead), _DARK, LIGHT, void=_void(street))
    lit = rng.integers(3)
    for lamp, color in enumerate(((40, 220, 130), (250, 190, 40), (250, 50, 40))):
        shown = color if lamp == lit else np.multiply(color, 0.3)
        street.fill(disk(across, up + 0.22 + 0.36 * lamp, ahead, 0.13), shown, LIGHT)


def paint_person(street: Street, across: float, ahead: float) -> None:
    """Paint somebody who walks, now and then a child."""
    rng = street.rng
    tall = rng.uniform(1.1, 1.3) if rng.random() < 0.15 else rng.uniform(1.6, 1.9)
    _paint_shadow(street, (across - 0.3, across + 0.3), (ahead - 0.1, ahead + 0.3))
    _paint_body(street, across, ahead, tall, rng.uniform(0.05, 0.28), PERSON)


def _paint_body(
    street: Street, across: float, ahead: float, tall: float, stride: float, label: int, seat: float = 0.0
) -> None:
    """Paint legs, torso, arms and head of somebody, standing or sitting at the height ``seat``."""
    rng = street.rng
    skin, shirt, trousers = _SKINS[rng.integers(len(_SKINS))], _paint_of(street), np.multiply(_paint_of(street), 0.7)
    void = _void(street)
    hip, neck, foot = (seat, seat + 0.36 * tall, seat - 0.6) if seat else (0.48 * tall, 0.83 * tall, 0.0)
    for sign in (-1, 1):
        leg = [(across + sign * 0.07, hip, ahead), (across + sign * stride, foot, ahead)]
        street.fill([(x + w, y, z) for x, y, z in leg for w in (-0.07, 0.07)], trousers * (1 + 0.1 * sign), label)
        street.fill(
            face(across + sign * stride - 0.07, across + sign * stride + 0.1, foot, foot + 0.07, ahead),
            _DARK,
            label,
        )
    shoulders, waist = 0.125 * tall, 0.09 * tall
    torso = [(across - waist, hip - 0.05, ahead), (across + waist, hip - 0.05, ahead)]
    torso += [
        (across - shoulders, neck - 0.06, ahead),
        (across + shoulders, neck - 0.06, ahead),
        (across, neck + 0.03, ahead),
    ]
    street.fill(torso, shirt, label, void=void)
    for sign in (-1, 1):
        hand = (across + sign * (shoulders + rng.uniform(0.02, 0.12)), hip + 0.02, ahead)
        street.fill([(across + sign * shoulders, neck - 0.1, ahead), hand], shirt * 0.85, label)
        street.fill(disk(*hand, 0.04), skin, label)
    radius = 0.068 * tall
    hair = np.array(((45, 35, 28), (120, 90, 50), (160, 155, 150)))[rng.integers(3)]
    street.fill(disk(across, neck + 1.25 * radius, ahead, radius), hair, label, void=void)
    street.fill(disk(across + 0.2 * radius, neck + 0.95 * radius, ahead, 0.72 * radius), skin, label)


def _paint_shadow(street: Street, across: tuple[float, float], ahead: tuple[float, float]) -> None:
    street.fill([(x, 0.0, z) for x in across for z in ahead], (25, 25, 28), None, opacity=0.55)


def paint_two_wheels(street: Street, across: float, ahead: float, label: int, ridden: bool) -> None:
    """Paint a bicycle or a motorcycle that crosses or follows the street, and perhaps its rider."""
    rng = street.rng
    heading = rng.choice([-1, 1]) * rng.uniform(0.1, 1.1)
    color, motor = _paint_of(street), label == MOTORCYCLE
    radius = 0.3 if motor else 0.35

    def point(along: float, up: float) -> tuple[float, float, float]:
        return across + np.cos(heading) * along, up, ahead + np.sin(heading) * along

    _paint_shadow(street, (across - 0.7, across + 0.7), (ahead - 0.2, ahead + 0.2))
    void = _void(street)
    for along in (-0.55 - 0.12 * motor, 0.55 + 0.12 * motor):
        x, _, z = point(along, 0.0)
        ring = 0.16 if motor else 0.05
        street.fill(disk(x, radius, z, radius, heading), _DARK, label, ring=ring, void=void)
        street.fill(disk(x, radius, z, 0.06, heading), _METAL, label)
    if motor:
        street.fill(
            [point(-0.75, 0.75), point(-0.4, 0.4), point(0.3, 0.35), point(0.45, 0.85), point(0.0, 0.9)], color, label
        )
        street.fill([point(-0.8, 0.8), point(-0.1, 0.78), point(-0.1, 0.88), point(-0.8, 0.9)], _DARK, label)
        street.fill(disk(*point(0.62, 0.85), 0.1, heading), _WHITE, label)
        rods = [((0.67, 0.3), (0.4, 1.05)), ((0.4, 1.05), (0.25, 1.1))]
    else:
        rods = [
            ((-0.55, 0.35), (-0.15, 0.8)),
            ((-0.15, 0.8), (0.38, 0.8)),
            ((0.38, 0.8), (0.0, 0.32)),
            ((0.0, 0.32), (-0.18, 0.92)),
        ]
        rods += [
            ((-0.55, 0.35), (0.0, 0.32)),
            ((0.55, 0.35), (0.36, 1.0)),
            ((0.36, 1.0), (0.25, 1.05)),
            ((-0.3, 0.94), (-0.06, 0.94)),
        ]
    for start, end in rods:
        street.fill([point(*start), point(*end)], color, label)
    if ridden:
        x, _, z = point(-0.15, 0.0)
        _paint_body(street, x, z, 1.75, 0.12, RIDER, seat=0.92)
        hand = point(0.33, 1.08)
        street.fill([(x, 1.35, z), hand], _paint_of(street), RIDER)
        if motor or rng.random() < 0.6:
            street.fill(disk(x, 0.92 + 0.36 * 1.75 + 0.18, z, 0.15), _paint_of(street), RIDER)


def paint_car(street: Street, across: float, ahead: float, coming: bool) -> None:
    """Paint a car that stands or drives along the street, seen from behind or from the front."""
    rng = street.rng
    color, long, tall = _paint_of(street), rng.uniform(3.6, 4.6), rng.uniform(1.38, 1.75)
    half, waist = rng.uniform(0.82, 0.92), rng.uniform(0.85, 0.98)
    _paint_shadow(street, (across - half - 0.1, across + half + 0.1), (ahead - 0.15, ahead + long))
    street.box((across - half, 0.22, ahead), (across + half, waist, ahead + long), color, CAR, void=_void(street))
    _paint_wheels(street, across, 2 * half, (ahead, ahead + long), 0.32, CAR)
    near, far = (1.1, 3.2) if coming else (0.15, 2.6)
    roof = [(across + s * 0.72 * half, tall, ahead + z) for s in (-1, 1) for z in (near + 0.55, far - 0.5)]
    base = [(across + s * 0.95 * half, waist - 0.05, ahead + z) for s in (-1, 1) for z in (near, far + 0.3)]
    light = street.sun if across < 0 else 2 - street.sun
    street.fill(roof + base, np.multiply(color, 0.5 + 0.5 * light), CAR)
    screen = [(across + s * 0.64 * half, tall - 0.09, ahead + near + 0.5) for s in (-1, 1)]
    street.fill(screen + [(across + s * 0.84 * half, waist + 0.03, ahead + near) for s in (-1, 1)], GLASS, CAR)
    edge = _visible(across, 1.5 * half)
    pane = [(edge, tall - 0.1, ahead + near + 0.75), (edge, tall - 0.1, ahead + far - 0.6)]
    edge = _visible(across, 1.86 * half)
    pane += [(edge, waist + 0.03, ahead + near + 0.45), (edge, waist + 0.03, ahead + far)]
    street.fill(pane, np.multiply(GLASS, 0.8), CAR)
    _paint_lights(street, across, ahead, half, waist - 0.26, coming, CAR)
    street.fill(face(across - 0.26, across + 0.26, 0.42, 0.53, ahead), _WHITE, CAR)
    street.fill(face(across - half, across + half, 0.22, 0.36, ahead), _DARK, CAR, opacity=0.7)


def _paint_wheels(
    street: Street, across: float, width: float, ends: tuple[float, float], radius: float, label: int
) -> None:
    """Paint the wheels on the visible side, and two from behind."""
    edge = _visible(across, width)
    for ahead in (ends[1] - 2.5 * radius, ends[0] + 2.5 * radius):
        street.fill(disk(edge, radius, ahead, radius, np.pi / 2), _DARK, label)
        street.fill(disk(edge, radius, ahead, 0.55 * radius, np.pi / 2), _METAL, label)
    for sign in (-1, 1):
        outer = across + sign * width / 2
        street.fill(face(outer, outer - sign * 0.2, 0, 2 * radius, ends[0]), _DARK, label)


def _paint_lights(
    street: Street, across: float, ahead: float, half: float, up: float, coming: bool, label: int
) -> None:
    """Paint the two white lights of a vehicle that comes, or the red ones of one that goes."""
    for sign in (-1, 1):
        lamp = face(across + sign * 0.95 * half, across + sign * (0.95 * half - 0.28), up, up + 0.17, ahead)
        street.fill(lamp, (250, 245, 220) if coming else (200, 30, 25), label)


def _paint_long(
    street: Street,
    across: float,
    ahead: float,
    size: tuple[float, float, float],
    color: Numbers,
    label: int,
    panes: float,
) -> None:
    """Paint a long vehicle (width, height, length): a box on wheels with a row of windows as high as ``panes``."""
    width, tall, long = size
    left, right, edge = across - width / 2, across + width / 2, _visible(across, width)
    _paint_shadow(street, (left - 0.2, right + 0.2), (ahead - 0.3, ahead + long))
    street.box((left, 0.35, ahead), (right, tall, ahead + long), color, label, void=_void(street))
    _paint_wheels(street, across, width, (ahead, ahead + long), 0.45, label)
    for near in np.arange(ahead + 0.5, ahead + long - 1, 1.7) if panes else ():
        street.fill(side(edge, 1.3, 1.3 + panes, near, near + 1.4), GLASS, label)


def paint_bus(street: Street, across: float, ahead: float) -> None:
    """Paint a bus with a lit sign over its window."""
    color, coming = _paint_of(street), across < -1.5
    _paint_long(street, across, ahead, (2.5, 3.1, 11.0), color, BUS, 1.2)
    street.fill(face(across - 1.1, across + 1.1, 1.2, 2.4, ahead), GLASS, BUS)
    street.fill(face(across - 0.8, across + 0.8, 2.6, 2.9, ahead), _DARK, BUS)
    street.fill(face(across - 0.6, across + 0.5, 2.68, 2.82, ahead), (250, 170, 40), BUS)
    _paint_lights(street, across, ahead, 1.2, 0.6, coming, BUS)


def paint_truck(street: Street, across: float, ahead: float) -> None:
    """Paint a truck: from behind the doors of its box, from the front its cab."""
    coming, color = across < -1.5, _paint_of(street)
    cargo = np.clip(_paint_of(street) + 60, 60, 235)
    _paint_long(street, across, ahead + 2.0 * coming, (2.45, 3.6, 7.5), cargo, TRUCK, 0.0)
    if coming:
        street.box((across - 1.1, 0.4, ahead), (across + 1.1, 2.8, ahead + 1.9), color, TRUCK)
        street.fill(face(across - 0.95, across + 0.95, 1.6, 2.5, ahead), GLASS, TRUCK)
        street.fill(face(across - 0.7, across + 0.7, 0.8, 1.2, ahead), _DARK, TRUCK)
    else:
        street.fill(face(across - 0.02, across + 0.02, 1.0, 3.5, ahead), np.multiply(cargo, 0.5), TRUCK)
        street.fill(face(across - 1.2, across + 1.2, 0.35, 0.95, ahead), _DARK, TRUCK)
    _paint_lights(street, across, ahead, 1.15, 0.6, coming, TRUCK)


def paint_train(street: Street, across: float, ahead: float) -> None:
    """Paint a tram on its rails, with a stripe, a large windscreen and the rod to the wire."""
    for sign in (-1, 1):
        rail = across + sign * 0.72
        street.fill([(rail + w, 0.0, z) for w in (-0.08, 0.08) for z in (6.0, ahead)], (105, 100, 98), RAILS)
    color = street.rng.permutation([_RED, _YELLOW, (60, 120, 80), (200, 200, 190)])[0]
    _paint_long(street, across, ahead, (2.4, 3.4, 26.0), color, TRAIN, 1.3)
    street.fill(face(across - 1.2, across + 1.2, 0.35, 0.7, ahead), _DARK, TRAIN)
    street.fill(face(across - 1.2, across + 1.2, 1.05, 1.3, ahead), _WHITE, TRAIN)
    street.fill(face(across - 1.0, across + 1.0, 1.4, 2.7, ahead), GLASS, TRAIN)
    street.fill(face(across - 0.5, across + 0.5, 2.9, 3.2, ahead), _DARK, TRAIN)
    street.fill(disk(across, 0.9, ahead, 0.12), (255, 250, 225), TRAIN)
    street.fill([(across, 3.4, ahead + 4), (across, 4.6, ahead + 2.5)], _DARK, TRAIN)
    street.fill([(across, 4.7, 9.0), (across, 4.7, 100.0)], _DARK, None, opacity=0.6)


def paint_bin(street: Street, across: float, ahead: float) -> None:
    """Paint a bin, one of the static things without a class."""
    street.box((across - 0.3, 0, ahead), (across + 0.3, 1.1, ahead + 0.6), _paint_of(street), STATIC)


def paint_dog(street: Street, across: float, ahead: float) -> None:
    """Paint a dog, one of the moving things without a class."""
    color = street.rng.normal((110, 85, 60), 25)
    street.fill(face(across - 0.35, across + 0.3, 0.28, 0.5, ahead), color, DYNAMIC)
    for leg in (-0.3, -0.2, 0.2, 0.28):
        street.fill([(across + leg, 0.3, ahead), (across + leg, 0.0, ahead)], color, DYNAMIC)
    street.fill(disk(across + 0.38, 0.6, ahead, 0.13), color, DYNAMIC)
