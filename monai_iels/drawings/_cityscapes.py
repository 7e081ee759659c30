# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Street scenes seen from a car, modeled on Cityscapes: its 19 classes, and some of what its annotators leave out."""

from collections.abc import Callable
from functools import partial

import numpy as np
from scipy import ndimage

from monai_iels.drawings._shapes import Array, Canvas, Rng, blend, soft_step, to_bytes
from monai_iels.drawings._street import (
    BICYCLE,
    BUILDING,
    CAMERA,
    EGO,
    FENCE,
    FOCAL_LENGTH,
    GROUND,
    MOTORCYCLE,
    OUT_OF_ROI,
    PARKING,
    RECTIFICATION,
    REFERENCE_HEIGHT,
    ROAD,
    SIDEWALK,
    SKY,
    TERRAIN,
    WALL,
    Street,
    face,
)
from monai_iels.drawings._traffic import (
    GLASS,
    paint_bin,
    paint_bus,
    paint_car,
    paint_dog,
    paint_lamp,
    paint_person,
    paint_sign,
    paint_traffic_light,
    paint_train,
    paint_tree,
    paint_truck,
    paint_two_wheels,
)

_FACADES = ((190, 175, 150), (165, 120, 95), (205, 200, 190), (130, 128, 125), (180, 150, 100), (150, 165, 175))
_FAR = 110.0  # meters to the end of the street

Thing = Callable[[Street, float, float], None]
"""Paints something that stands at (across, ahead)."""

Placed = tuple[float, float, Thing]
"""A thing after its place: (ahead, across, thing)."""


def draw_cityscapes(rng: Rng, shape: tuple[int, int] = (256, 512)) -> tuple[Array, Array]:
    """Draw what a car's camera sees in a street with buildings, trees, signs, people and traffic.

    Args:
        rng: draws everything that varies; the same state gives the same picture.
        shape: height and width in pixels; the width should be twice the height.

    Returns:
        The RGB picture (H, W, 3) and its official label ids (H, W) from 0 to 33, both ``uint8``.
    """
    canvas = Canvas(rng, shape, shape[0] / REFERENCE_HEIGHT)
    width = shape[1] / shape[0] * REFERENCE_HEIGHT
    cloudiness = rng.random()
    edges = -rng.uniform(4.0, 7.5), rng.uniform(2.6, 5.0)
    walks = edges[0] - rng.uniform(2.0, 4.5), edges[1] + rng.uniform(2.0, 4.5)
    haze = (1 - cloudiness) * np.array((200, 215, 230)) + cloudiness * rng.uniform(150, 235)
    center = width * rng.uniform(0.42, 0.58)
    street = Street(canvas, rng.uniform(96, 122), center, edges, walks, haze, rng.uniform(0.65, 1.35))
    _paint_sky(street, cloudiness)
    _paint_ground(street)
    _paint_end(street)
    for right in (False, True):
        _paint_facades(street, right)
    for ahead, across, thing in sorted(_things(street), key=lambda entry: -entry[0]):
        thing(street, across, ahead)
    _paint_car_and_border(street)
    return _expose(street), street.label


def _paint_sky(street: Street, cloudiness: float) -> None:
    rows, _ = street.canvas.offsets()
    height = np.clip(1 - rows / street.horizon, 0, 1)[..., None]
    blue = street.rng.normal((95, 150, 215), 12)
    street.image += street.haze + (blue - street.haze) * height * (1 - cloudiness)
    clouds = soft_step(street.canvas.noise((14, 50)) + 2 * cloudiness - 1, 2.0)
    blend(street.image, street.haze * 1.06, 0.7 * clouds)
    street.label[:] = SKY


def _paint_ground(street: Street) -> None:
    """Paint the plane of the road: asphalt with its marks, curbs, paved sidewalks, and what lies beside them."""
    rng = street.rng
    rows, columns = street.canvas.offsets()
    below = np.broadcast_to(rows > street.horizon, street.label.shape)
    scale = np.maximum(rows - street.horizon, 0.4) / CAMERA
    across, ahead = (columns - street.center) / scale, FOCAL_LENGTH / scale
    near = np.exp(-ahead / 30.0)
    asphalt, slabs, grass = rng.uniform(70, 125), rng.uniform(95, 175), rng.normal((105, 120, 70), (30, 20, 12))
    stains = street.canvas.noise((3, 20)) + 0.4 * street.leaves
    ground = asphalt * rng.normal(1, 0.03, 3) + 5 * stains[..., None]
    blend(ground, (215, 215, 210), 0.85 * _marks(street, across, ahead, near))
    label = np.full(below.shape, ROAD, np.uint8)
    parking = rng.random() < 0.2
    for sign, edge, walk in zip((-1, 1), street.edges, street.walks, strict=True):
        beyond = sign * (across - edge)
        joints = np.maximum((across % 0.9 < 0.06) * near, (ahead % 0.9 < 0.08) * near**2)
        paved = slabs * rng.normal(1, 0.04, 3) + 4 * stains[..., None] - 35 * joints[..., None]
        blend(ground, paved, (beyond > 0).astype(float))
        blend(ground, slabs + 35.0, 0.8 * ((beyond > -0.05) & (beyond < 0.14)))
        label[beyond > 0] = SIDEWALK
        if parking and sign > 0:
            bay = (beyond > -1.9) & (beyond <= 0) & (ahead % 24 < 14)
            blend(ground, slabs * np.array((0.75, 0.7, 0.68)), 0.7 * bay)
            label[bay] = rng.choice([PARKING, GROUND])
        if rng.random() < 0.65:
            lawn = sign * (across - walk) > -rng.uniform(0.6, 1.8)
            blend(ground, grass + 9 * street.leaves[..., None], lawn.astype(float))
            label[lawn] = TERRAIN
    blend(street.image, street.veil(ground, ahead), below.astype(float))
    street.label[below] = label[below]


