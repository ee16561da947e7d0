"""Pictures without metadata: location, maker notes, names, comments, embedded thumbnails and trailing bytes go.

The functions work on the segments of JPEG and the chunks of PNG and WebP and never decode a picture. Lists name what a
decoder needs; all else goes. Compressed picture data and colour profiles are copied byte for byte, so that the pixels
stay the same. The orientation stays, in an EXIF block of its own.

Time and memory are linear in the size of the file: each byte is looked at once, and the result is joined once.
"""

import struct
from collections.abc import Callable, Mapping

from datastore.photos.metadata import jpeg, png, webp
from datastore.photos.metadata.exif import Facts
from datastore.photos.metadata.parts import MOST_PARTS, Damaged, Separated, TooManyParts

__all__ = ["MOST_PARTS", "Damaged", "Facts", "Separated", "TooManyParts", "content_type", "separate", "strip"]

# How a file of each type begins, and how it is separated.
FORMATS: Mapping[str, tuple[Callable[[bytes], bool], Callable[[bytes], Separated]]] = {
    "image/jpeg": (jpeg.begins, jpeg.separate),
    "image/png": (png.begins, png.separate),
    "image/webp": (webp.begins, webp.separate),
}


def content_type(content: bytes) -> str:
    """Return the type of a file as it begins. Raises `Damaged` for any other than JPEG, PNG and WebP."""
    for name, (begins, _) in FORMATS.items():
        if begins(content):
            return name
    raise Damaged("The file is no JPEG, PNG or WebP.")


def strip(content: bytes) -> bytes:
    """Return a JPEG, PNG or WebP file without its metadata. To strip the result again changes nothing.

    Raises `Damaged` for any other file, and for one that ends too soon.
    """
    return separate(content).content


def separate(content: bytes) -> Separated:
    """Return a JPEG, PNG or WebP file without its metadata, and the facts that the metadata stated.

    Raises `Damaged` for any other file, and for one that ends too soon.
    """
    try:
        return FORMATS[content_type(content)][1](content)
    except struct.error:
        raise Damaged("The file ends too soon.") from None
