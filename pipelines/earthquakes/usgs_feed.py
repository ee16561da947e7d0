"""The incremental parser of USGS GeoJSON feeds: from bytes to features, which `usgs_events` converts.

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
    """A feed could not be read, or not to its end. `retries` counts the repeated requests before the failure."""

    def __init__(self, code: FeedCode, message: str, *, retries: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.retries = retries


async def read_events(chunks: AsyncIterator[bytes], *, ingested_at_ms: int) -> AsyncIterator[Earthquake | Rejection]:
    """Yield an item for each feature as it arrives, in the feed's order. `chunks` may be compressed with gzip.

    Raises: `FeedError` (NOT_GEOJSON, TRUNCATED, UPSTREAM_ERROR, TOO_LARGE), after the complete features before the
    fault. Text that the parser cannot skip (an integer of over 4300 digits, half a surrogate pair) is TRUNCATED, too.
    """
    with closing(_FeatureReader()) as reader:
        async for piece in _pieces(chunks):
            for feature in reader.features(piece):
                yield event_or_rejection(feature, ingested_at_ms)
            await asyncio.sleep(0)  # chunks from memory never wait: let other tasks run
        for feature in reader.features(b""):
            yield event_or_rejection(feature, ingested_at_ms)


# From bytes to JSON text


async def _pieces(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the decompressed body in pieces of 1 to `PIECE_BYTES` bytes."""
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
            if size > MAX_PLAIN_BYTES:
                raise FeedError(FeedCode.TOO_LARGE, f"The feed is longer than {MAX_PLAIN_BYTES} bytes unpacked.")
            yield piece
        head = b""
    if head:
        yield head
    if inflater and not inflater.complete:
        raise FeedError(FeedCode.TRUNCATED, "The gzip body is incomplete.")


def _slices(data: bytes) -> Iterator[bytes]:
    return (data[start : start + PIECE_BYTES] for start in range(0, len(data), PIECE_BYTES))


class _Inflater:
    """A decompressor of gzip with any number of members, which yields at most `PIECE_BYTES` at a time."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=31)

    @property
    def complete(self) -> bool:
        return self._member.eof

    def inflate(self, data: bytes) -> Iterator[bytes]:
        try:
            while data:
                if self._member.eof:
                    data = data.lstrip(b"\0")  # gzip(1) allows padding after a member
                    self._member = zlib.decompressobj(wbits=31) if data else self._member
                    continue
                if piece := self._member.decompress(data, PIECE_BYTES):
                    yield piece
                data = self._member.unconsumed_tail or self._member.unused_data
        except zlib.error as error:
            raise FeedError(FeedCode.TRUNCATED, "The gzip body is broken.") from error


# From JSON text to features

# The parts of a document that are kept: the named members of an object, the elements of an array, or (None) a scalar.
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


# Besides its own errors, ijson raises those of the conversion of numbers and texts.
_FAULTS = (ijson.JSONError, ArithmeticError, ValueError, SystemError)


@dataclass(slots=True)
class _Container:
    """An object or array that is being read."""

    content: Any
    shape: Shape
    #: The key of the member of an object whose value comes next.
    key: str = ""

    def expected(self) -> Shape:
        if isinstance(self.shape, tuple):
            return self.shape[0]
        return self.shape.get(self.key) if self.shape else None


class _FeatureReader:
    """A push parser from JSON text to features.

    Each feature is pruned to its shape, so that memory does not grow with the other content of a feature.
    """

    def __init__(self) -> None:
        self._events: Any = ijson.sendable_list()
        self._parser: Any = ijson.basic_parse_coro(self._events)
        self._held = b""
        self._bytes_without_event = 0
        self._containers: list[_Container] = []
        self._skipped_depth = 0
        self._root: dict[str, object] | None = None
        self._count = 0

    def features(self, piece: bytes) -> Iterator[object]:
        """Yield the features that `piece` completes; b"" ends the document.

        Raises: `FeedError`, after the complete features before the fault.
        """
        fault = self._parse(piece)
        for event, value in self._events:
            feature = self._handle(event, value)
            if feature is not None:
                self._count += 1
                yield feature[0]
        self._events.clear()
        if fault:
            raise self._fault() from fault
        if not piece and (self._root is None or not self._root.keys() >= {"type", "features"}):
            raise _not_geojson()

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
            raise FeedError(FeedCode.TOO_LARGE, f"The feed holds a value longer than {MAX_VALUE_BYTES} bytes.")
        return None

    def _fault(self) -> FeedError:
        if self._root is None and not self._containers:
            return _not_geojson()
        return FeedError(FeedCode.TRUNCATED, f"The JSON ends or breaks after {self._count} features.")

    def _handle(self, event: str, value: Any) -> tuple[object] | None:
        if self._skipped_depth:
            self._skipped_depth += event.startswith("start") - event.startswith("end")
        elif event == "map_key":
            self._containers[-1].key = value
        elif event.startswith("start"):
            return self._open_container(event)
        elif event.startswith("end"):
            content = self._containers.pop().content
            if self._containers:
                return self._add_value(content)
            self._root = content
        else:
            return self._add_value(value)
        return None

    def _open_container(self, event: str) -> tuple[object] | None:
        shape = self._containers[-1].expected() if self._containers else _DOCUMENT
        if event == "start_map" and isinstance(shape, Mapping):
            self._containers.append(_Container({}, shape))
        elif event == "start_array" and isinstance(shape, tuple):
            self._containers.append(_Container([], shape))
        else:
            self._skipped_depth = 1
            return self._add_value(_OTHER)
        return None

    def _add_value(self, value: object) -> tuple[object] | None:
        """Add a complete value to its container. A feature is returned instead, in a tuple because it may be None."""
        if not self._containers:
            raise _not_geojson()
        holder = self._containers[-1]
        if holder.shape is _FEATURES:
            return (value,)
        if isinstance(holder.shape, tuple):
            if len(holder.content) < _MAX_ELEMENTS:
                holder.content.append(value)
        elif holder.shape and holder.key in holder.shape:
            holder.content[holder.key] = value
            if len(self._containers) == 1:
                _check_member(holder.key, value)
        return None


def _not_geojson() -> FeedError:
    return FeedError(FeedCode.NOT_GEOJSON, "The body is not a GeoJSON FeatureCollection.")


def _check_member(key: str, value: object) -> None:
    """Raise `FeedError` if a member of the document shows that it is no feed, or an error of the service."""
    if key == "type" and value != "FeatureCollection":
        raise _not_geojson()
    if key == "features" and not isinstance(value, list):
        raise _not_geojson()
    if key == "metadata" and isinstance(value, dict):
        status, error = value.get("status"), value.get("error")
        if error or (isinstance(status, int | Decimal) and status >= 400):
            reason = error if isinstance(error, str) else "no reason given"
            raise FeedError(FeedCode.UPSTREAM_ERROR, f"The service answered with status {status}: {reason[:200]}")
