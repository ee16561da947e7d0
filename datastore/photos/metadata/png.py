"""PNG without metadata. https://www.w3.org/TR/png-3/#11Chunks

The chunks of pixels, including animations, and of rendering are kept. Texts, times, unknown chunks and trailing bytes
are removed.
"""

import struct
import zlib

from datastore.photos.metadata.parts import MAX_METADATA_BYTES, MAX_PARTS, Damaged, Parts, Separated, TooManyParts

SIGNATURE = b"\x89PNG\r\n\x1a\n"
ANY = 2**31 - 1
# The least and the greatest size of each kept chunk in bytes. A file with a pixel chunk of another size is refused,
# since its removal would change the pixels. A rendering chunk of another size is removed.
PIXELS = {
    b"IHDR": (13, 13),
    b"PLTE": (3, 768),
    b"tRNS": (1, 256),
    b"IDAT": (0, ANY),
    b"acTL": (8, 8),
    b"fcTL": (26, 26),
    b"fdAT": (4, ANY),
}
RENDERING = {
    b"iCCP": (3, ANY),
    b"cICP": (4, 4),
    b"mDCV": (24, 24),
    b"mDCv": (24, 24),
    b"cLLI": (8, 8),
    b"cLLi": (8, 8),
    b"sRGB": (1, 1),
    b"gAMA": (4, 4),
    b"cHRM": (32, 32),
    b"sBIT": (1, 4),
    b"bKGD": (1, 6),
    b"pHYs": (9, 9),
}
# A profile's name is an arbitrary text that decoders ignore.
PROFILE_NAME = b"ICC profile\0"
XMP, RAW_EXIF = b"XML:com.adobe.xmp", b"Raw profile type exif"


def separate(content: bytes) -> Separated:
    """Return the picture without its metadata. Raises `Damaged` or `struct.error`."""
    view, parts = memoryview(content), Parts([SIGNATURE], orientation_index=2)  # after IHDR
    offset, texts = len(SIGNATURE), _Texts()
    for number in range(MAX_PARTS):
        length, kind = struct.unpack_from(">I4s", view, offset)
        end = offset + 12 + length
        data = view[offset + 8 : end - 4]
        if end > len(view) or (number == 0) is not (kind == b"IHDR"):
            raise Damaged("The PNG has an incomplete or misplaced chunk.")
        if kind == b"IEND":
            if not parts.exif:
                parts.add_exif(texts.exif or b"")
            parts.xmp = texts.xmp or b""
            facts = parts.orient(lambda exif: _chunk(b"eXIf", exif))
            parts.keep(_chunk(b"IEND", b""))
            return Separated(parts.joined(), facts)
        if kind == b"eXIf":
            parts.add_exif(data)
        elif kind in (b"tEXt", b"zTXt", b"iTXt"):
            texts.read(kind, data)
        elif kind == b"iCCP":
            parts.keep(_renamed(data))
        elif _is_kept(kind, length):
            parts.keep(view[offset:end])
        offset = end
    raise TooManyParts


def _is_kept(kind: bytes, length: int) -> bool:
    min_length, max_length = PIXELS.get(kind) or RENDERING.get(kind) or (0, -1)
    is_valid = min_length <= length <= max_length
    if kind in PIXELS and not is_valid:
        raise Damaged("The PNG has a chunk of a wrong size.")
    return is_valid


def _renamed(data: memoryview) -> bytes:
    """Return the chunk of a colour profile under another name."""
    _, separator, profile = bytes(data).partition(b"\0")
    return _chunk(b"iCCP", PROFILE_NAME + profile) if separator else b""


class _Texts:
    """Blocks in text chunks: XMP, and EXIF in the older form of ImageMagick.

    Only the first of each is read, which bounds the decompressed data.
    """

    def __init__(self) -> None:
        self.exif: bytes | None = None
        self.xmp: bytes | None = None

    def read(self, kind: bytes, data: memoryview) -> None:
        name, _, text = bytes(data[:MAX_METADATA_BYTES]).partition(b"\0")
        if kind == b"iTXt" and name == XMP and self.xmp is None:
            self.xmp = _xmp(text)
        elif kind != b"iTXt" and name == RAW_EXIF and self.exif is None:
            self.exif = _raw(_inflated(text[1:]) if kind == b"zTXt" else text)


def _xmp(text: bytes) -> bytes:
    """Return the text after the flag and the method of compression, the language and the translated name."""
    body = text[2:].split(b"\0", 2)[-1]
    return _inflated(body) if text.startswith(b"\1") else body


def _raw(text: bytes) -> bytes:
    """Return the bytes whose hexadecimal digits follow an empty line, a name and a length."""
    try:
        return bytes.fromhex(text.split(b"\n", 3)[-1].decode("ascii"))
    except ValueError:
        return b""


def _inflated(data: bytes) -> bytes:
    try:
        return zlib.decompressobj().decompress(data, MAX_METADATA_BYTES)
    except zlib.error:
        return b""


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
