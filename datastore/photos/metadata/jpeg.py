"""JPEG without metadata. https://www.w3.org/Graphics/JPEG/itu-t81.pdf, annex B

JFIF, Adobe's colour transform and colour profiles stay of the application segments. The file ends with the first
picture: further pictures (MPO, gain maps), films and other trailing bytes go.
"""

import re
import struct

from datastore.photos.metadata.exif import HEADER
from datastore.photos.metadata.parts import MOST_PARTS, Damaged, Parts, Separated, TooManyParts

SIGNATURE = b"\xff\xd8"
# Decoders pass over markers below 0xC0, and over restarts (0xD0 to 0xD7), in the data of a scan: those do not end it.
MARKER = re.compile(rb"\xff[\xc0-\xcf\xd8-\xfe]")
START, END, SCAN, LINES = 0xD8, 0xD9, 0xDA, 0xDC
APP0, APP1, APP2, APP14, COMMENT = 0xE0, 0xE1, 0xE2, 0xEE, 0xFE
JFIF, ADOBE, PROFILE, XMP = b"JFIF\0", b"Adobe", b"ICC_PROFILE\0", b"http://ns.adobe.com/xap/1.0/\0"
JFIF_BYTES, ADOBE_BYTES, LINES_BYTES = 14, 12, 2


def begins(content: bytes) -> bool:
    """Return whether the file begins as a JPEG does."""
    return content.startswith(SIGNATURE)


def separate(content: bytes) -> Separated:
    """Return the first picture without its metadata. Raises `Damaged` or `struct.error`."""
    view, parts = memoryview(content), Parts([SIGNATURE], place=1)
    at = len(SIGNATURE)
    for _ in range(MOST_PARTS):
        marker, at = _next_marker(content, at)
        if marker == END:
            facts = parts.orient(lambda exif: _segment(APP1, HEADER + exif))
            parts.keep(bytes((0xFF, END)))
            return Separated(parts.joined(), facts)
        (length,) = struct.unpack_from(">H", view, at)
        data = view[at + 2 : at + length]
        if marker == START or length < 2 or len(data) != length - 2:
            raise Damaged("The JPEG has a segment that is not whole.")
        at += length
        if APP0 <= marker <= COMMENT:
            _sort(parts, marker, data)
        elif marker != LINES or len(data) == LINES_BYTES:  # decoders pass over this one, whatever it holds
            parts.keep(_head(marker, len(data)), data)
        if marker == SCAN:
            end = _next_marker(content, at)[1] - 2
            parts.keep(view[at:end])
            at = end
    raise TooManyParts


def _next_marker(content: bytes, at: int) -> tuple[int, int]:
    """Return the next marker and the position behind it."""
    found = MARKER.search(content, at)
    if found is None:
        raise Damaged("The JPEG has no end.")
    return found[0][1], found.end()


def _sort(parts: Parts, marker: int, data: memoryview) -> None:
    """Keep what a decoder needs of an application segment, and note what states facts."""
    start = bytes(data[: len(XMP)])
    if marker == APP0 and start.startswith(JFIF) and len(data) >= JFIF_BYTES:
        if len(parts.kept) == parts.place:  # JFIF comes first
            parts.place += 1
        # The last two bytes are the size of a thumbnail, which follows.
        parts.keep(_segment(APP0, bytes(data[: JFIF_BYTES - 2]) + b"\0\0"))
    elif marker == APP2 and start.startswith(PROFILE):
        parts.keep(_head(marker, len(data)), data)
    elif marker == APP14 and start.startswith(ADOBE) and len(data) >= ADOBE_BYTES:
        parts.keep(_segment(APP14, bytes(data[:ADOBE_BYTES])))
    elif marker == APP1 and start.startswith(HEADER):
        parts.add_exif(data[len(HEADER) :])
    elif marker == APP1 and start.startswith(XMP):
        parts.xmp = bytes(data[len(XMP) :])


def _segment(marker: int, data: bytes) -> bytes:
    return _head(marker, len(data)) + data


def _head(marker: int, length: int) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, length + 2)
