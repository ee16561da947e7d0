"""The list of live matches by its sparse index: its cost, and when a match enters and leaves it (AM-2)."""

from dataclasses import replace as replace_table
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace

from datastore.dynamodb.client import RequestRefused
from datastore.infrastructure.tables import create
from datastore.keyspace.matches.active_matches import ACTIVE_MATCHES, STATE_FOR_TICK, active_match
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.cricket import Ball
from datastore.matches.live_state import ActiveStatus, initial_state
from datastore.session.metering import Deadline
from datastore.session.scan_cache import ScanCache
from datastore.session.store import Store
from pipelines.matches.live.poller import TickOutcome
from tests.support.active_matches import active_match_state, begin, matches, replay
from tests.support.cricket_pipeline import PipelineInstance
from tests.support.fault_proxy import Proxy, Seen, client_of, forward, refuse
from tests.support.fixture_steps import ask_system, planned_match, put_fixtures
from tests.support.served import NOON, Answer, Served

QUERY = "Query active-matches.live-matchId-index"
SUMMARY = """{ liveMatches { matchId leagueCode version liveScore {
  version updatedAt status phase innings { runs wickets overs } partnership { runs } target { runs }
  result { text } note
} } }"""
DETAILS = "{ liveMatches { matchId liveScore { innings { runs } ...lines } } } fragment lines on LiveScore "
DETAILS += "{ batting { name } bowling { name } recentBalls { label } }"
IDS = [f"match-{number:05}" for number in range(10)]


def consumed_units(answer: Answer) -> float:
    return sum(call.units for call in answer.calls)


async def play_ticks(served: Served, *ids: str, ticks: int = 20) -> PipelineInstance:
    """Store matches that have lines, and up to 30 last balls, by some ticks."""
    instance = await begin(served, *ids, balls=9)
    for _ in range(ticks):
        for match_id in ids:
            await instance.poller.tick(match_id)
    return instance


async def stored_state_item(served: Served, match_id: str = "m1") -> dict[str, Any]:
    found = await served.store().get(STATE_FOR_TICK, active_match(match_id))
    assert found is not None
    return found


@pytest.mark.proof
async def test_ten_live_matches_cost_one_unit_with_any_number_of_ended_ones(served: Served) -> None:
    await play_ticks(served, *IDS)
    alone = await served.ask(SUMMARY)
    ended = replace(
        await active_match_state(served, IDS[0]), status=ActiveStatus.ENDED, expires_at=NOON + timedelta(hours=24)
    )
    items = [replace(ended, match_id=f"ended-{number}").item() for number in range(100)]
    await served.store().write_all(ACTIVE_MATCHES, puts=items)
    served.clock.forward(seconds=1)

    beside = await served.ask(SUMMARY)

    assert [match["matchId"] for match in beside.data["liveMatches"]] == IDS
    assert all(match["liveScore"]["innings"] for match in beside.data["liveMatches"])
    assert alone.data == beside.data
    assert (alone.made, consumed_units(alone)) == ([QUERY], 1.0)
    assert (beside.made, consumed_units(beside)) == ([QUERY], 1.0)
    assert consumed_units(await ask_system(served, "{ activeMatches { matchId } }")) > 20


async def test_selected_lines_and_balls_of_all_matches_are_read_in_one_batch(served: Served) -> None:
    await play_ticks(served, "m1", "m2")

    answer = await served.ask(DETAILS)

    assert answer.made == ["BatchGetItem active-matches", QUERY]
    for match in answer.data["liveMatches"]:
        stored = (await active_match_state(served, match["matchId"])).live
        assert match["liveScore"]["innings"] == [{"runs": score.runs} for score in stored.innings]
        assert match["liveScore"]["batting"] == [{"name": line.name} for line in stored.batting] != []
        assert match["liveScore"]["bowling"] == [{"name": line.name} for line in stored.bowling] != []
        assert len(match["liveScore"]["recentBalls"]) == 30


async def test_a_match_whose_lines_are_damaged_is_left_out_where_they_are_selected(served: Served) -> None:
    await play_ticks(served, "m1", "m2", ticks=3)
    damaged = (await active_match_state(served, "m2")).item() | {"last30Balls": "{"}
    await served.store().write_all(ACTIVE_MATCHES, puts=[damaged])

    answer, summary = await served.ask(DETAILS), await served.ask("{ liveMatches { matchId } }")

    assert answer.errors is None
    assert [match["matchId"] for match in answer.data["liveMatches"]] == ["m1"]
    assert [match["matchId"] for match in summary.data["liveMatches"]] == ["m1", "m2"]


