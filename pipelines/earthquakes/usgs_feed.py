"""A USGS GeoJSON feed, read: from bytes to features, each judged by `usgs_events`.

https://earthquake.usgs.gov/earthquakes/feed/v1.0/geojson.php
"""

import asyncio
import re
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypeAlias

import ijson

from datastore.earthquakes.events import Earthquake
from pipelines.earthquakes.usgs_events import Rejection, judge

MOST_PLAIN_BYTES = 1 << 30
MOST_VALUE_BYTES = 8 << 20
PIECE = 64 * 1024
GZIP = b"\x1f\x8b"


class FeedCode(StrEnum):
    """Why a whole feed could not be read; stable, they go into the request log."""

    NOT_GEOJSON = "NOT_GEOJSON"
    TRUNCATED = "TRUNCATED"
    UPSTREAM_ERROR = "UPSTREAM_ERROR"
    TOO_LARGE = "TOO_LARGE"
    NOT_FOUND = "NOT_FOUND"
    TIMEOUT = "TIMEOUT"
    UNREACHABLE = "UNREACHABLE"
    HTTP_STATUS = "HTTP_STATUS"
    RATE_LIMITED = "RATE_LIMITED"
    BAD_SOURCE = "BAD_SOURCE"


class FeedError(Exception):
    """The feed cannot be had, or not to its end. `retries` counts the requests repeated before giving up."""

    def __init__(self, code: FeedCode, message: str, *, retries: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.retries = retries


async def read_events(chunks: AsyncIterator[bytes], *, ingested_at_ms: int) -> AsyncIterator[Earthquake | Rejection]:
    """One item for each feature, in the feed's order, while it arrives; `chunks` may be gzip.

    Raises `FeedError` (NOT_GEOJSON, TRUNCATED, UPSTREAM_ERROR, TOO_LARGE) after what was whole before the fault. What
    the parser cannot pass over (an integer of over 4300 digits, half a surrogate pair) is a fault too: TRUNCATED.
    """
    with closing(_FeatureReader()) as reader:
        async for piece in _pieces(chunks):
            for feature in reader.features(piece):
                yield judge(feature, ingested_at_ms)
            await asyncio.sleep(0)  # chunks from memory never wait: let others run
        for feature in reader.features(b""):
            yield judge(feature, ingested_at_ms)


# From bytes to JSON text


async def _pieces(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The body without gzip around it, in pieces of at most PIECE bytes, none empty."""
    inflater: _Inflater | None = None
    size, head, begun = 0, b"", False
    async for chunk in chunks:
        head += chunk
        if not begun and len(head) < len(GZIP):
            continue
        if not begun and head.startswith(GZIP):
            inflater = _Inflater()
        begun = True
        for piece in inflater.inflate(head) if inflater else _slices(head):
            size += len(piece)
            if size > MOST_PLAIN_BYTES:
                raise FeedError(FeedCode.TOO_LARGE, f"The feed is longer than {MOST_PLAIN_BYTES} bytes unpacked.")
            yield piece
        head = b""
    if head:
        yield head
    if inflater and not inflater.complete:
        raise FeedError(FeedCode.TRUNCATED, "The gzip body ends in the middle.")


def _slices(data: bytes) -> Iterator[bytes]:
    return (data[start : start + PIECE] for start in range(0, len(data), PIECE))


class _Inflater:
    """gzip, member after member, never more than PIECE bytes unpacked at a time."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=31)

    @property
    def complete(self) -> bool:
        return self._member.eof

    def inflate(self, data: bytes) -> Iterator[bytes]:
        try:
            while data:
                if self._member.eof:
                    data = data.lstrip(b"\0")  # padding after a member, as gzip(1) allows it
                    self._member = zlib.decompressobj(wbits=31) if data else self._member
                    continue
                if piece := self._member.decompress(data, PIECE):
                    yield piece
                data = self._member.unconsumed_tail or self._member.unused_data
        except zlib.error as error:
            raise FeedError(FeedCode.TRUNCATED, "The gzip body is broken.") from error


# From JSON text to features

# What is kept of a document: the named members of an object, the elements of an array, or (None) a plain value.
Shape: TypeAlias = "Mapping[str, Shape] | tuple[Shape] | None"
# https://earthquake.usgs.gov/earthquakes/feed/v1.0/geojson.php
PROPERTIES = ("mag", "place", "time", "status", "type", "updated", "alert", "tsunami", "sig", "url", "ids")
_FEATURES: Shape = (
    {
        "type": None,
        "id": None,
        "properties": dict.fromkeys(PROPERTIES),
        "geometry": {"coordinates": (None,)},
    },
)
_DOCUMENT: Shape = {"type": None, "metadata": {"status": None, "error": None}, "features": _FEATURES}
_MOST_ELEMENTS = 3

# NaN and Infinity are no JSON, but writers emit them. They are read as a number that no float holds, so that only the
# feature is refused. A piece may end within such a word, or just before it. Only a text that itself reads like JSON
# (": NaN,") would be changed by this.
_NO_NUMBER = re.compile(rb"(?:(?<=[:,\[])|(?<=[:,] ))(?:NaN|-?Infinity)(?=[,}\]\r\n])")
_BEYOND_FLOATS = b"1e999"
_WORD_BEGUN = re.compile(rb"[:,\[]? ?-?[INafinty]{0,8}\Z")
_LONGEST_WORD = 11

# Stands where the shape has a plain value or another container, and the document has something else.
_OTHER = object()


# What ijson lets out besides its own errors comes from the numbers and texts it makes.
_FAULTS = (ijson.JSONError, ArithmeticError, ValueError, SystemError)


@dataclass(slots=True)
class _Open:
    """A container being read, and the key (of an object) whose value comes next."""

    content: Any
    shape: Shape
    key: str = ""

    def expected(self) -> Shape:
        if isinstance(self.shape, tuple):
            return self.shape[0]
        return self.shape.get(self.key) if self.shape else None


class _FeatureReader:
    """JSON text in, features out, each pruned to its shape: memory does not grow with what a feature contains."""

    def __init__(self) -> None:
        self._events: Any = ijson.sendable_list()
        self._parser: Any = ijson.basic_parse_coro(self._events)
        self._held = b""
        self._unheard = 0
        self._open: list[_Open] = []
        self._passing = 0
        self._root: dict[str, object] | None = None
        self._count = 0

    def features(self, piece: bytes) -> Iterator[object]:
        """The features that `piece` completes; b"" ends the document. What is whole before a fault comes first."""
        fault = self._parse(piece)
        for event, value in self._events:
            feature = self._take(event, value)
            if feature is not None:
                self._count += 1
                yield feature[0]
        self._events.clear()
        if fault:
            raise self._fault() from fault
        if not piece and (self._root is None or not self._root.keys() >= {"type", "features"}):
            raise _not_geojson()

    def close(self) -> None:
        """ijson's Python backend complains, also when it is collected, of a document that is not whole."""
        with suppress(*_FAULTS):
            self._parser.close()

    def _readable(self, piece: bytes) -> bytes:
        """What the parser may see now: the rest, which may be a word begun, is held until the next piece."""
        text = self._held + piece
        if b"NaN" in text or b"Infinity" in text:  # much faster than the pattern
            text = _NO_NUMBER.sub(_BEYOND_FLOATS, text)
        begun = _WORD_BEGUN.search(text[-_LONGEST_WORD:]) if piece else None
        self._held = begun.group() if begun else b""
        return text.removesuffix(self._held)

    def _parse(self, piece: bytes) -> Exception | None:
        text = self._readable(piece)
        try:
            if text:
                self._parser.send(text)
            if not piece:
                self._parser.send(b"")
        except StopIteration:
            return None
        except _FAULTS as error:
            if isinstance(error, SystemError):
                # ijson's C backend appends a broken event for an integer of over 4300 digits: not to be touched.
                self._events.pop()
            return error
        self._unheard = 0 if self._events else self._unheard + len(piece)
        if self._unheard > MOST_VALUE_BYTES:
            raise FeedError(FeedCode.TOO_LARGE, f"The feed holds a value longer than {MOST_VALUE_BYTES} bytes.")
        return None

    def _fault(self) -> FeedError:
        if self._root is None and not self._open:
            return _not_geojson()
        return FeedError(FeedCode.TRUNCATED, f"The JSON ends or breaks after {self._count} features.")

    def _take(self, event: str, value: Any) -> tuple[object] | None:
        if self._passing:
            self._passing += event.startswith("start") - event.startswith("end")
        elif event == "map_key":
            self._open[-1].key = value
        elif event.startswith("start"):
            return self._enter(event)
        elif event.startswith("end"):
            content = self._open.pop().content
            if self._open:
                return self._put(content)
            self._root = content
        else:
            return self._put(value)
        return None

    def _enter(self, event: str) -> tuple[object] | None:
        shape = self._open[-1].expected() if self._open else _DOCUMENT
        if event == "start_map" and isinstance(shape, Mapping):
            self._open.append(_Open({}, shape))
        elif event == "start_array" and isinstance(shape, tuple):
            self._open.append(_Open([], shape))
        else:
            self._passing = 1
            return self._put(_OTHER)
        return None

    def _put(self, value: object) -> tuple[object] | None:
        """Keep a finished value in what holds it; a feature is handed out instead (in a tuple, for it may be None)."""
        if not self._open:
            raise _not_geojson()
        holder = self._open[-1]
        if holder.shape is _FEATURES:
            return (value,)
        if isinstance(holder.shape, tuple):
            if len(holder.content) < _MOST_ELEMENTS:
                holder.content.append(value)
        elif holder.shape and holder.key in holder.shape:
            holder.content[holder.key] = value
            if len(self._open) == 1:
                _check_member(holder.key, value)
        return None


def _not_geojson() -> FeedError:
    return FeedError(FeedCode.NOT_GEOJSON, "The body is not a GeoJSON FeatureCollection.")


def _check_member(key: str, value: object) -> None:
    """Raise as soon as one member of the document tells that there is nothing to read."""
    if key == "type" and value != "FeatureCollection":
        raise _not_geojson()
    if key == "features" and not isinstance(value, list):
        raise _not_geojson()
    if key == "metadata" and isinstance(value, dict):
        status, error = value.get("status"), value.get("error")
        if error or (isinstance(status, int | Decimal) and status >= 400):
            reason = error if isinstance(error, str) else "no reason given"
            raise FeedError(FeedCode.UPSTREAM_ERROR, f"The service answered with status {status}: {reason[:200]}")
