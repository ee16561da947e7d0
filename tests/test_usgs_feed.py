"""Reading USGS feeds: what is taken in, what is refused and why, and how a feed fails."""

import asyncio
import gzip
import hashlib
import io
import json
import math
import tarfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from datastore.backoff import Backoff
from datastore.earthquakes import Earthquake
from pipelines import usgs_feed, usgs_fetch
from pipelines.usgs_feed import FeedCode, FeedError, Reason, Rejection, read_events
from pipelines.usgs_fetch import Source, feed_url, open_source

Json = Any
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "pipelines" / "demo" / "earthquakes.geojson"
REAL = ROOT.parent / "shared" / "data" / "usgs"
QUICK = Backoff(first=0.001, most=0.002, tries=4)
OTHER = object()


def feature(**changes: Json) -> Json:
    """A good feature; OTHER as a change takes the member away."""
    members: dict[str, Json] = {"mag": 4.5, "place": "1 km N of Here", "time": 1_700_000_000_000, "status": "reviewed"}
    members |= {"coordinates": [-116.5, 33.25, 9.75], "id": "us1", "type": "Feature"} | changes
    kept = {name: value for name, value in members.items() if value is not OTHER}
    outside = {name: kept.pop(name) for name in ("id", "type") if name in kept}
    geometry = {"type": "Point"} | {name: kept.pop(name) for name in ("coordinates",) if name in kept}
    return {"properties": kept, "geometry": geometry} | outside


def feed(*features: Json, **members: Json) -> bytes:
    return json.dumps(
        {"type": "FeatureCollection", "metadata": {"status": 200}, "features": features} | members
    ).encode()


async def in_chunks(body: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


async def read(body: bytes, size: int = 1 << 16) -> list[Earthquake | Rejection]:
    return [item async for item in read_events(in_chunks(body, size), ingested_at_ms=5)]


async def read_until_fault(chunks: AsyncIterator[bytes]) -> tuple[int, FeedError | None]:
    """How many items came, and what ended them."""
    count = 0
    try:
        async for _ in read_events(chunks, ingested_at_ms=5):
            count += 1
    except FeedError as error:
        return count, error
    return count, None


async def fault_of(body: bytes, size: int = 1 << 16) -> tuple[int, FeedCode | None]:
    count, error = await read_until_fault(in_chunks(body, size))
    return count, error.code if error else None


async def quake(**changes: Json) -> Earthquake:
    (item,) = await read(feed(feature(**changes)))
    assert isinstance(item, Earthquake)
    return item


# Features


async def test_a_good_feature_becomes_an_earthquake() -> None:
    assert await quake() == Earthquake("us1", 1_700_000_000_000, 4.5, "1 km N of Here", 33.25, -116.5, 9.75, "USGS", 5)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"id": OTHER}, Reason.MISSING_ID),
        ({"id": None}, Reason.MISSING_ID),
        ({"id": ""}, Reason.MISSING_ID),
        ({"id": "x" * 65}, Reason.ID_TOO_LONG),
        ({"id": 7}, Reason.BAD_VALUE),
        ({"mag": None}, Reason.MISSING_MAGNITUDE),
        ({"mag": OTHER}, Reason.MISSING_MAGNITUDE),
        ({"mag": "4.5"}, Reason.BAD_VALUE),
        ({"mag": True}, Reason.BAD_VALUE),
        ({"mag": [4.5]}, Reason.BAD_VALUE),
        ({"mag": 10**400}, Reason.BAD_VALUE),
        ({"coordinates": OTHER}, Reason.MISSING_COORDINATES),
        ({"coordinates": None}, Reason.MISSING_COORDINATES),
        ({"coordinates": []}, Reason.MISSING_COORDINATES),
        ({"coordinates": [1.0]}, Reason.MISSING_COORDINATES),
        ({"coordinates": [None, 1.0, 1.0]}, Reason.MISSING_COORDINATES),
        ({"coordinates": {"lat": 1}}, Reason.BAD_VALUE),
        ({"coordinates": [[1.0, 2.0], [3.0, 4.0]]}, Reason.BAD_VALUE),
        ({"coordinates": [1.0, False, 1.0]}, Reason.BAD_VALUE),
        ({"coordinates": [1.0, 1.0, "deep"]}, Reason.BAD_VALUE),
        ({"coordinates": [1.0, 1.0, 1e200]}, Reason.BAD_VALUE),
        ({"coordinates": [1.0, 90.0001, 1.0]}, Reason.BAD_LATITUDE),
        ({"coordinates": [1.0, -90.0001, 1.0]}, Reason.BAD_LATITUDE),
        ({"coordinates": [180.0001, 1.0, 1.0]}, Reason.BAD_LONGITUDE),
        ({"coordinates": [-181, 1.0, 1.0]}, Reason.BAD_LONGITUDE),
        ({"time": None}, Reason.MISSING_TIME),
        ({"time": OTHER}, Reason.MISSING_TIME),
        ({"time": 1.5}, Reason.BAD_VALUE),
        ({"time": True}, Reason.BAD_VALUE),
        ({"time": "2026-11-21"}, Reason.BAD_VALUE),
        ({"time": 10**17}, Reason.BAD_VALUE),
        ({"place": 7}, Reason.BAD_VALUE),
        ({"status": "Deleted", "mag": None, "id": "us9"}, Reason.DELETED),
        ({"type": "feature"}, Reason.NOT_A_FEATURE),
        ({"type": OTHER}, Reason.NOT_A_FEATURE),
    ],
)
async def test_a_bad_feature_is_refused_for_its_reason_and_the_next_one_is_read(
    changes: dict[str, Json], reason: Reason
) -> None:
    refused, good = await read(feed(feature(**changes), feature(id="us2")))
    named = changes.get("id", "us1")
    assert refused == Rejection(reason, named[:64] if isinstance(named, str) else None)
    assert isinstance(good, Earthquake)


