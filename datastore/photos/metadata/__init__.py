"""Removal of metadata from pictures: locations, maker notes, names, comments, embedded thumbnails and trailing bytes.

The functions work on the segments of JPEG and the chunks of PNG and WebP, and never decode a picture. Allow-lists name
the parts that a decoder needs; all others are removed. Compressed picture data and colour profiles are copied byte for
byte, so that the pixels do not change. The orientation is kept in a new EXIF block.

Time and memory are linear in the size of the file: each byte is read once, and the result is joined once.
"""

import re
import struct
from collections.abc import Callable, Mapping

from datastore.photos.metadata import jpeg, png, webp
from datastore.photos.metadata.exif import Facts
from datastore.photos.metadata.parts import MAX_PARTS, Damaged, Separated, TooManyParts

__all__ = ["MAX_PARTS", "Damaged", "Facts", "Separated", "TooManyParts", "content_type", "separate", "strip"]

# For each type, the first bytes of a file, and the function that separates its metadata.
FORMATS: Mapping[str, tuple[re.Pattern[bytes], Callable[[bytes], Separated]]] = {
    "image/jpeg": (re.compile(jpeg.SIGNATURE), jpeg.separate),
    "image/png": (re.compile(png.SIGNATURE), png.separate),
    "image/webp": (re.compile(rb"RIFF....WEBP", re.DOTALL), webp.separate),
}


def content_type(content: bytes) -> str:
    """Return the media type by a file's first bytes. Raises `Damaged` for any other than JPEG, PNG and WebP."""
    for name, (start, _) in FORMATS.items():
        if start.match(content):
            return name
    raise Damaged("The file is no JPEG, PNG or WebP.")


def strip(content: bytes) -> bytes:
    """Return a JPEG, PNG or WebP file without its metadata. The function is idempotent.

    Raises `Damaged` for any other file, and for a truncated file.
    """
    return separate(content).content


def separate(content: bytes) -> Separated:
    """Return a JPEG, PNG or WebP file without its metadata, and the facts in the metadata.

    Raises `Damaged` for any other file, and for a truncated file.
    """
    try:
        return FORMATS[content_type(content)][1](content)
    except struct.error:
        raise Damaged("The file ends too soon.") from None
