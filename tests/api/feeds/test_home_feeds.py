"""Home feeds (FEED-003): entries and merged posts are one list, and the cost of a page."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from datastore.database import Database
from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import QueryPage
from datastore.feeds.home_feeds import HomeFeeds, entry_from
from datastore.keyspace.feeds import home_feeds as keys
from datastore.keyspace.feeds.table import FEED
from datastore.model.identity import Role
from datastore.model.timestamp_forms import canonical
from datastore.model.timestamps import iso
from datastore.session.pagination import Page, Span
from datastore.session.store import Store
from tests.support.feed_changes import store_of
from tests.support.feed_items import comment_item, following_item, like_item, post_item, user_item
from tests.support.home_feeds import feed_entry, put_feed_items, source_item
from tests.support.served import NOON, Answer, Served

ENGINE_SETTINGS = settings(
    deadline=None,
    max_examples=40,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
POST = "post { text author { name } likeCount commentCount likedByViewer comments(first: 3) { nodes { %s } } }"
FEED_OF_ADA = '{ homeFeed(userId: "ada"%s) { %s } }'
WHOLE_PAGE = FEED_OF_ADA % ("", f"nodes {{ {POST % 'text author { name }'} }} pageInfo {{ hasNextPage }}")


def milliseconds_after_noon(milliseconds: int) -> datetime:
    return NOON + timedelta(milliseconds=milliseconds)


# --- The list ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PostOrEntry:
    """A post of an author, with its time in milliseconds, and whether it is private or an entry of the feed.

    Another program wrote a `whole` post, whose time is in whole seconds.
    """

    at: int
    private: bool
    fanned_out: bool
    whole: bool = False


@dataclass(frozen=True)
class Author:
    """An author with posts. They are merged from `since` on, or not at all if it is None."""

    since: int | None
    posts: Sequence[PostOrEntry]


FEEDS = count()
# There are few moments, so that many posts share one, and few seconds, so that times of both formats coincide.
MOMENTS = st.integers(0, 4) | st.sampled_from((500, 999, 1000, 1001, 1999, 2000))
POSTS = st.lists(
    st.builds(PostOrEntry, MOMENTS, st.sampled_from((False, False, True)), st.booleans(), st.booleans()),
    max_size=12,
)
AUTHORS = st.lists(st.builds(Author, st.none() | st.sampled_from((0, 2, 3, 500, 1000, 1001)), POSTS), max_size=4)
TOGETHER = [Author(0, [PostOrEntry(1, False, number % 3 == 0) for number in range(12)])]
PRIVATE = [Author(0, [*[PostOrEntry(2, True, False)] * 20, *[PostOrEntry(1, False, False)] * 2]), Author(None, [])]
MANY_SOURCES = [Author(0, [PostOrEntry(number, False, False)]) for number in range(12)]
WHOLE = [Author(2, [PostOrEntry(number, False, number % 2 == 0, number % 3 == 0) for number in range(12)])]
SECONDS = [
    Author(500, [PostOrEntry(number * 100, False, number % 4 == 0, number % 2 == 0) for number in range(24)]),
    Author(None, [PostOrEntry(number * 150, False, True, number % 2 == 0) for number in range(16)]),
]
LATE = [Author(3, [PostOrEntry(number, False, False) for number in range(5)]), Author(0, [PostOrEntry(1, False, True)])]


@pytest.mark.proof
@ENGINE_SETTINGS
@given(authors=AUTHORS, size=st.sampled_from((1, 2, 3, 25)))
@example(authors=[], size=1)
@example(authors=TOGETHER, size=1)
@example(authors=TOGETHER, size=3)
@example(authors=PRIVATE, size=1)
@example(authors=MANY_SOURCES, size=1)
@example(authors=MANY_SOURCES, size=25)
@example(authors=LATE, size=1)
@example(authors=WHOLE, size=1)
@example(authors=SECONDS, size=1)
@example(authors=SECONDS, size=3)
@example(authors=SECONDS, size=25)
async def test_pages_in_both_directions_are_the_list_of_entries_and_merged_posts(
    database: Database, authors: list[Author], size: int
) -> None:
    user = f"user-{next(FEEDS)}"
    model = await store_feed(database, user, authors)

    seen, start = 0, None
    while True:
        page = await page_of(database, user, Span(size, start=start))
        assert entry_positions(page) == model[seen : seen + size]
        assert (page.has_next, page.has_previous) == (seen + size < len(model), seen > 0)
        if not page.has_next:
            break
        seen, start = seen + size, cursor_place(user, page.items[-1]["GSI3SK"])

    left, start = len(model), None
    while True:
        page = await page_of(database, user, Span(size, True, start))
        assert entry_positions(page) == model[max(left - size, 0) : left]
        assert (page.has_next, page.has_previous) == (left < len(model), left > size)
        if not page.has_previous:
            break
        left, start = left - size, cursor_place(user, page.items[0]["GSI3SK"])


@ENGINE_SETTINGS
@given(authors=AUTHORS, size=st.sampled_from((1, 3, 25)), where=st.integers(0, 100))
async def test_a_page_continues_from_any_position_in_both_directions(
    database: Database, authors: list[Author], size: int, where: int
) -> None:
    user = f"user-{next(FEEDS)}"
    model = await store_feed(database, user, authors)
    if not model:
        return
    here = where % len(model)
    start = cursor_place(user, model[here])

    after, before = [await page_of(database, user, Span(size, backward, start)) for backward in (False, True)]

    assert [*entry_positions(before), model[here], *entry_positions(after)] == model[
        max(here - size, 0) : here + 1 + size
    ]


async def store_feed(database: Database, user: str, authors: list[Author]) -> list[str]:
    """Store the posts and entries. Return the positions of the feed in milliseconds, newest first.

    Entries of other programs have the form of their posts. The fan-out's, for every third, have milliseconds.
    """
    items: list[Item] = []
    feed: set[str] = set()
    for number, author in enumerate(authors):
        author_id = f"{user}-{number}"
        if author.since is not None:
            items.append(source_item(user, author_id, iso(milliseconds_after_noon(author.since))))
        for nth, written in enumerate(author.posts):
            visibility = "private" if written.private else "followers"
            post = post_item(f"{author_id}-{nth}", author_id, milliseconds_after_noon(written.at), visibility)
            if written.whole:
                second = f"{milliseconds_after_noon(written.at):%Y-%m-%dT%H:%M:%SZ}"
                post |= {
                    "created_at": second,
                    "GSI1SK": post["GSI1SK"].replace(iso(milliseconds_after_noon(written.at)), second),
                }
            items.append(post)
            if written.private:
                continue
            if written.fanned_out:
                items.append(feed_entry(post, user))
            moment = (
                milliseconds_after_noon(written.at).replace(microsecond=0)
                if written.whole
                else milliseconds_after_noon(written.at)
            )
            if written.fanned_out or (author.since is not None and milliseconds_after_noon(author.since) <= moment):
                feed.add(keys.entry_of(user, iso(moment), post["PK"].removeprefix("POST#")).sort)
    await store_of(database).write_all(FEED, puts=items)
    return sorted(feed, reverse=True)


async def page_of(database: Database, user: str, span: Span) -> Page:
    return await HomeFeeds(store_of(database)).of_user(user, span)


def cursor_place(user: str, position: str) -> Item:
    """Return a position in a feed as in a cursor. It need not be that of an existing entry."""
    return {
        "PK": keys.entry.partition_of(user),
        "SK": position,
        "GSI3PK": keys.entry.partition_of(user),
        "GSI3SK": position,
    }


def entry_positions(page: Page) -> list[str]:
    return [canonical(item["GSI3SK"]) for item in page.items]


async def test_cursors_lead_through_entries_and_merged_posts(served: Served) -> None:
    posts = [
        post_item(f"p{number}", ("big", "small")[number % 2], milliseconds_after_noon(number // 2))
        for number in range(9)
    ]
    await put_feed_items(served, *posts, source_item("ada", "big", iso(milliseconds_after_noon(1))))
    await put_feed_items(
        served, *[feed_entry(post) for post in posts if post["author_id"] == "small"], feed_entry(posts[4])
    )
    expected = sorted((feed_entry(post)["SK"] for post in posts if post != posts[0]), reverse=True)
    fields = "edges { cursor node { postId authorId createdAt } } pageInfo { hasNextPage endCursor } lastEvaluatedKey"

    found: list[dict[str, Any]] = []
    paging = ""
    while True:
        answer = await served.ask(FEED_OF_ADA % (f", first: 3{paging}", fields), user="ada")
        assert answer.errors is None
        feed = answer.data["homeFeed"]
        found += [edge["node"] for edge in feed["edges"]]
        if not feed["pageInfo"]["hasNextPage"]:
            break
        assert feed["lastEvaluatedKey"] == feed["pageInfo"]["endCursor"] == feed["edges"][-1]["cursor"]
        paging = f', after: "{feed["lastEvaluatedKey"]}"'

    records = [entry_from({"PK": keys.entry.partition_of("ada"), "SK": sort, "author_id": ""}) for sort in expected]
    assert [node["postId"] for node in found] == [record.post_id for record in records]
    assert {node["postId"]: node["authorId"] for node in found}["p4"] == "big"
    assert feed["lastEvaluatedKey"] is None


# --- Cost -------------------------------------------------------------------------------------------------------------


async def test_the_first_page_is_one_query_and_one_for_each_source(served: Served) -> None:
    entries = [feed_entry(post_item(f"p{number}", at=milliseconds_after_noon(number * 1000))) for number in range(40)]
    big = [post_item(f"b{number}", "big", milliseconds_after_noon(number * 1000)) for number in range(40)]
    await put_feed_items(served, *entries)
    first = FEED_OF_ADA % ("", "nodes { postId } pageInfo { hasNextPage endCursor }")

    alone = await served.ask(first, user="ada")
    await put_feed_items(served, *big, source_item("ada", "big", iso(NOON)), source_item("ada", "huge", iso(NOON)))
    merged = await served.ask(first, user="ada")
    cursor = merged.data["homeFeed"]["pageInfo"]["endCursor"]
    second = await served.ask(
        FEED_OF_ADA % (f', after: "{cursor}"', "nodes { postId } pageInfo { hasNextPage }"), user="ada"
    )

    assert alone.made == ["Query feed.GSI3"]
    assert merged.made == ["Query feed.GSI1", "Query feed.GSI1", "Query feed.GSI3"]
    assert second.made == ["Query feed.GSI1", "Query feed.GSI1", "Query feed.GSI3", "Query feed.GSI3"]
    assert [len(answer.data["homeFeed"]["nodes"]) for answer in (alone, merged, second)] == [25, 25, 25]
    assert {call.request["Limit"] for call in merged.calls} == {26, 34}


async def test_all_of_many_sources_are_read(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    authors = [f"big{number:02}" for number in range(40)]
    await put_feed_items(served, *[source_item("ada", author, iso(NOON)) for author in authors])
    await put_feed_items(served, *[post_item(f"p-{author}", author) for author in authors])
    running, most, query = 0, 0, Store.query

    async def counted(*given: Any, **more: Any) -> QueryPage:
        nonlocal running, most
        running += 1
        most = max(most, running)
        page = await query(*given, **more)
        running -= 1
        return page

    monkeypatch.setattr(Store, "query", counted)

    answer = await served.ask(FEED_OF_ADA % (", first: 50", "nodes { authorId }"), user="ada")

    assert sorted(node["authorId"] for node in answer.data["homeFeed"]["nodes"]) == authors
    assert answer.made == ["Query feed.GSI1"] * 40 + ["Query feed.GSI3"]
    assert most == 16


async def put_25_entries(served: Served, visibilities: Sequence[str]) -> None:
    """Store posts of 25 authors in ada's feed, each with four comments of others, some with her like."""
    items = []
    for number in range(25):
        author = f"author{number}"
        post = post_item(
            f"p{number}", author, milliseconds_after_noon(number), visibilities[number % len(visibilities)]
        )
        items += [post, feed_entry(post), user_item(author), following_item("ada", author)]
        items += [
            comment_item(post, f"c{one}", f"reader{(number + one) % 10}", milliseconds_after_noon(100 + one))
            for one in range(4)
        ]
        items += [like_item(post, "ada")] if number % 2 else []
    await put_feed_items(served, *items, *[user_item(f"reader{number}") for number in range(10)])