@pytest.mark.parametrize("value", [None, 3, "Feature", [], {}, [feature()], {"features": [feature()]}])
async def test_an_element_that_is_no_feature_is_refused(value: Json) -> None:
    assert await read(feed(value)) == [Rejection(Reason.NOT_A_FEATURE, None)]


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"properties": None}, Reason.MISSING_MAGNITUDE),
        ({"properties": [1]}, Reason.BAD_VALUE),
        ({"geometry": None}, Reason.MISSING_COORDINATES),
        ({"geometry": "POINT(1 2)"}, Reason.BAD_VALUE),
    ],
)
async def test_a_feature_without_its_parts_is_refused(parts: dict[str, Json], reason: Reason) -> None:
    assert await read(feed(feature() | parts)) == [Rejection(reason, "us1")]


@pytest.mark.parametrize("literal", [b"1e999", b"-1e999", b"1" + b"0" * 4000])
async def test_a_number_beyond_all_floats_is_a_bad_value(literal: bytes) -> None:
    body = feed(feature(mag="HERE"), feature()).replace(b'"HERE"', literal)
    assert [getattr(item, "reason", None) for item in await read(body)] == [Reason.BAD_VALUE, None]


@pytest.mark.parametrize("size", [1, 2, 7, 1 << 16])
@pytest.mark.parametrize("spaced", [True, False])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
async def test_nan_and_infinity_are_bad_values_of_their_feature_only(value: float, spaced: bool, size: int) -> None:
    texts = ["Infinity: -Infinity of NaN, NaN", "Nan, Thailand"]
    features = [feature(mag=value), feature(coordinates=[1, value, 1]), *(feature(place=text) for text in texts)]
    document = {"type": "FeatureCollection", "features": [*features, feature(nst=value)], "bbox": [value, value]}
    body = json.dumps(document, separators=(", ", ": ") if spaced else (",", ":")).encode()
    first, second, *rest = await read(body, size)
    assert [first, second] == [Rejection(Reason.BAD_VALUE, "us1")] * 2
    assert [item.place for item in rest if isinstance(item, Earthquake)] == [*texts, "1 km N of Here"]


