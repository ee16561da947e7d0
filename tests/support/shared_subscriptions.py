"""Subscriptions of broadcast groups, with listeners that record."""

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from typing import Any

import orjson
import pytest

from datastore.change_streams.subscriptions.event_source import EventSource
from datastore.model.identity import Identity, Role
from datastore.queues import ByteBudget
from server.admission.callers import Caller
from server.documents.request import GraphQLParams
from server.operations.outcome import Outcome
from server.operations.request import Request, Transport
from server.operations.runner import Runner
from server.subscriptions.manager import SubscriptionManager
from server.subscriptions.subscriber import SubscriptionHandle
from tests.support.served import Served

FOLLOWED = 'subscription { matchUpdates(matchId: "m1") { version match { followedByViewer } } }'
REPORTED = "subscription { sightingReported { sightingId } }"


class RecordingListener:
    """A listener that records its outcomes."""

    def __init__(self, on_event: Callable[["RecordingListener"], None] = lambda _: None) -> None:
        self.outcomes: list[Outcome] = []
        self.keys: list[Hashable] = []
        self.last: list[Outcome | None] = []
        self.following: SubscriptionHandle | None = None
        self._on_event = on_event
        self._taken = 0
        self._wake = asyncio.Event()
        self.byte_budget = ByteBudget()

    def deliver(self, outcome: Outcome, key: Hashable) -> None:
        self.outcomes.append(outcome)
        self.keys.append(key)
        self._wake.set()
        self._on_event(self)

    def send_position(self, event_id: str) -> None:
        pass

    def finish(self, outcome: Outcome | None) -> None:
        self.last.append(outcome)
        self._wake.set()

    async def drained(self) -> None:
        pass

    async def next(self) -> Any:
        """Return the data of the next event."""
        async with asyncio.timeout(50):
            while len(self.outcomes) <= self._taken:
                assert not self.last, self.last
                self._wake.clear()
                await self._wake.wait()
        self._taken += 1
        return orjson.loads(self.outcomes[self._taken - 1].body)["data"]

    async def end(self) -> str | None:
        """Wait for the end. Return its error code, or None if the subscription completed."""
        async with asyncio.timeout(50):
            while not self.last:
                self._wake.clear()
                await self._wake.wait()
        (last,) = self.last
        return None if last is None else last.code


def caller(user: str | None, role: Role = Role.USER) -> Caller:
    return Caller(None if user is None else Identity(user, role), "10.0.0.1")


def runner(served: Served) -> Runner:
    return served.gateway.server.runner


def subscriptions(served: Served) -> SubscriptionManager:
    return served.gateway.server.subscriptions


async def prepare_subscription(served: Served, query: str, by: Caller) -> Request:
    request = await runner(served).prepare(GraphQLParams(query), by, Transport.WEBSOCKET)
    assert isinstance(request, Request)
    return request


async def follow_subscription(
    served: Served, query: str, user: str | None = None, role: Role = Role.USER, heard: RecordingListener | None = None
) -> RecordingListener:
    heard = heard or RecordingListener()
    heard.following = await subscriptions(served).follow(
        await prepare_subscription(served, query, caller(user, role)), heard
    )
    return heard


def stop_following(*listeners: RecordingListener) -> None:
    for heard in listeners:
        assert heard.following is not None
        heard.following.stop()


def share_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each subscription have a stream of its own."""
    monkeypatch.setattr(EventSource, "is_shared", property(lambda _: False, lambda *_: None))


def groups(served: Served) -> int:
    return len(subscriptions(served)._groups)


@pytest.fixture(autouse=True)
async def all_end(served: Served) -> AsyncIterator[None]:
    """Check at the end that no group, queue or quota is left."""
    yield
    await subscriptions(served).aclose()
    assert groups(served) == 0
    assert served.gateway.server.admission.subscriptions.total == 0
