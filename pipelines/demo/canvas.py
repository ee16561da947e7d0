"""A canvas for the demo's pictures, with coordinates in fractions of the picture.

The canvas is drawn at twice the final size and reduced at the end, which smooths the edges. The random generator is
seeded with the picture's name, so a picture is the same each time.
"""

import io
import math
import random

from PIL import Image, ImageDraw

WIDTH, HEIGHT = 960, 640
#: The canvas is SUPERSAMPLING times as large as the picture, and the picture THUMBNAIL_FACTOR times as large as its
#: thumbnail.
SUPERSAMPLING, THUMBNAIL_FACTOR = 2, 2
QUALITY, THUMBNAIL_QUALITY = 82, 78

Colour = tuple[int, ...]
INK, WHITE = (46, 38, 44), (255, 255, 255)


class Canvas:
    """A drawing surface. `x` is a fraction of the picture's width, all other lengths are fractions of its height."""

    def __init__(self, seed: str) -> None:
        self.image = Image.new("RGB", (WIDTH * SUPERSAMPLING, HEIGHT * SUPERSAMPLING))
        self.draw = ImageDraw.Draw(self.image, "RGBA")
        self.rng = random.Random(seed)

    def at(self, x: float, y: float) -> tuple[float, float]:
        return x * WIDTH * SUPERSAMPLING, y * HEIGHT * SUPERSAMPLING

    def sky(self, *colours: Colour) -> None:
        """Fill the canvas with a vertical gradient; `colours` run from the top to the bottom."""
        column = Image.new("RGB", (1, len(colours)))
        column.putdata(colours)
        wide, high = self.image.size
        graded = column.resize((1, high), Image.Resampling.BILINEAR)
        self.image.paste(graded.resize((wide, high), Image.Resampling.NEAREST))

    def disc(self, x: float, y: float, across: float, colour: Colour, down: float | None = None) -> None:
        middle_x, middle_y = self.at(x, y)
        wide, high = across * HEIGHT * SUPERSAMPLING, (across if down is None else down) * HEIGHT * SUPERSAMPLING
        self.draw.ellipse((middle_x - wide, middle_y - high, middle_x + wide, middle_y + high), fill=colour)

    def shape(self, colour: Colour, *points: tuple[float, float]) -> None:
        self.draw.polygon([self.at(*point) for point in points], fill=colour)

    def line(self, colour: Colour, width: float, *points: tuple[float, float]) -> None:
        self.draw.line([self.at(*point) for point in points], fill=colour, width=round(width * HEIGHT * SUPERSAMPLING))

    def box(self, left: float, top: float, right: float, bottom: float, colour: Colour, rounded: float = 0.0) -> None:
        corners = (*self.at(left, top), *self.at(right, bottom))
        self.draw.rounded_rectangle(corners, rounded * HEIGHT * SUPERSAMPLING, fill=colour)

    def sun(self, x: float, y: float, size: float, colour: Colour) -> None:
        for ring in range(6, 0, -1):
            self.disc(x, y, size * (1 + ring * 0.35), (*colour, 26))
        self.disc(x, y, size, colour)

    def ridge(self, base: float, swing: float, colour: Colour, waves: float = 2.0) -> None:
        """Draw hills from side to side, filled down to the lower edge."""
        shift = self.rng.uniform(0, 2 * math.pi)
        steps = [step / 48 for step in range(49)]
        tops = [
            (x, base + swing * (math.sin(waves * 6 * x + shift) * 0.6 + math.sin(waves * 13 * x + 2 * shift) * 0.25))
            for x in steps
        ]
        self.shape(colour, (0, 1), *tops, (1, 1))

    def cloud(self, x: float, y: float, size: float, colour: Colour = (*WHITE, 150)) -> None:
        for shift, lift, part in ((-0.7, 0.1, 0.6), (-0.2, -0.15, 0.9), (0.4, 0.0, 0.75), (0.9, 0.15, 0.5)):
            self.disc(x + shift * size, y + lift * size, size * part, colour, size * part * 0.6)

    def pine(self, x: float, foot: float, size: float, colour: Colour) -> None:
        self.shape((74, 52, 40), (x - 0.006, foot), (x + 0.006, foot), (x + 0.006, foot - size * 0.2), (x, foot - size))
        for tier in range(3):
            low, wide = foot - size * (0.12 + 0.26 * tier), size * (0.24 - 0.055 * tier)
            self.shape(colour, (x - wide, low), (x + wide, low), (x, low - size * 0.42))

    def jpeg(self) -> tuple[bytes, bytes]:
        """Return the picture and its thumbnail as JPEG files."""
        picture = self.image.reduce(SUPERSAMPLING)
        small = picture.reduce(THUMBNAIL_FACTOR)
        return _jpeg(picture, QUALITY), _jpeg(small, THUMBNAIL_QUALITY)


def _jpeg(picture: Image.Image, quality: int) -> bytes:
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=quality)
    return file.getvalue()
