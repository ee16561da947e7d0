"""The incremental parser of USGS GeoJSON feeds: from bytes to features, which `usgs_events` converts.

https://earthquake.usgs.gov/earthquakes/feed/v1.0/geojson.php
"""

import asyncio
import gzip
import re
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from enum import StrEnum
from itertools import chain, islice
from typing import IO, Any, TypeAlias

import ijson

from datastore.earthquakes.events import Earthquake
from pipelines.earthquakes.usgs_events import Rejection, event_or_rejection

SUMMARY = "https://earthquake.usgs.gov/earthquakes/feed/v1.0/summary/"
SIZES = ("significant", "4.5", "2.5", "1.0", "all")
AGES = ("hour", "day", "week", "month")
MAX_PLAIN_BYTES = 1 << 30  # after decompression
MAX_VALUE_BYTES = 8 << 20
PIECE_BYTES = 64 * 1024
# The features that a thread reads at once.
BATCH = 100
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
    features, batch, fault = _features(body), [object()], None
    while batch:
        batch, fault = await asyncio.to_thread(_next_batch, features)
        for feature in batch:
            yield event_or_rejection(feature, ingested_at_ms)
        if fault is not None:
            raise fault


def _next_batch(features: Iterator[object]) -> tuple[list[object], FeedError | None]:
    """Return the next features, none after the last one, and the fault that follows them, if any."""
    batch: list[object] = []
    try:
        batch.extend(islice(features, BATCH))
    except FeedError as fault:
        return batch, fault
    return batch, None


# From bytes to JSON text


def _pieces(body: IO[bytes]) -> Iterator[bytes]:
    """Yield the decompressed body in pieces of at most `PIECE_BYTES` bytes."""
    is_packed = body.read(len(GZIP)) == GZIP
    body.seek(0)
    read = gzip.GzipFile(fileobj=body, mode="rb").read1 if is_packed else body.read
    size = 0
    try:
        while piece := read(PIECE_BYTES):
            size += len(piece)
            if size > MAX_PLAIN_BYTES:
                raise FeedError(FeedCode.TOO_LARGE, f"The feed is longer than {MAX_PLAIN_BYTES} bytes unpacked.")
            yield piece
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise FeedError(FeedCode.TRUNCATED, "The gzip body is incomplete or broken.") from error


# NaN and Infinity are not JSON, but writers emit them. They are replaced by a number beyond the range of floats, so
# that only their feature is rejected. The replacement changes a string only if the string itself looks like JSON
# (": NaN,").
_NO_NUMBER = re.compile(rb"(?:(?<=[:,\[])|(?<=[:,] ))(?:NaN|-?Infinity)(?=[,}\]\r\n]|\Z)")
_BEYOND_FLOATS = b"1e999"


def _texts(body: IO[bytes]) -> Iterator[bytes]:
    """Yield the JSON in texts that end before a comma or after a brace, so that none ends within a word."""
    held = b""
    for piece in chain(_pieces(body), [b""]):
        text = held + piece
        end = max(text.rfind(b","), text.rfind(b"}") + 1) if piece else len(text)
        text, held = text[:end], text[end:]
        _check_length(len(held))
        if b"NaN" in text or b"Infinity" in text:  # much faster than the pattern
            text = _NO_NUMBER.sub(_BEYOND_FLOATS, text)
        if text:
            yield text


def _check_length(size: int) -> None:
    if size > MAX_VALUE_BYTES:
        raise FeedError(FeedCode.TOO_LARGE, f"The feed holds a value longer than {MAX_VALUE_BYTES} bytes.")


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

# The value of a container where the shape has a scalar, or a container of another kind.
_OTHER = object()
# Besides its own errors, ijson raises those of the conversion of numbers and texts.
_FAULTS = (ijson.JSONError, ArithmeticError, ValueError, SystemError)
_Events: TypeAlias = Iterator[tuple[str, Any]]


def _events(body: IO[bytes]) -> _Events:
    """Yield ijson's events. Raises one of `_FAULTS` or `FeedError`, after the events before the fault."""
    found: Any = ijson.sendable_list()
    parser: Any = ijson.basic_parse_coro(found)
    size = 0  # of the text since the last event
    try:
        for text in chain(_texts(body), [b""]):
            fault = None
            try:
                parser.send(text)
            except StopIteration:
                pass
            except _FAULTS as error:
                fault = error
                if isinstance(error, SystemError):
                    found.pop()  # for an integer of over 4300 digits ijson's C backend appends an invalid event
            size = 0 if found else size + len(text)
            yield from found
            found.clear()
            if fault is not None:
                raise fault
            _check_length(size)
    finally:
        with suppress(*_FAULTS):  # ijson's Python backend raises for an incomplete document, also when it is freed
            parser.close()


def _features(body: IO[bytes]) -> Iterator[object]:
    """Yield the features of a feed. Raises `FeedError` after the complete features before the fault."""
    events, count = _events(body), 0
    try:
        if next(events)[0] != "start_map":
            raise _not_geojson()
    except _FAULTS as fault:
        raise _not_geojson() from fault
    missing = {"type", "features"}
    try:
        for _, name in iter(lambda: next(events), ("end_map", None)):
            missing.discard(name)
            event, value = next(events)
            if name != "features":
                _check_member(name, _read_value(events, event, value, _METADATA if name == "metadata" else None))
                continue
            if event != "start_array":
                raise _not_geojson()
            for first in iter(lambda: next(events), ("end_array", None)):
                feature = _read_value(events, *first, _FEATURE)
                count += 1
                yield feature
        for _ in events:
            pass  # a fault after the document is raised
    except _FAULTS as fault:
        raise FeedError(FeedCode.TRUNCATED, f"The JSON ends or breaks after {count} features.") from fault
    if missing:
        raise _not_geojson()


def _read_value(events: _Events, event: str, value: Any, shape: Shape) -> object:
    """Read the value that begins with this event. Return the parts of its shape, so that all memory is bounded."""
    if event == "start_map" and isinstance(shape, Mapping):
        members = {}
        for _, name in iter(lambda: next(events), ("end_map", None)):
            content = _read_value(events, *next(events), shape.get(name))
            if name in shape:
                members[name] = content
        return members
    if event == "start_array" and isinstance(shape, tuple):
        elements: list[object] = []
        for first in iter(lambda: next(events), ("end_array", None)):
            content = _read_value(events, *first, shape[0])
            if len(elements) < _MAX_ELEMENTS:
                elements.append(content)
        return elements
    if not event.startswith("start"):
        return value
    depth = 1
    while depth:
        event, _ = next(events)
        depth += event.startswith("start") - event.startswith("end")
    return _OTHER


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


def feed_url(name: str) -> str:
    """Return the URL of a summary feed such as `all_day`. Raises `FeedError` BAD_SOURCE for an unknown name."""
    size, _, age = name.partition("_")
    if size not in SIZES or age not in AGES:
        raise FeedError(
            FeedCode.BAD_SOURCE,
            f"There is no feed {name[:100]!r}. A name is SIZE_AGE, SIZE one of {', '.join(SIZES)}; "
            f"AGE one of {', '.join(AGES)}.",
        )
    return f"{SUMMARY}{name}.geojson"
