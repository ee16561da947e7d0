"""Subscribers that reconnect until they have received everything, and record what they received."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import aiohttp

from tests.support.remote import PASSING
from tests.support.resuming_clients import CutOff, ResumingClient, Said

# Close codes of servers that are replaced. The client resumes.
REPLACED = {1001, 1012}


class ResumingFollower:
    """Follows a subscription over one connection after another, through any gateway, until `is_over` or `leave`."""

    def __init__(self, client: ResumingClient, urls: Sequence[str], number: int) -> None:
        self._client = client
        self._urls = urls
        self._rng = random.Random(number)
        self._began = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self.connections = 0
        self.resyncs = 0
        # Codes of errors, and the close codes with which the server ended connections.
        self.received: Counter[str | int] = Counter()
        self.is_over = False

    def take(self, payload: Said) -> None:
        """Record an event with data."""
        raise NotImplementedError

    def resync(self) -> None:
        """Record that events may be missing before the next one."""
        self.resyncs += 1

    async def begin(self) -> None:
        """Subscribe. Return when the first event, or the position of the subscription, has arrived."""
        self._watching = asyncio.create_task(self._watch())
        await self._began.wait()

    async def has_seen_all(self) -> None:
        assert self._watching is not None
        await self._watching

    def leave(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    @property
    def refused(self) -> dict[str | int, int]:
        """The errors and close codes that are not temporary."""
        return {code: times for code, times in self.received.items() if code not in PASSING | REPLACED}

    async def _watch(self) -> None:
        while not self.is_over:
            try:
                await self._follow(self._rng.choice(self._urls))
            except CutOff as cut:
                if cut.code is not None:
                    self.received[cut.code] += 1
            except (aiohttp.ClientError, TimeoutError, OSError):
                pass  # The connection is lost: the next one resumes.
            await asyncio.sleep(self._rng.uniform(0.02, 0.2))

    async def _follow(self, url: str) -> None:
        self.connections += 1
        async with self._client.connected(url) as events:
            async for payload in events:
                self._hear(payload)
                if self.is_over:
                    return

    def _hear(self, payload: Said) -> None:
        """Handle an event, the first payload, or a message that ends the subscription."""
        errors = payload["payload"] if payload.get("type") == "error" else payload.get("errors", ())
        codes = [error["extensions"]["code"] for error in errors]
        if codes == ["RESYNC"]:
            self.resync()
            return
        self.received.update(codes)
        if payload.get("data") is not None:
            if "resync" in payload["extensions"]:
                self.resync()
            self.take(payload)
            self._began.set()
        elif "begun" in payload:
            self._began.set()
        elif not errors:
            self.received[payload["type"]] += 1


class Viewer(ResumingFollower):
    """Follows a match until its result."""

    def __init__(self, client: ResumingClient, urls: Sequence[str], number: int) -> None:
        super().__init__(client, urls, number)
        self.versions: list[int] = []
        self.events: list[str] = []
        self.score: list[Any] = []

    def check(self) -> None:
        """Check that each version and each event came once, in order, without errors besides temporary ones."""
        assert self.refused == {}
        assert self.resyncs == 0
        assert self.versions == [*range(self.versions[0], self.versions[0] + len(self.versions))]
        assert len(self.events) == len(set(self.events))

    def take(self, payload: Said) -> None:
        update = payload["data"]["matchUpdates"]
        self.versions.append(update["version"])
        self.events += [event["eventId"] for event in update["events"]]
        self.score = update["liveScore"]["innings"]
        # Do not wait for the part RESULT: a poll with many events writes several versions, each with the new state.
        self.is_over = any(":result:" in event["eventId"] for event in update["events"])


class ListFollower(ResumingFollower):
    """Records the key of each event, which `key` returns for its data."""

    def __init__(self, client: ResumingClient, urls: Sequence[str], number: int, key: Callable[[Any], str]) -> None:
        super().__init__(client, urls, number)
        self._key = key
        self.events: list[str] = []
        # How many events had arrived before each RESYNC.
        self.resynced_at: list[int] = []

    def take(self, payload: Said) -> None:
        self.events.append(self._key(payload["data"]))

    def resync(self) -> None:
        super().resync()
        self.resynced_at.append(len(self.events))
