"""JPEG without metadata. https://www.w3.org/Graphics/JPEG/itu-t81.pdf, annex B

`separate` removes comments and application segments, among them EXIF with its GPS position, and XMP. It keeps the
application segments JFIF, Adobe's colour transform and colour profiles. The file ends with the first picture: further
pictures (MPO, gain maps), films and other trailing bytes are removed.
"""

import re
import struct

from datastore.photos.metadata.exif import HEADER
from datastore.photos.metadata.parts import MAX_PARTS, Damaged, Parts, Separated, TooManyParts

SIGNATURE = b"\xff\xd8"
# In the data of a scan decoders skip markers below 0xC0 and restarts (0xD0 to 0xD7), which do not end the scan.
MARKER = re.compile(rb"\xff[\xc0-\xcf\xd8-\xfe]")
START, END, SCAN, LINES = 0xD8, 0xD9, 0xDA, 0xDC
APP0, APP1, APP2, APP14, COMMENT = 0xE0, 0xE1, 0xE2, 0xEE, 0xFE
JFIF, ADOBE, PROFILE, XMP = b"JFIF\0", b"Adobe", b"ICC_PROFILE\0", b"http://ns.adobe.com/xap/1.0/\0"
JFIF_BYTES, ADOBE_BYTES, LINES_BYTES = 14, 12, 2


def separate(content: bytes) -> Separated:
    """Return the first picture without its metadata. Raises `Damaged` or `struct.error`."""
    view, parts = memoryview(content), Parts([SIGNATURE], orientation_index=1)
    offset = len(SIGNATURE)
    for _ in range(MAX_PARTS):
        marker, offset = _next_marker(content, offset)
        if marker == END:
            facts = parts.orient(lambda exif: _segment(APP1, HEADER + exif))
            parts.keep(bytes((0xFF, END)))
            return Separated(parts.joined(), facts)
        (length,) = struct.unpack_from(">H", view, offset)
        data = view[offset + 2 : offset + length]
        if marker == START or length < 2 or len(data) != length - 2:
            raise Damaged("The JPEG has an incomplete segment.")
        offset += length
        if APP0 <= marker <= COMMENT:
            _sort(parts, marker, data)
        elif marker != LINES or len(data) == LINES_BYTES:  # decoders skip this segment, regardless of its content
            parts.keep(_head(marker, len(data)), data)
        if marker == SCAN:
            end = _next_marker(content, offset)[1] - 2
            parts.keep(view[offset:end])
            offset = end
    raise TooManyParts


def _next_marker(content: bytes, offset: int) -> tuple[int, int]:
    """Return the next marker and the position after it."""
    found = MARKER.search(content, offset)
    if found is None:
        raise Damaged("The JPEG has no end.")
    return found[0][1], found.end()


def _sort(parts: Parts, marker: int, data: memoryview) -> None:
    """Keep the part of an application segment that a decoder needs, and add blocks with facts to `parts`."""
    start = bytes(data[: len(XMP)])
    if marker == APP0 and start.startswith(JFIF) and len(data) >= JFIF_BYTES:
        if len(parts.kept) == parts.orientation_index:  # JFIF comes first
            parts.orientation_index += 1
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
