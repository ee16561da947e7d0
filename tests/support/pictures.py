"""Small generated pictures."""

import struct
import zlib
from hashlib import sha512
from io import BytesIO
from typing import Any

from PIL import Image


def plain_picture(kind: str, width: int, height: int, color: str = "red", **more: Any) -> bytes:
    file = BytesIO()
    Image.new("RGB", (width, height), color).save(file, kind, **more)
    return file.getvalue()


def jpeg(width: int = 60, height: int = 40, color: str = "red", **more: Any) -> bytes:
    return plain_picture("JPEG", width, height, color, **more)


def unique_jpeg(seed: str) -> bytes:
    """Return a picture of 8 by 8 pixels that differs from those of other seeds, also without its metadata."""
    file = BytesIO()
    Image.frombytes("L", (8, 8), sha512(seed.encode()).digest()).save(file, "JPEG", quality=100, comment=seed.encode())
    return file.getvalue()


def png(width: int = 60, height: int = 40, color: str = "red", **more: Any) -> bytes:
    return plain_picture("PNG", width, height, color, **more)


def claimed_png(width: int, height: int) -> bytes:
    """Return a PNG whose header claims this size, with almost no data."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
