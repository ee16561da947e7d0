"""The awaitable of a resolver may be cancelled. This is an error of the operation, and every client gets a response."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from datastore.feeds.posts import Posts
from datastore.matches.match_follows import MatchFollows
from tests.support.match_updates import advance, register_at_version_1
from tests.support.served import Served
from tests.support.shared_subscriptions import (
    FOLLOWED,
    REPORTED,
    all_end,
    follow_subscription,
    share_nothing,
    stop_following,
)

__all__ = ["all_end"]  # subscriptions that are cancelled leave nothing behind either
POST = '{ post(id: "p") { postId } }'


async def raise_cancelled(*_: object, **__: object) -> Any:
    raise asyncio.CancelledError


@pytest.mark.parametrize("asked", range(1, 4))
async def test_a_query(served: Served, monkeypatch: pytest.MonkeyPatch, asked: int) -> None:
    """The first execution is interpreted, later ones are compiled."""
    monkeypatch.setattr(Posts, "visible", raise_cancelled)
    for _ in range(asked):
        answer = await served.ask(POST)
    assert (answer.data, answer.codes) == (None, ["INTERNAL"])
    assert served.reports[-1].codes == ["INTERNAL"]


async def test_a_query_on_a_socket(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(Posts, "visible", raise_cancelled)
        listener = await served.listen(POST)
        message = await listener.message()
    assert (message["type"], message["payload"][0]["extensions"]["code"]) == ("error", "INTERNAL")


@pytest.mark.parametrize("alone", [False, True])
async def test_an_event(served: Served, monkeypatch: pytest.MonkeyPatch, alone: bool) -> None:
    """Whether the event is executed for one subscriber or for several: the other subscriptions continue."""
    await register_at_version_1(served, "m1")
    if alone:
        share_nothing(monkeypatch)
    ada, again, bob = [await follow_subscription(served, FOLLOWED, user) for user in ("ada", "ada", "bob")]
    for viewer in (ada, again, bob):
        await viewer.next()
    read = MatchFollows.by_key

    async def cut_for_ada(follows: MatchFollows, match_id: str, user_id: str) -> Any:
        return await (raise_cancelled() if user_id == "ada" else read(follows, match_id, user_id))

    monkeypatch.setattr(MatchFollows, "by_key", cut_for_ada)
    await advance(served)
    assert (await bob.next())["matchUpdates"]["version"] == 2
    assert [await ada.end(), await again.end()] == ["INTERNAL"] * 2
    assert not bob.last
    stop_following(bob)
    async with asyncio.timeout(50):
        while served.gateway.server.admission.subscriptions.total:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.001)


async def test_an_event_whose_execution_is_cancelled_in_its_first_step(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends the members with that operation; the members of the group with other operations continue."""
    await register_at_version_1(served, "m1")
    with_match = 'subscription { matchUpdates(matchId: "m1") { version match { round } } }'
    version = 'subscription { matchUpdates(matchId: "m1") { version } }'
    broken, other = [await follow_subscription(served, query) for query in (with_match, version)]
    for viewer in (broken, other):
        await viewer.next()

    def cancelled(_: object) -> Any:
        raise asyncio.CancelledError

    with monkeypatch.context() as patched:
        patched.setattr("resolvers.shared.context.Context.fixtures", property(cancelled))
        await advance(served)
        assert (await other.next())["matchUpdates"]["version"] == 2
        assert await broken.end() == "INTERNAL"
    await advance(served)
    assert (await other.next())["matchUpdates"]["version"] == 3
    stop_following(other)


@pytest.mark.parametrize("alone", [False, True])
async def test_a_source(served: Served, monkeypatch: pytest.MonkeyPatch, alone: bool) -> None:
    if alone:
        share_nothing(monkeypatch)

    async def broken(*_: object, **__: object) -> AsyncIterator[Any]:
        yield await raise_cancelled()

    monkeypatch.setattr("resolvers.sightings.sightings.follow", broken)
    viewers = [await follow_subscription(served, REPORTED, user) for user in ("ada", "bob")]
    assert [await viewer.end() for viewer in viewers] == ["INTERNAL"] * 2