def _marks(street: Street, across: Array, ahead: Array, near: Array) -> Array:
    """Return where the road is painted: dashes between lanes, a line at the edge, now and then a crosswalk."""
    rng = street.rng
    lane = rng.uniform(-2.2, -1.5)
    dashes = (abs(across - lane) < 0.08) & ((ahead + rng.uniform(0, 9)) % 9 < 4.5)
    line = abs(across - street.edges[1] + 0.35) < 0.07
    crosswalk = rng.uniform(9, 30) if rng.random() < 0.4 else -9.0
    stripes = (abs(ahead - crosswalk) < 1.6) & (across % 1.0 < 0.5)
    return np.maximum(dashes | stripes, line * (rng.random() < 0.5)) * np.minimum(1, 3 * near)


def _paint_end(street: Street) -> None:
    """Paint what closes the street in the distance: rows of houses, and trees."""
    rng = street.rng
    for across in rng.permutation(np.arange(-80, 80, 14.0)):
        color = np.multiply(_FACADES[rng.integers(len(_FACADES))], rng.uniform(0.6, 1.0))
        left, top = across + rng.uniform(-4, 4), rng.uniform(4, 14)
        street.fill(face(left, left + 16, 0, top, _FAR + 20), color, BUILDING)
    for across in rng.uniform(-40, 40, 5):
        paint_tree(street, across, _FAR + rng.uniform(-5, 5))


