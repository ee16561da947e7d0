"""Pages of a search: full, complete and ordered for each caller, even with an outdated index; and their costs."""

import random
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from datastore.change_streams.change import position_of
from datastore.database import Database
from datastore.dynamodb.codec import Item
from datastore.feeds import searches
from datastore.feeds.posts import Post
from datastore.feeds.search_entries import post_entry
from datastore.feeds.searches import MAX_FOLLOWED, MAX_ROUNDS, Searches, SearchPage
from datastore.feeds.visibility import Viewer, VisibilityPolicy
from datastore.keyspace.feeds.table import FEED
from datastore.model.base64url import decode
from datastore.search import Audience, Kind, Position, SearchHit, SearchIndex
from datastore.search.opensearch_index import OpenSearchIndex
from datastore.search.queries import Query, query_of
from datastore.search.sqlite_index import SqliteIndex
from datastore.session.store import Store
from tests.support.feed_changes import put_feed_records, store_of
from tests.support.feed_items import following_item, post_item
from tests.support.search import IDS, found_post_ids, join, sync_index, write_searched_post
from tests.support.search_server import search_server
from tests.support.served import NOON, Served

AUTHORS = ("ada", "bob", "cleo", "dan")
CALLERS = ("ada", "eve", "fay", None)
VISIBILITIES = ("public", "followers", "private")
MOST_PAGES = 100


@pytest.fixture
async def world(served: Served) -> Served:
    await join(served, ada="Ada Lovelace", bob="Bob Stone", eve="Adaline Noor")
    return served


@pytest.fixture(params=["sqlite", "opensearch"])
async def index(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SearchIndex]:
    if request.param == "sqlite":
        made: SearchIndex = SqliteIndex(tmp_path / "search" / "feed.sqlite")
        yield made
        await made.aclose()
        return
    async with search_server() as server:
        made = OpenSearchIndex(server.url, f"{tmp_path.name}-")
        yield made
        await made.aclose()


class CountingIndex:
    """An index that records the number of candidates of each search."""

    def __init__(self, index: SearchIndex) -> None:
        self._index = index
        self.limits: list[int] = []
        self.candidates: list[int] = []

    async def search(
        self, kind: Kind, query: Query, limit: int, after: Position | None = None, audience: Audience | None = None
    ) -> list[SearchHit]:
        hits = await self._index.search(kind, query, limit, after, audience)
        self.limits.append(limit)
        self.candidates.append(len(hits))
        return hits


class SearchedPosts:
    """Posts with one word each, and follows, as the table and the index have them.

    The index is behind: some posts were deleted, hidden or shown since, and some follows have begun or ended.
    """

    def __init__(self, rng: random.Random, word: str, count: int, *, stale: float) -> None:
        self.word = word
        self.follows = {(caller, author) for caller in CALLERS if caller for author in AUTHORS if rng.random() < 0.4}
        self.indexed: list[Item] = []
        self.posts: dict[str, Item | None] = {}
        for number in range(count):
            item = post_item(
                f"{word}-{number}",
                rng.choice(AUTHORS),
                NOON + timedelta(seconds=number),
                rng.choice(VISIBILITIES),
            ) | {"text": word}
            self.indexed.append(item)
            if rng.random() >= stale:
                self.posts[f"{word}-{number}"] = item
            elif rng.random() < 0.5:
                self.posts[f"{word}-{number}"] = None
            else:
                self.posts[f"{word}-{number}"] = item | {"visibility": "private"}

    async def store(self, store: Store, index: SearchIndex) -> None:
        items = [item for item in self.posts.values() if item is not None]
        follows = [following_item(follower, author) for follower, author in sorted(self.follows)]
        await store.write_all(FEED, puts=[*items, *follows])
        entries = [post_entry(_id(item), position_of("1"), item) for item in self.indexed]
        await index.write(Kind.POSTS, entries)
        if isinstance(index, OpenSearchIndex):
            await index.refresh()

    def visible(self, caller: str | None) -> list[str]:
        """Return the ids of all matching posts that the caller may see, the newest first."""
        return [
            _id(item)
            for item in reversed(self.posts.values())
            if item is not None
            and (
                item["visibility"] == "public"
                or item["author_id"] == caller
                or (item["visibility"] == "followers" and (caller, item["author_id"]) in self.follows)
            )
        ]


