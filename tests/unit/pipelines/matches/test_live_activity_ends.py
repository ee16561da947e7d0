"""The end of Live Activities, with real tables and a real HTTP/2 server."""

import asyncio
from collections.abc import Callable

import pytest

from datastore.dynamodb.retry.backoff import Backoff
from datastore.keyspace.matches.live_activities import LIVE_ACTIVITIES
from datastore.matches.cricket_events import CricketEventKind
from datastore.matches.live_activities import LiveActivities, LiveActivity
from datastore.matches.match_follows import MatchFollows
from datastore.session.store import Store
from pipelines.matches.push.apns import ApnsLimits, ApnsPushService
from pipelines.matches.push.live_activities import LACoordinator
from pipelines.matches.push.push_service import LoggedPushService, PushOutcome
from tests.support.apns import credentials
from tests.support.apns_server import ApnsAnswer, ApnsServer, Fault, Request, server
from tests.support.display_states import CHENNAI, store_match
from tests.support.live_activity_pushes import (
    FINISHED,
    MATCH,
    change,
    coordinator,
    delivery,
    event,
    open_store,
    register,
    rings,
    session,
    session_item,
    shown_by_token,
)
from tests.support.served import NOON, Clock
from tests.support.until import until

__all__ = ["coordinator", "delivery", "open_store", "server"]


async def sessions(store: Store) -> list[LiveActivity]:
    """Return the active sessions."""
    return [session async for page in LiveActivities(store, NOON).pages_of_match("m1") for session in page]


async def test_at_the_end_every_session_receives_the_end_and_is_ended(
    coordinator: LACoordinator, server: ApnsServer, open_store: Callable[[], Store]
) -> None:
    await store_match(open_store(), FINISHED)
    await register(open_store(), "ada", "bob")
    await MatchFollows(open_store(), NOON).follow(MATCH, "bob", CHENNAI.team_id)
    server.answer = lambda request: ApnsAnswer(410, "Unregistered") if request.token == "bob" else ApnsAnswer()

    summary = await coordinator.end(FINISHED)

    assert summary.outcomes == {PushOutcome.DELIVERED: 1, PushOutcome.REJECTED: 1}
    assert shown_by_token(server) == {"ada": ["end MUM 9"], "bob": ["end CHE 9"]}
    assert server.requests[0].aps["dismissal-date"] == int(NOON.timestamp()) + 3600
    assert server.requests[0].aps["content-state"]["situation"] == "Mumbai won"
    for user in ("ada", "bob"):
        assert await session(open_store(), user) == {
            "status": "ended",
            "endReason": "match_finished",
            "updateToken": user,
        }


async def test_the_end_waits_for_the_running_delivery_and_replaces_the_pending_change(
    coordinator: LACoordinator, server: ApnsServer, open_store: Callable[[], Store]
) -> None:
    await register(open_store(), "ada")
    running_at_the_end = []

    def slowly(request: Request) -> ApnsAnswer:
        if request.aps["event"] == "end":
            running_at_the_end.append(server.open)
        return ApnsAnswer(delay=0.1)

    server.answer = slowly

    await coordinator.deliver(change(7))
    await until(lambda: len(server.requests) == 1)
    await coordinator.deliver(change(8, event(CricketEventKind.RESULT, "Mumbai won by 7 wickets")))
    await coordinator.end(FINISHED, change(9).states)
    await coordinator.idle()

    assert shown_by_token(server) == {"ada": ["update MUM 7", "end MUM 9"]}
    assert running_at_the_end == [1]
    assert rings(server) == [(7, None), (9, "Mumbai won by 7 wickets")]


async def test_a_second_end_reaches_the_sessions_that_the_first_did_not(
    coordinator: LACoordinator, server: ApnsServer, open_store: Callable[[], Store]
) -> None:
    await register(open_store(), "ada", "bob")
    server.answer = lambda request: ApnsAnswer(503, "ServiceUnavailable") if request.token == "bob" else ApnsAnswer()

    first_end = await coordinator.end(FINISHED, change(9).states)
    left = [session.user_id for session in await sessions(open_store())]
    server.answer = lambda _: ApnsAnswer()
    second_end = await coordinator.end(FINISHED, change(9).states)

    assert (first_end.outcomes, left) == ({PushOutcome.DELIVERED: 1, PushOutcome.FAILED: 1}, ["bob"])
    assert second_end.outcomes == {PushOutcome.DELIVERED: 1}
    assert await sessions(open_store()) == []


@pytest.mark.proof
async def test_the_end_of_a_thousand_sessions_that_cannot_be_reached_is_bounded(
    server: ApnsServer, open_store: Callable[[], Store], clock: Clock
) -> None:
    users = [f"user-{number:04}" for number in range(1000)]
    await open_store().write_all(LIVE_ACTIVITIES, puts=[session_item(user, user) for user in users])
    server.answer = lambda _: ApnsAnswer(503, "ServiceUnavailable", delay=0.2)
    limits = ApnsLimits(total_seconds=0.3, backoff=Backoff(initial=0.01, maximum=0.05, attempts=4))
    delivery = ApnsPushService(credentials(server), clock, limits=limits, verify=server.trust)
    coordinator = LACoordinator(open_store, delivery, clock, end_seconds=0.3)

    async with asyncio.timeout(50):
        await coordinator.deliver(change(8))
        await until(lambda: len(server.requests) >= 100)
        summary = await coordinator.end(FINISHED, change(9).states)

    assert summary.outcomes == {PushOutcome.FAILED: 1000}
    assert summary.reasons["NotInTime"] >= 400
    assert len(shown_by_token(server)) < 600
    assert len(await sessions(open_store())) == 1000
    await delivery.aclose()


async def test_two_instances_may_end_a_match_at_once(
    coordinator: LACoordinator,
    delivery: ApnsPushService,
    server: ApnsServer,
    open_store: Callable[[], Store],
    clock: Clock,
) -> None:
    users = [f"user-{number:02}" for number in range(30)]
    await register(open_store(), *users)
    other = LACoordinator(open_store, delivery, clock)

    await asyncio.gather(*[instance.end(FINISHED, change(9).states) for instance in (coordinator, other)])
    reached = len(server.requests)
    again = await other.end(FINISHED, change(9).states)

    assert shown_by_token(server).keys() == set(users)
    assert (again.total, len(server.requests)) == (0, reached)
    for user in users:
        assert (await session(open_store(), user))["endReason"] == "match_finished"


async def test_without_credentials_sessions_start_and_end(
    open_store: Callable[[], Store], clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await register(open_store(), "ada", "bob")
    coordinator = LACoordinator(open_store, LoggedPushService(), clock)

    await coordinator.deliver(change())
    await coordinator.idle()
    alive = len(await sessions(open_store()))
    await coordinator.end(FINISHED, change(9).states)

    assert (alive, len(await sessions(open_store()))) == (2, 0)
    logged = [record for record in caplog.records if "Would send to 2 devices" in record.getMessage()]
    assert len(logged) == 2


async def test_closing_cancels_deliveries_that_take_too_long(
    open_store: Callable[[], Store], server: ApnsServer, clock: Clock
) -> None:
    await register(open_store(), "ada")
    server.answer = lambda _: Fault.HANG
    delivery = ApnsPushService(credentials(server), clock, verify=server.trust)
    coordinator = LACoordinator(open_store, delivery, clock)
    await coordinator.deliver(change())
    await until(lambda: len(server.requests) == 1)

    async with asyncio.timeout(50):
        await coordinator.aclose(0.01)
        await coordinator.idle()

    await delivery.aclose()