def _paint_facades(street: Street, right: bool) -> None:
    """Paint the houses along one side, with gaps between some of them, and walls or fences in the gaps."""
    rng = street.rng
    rows, columns = street.canvas.offsets()
    plane = street.walks[right]
    scale = np.maximum((columns - street.center) / plane, 1e-3)
    ahead, up = FOCAL_LENGTH / scale, CAMERA + (street.horizon - rows) / scale
    ends = np.cumsum(rng.uniform(7, 18, 30))
    number = np.searchsorted(ends, ahead)
    heights = np.where(rng.random(31) < 0.72, rng.uniform(6, 19, 31), 0.0)
    colors = np.array(_FACADES)[rng.integers(len(_FACADES), size=31)] * rng.uniform(0.55, 1.1, (31, 1))
    colors *= street.sun if not right else 2 - street.sun
    pitch, storey = rng.uniform(1.8, 3.2, 31)[number], rng.uniform(2.8, 3.6, 31)[number]
    house = (up > 0) & (up < heights[number]) & (ahead < _FAR)
    floor = up // storey
    panes = (abs(ahead / pitch % 1 - 0.5) < 0.26) & (abs(up / storey % 1 - 0.55) < np.where(floor == 0, 0.4, 0.27))
    walls = colors[number] * (1 + 0.04 * street.leaves[..., None])
    lit = np.sin(37.0 * floor + 91.0 * (ahead // pitch) + rng.uniform(0, 9))  # each pane has a brightness of its own
    blend(walls, np.array(GLASS) * (1.1 + 0.6 * lit[..., None]), 0.85 * panes)
    blend(walls, np.array((120, 65, 50)) * rng.uniform(0.6, 1.0), 0.9 * (up > heights[number] - 1.1))
    blend(walls, (60, 55, 50), 0.5 * (abs(ahead - ends[np.minimum(number, 29)]) < 0.12))
    blend(street.image, street.veil(walls, np.minimum(ahead, _FAR)), house.astype(float))
    street.label[house] = BUILDING
    _paint_barrier(street, right, rows, columns)


def _paint_barrier(street: Street, right: bool, rows: Array, columns: Array) -> None:
    """Paint a low wall or a fence in front of the houses of one side, over a part of the street."""
    rng = street.rng
    plane = street.walks[right] - np.sign(street.walks[right]) * 0.3
    scale = np.maximum((columns - street.center) / plane, 1e-3)
    ahead, up = FOCAL_LENGTH / scale, CAMERA + (street.horizon - rows) / scale
    start, fenced, tall = rng.uniform(6, 16), rng.random() < 0.5, rng.uniform(0.9, 1.9)
    inside = (up > 0) & (up < tall) & (ahead > start) & (ahead < start + rng.uniform(10, 40))
    color = street.veil(rng.normal((150, 140, 130) if not fenced else (80, 80, 75), 25), np.minimum(ahead, _FAR))
    if fenced:
        bars = (ahead % 0.5 < 0.12) | (abs(up - tall + 0.08) < 0.06) | (abs(up - 0.3) < 0.05)
        cover = np.where(bars, 0.95, 0.25) * inside
    else:
        color = color * (1 - 0.2 * (up % 0.4 < 0.07) + 0.06 * street.leaves)[..., None]
        blend(color, (205, 200, 195), 0.8 * (up > tall - 0.15))
        cover = inside.astype(float)
    blend(street.image, color, cover)
    street.label[inside] = FENCE if fenced else WALL


def _things(street: Street) -> list[Placed]:
    """Choose what stands on the sidewalks and drives on the road, each with its distance and its place across."""
    rng = street.rng
    (left, right), (left_walk, right_walk) = street.edges, street.walks
    vehicles = [paint_bus, paint_truck, paint_train]

    def on_walk() -> float:
        low, high = ((left_walk + 0.7, left - 0.5), (right + 0.5, right_walk - 0.7))[rng.integers(2)]
        return rng.uniform(low, high)

    def at_curb() -> float:
        return (left - 0.4, right + 0.4)[rng.integers(2)]

    def on_road() -> float:
        return rng.uniform(0.6 * left, 0.6 * right)

    def in_lane() -> float:
        return (left + 2.0, left / 2, 0.8)[rng.integers(3)]

    def some(
        fewest: int, most: int, reach: tuple[float, float], where: Callable[[], float], *kinds: Thing
    ) -> list[Placed]:
        count = rng.integers(fewest, most + 1)
        return [(rng.uniform(*reach), where(), kinds[rng.integers(len(kinds))]) for _ in range(count)]

    bicycle, motorcycle = (partial(paint_two_wheels, label=label) for label in (BICYCLE, MOTORCYCLE))
    parked = [partial(kind, ridden=False) for kind in (bicycle, motorcycle)]
    ridden = [partial(kind, ridden=True) for kind in (bicycle, motorcycle)]
    placed: list[Placed] = [
        (ahead + rng.uniform(0, 9), at_curb(), (paint_tree, paint_tree, paint_lamp)[rng.integers(3)])
        for ahead in range(12, 90, 13)
    ]
    placed += some(3, 8, (9, 45), on_walk, paint_person) + some(0, 1, (9, 20), on_walk, paint_bin, paint_dog)
    placed += some(1, 3, (9, 28), at_curb, paint_sign) + some(1, 2, (11, 28), at_curb, paint_traffic_light)
    placed += some(1, 1, (8, 20), on_road, ridden[0]) + some(0, 2, (8, 20), on_road, *ridden)
    placed += some(0, 2, (9, 22), on_walk, *parked)
    for number in rng.permutation(len(vehicles))[: (1, 1, 2)[rng.integers(3)]]:
        placed += some(1, 1, (17, 34), in_lane, vehicles[number])
    placed.append((rng.uniform(14, 50), rng.uniform(-1.0, 0.3), partial(paint_car, coming=False)))
    placed.append((rng.uniform(16, 60), left / 2 - 0.9, partial(paint_car, coming=True)))
    for across in (left + 1.1, right - 1.1):
        share = 0.65 * (rng.random() < 0.7)
        rows = [ahead for ahead in np.arange(rng.uniform(9, 16), 70, 6.0) if rng.random() < share]
        placed += [(ahead, across, partial(paint_car, coming=False)) for ahead in rows]
    return placed


def _paint_car_and_border(street: Street) -> None:
    """Paint the hood of the camera's own car, and the border that a rectified picture has."""
    rng = street.rng
    height, width = np.divide(street.label.shape, street.canvas.unit)
    rows, columns = street.canvas.offsets()
    hood = rows - (height - rng.uniform(9, 20)) - 10 * ((columns - width / 2) / (width / 2)) ** 2
    hood = np.broadcast_to(hood, street.label.shape)
    shine = rng.uniform(25, 70) + 40 * soft_step(4 - abs(hood), 4.0) + 0 * hood
    blend(street.image, shine[..., None] * np.array((1.0, 1.0, 1.05)), soft_step(hood, 1.5))
    street.label[hood > 0] = EGO
    edge = columns - rng.uniform(1, 4) - 1.5 * np.sin(rows / 40)
    blend(street.image, (0, 0, 0), soft_step(-edge, 1.0))
    street.label[np.broadcast_to(edge < 0, street.label.shape)] = RECTIFICATION
    frame = np.minimum(np.minimum(rows, height - 1 - rows), np.minimum(columns, width - 1 - columns))
    street.label[frame < 1.0] = OUT_OF_ROI


def _expose(street: Street) -> Array:
    """Return the picture as a camera takes it: uneven light, a cast, a little blur and noise."""
    rng, canvas = street.rng, street.canvas
    light = rng.uniform(0.7, 1.15) * (1 + 0.05 * canvas.noise(60))
    image = street.image * rng.normal(1, 0.035, 3) * light[..., None]
    image = ndimage.gaussian_filter(image, (0.45 * canvas.unit, 0.45 * canvas.unit, 0), truncate=3)
    return to_bytes(image + rng.normal(0, rng.uniform(1, 4), image.shape))
