"""Backgrounds of the demo's pictures: one function per invented place."""

import math

from pipelines.demo.canvas import HEIGHT, INK, WHITE, WIDTH, Canvas


def bay(on: Canvas) -> None:
    on.sky((255, 196, 120), (255, 160, 122), (196, 112, 138), (86, 84, 132))
    on.sun(0.62, 0.5, 0.09, (255, 232, 170))
    on.ridge(0.52, 0.05, (126, 82, 116), 1.1)
    on.box(0, 0.56, 1, 1, (70, 78, 128))
    for row in range(26):
        y, wide = 0.575 + row * 0.016, on.rng.uniform(0.02, 0.11)
        x = 0.62 + on.rng.uniform(-0.04, 0.04) * (1 + row / 8)
        on.box(x - wide / 2, y, x + wide / 2, y + 0.005, (255, 220, 160, 120), 0.002)
    on.shape((64, 42, 58), (0.24, 0.7), (0.4, 0.7), (0.375, 0.745), (0.265, 0.745))
    on.shape((255, 246, 230), (0.315, 0.42), (0.315, 0.685), (0.4, 0.685))
    on.shape((246, 214, 190), (0.305, 0.47), (0.305, 0.685), (0.252, 0.685))


def lighthouse(on: Canvas) -> None:
    on.sky((120, 184, 226), (178, 216, 236), (232, 240, 236))
    on.cloud(0.2, 0.2, 0.07)
    on.cloud(0.55, 0.12, 0.05)
    on.box(0, 0.62, 1, 1, (64, 132, 164))
    for _ in range(40):
        x, y = on.rng.random(), on.rng.uniform(0.64, 0.98)
        on.box(x, y, x + 0.03, y + 0.004, (*WHITE, 70), 0.002)
    on.shape((104, 112, 98), (0.58, 1), (0.64, 0.72), (0.74, 0.62), (0.92, 0.6), (1, 0.66), (1, 1))
    on.shape((250, 248, 242), (0.775, 0.63), (0.865, 0.63), (0.85, 0.22), (0.79, 0.22))
    for low, high in ((0.56, 0.48), (0.4, 0.32)):
        on.shape((206, 70, 62), (0.779, low), (0.861, low), (0.858, high), (0.782, high))
    on.box(0.793, 0.15, 0.847, 0.22, (255, 226, 130))
    on.shape((70, 64, 72), (0.783, 0.155), (0.857, 0.155), (0.82, 0.09))
    on.shape((255, 240, 180, 80), (0.8, 0.18), (0.3, 0.06), (0.3, 0.24))


def city(on: Canvas) -> None:
    on.sky((18, 22, 54), (44, 42, 96), (112, 74, 128), (226, 134, 120))
    for _ in range(70):
        on.disc(on.rng.random(), on.rng.uniform(0, 0.4), on.rng.uniform(0.001, 0.003), (*WHITE, 200))
    on.disc(0.82, 0.17, 0.05, (250, 240, 214))
    for colour, least, most in (((58, 48, 98), 0.3, 0.55), ((26, 24, 56), 0.45, 0.75)):
        left = -0.02
        while left < 1:
            right, top = left + on.rng.uniform(0.05, 0.1), on.rng.uniform(least, most)
            on.box(left, top, right, 1, colour)
            _windows(on, left, right, top)
            left = right + on.rng.uniform(0, 0.015)


def _windows(on: Canvas, left: float, right: float, top: float) -> None:
    columns = round((right - left) / 0.016)
    for row in range(round((0.97 - top) / 0.036)):
        for column in range(columns):
            if on.rng.random() < 0.36:
                x, y = left + (column + 0.35) * (right - left) / columns, top + 0.025 + row * 0.036
                on.box(x, y, x + 0.006, y + 0.016, (255, 214, 130, 220))


def balloons(on: Canvas) -> None:
    on.sky((94, 150, 214), (170, 204, 230), (255, 222, 184))
    on.ridge(0.72, 0.06, (150, 166, 150), 1.2)
    on.ridge(0.82, 0.05, (104, 140, 104), 1.6)
    on.ridge(0.93, 0.03, (70, 108, 76), 2.2)
    pairs = (((232, 92, 80), (250, 206, 96)), ((74, 120, 190), (244, 244, 236)), ((120, 84, 160), (240, 150, 150)))
    for place, (one, two) in zip(((0.3, 0.36, 0.19), (0.66, 0.24, 0.12), (0.84, 0.5, 0.085)), pairs, strict=True):
        x, y, size = place
        aspect = HEIGHT / WIDTH
        for side in (-1, 1):
            on.line(INK, 0.003, (x + side * size * 0.3 * aspect, y + size * 0.9), (x, y + size * 1.45))
        for part, colour in ((1.0, one), (0.72, two), (0.4, one), (0.12, two)):
            on.disc(x, y, size * part, colour, size)
        on.shape(one, (x - size * 0.6, y + size * 0.66), (x + size * 0.6, y + size * 0.66), (x, y + size * 1.15))
        on.box(x - size * 0.14, y + size * 1.3, x + size * 0.14, y + size * 1.55, (124, 84, 56), 0.006)


