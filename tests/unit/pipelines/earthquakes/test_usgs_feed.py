"""The parser of USGS feeds: complete feeds, and feeds with faults."""

import asyncio
import gzip
import io
import json
import math
import tarfile
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datastore.earthquakes.events import Earthquake
from pipelines.earthquakes import usgs_feed
from pipelines.earthquakes.usgs_events import Rejection, RejectionReason
from pipelines.earthquakes.usgs_feed import FeedCode, read_events
from pipelines.earthquakes.usgs_fetch import open_source
from tests.support.store_engines import ROOT
from tests.support.usgs_samples import (
    REAL,
    InPieces,
    Json,
    fault_of,
    feature,
    feed_bytes,
    needs_real_data,
    read_body,
    read_until_fault,
    spooled,
)

DEMO = ROOT / "pipelines" / "demo" / "data" / "earthquakes.geojson"


async def test_an_empty_feed_is_legal() -> None:
    assert await read_body(feed_bytes()) == []


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
async def test_a_body_that_is_not_a_feature_collection_is_not_geojson(body: bytes) -> None:
    assert await fault_of(body) == (0, FeedCode.NOT_GEOJSON)
    assert await fault_of(gzip.compress(body)) == (0, FeedCode.NOT_GEOJSON)


async def test_a_wrong_type_after_the_features_fails_after_them() -> None:
    assert await fault_of(json.dumps({"features": [feature()], "type": "Topology"}).encode()) == (
        1,
        FeedCode.NOT_GEOJSON,
    )


async def test_error_text_glued_to_the_features_is_a_truncated_feed() -> None:
    body = feed_bytes(feature(), feature()).removesuffix(b"]}") + b", Error 500: Internal Server Error"
    assert await fault_of(body) == (2, FeedCode.TRUNCATED)


@pytest.mark.parametrize("literal", [b"nan", b"1" + b"0" * 5000, b"1e99999999999999999999", b"0x10"])
async def test_text_that_no_json_parser_reads_truncates_the_feed(literal: bytes) -> None:
    body = feed_bytes(feature(), feature(mag="HERE"), feature()).replace(b'"HERE"', literal)
    assert await fault_of(body) == (1, FeedCode.TRUNCATED)


@pytest.mark.parametrize("metadata", [{"status": 503}, {"status": 200, "error": "search limit"}, {"status": 400.0}])
async def test_an_error_in_the_metadata_fails_at_any_position_of_the_metadata(metadata: Json) -> None:
    document = {"type": "FeatureCollection", "metadata": metadata, "features": [feature()]}
    assert await fault_of(json.dumps(document).encode()) == (0, FeedCode.UPSTREAM_ERROR)
    document["metadata"] = document.pop("metadata")
    assert await fault_of(json.dumps(document).encode()) == (1, FeedCode.UPSTREAM_ERROR)


async def test_the_message_names_status_and_error_of_the_service() -> None:
    body = feed_bytes(metadata={"status": 400, "error": "exceeds search limit"})
    _, error = await read_until_fault(InPieces(body, 99))
    assert "400" in str(error)
    assert "exceeds search limit" in str(error)


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
async def test_gzip_is_unpacked_also_in_members_and_with_padding(size: int) -> None:
    body = feed_bytes(feature(), feature())
    packed = gzip.compress(body[:100]) + gzip.compress(body[100:]) + b"\0" * 5
    assert await read_body(packed, size) == await read_body(body)


async def test_broken_gzip_is_a_truncated_feed() -> None:
    packed = bytearray(gzip.compress(feed_bytes(feature())))
    packed[20:24] = b"\xff\xff\xff\xff"
    assert (await fault_of(bytes(packed)))[1] is FeedCode.TRUNCATED


async def test_a_decompression_bomb_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usgs_feed, "MAX_PLAIN_BYTES", 1 << 20)
    bomb = gzip.compress(feed_bytes() + b" " * (4 << 20))
    assert await fault_of(bomb) == (0, FeedCode.TOO_LARGE)


async def test_deep_nesting_and_long_strings_are_skipped() -> None:
    deep = json.loads("[" * 500 + "]" * 500)
    body = feed_bytes(feature(mag="DEEP", felt=deep), feature(place="x" * (3 << 20)), feature(id="y" * (3 << 20)))
    body = body.replace(b'"DEEP"', b'{"a":[' * 10_000 + b"]}" * 10_000)
    nested, cut, long_id = await read_body(body)
    assert nested == Rejection(RejectionReason.BAD_VALUE, "us1")
    assert isinstance(cut, Earthquake)
    assert long_id == Rejection(RejectionReason.ID_TOO_LONG, "y" * 64)


async def test_an_endless_string_is_too_large() -> None:
    class Endless(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(size) or b"x" * 65_536

    _, error = await read_until_fault(Endless(feed_bytes(feature(place="HERE")).partition(b"HERE")[0]))
    assert error is not None
    assert error.code is FeedCode.TOO_LARGE


async def test_features_are_yielded_before_the_rest_of_the_feed_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usgs_feed, "BATCH", 2)
    items = read_events(Stalled(feed_bytes(feature(), feature()).removesuffix(b"]}")), ingested_at_ms=5)
    assert isinstance(await anext(items), Earthquake)
    assert isinstance(await anext(items), Earthquake)


class Stalled(io.BytesIO):
    """A file whose end must not be read."""

    def read(self, size: int | None = -1) -> bytes:
        piece = super().read(size)
        assert piece, "nothing more was needed"
        return piece


