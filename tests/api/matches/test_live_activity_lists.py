"""Lists of Live Activities: of a user, and of a match for the pipeline (LA-1, LA-2)."""

from datetime import timedelta
from typing import Any

import pytest

from datastore.keyspace.matches.live_activities import LIVE_ACTIVITIES, live_activity
from datastore.matches.cricket import Match
from datastore.matches.fixtures import Fixtures
from datastore.matches.live_activities import LiveActivities, LiveActivity
from datastore.model.identity import Role
from datastore.model.timestamps import iso, to_seconds
from datastore.session.pagination import Span
from datastore.session.store import Store
from tests.support.live_activities import OF_USER, TOKEN, activities, end, register_session
from tests.support.served import NOON, Served, call_name


@pytest.fixture(autouse=True)
async def matches(served: Served) -> None:
    matches = [Match(match_id, "L", "IPL", "10", "20", NOON) for match_id in ("m1", "m2")]
    await Fixtures(served.store(), NOON).sync(matches)


async def put_sessions(
    store: Store, numbers: range, *, match: str = "m1", user: str | None = None, **more: Any
) -> None:
    """Store sessions directly: of many users on one match, or of one user on many matches."""
    items = []
    for number in numbers:
        owner, match_id = (f"user-{number:04}", match) if user is None else (user, f"{match}-{number:04}")
        key = live_activity(match_id, owner, "phone")
        item = {
            "matchId": key.partition,
            "userId#deviceId": key.sort,
            "userId": owner,
            "deviceId": "phone",
            "updateToken": TOKEN,
            "status": "active",
            "sessionStartedAt": iso(NOON),
            "ttl": to_seconds(NOON) + 1,
        }
        items.append(item | more)
    await store.write_all(LIVE_ACTIVITIES, puts=items)


# LA-2: a user's sessions


async def test_sessions_are_visible_to_their_user_and_tokens_to_the_system_only(served: Served) -> None:
    own = (await register_session(served)).data["registerLiveActivity"]

    assert await activities(served, user="poller", role=Role.SYSTEM) == [own]
    assert await activities(served, user="root", role=Role.ADMIN) == [own | {"updateToken": None}]
    assert (await served.ask(OF_USER, {"user": "ada"}, user="grace")).codes == ["FORBIDDEN"]
    assert (await served.ask(OF_USER, {"user": "ada"})).codes == ["UNAUTHENTICATED"]
    own_list = await served.ask("{ me { liveActivities { nodes { updateToken } } } }", user="ada")
    assert own_list.data == {"me": {"liveActivities": {"nodes": [{"updateToken": TOKEN}]}}}
    assert own_list.made == ["Query live-activities.userId-index"]


async def test_sessions_of_a_user_are_paged_both_ways(served: Served) -> None:
    await put_sessions(served.store(), range(60), user="ada")
    await put_sessions(served.store(), range(100, 120), user="ada", ttl=to_seconds(NOON))
    everything = [activity["matchId"] for activity in await read_all_sessions(served, "first", "after")]

    back = [activity["matchId"] for activity in await read_all_sessions(served, "last", "before")]

    assert sorted(everything) == [f"m1-{number:04}" for number in range(60)]
    assert back == everything[::-1]


async def read_all_sessions(served: Served, size: str, cursor: str) -> list[Any]:
    """Read all sessions of ada, 25 at a time. Return them in the order of reading."""
    found: list[Any] = []
    position: str | None = None
    while True:
        answer = await served.ask(OF_USER, {"user": "ada", size: 25, cursor: position}, user="ada")
        assert answer.errors is None
        page = answer.data["liveActivities"]
        found += page["nodes"] if size == "first" else page["nodes"][::-1]
        info = page["pageInfo"]
        if not info["hasNextPage" if size == "first" else "hasPreviousPage"]:
            return found
        position = info["endCursor" if size == "first" else "startCursor"]


async def test_a_cursor_is_valid_for_its_user_only(served: Served) -> None:
    await put_sessions(served.store(), range(3), user="ada")
    first = await served.ask(OF_USER, {"user": "ada", "first": 1}, user="ada")
    cursor = first.data["liveActivities"]["pageInfo"]["endCursor"]

    answer = await served.ask(OF_USER, {"user": "grace", "first": 1, "after": cursor}, user="grace")

    assert (answer.codes, answer.calls) == (["BAD_CURSOR"], [])


async def test_a_session_expires_at_its_second(served: Served) -> None:
    await register_session(served)

    served.clock.now = NOON + timedelta(hours=12, milliseconds=-1)
    assert len(await activities(served)) == 1
    served.clock.now = NOON + timedelta(hours=12)
    assert await activities(served) == []
    assert (await end(served)).codes == ["NOT_FOUND"]


# LA-1: the sessions of a match


async def test_the_pipeline_reads_the_active_sessions_page_by_page(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    store = served.store()
    for half in (range(15), range(15, 30)):
        await put_sessions(store, half, padding="x" * 60_000)
    await put_sessions(store, range(30, 33), status="suspended")
    await put_sessions(store, range(33, 36), status="ended")
    await put_sessions(store, range(36, 39), ttl=to_seconds(NOON))
    await put_sessions(store, range(39, 40), sessionStartedAt="yesterday")
    store.meter.calls.clear()

    pages: list[list[LiveActivity]] = [page async for page in LiveActivities(store, NOON).pages_of_match("m1")]

    assert [activity.user_id for page in pages for activity in page] == [f"user-{number:04}" for number in range(30)]
    assert len(pages) == 2
    assert [call_name(call) for call in store.meter.calls] == ["Query live-activities"] * 2
    assert "cannot be read" in caplog.text
    assert TOKEN not in caplog.text
    assert TOKEN not in repr(pages)


async def test_all_sessions_of_a_match_are_listed_except_expired_ones(served: Served) -> None:
    store = served.store()
    await put_sessions(store, range(250))
    await put_sessions(store, range(250, 252), status="ended", ttl=to_seconds(NOON) + 60)
    await put_sessions(store, range(252, 260), ttl=to_seconds(NOON))
    sessions = LiveActivities(store, NOON)

    page = await sessions.of_match("m1", Span(100))
    last = await sessions.of_match("m1", Span(3, backward=True))

    assert [item["userId"] for item in page.items] == [f"user-{number:04}" for number in range(100)]
    assert (page.has_next, page.has_previous) == (True, False)
    assert [item["userId"] for item in last.items] == ["user-0249", "user-0250", "user-0251"]


LISTED = '{ match(id: "m1") { matchId liveActivities(first: 2) { nodes { userId updateToken match { matchId } } } } }'


async def test_the_system_sees_the_sessions_of_a_match_with_their_tokens(served: Served) -> None:
    await put_sessions(served.store(), range(3))

    answer = await served.ask(LISTED, user="poller", role=Role.SYSTEM)

    assert answer.data["match"]["liveActivities"]["nodes"] == [
        {"userId": f"user-000{number}", "updateToken": TOKEN, "match": {"matchId": "m1"}} for number in range(2)
    ]
    assert answer.made == ["GetItem cricket-fixtures", "Query live-activities"]
    for user, role in (("ada", Role.USER), ("root", Role.ADMIN)):
        refused = await served.ask(LISTED, user=user, role=role)
        assert (refused.codes, refused.made) == (["FORBIDDEN"], ["GetItem cricket-fixtures"])
        assert refused.data == {"match": {"matchId": "m1", "liveActivities": None}}
