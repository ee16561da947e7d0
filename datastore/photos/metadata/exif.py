"""The few facts that the gateway takes from a picture's EXIF block, and the smallest block that states an orientation.

EXIF is a TIFF structure: https://www.cipa.jp/std/documents/e/DC-X008-Translation-2019-E.pdf. Only the wanted entries
are read, each up to a fixed length: a block may hold 65,535 entries that all refer to the same megabytes.
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
# TIFF's types: ASCII, SHORT and LONG, and how many bytes a value of each takes.
TEXT, SHORT, LONG = 2, 3, 4
SIZES = {TEXT: 1, SHORT: 2, LONG: 4}
# Cameras write some dozens of entries in a directory.
MOST_ENTRIES = 1000
LONGEST_TEXT = 100
MOST_TEXT_BYTES = 4 * LONGEST_TEXT

_Utf8 = getincrementaldecoder("utf-8")
_MOMENT = re.compile(r"(\d{4}):(\d\d):(\d\d) (\d\d):(\d\d):(\d\d)", re.ASCII)
_OFFSET = re.compile(r"([+-])(\d\d):(\d\d)", re.ASCII)
# An attribute, or an element.
_XMP_ORIENTATION = re.compile(rb'tiff:Orientation(?:="|>)([1-8])')


@dataclass(frozen=True, slots=True)
class Facts:
    """What EXIF and XMP tell of a picture. `orientation` is 1 (upright) to 8."""

    orientation: int = UPRIGHT
    taken_at: datetime | None = None
    camera: str | None = None


def facts_from(exif: bytes, xmp: bytes) -> Facts:
    """Read the facts of the two blocks, either of which may be empty. What cannot be read counts as not stated.

    An orientation in XMP counts where EXIF states none.
    """
    try:
        found = _entries(exif.removeprefix(HEADER))
    except struct.error:
        found = {}
    orientation = found.get(ORIENTATION)
    if orientation is None and (stated := _XMP_ORIENTATION.search(xmp)):
        orientation = int(stated[1])
    known = isinstance(orientation, int) and orientation in ORIENTATIONS
    return Facts(int(orientation) if known else UPRIGHT, _taken_at(found), _camera(found))  # type: ignore[arg-type]


def stating(orientation: int) -> bytes:
    """Return a TIFF structure that states the orientation and nothing else."""
    return struct.pack(">2sHIHHHIHHI", b"MM", 42, 8, 1, ORIENTATION, SHORT, 1, orientation, 0, 0)


def _entries(tiff: bytes) -> dict[int, int | str]:
    """Return the wanted entries of the main directory and of the EXIF directory, by their tags.

    Raises `struct.error` for a structure that ends too soon.
    """
    order = BYTE_ORDERS.get(tiff[:4])
    if order is None:
        return {}
    (start,) = struct.unpack_from(f"{order}I", tiff, 4)
    found = _directory(tiff, order, start, (ORIENTATION, MAKE, MODEL, EXIF_DIRECTORY))
    inner = found.get(EXIF_DIRECTORY)
    if isinstance(inner, int):
        with suppress(struct.error):  # the main directory counts all the same
            found |= _directory(tiff, order, inner, (DATE_TIME_ORIGINAL, OFFSET_TIME_ORIGINAL))
    return found


def _directory(tiff: bytes, order: str, start: int, wanted: tuple[int, ...]) -> dict[int, int | str]:
    (count,) = struct.unpack_from(f"{order}H", tiff, start)
    found: dict[int, int | str] = {}
    for number in range(min(count, MOST_ENTRIES)):
        at = start + 2 + 12 * number
        tag, kind, length = struct.unpack_from(f"{order}HHI", tiff, at)
        if tag in wanted and kind in SIZES and length:
            value = _value(tiff, order, at + 8, kind, length)
            if value is not None:
                found[tag] = value
    return found


def _value(tiff: bytes, order: str, at: int, kind: int, length: int) -> int | str | None:
    if kind != TEXT:
        return int(struct.unpack_from(f"{order}{'H' if kind == SHORT else 'I'}", tiff, at)[0]) if length == 1 else None
    if length > 4:  # a longer value stands elsewhere
        (at,) = struct.unpack_from(f"{order}I", tiff, at)
    read = tiff[at : at + min(length, MOST_TEXT_BYTES)]
    # A character that is cut off is left out.
    return _Utf8("replace").decode(read.split(b"\0")[0], final=length <= MOST_TEXT_BYTES or b"\0" in read).strip()


def _taken_at(found: dict[int, int | str]) -> datetime | None:
    """Return when the picture was taken. A local time without an offset is read as UTC."""
    stated = _MOMENT.fullmatch(str(found.get(DATE_TIME_ORIGINAL, "")))
    if stated is None:
        return None
    try:
        local = datetime(*map(int, stated.groups()), tzinfo=_zone(str(found.get(OFFSET_TIME_ORIGINAL, ""))))  # type: ignore[arg-type,misc]
        return local.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _zone(offset: str) -> timezone:
    stated = _OFFSET.fullmatch(offset)
    if stated is None:
        return UTC
    sign, hours, minutes = stated.groups()
    return timezone((1 if sign == "+" else -1) * timedelta(hours=int(hours), minutes=int(minutes)))


def _camera(found: dict[int, int | str]) -> str | None:
    """Return maker and model as one text. Many models begin with their maker's name."""
    make, model = (cleaned_line(str(found.get(tag, ""))) for tag in (MAKE, MODEL))
    whole = model if model.casefold().startswith(make.casefold()) else f"{make} {model}".strip()
    return cleaned_line(whole[:LONGEST_TEXT]) or None
