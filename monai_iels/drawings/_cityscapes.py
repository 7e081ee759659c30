# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""Street scenes of rectangles, modeled on Cityscapes: its 19 classes, and some of what its annotators leave out."""

import numpy as np
from scipy import ndimage

from monai_iels.drawings._shapes import Array, Canvas, Rng, blend, to_bytes

# The official label ids. The first three are ignored in training.
_UNLABELED, _EGO, _OUT_OF_ROI, _ROAD, _SIDEWALK, _BUILDING, _WALL, _FENCE, _POLE = 0, 1, 3, 7, 8, 11, 12, 13, 17
_LIGHT, _SIGN, _VEGETATION, _TERRAIN, _SKY, _PERSON, _RIDER = 19, 20, 21, 22, 23, 24, 25
_CAR, _TRUCK, _BUS, _TRAIN, _MOTORCYCLE, _BICYCLE = 26, 27, 28, 31, 32, 33

_CAMERA, _WALK, _FAR = 1.35, 3.5, 110.0  # meters: height of the camera, width of a sidewalk, end of the street
_DARK, _GLASS, _METAL, _WHITE, _RED = (28, 28, 30), (52, 62, 72), (120, 122, 124), (225, 225, 220), (200, 35, 30)
_BLUE, _YELLOW, _SKIN, _BARK, _LEAF = (35, 70, 150), (235, 195, 40), (205, 155, 125), (75, 62, 50), (70, 105, 45)
_GROUND = {_ROAD: (95, 93, 95), _SIDEWALK: (150, 135, 135), _TERRAIN: (110, 125, 70), _SKY: (110, 160, 215)}
_GRAIN = {_VEGETATION: 24.0, _TERRAIN: 15.0, _WALL: 12.0, _BUILDING: 7.0}  # strength of the texture, else 4
_PAINTS = np.array([(70, 70, 75), (150, 152, 155), (215, 212, 205), (150, 55, 45), (50, 75, 130), (175, 145, 100)])
_OWN = ()  # stands for one of the paints, which a thing has as its own

# Rectangles from back to front: label, width, bottom and top in meters, color; meters between stripes.
_CYCLE = [(_BICYCLE, 1.8, 0, 0.7, _DARK), (_BICYCLE, 0.6, 0.1, 0.7, _METAL), (_BICYCLE, 1, 0.6, 0.9, _OWN)]
_MOTOR = [(_MOTORCYCLE, 2, 0, 0.7, _DARK), (_MOTORCYCLE, 1.4, 0.5, 1.1, _RED), (_MOTORCYCLE, 0.8, 0.2, 0.6, _METAL)]
_BODY = [(_RIDER, 0.55, 0.8, 1.6, _OWN), (_RIDER, 0.32, 1.6, 1.9, _SKIN)]
_REAR = [(_CAR, 1.8, 0, 0.4, _DARK), (_CAR, 1.8, 0.3, 0.95, _OWN), (_CAR, 1.7, 0.65, 0.85, _RED)]
_CABIN = [(_CAR, 1.2, 0.6, 0.9, _OWN), (_CAR, 1.4, 0.9, 1.5, _OWN), (_CAR, 1.2, 0.95, 1.4, _GLASS)]

# Things: fewest and most; least and greatest distance from the curb in meters, on the road if negative; rectangles.
_THINGS: list[tuple[int, int, float, float, list[tuple]]] = [
    (14, 18, 11, 12, [(_BUILDING, 14, 0, 13, _OWN), *((_BUILDING, 12, y, y + 2, _GLASS, 2.5) for y in (1, 4, 7, 10))]),
    (6, 9, 9, 12, [(_BUILDING, 10, 0, 7, _OWN), (_BUILDING, 10, 6, 7, _BARK), (_BUILDING, 8, 1, 2.5, _GLASS, 2.2)]),
    (1, 3, 8, 8, [(_WALL, 9, 0, 1.9, (180, 160, 130)), (_WALL, 9, 1.7, 1.9, _WHITE)]),
    (1, 3, 8, 8, [(_FENCE, 9, 0, 1.6, (115, 120, 110)), (_FENCE, 9, 0.1, 1.5, _DARK, 0.5)]),
    (4, 8, 0.5, 5, [(_VEGETATION, *part) for part in ((0.3, 0, 3, _BARK), (3.4, 2.2, 5, _LEAF), (2, 4, 6.4, _LEAF))]),
    (2, 4, 0.3, 0.6, [(_POLE, 0.18, 0, 6.5, _METAL), (_POLE, 1.4, 6.4, 6.6, _WHITE)]),
    (1, 2, 0.4, 0.8, [(_POLE, 0.1, 0, 2.9, _METAL), (_SIGN, 0.8, 2, 2.8, _RED), (_SIGN, 0.5, 2.2, 2.6, _WHITE)]),
    (1, 2, 0.4, 0.8, [(_POLE, 0.1, 0, 2.9, _METAL), (_SIGN, 0.8, 2, 2.8, _BLUE), (_SIGN, 0.3, 2.2, 2.6, _WHITE)]),
    (1, 3, 0.4, 0.8, [(_POLE, 0.1, 0, 3.5, _METAL), (_LIGHT, 0.5, 2.2, 3.4, _DARK), (_LIGHT, 0.3, 3, 3.3, _RED)]),
    (3, 7, 0.5, 3, [(_PERSON, 0.5, 0, 0.9, _BLUE), (_PERSON, 0.6, 0.8, 1.5, _OWN), (_PERSON, 0.3, 1.5, 1.8, _SKIN)]),
    (1, 3, -3, 1, _CYCLE + _BODY),
    (0, 2, -3, -1, _MOTOR + _BODY),
    (4, 9, -3.5, -1.1, _REAR + _CABIN),
    (0, 1, -3.5, -2, [(_TRUCK, 2.4, 0, 3.6, _DARK), (_TRUCK, 2.5, 0.8, 3.6, _WHITE), (_TRUCK, 0.1, 1, 3.5, _METAL)]),
    (0, 1, -3.5, -2, [(_BUS, 2.5, 0, 3.1, _OWN), (_BUS, 2.2, 1.2, 2.4, _GLASS), (_BUS, 1.6, 2.6, 2.9, _YELLOW)]),
    (0, 1, -3.5, -2, [(_TRAIN, 2.5, 0, 3.5, _RED), (_TRAIN, 2.5, 1, 1.3, _WHITE), (_TRAIN, 2.1, 1.5, 2.8, _GLASS)]),
]