def aurora(on: Canvas) -> None:
    on.sky((8, 14, 40), (14, 32, 66), (26, 66, 86), (40, 88, 96))
    for _ in range(120):
        on.disc(on.rng.random(), on.rng.uniform(0, 0.6), on.rng.uniform(0.001, 0.003), (*WHITE, 210))
    for band, colour in enumerate(((90, 255, 180), (80, 220, 220), (170, 130, 240))):
        for step in range(110):
            x = step / 110
            top = 0.12 + band * 0.06 + 0.08 * math.sin(5 * x + band * 1.3) + 0.02 * math.sin(31 * x)
            on.box(x, top, x + 0.012, top + 0.2 + 0.06 * math.sin(9 * x + band), (*colour, 26))
    on.ridge(0.7, 0.12, (16, 34, 48), 1.5)
    on.ridge(0.84, 0.03, (226, 236, 244), 1.2)
    for x in (0.08, 0.15, 0.21, 0.78, 0.87, 0.94):
        on.pine(x, 0.9 + on.rng.uniform(0, 0.06), on.rng.uniform(0.2, 0.32), (14, 40, 44))


def lake(on: Canvas) -> None:
    on.sky((92, 156, 214), (168, 206, 232), (236, 240, 232), (226, 230, 220))
    for x, top, wide, colour in ((0.2, 0.2, 0.3, (112, 126, 152)), (0.75, 0.16, 0.34, (98, 114, 144))):
        on.shape(colour, (x - wide, 0.62), (x, top), (x + wide, 0.62))
        snow = [(x - wide * 0.26, top + 0.12), (x, top), (x + wide * 0.26, top + 0.12)]
        on.shape((248, 250, 252), *snow, (x + wide * 0.1, top + 0.09), (x, top + 0.15), (x - wide * 0.12, top + 0.1))
    on.shape((84, 100, 130), (0.25, 0.62), (0.48, 0.34), (0.72, 0.62))
    on.ridge(0.58, 0.03, (62, 104, 84), 2.4)
    on.box(0, 0.64, 1, 1, (88, 146, 178))
    for row in range(22):
        x, y = on.rng.uniform(-0.1, 0.9), 0.655 + row * 0.016
        on.box(x, y, x + on.rng.uniform(0.1, 0.4), y + 0.004, (*WHITE, 60), 0.002)
    for x in (0.03, 0.1, 0.92, 0.985):
        on.pine(x, 0.99, on.rng.uniform(0.34, 0.5), (38, 78, 62))


def meadow(on: Canvas) -> None:
    on.sky((116, 184, 232), (190, 220, 236), (246, 240, 214))
    on.sun(0.16, 0.18, 0.07, (255, 240, 176))
    on.cloud(0.62, 0.16, 0.08)
    on.ridge(0.52, 0.07, (150, 190, 132), 1.0)
    on.ridge(0.62, 0.05, (118, 172, 98), 1.5)
    on.ridge(0.74, 0.03, (92, 150, 78), 1.9)
    for _ in range(230):
        y = 0.66 + 0.34 * on.rng.random() ** 0.7
        size = 0.004 + (y - 0.64) * 0.035
        colour = on.rng.choice(((240, 90, 100), (250, 214, 90), (250, 250, 250), (180, 130, 220)))
        x = on.rng.random()
        on.disc(x, y, size, colour)
        on.disc(x, y, size * 0.4, (250, 190, 60))


def forest(on: Canvas) -> None:
    on.sky((214, 224, 218), (190, 208, 204), (160, 184, 176))
    on.disc(0.7, 0.22, 0.08, (255, 250, 230, 200))
    for row, colour in enumerate(((158, 182, 172), (112, 146, 134), (66, 104, 90), (30, 62, 52))):
        for number in range(12 - row):
            x = (number + on.rng.uniform(0.1, 0.9)) / (12 - row)
            size = on.rng.uniform(0.3, 0.4) + row * 0.08
            on.pine(x, 0.66 + row * 0.115, size, colour)
        on.box(0, 0.62 + row * 0.12, 1, 1, (*colour, 60))


