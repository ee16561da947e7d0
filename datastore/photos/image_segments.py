"""Limits on the number of parts of a picture file, checked before it is decoded.

Pillow reads the parts of a file one by one, in Python. A file of 25 MB may have millions of empty parts, which take
tens of seconds. The checks stop at the limit, so that their time is proportional to the limit.
"""

import re
from collections.abc import Iterator

from PIL.JpegImagePlugin import MARKER as PILLOWS_MARKERS

from datastore.photos.image_types import RefusalReason, refusal

# The segments of a JPEG, or the chunks of a PNG or WebP. A picture of 25 MB with the data of cameras and profiles has
# some hundreds; a PNG whose data is in chunks of 4 KB has 6,400.
MAX_SEGMENTS = 10_000
# A JPEG is decoded scan by scan, each over all pixels. Cameras write one scan, a progressive JPEG has about ten, and
# thousands of scans keep a decoder busy for minutes. The limit on the scanned pixels takes about a second.
MAX_SCANS, MAX_SCANNED_PIXELS = 100, 800_000_000
JPEG_START, PNG_START, RIFF_START = b"\xff\xd8", b"\x89PNG\r\n\x1a\n", b"RIFF"
# https://www.w3.org/Graphics/JPEG/itu-t81.pdf, table B.1: the markers that have a segment. Markers up to 0xBF are
# reserved: decoders that search for a restart marker skip only the marker, and continue in its segment.
MARKER, SCAN, END = re.compile(rb"\xff[\xc0-\xcf\xd9-\xfe]"), b"\xff\xda", b"\xff\xd9"


def check_segments(file: str, content: bytes) -> None:
    """Check the number of parts of a file. As in decoders, the first bytes decide on its format.

    `file` is "original" or "thumbnail", for the error.

    Raises `BadUserInput` for more than `MAX_SEGMENTS`.
    """
    if content.startswith(PNG_START):
        parts, noun, reason = _png_chunks(content), "chunks", RefusalReason.TOO_MANY_CHUNKS
    elif content.startswith(RIFF_START):
        parts, noun, reason = _riff_chunks(content), "chunks", RefusalReason.TOO_MANY_CHUNKS
    elif content.startswith(JPEG_START):
        parts, noun, reason = _head_parts(content), "segments", RefusalReason.TOO_MANY_SCANS
    else:
        return
    for number, _ in enumerate(parts, 1):
        if number > MAX_SEGMENTS:
            raise refusal(file, reason, f"must have at most {MAX_SEGMENTS} {noun}.")


def check_scans(file: str, content: bytes, pixels: int) -> None:
    """Check the numbers of scans and segments of a JPEG with `pixels` pixels. Raises `BadUserInput`."""
    max_scans = min(MAX_SCANS, MAX_SCANNED_PIXELS // pixels)
    scans = 0
    for segments, marker in enumerate(_markers(content), 1):
        scans += marker == SCAN
        if scans > max_scans:
            raise refusal(file, RefusalReason.TOO_MANY_SCANS, f"must have at most {max_scans} scans.")
        if segments > MAX_SEGMENTS:
            raise refusal(file, RefusalReason.TOO_MANY_SCANS, f"must have at most {MAX_SEGMENTS} segments.")


def _png_chunks(content: bytes) -> Iterator[int]:
    """Yield the offsets of the chunks before IEND. https://www.w3.org/TR/png-3/#5Chunk-layout"""
    offset = len(PNG_START)
    while offset + 8 <= len(content) and content[offset + 4 : offset + 8] != b"IEND":
        yield offset
        offset += 12 + int.from_bytes(content[offset : offset + 4])


def _riff_chunks(content: bytes) -> Iterator[int]:
    """Yield the offsets of the chunks after the file header.

    https://developers.google.com/speed/webp/docs/riff_container
    """
    offset = 12
    while offset + 8 <= len(content):
        yield offset
        size = int.from_bytes(content[offset + 4 : offset + 8], "little")
        offset += 8 + size + (size & 1)


def _head_parts(content: bytes) -> Iterator[int]:
    """Yield the offsets before the first scan at which Pillow reads. It skips fill bytes and stray bytes one by one."""
    offset = len(JPEG_START)
    while offset < len(content) - 1:
        yield offset
        code = int.from_bytes(content[offset : offset + 2])
        if code == int.from_bytes(SCAN):
            return
        if code < 0xFF00 or code == 0xFFFF:
            offset += 1
        elif code in PILLOWS_MARKERS and PILLOWS_MARKERS[code][2] is not None:
            offset += 2 + max(2, int.from_bytes(content[offset + 2 : offset + 4]))
        else:
            offset += 2


def _markers(content: bytes) -> Iterator[bytes]:
    """Yield the markers of the first picture, after which further pictures or a film may follow.

    The contents of segments are skipped. The data of scans contains only markers without a segment.
    """
    position = len(JPEG_START)
    while (found := MARKER.search(content, position)) is not None and found[0] != END:
        yield found[0]
        position = found.end() + int.from_bytes(content[found.end() : found.end() + 2])