def draw_cityscapes(rng: Rng, shape: tuple[int, int] = (256, 512)) -> tuple[Array, Array]:
    """Draw what a car's camera sees in a street with buildings, trees, signs, people and traffic.

    Args:
        rng: draws everything that varies; the same state gives the same picture.
        shape: height and width in pixels; the width should be twice the height.

    Returns:
        The RGB picture (H, W, 3) and its official label ids (H, W) from 0 to 33, both ``uint8``.
    """
    height = shape[0]
    canvas = Canvas(rng, shape, 2.0 * height, height * rng.uniform((0.38, 0.9), (0.48, 1.1)))
    haze, curbs = rng.uniform(170, 235) * np.array([0.97, 1.0, 1.03]), rng.uniform((-7, 3), (-5, 5))
    image, label = _paint_ground(canvas, haze, curbs)
    things = []
    for fewest, most, near, far, parts in _THINGS:
        for side in rng.integers(2, size=rng.integers(fewest, most + 1)):
            ahead = rng.uniform(*((12, _FAR) if fewest > 5 else (9, 50)))
            things.append((ahead, curbs[side] + (2 * side - 1) * rng.uniform(near, far), parts))
    for thing in sorted(things, key=lambda thing: -thing[0]):
        _paint(canvas, image, label, haze, *thing)
    hood = round(rng.uniform(0.92, 0.96) * height)
    image[hood:], label[hood:] = rng.uniform(25, 70), _EGO
    label[[0, -1]] = label[:, [0, -1]] = _OUT_OF_ROI
    grain = np.array([_GRAIN.get(number, 4.0) for number in range(34)])[label] * canvas.noise(0.005)
    image = rng.uniform(0.75, 1.1) * rng.normal(1, 0.03, 3) * (image + grain[..., None])
    image = ndimage.gaussian_filter(image, (height / 600, height / 600, 0))
    return to_bytes(image + rng.normal(0, rng.uniform(1, 4), image.shape)), label


def _paint_ground(canvas: Canvas, haze: Array, curbs: Array) -> tuple[Array, Array]:
    """Return the picture and the label of an empty street: sky, road with a dashed line, sidewalks and lawn."""
    rows, columns = np.broadcast_arrays(*canvas.offsets())
    ahead = _CAMERA / np.maximum(rows, 0.01)
    across = np.where(rows < 0, _FAR, columns * ahead)
    beyond = np.maximum(curbs[0] - across, across - curbs[1])
    label = np.select([rows < 0, beyond < 0, beyond < _WALK], [_SKY, _ROAD, _SIDEWALK], _TERRAIN)
    image = np.zeros((*canvas.shape, 3))
    for number, color in _GROUND.items():
        image[label == number] = canvas.rng.normal(color, 10)
    blend(image, 60.0, 0.6 * ((beyond > 0) & (beyond < 0.15)))
    blend(image, 220.0, 0.8 * ((abs(across + 1.8) < 0.08) & (ahead % 8 < 4)))
    blend(image, haze, 1 - np.where(rows < 0, np.clip(-4 * rows, 0, 1), np.exp(-ahead / _FAR)))
    return image, label.astype(np.uint8)


def _paint(canvas: Canvas, image: Array, label: Array, haze: Array, ahead: float, across: float, parts: list) -> None:
    """Paint the rectangles of a thing in place, at least a pixel wide; some things get an unlabeled border."""
    rng = canvas.rng
    own, light, (tall, wide) = rng.choice(_PAINTS), rng.normal(1, 0.08, 3), rng.uniform(0.85, 1.15, 2)
    width, bottom, top = np.array([part[1:4] for part in parts]).T * [[wide], [tall], [tall]]
    corners = np.stack([_CAMERA - top, across - width / 2, _CAMERA - bottom, across + width / 2], axis=1) / ahead
    corners = np.rint(np.tile(canvas.origin, 2) + canvas.unit * corners).astype(int)
    corners[:, 2:] = np.maximum(corners[:, 2:], corners[:, :2] + 1)
    border = rng.choice([0, 0, round(0.008 * len(image))])
    for low, left, high, right in (corners + border * np.array([-1, -1, 1, 1])).clip(0):
        label[low:high, left:right] = _UNLABELED
    for (low, left, high, right), (number, _, _, _, color, *stripes) in zip(corners.clip(0), parts, strict=True):
        columns = np.arange(left, min(right, label.shape[1]))
        columns = columns[columns * ahead / canvas.unit % stripes[0] < stripes[0] / 2] if stripes else columns
        label[low:high, left:right] = number
        image[low:high, columns] = haze + np.exp(-ahead / _FAR) * (light * np.array(color or own) - haze)