@pytest.mark.parametrize(("sent", "kept"), [(-2.1, -2.0), (-2, -2.0), (10.01, 10.0), (-0.3, -0.3), (1e300, 10.0)])
async def test_magnitudes_are_clamped(sent: float, kept: float) -> None:
    assert (await quake(mag=sent)).magnitude == kept


@pytest.mark.parametrize(("sent", "kept"), [([], None), ([None], None), ([-1.98], 0.0), ([-0.0], 0.0), ([663], 663.0)])
async def test_depths_are_clamped_and_unknown_ones_stay_unknown(sent: list[Json], kept: float | None) -> None:
    depth = (await quake(coordinates=[1, 2, *sent])).depth_km
    assert depth == kept
    assert depth is None or math.copysign(1, depth) == 1


@pytest.mark.parametrize("sent", [None, OTHER, "", "  "])
async def test_a_place_that_is_not_told_is_unknown(sent: Json) -> None:
    assert (await quake(place=sent)).place == "Unknown location"


async def test_a_long_place_is_cut_at_512_characters_not_bytes() -> None:
    assert (await quake(place="ı" * 513)).place == "ı" * 512


async def test_half_a_surrogate_pair_does_not_get_through() -> None:
    item = await quake(place="a\ud800b", id="x\ud800")
    assert (item.place, item.event_id) == ("a?b", "x?")


async def test_float_noise_stays_as_it_is_and_tiny_numbers_are_zero() -> None:
    assert (await quake(mag=1.08000004)).magnitude == 1.08000004
    body = feed(feature(mag="HERE")).replace(b'"HERE"', b"4.4000000000000004")
    (item,) = await read(body)
    assert isinstance(item, Earthquake)
    assert item.magnitude == float("4.4000000000000004")
    assert (await quake(coordinates=[1e-200, 1, 1])).longitude == 0.0


async def test_a_time_before_1970_and_ids_of_64_characters_are_legal() -> None:
    item = await quake(time=-2_208_988_800_000, id="é" * 64)
    assert (item.occurred_at_ms, item.event_id) == (-2_208_988_800_000, "é" * 64)


async def test_an_id_that_comes_twice_is_yielded_twice() -> None:
    assert len(await read(feed(feature(), feature()))) == 2


async def test_the_reasons_are_stable() -> None:
    assert all(reason.value == reason.name for reason in Reason)
    assert all(code.value == code.name for code in FeedCode)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)
MEMBERS = ("id", "type", "mag", "place", "time", "status", "coordinates")


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(MEMBERS), JSON_VALUES), JSON_VALUES, st.integers(1, 99))
def test_whatever_a_feature_holds_there_is_one_item_for_it_within_bounds(
    changes: dict[str, Json], element: Json, size: int
) -> None:
    items = asyncio.run(read(feed(feature(**changes), element, feature(id="last")), size))
    assert len(items) == 3
    assert isinstance(items[2], Earthquake)
    for item in items:
        if isinstance(item, Earthquake):
            assert 1 <= len(item.event_id) <= 64
            assert -2 <= item.magnitude <= 10
            assert 1 <= len(item.place) <= 512
            assert item.depth_km is None or 0 <= item.depth_km < 1e126


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300) | st.binary(max_size=40).map(lambda tail: feed(feature())[:60] + tail))
def test_whatever_the_body_is_only_a_feed_error_comes_out(body: bytes) -> None:
    _, code = asyncio.run(fault_of(body, 7))
    assert code is not None


@settings(max_examples=60, deadline=None)
@given(st.data(), st.booleans())
def test_a_feed_cut_anywhere_is_told_after_its_whole_features(data: st.DataObject, packed: bool) -> None:
    whole = feed(feature(), feature(), feature())
    body = gzip.compress(whole) if packed else whole
    cut = data.draw(st.integers(1 if not packed else 2, len(body) - 1))
    count, code = asyncio.run(fault_of(body[:cut], data.draw(st.integers(1, 200))))
    assert code is FeedCode.TRUNCATED
    if not packed:
        assert count == sum(cut >= end for end in ends_of_features(whole))


