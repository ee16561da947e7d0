"""Tags and mentions in a text, ids that sort by time, and the index keys of posts."""

from datetime import UTC, datetime, timedelta
from uuid import RFC_4122, UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datastore.errors import BadUserInput
from datastore.feeds.hashtags import mentions, tag_name, tags
from datastore.keyspace.feeds import posts as keys
from datastore.model.ids import uuid7, uuid7_moment
from datastore.model.timestamps import from_iso, iso
from tests.support.served import NOON

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SCRIPTS = "abcXYZ019_éßдЖ東京हिन्दी한글"
words = st.text(SCRIPTS, min_size=1, max_size=12).filter(lambda word: tag_name(word) is not None)
user_ids = st.from_regex(r"[A-Za-z0-9_.-]{0,11}[A-Za-z0-9_-]", fullmatch=True)
moments = st.integers(0, 200_000_000_000_000_000).map(lambda micros: EPOCH + timedelta(microseconds=micros))
few = settings(max_examples=60, deadline=None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A #Cat, #two_cats; and #cat again. #CATS!", ("cat", "two_cats", "cats")),
        ("#Straße #東京 #हिन्दी #Éclair #e\u0301clair", ("straße", "東京", "हिन्दी", "éclair")),
        ("We are #1 of #2026, #_ and #3d_1, #٣", ("3d_1",)),
        ("https://a.example/#cats (http://b.example/x?#dogs) #birds: ftp://c.example#fish", ("birds",)),
        ("C# a#b # #! ##twice (#inside)", ("twice", "inside")),
        (f"#{'a' * 50} #{'b' * 51}", ("a" * 50,)),
        ("#\u0301 nothing but a mark", ()),
        ("", ()),
    ],
)
def test_tags_are_distinct_words_after_a_hash_in_lower_case(text: str, expected: tuple[str, ...]) -> None:
    assert tags(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hi @ada, @grace.hopper... and @ada: @linus_t-1!", ("ada", "grace.hopper", "linus_t-1")),
        ("Write to ada@example.org, or @ @... @@bob (@eve)", ("bob", "eve")),
        (f"@{'a' * 64} @{'b' * 65}", ("a" * 64,)),
        ("@auth0|abc @google:1 @idp/x @me@example.org @x#y @eve.|z", ()),
        ("@ada: yes. @bob:) (@eve/@kim) @joe# @sam|", ("ada", "bob", "eve", "kim", "joe", "sam")),
        ("https://a.example/@ada see @bob and http://b.example/ @eve://x", ("bob",)),
        ("@Ada is not @ada", ("Ada", "ada")),
        ("", ()),
    ],
)
def test_mentions_are_distinct_ids_after_an_at_sign_and_no_email_addresses(
    text: str, expected: tuple[str, ...]
) -> None:
    assert mentions(text) == expected


def test_too_many_tags_or_mentions_are_refused_with_their_limit() -> None:
    assert len(tags(" ".join(f"#t{number}" for number in range(10)))) == 10
    assert len(mentions(" ".join(f"@u{number}" for number in range(20)))) == 20

    with pytest.raises(BadUserInput, match="`text` may hold at most 10 tags, not 11"):
        tags(" ".join(f"#t{number}" for number in range(11)))
    with pytest.raises(BadUserInput, match="`text` may mention at most 20 users, not 21"):
        mentions(" ".join(f"@u{number}" for number in range(21)))


@few
@given(st.lists(words, max_size=10), st.sampled_from([" ", ", ", " … ", "!", "\n"]))
def test_every_tag_is_found(written: list[str], between: str) -> None:
    found = tags(between + between.join(f"#{word}" for word in written))

    assert found == tuple(dict.fromkeys(tag_name(word) for word in written))


@few
@given(st.text(max_size=200))
def test_a_found_tag_has_the_same_name_in_any_case(text: str) -> None:
    try:
        found = tags(text)
    except BadUserInput:
        return

    assert [tag_name(name) for name in found] == list(found)
    assert [tag_name(f"#{name}") for name in found] == list(found)


@few
@given(st.lists(user_ids, max_size=20), st.sampled_from([" ", ", ", "! ", "\n", "... "]))
def test_every_mention_is_found(written: list[str], between: str) -> None:
    assert mentions(between.join(f"@{user}" for user in written) + "...") == tuple(dict.fromkeys(written))


@few
@given(moments, moments)
def test_ids_sort_by_their_times_and_contain_them(one: datetime, other: datetime) -> None:
    ids = [uuid7(moment, str(uuid4())) for moment in (one, other)]

    assert [uuid7_moment(id) for id in ids] == [from_iso(iso(one)), from_iso(iso(other))]
    if iso(one) != iso(other):
        assert (ids[0] < ids[1]) is (one < other)
    assert {(UUID(id).version, UUID(id).variant) for id in ids} == {(7, RFC_4122)}


def test_ids_of_the_same_time_differ_in_their_random_part() -> None:
    assert uuid7(NOON, "x") == uuid7(NOON, "x")
    assert len({uuid7(NOON, str(uuid4())) for _ in range(1000)}) == 1000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "5f0c9a1e-7d0e-4b0c-9d3f-2a6b8c1d4e5f",
        uuid7(NOON, "x").upper(),
        uuid7(NOON, "x").replace("-", ""),
        "{" + uuid7(NOON, "x") + "}",
        "ffffffff-ffff-7fff-8fff-ffffffffffff",
        "0197a6c1-8000-7000-c000-000000000000",
    ],
)
def test_an_id_of_another_version_has_no_time(text: str) -> None:
    assert uuid7_moment(text) is None


@few
@given(moments, moments, st.text("abc#%-_. ", min_size=1, max_size=10))
def test_an_index_key_contains_its_post_and_sorts_by_time(one: datetime, other: datetime, post_id: str) -> None:
    place = keys.post_by_author("ada", one, post_id).sort

    assert keys.position_parts(place) == (iso(one), post_id)
    later = keys.post_by_author("ada", one + timedelta(milliseconds=1), "a").sort
    assert place < later
    assert (keys.post_by_author("ada", other, post_id).sort < place) is (iso(other) < iso(one))
