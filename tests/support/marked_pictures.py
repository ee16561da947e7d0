"""Pictures of all types with a marker in each place of metadata."""

import struct
import zlib
from collections.abc import Callable, Iterator
from io import BytesIO
from random import Random
from typing import Any

from PIL import Image, ImageCms
from PIL.PngImagePlugin import PngInfo

MARKER = b"PLANTED-7f3a"
TEXT = MARKER.decode()
GPS, EXIF_IFD = 0x8825, 0x8769
SIZE = (48, 32)
SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def noise(mode: str = "RGB", seed: int = 0, size: tuple[int, int] = SIZE) -> Image.Image:
    """Return a picture of random pixels."""
    depth = len(Image.new(mode, (1, 1)).tobytes())
    return Image.frombytes(mode, size, Random(seed).randbytes(size[0] * size[1] * depth))


def exif_block(orientation: int | None = 6, **more: str) -> Image.Exif:
    """Return EXIF as a phone writes it: place, time, device, author, and a note of the manufacturer."""
    exif = Image.Exif()
    if orientation is not None:
        exif[0x0112] = orientation
    exif[0x010F], exif[0x0110], exif[0x013B], exif[0x010E] = f"Maker {TEXT}", "Model 5", TEXT, TEXT
    exif.get_ifd(GPS).update({1: "N", 2: (48.0, 51.0, 29.6), 3: "E", 4: (2.0, 17.0, 40.2), 0x1B: MARKER})
    inner = {0x9003: "2024:05:06 07:08:09", 0x9011: "+02:00", 0xA431: TEXT, 0xA430: TEXT, 0x927C: MARKER * 3}
    exif.get_ifd(EXIF_IFD).update(inner | {0x9003: more.get("taken", inner[0x9003])})
    return exif


def xmp_block(orientation: int | None = None) -> bytes:
    stated = f' tiff:Orientation="{orientation}"' if orientation else ""
    return f'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description{stated} by="{TEXT}"/></x:xmpmeta>'.encode()