@pytest.mark.parametrize("null", [False, True], ids=["missing", "null"])
async def test_a_state_without_lines_and_balls_has_none(served: Served, *, null: bool) -> None:
    await play_ticks(served, "m1", ticks=3)
    lines = dict.fromkeys(("previousBatting", "previousBowling", "last30Balls"))
    item = {name: value for name, value in (await stored_state_item(served)).items() if name not in lines}
    await served.store().write_all(ACTIVE_MATCHES, puts=[item | lines if null else item])

    answer = await served.ask(DETAILS)

    assert answer.errors is None
    (match,) = answer.data["liveMatches"]
    assert [match["liveScore"][name] for name in ("batting", "bowling", "recentBalls")] == [[], [], []]


async def test_a_match_leaves_the_index_with_the_write_that_ends_or_pauses_it(served: Served) -> None:
    await play_ticks(served, "finished", "resting", "stopped", "live", ticks=1)
    active = matches(served)

    assert await active.finish("finished", (await active_match_state(served, "finished")).fence)
    assert await active.set_idle("resting", (await active_match_state(served, "resting")).fence)
    stop = await ask_system(served, 'mutation { endActiveMatch(id: "stopped") { status } }')

    assert stop.made == ["UpdateItem active-matches"]
    assert [
        "live" in await stored_state_item(served, match_id) for match_id in ("finished", "resting", "stopped", "live")
    ] == [*(False, False, False, True)]
    assert (await served.ask("{ liveMatches { matchId } }")).data == {"liveMatches": [{"matchId": "live"}]}


async def test_a_resumed_match_is_in_the_index_again(served: Served) -> None:
    await play_ticks(served, "m1", ticks=1)
    await matches(served).finish("m1", (await active_match_state(served)).fence)
    assert await matches(served).reopen(await active_match_state(served))
    assert "live" not in await stored_state_item(served)

    await matches(served).register(planned_match(), instance_id="one")

    assert (await stored_state_item(served))["live"] == "live"


async def test_each_tick_indexes_a_match_of_an_earlier_version(served: Served) -> None:
    instance = await begin(served, "m1")
    await instance.poller.tick("m1")
    await unlist(served)

    assert await instance.poller.tick("m1") is TickOutcome.CHANGED
    after_a_change = await stored_state_item(served)
    await unlist(served)
    assert await matches(served).record_tick("m1", (await active_match_state(served)).fence)

    assert (after_a_change["live"], (await stored_state_item(served))["live"]) == ("live", "live")


async def unlist(served: Served) -> None:
    """Store the match as an earlier version of the gateway did."""
    old = {name: value for name, value in (await stored_state_item(served)).items() if name != "live"}
    await served.store().write_all(ACTIVE_MATCHES, puts=[old])


async def test_a_takeover_indexes_a_match(served: Served) -> None:
    await begin(served, "m1")
    await unlist(served)

    assert await matches(served).claim(await active_match_state(served), "two")

    assert (await stored_state_item(served))["live"] == "live"


async def test_a_reconciliation_indexes_matches_of_other_programs_and_removes_ended_ones(served: Served) -> None:
    await put_fixtures(served, planned_match("theirs"), planned_match("ended"))
    theirs = {"matchId": "theirs", "status": "active", "instanceId": "other", "lastTickAt": "2026-06-25T12:00:00Z"}
    ended = {"matchId": "ended", "status": "ended", "live": "live"}
    await served.store().write_all(ACTIVE_MATCHES, puts=[theirs, ended])
    instance = PipelineInstance(served, replay(served))
    before = await served.ask("{ liveMatches { matchId } }")
    served.clock.forward(seconds=1)

    await instance.orchestrator.reconcile()

    after = await served.ask("{ liveMatches { matchId leagueCode } }")
    assert before.data == {"liveMatches": []}
    assert after.data == {"liveMatches": [{"matchId": "theirs", "leagueCode": "IPL"}]}
    assert await stored_state_item(served, "theirs") == theirs | {"live": "live"}
    assert await stored_state_item(served, "ended") == {"matchId": "ended", "status": "ended"}
    await instance.orchestrator.aclose()


