"""The facts that the gateway reads from a picture's EXIF block, and the smallest block with an orientation.

`jpeg`, `png` and `webp` remove the block itself, with the GPS position, which is never read.

EXIF is a TIFF structure: https://www.cipa.jp/std/documents/e/DC-X008-Translation-2019-E.pdf. Only the needed entries
are read, each up to a fixed length: a block may contain 65,535 entries that all refer to the same megabytes.
"""

import re
import struct
from codecs import getincrementaldecoder
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

from datastore.model.text_characters import cleaned_line

HEADER = b"Exif\0\0"
BYTE_ORDERS = {b"II*\0": "<", b"MM\0*": ">"}
UPRIGHT = 1
ORIENTATIONS = range(1, 9)
ORIENTATION, MAKE, MODEL, EXIF_DIRECTORY = 0x0112, 0x010F, 0x0110, 0x8769
DATE_TIME_ORIGINAL, OFFSET_TIME_ORIGINAL = 0x9003, 0x9011
# TIFF's types ASCII, SHORT and LONG, and the size of a value of each in bytes.
TEXT, SHORT, LONG = 2, 3, 4
SIZES = {TEXT: 1, SHORT: 2, LONG: 4}
# Cameras write some dozens of entries to a directory.
MAX_ENTRIES = 1000
MAX_TEXT_LENGTH = 100
MAX_TEXT_BYTES = 4 * MAX_TEXT_LENGTH

_Utf8 = getincrementaldecoder("utf-8")
_MOMENT = re.compile(r"(\d{4}):(\d\d):(\d\d) (\d\d):(\d\d):(\d\d)", re.ASCII)
_OFFSET = re.compile(r"([+-])(\d\d):(\d\d)", re.ASCII)
# The orientation as an attribute or as an element.
_XMP_ORIENTATION = re.compile(rb'tiff:Orientation(?:="|>)([1-8])')


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts in EXIF and XMP. `orientation` is 1 (upright) to 8."""

    orientation: int = UPRIGHT
    taken_at: datetime | None = None
    camera: str | None = None


def facts_from(exif: bytes, xmp: bytes) -> Facts:
    """Return the facts of the two blocks, either of which may be empty. Unreadable entries are ignored.

    An orientation in XMP applies only if EXIF has none.
    """
    try:
        entries = _entries(exif.removeprefix(HEADER))
    except struct.error:
        entries = {}
    orientation = entries.get(ORIENTATION)
    if orientation is None and (in_xmp := _XMP_ORIENTATION.search(xmp)):
        orientation = int(in_xmp[1])
    is_valid = isinstance(orientation, int) and orientation in ORIENTATIONS
    return Facts(int(orientation) if is_valid else UPRIGHT, _taken_at(entries), _camera(entries))  # type: ignore[arg-type]


def orientation_block(orientation: int) -> bytes:
    """Return a TIFF structure with the orientation as its only entry."""
    return struct.pack(">2sHIHHHIHHI", b"MM", 42, 8, 1, ORIENTATION, SHORT, 1, orientation, 0, 0)


def _entries(tiff: bytes) -> dict[int, int | str]:
    """Return the needed entries of the main directory and of the EXIF directory, by tag.

    Raises `struct.error` for a truncated structure.
    """
    order = BYTE_ORDERS.get(tiff[:4])
    if order is None:
        return {}
    (start,) = struct.unpack_from(f"{order}I", tiff, 4)
    entries = _directory(tiff, order, start, (ORIENTATION, MAKE, MODEL, EXIF_DIRECTORY))
    exif_start = entries.get(EXIF_DIRECTORY)
    if isinstance(exif_start, int):
        with suppress(struct.error):  # the entries of the main directory are valid without it
            entries |= _directory(tiff, order, exif_start, (DATE_TIME_ORIGINAL, OFFSET_TIME_ORIGINAL))
    return entries


def _directory(tiff: bytes, order: str, start: int, tags: tuple[int, ...]) -> dict[int, int | str]:
    (count,) = struct.unpack_from(f"{order}H", tiff, start)
    entries: dict[int, int | str] = {}
    for number in range(min(count, MAX_ENTRIES)):
        offset = start + 2 + 12 * number
        tag, kind, length = struct.unpack_from(f"{order}HHI", tiff, offset)
        if tag in tags and kind in SIZES and length:
            value = _value(tiff, order, offset + 8, kind, length)
            if value is not None:
                entries[tag] = value
    return entries


def _value(tiff: bytes, order: str, offset: int, kind: int, length: int) -> int | str | None:
    if kind != TEXT:
        code = "H" if kind == SHORT else "I"
        return int(struct.unpack_from(f"{order}{code}", tiff, offset)[0]) if length == 1 else None
    if length > 4:  # a longer value is stored at another offset
        (offset,) = struct.unpack_from(f"{order}I", tiff, offset)
    text = tiff[offset : offset + min(length, MAX_TEXT_BYTES)]
    # A truncated character at the end is omitted.
    return _Utf8("replace").decode(text.split(b"\0")[0], final=length <= MAX_TEXT_BYTES or b"\0" in text).strip()


def _taken_at(entries: dict[int, int | str]) -> datetime | None:
    """Return the capture time. A local time without an offset is read as UTC."""
    fields = _MOMENT.fullmatch(str(entries.get(DATE_TIME_ORIGINAL, "")))
    if fields is None:
        return None
    try:
        local = datetime(*map(int, fields.groups()), tzinfo=_zone(str(entries.get(OFFSET_TIME_ORIGINAL, ""))))  # type: ignore[arg-type,misc]
        return local.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _zone(offset: str) -> timezone:
    fields = _OFFSET.fullmatch(offset)
    if fields is None:
        return UTC
    sign, hours, minutes = fields.groups()
    return timezone((1 if sign == "+" else -1) * timedelta(hours=int(hours), minutes=int(minutes)))


def _camera(entries: dict[int, int | str]) -> str | None:
    """Return maker and model as one text. Many models begin with their maker's name."""
    make, model = (cleaned_line(str(entries.get(tag, ""))) for tag in (MAKE, MODEL))
    name = model if model.casefold().startswith(make.casefold()) else f"{make} {model}".strip()
    return cleaned_line(name[:MAX_TEXT_LENGTH]) or None
