"""Updates at a version whose responses are lost, and puts after concurrent writes, through a proxy to the engine."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from datastore.database import Database
from datastore.errors import Conflict
from datastore.feeds.users import Users
from datastore.keyspace.photos.table import SPARKS
from datastore.matches.cricket import Match
from datastore.matches.fixtures import Fixtures
from datastore.matches.leagues import League, Leagues
from datastore.matches.live_activities import LiveActivities
from datastore.matches.match_follows import MatchFollows
from datastore.matches.teams import Team, Teams
from datastore.model.composite_keys import Key
from datastore.photos.livestreams import Livestreams
from datastore.photos.lookups import Lookups
from datastore.photos.persons import PersonRename
from datastore.session.metering import Deadline
from datastore.session.optimistic_locking import PUT_VERSIONS, VERSION_EPOCH, Outdated, PutVersions
from datastore.session.store import Store
from tests.support.fault_proxy import Fault, Proxy, Seen, client_of, forward, lose_answer, reset
from tests.support.photo_items import livestream, person
from tests.support.served import NOON

TOKENS = ("b2" * 32, "c3" * 32)

# Lost responses


@pytest.fixture
async def lossy(proxy: Proxy, database: Database) -> AsyncIterator[Callable[[], Store]]:
    """Return a function that opens a store whose calls go through the proxy."""
    async with client_of(proxy) as client:
        yield lambda: Store(
            client, prefix=database.prefix, deadline=Deadline(5), token=lambda: uuid4().hex, now=lambda: NOON
        )


def lose_after(act: Callable[[], Awaitable[object]]) -> Fault:
    """Return a fault: do the write, run `act`, and lose the write's response, so that it is retried."""

    async def fault(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        await proxy.ask(seen)
        await act()
        return await reset(proxy, seen)

    return fault


async def test_an_update_whose_response_was_lost_succeeds(lossy: Callable[[], Store], proxy: Proxy) -> None:
    users = Users(lossy(), NOON)
    await users.create("ada", name="Ada")
    proxy.faults.append(lose_answer)

    changed = await users.update("ada", {"name": "Countess", "bio": None}, 0)

    assert (changed.name, changed.version) == ("Countess", 1)
    assert proxy.operations()[-2:] == ["UpdateItem", "UpdateItem"]


async def test_a_conflict_after_a_lost_response_says_that_it_may_have_been_applied(
    lossy: Callable[[], Store], proxy: Proxy, database: Database
) -> None:
    users = Users(lossy(), NOON)
    await users.create("ada", name="Ada")
    others = Users(
        Store(database.client, prefix=database.prefix, deadline=Deadline(5), token=str, now=lambda: NOON), NOON
    )
    proxy.faults.append(lose_after(lambda: others.update("ada", {"name": "Eve"})))

    with pytest.raises(Outdated) as raised:
        await users.update("ada", {"name": "Countess"}, 0)

    assert raised.value.extensions["mayHaveBeenApplied"] is True
    assert raised.value.extensions["currentVersion"] == 2


async def test_the_write_of_another_client_at_that_version_is_no_success(
    lossy: Callable[[], Store], proxy: Proxy, database: Database
) -> None:
    """The first try was not applied, and another client's update took the version."""
    users = Users(lossy(), NOON)
    await users.create("ada", name="Ada")
    others = Users(
        Store(database.client, prefix=database.prefix, deadline=Deadline(5), token=str, now=lambda: NOON), NOON
    )

    async def lost(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        await others.update("ada", {"name": "Eve"}, 0)
        return await reset(proxy, seen)

    proxy.faults.append(lost)

    with pytest.raises(Outdated) as raised:
        await users.update("ada", {"name": "Countess"}, 0)

    assert raised.value.extensions["mayHaveBeenApplied"] is True


async def test_other_writes_whose_response_was_lost_succeed(lossy: Callable[[], Store], proxy: Proxy) -> None:
    store = lossy()
    leagues, follows, activities = Leagues(store, NOON), MatchFollows(store, NOON), LiveActivities(store, NOON)
    match = Match("m", "L", "IPL", "10", "20", NOON)

    async def losing(act: Awaitable[Any]) -> Any:
        proxy.faults.append(lose_answer)
        return await act

    put = await losing(leagues.put(League("1", "One", "A")))
    league = await losing(leagues.update("1", {"name": "Two"}, put.version))
    follow = await follows.follow(match, "ada", "10")
    changed = await losing(follows.change_team("m", "ada", "20", follow.version))
    session = await activities.register(match, "ada", "d", TOKENS[0])
    rotated = await losing(activities.update_token("m", "ada", "d", TOKENS[1], session.version))

    assert (league.name, league.version) == ("Two", put.version + 1)
    assert (changed.team_id, changed.version) == ("20", follow.version + 1)
    assert (rotated.update_token, rotated.version) == (TOKENS[1], session.version + 1)


async def test_a_livestream_and_a_person_whose_responses_were_lost(lossy: Callable[[], Store], proxy: Proxy) -> None:
    store = lossy()
    lookups = Lookups(store)
    await store.write_all(SPARKS, puts=[livestream("l"), person("p")])
    proxy.seen.clear()

    async def lose_writes(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        first = [other.operation for other in proxy.seen].count(seen.operation) == 1
        return await (lose_answer if seen.operation == "UpdateItem" and first else forward)(proxy, seen)

    proxy.always = lose_writes
    stream = await Livestreams(store, lookups, NOON).update("l", {"title": "New"}, 0)
    proxy.seen.clear()
    named = await PersonRename(store, lookups, NOON).update("p", {"thumbnail_url": "https://example.com/new.jpg"}, 0)

    assert (stream.title, stream.version) == ("New", 1)
    assert (named.thumbnail_url, named.version) == ("https://example.com/new.jpg", 1)


async def test_a_put_of_a_league_that_keeps_changing_reports_a_conflict(
    lossy: Callable[[], Store], proxy: Proxy
) -> None:
    leagues = Leagues(lossy(), NOON)

    async def ahead(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        seen.body["ConditionExpression"] = f"({seen.body['ConditionExpression']}) AND #version > :version"
        return await forward(proxy, seen)

    proxy.always = ahead

    with pytest.raises(Conflict, match="at the same time"):
        await leagues.put(League("1", "One", "A"))

    assert proxy.operations() == ["PutItem"] * 5


async def test_a_league_is_put_above_a_version_that_was_not_known(database: Database) -> None:
    store = Store(database.client, prefix=database.prefix, deadline=Deadline(5), token=str, now=lambda: NOON)
    leagues = Leagues(store, NOON)
    first = await leagues.put(League("1", "One", "A"))
    for _ in range(20):
        await leagues.update("1", {"name": "Other"})

    again = await leagues.put(League("1", "Two", "A"))

    assert again.version > first.version + 20
    assert await leagues.by_id("1") == replace(again)


# Writes between a read, or the choice of a version, and the write


def first_doing(operation: str, act: Callable[[], Awaitable[object]]) -> Fault:
    """Return a fault that runs `act` before it forwards the first request of an operation."""
    left = [act]

    async def fault(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        if seen.operation == operation and left:
            await left.pop()()
        return await forward(proxy, seen)

    return fault


async def test_a_put_of_teams_is_above_earlier_updates(
    lossy: Callable[[], Store], proxy: Proxy, database: Database
) -> None:
    store = Store(database.client, prefix=database.prefix, deadline=Deadline(5), token=str, now=lambda: NOON)
    one, others = Team("1", "One", "A"), Teams(store, NOON)
    await others.put_all([one])
    seen: list[int] = []

    async def update() -> None:
        seen.extend([(await others.update("1", {"name": name})).version for name in ("Two", "Three", "Four")])

    proxy.always = first_doing("BatchWriteItem", update)
    [put] = await Teams(lossy(), NOON).put_all([one])

    assert (len(seen), put.version > max(seen)) == (3, True)


async def test_a_person_who_moves_has_a_version_above_earlier_ones(
    lossy: Callable[[], Store], proxy: Proxy, database: Database
) -> None:
    """An update that changes no value has a version, too."""
    store = Store(database.client, prefix=database.prefix, deadline=Deadline(5), token=str, now=lambda: NOON)
    await store.write_all(SPARKS, puts=[person("p")])
    same = {"thumbnail_url": person("p")["thumbnailUrl"]}
    others = PersonRename(store, Lookups(store), NOON)
    through = lossy()
    proxy.always = first_doing("TransactWriteItems", lambda: others.update("p", same))

    moved = await PersonRename(through, Lookups(through), NOON).update("p", {"name": "Grace"})

    assert (moved.name, moved.version) == ("Grace", 2)


# Versions of puts

SECONDS = int((NOON - VERSION_EPOCH).total_seconds())
MOMENTS = st.integers(-5, 100_000).map(lambda seconds: NOON + timedelta(seconds=seconds))


PLACE, ELSEWHERE = ("table", Key("one")), ("table", Key("other"))


@given(st.lists(st.one_of(MOMENTS, st.integers(0, 2**30)), max_size=30))
def test_versions_of_puts_grow_whatever_the_clock_does(steps: list[datetime | int]) -> None:
    versions, last = PutVersions(), 0
    for step in steps:
        if isinstance(step, int):
            versions.observe(PLACE, step)
            last = max(last, step)
        else:
            assert versions.initial(step, PLACE) >= last
            version = versions.next(step, PLACE)
            assert version > last
            assert version >= int((step - VERSION_EPOCH).total_seconds())
            last = version


def test_a_version_of_a_put_is_above_the_one_that_it_replaces() -> None:
    assert PutVersions().next(VERSION_EPOCH, PLACE, above=500) > 500


def test_frequent_puts_of_an_item_do_not_move_other_versions_ahead_of_the_clock() -> None:
    """Otherwise another process, or this one after a restart, would put smaller versions."""
    versions = PutVersions(capacity=2)
    for _ in range(1000):
        versions.next(NOON, PLACE)

    assert versions.next(NOON, ELSEWHERE) == versions.initial(NOON, ELSEWHERE) == SECONDS
    # The entry with the oldest put is evicted.
    versions.observe(("table", Key("third")), 1)
    assert versions.initial(NOON, PLACE) == SECONDS


async def test_versions_of_repeated_follows_grow_by_one(database: Database) -> None:
    store = Store(database.client, prefix=database.prefix, deadline=Deadline(5), token=str, now=lambda: NOON)
    match = Match("again", "L", "IPL", "10", "20", NOON)

    follow_versions = [(await MatchFollows(store, NOON).follow(match, "ada", "10")).version for _ in range(20)]

    assert follow_versions == list(range(follow_versions[0], follow_versions[0] + 20))
    assert PUT_VERSIONS.initial(NOON, ELSEWHERE) == SECONDS


async def test_puts_of_other_processes_continue_from_the_stored_version(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds within one second, and after more changes than seconds."""
    store = Store(database.client, prefix=database.prefix, deadline=Deadline(5), token=str, now=lambda: NOON)
    team, far = Team("1", "One", "A"), Match("far", "L", "IPL", "10", "20", NOON + timedelta(days=30))
    seen: list[tuple[int, int]] = []
    for _ in range(3):
        for module in ("teams", "fixtures"):
            monkeypatch.setattr(f"datastore.matches.{module}.PUT_VERSIONS", PutVersions())
        stored = await Teams(store, NOON).by_id("1")
        [put] = await Teams(store, NOON).put_all([stored or team])
        [synced] = await Fixtures(store, NOON).sync([far])
        updated = [(await Teams(store, NOON).update("1", {"name": name})).version for name in ("Two", "Three")]
        assert synced.revision is not None
        seen += [(put.version, synced.revision)]
        assert updated == [put.version + 1, put.version + 2]

    assert seen[0][0] < seen[1][0] < seen[2][0]
    assert seen[0][1] < seen[1][1] < seen[2][1]
