"""The download of USGS feeds by name, file and URL."""

import gzip
import hashlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from datastore.dynamodb.retry.backoff import Backoff
from pipelines.earthquakes import usgs_fetch
from pipelines.earthquakes.usgs_feed import FeedCode, FeedError, feed_url, read_events
from pipelines.earthquakes.usgs_fetch import FeedDownload, open_source
from tests.support.usgs_samples import (
    Handler,
    answering,
    cut_after_50_bytes,
    cut_before_the_body,
    feature,
    feed_bytes,
    feed_server,
    hang_response,
    read_until_fault,
    spooled,
)

QUICK = Backoff(initial=0.001, maximum=0.002, attempts=4)


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened


async def fetched_body(source: FeedDownload) -> bytes:
    return (await spooled(source)).getvalue()


async def refusal(source: str, session: aiohttp.ClientSession, **options: Any) -> FeedError:
    with pytest.raises(FeedError) as caught:
        async with open_source(source, session=session, **({"retry": QUICK} | options)) as opened:
            await fetched_body(opened)
    return caught.value


async def test_a_url_is_read_hashed_and_counted(session: aiohttp.ClientSession) -> None:
    seen: list[str] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers["User-Agent"])
        return web.Response(body=feed_bytes(feature()), headers={"ETag": '"1"', "Last-Modified": "then"})

    async with feed_server(handler) as url, open_source(url, session=session) as source:
        assert source.total == len(feed_bytes(feature()))
        assert await fetched_body(source) == feed_bytes(feature())
    assert source.size == source.total
    assert source.sha256 == hashlib.sha256(feed_bytes(feature())).hexdigest()
    assert (source.etag, source.last_modified, source.retries, source.not_modified) == ('"1"', "then", 0, False)
    assert "gateway" in seen[0]


async def test_a_304_has_no_chunks_and_is_not_modified(session: aiohttp.ClientSession) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        validators = request.headers["If-None-Match"], request.headers["If-Modified-Since"]
        return web.Response(status=304 if validators == ('"1"', "then") else 500, headers={"ETag": '"1"'})

    async with (
        feed_server(handler) as url,
        open_source(url, session=session, etag='"1"', last_modified="then") as source,
    ):
        assert source.not_modified
        assert await fetched_body(source) == b""
        assert (source.etag, source.total) == ('"1"', None)


async def test_a_429_is_retried_after_its_retry_after(session: aiohttp.ClientSession) -> None:
    async with feed_server(answering(429, Retry_After="1"), answering(body=feed_bytes())) as url:
        start = time.monotonic()
        async with open_source(url, session=session, retry=QUICK) as source:
            assert await fetched_body(source) == feed_bytes()
        assert time.monotonic() - start >= 1
        assert source.retries == 1


async def test_a_429_with_a_long_retry_after_fails_at_once(session: aiohttp.ClientSession) -> None:
    async with feed_server(answering(429, Retry_After="3600"), answering(body=feed_bytes())) as url:
        error = await refusal(url, session)
    assert (error.code, error.retries) == (FeedCode.RATE_LIMITED, 0)


async def test_a_lasting_429_is_rate_limited(session: aiohttp.ClientSession) -> None:
    async with feed_server(answering(429)) as url:
        error = await refusal(url, session)
    assert (error.code, error.retries) == (FeedCode.RATE_LIMITED, 3)


@pytest.mark.parametrize("first", [answering(503), answering(500)])
async def test_temporary_failures_are_retried(session: aiohttp.ClientSession, first: Handler) -> None:
    async with feed_server(first, first, answering(body=feed_bytes())) as url:
        async with open_source(url, session=session, retry=QUICK) as source:
            assert await fetched_body(source) == feed_bytes()
        assert source.retries == 2


async def test_a_connection_lost_before_the_body_is_retried(session: aiohttp.ClientSession) -> None:
    async with feed_server(*[cut_before_the_body] * 3, answering(body=feed_bytes())) as url:
        async with open_source(url, session=session, retry=QUICK) as source:
            assert await fetched_body(source) == feed_bytes()
        assert source.retries >= 1  # aiohttp itself may have retried


@pytest.mark.parametrize(
    ("status", "code", "retries"),
    [(404, "NOT_FOUND", 0), (400, "HTTP_STATUS", 0), (409, "HTTP_STATUS", 0), (204, "HTTP_STATUS", 0),
     (502, "HTTP_STATUS", 3)],
)  # fmt: skip
async def test_other_statuses_are_reported(
    session: aiohttp.ClientSession, status: int, code: str, retries: int
) -> None:
    async with feed_server(answering(status)) as url:
        error = await refusal(url, session)
    assert (error.code, error.retries) == (code, retries)
    assert str(status) in str(error)


async def test_an_incomplete_body_is_truncated_and_not_retried(session: aiohttp.ClientSession) -> None:
    async with feed_server(cut_after_50_bytes, answering(body=feed_bytes())) as url:
        error = await refusal(url, session)
    assert (error.code, error.retries) == (FeedCode.TRUNCATED, 0)


async def test_html_with_status_200_is_not_geojson(session: aiohttp.ClientSession) -> None:
    async with (
        feed_server(answering(body=b"<html>We have moved</html>")) as url,
        open_source(url, session=session) as source,
    ):
        _, error = await read_until_fault(await spooled(source))
    assert error is not None
    assert error.code is FeedCode.NOT_GEOJSON


async def test_a_service_that_hangs_is_a_timeout(session: aiohttp.ClientSession) -> None:
    limits = aiohttp.ClientTimeout(total=5, sock_read=0.1)
    async with feed_server(hang_response) as url:
        error = await refusal(url, session, limits=limits, retry=Backoff(initial=0.001, maximum=0.001, attempts=2))
    assert (error.code, error.retries) == (FeedCode.TIMEOUT, 1)


