"""The incremental parser of USGS GeoJSON feeds: from bytes to features, which `usgs_events` converts.

https://earthquake.usgs.gov/earthquakes/feed/v1.0/geojson.php
"""

import asyncio
import gzip
import re
import zlib
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from contextlib import closing, suppress
from decimal import Decimal
from enum import StrEnum
from typing import IO, Any, TypeAlias

import ijson

from datastore.earthquakes.events import Earthquake
from pipelines.earthquakes.usgs_events import Rejection, event_or_rejection

MAX_PLAIN_BYTES = 1 << 30  # after decompression
MAX_VALUE_BYTES = 8 << 20
PIECE_BYTES = 64 * 1024
GZIP = b"\x1f\x8b"


class FeedCode(StrEnum):
    """The reason for which a feed could not be read. The codes are stable: they appear in the request log."""

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
    """A feed could not be read, or not to its end."""

    def __init__(self, code: FeedCode, message: str, *, wait: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        #: The number of repeated requests before the failure.
        self.retries = 0
        #: The seconds that the service asks the client to wait before a retry; None if no retry can succeed.
        self.wait = wait


async def read_events(body: IO[bytes], *, ingested_at_ms: int) -> AsyncIterator[Earthquake | Rejection]:
    """Yield an item for each feature, in the feed's order. `body` may be compressed with gzip.

    Raises: `FeedError` (NOT_GEOJSON, TRUNCATED, UPSTREAM_ERROR, TOO_LARGE), after the complete features before the
    fault. Text that the parser cannot skip (an integer of over 4300 digits, half a surrogate pair) is TRUNCATED, too.
    """
    with closing(_FeatureReader()) as reader:
        async for piece in _pieces(body):
            for feature in reader.features(piece):
                yield event_or_rejection(feature, ingested_at_ms)


# From bytes to JSON text


async def _pieces(body: IO[bytes]) -> AsyncIterator[bytes]:
    """Yield the decompressed body in pieces of at most `PIECE_BYTES` bytes, and b"" after the last one."""
    is_packed = body.read(len(GZIP)) == GZIP
    body.seek(0)
    read = gzip.GzipFile(fileobj=body, mode="rb").read1 if is_packed else body.read
    size, piece = 0, None
    while piece != b"":
        try:
            piece = await asyncio.to_thread(read, PIECE_BYTES)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise FeedError(FeedCode.TRUNCATED, "The gzip body is incomplete or broken.") from error
        size += len(piece)
        if size > MAX_PLAIN_BYTES:
            raise FeedError(FeedCode.TOO_LARGE, f"The feed is longer than {MAX_PLAIN_BYTES} bytes unpacked.")
        yield piece


# From JSON text to features

# The parts of a value that are kept: the named members of an object, the elements of an array, or (None) a scalar.
Shape: TypeAlias = "Mapping[str, Shape] | tuple[Shape] | None"
# https://earthquake.usgs.gov/earthquakes/feed/v1.0/geojson.php
PROPERTIES = ("mag", "place", "time", "status", "type", "updated", "alert", "tsunami", "sig", "url", "ids")
_FEATURE: Shape = {
    "type": None,
    "id": None,
    "properties": dict.fromkeys(PROPERTIES),
    "geometry": {"coordinates": (None,)},
}
_METADATA: Shape = {"status": None, "error": None}
_MAX_ELEMENTS = 3

# NaN and Infinity are not JSON, but writers emit them. They are replaced by a number beyond the range of floats, so
# that only their feature is rejected. A piece may end within such a word, or just before it. The replacement changes
# a string only if the string itself looks like JSON (": NaN,").
_NO_NUMBER = re.compile(rb"(?:(?<=[:,\[])|(?<=[:,] ))(?:NaN|-?Infinity)(?=[,}\]\r\n])")
_BEYOND_FLOATS = b"1e999"
_WORD_BEGUN = re.compile(rb"[:,\[]? ?-?[INafinty]{0,8}\Z")
_MAX_WORD = 11

# The value of a container where the shape has a scalar, or a container of another kind.
_OTHER = object()
# A generator that receives the events of ijson.
_Reading: TypeAlias = Generator[None, tuple[str, Any], Any]


def _read_value(event: str, value: Any, shape: Shape) -> _Reading:
    """Read the value that begins with this event. Return the parts of its shape, so that all memory is bounded."""
    if event == "start_map" and isinstance(shape, Mapping):
        members = {}
        while (member := (yield))[0] == "map_key":
            name, first = member[1], (yield)
            content = yield from _read_value(*first, shape.get(name))
            if name in shape:
                members[name] = content
        return members
    if event == "start_array" and isinstance(shape, tuple):
        elements: list[object] = []
        while (first := (yield))[0] != "end_array":
            content = yield from _read_value(*first, shape[0])
            if len(elements) < _MAX_ELEMENTS:
                elements.append(content)
        return elements
    if not event.startswith("start"):
        return value
    depth = 1
    while depth:
        event, _ = yield
        depth += event.startswith("start") - event.startswith("end")
    return _OTHER


def _read_document(features: list[object]) -> _Reading:
    """Read a document and append its features. Raises `FeedError` if it is no feed, or an error of the service."""
    if (yield)[0] != "start_map":
        raise _not_geojson()
    missing = {"type", "features"}
    while (member := (yield))[0] == "map_key":
        name, (event, value) = member[1], (yield)
        missing.discard(name)
        if name != "features":
            _check_member(name, (yield from _read_value(event, value, _METADATA if name == "metadata" else None)))
            continue
        if event != "start_array":
            raise _not_geojson()
        while (first := (yield))[0] != "end_array":
            features.append((yield from _read_value(*first, _FEATURE)))
    if missing:
        raise _not_geojson()


# Besides its own errors, ijson raises those of the conversion of numbers and texts.
_FAULTS = (ijson.JSONError, ArithmeticError, ValueError, SystemError)


class _FeatureReader:
    """A push parser from JSON text to features."""

    def __init__(self) -> None:
        self._events: Any = ijson.sendable_list()
        self._parser: Any = ijson.basic_parse_coro(self._events)
        self._features: list[object] = []
        self._document = _read_document(self._features)
        next(self._document)
        self._is_begun = False
        self._held = b""
        self._bytes_without_event = 0
        self._count = 0

    def features(self, piece: bytes) -> Iterator[object]:
        """Yield the features that `piece` completes; b"" ends the document.

        Raises: `FeedError`, after the complete features before the fault.
        """
        fault = self._parse(piece)
        try:
            for event in self._events:
                self._is_begun = True
                self._document.send(event)
        except StopIteration:
            pass
        except FeedError as error:
            fault = error
        self._events.clear()
        self._count += len(self._features)
        yield from self._features
        self._features.clear()
        if isinstance(fault, FeedError):
            raise fault
        if fault and not self._is_begun:
            raise _not_geojson() from fault
        if fault:
            raise FeedError(FeedCode.TRUNCATED, f"The JSON ends or breaks after {self._count} features.") from fault

    def close(self) -> None:
        """Close the parser. ijson's Python backend raises for an incomplete document, also in garbage collection."""
        with suppress(*_FAULTS):
            self._parser.close()

    def _parsable(self, piece: bytes) -> bytes:
        """Return the text for the parser. An incomplete word at its end is held until the next piece."""
        text = self._held + piece
        if b"NaN" in text or b"Infinity" in text:  # much faster than the pattern
            text = _NO_NUMBER.sub(_BEYOND_FLOATS, text)
        begun = _WORD_BEGUN.search(text[-_MAX_WORD:]) if piece else None
        self._held = begun.group() if begun else b""
        return text.removesuffix(self._held)

    def _parse(self, piece: bytes) -> Exception | None:
        """Add the events of a piece. Return the fault that ends the document, if any."""
        text = self._parsable(piece)
        try:
            if text:
                self._parser.send(text)
            if not piece:
                self._parser.send(b"")
        except StopIteration:
            return None
        except _FAULTS as error:
            if isinstance(error, SystemError):
                # For an integer of over 4300 digits ijson's C backend appends an invalid event, which must not be used.
                self._events.pop()
            return error
        self._bytes_without_event = 0 if self._events else self._bytes_without_event + len(piece)
        if self._bytes_without_event > MAX_VALUE_BYTES:
            return FeedError(FeedCode.TOO_LARGE, f"The feed holds a value longer than {MAX_VALUE_BYTES} bytes.")
        return None


def _not_geojson() -> FeedError:
    return FeedError(FeedCode.NOT_GEOJSON, "The body is not a GeoJSON FeatureCollection.")


def _check_member(key: str, value: object) -> None:
    """Raise `FeedError` if a member of the document shows that it is no feed, or an error of the service."""
    if key == "type" and value != "FeatureCollection":
        raise _not_geojson()
    if key == "metadata" and isinstance(value, dict):
        status, error = value.get("status"), value.get("error")
        if error or (isinstance(status, int | Decimal) and status >= 400):
            reason = error if isinstance(error, str) else "no reason given"
            raise FeedError(FeedCode.UPSTREAM_ERROR, f"The service answered with status {status}: {reason[:200]}")
