"""The search index: the same tests on both implementations, the embedded one and that in OpenSearch."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datastore.change_streams.change import position_of
from datastore.errors import BadUserInput
from datastore.feeds.search_entries import post_entry, user_entry, user_id_of
from datastore.model.timestamps import iso
from datastore.search import Audience, BuildReplaced, Kind, SearchEntry, SearchIndex
from datastore.search.opensearch_index import OpenSearchIndex
from datastore.search.queries import MAX_QUERY_LENGTH, Query, query_of
from datastore.search.sqlite_index import SqliteIndex
from tests.support.search_index import find_ids, gone, hits, put_entries, refresh, search_entry
from tests.support.search_server import search_server
from tests.support.served import NOON

EVERYWHERE = ["sqlite", "opensearch"]


@pytest.fixture(params=EVERYWHERE)
async def index(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SearchIndex]:
    if request.param == "sqlite":
        index: SearchIndex = SqliteIndex(tmp_path / "search" / "feed.sqlite")
        yield index
        await index.aclose()
        return
    async with search_server() as server:
        url = os.environ.get("OPENSEARCH_URL", server.url)
        index = OpenSearchIndex(url, f"{tmp_path.name}-")
        yield index
        await index.aclose()


async def test_all_words_must_match_and_the_last_one_is_a_prefix(index: SearchIndex) -> None:
    await put_entries(
        index,
        search_entry("a", "A walk along the harbour", 1),
        search_entry("b", "Harbour lights", 2),
        search_entry("c", "A walk home", 3),
    )

    assert await find_ids(index, "harbour") == ["b", "a"]
    assert await find_ids(index, "walk harb") == ["a"]
    assert await find_ids(index, "harb walk") == []
    assert await find_ids(index, "lamp") == []


async def test_phrases_precede_words_and_words_precede_prefixes_each_newest_first(index: SearchIndex) -> None:
    await put_entries(
        index,
        search_entry("beginning", "an old seaside town", 9),
        search_entry("scattered-new", "a sea as old as time", 8),
        search_entry("scattered", "the sea is old", 7),
        search_entry("phrase", "the old sea", 1),
        search_entry("phrase-new", "old sea, new boat", 2),
    )

    assert await find_ids(index, "old sea") == ["phrase-new", "phrase", "scattered-new", "scattered", "beginning"]


async def test_case_accents_and_widths_do_not_matter(index: SearchIndex) -> None:
    await put_entries(
        index, search_entry("a", "Café CRÈME in Łódź", 1), search_entry("b", "Straße ＦＵＬＬ ﬁnish Ångström", 2)
    )

    for text in ("cafe creme", "CAFÉ", "lodz", "Cafe\u0301"):
        assert await find_ids(index, text) == ["a"], text
    for text in ("strasse", "STRASSE", "full", "finish", "angstrom"):
        assert await find_ids(index, text) == ["b"], text


async def test_scripts_without_spaces_are_found_within_a_run(index: SearchIndex) -> None:
    await put_entries(
        index,
        search_entry("a", "東京都に行きました", 1),
        search_entry("b", "京都の秋", 2),
        search_entry("c", "สวัสดีชาวโลก", 3),
    )

    assert await find_ids(index, "京都") == ["b", "a"]
    assert await find_ids(index, "東京都") == ["a"]
    assert await find_ids(index, "都") == ["b", "a"]
    assert await find_ids(index, "ชาว") == ["c"]
    assert await find_ids(index, "東都") == []


async def test_a_word_behind_a_hash_is_a_tag(index: SearchIndex) -> None:
    await put_entries(
        index,
        search_entry("a", "About dynamodb, untagged", 1),
        search_entry("b", "Tagged #dynamodb", 2, tags=["dynamodb"]),
        search_entry("c", "Of another program", 3, tags=["DynamoDB", "street_food"]),
    )

    assert await find_ids(index, "#dynamodb") == ["c", "b"]
    assert await find_ids(index, "#DYNAMO") == ["c", "b"]
    assert await find_ids(index, "dynamodb") == ["b", "a"]
    assert await find_ids(index, "#street_food another") == ["c"]
    assert await find_ids(index, "#untagged") == []


async def test_pages_continue_after_the_previous_one_while_posts_change(index: SearchIndex) -> None:
    await put_entries(
        index,
        *[search_entry(f"p{number}", f"word {'rest' if number % 2 else 'restful'}", number) for number in range(20)],
    )

    first = await hits(index, "word rest", 5)
    await put_entries(index, search_entry("new", "word rest", 99), gone(first[-1].id, 2), gone("p0", 2))
    rest: list[str] = []
    after = first[-1].position
    while page := await hits(index, "word rest", 3, after):
        rest += [hit.id for hit in page]
        after = page[-1].position

    whole = [f"p{number}" for number in range(19, 0, -2)]
    assert [hit.id for hit in first] + rest == [*whole, *[f"p{number}" for number in range(18, 0, -2)]]


async def test_posts_of_one_moment_have_an_order(index: SearchIndex) -> None:
    await put_entries(index, *[search_entry(f"p{number}", "word") for number in range(30)])

    whole = await find_ids(index, "word")
    first = await hits(index, "word", 10)
    rest = await hits(index, "word", 50, first[-1].position)

    assert sorted(whole) == sorted(f"p{number}" for number in range(30))
    assert [hit.id for hit in first + rest] == whole


async def test_late_and_repeated_changes_never_replace_newer_ones(index: SearchIndex) -> None:
    await put_entries(index, search_entry("a", "second", version=20))
    await put_entries(index, search_entry("a", "first", version=9), search_entry("a", "other", version=20))

    assert await find_ids(index, "second") == ["a"]
    assert await find_ids(index, "first") == await find_ids(index, "other") == []

    await put_entries(index, search_entry("a", "third", version=100))
    assert await find_ids(index, "third") == ["a"]
    assert await find_ids(index, "second") == []


async def test_a_late_change_does_not_restore_a_deleted_post(index: SearchIndex) -> None:
    await put_entries(index, gone("early", 5), search_entry("a", "word", version=3))
    await put_entries(index, gone("a", 4))
    await put_entries(index, search_entry("a", "word", version=3), search_entry("early", "word", version=2))

    assert await find_ids(index, "word") == []
    assert (await index.status()).entries == {Kind.POSTS: 0, Kind.USERS: 0}


async def test_posts_that_are_known_to_be_hidden_are_left_out(index: SearchIndex) -> None:
    await put_entries(
        index,
        search_entry("public", "word", 4),
        search_entry("followers", "word", 3, visibility="followers"),
        search_entry("private", "word", 2, visibility="private"),
        search_entry("unknown", "word", 1, visibility=None),
    )

    assert await find_ids(index, "word") == ["public", "followers", "private", "unknown"]
    assert await find_ids(index, "word", Audience(None)) == ["public", "unknown"]
    assert await find_ids(index, "word", Audience("bob")) == ["public", "unknown"]
    assert await find_ids(index, "word", Audience("bob", frozenset({"ada", "b'\"#"}))) == [
        "public",
        "followers",
        "unknown",
    ]
    assert await find_ids(index, "word", Audience("bob", frozenset({"bob", "cleo"}))) == ["public", "unknown"]
    assert await find_ids(index, "word", Audience("bob", None)) == ["public", "followers", "unknown"]
    most = frozenset(f"user{number}" for number in range(4999)) | {"ada"}
    assert await find_ids(index, "word", Audience("bob", most)) == ["public", "followers", "unknown"]
    assert await find_ids(index, "word", Audience("ada")) == ["public", "followers", "private", "unknown"]


async def test_users_are_found_by_their_names_apart_from_posts(index: SearchIndex) -> None:
    await put_entries(index, search_entry("a", "Noor"))
    await index.write(Kind.USERS, [user_entry("a", position_of("1"), {"name": "Noor O’Hara"})])
    await refresh(index)

    query = query_of("noor hara", tags=False)
    assert [hit.id for hit in await index.search(Kind.USERS, query, 10)] == ["a"]
    assert (await index.status()).entries == {Kind.POSTS: 1, Kind.USERS: 1}


async def test_an_index_that_was_never_written_is_empty(index: SearchIndex) -> None:
    assert await find_ids(index, "word") == []
    status = await index.status()
    assert (status.entries, status.source, status.built_at) == ({Kind.POSTS: 0, Kind.USERS: 0}, None, None)


# Rebuilds


def scanned(id: str, text: str) -> SearchEntry:
    return post_entry(id, "", {"text": text, "created_at": iso(NOON)})


async def test_a_rebuilt_index_takes_the_place_of_the_present_one_at_once(index: SearchIndex) -> None:
    await put_entries(index, search_entry("lost", "word"), search_entry("kept", "word", 1))
    build = await index.begin_rebuild()
    await index.fill(build, Kind.POSTS, [scanned("kept", "word"), scanned("missed", "word")])
    assert await find_ids(index, "word") == ["kept", "lost"]

    await index.finish_rebuild(build, "stream", NOON)
    await refresh(index)

    assert sorted(await find_ids(index, "word")) == ["kept", "missed"]
    status = await index.status()
    assert (status.source, status.built_at, status.building) == ("stream", NOON, None)


async def test_changes_during_a_rebuild_win_over_scanned_items(index: SearchIndex) -> None:
    await put_entries(index, search_entry("changed", "before"), search_entry("deleted", "before"))
    build = await index.begin_rebuild()
    await put_entries(
        index, search_entry("changed", "after", version=7), gone("deleted", 8), search_entry("new", "after", version=9)
    )
    await index.fill(build, Kind.POSTS, [scanned(id, "before") for id in ("changed", "deleted", "late")])
    await put_entries(index, gone("late", 10))
    assert await find_ids(index, "after") == ["changed", "new"]
    await index.finish_rebuild(build, "stream", NOON)
    await put_entries(index, search_entry("changed", "before", version=6), search_entry("last", "after", version=11))

    assert sorted(await find_ids(index, "after")) == ["changed", "last", "new"]
    assert await find_ids(index, "before") == []


async def test_a_rebuild_ends_one_that_began_before(index: SearchIndex) -> None:
    await put_entries(index, search_entry("a", "word"))
    first = await index.begin_rebuild()
    second = await index.begin_rebuild()
    for refused in (index.fill(first, Kind.POSTS, [scanned("b", "word")]), index.finish_rebuild(first, "stream", NOON)):
        with pytest.raises(BuildReplaced):
            await refused
    assert (await index.status()).building == second

    await index.fill(second, Kind.POSTS, [scanned("c", "word")])
    await index.finish_rebuild(second, "stream", NOON)
    await refresh(index)
    assert await find_ids(index, "word") == ["c"]
    with pytest.raises(BuildReplaced):
        await index.finish_rebuild(second, "stream", NOON)


async def test_writes_at_the_same_time_leave_the_newest(index: SearchIndex) -> None:
    await asyncio.gather(*[index.write(Kind.POSTS, [search_entry("a", f"word{n}", version=n)]) for n in range(1, 30)])
    await refresh(index)

    assert await find_ids(index, "word29") == ["a"]
    assert await find_ids(index, "word") == ["a"]


# Hostile and unusual texts

OPERATORS = [
    '"',
    "'",
    "*",
    "^",
    "-",
    "+",
    ":",
    "(",
    ")",
    "{",
    "}",
    "NEAR",
    "AND",
    "OR",
    "NOT",
    "\\",
    "/",
    "~",
    "#",
    "\0",
]
TEXTS = st.lists(st.sampled_from([*OPERATORS, " ", "word", "words :", "tags"]) | st.text(max_size=5), max_size=12)


KNOWN = {"a": "word other", "b": "NEAR or not and words", "c": "colon 東京 crème"}


def matching(query: Query) -> set[str]:
    """Return the posts that a plain comparison of words finds."""
    *others, last = query.terms
    if any(term.tag for term in query.terms):
        return set()
    words = {id: search_entry(id, text).words.split() for id, text in KNOWN.items()}
    beginning = {id for id, held in words.items() if any(word.startswith(last.text) for word in held)}
    return {id for id in beginning if all(term.text in words[id] for term in others)}


@pytest.mark.proof
async def test_text_of_a_caller_is_never_an_operator(index: SearchIndex) -> None:
    await put_entries(index, *[search_entry(id, text) for id, text in KNOWN.items()])
    loop = asyncio.get_running_loop()

    @settings(max_examples=200, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(TEXTS.map("".join))
    def check(text: str) -> None:
        try:
            query = query_of(text, tags=True)
        except BadUserInput:  # it has no words, or too many
            return
        searching = asyncio.run_coroutine_threadsafe(index.search(Kind.POSTS, query, 10), loop)
        assert {hit.id for hit in searching.result(10)} == matching(query)

    await asyncio.to_thread(check)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at least one letter or digit"),
        (" \t# ＃ … 🙂 __", "at least one letter or digit"),
        ("x" * (MAX_QUERY_LENGTH + 1), "at most 200 characters, not 201"),
        (" ".join("abcdefghijk"), "at most 10 words, not 11"),
    ],
)
def test_a_query_has_bounds(text: str, message: str) -> None:
    with pytest.raises(BadUserInput, match=message) as refused:
        query_of(text, tags=True)
    assert refused.value.extensions == {"code": "BAD_USER_INPUT", "field": "query"}


def test_the_id_of_a_user_is_the_second_part_of_the_key() -> None:
    """Other programs may write a key with more parts, which must not stop the search pipeline."""
    found = [
        user_id_of({"PK": partition, "SK": "META"}) for partition in ("USER#ada", "USER#a%23", "USER#a#b", "USER#")
    ]

    assert found == ["ada", "a#", "a", None]


def test_the_stored_part_of_an_item_is_bounded() -> None:
    long = search_entry("a", "ǆ" * 100 + " 東" + "京都" * 300_000, tags=[f"tag{number}" for number in range(5_000)])
    assert len(long.words.encode()) <= 16 * 1024
    assert len(long.words.split()) <= 1000
    assert len(long.tags.split()) == 20
    assert max(map(len, long.words.split())) <= 64