def desert(on: Canvas) -> None:
    on.sky((250, 170, 104), (252, 200, 140), (254, 226, 176))
    on.sun(0.32, 0.32, 0.1, (255, 246, 214))
    on.ridge(0.6, 0.06, (226, 150, 96), 0.7)
    on.ridge(0.72, 0.07, (206, 122, 76), 0.9)
    on.ridge(0.86, 0.06, (176, 94, 60), 1.1)
    for x, foot, size in ((0.76, 0.9, 0.34), (0.9, 0.84, 0.2)):
        green, wide = (62, 104, 78), size * 0.055
        on.box(x - wide, foot - size, x + wide, foot, green, 0.03)
        for side, high in ((-1, 0.52), (1, 0.66)):
            reach, level = x + side * size * 0.2, foot - size * high
            on.box(min(x, reach), level - wide, max(x, reach), level + wide, green, 0.02)
            on.box(reach - wide * 0.8, level - size * 0.24, reach + wide * 0.8, level + wide, green, 0.025)


def snow(on: Canvas) -> None:
    on.sky((150, 184, 216), (200, 218, 234), (236, 242, 248))
    on.ridge(0.6, 0.05, (214, 226, 238), 1.2)
    for x in (0.06, 0.16, 0.9, 0.97):
        on.pine(x, 0.72, on.rng.uniform(0.3, 0.42), (70, 112, 110))
    on.ridge(0.72, 0.03, (246, 249, 253), 0.9)
    for y, size in ((0.76, 0.13), (0.57, 0.095), (0.42, 0.068)):
        on.disc(0.78, y, size + 0.004, (206, 218, 232))
        on.disc(0.78, y - 0.004, size, WHITE)
    for x in (0.765, 0.795):
        on.disc(x, 0.405, 0.009, INK)
    on.shape((240, 130, 50), (0.78, 0.415), (0.78, 0.435), (0.825, 0.432))
    on.box(0.745, 0.345, 0.815, 0.36, INK)
    on.box(0.758, 0.27, 0.802, 0.35, INK)
    for _ in range(150):
        on.disc(on.rng.random(), on.rng.random(), on.rng.uniform(0.002, 0.006), (*WHITE, 220))


def cafe(on: Canvas) -> None:
    on.sky((122, 78, 62), (146, 96, 74), (110, 68, 56))
    on.box(0.06, 0.1, 0.94, 0.6, (78, 50, 42), 0.02)
    on.box(0.075, 0.125, 0.925, 0.575, (176, 206, 214), 0.012)
    on.box(0.075, 0.4, 0.925, 0.575, (150, 176, 140), 0.012)
    for x in (0.36, 0.64):
        on.box(x - 0.006, 0.12, x + 0.006, 0.58, (78, 50, 42))
    for x in (0.2, 0.5, 0.8):
        on.line(INK, 0.005, (x, 0), (x, 0.16))
        on.disc(x, 0.2, 0.14, (255, 226, 150, 40))
        on.shape((226, 158, 70), (x - 0.045, 0.22), (x + 0.045, 0.22), (x + 0.015, 0.15), (x - 0.015, 0.15))


def table(on: Canvas) -> None:
    """Draw the table in front of the people in the café."""
    on.box(-0.1, 0.88, 1.1, 1.1, (196, 148, 98), 0.02)
    for x in (0.2, 0.8):
        on.disc(x, 0.925, 0.075, (238, 232, 220), 0.02)
        on.box(x - 0.03, 0.83, x + 0.03, 0.925, (250, 248, 240), 0.02)
        on.disc(x, 0.835, 0.042, (104, 64, 44), 0.011)


def studio(on: Canvas) -> None:
    on.sky((72, 92, 110), (112, 136, 146), (86, 104, 116))
    for _ in range(24):
        x, y, size = on.rng.random(), on.rng.random() * 0.8, on.rng.uniform(0.03, 0.09)
        on.disc(x, y, size, (*on.rng.choice(((255, 220, 160), (200, 230, 240), (240, 180, 180))), 34))


def terrace(on: Canvas) -> None:
    on.sky((255, 190, 150), (250, 162, 146), (204, 122, 146), (150, 96, 140))
    on.sun(0.5, 0.42, 0.13, (255, 230, 180))
    on.ridge(0.56, 0.05, (126, 84, 124), 1.3)
    on.ridge(0.66, 0.04, (96, 70, 108), 2.0)
    lights = [(step / 20, 0.1 + 0.09 * math.sin(math.pi * (step / 20 * 3 % 1))) for step in range(21)]
    on.line((80, 56, 80), 0.004, *lights)
    for x, y in lights:
        on.disc(x, y + 0.016, 0.026, (255, 236, 170, 70))
        on.disc(x, y + 0.016, 0.012, (255, 244, 200))
