"""Ingests that clients request: the check of the feed, and their completion when the client disconnects."""

import asyncio
from collections.abc import Collection
from urllib.parse import urlsplit

from datastore.earthquakes.earthquakes import IngestSummary
from datastore.errors import BadUserInput
from datastore.primitives.tasks import stop
from pipelines.earthquakes.ingest import EarthquakeIngest
from pipelines.earthquakes.usgs_feed import FeedError, feed_url

STOP_SECONDS = 5.0


class ClientIngests:
    """The ingests of clients. A client names a feed, or a URL on an allowed host, but no file and no other host."""

    def __init__(self, ingest: EarthquakeIngest, hosts: Collection[str]) -> None:
        self._ingest = ingest
        self._hosts = hosts
        self._running: set[asyncio.Task[IngestSummary]] = set()

    async def run(self, feed: str) -> IngestSummary:
        """Ingest a feed. The ingest continues if the caller is cancelled. Raises `BadUserInput` for other sources."""
        self._check(feed)
        task = asyncio.create_task(self._ingest.run(feed))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def finish(self) -> None:
        """Wait up to `STOP_SECONDS` for the ingests, then cancel them. A cancelled ingest still logs its summary."""
        if self._running:
            await asyncio.wait(self._running, timeout=STOP_SECONDS)
        await stop([*self._running])

    def _check(self, feed: str) -> None:
        is_url = "://" in feed
        if is_url and urlsplit(feed).hostname not in self._hosts:
            allowed = ", ".join(self._hosts)
            raise BadUserInput(f"`feed` may be the name of a USGS feed, or a URL on: {allowed}.", field="feed")
        if is_url:
            return
        try:
            feed_url(feed)
        except FeedError as problem:
            raise BadUserInput(str(problem), field="feed") from None