def _id(item: Item) -> str:
    return str(item["PK"]).removeprefix("POST#")


def searches_of(store: Store, index: Any, caller: str | None) -> Searches:
    return Searches(index, store, NOON, VisibilityPolicy(store, Viewer(caller)))


async def all_search_pages(
    database: Database, index: SearchIndex, word: str, caller: str | None, size: int
) -> list[SearchPage[Post]]:
    """Return all pages of a search, each read by a separate request."""
    found: list[SearchPage[Post]] = []
    after: Position | None = None
    while len(found) < MOST_PAGES:
        page = await searches_of(store_of(database), index, caller).posts(query_of(word, tags=True), size, after)
        found.append(page)
        if not page.has_next:
            return found
        assert page.end is not None
        after = page.end
    raise AssertionError("the pages do not end")


def result_ids(page: SearchPage[Post]) -> list[str]:
    return [position.id for position, _ in page.results]


@pytest.mark.proof
@pytest.mark.parametrize("stale", [0.0, 0.7])
@pytest.mark.parametrize("seed", range(4))
async def test_paging_to_the_end_gives_the_visible_matches_in_order(
    database: Database, index: SearchIndex, seed: int, stale: float
) -> None:
    rng = random.Random(seed)
    world = SearchedPosts(rng, f"word{seed}", rng.randrange(30, 60), stale=stale)
    await world.store(store_of(database), index)

    for caller in CALLERS:
        for size in (1, 2, rng.randrange(3, 9), 50):
            counting = CountingIndex(index)
            found = await all_search_pages(database, counting, world.word, caller, size)  # type: ignore[arg-type]
            assert [id for page in found for id in result_ids(page)] == world.visible(caller), (caller, size)
            assert all(limit == size + 1 for limit in counting.limits)
            for page in found[:-1]:
                assert len(page.results) == size or page.is_cut_off
            if not stale:  # posts that the index knows to be hidden are no candidates, so one round fills each page
                assert not any(page.is_cut_off for page in found)
                assert len(counting.limits) == len(found)


async def test_a_page_that_ends_after_the_maximal_rounds_continues_at_the_last_candidate(
    database: Database, index: SearchIndex
) -> None:
    gone = 3 * 2 * MAX_ROUNDS
    items = [
        post_item(f"p{number}", "bob", NOON + timedelta(seconds=number)) | {"text": "word"}
        for number in range(gone + 1)
    ]
    await put_feed_records(database, items[0])
    await index.write(Kind.POSTS, [post_entry(_id(item), position_of("1"), item) for item in items])
    if isinstance(index, OpenSearchIndex):
        await index.refresh()

    found = await all_search_pages(database, index, "word", "eve", 1)

    assert [result_ids(page) for page in found] == [[], [], [], ["p0"]]
    assert [page.is_cut_off for page in found] == [True, True, True, False]
    assert found[0].end is not None
    assert found[0].end.id == f"p{gone - 2 * MAX_ROUNDS + 1}"


async def test_the_follows_of_a_caller_are_read_once_per_request(database: Database, index: SearchIndex) -> None:
    await put_feed_records(database, following_item("eve", "ada"), following_item("eve", "b#b"))
    store = store_of(database)
    asked = searches_of(store, index, "eve")
    for word in ("one", "two"):
        await asked.posts(query_of(word, tags=True), 5, None)
    await searches_of(anonymous := store_of(database), index, None).posts(query_of("one", tags=True), 5, None)

    assert [call.operation for call in store.meter.calls] == ["Query"]
    assert anonymous.meter.calls == []


