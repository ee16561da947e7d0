"""USGS feeds for tests: invented features, a server that returns them, and the path of the real feeds."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import IO, Any

import pytest
from aiohttp import web

from datastore.earthquakes.events import Earthquake
from pipelines.earthquakes.usgs_events import Rejection
from pipelines.earthquakes.usgs_feed import FeedCode, FeedError, read_events
from pipelines.earthquakes.usgs_fetch import FeedDownload
from tests.support.served import REAL_DATA

Json = Any
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

REAL = REAL_DATA / "usgs"
OTHER = object()


def feature(**changes: Json) -> Json:
    """Return a valid feature. The change OTHER removes a member. `kind` is the property `type`."""
    members: dict[str, Json] = {"mag": 4.5, "place": "1 km N of Here", "time": 1_700_000_000_000, "status": "reviewed"}
    members |= {"coordinates": [-116.5, 33.25, 9.75], "id": "us1", "type": "Feature"} | changes
    kept = {name: value for name, value in members.items() if value is not OTHER}
    outside = {name: kept.pop(name) for name in ("id", "type") if name in kept}
    kept |= {"type": kept.pop("kind")} if "kind" in kept else {}
    geometry = {"type": "Point"} | {name: kept.pop(name) for name in ("coordinates",) if name in kept}
    return {"properties": kept, "geometry": geometry} | outside


def feed_bytes(*features: Json, **members: Json) -> bytes:
    return json.dumps(
        {"type": "FeatureCollection", "metadata": {"status": 200}, "features": features} | members
    ).encode()


class InPieces(io.BytesIO):
    """A file that returns at most `piece` bytes at a time, except for the two bytes that tell its type."""

    def __init__(self, body: bytes, piece: int) -> None:
        super().__init__(body)
        self._piece = piece

    def read(self, size: int | None = -1) -> bytes:
        assert size is not None
        return super().read(size if size == 2 else min(size, self._piece))


async def spooled(source: FeedDownload) -> io.BytesIO:
    """Return the downloaded body as a file."""
    return io.BytesIO(b"".join([chunk async for chunk in source.chunks()]))


async def read_body(body: bytes, size: int = 1 << 16) -> list[Earthquake | Rejection]:
    return [item async for item in read_events(InPieces(body, size), ingested_at_ms=5)]


async def read_until_fault(body: IO[bytes]) -> tuple[int, FeedError | None]:
    """Return the number of items before the fault, and the fault."""
    count = 0
    try:
        async for _ in read_events(body, ingested_at_ms=5):
            count += 1
    except FeedError as error:
        return count, error
    return count, None


async def fault_of(body: bytes, size: int = 1 << 16) -> tuple[int, FeedCode | None]:
    count, error = await read_until_fault(InPieces(body, size))
    return count, error.code if error else None


async def decoded_quake(**changes: Json) -> Earthquake:
    (item,) = await read_body(feed_bytes(feature(**changes)))
    assert isinstance(item, Earthquake)
    return item


def needs_real_data() -> None:
    if not REAL.is_dir():
        pytest.skip("the folder of real feeds, ../shared/data/usgs, is not here")


@asynccontextmanager
async def feed_server(*handlers: Handler) -> AsyncIterator[str]:
    """Yield the URL of a server that answers the n-th request with the n-th handler, and later ones with the last."""
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
    await response.write(feed_bytes(feature())[:50])
    await asyncio.sleep(0.05)  # so that the client receives these bytes before the end
    assert request.transport is not None
    request.transport.abort()
    return response


async def cut_before_the_body(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def hang_response(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(30)
    return web.Response()