def ends_of_features(body: bytes) -> Iterator[int]:
    end = -1
    while (end := body.find(b'"type": "Feature"}', end + 1)) >= 0:
        yield end + len(b'"type": "Feature"}')


# Whole feeds


async def test_an_empty_feed_is_legal() -> None:
    assert await read(feed()) == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"  \n",
        b"<!DOCTYPE html><html><body>We have moved</body></html>",
        b"Error 503: Service Unavailable\n\nTry later.",
        b"[]",
        b"null",
        b'"FeatureCollection"',
        b"{}",
        json.dumps(feature()).encode(),
        b'{"type":"FeatureCollection"}',
        b'{"features":[]}',
        b'{"type":"FeatureCollection","features":null}',
        b'{"type":"FeatureCollection","features":{}}',
    ],
)
async def test_what_is_no_feature_collection_is_told(body: bytes) -> None:
    assert await fault_of(body) == (0, FeedCode.NOT_GEOJSON)
    assert await fault_of(gzip.compress(body)) == (0, FeedCode.NOT_GEOJSON)


async def test_a_wrong_type_after_the_features_is_told_after_them() -> None:
    assert await fault_of(json.dumps({"features": [feature()], "type": "Topology"}).encode()) == (
        1,
        FeedCode.NOT_GEOJSON,
    )


async def test_error_text_glued_to_the_features_is_a_truncated_feed() -> None:
    body = feed(feature(), feature()).removesuffix(b"]}") + b", Error 500: Internal Server Error"
    assert await fault_of(body) == (2, FeedCode.TRUNCATED)


@pytest.mark.parametrize("literal", [b"nan", b"1" + b"0" * 5000, b"1e99999999999999999999", b"0x10"])
async def test_what_no_json_parser_reads_breaks_the_feed_where_it_stands(literal: bytes) -> None:
    body = feed(feature(), feature(mag="HERE"), feature()).replace(b'"HERE"', literal)
    assert await fault_of(body) == (1, FeedCode.TRUNCATED)


@pytest.mark.parametrize("metadata", [{"status": 503}, {"status": 200, "error": "search limit"}, {"status": 400.0}])
async def test_an_error_in_the_metadata_is_told_wherever_the_metadata_stands(metadata: Json) -> None:
    document = {"type": "FeatureCollection", "metadata": metadata, "features": [feature()]}
    assert await fault_of(json.dumps(document).encode()) == (0, FeedCode.UPSTREAM_ERROR)
    document["metadata"] = document.pop("metadata")
    assert await fault_of(json.dumps(document).encode()) == (1, FeedCode.UPSTREAM_ERROR)


async def test_the_message_names_status_and_error_of_the_service() -> None:
    _, error = await read_until_fault(in_chunks(feed(metadata={"status": 400, "error": "exceeds search limit"}), 99))
    assert "400" in str(error)
    assert "exceeds search limit" in str(error)


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
async def test_gzip_is_unpacked_also_in_members_and_with_padding(size: int) -> None:
    body = feed(feature(), feature())
    packed = gzip.compress(body[:100]) + gzip.compress(body[100:]) + b"\0" * 5
    assert await read(packed, size) == await read(body)


async def test_broken_gzip_is_a_truncated_feed() -> None:
    packed = bytearray(gzip.compress(feed(feature())))
    packed[20:24] = b"\xff\xff\xff\xff"
    assert (await fault_of(bytes(packed)))[1] is FeedCode.TRUNCATED


async def test_a_decompression_bomb_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usgs_feed, "MOST_PLAIN_BYTES", 1 << 20)
    bomb = gzip.compress(feed() + b" " * (4 << 20))
    assert await fault_of(bomb) == (0, FeedCode.TOO_LARGE)


