"""Small pictures, made in code."""

import struct
import zlib
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


def claimed_png(width: int, height: int) -> bytes:
    """A PNG whose header says so, and that has next to nothing behind it."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
