"""The followers of a match, page by page, and their removal (FOL-2, FOL-6)."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from aiohttp import web

from datastore.database import Database
from datastore.dynamodb.client import Client
from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import Throttled
from datastore.keyspace.matches.match_follows import MATCH_FOLLOWS, match_follow
from datastore.matches.cricket import Match
from datastore.matches.match_follows import MatchFollows
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.identity import Role
from datastore.model.timestamps import to_seconds
from datastore.session.metering import Deadline
from datastore.session.pagination import Span
from datastore.session.store import Store
from tests.support.fault_proxy import Fault, Proxy, Seen, forward
from tests.support.match_follows import REMOVE, match, put_follows, stored_follows
from tests.support.served import NOON, Served, call_name

__all__ = ["match"]

PUT = AccessPattern("T-1", "", MATCH_FOLLOWS, ("PutItem",), Who.INTERNAL)

QUICKLY = Backoff(initial=0.001, maximum=0.002, attempts=6)


@pytest.fixture
def open_store(database: Database) -> Callable[[], Store]:
    return lambda: Store(
        database.client, prefix=database.prefix, deadline=Deadline(20), token=lambda: "", now=lambda: NOON
    )


# FOL-2: followers


async def test_followers_are_paged_both_ways(open_store: Callable[[], Store]) -> None:
    store = open_store()
    await put_follows(store, range(250))
    await put_follows(store, range(1000, 1050), expiresAt=to_seconds(NOON))
    follows = MatchFollows(store, NOON)
    everybody = [f"user-{number:04}" for number in range(250)]

    forward, sizes = await read_on(follows, backward=False)
    back, sizes_back = await read_on(follows, backward=True)

    assert forward == everybody
    assert back == everybody[::-1]
    assert sizes == sizes_back == [100, 100, 50]


FOLLOWERS = """query ($first: Int, $after: String, $last: Int, $before: String) {
  match(id: "m1") {
    follows(first: $first, after: $after, last: $last, before: $before) {
      edges { cursor node { userId } }
      pageInfo { hasNextPage hasPreviousPage startCursor endCursor }
    }
  }
}"""


@pytest.mark.usefixtures("match")
async def test_the_system_pages_through_250_followers_in_both_directions(served: Served) -> None:
    await put_follows(served.store(), range(250))
    await put_follows(served.store(), range(1000, 1050), expiresAt=to_seconds(NOON))
    first = await followers_page(served, first=100)
    second = await followers_page(served, first=100, after=first["pageInfo"]["endCursor"])
    third = await followers_page(served, first=100, after=second["pageInfo"]["endCursor"])
    back = await followers_page(served, last=100, before=third["pageInfo"]["startCursor"])

    pages = [[edge["node"]["userId"] for edge in page["edges"]] for page in (first, second, third)]

    assert [len(page) for page in pages] == [100, 100, 50]
    assert [user for page in pages for user in page] == [f"user-{number:04}" for number in range(250)]
    assert third["pageInfo"]["hasNextPage"] is False
    assert back["edges"] == second["edges"]
    assert back["pageInfo"]["hasPreviousPage"] is True


async def followers_page(served: Served, **paging: Any) -> Any:
    answer = await served.ask(FOLLOWERS, paging, user="poller", role=Role.SYSTEM)
    assert answer.errors is None
    assert answer.made[0] == "GetItem cricket-fixtures"
    assert set(answer.made[1:]) == {"Query cricket-match-follows"}
    return answer.data["match"]["follows"]


@pytest.mark.usefixtures("match")
@pytest.mark.parametrize(("user", "role"), [("ada", Role.USER), ("root", Role.ADMIN), (None, Role.USER)])
async def test_the_followers_of_a_match_are_for_the_system_only(served: Served, user: str | None, role: Role) -> None:
    answer = await served.ask('{ match(id: "m1") { matchId follows { nodes { userId } } } }', user=user, role=role)

    assert answer.codes == ["FORBIDDEN" if user else "UNAUTHENTICATED"]
    assert answer.data == {"match": {"matchId": "m1", "follows": None}}
    assert answer.made == ["GetItem cricket-fixtures"]


async def read_on(follows: MatchFollows, *, backward: bool) -> tuple[list[str], list[int]]:
    """Read all pages. Return the followers in the order of reading, and the sizes of the pages."""
    users: list[str] = []
    sizes: list[int] = []
    start: dict[str, Any] | None = None
    while True:
        page = await follows.of_match("m1", Span(100, backward, start))
        in_order = page.items[::-1] if backward else page.items
        users += [item["userId"] for item in in_order]
        sizes.append(len(in_order))
        if not (page.has_previous if backward else page.has_next):
            return users, sizes
        start = {name: in_order[-1][name] for name in MATCH_FOLLOWS.key_attributes()}


async def test_the_pipeline_reads_followers_in_pages(
    open_store: Callable[[], Store], caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store()
    for half in (range(15), range(15, 30)):
        await put_follows(store, half, padding="x" * 60_000)
    await put_follows(store, range(30, 40), expiresAt=to_seconds(NOON))
    await put_follows(store, range(40, 41), createdAt="yesterday")
    store.meter.calls.clear()

    pages = [page async for page in MatchFollows(store, NOON).pages_of_match("m1")]

    assert [follow.user_id for page in pages for follow in page] == [f"user-{number:04}" for number in range(30)]
    assert len(pages) == 2
    assert [call_name(call) for call in store.meter.calls] == ["Query cricket-match-follows"] * 2
    assert "cannot be read" in caplog.text


# FOL-6: remove all


async def test_all_follows_of_a_match_are_removed_in_batches(served: Served) -> None:
    await put_follows(served.store(), range(60))
    await put_follows(served.store(), range(2), match_id="m2")

    answer = await served.ask(REMOVE, user="poller", role=Role.SYSTEM)
    again = await served.ask(REMOVE, user="poller", role=Role.SYSTEM)

    assert answer.data == {"deleteMatchFollows": 60}
    assert answer.made == [*["BatchWriteItem cricket-match-follows"] * 3, "Query cricket-match-follows"]
    assert await stored_follows(served.store()) == []
    assert len(await stored_follows(served.store(), "m2")) == 2
    assert (again.data, again.made) == ({"deleteMatchFollows": 0}, ["Query cricket-match-follows"])


async def test_users_and_admins_remove_only_their_own_follows(served: Served) -> None:
    await put_follows(served.store(), range(3))

    for role in (Role.USER, Role.ADMIN):
        assert (await served.ask(REMOVE, user="ada", role=role)).codes == ["FORBIDDEN"]

    assert len(await stored_follows(served.store())) == 3


async def test_unprocessed_deletes_are_sent_again(
    monkeypatch: pytest.MonkeyPatch, proxy: Proxy, client: Client, database: Database, open_store: Callable[[], Store]
) -> None:
    monkeypatch.setattr("datastore.session.batch_write.UNPROCESSED", QUICKLY)
    await put_follows(open_store(), range(30))
    store = Store(client, prefix=database.prefix, deadline=Deadline(10), token=lambda: "", now=lambda: NOON)
    proxy.faults.extend([forward, unprocessed_deletes(20), unprocessed_deletes(3), unprocessed_deletes(1)])

    removed = await MatchFollows(store, NOON).remove_all("m1")

    assert removed == 30
    assert await stored_follows(open_store()) == []
    assert proxy.operations().count("BatchWriteItem") > 3


async def test_deletes_that_are_unprocessed_after_all_retries_are_reported(
    monkeypatch: pytest.MonkeyPatch, proxy: Proxy, client: Client, database: Database, open_store: Callable[[], Store]
) -> None:
    monkeypatch.setattr("datastore.session.batch_write.UNPROCESSED", QUICKLY)
    await put_follows(open_store(), range(30))
    store = Store(client, prefix=database.prefix, deadline=Deadline(10), token=lambda: "", now=lambda: NOON)
    proxy.faults.append(forward)
    proxy.always = unprocessed_deletes(1)

    with pytest.raises(Throttled, match="2 of 30"):
        await MatchFollows(store, NOON).remove_all("m1")

    # One delete of each batch is left, and a repeated request executes it.
    assert len(await stored_follows(open_store())) == 2
    assert await MatchFollows(open_store(), NOON).remove_all("m1") == 2


def unprocessed_deletes(number: int) -> Fault:
    """Return a proxy fault that leaves the last `number` requests of a batch unprocessed."""

    async def answer(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        ((table, requests),) = seen.body["RequestItems"].items()
        left = requests[-number:]
        answered: dict[str, Any] = {}
        if done := requests[:-number]:
            seen.body["RequestItems"] = {table: done}
            _, _, content = await proxy.ask(seen)
            answered = orjson.loads(content)
        return web.Response(body=orjson.dumps(answered | {"UnprocessedItems": {table: left}}))

    return answer


async def test_the_key_of_a_follow_is_its_match_and_user(open_store: Callable[[], Store]) -> None:
    store = open_store()
    start = Match("m1", "L", "IPL", home_team_id="10", away_team_id="20", start_time=NOON)

    follow = await MatchFollows(store, NOON).follow(start, "ada", "10")

    item = await store.get(PUT, match_follow("m1", "ada"))
    assert item is not None
    assert item.pop("version") > 0
    assert item == {
        "matchId": "m1",
        "userId": "ada",
        "teamId": "10",
        "teamIds": {"10", "20"},
        "createdAt": "2026-06-25T12:00:00.000Z",
        "expiresAt": to_seconds(follow.expires_at),
    }
