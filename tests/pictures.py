"""Small pictures, made in code."""

from io import BytesIO
from typing import Any

from PIL import Image


def encoded(kind: str, width: int, height: int, color: str = "red", **more: Any) -> bytes:
    file = BytesIO()
    Image.new("RGB", (width, height), color).save(file, kind, **more)
    return file.getvalue()


def jpeg(width: int = 60, height: int = 40, color: str = "red", **more: Any) -> bytes:
    return encoded("JPEG", width, height, color, **more)


def png(width: int = 60, height: int = 40, color: str = "red", **more: Any) -> bytes:
    return encoded("PNG", width, height, color, **more)