async def test_deep_nesting_and_long_strings_are_passed_over() -> None:
    deep = json.loads("[" * 500 + "]" * 500)
    body = feed(feature(mag="DEEP", felt=deep), feature(place="x" * (3 << 20)), feature(id="y" * (3 << 20)))
    body = body.replace(b'"DEEP"', b'{"a":[' * 10_000 + b"]}" * 10_000)
    nested, cut, long_id = await read(body)
    assert nested == Rejection(Reason.BAD_VALUE, "us1")
    assert isinstance(cut, Earthquake)
    assert long_id == Rejection(Reason.ID_TOO_LONG, "y" * 64)


async def test_an_endless_string_is_too_large() -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield feed(feature(place="HERE")).partition(b"HERE")[0]
        while True:
            yield b"x" * 65_536

    _, error = await read_until_fault(endless())
    assert error is not None
    assert error.code is FeedCode.TOO_LARGE


async def test_features_are_yielded_while_the_feed_still_arrives() -> None:
    async def stalled() -> AsyncIterator[bytes]:
        yield feed(feature(), feature()).removesuffix(b"]}")
        raise AssertionError("nothing more was needed")

    items = read_events(stalled(), ingested_at_ms=5)
    assert isinstance(await anext(items), Earthquake)
    assert isinstance(await anext(items), Earthquake)


# Sources


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened


@asynccontextmanager
async def served(*handlers: Handler) -> AsyncIterator[str]:
    """The address of a server that answers the n-th request with the n-th handler, and goes on with the last."""
    left = list(handlers)

    async def answer(request: web.Request) -> web.StreamResponse:
        return await (left.pop(0) if len(left) > 1 else left[0])(request)

    app = web.Application()
    app.router.add_get("/{name:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        port = runner.addresses[0][1]
        yield f"http://127.0.0.1:{port}/feed.geojson"
    finally:
        await runner.cleanup()


def answering(status: int = 200, body: bytes = b"", **headers: str) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, body=body, headers=named)

    return handler


async def cut_after_50_bytes(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "5000"})
    await response.prepare(request)
    await response.write(feed(feature())[:50])
    await asyncio.sleep(0.05)  # so that the client has these bytes before the end
    assert request.transport is not None
    request.transport.abort()
    return response


