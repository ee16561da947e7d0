"""Subscriptions to a match with a damaged item: an error replaces the update, and the subscription continues."""

from typing import Any

import pytest
from msgspec.structs import replace

from datastore.dynamodb.codec import Item
from datastore.keyspace.matches.active_matches import ACTIVE_MATCHES
from datastore.matches.cricket import MatchPhase
from tests.support.active_matches import active_match_state, begin, matches
from tests.support.fixture_steps import planned_match, put_fixtures
from tests.support.match_updates import publish
from tests.support.served import Listener, Served

UPDATES = """subscription { matchUpdates(matchId: "m1"%s) { version isSnapshot events { kind } } }"""
SCORES = "subscription { liveScores%s { isSnapshot updates { matchId version isSnapshot } removedMatchIds } }"
NO_SCORE = {"previousScore": "{"}


async def write_active_match(served: Served, item: Item) -> None:
    await served.store().write_all(ACTIVE_MATCHES, puts=[item])


async def store_damaged_match(served: Served, match_id: str = "m1", **attributes: Any) -> Item:
    """Store a damaged version. Return the valid item."""
    item = replace(await active_match_state(served, match_id), version=2).item()
    await write_active_match(served, item | NO_SCORE | attributes)
    return item


async def errors_of(listener: Listener) -> list[tuple[str, str, list[str]]]:
    message = await listener.message()
    assert (message["type"], message["payload"]["data"]) == ("next", None), message
    return [(error["extensions"]["code"], error["message"], error["path"]) for error in message["payload"]["errors"]]


async def version(listener: Listener) -> tuple[int, bool]:
    update = (await listener.event())["matchUpdates"]
    return update["version"], update["isSnapshot"]


async def test_a_damaged_version_is_an_error_and_the_subscription_continues(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    await begin(served, "m1")
    listener = await served.listen(UPDATES % "")
    assert await version(listener) == (1, True)

    item = await store_damaged_match(served)
    errors = await errors_of(listener)
    await write_active_match(served, item)
    assert await matches(served).commit(replace(await active_match_state(served), version=3))

    assert errors == [("INTERNAL", "A stored record is damaged.", ["matchUpdates"])]
    assert [await version(listener) for _ in range(2)] == [(2, False), (3, False)]
    assert f"A change of {served.gateway.store_options.prefix}active-matches is damaged" in caplog.text


async def test_the_version_after_a_damaged_one_is_a_snapshot(served: Served) -> None:
    await begin(served, "m1")
    listener = await served.listen(UPDATES % "")
    assert await version(listener) == (1, True)

    item = await store_damaged_match(served)
    await errors_of(listener)
    await write_active_match(served, item | {"version": 3})

    assert await version(listener) == (3, True)


async def test_each_damaged_version_is_an_error(served: Served) -> None:
    await begin(served, "m1")
    listener = await served.listen(UPDATES % "")
    assert await version(listener) == (1, True)

    item = await store_damaged_match(served)
    assert len(await errors_of(listener)) == 1
    await write_active_match(served, item | {"version": 3, "last30Balls": "{"})

    assert len(await errors_of(listener)) == 1


async def test_all_subscribers_receive_the_error_and_a_later_one_the_repaired_state(served: Served) -> None:
    await begin(served, "m1")
    listeners = [await served.listen(UPDATES % "") for _ in range(3)]
    for listener in listeners:
        assert await version(listener) == (1, True)

    item = await store_damaged_match(served)
    for listener in listeners:
        assert len(await errors_of(listener)) == 1
    await write_active_match(served, item)
    for listener in listeners:
        assert await version(listener) == (2, False)
    late = await served.listen(UPDATES % "")

    assert await version(late) == (2, True)


async def test_an_error_is_sent_without_the_interval_and_no_event_is_lost(served: Served) -> None:
    await begin(served, "m1")
    listener = await served.listen(UPDATES % ", minIntervalMs: 60000")
    assert await version(listener) == (1, True)

    item = await store_damaged_match(served)
    assert len(await errors_of(listener)) == 1
    ended = item | {"status": "ended", "matchPhase": MatchPhase.FINISHED.value}
    await write_active_match(served, ended)

    assert (await version(listener))[0] == 2
    assert (await listener.message())["type"] == "complete"


@pytest.mark.parametrize("arguments", ["", '(leagueCode: "%s")', "(minIntervalMs: 100)"])
async def test_live_scores_report_the_error_of_a_live_match_and_continue(served: Served, arguments: str) -> None:
    await begin(served, "m1", "m2")
    code = (await active_match_state(served)).league_code
    listener = await served.listen(SCORES % (arguments % code if "%" in arguments else arguments))
    first = (await listener.event())["liveScores"]

    item = await store_damaged_match(served)
    errors = await errors_of(listener)
    await write_active_match(served, item)
    repaired = (await listener.event())["liveScores"]

    assert [update["matchId"] for update in first["updates"]] == ["m1", "m2"]
    assert errors == [("INTERNAL", "A stored record is damaged.", ["liveScores"])]
    assert repaired == {
        "isSnapshot": False,
        "updates": [{"matchId": "m1", "version": 2, "isSnapshot": False}],
        "removedMatchIds": [],
    }


async def test_live_scores_report_no_error_of_a_match_that_is_not_live(served: Served) -> None:
    await begin(served, "m1")
    await put_fixtures(served, planned_match("m2"))
    listener = await served.listen(SCORES % "")
    await listener.event()

    await write_active_match(served, {"matchId": "m2", "status": "ended", "version": 4, "previousScore": "{"})
    await write_active_match(served, replace(await active_match_state(served), version=2).item())

    assert (await listener.event())["liveScores"]["updates"][0]["version"] == 2


async def test_live_scores_report_a_state_without_a_status_as_an_error(served: Served) -> None:
    await begin(served, "m1")
    listener = await served.listen(SCORES % "")
    await listener.event()

    await write_active_match(served, {"matchId": "m2", "version": 1})

    assert len(await errors_of(listener)) == 1


async def test_a_damaged_snapshot_is_an_error_and_the_next_is_sent(served: Served) -> None:
    """A version is missing, and the state that is read to fill the gap is damaged."""
    await begin(served, "m1")
    before = await active_match_state(served)
    listener = await served.listen(UPDATES % "")
    assert await version(listener) == (1, True)
    item = await store_damaged_match(served)
    assert len(await errors_of(listener)) == 1

    publish(served, replace(before, version=9))
    assert len(await errors_of(listener)) == 1
    await write_active_match(served, item)

    assert await version(listener) == (2, False)


async def test_a_damaged_version_older_than_the_snapshot_is_no_error(served: Served) -> None:
    await begin(served, "m1")
    before = await active_match_state(served)
    listener = await served.listen(UPDATES % "")
    assert await version(listener) == (1, True)
    item = replace(before, version=5).item()
    await write_active_match(served, item)
    assert await version(listener) == (5, True)

    await write_active_match(served, item | NO_SCORE | {"version": 3})
    await write_active_match(served, item | {"version": 6})

    assert await version(listener) == (6, False)


async def test_a_subscription_to_a_damaged_state_is_refused(served: Served) -> None:
    await begin(served, "m1")
    await store_damaged_match(served)

    message = await (await served.listen(UPDATES % "")).message()

    assert message["type"] == "error"
    assert [error["extensions"]["code"] for error in message["payload"]] == ["INTERNAL"]