def encode_image(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def segment(marker: int, data: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data


def in_jpeg(content: bytes) -> bytes:
    """Add IPTC, a comment, thumbnails and other segments before and after the scans, and trailing bytes."""
    jfxx = b"JFXX\0\x10" + MARKER
    iptc = b"Photoshop 3.0\x008BIM\x04\x04\0\0\0\x10" + MARKER
    added = [(0xE0, jfxx), (0xE2, b"FPXR\0" + MARKER), (0xE3, MARKER), (0xED, iptc)]
    added += [(0xEE, MARKER), (0xEF, MARKER), (0xFE, MARKER), (0xE1, b"http://ns.adobe.com/xmp/extension/\0" + MARKER)]
    between = b"".join(segment(*one) for one in added)
    jfif = bytearray(content[:20])
    if jfif[6:10] == b"JFIF":  # with a thumbnail of 4 x 1 pixels
        jfif[4:6], jfif[18:20] = struct.pack(">H", 16 + 12), b"\4\1"
        jfif += MARKER
    late = segment(0xFE, MARKER) + segment(0xDC, MARKER)
    return bytes(jfif) + between + content[20:-2] + late + content[-2:] + MARKER


def chunk(kind: bytes, data: bytes = b"") -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def in_png(content: bytes) -> bytes:
    """Add a time, unknown chunks, a suggested palette, and trailing bytes."""
    kinds = (b"tIME", b"prVW", b"caBX", b"dSIG", b"sPLT", b"tEXt")
    added = b"".join(chunk(kind, MARKER + b"\0" + MARKER) for kind in kinds)
    return content[:33] + added + content[33:-12] + added + content[-12:] + MARKER


def riff(kind: bytes, data: bytes) -> bytes:
    return kind + struct.pack("<I", len(data)) + data + bytes(len(data) % 2)


def in_webp(content: bytes) -> bytes:
    """Add unknown chunks, also inside frames, and trailing bytes."""
    body, at = b"", 12
    while at < len(content):
        kind, length = struct.unpack_from("<4sI", content, at)
        data = content[at + 8 : at + 8 + length]
        body += riff(kind, data + riff(b"prVW", MARKER) if kind == b"ANMF" else data)
        at += 8 + length + length % 2
    return whole_webp(body + riff(b"prVW", MARKER)) + MARKER


def whole_webp(body: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


def png_texts() -> PngInfo:
    info = PngInfo()
    info.add_text("Author", TEXT)
    info.add_text("Comment", TEXT, zip=True)
    info.add_itxt("Title", TEXT, lang="en", tkey=TEXT)
    info.add_itxt("XML:com.adobe.xmp", xmp_block().decode())
    return info


def transparent_palette() -> Image.Image:
    image = noise("P")
    image.putpalette(Random(1).randbytes(768))
    image.info["transparency"] = bytes(range(256))
    return image


def _jpeg(image: Image.Image, orientation: int | None, **options: Any) -> bytes:
    given = {
        "exif": exif_block(orientation),
        "xmp": xmp_block(),
        "comment": MARKER,
        "icc_profile": SRGB,
        "dpi": (72, 72),
    }
    return in_jpeg(encode_image(image, "JPEG", **given, **options))


def _png(image: Image.Image, orientation: int | None, **options: Any) -> bytes:
    given = {"exif": exif_block(orientation), "pnginfo": png_texts(), "icc_profile": SRGB, "dpi": (300, 300)}
    return in_png(encode_image(image, "PNG", **given, **options))


def _webp(image: Image.Image, orientation: int | None, **options: Any) -> bytes:
    given = {"exif": exif_block(orientation), "xmp": xmp_block(), "icc_profile": SRGB}
    return in_webp(encode_image(image, "WEBP", **given, **options))


def _mpo(orientation: int | None) -> bytes:
    second = noise(seed=1)
    second.info["comment"] = MARKER
    given = {"exif": exif_block(orientation), "xmp": xmp_block(), "icc_profile": SRGB}
    return encode_image(noise(), "MPO", save_all=True, append_images=[second], **given) + MARKER


def _frames() -> dict[str, Any]:
    return {"save_all": True, "append_images": [noise(seed=1), noise(seed=2)], "duration": [70, 80, 90], "loop": 3}


KINDS: dict[str, Callable[[int | None], bytes]] = {
    "JPEG": lambda turn: _jpeg(noise(), turn),
    "JPEG progressive": lambda turn: _jpeg(noise(), turn, progressive=True),
    "JPEG with restarts": lambda turn: _jpeg(noise(), turn, restart_marker_blocks=1),
    "JPEG grey": lambda turn: _jpeg(noise("L"), turn),
    "JPEG CMYK": lambda turn: _jpeg(noise("CMYK"), turn),
    "JPEG of several pictures": _mpo,
    "PNG": lambda turn: _png(noise(), turn),
    "PNG with alpha": lambda turn: _png(noise("RGBA"), turn),
    "PNG of 16 bits": lambda turn: _png(noise("I;16"), turn),
    "PNG of 1 bit": lambda turn: _png(noise("L").convert("1"), turn),
    "PNG palette with transparency": lambda turn: _png(transparent_palette(), turn),
    "PNG animated": lambda turn: _png(noise(), turn, **_frames()),
    "WebP": lambda turn: _webp(noise(), turn),
    "WebP with alpha": lambda turn: _webp(noise("RGBA"), turn),
    "WebP lossless": lambda turn: _webp(noise("RGBA"), turn, lossless=True, exact=True),
    "WebP animated": lambda turn: _webp(noise(), turn, **_frames()),
}


# The size and colours of a picture, and the timing of an animation.
SHAPE = {
    "JPEG": ("jfif_density", "jfif_unit", "adobe", "adobe_transform"),
    "PNG": ("dpi", "loop", "duration", "default_image"),
    "WEBP": ("loop", "duration", "timestamp", "background"),
}


def decoded_frames(content: bytes) -> Iterator[tuple[Any, ...]]:
    """Yield the pixels of each frame and how to show them. Of a JPEG only the first picture counts."""
    with Image.open(BytesIO(content)) as image:
        kind = "JPEG" if image.format == "MPO" else str(image.format)
        for number in range(1 if kind == "JPEG" else getattr(image, "n_frames", 1)):
            image.seek(number)
            image.load()
            received = {name: image.info.get(name) for name in ("icc_profile", "gamma", "transparency", *SHAPE[kind])}
            turn = image.getexif().get(0x0112, 1)
            yield kind, image.mode, image.size, image.tobytes(), image.getpalette(), received, turn