async def test_a_caller_with_more_follows_than_the_limit_finds_the_same_posts(
    database: Database, index: SearchIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other programs may write more follows than this one. Then only the items are checked, not the index."""
    monkeypatch.setattr(searches, "MAX_FOLLOWED", 1)
    world = SearchedPosts(random.Random(9), "word", 40, stale=0.0)
    world.follows |= {("eve", "ada"), ("eve", "bob")}
    await world.store(store := store_of(database), index)

    found = await all_search_pages(database, index, "word", "eve", 3)

    assert [id for page in found for id in result_ids(page)] == world.visible("eve")
    assert store.meter is not None
    assert MAX_FOLLOWED == 5000


# Through the API


async def test_pages_are_full_where_most_posts_are_for_followers_of_others(world: Served) -> None:
    """60 posts for the followers of users that the caller does not follow, then 12 public ones."""
    for number in range(12):
        await write_searched_post(world, f"shown{number}", "word", "bob")
    for number in range(60):
        await write_searched_post(world, f"hidden{number}", "word", visibility="FOLLOWERS")
    await sync_index(world)

    pages: list[list[str]] = []
    after: str | None = None
    while len(pages) < MOST_PAGES:
        answer = await world.ask(IDS, {"query": "word", "first": 5, "after": after}, user="eve")
        pages.append(found_post_ids(answer))
        info = answer.data["searchPosts"]["pageInfo"]
        if not info["hasNextPage"]:
            break
        after = info["endCursor"]

    assert list(map(len, pages)) == [5, 5, 2]
    assert [id for page in pages for id in page] == [f"shown{number}" for number in range(11, -1, -1)]


async def test_the_cursor_of_a_page_without_posts_continues_and_reveals_no_id(
    world: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searches, "MAX_ROUNDS", 1)
    await write_searched_post(world, "oldest", "word", "bob")
    for number in range(2):
        await write_searched_post(world, f"gone{number}", "word", "bob")
    await sync_index(world)
    for number in range(2):
        assert (
            await world.ask(f'mutation {{ deletePost(id: "gone{number}") {{ postId }} }}', user="bob")
        ).errors is None

    first = (await world.ask(IDS, {"query": "word", "first": 1}, user="eve")).data["searchPosts"]
    end = first["pageInfo"]["endCursor"]
    assert (first["nodes"], first["edges"], first["pageInfo"]["hasNextPage"]) == ([], [], True)
    assert b"gone" not in decode(end)
    second = await world.ask(IDS, {"query": "word", "first": 1, "after": end}, user="eve")
    assert found_post_ids(second) == ["oldest"]
    assert second.data["searchPosts"]["pageInfo"]["hasNextPage"] is False


# The cost of a search


@pytest.mark.parametrize("hidden", [0, 200])
async def test_a_search_is_charged_its_reads_and_its_estimate_is_near_them(world: Served, hidden: int) -> None:
    for number in range(60):
        await write_searched_post(
            world, f"shown{number}", "word", "bob", visibility="FOLLOWERS" if number % 2 else "PUBLIC"
        )
    for number in range(hidden):
        await write_searched_post(world, f"hidden{number}", "word", visibility="FOLLOWERS")
    assert (await world.ask('mutation { follow(userId: "bob") { userId } }', user="eve")).errors is None
    await sync_index(world)
    assert world.gateway.database is not None
    units: list[float] = []
    world.gateway.database.client.add_call_listener(lambda call: units.append(call.units))

    for user in ("eve", None):
        world.clock.forward(seconds=10)  # no post is shared with the search before
        world.reports.clear()
        units.clear()
        answer = await world.ask(IDS, {"query": "word", "first": 25}, user=user)
        assert len(found_post_ids(answer)) == 25
        (report,) = world.reports
        assert report.cost == sum(units) + searches.SEARCH_UNITS
        assert report.cost <= report.estimate <= 3 * report.cost


async def test_a_word_of_hidden_posts_costs_as_much_as_an_unused_one(world: Served) -> None:
    """Otherwise the charge would reveal that hidden posts exist."""
    for number in range(9):
        await write_searched_post(world, f"p{number}", "hidden", visibility="FOLLOWERS" if number % 2 else "PRIVATE")
    await sync_index(world)
    costs = []
    for user in (None, "eve"):
        for query in ("hidden", "nothing"):
            world.reports.clear()
            await world.ask(IDS, {"query": query, "first": 5}, user=user)
            (report,) = world.reports
            costs.append((user, report.cost, report.calls, report.withheld))

    assert costs[0] == costs[1] == (None, searches.SEARCH_UNITS, 0, 0)
    assert costs[2] == costs[3] == ("eve", searches.SEARCH_UNITS + 0.5, 1, 0)
