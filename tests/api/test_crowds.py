"""Many clients that read the same items: few reads serve all of them, and no result is too old."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace as replaced

from datastore.database import Database
from datastore.dynamodb.calls import Call
from datastore.dynamodb.codec import decode_item
from datastore.keyspace.feeds.table import FEED
from datastore.keyspace.matches import fixtures as keys
from datastore.keyspace.matches.active_matches import ACTIVE_MATCHES
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.fixtures import Fixtures
from datastore.model.access_patterns import AccessPattern, Who
from datastore.session.metering import Deadline
from datastore.session.store import Store
from server.settings import Settings
from tests.support.active_matches import active_match_state
from tests.support.explain import ask_explained, explanation
from tests.support.feed_items import post_item, user_item
from tests.support.fixture_steps import ask_system, planned_match, put_fixtures
from tests.support.match_updates import register_at_version_1
from tests.support.served import NOON, Clock, Served

LEAGUE = 'mutation { putLeague(id: "L", input: {name: "League", code: "IPL"}) { leagueId } }'
DELETE = AccessPattern("T-1", "", keys.FIXTURES, ("DeleteItem",), Who.ANY)
VIEWERS, FOLLOWERS = 200, 30
# The read cache keeps no item that is read sooner after a write of this gateway.
SETTLED = {"seconds": 1}
MATCH = '{ match(id: "m1") { note homeTeam { name } } }'
UPDATES = """subscription { matchUpdates(matchId: "m1") {
  version match { note followedByViewer homeTeam { name } awayTeam { name } } } }"""
TEAMS = """mutation { syncTeams(input: [
  {teamId: "10", name: "Home", code: "HOM"}, {teamId: "20", name: "Away", code: "AWA"}]) { teamId } }"""


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, shared_reads=True, explain="user")


@pytest.fixture
def elsewhere(database: Database) -> Store:
    """The store of another process, which writes without this gateway's knowledge."""
    return Store(database.client, prefix=database.prefix, deadline=Deadline(60), token=lambda: "", now=lambda: NOON)


async def write_note(elsewhere: Store, text: str) -> None:
    await Fixtures(elsewhere, NOON).update("m1", {"note": text})


class Reads:
    """Counts the reads of each item, by table and key, since the last call of `taken`."""

    def __init__(self, served: Served) -> None:
        assert served.gateway.database is not None
        client = served.gateway.database.client
        self._counts: Counter[tuple[str, str]] = Counter()
        client.add_call_listener(self._note)

    def _note(self, call: Call) -> None:
        request = call.request
        if call.operation == "GetItem":
            self._count(request["TableName"], request["Key"])
        elif call.operation == "BatchGetItem":
            for table, entry in request["RequestItems"].items():
                for key in entry["Keys"]:
                    self._count(table, key)

    def _count(self, table: str, key: dict[str, Any]) -> None:
        self._counts[table.split("__", 1)[1], "/".join(map(str, decode_item(key).values()))] += 1

    def taken(self) -> Counter[tuple[str, str]]:
        counts, self._counts = self._counts, Counter()
        return counts