def keys_read(answer: Answer) -> list[int]:
    return [
        sum(len(entry["Keys"]) for entry in call.request["RequestItems"].values())
        for call in answer.calls
        if call.operation == "BatchGetItem"
    ]


@pytest.mark.parametrize("visibilities", [["public"], ["public", "followers"], ["followers"]], ids="-".join)
async def test_a_full_page_costs_two_batches_for_any_visibility(served: Served, visibilities: list[str]) -> None:
    await put_25_entries(served, visibilities)

    answer = await served.ask(WHOLE_PAGE, user="ada")

    assert answer.errors is None
    posts = [node["post"] for node in answer.data["homeFeed"]["nodes"]]
    assert [post["author"]["name"] for post in posts] == [f"Author{number}" for number in range(24, -1, -1)]
    assert [post["likedByViewer"] for post in posts] == [bool(number % 2) for number in range(24, -1, -1)]
    assert {len(post["comments"]["nodes"]) for post in posts} == {3}
    assert {node["author"]["name"] for node in posts[0]["comments"]["nodes"]} == {"Reader4", "Reader5", "Reader6"}
    assert answer.made == ["BatchGetItem feed"] * 2 + ["Query feed"] * 25 + ["Query feed.GSI3"]
    # Two batches: the posts, and her follows for posts for followers; the authors, the commenters, and her likes.
    asked = sum(visibilities[number % len(visibilities)] == "followers" for number in range(25))
    assert keys_read(answer) == [25 + asked, 25 + 10 + 25]