async def test_a_stalled_body_is_a_timeout(session: aiohttp.ClientSession) -> None:
    async def stall(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"{")
        return await hang_response(request)

    async with feed_server(stall) as url:
        error = await refusal(url, session, limits=aiohttp.ClientTimeout(total=0.2))
    assert error.code is FeedCode.TIMEOUT


async def test_a_closed_port_is_unreachable(session: aiohttp.ClientSession) -> None:
    async with feed_server(hang_response) as url:
        pass
    error = await refusal(url, session)
    assert (error.code, error.retries) == (FeedCode.UNREACHABLE, 3)


async def test_a_compressed_response_has_no_known_size(session: aiohttp.ClientSession) -> None:
    packed = gzip.compress(feed_bytes(feature()))
    async with (
        feed_server(answering(body=packed, Content_Encoding="gzip")) as url,
        open_source(url, session=session) as source,
    ):
        assert source.total is None
        assert len([item async for item in read_events(await spooled(source), ingested_at_ms=5)]) == 1


async def test_a_gzip_file_is_hashed_as_it_is(session: aiohttp.ClientSession) -> None:
    packed = gzip.compress(feed_bytes(feature()))
    async with feed_server(answering(body=packed)) as url, open_source(url, session=session) as source:
        assert len([item async for item in read_events(await spooled(source), ingested_at_ms=5)]) == 1
    assert source.sha256 == hashlib.sha256(packed).hexdigest()


async def test_a_body_over_the_limit_is_too_large_with_or_without_a_stated_size(
    session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def untold(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b" " * 2000)
        return response

    monkeypatch.setattr(usgs_fetch, "MAX_FEED_BYTES", 1000)
    for handler in (answering(body=b" " * 2000), untold):
        async with feed_server(handler) as url:
            assert (await refusal(url, session)).code is FeedCode.TOO_LARGE


async def test_a_redirect_is_followed_on_its_own_host(session: aiohttp.ClientSession) -> None:
    async with (
        feed_server(answering(302, Location="/other"), answering(body=feed_bytes())) as url,
        open_source(url, session=session) as source,
    ):
        assert await fetched_body(source) == feed_bytes()


async def test_endless_redirects_are_an_error(session: aiohttp.ClientSession) -> None:
    async with feed_server(answering(302, Location="/again")) as url:
        assert (await refusal(url, session)).code is FeedCode.HTTP_STATUS


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data/",
        "//localhost/feed",
        "http://127.0.0.1/feed",
        "http://127.0.0.1:1/feed",
        "https://127.0.0.1/feed",
        "http://2130706433/feed",
        "http://127.0.0.1@localhost/feed",
        "ftp://127.0.0.1/feed",
        "file:///etc/hosts",
        "http://[x/",
    ],
)
async def test_no_redirect_leads_to_another_host_or_port(session: aiohttp.ClientSession, location: str) -> None:
    async with feed_server(answering(302, Location=location)) as url:
        assert (await refusal(url, session)).code is FeedCode.BAD_SOURCE


def test_only_http_on_its_usual_port_may_become_https() -> None:
    pairs = [
        "http://usgs.gov https://usgs.gov/a",
        "https://usgs.gov http://usgs.gov",
        "http://usgs.gov:81 https://usgs.gov",
    ]
    assert [usgs_fetch._is_same_host(*map(URL, pair.split())) for pair in pairs] == [True, False, False]


@pytest.mark.parametrize(
    "source", ["ftp://usgs.gov/a", "file:///etc/hosts", "http://", "http://[x/", "://", "gopher://x"]
)
async def test_other_schemes_are_refused(session: aiohttp.ClientSession, source: str) -> None:
    assert (await refusal(source, session)).code is FeedCode.BAD_SOURCE


@pytest.mark.parametrize("name", ["all_dya", "3.5_day", "all", "", "all_day_week", "ALL_DAY"])
async def test_the_error_of_an_unknown_name_lists_the_sizes_and_ages(session: aiohttp.ClientSession, name: str) -> None:
    error = await refusal(name, session)
    assert error.code is FeedCode.BAD_SOURCE
    assert "significant, 4.5, 2.5, 1.0, all" in str(error)
    assert "hour, day, week, month" in str(error)


def test_a_name_is_expanded_to_its_url() -> None:
    assert feed_url("2.5_month") == "https://earthquake.usgs.gov/earthquakes/feed/v1.0/summary/2.5_month.geojson"


async def test_a_file_is_read_hashed_and_counted(session: aiohttp.ClientSession, tmp_path: Path) -> None:
    path = tmp_path / "feed.geojson.gz"
    packed = gzip.compress(feed_bytes(feature()))
    path.write_bytes(packed)
    async with open_source(str(path), session=session) as source:
        assert len([item async for item in read_events(await spooled(source), ingested_at_ms=5)]) == 1
    assert (source.size, source.total, source.retries) == (len(packed), len(packed), 0)
    assert source.sha256 == hashlib.sha256(packed).hexdigest()


async def test_a_missing_file_and_a_folder_are_errors(session: aiohttp.ClientSession, tmp_path: Path) -> None:
    assert (await refusal(str(tmp_path / "none.geojson"), session)).code is FeedCode.NOT_FOUND
    assert (await refusal("no-such-file.json", session)).code is FeedCode.NOT_FOUND
    assert (await refusal(str(tmp_path), session)).code is FeedCode.BAD_SOURCE
    assert (await refusal("/tmp/nul\0.json", session)).code is FeedCode.BAD_SOURCE