MESSAGES = (
    "The table does not have the specified index: live-matchId-index",
    "Cannot read from backfilling global secondary index: live-matchId-index",
)


@pytest.mark.parametrize("message", MESSAGES)
async def test_a_scan_finds_the_matches_while_the_index_cannot_be_read(
    served: Served, proxy: Proxy, caplog: pytest.LogCaptureFixture, message: str
) -> None:
    await play_ticks(served, "m1", "m2", ticks=3)
    assert served.gateway.database is not None
    prefix, clock = served.gateway.database.prefix, served.clock
    refused = refuse(400, "ValidationException", message=message)

    async def refuse_index(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        return await (refused if "IndexName" in seen.body else forward)(proxy, seen)

    proxy.always = refuse_index
    async with client_of(proxy) as client:

        def open_store() -> Store:
            return Store(client, prefix=prefix, deadline=Deadline(10.0), token=lambda: "token", now=lambda: NOON)

        scan_cache = ScanCache(open_store, clock)

        async def ask() -> list[str]:
            before = len(proxy.seen)
            live = await ActiveMatches(open_store(), clock(), scan_cache).live(details=True)
            assert [active.match_id for active in live] == ["m1", "m2"]
            assert all(active.live.batting for active in live)
            return [seen.operation for seen in proxy.seen[before:]]

        assert await ask() == ["Query", "Scan"]
        assert await ask() == []
        clock.forward(seconds=2)
        assert await ask() == ["Scan"]
        assert caplog.text.count("Live matches are read by a Scan") == 1
        proxy.always = None
        clock.forward(seconds=60)
        assert await ask() == ["Query", "BatchGetItem"]
        await scan_cache.aclose()


async def test_the_matches_of_an_old_table_without_the_index_are_listed(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    await play_ticks(served, "m1", ticks=3)
    database = served.gateway.database
    assert database is not None
    stored = await stored_state_item(served)
    await database.client.call("DeleteTable", {"TableName": database.prefix + ACTIVE_MATCHES.name})
    await create(database.client, [replace_table(ACTIVE_MATCHES, indexes=(), stream=None)], database.prefix)
    await served.store().write_all(ACTIVE_MATCHES, puts=[stored])

    answer = await served.ask("{ liveMatches { matchId liveScore { batting { name } } } }")

    assert answer.errors is None
    assert [match["matchId"] for match in answer.data["liveMatches"]] == ["m1"]
    assert answer.data["liveMatches"][0]["liveScore"]["batting"]
    assert sorted(answer.made) == [QUERY, "Scan active-matches"]
    assert "tables create --update" in caplog.text


async def test_another_refusal_of_the_index_is_an_error(served: Served, proxy: Proxy) -> None:
    assert served.gateway.database is not None
    proxy.always = refuse(400, "AccessDeniedException")
    async with client_of(proxy) as client:
        store = Store(
            client,
            prefix=served.gateway.database.prefix,
            deadline=Deadline(10.0),
            token=lambda: "token",
            now=lambda: NOON,
        )
        with pytest.raises(RequestRefused):
            await ActiveMatches(store, NOON).live()
    assert [seen.operation for seen in proxy.seen] == ["Query"]


async def test_players_that_the_source_does_not_name_are_null(served: Served) -> None:
    await put_fixtures(served, planned_match())
    bare = Ball(1, 1, 0, 1, "p1", "A Batter", "", "", "", "")
    named = Ball(2, 1, 0, 2, "p1", "A Batter", "p2", "Another", "p3", "A Bowler")
    state = initial_state(planned_match())
    state = replace(state, live=replace(state.live, recent_balls=(bare, named)))
    await served.store().write_all(ACTIVE_MATCHES, puts=[state.item()])

    answer = await served.ask(
        '{ match(id: "m1") { liveScore { recentBalls { batter nonStrikerId nonStriker bowlerId bowler } } } }'
    )

    assert answer.data["match"]["liveScore"]["recentBalls"] == [
        {"batter": "A Batter", "nonStrikerId": None, "nonStriker": None, "bowlerId": None, "bowler": None},
        {"batter": "A Batter", "nonStrikerId": "p2", "nonStriker": "Another", "bowlerId": "p3", "bowler": "A Bowler"},
    ]
