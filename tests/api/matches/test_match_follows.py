"""Follows of matches through the API, on the real engine (FOL-1 … FOL-6)."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
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
from datastore.matches.fixtures import Fixtures
from datastore.matches.match_follows import MatchFollows
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.identity import Role
from datastore.model.timestamps import to_seconds
from datastore.session.metering import Deadline
from datastore.session.pagination import Span
from datastore.session.store import Store
from tests.support.fault_proxy import Fault, Proxy, Seen, forward
from tests.support.served import NOON, Answer, Served, call_name

FOLLOW = 'mutation ($team: ID!) { followMatch(matchId: "m1", teamId: $team) { teamId createdAt expiresAt } }'
UNFOLLOW = 'mutation { unfollowMatch(matchId: "m1") { teamId } }'
UPDATE = 'mutation ($team: ID!) { updateMatchFollow(matchId: "m1", teamId: $team) { teamId createdAt } }'
FOLLOWED = '{ matchFollow(matchId: "m1") { id matchId userId teamId createdAt expiresAt } }'
REMOVE = 'mutation { removeMatchFollows(matchId: "m1") }'
PUT = AccessPattern("T-1", "", MATCH_FOLLOWS, ("PutItem",), Who.INTERNAL)
ALL = AccessPattern("T-2", "", MATCH_FOLLOWS, ("Query",), Who.INTERNAL, key="matchId = :partition", consistent=True)
QUICKLY = Backoff(initial=0.001, maximum=0.002, attempts=6)


@pytest.fixture
async def match(served: Served) -> Match:
    """India (10) against Australia (20), two hours from noon."""
    return await schedule(served, NOON + timedelta(hours=2))


async def schedule(served: Served, start: datetime) -> Match:
    match = Match("m1", "L", "IPL", home_team_id="10", away_team_id="20", start_time=start)
    await Fixtures(served.store(), NOON).sync([match])
    return match


async def follow(served: Served, user: str = "ada", team: str = "10") -> Answer:
    return await served.ask(FOLLOW, {"team": team}, user=user)


async def followed(served: Served, user: str = "ada") -> Any:
    answer = await served.ask(FOLLOWED, user=user)
    assert answer.errors is None
    return answer.data["matchFollow"]


async def stored(store: Store, match_id: str = "m1") -> list[dict[str, Any]]:
    return [item async for item in store.query_all(ALL, {"partition": match_id})]


async def fill(store: Store, numbers: range, match_id: str = "m1", **more: Any) -> None:
    """Followers that are put there as they are."""
    items = [
        {
            "matchId": match_id,
            "userId": f"user-{number:04}",
            "teamId": "10",
            "createdAt": "2026-06-25T11:00:00.000Z",
            "expiresAt": to_seconds(NOON) + 1,
            **more,
        }
        for number in numbers
    ]
    await store.write_all(MATCH_FOLLOWS, puts=items)


@pytest.fixture
def open_store(database: Database) -> Callable[[], Store]:
    return lambda: Store(database.client, prefix=database.prefix, deadline=Deadline(20), token=lambda: "")


# FOL-3: follow


@pytest.mark.usefixtures("match")
async def test_a_match_is_followed_until_48_hours_after_its_start(served: Served) -> None:
    answer = await follow(served)

    assert answer.errors is None
    assert answer.data["followMatch"] == {
        "teamId": "10",
        "createdAt": "2026-06-25T12:00:00+00:00",
        "expiresAt": "2026-06-27T14:00:00+00:00",
    }
    assert answer.made == ["GetItem cricket-fixtures", "UpdateItem cricket-match-follows"]


@pytest.mark.usefixtures("match")
async def test_following_again_changes_the_team_and_keeps_since_when(served: Served) -> None:
    await follow(served)
    served.clock.forward(hours=1)

    answer = await follow(served, team="20")

    assert answer.data["followMatch"]["teamId"] == "20"
    assert answer.data["followMatch"]["createdAt"] == "2026-06-25T12:00:00+00:00"
    assert (await followed(served))["teamId"] == "20"


async def test_an_unknown_match_cannot_be_followed(served: Served) -> None:
    answer = await follow(served)

    assert answer.codes == ["NOT_FOUND"]
    assert await followed(served) is None


@pytest.mark.usefixtures("match")
@pytest.mark.parametrize("team", ["30", ""])
async def test_only_a_team_that_plays_can_be_followed(served: Served, team: str) -> None:
    answer = await follow(served, team=team)

    assert answer.codes == ["BAD_USER_INPUT"]
    assert answer.errors is not None
    assert answer.errors[0]["extensions"]["field"] == "teamId"
    assert await followed(served) is None


async def test_a_match_of_long_ago_cannot_be_followed(served: Served) -> None:
    await schedule(served, NOON - timedelta(hours=48))

    answer = await follow(served)

    assert answer.codes == ["BAD_USER_INPUT"]
    assert await stored(served.store()) == []


@pytest.mark.usefixtures("match")
async def test_twenty_follows_at_once_are_one(served: Served) -> None:
    answers = await asyncio.gather(*[follow(served, team="10" if number % 2 else "20") for number in range(20)])

    assert [answer.errors for answer in answers] == [None] * 20
    (item,) = await stored(served.store())
    assert item["createdAt"] == "2026-06-25T12:00:00.000Z"
    assert (await followed(served))["teamId"] == item["teamId"]


@pytest.mark.usefixtures("match")
async def test_follows_and_unfollows_at_once_leave_a_whole_follow_or_none(served: Served) -> None:
    answers = await asyncio.gather(
        *[follow(served) if number % 2 else served.ask(UNFOLLOW, user="ada") for number in range(20)]
    )

    assert [answer.errors for answer in answers] == [None] * 20
    left = await stored(served.store())
    # Each unfollow that answered one took away what a follow had put there.
    taken = [answer for answer in answers if (answer.data or {}).get("unfollowMatch")]
    assert len(left) <= 1
    assert len(taken) + len(left) <= 10
    assert (await followed(served) is None) is (left == [])


# FOL-1: does the user follow


@pytest.mark.usefixtures("match")
async def test_a_follow_is_its_users_own(served: Served) -> None:
    await follow(served)

    own = await followed(served)
    assert own == {
        "id": own["id"],
        "matchId": "m1",
        "userId": "ada",
        "teamId": "10",
        "createdAt": "2026-06-25T12:00:00+00:00",
        "expiresAt": "2026-06-27T14:00:00+00:00",
    }
    assert await followed(served, "grace") is None
    by_id = f'{{ node(id: "{own["id"]}") {{ ... on MatchFollow {{ userId teamId }} }} }}'
    assert (await served.ask(by_id, user="ada")).data == {"node": {"userId": "ada", "teamId": "10"}}
    assert (await served.ask(by_id, user="grace")).codes == ["FORBIDDEN"]
    assert (await served.ask(by_id, user="poller", role=Role.SYSTEM)).data["node"]["userId"] == "ada"


async def test_follows_of_one_request_are_read_together(served: Served) -> None:
    many = " ".join(f'f{number}: matchFollow(matchId: "m{number}") {{ teamId }}' for number in range(30))

    answer = await served.ask(f"{{ {many} }}", user="ada")

    assert answer.made == ["BatchGetItem cricket-match-follows"]


@pytest.mark.usefixtures("match")
async def test_a_follow_is_gone_from_every_reading_to_the_second(served: Served) -> None:
    await follow(served)
    own = await followed(served)
    by_id = f'{{ node(id: "{own["id"]}") {{ id }} }}'

    served.clock.now = NOON + timedelta(hours=50, milliseconds=-1)
    assert await followed(served) == own
    served.clock.now = NOON + timedelta(hours=50)
    assert await followed(served) is None
    assert (await served.ask(by_id, user="ada")).data == {"node": None}
    assert (await served.ask(UPDATE, {"team": "20"}, user="ada")).codes == ["NOT_FOUND"]
    assert (await served.ask(UNFOLLOW, user="ada")).data == {"unfollowMatch": None}


@pytest.mark.parametrize(
    ("query", "signed_in"),
    [
        (FOLLOWED, True),
        (FOLLOW.replace("($team: ID!)", "").replace("$team", '"10"'), True),
        (UNFOLLOW, True),
        (UPDATE.replace("($team: ID!)", "").replace("$team", '"10"'), True),
        (REMOVE, False),
    ],
)
async def test_nobody_who_is_not_signed_in_has_follows(served: Served, query: str, signed_in: bool) -> None:
    assert (await served.ask(query)).codes == ["UNAUTHENTICATED"]
    as_user = await served.ask(query, user="ada")
    assert ("FORBIDDEN" in as_user.codes) is not signed_in


@pytest.mark.usefixtures("match")
async def test_matches_tell_whether_the_caller_follows_them(served: Served) -> None:
    others = [Match(f"m{number}", "L", "IPL", "10", "20", NOON) for number in range(2, 40)]
    await Fixtures(served.store(), NOON).sync(others)
    await follow(served)
    many = ", ".join(f'"m{number}"' for number in range(1, 40))
    query = f"{{ matches(ids: [{many}]) {{ matchId isFollowed }} }}"

    answer = await served.ask(query, user="ada")
    signed_out = await served.ask(query)

    assert [match["matchId"] for match in answer.data["matches"] if match["isFollowed"]] == ["m1"]
    assert len(answer.data["matches"]) == 39
    assert answer.made == ["BatchGetItem cricket-fixtures", "BatchGetItem cricket-match-follows"]
    # The matches are for anybody all the same.
    assert set(signed_out.codes) == {"UNAUTHENTICATED"}
    assert [match["isFollowed"] for match in signed_out.data["matches"]] == [None] * 39


@pytest.mark.usefixtures("match")
async def test_a_follow_leads_to_its_match(served: Served) -> None:
    await follow(served)

    answer = await served.ask('{ matchFollow(matchId: "m1") { match { matchId homeTeamId } } }', user="ada")
    gone = await served.ask('{ matchFollow(matchId: "m2") { match { matchId } } }', user="ada")

    assert answer.data["matchFollow"] == {"match": {"matchId": "m1", "homeTeamId": "10"}}
    assert answer.made == ["GetItem cricket-fixtures", "GetItem cricket-match-follows"]
    assert gone.data == {"matchFollow": None}


# FOL-4: unfollow


@pytest.mark.usefixtures("match")
async def test_unfollowing_answers_what_was_and_then_nothing(served: Served) -> None:
    await follow(served)
    await follow(served, user="grace", team="20")

    first = await served.ask(UNFOLLOW, user="ada")
    second = await served.ask(UNFOLLOW, user="ada")

    assert (first.data, first.made) == ({"unfollowMatch": {"teamId": "10"}}, ["DeleteItem cricket-match-follows"])
    assert (second.data, second.errors) == ({"unfollowMatch": None}, None)
    assert (await followed(served, "grace"))["teamId"] == "20"


@pytest.mark.usefixtures("match")
async def test_of_twenty_unfollows_at_once_one_finds_it(served: Served) -> None:
    await follow(served)

    answers = await asyncio.gather(*[served.ask(UNFOLLOW, user="ada") for _ in range(20)])

    assert [answer.errors for answer in answers] == [None] * 20
    assert [answer.data["unfollowMatch"] for answer in answers].count({"teamId": "10"}) == 1
    assert await stored(served.store()) == []


# FOL-5: change the team


@pytest.mark.usefixtures("match")
async def test_the_team_of_a_follow_is_changed_in_one_write(served: Served) -> None:
    await follow(served)
    served.clock.forward(minutes=5)

    answer = await served.ask(UPDATE, {"team": "20"}, user="ada")

    assert answer.data["updateMatchFollow"] == {"teamId": "20", "createdAt": "2026-06-25T12:00:00+00:00"}
    assert answer.made == ["UpdateItem cricket-match-follows"]
    assert (await followed(served))["teamId"] == "20"


@pytest.mark.usefixtures("match")
@pytest.mark.parametrize("bad", ["", " ", "x" * 101])
async def test_ids_have_between_1_and_100_characters(served: Served, bad: str) -> None:
    await follow(served)
    queries = {
        "query($id: ID!) { matchFollow(matchId: $id) { teamId } }": "matchId",
        'mutation($id: ID!) { followMatch(matchId: $id, teamId: "20") { teamId } }': "matchId",
        'mutation($id: ID!) { followMatch(matchId: "m1", teamId: $id) { teamId } }': "teamId",
        "mutation($id: ID!) { unfollowMatch(matchId: $id) { teamId } }": "matchId",
        'mutation($id: ID!) { updateMatchFollow(matchId: $id, teamId: "20") { teamId } }': "matchId",
        'mutation($id: ID!) { updateMatchFollow(matchId: "m1", teamId: $id) { teamId } }': "teamId",
        "mutation($id: ID!) { removeMatchFollows(matchId: $id) }": "matchId",
    }
    for query, field in queries.items():
        answer = await served.ask(query, {"id": bad}, user="ada", role=Role.SYSTEM)

        (error,) = answer.errors or []
        assert error["extensions"] == {"code": "BAD_USER_INPUT", "field": field}
        assert error["message"] == f"`{field}` must have between 1 and 100 characters."
        assert answer.calls == []
    assert (await followed(served))["teamId"] == "10"


@pytest.mark.usefixtures("match")
async def test_the_team_of_no_follow_cannot_be_changed(served: Served) -> None:
    answer = await served.ask(UPDATE, {"team": "20"}, user="ada")

    assert answer.codes == ["NOT_FOUND"]
    assert await stored(served.store()) == []


@pytest.mark.usefixtures("match")
async def test_a_follow_cannot_change_to_a_team_that_does_not_play(served: Served) -> None:
    await follow(served)

    answer = await served.ask(UPDATE, {"team": "30"}, user="ada")

    assert answer.codes == ["BAD_USER_INPUT"]
    assert (await followed(served))["teamId"] == "10"


async def test_a_follow_that_does_not_know_its_sides_may_change_to_any(served: Served) -> None:
    await fill(served.store(), range(1))

    answer = await served.ask(UPDATE, {"team": "20"}, user="user-0000")

    assert answer.data["updateMatchFollow"]["teamId"] == "20"


# FOL-2: followers


async def test_followers_are_paged_both_ways(open_store: Callable[[], Store]) -> None:
    store = open_store()
    await fill(store, range(250))
    await fill(store, range(1000, 1050), expiresAt=to_seconds(NOON))
    follows = MatchFollows(store, NOON)
    everybody = [f"user-{number:04}" for number in range(250)]

    forward, sizes = await read_on(follows, backward=False)
    back, sizes_back = await read_on(follows, backward=True)

    assert forward == everybody
    assert back == everybody[::-1]
    assert sizes == sizes_back == [100, 100, 50]


FOLLOWERS = """query ($first: Int, $after: String, $last: Int, $before: String) {
  match(id: "m1") {
    followers(first: $first, after: $after, last: $last, before: $before) {
      edges { cursor node { userId } }
      pageInfo { hasNextPage hasPreviousPage startCursor endCursor }
    }
  }
}"""


@pytest.mark.usefixtures("match")
async def test_the_system_pages_through_250_followers_and_back(served: Served) -> None:
    await fill(served.store(), range(250))
    await fill(served.store(), range(1000, 1050), expiresAt=to_seconds(NOON))
    first = await followers(served, first=100)
    second = await followers(served, first=100, after=first["pageInfo"]["endCursor"])
    third = await followers(served, first=100, after=second["pageInfo"]["endCursor"])
    back = await followers(served, last=100, before=third["pageInfo"]["startCursor"])

    pages = [[edge["node"]["userId"] for edge in page["edges"]] for page in (first, second, third)]

    assert [len(page) for page in pages] == [100, 100, 50]
    assert [user for page in pages for user in page] == [f"user-{number:04}" for number in range(250)]
    assert third["pageInfo"]["hasNextPage"] is False
    assert back["edges"] == second["edges"]
    assert back["pageInfo"]["hasPreviousPage"] is True


async def followers(served: Served, **paging: Any) -> Any:
    answer = await served.ask(FOLLOWERS, paging, user="poller", role=Role.SYSTEM)
    assert answer.errors is None
    assert answer.made[0] == "GetItem cricket-fixtures"
    assert set(answer.made[1:]) == {"Query cricket-match-follows"}
    return answer.data["match"]["followers"]


@pytest.mark.usefixtures("match")
@pytest.mark.parametrize(("user", "role"), [("ada", Role.USER), ("root", Role.ADMIN), (None, Role.USER)])
async def test_who_follows_a_match_is_not_for_others_than_the_system(
    served: Served, user: str | None, role: Role
) -> None:
    answer = await served.ask('{ match(id: "m1") { matchId followers { nodes { userId } } } }', user=user, role=role)

    assert answer.codes == ["FORBIDDEN" if user else "UNAUTHENTICATED"]
    assert answer.data == {"match": {"matchId": "m1", "followers": None}}
    assert answer.made == ["GetItem cricket-fixtures"]


async def read_on(follows: MatchFollows, *, backward: bool) -> tuple[list[str], list[int]]:
    """All followers page after page, in reading order, and how long the pages were."""
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


async def test_the_pipeline_reads_followers_page_by_page(
    open_store: Callable[[], Store], caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store()
    for half in (range(15), range(15, 30)):
        await fill(store, half, padding="x" * 60_000)
    await fill(store, range(30, 40), expiresAt=to_seconds(NOON))
    await fill(store, range(40, 41), createdAt="yesterday")
    store.meter.calls.clear()

    pages = [page async for page in MatchFollows(store, NOON).pages_of_match("m1")]

    assert [follow.user_id for page in pages for follow in page] == [f"user-{number:04}" for number in range(30)]
    assert len(pages) == 2
    assert [call_name(call) for call in store.meter.calls] == ["Query cricket-match-follows"] * 2
    assert "cannot be read" in caplog.text


# FOL-6: remove all


async def test_all_follows_of_a_match_are_removed_in_batches(served: Served) -> None:
    await fill(served.store(), range(60))
    await fill(served.store(), range(2), match_id="m2")

    answer = await served.ask(REMOVE, user="poller", role=Role.SYSTEM)
    again = await served.ask(REMOVE, user="poller", role=Role.SYSTEM)

    assert answer.data == {"removeMatchFollows": 60}
    assert answer.made == [*["BatchWriteItem cricket-match-follows"] * 3, "Query cricket-match-follows"]
    assert await stored(served.store()) == []
    assert len(await stored(served.store(), "m2")) == 2
    assert (again.data, again.made) == ({"removeMatchFollows": 0}, ["Query cricket-match-follows"])


async def test_users_and_admins_remove_only_their_own_follows(served: Served) -> None:
    await fill(served.store(), range(3))

    for role in (Role.USER, Role.ADMIN):
        assert (await served.ask(REMOVE, user="ada", role=role)).codes == ["FORBIDDEN"]

    assert len(await stored(served.store())) == 3


async def test_deletes_that_stay_unprocessed_are_sent_again(
    monkeypatch: pytest.MonkeyPatch, proxy: Proxy, client: Client, database: Database, open_store: Callable[[], Store]
) -> None:
    monkeypatch.setattr("datastore.session.batch_write.UNPROCESSED", QUICKLY)
    await fill(open_store(), range(30))
    store = Store(client, prefix=database.prefix, deadline=Deadline(10), token=lambda: "")
    proxy.faults.extend([forward, leaving(20), leaving(3), leaving(1)])

    removed = await MatchFollows(store, NOON).remove_all("m1")

    assert removed == 30
    assert await stored(open_store()) == []
    assert proxy.operations().count("BatchWriteItem") > 3


async def test_deletes_that_stay_unprocessed_for_good_are_told(
    monkeypatch: pytest.MonkeyPatch, proxy: Proxy, client: Client, database: Database, open_store: Callable[[], Store]
) -> None:
    monkeypatch.setattr("datastore.session.batch_write.UNPROCESSED", QUICKLY)
    await fill(open_store(), range(30))
    store = Store(client, prefix=database.prefix, deadline=Deadline(10), token=lambda: "")
    proxy.faults.append(forward)
    proxy.always = leaving(1)

    with pytest.raises(Throttled, match="2 of 30"):
        await MatchFollows(store, NOON).remove_all("m1")

    # One of each batch is left, and goes when it is asked for again.
    assert len(await stored(open_store())) == 2
    assert await MatchFollows(open_store(), NOON).remove_all("m1") == 2


def leaving(number: int) -> Fault:
    """The last requests of a batch are not done, and answered as unprocessed."""

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


async def test_a_key_of_a_follow_is_its_match_and_user(open_store: Callable[[], Store]) -> None:
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