async def test_posts_for_followers_among_public_ones_cost_no_further_batch(served: Served) -> None:
    await put_25_entries(served, ["public", "followers"])

    answer = await served.ask(FEED_OF_ADA % ("", "nodes { post { author { name } likedByViewer } }"), user="ada")

    assert all(node["post"] for node in answer.data["homeFeed"]["nodes"])
    assert answer.made == ["BatchGetItem feed"] * 2 + ["Query feed.GSI3"]
    assert keys_read(answer) == [25 + 12, 25 + 25]


async def test_authors_of_entries_are_read_with_the_posts(served: Served) -> None:
    await put_25_entries(served, ["public", "followers"])

    answer = await served.ask(FEED_OF_ADA % ("", "nodes { author { name } post { text } }"), user="ada")

    assert {node["author"]["name"] for node in answer.data["homeFeed"]["nodes"]} == {f"Author{n}" for n in range(25)}
    assert answer.made == ["BatchGetItem feed", "Query feed.GSI3"]


# --- Visibility -------------------------------------------------------------------------------------------------------


async def test_a_deleted_or_invisible_post_is_null_in_its_place(served: Served) -> None:
    posts = [
        post_item("seen", "big", milliseconds_after_noon(4), "followers"),
        post_item("left", "small", milliseconds_after_noon(3), "followers"),
        post_item("hidden", "big", milliseconds_after_noon(2), "private"),
        post_item("gone", "big", milliseconds_after_noon(1)),
    ]
    await put_feed_items(served, *posts[:3], *[feed_entry(post) for post in posts], following_item("ada", "big"))

    own = await served.ask(FEED_OF_ADA % ("", "nodes { postId post { text } }"), user="ada")
    admins = await served.ask(FEED_OF_ADA % ("", "nodes { postId post { text } }"), user="root", role=Role.ADMIN)

    def texts(answer: Answer) -> dict[str, bool]:
        return {node["postId"]: node["post"] is not None for node in answer.data["homeFeed"]["nodes"]}

    assert own.errors is None
    assert texts(own) == {"seen": True, "left": False, "hidden": False, "gone": False}
    assert texts(admins) == {"seen": True, "left": True, "hidden": True, "gone": False}
    assert admins.made == ["BatchGetItem feed", "Query feed.GSI3"]


