"""Counts the parts that a picture file consists of, before a decoder sees it.

Pillow reads the parts of a file one by one, in Python. A file of 25 MB may have millions of empty ones, which take
tens of seconds. The checks here stop at the limit, so that they take time in proportion to the limit.
"""

import re
from collections.abc import Iterator

from PIL.JpegImagePlugin import MARKER as PILLOWS_MARKERS

from datastore.photos.image_types import RefusalReason, refused

# Of a file: the segments of a JPEG, the chunks of a PNG or WebP. A picture of 25 MB with all that cameras and profiles
# add has some hundreds; a PNG whose data comes in chunks of 4 KB has 6,400.
MOST_SEGMENTS = 10_000
# A JPEG is decoded scan by scan, each over the whole picture: cameras write one, a progressive one has ten or so, and
# one of thousands keeps a decoder busy for minutes. All together they may go over so many pixels: for about a second.
MOST_SCANS, MOST_SCANNED = 100, 800_000_000
JPEG_START, PNG_START, RIFF_START = b"\xff\xd8", b"\x89PNG\r\n\x1a\n", b"RIFF"
# https://www.w3.org/Graphics/JPEG/itu-t81.pdf, table B.1: the markers that have a segment. Those up to 0xBF are
# reserved: decoders that look for a restart marker pass over such a one alone, and read on in its segment.
MARKER, SCAN, END = re.compile(rb"\xff[\xc0-\xcf\xd9-\xfe]"), b"\xff\xda", b"\xff\xd9"


def check_segments(file: str, content: bytes) -> None:
    """Check how many parts a file has, whatever it was announced as: decoders go by its first bytes.

    `file` is "original" or "thumbnail", for the error.
    Raises `BadUserInput` for more than `MOST_SEGMENTS`.
    """
    if content.startswith(PNG_START):
        parts, what, reason = _png_chunks(content), "chunks", RefusalReason.TOO_MANY_CHUNKS
    elif content.startswith(RIFF_START):
        parts, what, reason = _riff_chunks(content), "chunks", RefusalReason.TOO_MANY_CHUNKS
    elif content.startswith(JPEG_START):
        parts, what, reason = _head_parts(content), "segments", RefusalReason.TOO_MANY_SCANS
    else:
        return
    for number, _ in enumerate(parts, 1):
        if number > MOST_SEGMENTS:
            raise refused(file, reason, f"must have at most {MOST_SEGMENTS} {what}.")


def check_scans(file: str, content: bytes, pixels: int) -> None:
    """Check how many scans and segments a JPEG of so many pixels has. Raises `BadUserInput`."""
    most = min(MOST_SCANS, MOST_SCANNED // pixels)
    scans = 0
    for segments, marker in enumerate(_markers(content), 1):
        scans += marker == SCAN
        if scans > most:
            raise refused(file, RefusalReason.TOO_MANY_SCANS, f"must have at most {most} scans.")
        if segments > MOST_SEGMENTS:
            raise refused(file, RefusalReason.TOO_MANY_SCANS, f"must have at most {MOST_SEGMENTS} segments.")


def _png_chunks(content: bytes) -> Iterator[int]:
    """The offsets of the chunks up to IEND. https://www.w3.org/TR/png-3/#5Chunk-layout"""
    at = len(PNG_START)
    while at + 8 <= len(content) and content[at + 4 : at + 8] != b"IEND":
        yield at
        at += 12 + int.from_bytes(content[at : at + 4])


def _riff_chunks(content: bytes) -> Iterator[int]:
    """The offsets of the chunks behind the file header.

    https://developers.google.com/speed/webp/docs/riff_container
    """
    at = 12
    while at + 8 <= len(content):
        yield at
        size = int.from_bytes(content[at + 4 : at + 8], "little")
        at += 8 + size + (size & 1)


def _head_parts(content: bytes) -> Iterator[int]:
    """The offsets of what stands before the first scan, as Pillow steps through it: it passes over fill bytes and bytes
    that belong to nothing one by one.
    """
    at = len(JPEG_START)
    while at < len(content) - 1:
        yield at
        code = int.from_bytes(content[at : at + 2])
        if code == int.from_bytes(SCAN):
            return
        if code < 0xFF00 or code == 0xFFFF:
            at += 1
        elif code in PILLOWS_MARKERS and PILLOWS_MARKERS[code][2] is not None:
            at += 2 + max(2, int.from_bytes(content[at + 2 : at + 4]))
        else:
            at += 2


def _markers(content: bytes) -> Iterator[bytes]:
    """The markers up to the end of the first picture: behind it there may be further ones, or a film.

    What segments hold is passed over; in the data of scans there are none but those that have no segment.
    """
    at = len(JPEG_START)
    while (found := MARKER.search(content, at)) is not None and found[0] != END:
        yield found[0]
        at = found.end() + int.from_bytes(content[found.end() : found.end() + 2])