@pytest.mark.parametrize("size", [1, 2, 7, 1 << 16])
@pytest.mark.parametrize("spaced", [True, False])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
async def test_nan_and_infinity_are_bad_values_of_their_feature_only(value: float, spaced: bool, size: int) -> None:
    texts = ["Infinity: -Infinity of NaN, NaN", "Nan, Thailand"]
    features = [feature(mag=value), feature(coordinates=[1, value, 1]), *(feature(place=text) for text in texts)]
    document = {"type": "FeatureCollection", "features": [*features, feature(nst=value)], "bbox": [value, value]}
    body = json.dumps(document, separators=(", ", ": ") if spaced else (",", ":")).encode()
    first, second, *rest = await read_body(body, size)
    assert [first, second] == [Rejection(RejectionReason.BAD_VALUE, "us1")] * 2
    assert [item.place for item in rest if isinstance(item, Earthquake)] == [*texts, "1 km N of Here"]


async def test_a_repeated_id_is_yielded_twice() -> None:
    assert len(await read_body(feed_bytes(feature(), feature()))) == 2


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=300) | st.binary(max_size=40).map(lambda tail: feed_bytes(feature())[:60] + tail))
def test_any_body_raises_only_a_feed_error(body: bytes) -> None:
    _, code = asyncio.run(fault_of(body, 7))
    assert code is not None


@settings(max_examples=40, deadline=None)
@given(st.data(), st.booleans())
def test_a_feed_truncated_anywhere_fails_after_its_complete_features(data: st.DataObject, packed: bool) -> None:
    whole = feed_bytes(feature(), feature(), feature())
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


# Real feeds and the sample feed


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened


def reference_counts(document: Json) -> Counter[str]:
    """Return the same counts from the whole document, for the reasons of rejection that occur in real feeds."""
    found: Counter[str] = Counter()
    for item in document["features"]:
        members, place = item["properties"], item["geometry"]["coordinates"]
        if members.get("status", "").lower() == "deleted":
            found["DELETED"] += 1
        elif not item.get("id"):
            found["MISSING_ID"] += 1
        elif members.get("mag") is None:
            found["MISSING_MAGNITUDE"] += 1
        elif not (-90 <= place[1] <= 90 and -180 <= place[0] <= 180):
            found["BAD_PLACE"] += 1
        else:
            found["accepted"] += 1
    return found


async def judged(body: bytes) -> Counter[str]:
    return Counter(item.reason if isinstance(item, Rejection) else "accepted" for item in await read_body(body))


def real_feeds() -> Iterable[Path]:
    return sorted(path for path in REAL.glob("*.geojson*"))


@pytest.mark.proof
async def test_every_real_feed_is_read_as_by_simple_code(session: aiohttp.ClientSession) -> None:
    needs_real_data()
    for path in real_feeds():
        body = path.read_bytes()
        plain = gzip.decompress(body) if path.suffix == ".gz" else body
        document = json.loads(plain)
        assert await judged(body) == reference_counts(document), path.name
        async with open_source(str(path), session=session) as source:
            items = [item async for item in read_events(await spooled(source), ingested_at_ms=5)]
        accepted = [item for item in items if isinstance(item, Earthquake)]
        expected = [item for item in document["features"] if item["properties"]["mag"] is not None]
        assert [compared_fields(item) for item in accepted] == [expected_fields(item) for item in expected], path.name


def compared_fields(item: Earthquake) -> tuple[Json, ...]:
    return item.event_id, item.occurred_at_ms, item.magnitude, item.longitude, item.latitude, item.depth_km, item.place


def expected_fields(item: Json) -> tuple[Json, ...]:
    east, north, depth = item["geometry"]["coordinates"]
    members = item["properties"]
    return item["id"], members["time"], members["mag"], east, north, max(depth, 0), members["place"]


@pytest.mark.parametrize("name", ["all_hour_2025-05-04_to_24", "all_week_flapping_2025-05-20_to_21"])
async def test_snapshots_of_the_histories_are_read_as_by_simple_code(name: str) -> None:
    needs_real_data()
    for body in sampled_files(REAL / "history" / f"{name}.tar.xz"):
        assert await judged(body) == reference_counts(json.loads(body))


def sampled_files(archive: Path) -> Iterator[bytes]:
    with tarfile.open(archive) as opened:
        for number, member in enumerate(m for m in opened if m.isfile()):
            file = opened.extractfile(member) or io.BytesIO()
            if number % 13 == 0:
                yield file.read()


async def test_a_csv_feed_is_not_geojson() -> None:
    needs_real_data()
    assert await fault_of((REAL / "all_month_2019-11.csv.gz").read_bytes()) == (0, FeedCode.NOT_GEOJSON)


async def test_the_demo_feed_has_the_events_of_the_demo() -> None:
    body = DEMO.read_bytes()
    document = json.loads(body)
    assert await judged(body) == reference_counts(document) == {"accepted": 79, "MISSING_MAGNITUDE": 1}
    until = int(datetime(2026, 11, 21, tzinfo=UTC).timestamp() * 1000)
    assert all(until - 30 * 86_400_000 <= item["properties"]["time"] <= until for item in document["features"])
    assert sum(item["geometry"]["coordinates"][2] < 0 for item in document["features"]) == 2
    assert [item["id"] for item in document["features"]] == [f"demo{n:04d}" for n in range(1, 81)]
