"""The demo's pictures: drawings of invented people in front of invented places."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from pipelines.demo import photo_backgrounds
from pipelines.demo.canvas import HEIGHT, INK, SUPERSAMPLING, WHITE, WIDTH, Canvas, Colour

ROSE = (214, 96, 92)
Background = Callable[[Canvas], None]


@dataclass(frozen=True, slots=True)
class Looks:
    """The appearance of a person."""

    skin: Colour
    hair: Colour
    #: The hair: short, long, curly, bun or none.
    style: str
    shirt: Colour
    glasses: bool = False
    beard: bool = False


@dataclass(frozen=True, slots=True)
class Sitter:
    """A person on a picture."""

    #: The name with which the face is tagged.
    name: str
    #: The middle of the face, as fractions of the picture's width and height.
    x: float
    y: float
    #: Half the width of the face, as a fraction of the picture's height.
    size: float

    @property
    def box(self) -> dict[str, float]:
        """The bounding box of the face, in fractions of the picture."""
        across, down = self.size * HEIGHT / WIDTH, self.size * 1.15
        sides = {"left": self.x - across, "top": self.y - down, "width": 2 * across, "height": 2 * down}
        return {side: round(value, 4) for side, value in sides.items()}


def person(on: Canvas, sitter: Sitter, looks: Looks) -> None:
    """Draw a person from the chest upwards."""
    x, y, size = sitter.x, sitter.y, sitter.size
    unit = size * HEIGHT / WIDTH
    _hair_behind(on, x, y, size, looks)
    on.box(x - 0.38 * unit, y + 0.7 * size, x + 0.38 * unit, y + 1.7 * size, _darker(looks.skin), 0.2 * size)
    top = y + 1.45 * size
    on.box(x - 1.75 * unit, top, x + 1.75 * unit, 1.3, looks.shirt, 0.8 * size)
    on.disc(x, top + 0.02 * size, 0.5 * size, _darker(looks.skin), 0.26 * size)
    for side in (-1, 1):
        on.disc(x + side * 0.98 * unit, y + 0.1 * size, 0.17 * size, _darker(looks.skin), 0.24 * size)
    on.disc(x, y, size, looks.skin, 1.15 * size)
    _features(on, x, y, size, looks)
    _hair_in_front(on, x, y, size, looks)


def _darker(colour: Colour) -> Colour:
    return tuple(round(part * 0.86) for part in colour)


def _hair_behind(on: Canvas, x: float, y: float, size: float, looks: Looks) -> None:
    unit = size * HEIGHT / WIDTH
    if looks.style == "long":
        on.box(x - 1.2 * unit, y - 0.9 * size, x + 1.2 * unit, y + 1.75 * size, looks.hair, 0.7 * size)
    elif looks.style == "curly":
        for turn in range(14):
            angle = math.pi * (0.85 + turn / 13 * 1.3)
            on.disc(x + math.cos(angle) * 1.02 * unit, y + math.sin(angle) * 1.02 * size, 0.42 * size, looks.hair)
    elif looks.style == "bun":
        on.disc(x, y - 1.32 * size, 0.42 * size, looks.hair)
    if looks.style != "none":
        on.disc(x, y - 0.22 * size, 1.08 * size, looks.hair, 1.12 * size)


def _hair_in_front(on: Canvas, x: float, y: float, size: float, looks: Looks) -> None:
    """Draw a fringe: the part of a disc above the forehead."""
    if looks.style == "none":
        return
    middle_x, middle_y = on.at(x, y)
    radius = size * HEIGHT * SUPERSAMPLING
    corners = (middle_x - radius, middle_y - 1.22 * radius, middle_x + radius, middle_y + 1.0 * radius)
    first, last = (198, 342) if looks.style in ("short", "curly") else (205, 335)
    on.draw.chord(corners, first, last, fill=looks.hair)


def _features(on: Canvas, x: float, y: float, size: float, looks: Looks) -> None:
    unit = size * HEIGHT / WIDTH
    middle_x, middle_y = on.at(x, y)
    radius = size * HEIGHT * SUPERSAMPLING
    stroke = max(round(0.07 * radius), 2)
    if looks.beard:
        on.draw.chord(
            (middle_x - radius, middle_y - 0.9 * radius, middle_x + radius, middle_y + 1.15 * radius),
            18,
            162,
            fill=looks.hair,
        )
    for side in (-1, 1):
        eye = x + side * 0.4 * unit
        on.disc(x + side * 0.58 * unit, y + 0.32 * size, 0.2 * size, (*ROSE, 60), 0.13 * size)
        on.disc(eye, y - 0.04 * size, 0.11 * size, INK, 0.14 * size)
        on.disc(eye + 0.03 * unit, y - 0.09 * size, 0.04 * size, WHITE)
        outer, inner = eye + side * 0.2 * unit, eye - side * 0.18 * unit
        on.line(_darker(looks.hair), 0.06 * size, (outer, y - 0.33 * size), (inner, y - 0.355 * size))
        if looks.glasses:
            rim = (0.3 * radius, 0.3 * radius)
            left, top = on.at(eye, y - 0.04 * size)
            on.draw.ellipse((left - rim[0], top - rim[1], left + rim[0], top + rim[1]), outline=INK, width=stroke)
    if looks.glasses:
        on.line(INK, 0.06 * size, (x - 0.12 * unit, y - 0.06 * size), (x + 0.12 * unit, y - 0.06 * size))
    on.disc(x, y + 0.2 * size, 0.09 * size, _darker(looks.skin), 0.11 * size)
    lips = (middle_x - 0.42 * radius, middle_y + 0.05 * radius, middle_x + 0.42 * radius, middle_y + 0.68 * radius)
    on.draw.chord(lips, 20, 160, fill=(150, 52, 58))
    on.draw.chord((lips[0], lips[1] + 0.02 * radius, lips[2], lips[3] - 0.2 * radius), 22, 158, fill=WHITE)


def picture(
    name: str, background: Background, sitters: tuple[Sitter, ...], looks: dict[str, Looks]
) -> tuple[bytes, bytes]:
    """Return a JPEG file of WIDTH by HEIGHT pixels and its thumbnail. `name` seeds the random generator."""
    canvas = Canvas(name)
    background(canvas)
    for sitter in sitters:
        person(canvas, sitter, looks[sitter.name])
    if background is photo_backgrounds.cafe:
        photo_backgrounds.table(canvas)
    return canvas.jpeg()