async def test_a_feed_is_for_its_user_and_operators(served: Served) -> None:
    await put_feed_items(served, feed_entry(post_item("p")))
    query = FEED_OF_ADA % ("", "nodes { postId }")

    anonymous = await served.ask(query)
    other = await served.ask(query, user="eve")
    others = [await served.ask(query, user="root", role=role) for role in (Role.ADMIN, Role.SYSTEM)]

    assert (anonymous.codes, other.codes) == (["UNAUTHENTICATED"], ["FORBIDDEN"])
    assert anonymous.calls == other.calls == []
    assert [answer.data for answer in others] == [{"homeFeed": {"nodes": [{"postId": "p"}]}}] * 2


async def test_a_cursor_is_valid_for_its_feed_only(served: Served) -> None:
    posts = [post_item(f"p{number}", at=milliseconds_after_noon(number)) for number in range(2)]
    await put_feed_items(served, *[feed_entry(post) for post in posts])
    feed = (await served.ask(FEED_OF_ADA % (", first: 1", "lastEvaluatedKey"), user="ada")).data["homeFeed"]

    answer = await served.ask(
        f'{{ homeFeed(userId: "eve", after: "{feed["lastEvaluatedKey"]}") {{ nodes {{ postId }} }} }}', user="eve"
    )

    assert answer.codes == ["BAD_CURSOR"]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [('userId: ""', "userId"), ('userId: "ada", first: 0', "first"), ('userId: "ada", last: 101', "last")],
)
async def test_bad_input_is_named_without_a_call(served: Served, arguments: str, names: str) -> None:
    answer = await served.ask(f"{{ homeFeed({arguments}) {{ nodes {{ postId }} }} }}", user="ada")

    assert answer.codes == ["BAD_USER_INPUT"]
    assert f"`{names}`" in (answer.errors or [])[0]["message"]
    assert answer.calls == []


