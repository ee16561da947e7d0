"""Updates and starts of Live Activities, with real tables and a real HTTP/2 server."""

from collections.abc import Callable
from dataclasses import replace as replaced
from datetime import timedelta

import pytest
from msgspec.structs import replace

from datastore.database import Database
from datastore.dynamodb.calls import Call
from datastore.keyspace.matches.live_activities import LIVE_ACTIVITIES
from datastore.matches.cricket_events import CricketEventKind
from datastore.matches.devices import Devices, Platform
from datastore.matches.display_states import DisplayStates
from datastore.matches.live_activities import LiveActivities
from datastore.matches.match_follows import MatchFollows
from datastore.session.metering import Deadline
from datastore.session.store import Store
from pipelines.matches.push.apns import ApnsLimits, ApnsPushService
from pipelines.matches.push.live_activities import LACoordinator
from pipelines.matches.push.push_queue import MatchChange
from tests.support.apns import credentials
from tests.support.apns_server import ApnsAnswer, ApnsServer, Request, server
from tests.support.display_states import CHENNAI, MUMBAI, NAMES, first, in_chase, second
from tests.support.live_activity_pushes import (
    FAST_RETRIES,
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

WICKET = event(CricketEventKind.WICKET, "Kishan is out")


@pytest.fixture
def calls(database: Database) -> list[Call]:
    """Return a list to which every call to the store is added."""
    calls: list[Call] = []
    database.client.add_call_listener(calls.append)
    return calls


# Recipients
async def test_each_session_is_shown_the_side_its_user_follows_and_else_the_home_team(
    coordinator: LACoordinator, server: ApnsServer, open_store: Callable[[], Store]
) -> None:
    await register(open_store(), "ada", "bob", "eve")
    await MatchFollows(open_store(), NOON).follow(MATCH, "ada", MUMBAI.team_id)
    await MatchFollows(open_store(), NOON).follow(MATCH, "bob", CHENNAI.team_id)

    await coordinator.deliver(change())
    await coordinator.idle()

    assert shown_by_token(server) == {"ada": ["update MUM 7"], "bob": ["update CHE 7"], "eve": ["update MUM 7"]}


async def test_a_match_without_sessions_costs_one_query(
    coordinator: LACoordinator, server: ApnsServer, calls: list[Call]
) -> None:
    await coordinator.deliver(change(7, WICKET))
    await coordinator.idle()

    assert [call.operation for call in calls] == ["Query"]
    assert server.requests == []


@pytest.mark.proof
async def test_two_thousand_sessions_over_several_pages_are_served_a_hundred_at_a_time(
    server: ApnsServer, open_store: Callable[[], Store], clock: Clock, calls: list[Call]
) -> None:
    users = [f"user-{number:04}" for number in range(2000)]
    tokens = {user: f"{number:0480x}" for number, user in enumerate(users)}
    opened: list[Store] = []

    def open_expiring() -> Store:
        """Open a store whose deadline passes before the first page is sent."""
        opened.append(open_store())
        return opened[-1]

    def answer(_: Request) -> ApnsAnswer:
        if len(server.requests) == 1:
            for store in opened:
                store.deadline = Deadline(0)
        return ApnsAnswer(delay=0.1)

    server.answer = answer

    await open_store().write_all(LIVE_ACTIVITIES, puts=[session_item(user, tokens[user]) for user in users])
    delivery = ApnsPushService(credentials(server), clock, limits=ApnsLimits(), verify=server.trust)
    coordinator = LACoordinator(open_expiring, delivery, clock)
    calls.clear()

    await coordinator.deliver(change())
    await coordinator.idle()

    assert server.delivered == dict.fromkeys(tokens.values(), 1)
    assert server.peak <= 100
    assert server.connections == 1
    # Two pages of sessions and the followers.
    assert [call.operation for call in calls] == ["Query"] * 3
    await delivery.aclose()


# Pending changes
async def test_while_a_delivery_runs_only_the_newest_change_waits_and_no_wicket_is_lost(
    coordinator: LACoordinator, server: ApnsServer, open_store: Callable[[], Store]
) -> None:
    await register(open_store(), "ada")
    held = ApnsAnswer(delay=0.2)
    server.answer = lambda request: held if request.aps["content-state"]["version"] == 7 else ApnsAnswer()

    await coordinator.deliver(change(7))
    await until(lambda: len(server.requests) == 1)
    await coordinator.deliver(change(8, WICKET))
    await coordinator.deliver(change(10, event(CricketEventKind.FOUR)))
    await coordinator.deliver(change(9))
    await coordinator.idle()

    assert shown_by_token(server) == {"ada": ["update MUM 7", "update MUM 10"]}
    assert rings(server) == [(7, None), (10, "Kishan is out")]
    assert [request.headers["apns-priority"] for request in server.requests] == ["5", "10"]


async def test_matches_do_not_wait_for_each_other(
    coordinator: LACoordinator, server: ApnsServer, open_store: Callable[[], Store]
) -> None:
    await register(open_store(), "ada")
    await LiveActivities(open_store(), NOON).register(replace(MATCH, match_id="m2"), "bob", "phone", "bob")
    server.answer = lambda request: ApnsAnswer(delay=0.3) if request.token == "ada" else ApnsAnswer()
    other = change()
    other = MatchChange(replace(MATCH, match_id="m2"), {t: replace(s, match_id="m2") for t, s in other.states.items()})

    await coordinator.deliver(change())
    await until(lambda: len(server.requests) == 1)
    await coordinator.deliver(other)
    await until(lambda: len(server.requests) == 2)

    assert server.open >= 1
    await coordinator.idle()
    assert shown_by_token(server) == {"ada": ["update MUM 7"], "bob": ["update MUM 7"]}


async def test_only_events_that_may_ring_have_an_alert(
    coordinator: LACoordinator, server: ApnsServer, open_store: Callable[[], Store]
) -> None:
    await register(open_store(), "ada")
    fifty, four = event(CricketEventKind.FIFTY), event(CricketEventKind.FOUR)
    quiet = change(7, WICKET, fifty, four)

    await coordinator.deliver(replaced(quiet, rings=frozenset({fifty.event_id, four.event_id})))
    await coordinator.idle()
    await coordinator.deliver(replaced(change(8, WICKET), rings=frozenset()))
    await coordinator.idle()

    assert rings(server) == [(7, "fifty"), (8, None)]
    assert [request.headers["apns-priority"] for request in server.requests] == ["10", "5"]


# Late and repeated changes
async def test_the_timestamp_of_a_push_is_that_of_its_state(
    coordinator: LACoordinator, server: ApnsServer, open_store: Callable[[], Store], clock: Clock
) -> None:
    await register(open_store(), "ada")
    await _begin_for_a_follower(open_store())
    clock.forward(seconds=40)

    await coordinator.deliver(
        change(7, event(CricketEventKind.INNINGS_START, innings=1), at=NOON + timedelta(seconds=1.9))
    )
    await coordinator.idle()
    await coordinator.end(FINISHED, change(9).states)

    stamps = [(request.aps["event"], request.aps["timestamp"] - int(NOON.timestamp())) for request in server.requests]
    assert stamps == [("update", 1), ("start", 1), ("end", 40)]


async def _begin_for_a_follower(store: Store) -> None:
    await MatchFollows(store, NOON).follow(MATCH, "fan", MUMBAI.team_id)
    await _device(store, "fan", push_to_start="start-fan")


async def test_a_late_change_shows_the_newer_state_and_its_wicket_rings(
    coordinator: LACoordinator, server: ApnsServer, open_store: Callable[[], Store], clock: Clock, calls: list[Call]
) -> None:
    await register(open_store(), "ada")
    newer = replace(in_chase(8, innings=(first(), second(130))), updated_at=NOON + timedelta(seconds=20))
    await DisplayStates(open_store(), NOON).refresh(MATCH, newer, names=NAMES)
    clock.forward(seconds=30)
    calls.clear()

    await coordinator.deliver(change(7))
    await coordinator.idle()
    superseded, operations = list(server.requests), [call.operation for call in calls]
    await coordinator.deliver(change(7, WICKET))
    await coordinator.idle()

    assert (superseded, operations) == ([], ["BatchGetItem"])
    assert rings(server) == [(8, "Kishan is out")]


async def test_an_older_version_is_not_sent_after_a_newer_one(
    coordinator: LACoordinator, server: ApnsServer, open_store: Callable[[], Store]
) -> None:
    await register(open_store(), "ada")

    for version in (8, 7, 9):
        await coordinator.deliver(change(version, event(CricketEventKind.WICKET, f"out {version}")))
        await coordinator.idle()

    assert rings(server) == [(8, "out 8"), (9, "out 9")]


async def test_no_side_goes_back_although_two_writers_of_its_states_overlapped(
    coordinator: LACoordinator, server: ApnsServer, open_store: Callable[[], Store]
) -> None:
    """The writer of version 7 cached its state of one team before, and of the other team after, version 8."""
    await register(open_store(), "ada")
    newer, older = change(8), change(7, WICKET)
    active = replace(in_chase(8, innings=(first(), second(121))), updated_at=NOON)
    await DisplayStates(open_store(), NOON).refresh(MATCH, active, names=NAMES)
    await coordinator.deliver(newer)
    await coordinator.idle()
    mixed = replaced(older, states={"1": older.states["1"], "2": newer.states["2"]})

    await coordinator.deliver(mixed)
    await coordinator.idle()

    assert rings(server) == [(8, None), (8, "Kishan is out")]


async def test_a_repeated_version_is_sent_once_per_instance_and_does_not_ring(
    coordinator: LACoordinator,
    delivery: ApnsPushService,
    server: ApnsServer,
    open_store: Callable[[], Store],
    clock: Clock,
) -> None:
    await register(open_store(), "ada")
    await coordinator.deliver(change(7, WICKET))
    await coordinator.idle()
    successor = LACoordinator(open_store, delivery, clock)

    for instance in (successor, successor, coordinator):
        await instance.deliver(change(7))
        await instance.idle()

    # Once by each instance: the new owner does not know which devices the previous one reached.
    assert rings(server) == [(7, "Kishan is out"), (7, None)]


@pytest.mark.parametrize("failures", [2, 100])
async def test_failed_reads_of_the_tables_are_retried_with_a_limit(
    server: ApnsServer, delivery: ApnsPushService, open_store: Callable[[], Store], clock: Clock, failures: int
) -> None:
    await register(open_store(), "ada")
    opened = 0

    def late_at_first() -> Store:
        nonlocal opened
        opened += 1
        store = open_store()
        if opened <= failures:
            store.deadline = Deadline(0)
        return store

    coordinator = LACoordinator(late_at_first, delivery, clock, backoff=FAST_RETRIES)
    await coordinator.deliver(change(7, WICKET))
    await coordinator.idle()

    assert rings(server) == ([(7, "Kishan is out")] if failures == 2 else [])
    assert opened == min(failures + 1, 4)


# Rejected tokens
async def test_a_rejected_token_suspends_its_session_and_no_other(
    coordinator: LACoordinator, server: ApnsServer, open_store: Callable[[], Store]
) -> None:
    await register(open_store(), "ada", "bob", "eve")
    reasons = {"ada": ApnsAnswer(410, "Unregistered"), "bob": ApnsAnswer(400, "BadDeviceToken")}
    server.answer = lambda request: reasons.get(request.token, ApnsAnswer(500, "InternalServerError"))

    await coordinator.deliver(change())
    await coordinator.idle()

    assert [(await session(open_store(), user))["status"] for user in ("ada", "bob", "eve")] == [
        "suspended",
        "suspended",
        "active",
    ]


async def test_a_session_whose_token_was_renewed_meanwhile_stays_active(
    coordinator: LACoordinator, server: ApnsServer, open_store: Callable[[], Store]
) -> None:
    await register(open_store(), "ada")
    server.answer = lambda _: ApnsAnswer(410, "Unregistered", delay=0.3)

    await coordinator.deliver(change())
    await until(lambda: len(server.requests) == 1)
    await LiveActivities(open_store(), NOON).update_token("m1", "ada", "phone", "new")
    await coordinator.idle()

    assert await session(open_store(), "ada") == {"status": "active", "endReason": None, "updateToken": "new"}


# Starts
async def test_followers_without_a_session_receive_a_start_when_the_match_begins(
    coordinator: LACoordinator, server: ApnsServer, open_store: Callable[[], Store]
) -> None:
    await register(open_store(), "ada")
    follows = MatchFollows(open_store(), NOON)
    for number in range(40):
        await follows.follow(MATCH, f"fan-{number:02}", CHENNAI.team_id if number % 2 else MUMBAI.team_id)
    await follows.follow(MATCH, "ada", MUMBAI.team_id)
    for user in ("ada", "fan-00", "fan-01", "fan-38", "stranger"):
        await _device(open_store(), user, push_to_start=f"start-{user}")
    await _device(open_store(), "fan-02", push_to_start=None)

    await coordinator.deliver(change(7, event(CricketEventKind.INNINGS_START, innings=1)))
    await coordinator.deliver(change(8))
    await coordinator.idle()
    await coordinator.deliver(change(9, event(CricketEventKind.INNINGS_START, innings=2)))
    await coordinator.idle()

    assert {token: shown for token, shown in shown_by_token(server).items() if token != "ada"} == {
        "start-fan-00": ["start MUM 8"],
        "start-fan-01": ["start CHE 8"],
        "start-fan-38": ["start MUM 8"],
    }


async def test_a_rejected_push_to_start_token_is_removed_unless_it_was_renewed(
    coordinator: LACoordinator, server: ApnsServer, open_store: Callable[[], Store]
) -> None:
    for user in ("dead", "well", "renewed"):
        await MatchFollows(open_store(), NOON).follow(MATCH, user, MUMBAI.team_id)
        await _device(open_store(), user, push_to_start=f"start-{user}")
    await register(open_store(), "ada")
    server.answer = lambda request: (
        ApnsAnswer() if request.token in ("ada", "start-well") else ApnsAnswer(410, "Unregistered", delay=0.2)
    )

    await coordinator.deliver(change(7, event(CricketEventKind.INNINGS_START, innings=1)))
    await until(lambda: len(server.requests) == 4)
    await Devices(open_store(), NOON).update_push_to_start_token("renewed", "device-renewed", "new")
    await coordinator.idle()

    found = [await Devices(open_store(), NOON).of_user(user) for user in ("dead", "well", "renewed")]
    assert [device and device.push_to_start_token for device in found] == [None, "start-well", "new"]


async def _device(store: Store, user: str, *, push_to_start: str | None) -> None:
    devices = Devices(store, NOON)
    await devices.register(
        user, f"device-{user}", platform=Platform.IOS, apns_token="apns", os_version="18", app_version="1"
    )
    if push_to_start is not None:
        await devices.update_push_to_start_token(user, f"device-{user}", push_to_start)
