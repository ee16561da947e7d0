"""WebP without metadata. https://www.rfc-editor.org/rfc/rfc9649#section-2

The picture or the frames of an animation, and the colour profile, are kept. EXIF, XMP and unknown chunks, also in
frames, and trailing bytes are removed.
"""

import struct
from collections.abc import Iterator
from itertools import count

from datastore.photos.metadata.exif import UPRIGHT
from datastore.photos.metadata.parts import MAX_METADATA_BYTES, MAX_PARTS, Damaged, Parts, Separated, TooManyParts

RIFF, WEBP = b"RIFF", b"WEBP"
HEADER_BYTES = 12
FEATURES, FEATURES_BYTES = b"VP8X", 10
ANIMATION, ANIMATION_BYTES = b"ANIM", 6
FRAME, FRAME_BYTES = b"ANMF", 16
IMAGE = (b"ALPH", b"VP8 ", b"VP8L")
# The flags of `FEATURES`: the kept ones of an animation, transparency and a colour profile; and that of EXIF.
KEPT_FLAGS, EXIF_FLAG = 0b0011_0010, 0b0000_1000


def separate(content: bytes) -> Separated:
    """Return the picture without its metadata. Raises `Damaged` or `struct.error`."""
    (length,) = struct.unpack_from("<I", content, 4)
    view = memoryview(content)[: 8 + length]
    if len(view) != 8 + length:
        raise Damaged("The WebP is truncated.")
    parts, features, remaining = Parts(), b"", count(MAX_PARTS, -1)
    for kind, data in _chunks(view[HEADER_BYTES:], remaining):
        if kind == FEATURES:
            features = _features(data)
        elif kind in IMAGE or kind == b"ICCP":
            parts.keep(*_chunk(kind, data))
        elif kind == ANIMATION:
            parts.keep(*_chunk(kind, data[:ANIMATION_BYTES]))
        elif kind == FRAME:
            parts.keep(_frame(data, remaining))
        elif kind == b"EXIF":
            parts.add_exif(data)
        elif kind == b"XMP ":
            parts.xmp = parts.xmp or bytes(data[:MAX_METADATA_BYTES])
    if not parts.kept:
        raise Damaged("The WebP has no picture.")
    return _assembled(parts, features)


def _chunks(view: memoryview, remaining: Iterator[int]) -> Iterator[tuple[bytes, memoryview]]:
    """Yield the chunks, each with its kind. `remaining` counts down the chunks that the file may still have."""
    offset = 0
    while offset < len(view):
        if not next(remaining):
            raise TooManyParts
        kind, length = struct.unpack_from("<4sI", view, offset)
        data = view[offset + 8 : offset + 8 + length]
        if len(data) != length:
            raise Damaged("The WebP has an incomplete chunk.")
        yield kind, data
        offset += 8 + length + length % 2


def _frame(data: memoryview, remaining: Iterator[int]) -> bytes:
    """Return the chunk of a frame with only its picture."""
    if len(data) < FRAME_BYTES:
        raise Damaged("The WebP has an incomplete frame.")
    chunks = _chunks(data[FRAME_BYTES:], remaining)
    kept = [piece for kind, inner in chunks if kind in IMAGE for piece in _chunk(kind, inner)]
    return b"".join(_chunk(FRAME, b"".join([data[:FRAME_BYTES], *kept])))


def _features(data: memoryview) -> bytes:
    """Return the features with only the kept flags."""
    if len(data) < FEATURES_BYTES:
        raise Damaged("The WebP has an incomplete header.")
    return bytes((data[0] & KEPT_FLAGS, 0, 0, 0)) + data[4:FEATURES_BYTES]


def _assembled(parts: Parts, features: bytes) -> Separated:
    """Return the file. A file without a header of features has no metadata."""
    if not features:
        parts.exif.clear()
        parts.xmp = b""
    facts = parts.orient(lambda exif: b"".join(_chunk(b"EXIF", exif)))
    if features:
        flag = EXIF_FLAG if facts.orientation != UPRIGHT else 0
        parts.kept[:0] = _chunk(FEATURES, bytes((features[0] | flag,)) + features[1:])
    body = parts.joined()
    return Separated(RIFF + struct.pack("<I", len(WEBP) + len(body)) + WEBP + body, facts)


def _chunk(kind: bytes, data: bytes | memoryview) -> tuple[bytes, bytes | memoryview, bytes]:
    return kind + struct.pack("<I", len(data)), data, bytes(len(data) % 2)