async def test_a_damaged_item_is_an_error_in_its_own_place(served: Served) -> None:
    """A damaged entry is an error in its place. A damaged source is skipped."""
    good, bad = post_item("good", at=milliseconds_after_noon(1)), post_item("bad", at=milliseconds_after_noon(2))
    damaged = {name: value for name, value in feed_entry(bad).items() if name != "author_id"}
    damaged |= dict.fromkeys(("SK", "GSI3SK"), iso(milliseconds_after_noon(2)) + "#no-post")
    source = {name: value for name, value in source_item("ada", "big", iso(NOON)).items() if name != "since"}
    await put_feed_items(served, good, bad, feed_entry(good), damaged, source, post_item("theirs", "big"))

    answer = await served.ask(FEED_OF_ADA % ("", "nodes { postId }"), user="ada")

    assert answer.data["homeFeed"]["nodes"] == [None, {"postId": "good"}]
    assert answer.codes == ["INTERNAL"]


async def test_an_id_with_separators_stays_within_its_feed(served: Served) -> None:
    await put_feed_items(served, feed_entry(post_item("p"), "eve#x"))

    own = await served.ask('{ homeFeed(userId: "eve#x") { nodes { postId } } }', user="eve#x")
    other = await served.ask('{ homeFeed(userId: "eve") { nodes { postId } } }', user="eve")

    assert own.data == {"homeFeed": {"nodes": [{"postId": "p"}]}}
    assert other.data == {"homeFeed": {"nodes": []}}
    assert entry_from(feed_entry(post_item("p"), "eve#x")).user_id == "eve#x"