async def cut_before_the_body(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def hang(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(30)
    return web.Response()


async def body_of(source: Source) -> bytes:
    return b"".join([chunk async for chunk in source.chunks()])


async def refusal(source: str, session: aiohttp.ClientSession, **options: Any) -> FeedError:
    with pytest.raises(FeedError) as caught:
        async with open_source(source, session=session, **({"retry": QUICK} | options)) as opened:
            await body_of(opened)
    return caught.value


async def test_an_address_is_read_hashed_and_counted(session: aiohttp.ClientSession) -> None:
    seen: list[str] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers["User-Agent"])
        return web.Response(body=feed(feature()), headers={"ETag": '"1"', "Last-Modified": "then"})

    async with served(handler) as url, open_source(url, session=session) as source:
        assert source.total == len(feed(feature()))
        assert await body_of(source) == feed(feature())
    assert source.size == source.total
    assert source.sha256 == hashlib.sha256(feed(feature())).hexdigest()
    assert (source.etag, source.last_modified, source.retries, source.not_modified) == ('"1"', "then", 0, False)
    assert "gateway" in seen[0]


async def test_a_304_has_no_chunks_and_says_so(session: aiohttp.ClientSession) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        asked = request.headers["If-None-Match"], request.headers["If-Modified-Since"]
        return web.Response(status=304 if asked == ('"1"', "then") else 500, headers={"ETag": '"1"'})

    async with (
        served(handler) as url,
        open_source(url, session=session, etag='"1"', last_modified="then") as source,
    ):
        assert source.not_modified
        assert await body_of(source) == b""
        assert (source.etag, source.total) == ('"1"', None)


async def test_a_429_is_repeated_after_the_time_it_names(session: aiohttp.ClientSession) -> None:
    async with served(answering(429, Retry_After="1"), answering(body=feed())) as url:
        start = time.monotonic()
        async with open_source(url, session=session, retry=QUICK) as source:
            assert await body_of(source) == feed()
        assert time.monotonic() - start >= 1
        assert source.retries == 1


async def test_a_429_that_names_a_long_time_is_not_waited_for(session: aiohttp.ClientSession) -> None:
    async with served(answering(429, Retry_After="3600"), answering(body=feed())) as url:
        error = await refusal(url, session)
    assert (error.code, error.retries) == (FeedCode.RATE_LIMITED, 0)


async def test_a_429_that_goes_on_is_rate_limited(session: aiohttp.ClientSession) -> None:
    async with served(answering(429)) as url:
        error = await refusal(url, session)
    assert (error.code, error.retries) == (FeedCode.RATE_LIMITED, 3)


@pytest.mark.parametrize("first", [answering(503), answering(500)])
async def test_what_may_pass_is_repeated(session: aiohttp.ClientSession, first: Handler) -> None:
    async with served(first, first, answering(body=feed())) as url:
        async with open_source(url, session=session, retry=QUICK) as source:
            assert await body_of(source) == feed()
        assert source.retries == 2


async def test_a_connection_lost_before_the_body_is_made_again(session: aiohttp.ClientSession) -> None:
    async with served(*[cut_before_the_body] * 3, answering(body=feed())) as url:
        async with open_source(url, session=session, retry=QUICK) as source:
            assert await body_of(source) == feed()
        assert source.retries >= 1  # aiohttp itself may have tried again unseen


@pytest.mark.parametrize(
    ("status", "code", "retries"),
    [(404, "NOT_FOUND", 0), (400, "HTTP_STATUS", 0), (409, "HTTP_STATUS", 0), (204, "HTTP_STATUS", 0),
     (502, "HTTP_STATUS", 3)],
)  # fmt: skip
async def test_other_statuses_are_told(session: aiohttp.ClientSession, status: int, code: str, retries: int) -> None:
    async with served(answering(status)) as url:
        error = await refusal(url, session)
    assert (error.code, error.retries) == (code, retries)
    assert str(status) in str(error)


async def test_a_body_cut_off_is_truncated_and_not_asked_for_again(session: aiohttp.ClientSession) -> None:
    async with served(cut_after_50_bytes, answering(body=feed())) as url:
        error = await refusal(url, session)
    assert (error.code, error.retries) == (FeedCode.TRUNCATED, 0)


async def test_html_with_status_200_is_not_geojson(session: aiohttp.ClientSession) -> None:
    async with (
        served(answering(body=b"<html>We have moved</html>")) as url,
        open_source(url, session=session) as source,
    ):
        _, error = await read_until_fault(source.chunks())
    assert error is not None
    assert error.code is FeedCode.NOT_GEOJSON


async def test_a_service_that_hangs_is_a_timeout(session: aiohttp.ClientSession) -> None:
    limits = aiohttp.ClientTimeout(total=5, sock_read=0.1)
    async with served(hang) as url:
        error = await refusal(url, session, limits=limits, retry=Backoff(first=0.001, most=0.001, tries=2))
    assert (error.code, error.retries) == (FeedCode.TIMEOUT, 1)


async def test_a_body_that_stops_coming_is_a_timeout(session: aiohttp.ClientSession) -> None:
    async def stall(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"{")
        return await hang(request)

    async with served(stall) as url:
        error = await refusal(url, session, limits=aiohttp.ClientTimeout(total=0.2))
    assert error.code is FeedCode.TIMEOUT


async def test_a_port_nobody_listens_on_is_unreachable(session: aiohttp.ClientSession) -> None:
    async with served(hang) as url:
        pass
    error = await refusal(url, session)
    assert (error.code, error.retries) == (FeedCode.UNREACHABLE, 3)


async def test_a_compressed_answer_is_read_with_its_size_unknown(session: aiohttp.ClientSession) -> None:
    packed = gzip.compress(feed(feature()))
    async with (
        served(answering(body=packed, Content_Encoding="gzip")) as url,
        open_source(url, session=session) as source,
    ):
        assert source.total is None
        assert len([item async for item in read_events(source.chunks(), ingested_at_ms=5)]) == 1


async def test_a_body_that_is_gzip_itself_is_hashed_as_it_is(session: aiohttp.ClientSession) -> None:
    packed = gzip.compress(feed(feature()))
    async with served(answering(body=packed)) as url, open_source(url, session=session) as source:
        assert len([item async for item in read_events(source.chunks(), ingested_at_ms=5)]) == 1
    assert source.sha256 == hashlib.sha256(packed).hexdigest()


async def test_a_body_over_the_limit_is_too_large_told_or_not(
    session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def untold(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b" " * 2000)
        return response

    monkeypatch.setattr(usgs_fetch, "MOST_BYTES", 1000)
    for handler in (answering(body=b" " * 2000), untold):
        async with served(handler) as url:
            assert (await refusal(url, session)).code is FeedCode.TOO_LARGE


async def test_a_redirect_is_followed_but_not_out_of_http(session: aiohttp.ClientSession) -> None:
    async with (
        served(answering(302, Location="/other"), answering(body=feed())) as url,
        open_source(url, session=session) as source,
    ):
        assert await body_of(source) == feed()
    async with served(answering(302, Location="ftp://127.0.0.1/feed")) as url:
        assert (await refusal(url, session)).code is FeedCode.BAD_SOURCE
    async with served(answering(302, Location="/again")) as url:
        assert (await refusal(url, session)).code is FeedCode.HTTP_STATUS


@pytest.mark.parametrize(
    "source", ["ftp://usgs.gov/a", "file:///etc/hosts", "http://", "http://[x/", "://", "gopher://x"]
)
async def test_other_schemes_are_refused(session: aiohttp.ClientSession, source: str) -> None:
    assert (await refusal(source, session)).code is FeedCode.BAD_SOURCE


@pytest.mark.parametrize("name", ["all_dya", "3.5_day", "all", "", "all_day_week", "ALL_DAY"])
async def test_a_wrong_name_lists_the_sizes_and_ages_there_are(session: aiohttp.ClientSession, name: str) -> None:
    error = await refusal(name, session)
    assert error.code is FeedCode.BAD_SOURCE
    assert "significant, 4.5, 2.5, 1.0, all" in str(error)
    assert "hour, day, week, month" in str(error)


def test_a_name_is_expanded_to_its_address() -> None:
    assert feed_url("2.5_month") == "https://earthquake.usgs.gov/earthquakes/feed/v1.0/summary/2.5_month.geojson"


async def test_a_file_is_read_hashed_and_counted(session: aiohttp.ClientSession, tmp_path: Path) -> None:
    path = tmp_path / "feed.geojson.gz"
    packed = gzip.compress(feed(feature()))
    path.write_bytes(packed)
    async with open_source(str(path), session=session) as source:
        assert len([item async for item in read_events(source.chunks(), ingested_at_ms=5)]) == 1
    assert (source.size, source.total, source.retries) == (len(packed), len(packed), 0)
    assert source.sha256 == hashlib.sha256(packed).hexdigest()


async def test_a_file_that_is_not_there_or_no_file_is_told(session: aiohttp.ClientSession, tmp_path: Path) -> None:
    assert (await refusal(str(tmp_path / "none.geojson"), session)).code is FeedCode.NOT_FOUND
    assert (await refusal("no-such-file.json", session)).code is FeedCode.NOT_FOUND
    assert (await refusal(str(tmp_path), session)).code is FeedCode.BAD_SOURCE
    assert (await refusal("/tmp/nul\0.json", session)).code is FeedCode.BAD_SOURCE


async def test_retry_after_is_read_in_seconds_and_as_a_date() -> None:
    now = datetime(2026, 11, 21, tzinfo=UTC)
    texts = ["7", format_datetime(now + timedelta(seconds=9), usegmt=True), format_datetime(now), "soon", "", "-5"]
    assert [usgs_fetch._retry_after(text, now) for text in texts] == [7.0, 9.0, 0.0, 0.0, 0.0, 0.0]


# Real feeds, and the one of our own


def judged_plainly(document: Json) -> Counter[str]:
    """The same count by other means: the document is whole in memory, and real feeds only fail in these ways."""
    found: Counter[str] = Counter()
    for each in document["features"]:
        members, place = each["properties"], each["geometry"]["coordinates"]
        if members.get("status", "").lower() == "deleted":
            found["DELETED"] += 1
        elif not each.get("id"):
            found["MISSING_ID"] += 1
        elif members.get("mag") is None:
            found["MISSING_MAGNITUDE"] += 1
        elif not (-90 <= place[1] <= 90 and -180 <= place[0] <= 180):
            found["BAD_PLACE"] += 1
        else:
            found["accepted"] += 1
    return found


async def judged(body: bytes) -> Counter[str]:
    return Counter(item.reason if isinstance(item, Rejection) else "accepted" for item in await read(body))


def real_feeds() -> Iterable[Path]:
    return sorted(path for path in REAL.glob("*.geojson*"))


def needs_real_data() -> None:
    if not REAL.is_dir():
        pytest.skip("the folder of real feeds, ../shared/data/usgs, is not here")


async def test_every_real_feed_is_read_as_plain_code_reads_it(session: aiohttp.ClientSession) -> None:
    needs_real_data()
    for path in real_feeds():
        body = path.read_bytes()
        plain = gzip.decompress(body) if path.suffix == ".gz" else body
        document = json.loads(plain)
        assert await judged(body) == judged_plainly(document), path.name
        async with open_source(str(path), session=session) as source:
            items = [item async for item in read_events(source.chunks(), ingested_at_ms=5)]
        accepted = [item for item in items if isinstance(item, Earthquake)]
        wanted = [each for each in document["features"] if each["properties"]["mag"] is not None]
        assert [plainly(item) for item in accepted] == [plain_of(each) for each in wanted], path.name


def plainly(item: Earthquake) -> tuple[Json, ...]:
    return item.event_id, item.occurred_at_ms, item.magnitude, item.longitude, item.latitude, item.depth_km, item.place


def plain_of(each: Json) -> tuple[Json, ...]:
    east, north, depth = each["geometry"]["coordinates"]
    members = each["properties"]
    return each["id"], members["time"], members["mag"], east, north, max(depth, 0), members["place"]


@pytest.mark.parametrize("name", ["all_hour_2025-05-04_to_24", "all_week_flapping_2025-05-20_to_21"])
async def test_snapshots_of_the_histories_are_read_as_plain_code_reads_them(name: str) -> None:
    needs_real_data()
    for body in sampled(REAL / "history" / f"{name}.tar.xz"):
        assert await judged(body) == judged_plainly(json.loads(body))


def sampled(archive: Path) -> Iterator[bytes]:
    with tarfile.open(archive) as opened:
        for number, member in enumerate(m for m in opened if m.isfile()):
            file = opened.extractfile(member) or io.BytesIO()
            if number % 13 == 0:
                yield file.read()


async def test_a_csv_feed_is_not_geojson() -> None:
    needs_real_data()
    assert await fault_of((REAL / "all_month_2019-11.csv.gz").read_bytes()) == (0, FeedCode.NOT_GEOJSON)


async def test_the_demo_feed_holds_what_the_demo_shows() -> None:
    body = DEMO.read_bytes()
    document = json.loads(body)
    assert await judged(body) == judged_plainly(document) == {"accepted": 79, "MISSING_MAGNITUDE": 1}
    until = int(datetime(2026, 11, 21, tzinfo=UTC).timestamp() * 1000)
    assert all(until - 30 * 86_400_000 <= each["properties"]["time"] <= until for each in document["features"])
    assert sum(each["geometry"]["coordinates"][2] < 0 for each in document["features"]) == 2
    assert [each["id"] for each in document["features"]] == [f"demo{n:04d}" for n in range(1, 81)]