@pytest.fixture
async def crowd() -> AsyncIterator[aiohttp.ClientSession]:
    """A session without a limit of connections: one for each viewer."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        yield session


@pytest.mark.proof
async def test_polls_of_a_match_read_it_four_times_a_second_however_many_there_are(
    served: Served, clock: Clock, crowd: aiohttp.ClientSession, elsewhere: Store
) -> None:
    await put_fixtures(served, planned_match(note="after 0"))
    await ask_system(served, TEAMS)
    clock.forward(**SETTLED)
    reads = Reads(served)

    async def view() -> str:
        async with crowd.post(f"{served.url}/graphql", json={"query": MATCH}) as response:
            match = (await response.json())["data"]["match"]
        assert match["homeTeam"]["name"] == "Home"
        return str(match["note"])

    for step in range(8):
        notes = set(await asyncio.gather(*[view() for _ in range(VIEWERS)]))
        assert notes <= {f"after {step}", f"after {step - 1}"}  # at most a quarter of a second old
        await write_note(elsewhere, f"after {step + 1}")
        clock.forward(milliseconds=125)

    assert max(reads.taken().values()) <= 4


async def test_subscribers_see_the_state_of_an_event_from_one_read_for_all(
    served: Served, clock: Clock, elsewhere: Store
) -> None:
    await register_at_version_1(served, "m1")
    await ask_system(served, TEAMS)
    clock.forward(**SETTLED)
    # `followedByViewer` differs by subscriber, so an event is executed for each of them.
    listeners = [await served.listen(UPDATES, user=f"viewer{number}") for number in range(FOLLOWERS)]
    for listener in listeners:
        await listener.event()
    await served.settle(ACTIVE_MATCHES)
    reads = Reads(served)

    for step in range(3):
        assert (await served.ask(MATCH)).errors is None  # the cache keeps the state before the event
        reads.taken()
        await write_note(elsewhere, f"now {step}")
        events = [(await listener.event())["matchUpdates"]["match"] for listener in listeners]
        assert [event["note"] for event in events] == [f"now {step}"] * FOLLOWERS
        assert {(event["homeTeam"]["name"], event["awayTeam"]["name"]) for event in events} == {("Home", "Away")}
        counts = reads.taken()
        followed = {place: count for place, count in counts.items() if place[0] == "cricket-match-follows"}
        assert len(followed) == FOLLOWERS
        shared = [count for (table, _), count in counts.items() if table in ("cricket-fixtures", "cricket-teams")]
        assert len(shared) == 3
        assert max(shared) <= 4


async def test_a_change_in_a_followed_stream_invalidates_the_cached_item(
    served: Served, clock: Clock, elsewhere: Store
) -> None:
    await register_at_version_1(served, "m1")
    clock.forward(**SETTLED)
    listener = await served.listen(UPDATES, user="ada")
    await listener.event()
    await served.settle(ACTIVE_MATCHES)
    score = '{ match(id: "m1") { liveScore { note } } }'
    assert (await served.ask(score)).data["match"]["liveScore"]["note"] is None

    written = await advance_elsewhere(served, elsewhere)
    await listener.event()

    answer = await served.ask(score)
    assert answer.data["match"]["liveScore"]["note"] == written
    assert answer.made == ["GetItem active-matches"]  # the match itself stays in the cache


async def advance_elsewhere(served: Served, elsewhere: Store) -> str:
    """Write the next version as another process. Return its note."""
    before = await active_match_state(served)
    after = replaced(before, version=before.version + 1, live=replaced(before.live, note="elsewhere"))
    assert await ActiveMatches(elsewhere, NOON).commit(after)
    return "elsewhere"


HOT = {
    "match": 'match(id: "m1") { note liveScore { version } league { name } homeTeam { name } }',
    "team": 'team(id: "10") { name }',
    "league": 'league(id: "L") { name }',
    "post": 'post(id: "p1") { text author { name } }',
    "user": 'user(id: "bob") { name }',
}


@pytest.mark.parametrize("selection", HOT.values(), ids=HOT)
async def test_reads_of_popular_items_are_cached_for_all_callers_and_expire(
    served: Served, clock: Clock, selection: str
) -> None:
    await register_at_version_1(served, "m1")
    await ask_system(served, TEAMS)
    await ask_system(served, LEAGUE)
    await served.store().write_all(FEED, puts=[post_item("p1", "bob"), user_item("bob")])
    clock.forward(**SETTLED)

    answers = [await served.ask(f"{{ {selection} }}", user=user) for user in (None, "ada", "bob")]
    clock.forward(milliseconds=250)
    later = await served.ask(f"{{ {selection} }}")

    assert [answer.data for answer in answers] == [later.data] * 3
    assert "None" not in str(answers[0].data).replace("'note': None", "")
    assert [answer.made for answer in answers[1:]] == [[], []]
    assert later.made == answers[0].made != []


async def test_an_explanation_shows_reads_that_other_operations_issued(served: Served, clock: Clock) -> None:
    await put_fixtures(served, planned_match())
    await ask_system(served, TEAMS)
    clock.forward(**SETTLED)
    query = '{ a: match(id: "m1") { note } b: match(id: "m1") { note homeTeam { name } } team(id: "10") { name } }'

    first, second = [explanation(await ask_explained(served, query)) for _ in range(2)]

    assert [explained["units"]["read"] for explained in (first, second)] == [1.0, 0.0]
    assert second["calls"] == []
    assert [row.get("shared") for row in first["fields"]] == [None] * 4
    rows = {row["path"]: (row["patterns"], row["reads"], row["hits"], row["shared"]) for row in second["fields"]}
    assert rows == {
        "a": (["FIX-1"], 0, 1, 1),
        "b": (["FIX-1"], 0, 1, 1),
        "b.homeTeam": (["TM-1"], 0, 1, 1),
        "team": (["TM-1"], 0, 1, 1),
    }


async def test_a_mutation_does_not_use_cached_reads(served: Served, clock: Clock, elsewhere: Store) -> None:
    await put_fixtures(served, planned_match())
    clock.forward(**SETTLED)
    assert (await served.ask(MATCH)).errors is None
    await elsewhere.delete(DELETE, keys.fixture("m1"))

    kept = await served.ask('{ match(id: "m1") { matchId } }')
    answer = await served.ask('mutation { followMatch(matchId: "m1", input: {teamId: "10"}) { teamId } }', user="ada")

    assert kept.data == {"match": {"matchId": "m1"}}
    assert answer.codes == ["NOT_FOUND"]
