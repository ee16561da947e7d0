"""The items of matches that no mutation writes completely are those in `tests/support/match_items.json`, byte for byte.

Pollers and syncs write them. As for `tests/support/written_items.json`, a change needs a migration of stored items: run
the tests with `WRITTEN_ITEMS=record` and review the difference.
"""

import json
import os
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from datastore.keyspace.matches import TABLES
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.cricket import (
    Ball,
    BattingLine,
    BowlingLine,
    Extras,
    InningsScore,
    LineupPlayer,
    Match,
    MatchPhase,
    MatchSnapshot,
    Partnership,
    Result,
    ResultKind,
    Scorecard,
    Target,
    Toss,
    Venue,
    Wicket,
)
from datastore.matches.cricket_events import CricketEvent, CricketEventKind
from datastore.matches.display_states import DisplayStates
from datastore.matches.fixture_cache import FixtureCache
from datastore.matches.fixtures import Fixtures
from datastore.matches.live_state import LiveScore, LiveStatePart
from datastore.primitives.lru_cache import LruCache
from datastore.session.optimistic_locking import PUT_VERSIONS
from tests.support.contract import database_of
from tests.support.served import NOON, Served
from tests.support.store_engines import ROOT

RECORDED = ROOT / "tests" / "support" / "match_items.json"
# Not a whole second: TTL attributes are rounded.
NOW = NOON + timedelta(milliseconds=700)
PLANNED = Match("m1", "9", "IPL", "1", "2", NOON + timedelta(days=9))
BALL = Ball(7, 2, 15, 4, "p1", "Asha", "p2", "Bina", "p3", "Cleo", 4, Extras(byes=1), four=True)
OUT = replace(BALL, ball_id=8, batter_runs=0, four=False, wickets=(Wicket("p1", "Asha", "caught", ("Dora",)),))
INNINGS = (InningsScore(1, "1", 153, 6, 20, 0, 120), InningsScore(2, "2", 120, 3, 15, 4, 94, Extras(wides=2)))
BATTING = (BattingLine("p2", "Bina", 2, 34, 21, 4, 1, on_strike=True),)
BOWLING = (BowlingLine("p3", "Cleo", 3, 4, 0, 24, 2, bowling=True),)
PLAYED = replace(
    PLANNED,
    start_time=NOON,
    status="2nd Innings",
    phase=MatchPhase.LIVE,
    season_id="2026",
    round="Final",
    format="T20",
    note="A remark",
    venue=Venue("Eden Gardens", city="Kolkata"),
    toss=Toss("1", "batting"),
    scheduled_overs=20,
    balls_per_over=6,
    target=Target(154),
    innings=INNINGS,
    scorecards=(Scorecard(1), Scorecard(2, BATTING, BOWLING, partnership=Partnership(12, 9, ("p2", "p4")))),
    version=3,
    last_ball_id=8,
)
FINISHED = replace(
    PLAYED,
    status="Finished",
    phase=MatchPhase.FINISHED,
    result=Result(ResultKind.WIN, "Won by 33 runs", "1", by_runs=33),
    follow_on=True,
    player_of_match="Cleo",
)
LIVE = LiveScore(
    "2nd Innings", MatchPhase.LIVE, INNINGS, BATTING, BOWLING, Partnership(12, 9), Target(154), note="A remark"
)


async def match_items(served: Served) -> dict[str, Any]:
    """Return the items of the tables of matches as DynamoDB returns them, by table and key."""
    database = database_of(served)
    found: dict[str, Any] = {}
    for table in TABLES:
        request = {"TableName": database.prefix + table.name, "ConsistentRead": True, "ReturnConsumedCapacity": "NONE"}
        answer = await database.client.call("Scan", request)
        for item in answer["Items"]:
            found[f"{table.name} {item[table.partition]['S']}"] = {
                name: {kind: sorted(value) if kind == "SS" else value for kind, value in of.items()}
                for name, of in sorted(item.items())
            }
    return found


def check(name: str, items: dict[str, Any]) -> None:
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    if os.environ.get("WRITTEN_ITEMS") == "record":
        RECORDED.write_text(json.dumps({**recorded, name: items}, indent=1, sort_keys=True) + "\n")
    else:
        assert items == recorded[name]


@pytest.fixture(autouse=True)
def _versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PUT_VERSIONS, "_last", LruCache(100))


async def test_a_planned_fixture(served: Served) -> None:
    """A fixture that is put has all attributes but those that are None."""
    await Fixtures(served.store(), NOW).sync(
        [PLANNED, replace(FINISHED, match_id="m2", start_time=NOON - timedelta(9))]
    )

    check("planned", await match_items(served))


async def test_a_fixture_that_is_played_soon(served: Served) -> None:
    """Attributes that are None are removed. Fields that an operator set are kept."""
    fixtures = Fixtures(served.store(), NOW)
    await fixtures.sync([replace(PLAYED, version=0)])
    await fixtures.sync([replace(PLANNED, start_time=NOON, last_ball_id=3, fence=2)])

    check("soon", await match_items(served))


async def test_the_live_state_of_a_fixture(served: Served) -> None:
    """A poller writes the state and leaves the facts as they are."""
    fixtures = Fixtures(served.store(), NOW)
    await fixtures.sync([replace(PLANNED, start_time=NOON)])
    assert await fixtures.write_live(replace(FINISHED, fence=2, league_code="X"))
    await fixtures.archive("m1")
    assert await fixtures.write_live(replace(PLAYED, fence=2))

    check("live", await match_items(served))


async def test_the_state_of_a_match_without_a_poller(served: Served) -> None:
    """A sync writes the next version of the state, without the scores of a list that has none."""
    fixtures = Fixtures(served.store(), NOW)
    await fixtures.sync([PLAYED])
    await fixtures.sync([replace(FINISHED, scorecards=None, innings=())], polled=())

    check("state", await match_items(served))


async def test_an_active_match(served: Served) -> None:
    """A registration writes the whole state, and a tick those attributes that a tick changes."""
    matches = ActiveMatches(served.store(), NOW)
    first = await matches.register(replace(PLAYED, match_id="m1"), instance_id="i1")
    await matches.register(replace(PLANNED, match_id="m2"))
    event = CricketEvent("8:wicket", CricketEventKind.WICKET, "Asha is out", 2, "120/3", OUT, "p1", "Asha", value=3)
    tick = replace(
        first,
        league_code="X",
        instance_id="i2",
        live=replace(LIVE, recent_balls=(BALL, OUT)),
        version=first.version + 1,
        updated_at=NOW,
        last_tick_at=NOW,
        previous_ball_id=8,
        announced=("m1:toss",),
        events=(event,),
        changed=(LiveStatePart.SCORE, LiveStatePart.BATTING),
        cooldowns={"four": 1782388800.5},
        expires_at=NOON,
    )
    assert await matches.commit(tick)

    check("active", await match_items(served))


async def test_an_adopted_match(served: Served) -> None:
    """The state of another program is completed by the poller that takes it over."""
    await Fixtures(served.store(), NOW).sync([PLAYED])
    theirs = {"matchId": "m1", "status": "active", "previousScore": "5 runs", "note": "theirs", "previousBallId": "x"}
    await served.store().write_all(TABLES[1], puts=[theirs])
    matches = ActiveMatches(served.store(), NOW)
    active = await matches.latest("m1")
    assert active is not None
    assert await matches.claim(active, "i1") is not None

    check("adopted", await match_items(served))


async def test_cached_matches_and_display_states(served: Served) -> None:
    """The cached items of upcoming, live and finished matches expire at different times."""
    players = (LineupPlayer("p1", "Asha", "1", captain=True),)
    phases = [PLANNED, replace(PLAYED, match_id="m2"), replace(FINISHED, match_id="m3")]
    cache = FixtureCache(served.store(), NOW)
    await cache.put_all([MatchSnapshot(match) for match in phases])
    await cache.put(MatchSnapshot(replace(PLAYED, match_id="m4"), (BALL, OUT), players), version=3)
    states = DisplayStates(served.store(), NOW)
    for match in phases:
        await states.of_match(match, "2")

    items = await match_items(served)
    check("cached", items)
    assert len(items) == 7
    cached = await cache.get("m4")
    assert cached is not None
    assert (cached.version, cached.fetched_at, cached.snapshot.lineups) == (3, NOW, players)
