"""Key strings: user input stays inside its part, and keys that DynamoDB refuses are never sent."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from datastore.errors import BadUserInput
from datastore.keyspace import earthquakes, gateway, sightings
from datastore.keyspace.feeds import follows, home_feeds, leaderboards, likes, notifications, posts, users
from datastore.keyspace.matches import devices, live_activities, match_follows
from datastore.model.composite_keys import Key, check_key, escape_part, join, split
from datastore.model.identifiers import is_user_id
from tests.support.served import NOON

ANY_TEXT = st.text(st.characters(), min_size=1, max_size=30)
TRICKY = st.text("#%a2350ABCDEFabcdef\x00\x1f\x7f\n\t ~ü日😀", min_size=1, max_size=12)
PARTS = st.lists(ANY_TEXT | TRICKY, min_size=1, max_size=6)


@given(parts=PARTS)
def test_parts_are_decoded_as_they_were_encoded(parts: list[str]) -> None:
    assert split(join(*parts)) == parts


@given(parts=PARTS)
def test_no_part_makes_a_boundary_or_a_control_character(parts: list[str]) -> None:
    key = join(*parts)

    assert key.count("#") == len(parts) - 1
    assert not [character for character in key if character < " " or character == "\x7f"]


@given(one=PARTS, other=PARTS)
def test_different_parts_are_different_keys(one: list[str], other: list[str]) -> None:
    assume(one != other)

    assert join(*one) != join(*other)


@given(parts=st.lists(ANY_TEXT | TRICKY, min_size=2, max_size=5))
def test_a_prefix_of_parts_finds_only_keys_with_these_parts(parts: list[str]) -> None:
    prefix = join(*parts[:-1]) + "#"

    assert join(*parts).startswith(prefix)
    assert not join(*parts[:-2], parts[-2] + "x", parts[-1]).startswith(prefix)


def test_plain_ids_are_not_changed() -> None:
    assert join("AREA", "Old Town – Süd/1", "日本") == "AREA#Old Town – Süd/1#日本"


def test_separators_are_encoded() -> None:
    assert escape_part("a#b%c\x00\n\x7f") == "a%23b%25c%00%0A%7F"


@pytest.mark.parametrize("parts", [[""], ["AREA", ""], ["", "x"]])
def test_an_empty_part_is_refused(parts: list[str]) -> None:
    with pytest.raises(BadUserInput, match="must not be empty"):
        join(*parts)


@pytest.mark.parametrize("text", ["#" * 100, "x", "日" * 341, "😀" * 256])
def test_the_longest_valid_keys_are_accepted(text: str) -> None:
    key = Key("p" * 2048, text)

    assert check_key(key) is key


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (Key("p" * 2049, "s"), "too long"),
        (Key("日" * 683, "s"), "too long"),
        (Key("p", "s" * 1025), "too long"),
        (Key("p", "日" * 342), "too long"),
        (Key("p", escape_part("#" * 342)), "too long"),
        (Key("", "s"), "must not be empty"),
        (Key("p", ""), "must not be empty"),
        (Key("\ud800", "s"), "valid Unicode"),
        (Key("p", "a\udfffb"), "valid Unicode"),
    ],
)
def test_keys_that_dynamodb_refuses_are_refused_first(key: Key, message: str) -> None:
    with pytest.raises(BadUserInput, match=message):
        check_key(key)


@given(area=ANY_TEXT, moment=ANY_TEXT, sighting_id=TRICKY)
def test_the_key_of_a_sighting_is_split_into_its_parts(area: str, moment: str, sighting_id: str) -> None:
    assert sightings.sighting.parts(sightings.sighting(area, moment, sighting_id)) == (area, moment, sighting_id)


@given(ids=st.tuples(TRICKY, ANY_TEXT, TRICKY, ANY_TEXT))
def test_the_key_of_a_watch_is_split_into_its_parts(ids: tuple[str, str, str, str]) -> None:
    assert sightings.watch.parts(sightings.watch(*ids)) == ids


@given(one=TRICKY, other=TRICKY)
def test_an_id_never_names_another_kind_of_item(one: str, other: str) -> None:
    partitions = {
        sightings.sighting.partition_of(one),
        sightings.watch.partition_of(one),
        sightings.sighting_in_category.partition_of(one),
        earthquakes.event(one).partition,
        earthquakes.event_of_day.partition_of(one),
        earthquakes.log.partition_of(one),
        earthquakes.ingest_state(one).partition,
    }

    assert len(partitions) == 7
    assert (sightings.profile(one) == sightings.profile(other)) is (one == other)


@pytest.mark.parametrize("user", ["u" * 256, "\u20ac" * 85, "\U0001f40d" * 64, "#" * 85, "%" * 85], ids=ascii)
def test_every_key_made_of_the_longest_user_id_fits(user: str) -> None:
    moment, longest = "2026-06-25T12:00:00.000000Z", "\U0001f40d" * 100
    keys = [
        sightings.profile(user),
        sightings.watch(user, longest, longest, "w" * 40),
        users.user(user),
        posts.post_by_author(user, NOON, "p" * 64),
        home_feeds.entry_of(user, moment, "p" * 64),
        home_feeds.source(user, user),
        follows.edge(user, user, NOON),
        follows.edge_by_time(user, NOON, user),
        follows.following(user, user),
        likes.like("p" * 64, user),
        notifications.notification(user, NOON, "n" * 40),
        leaderboards.counters_of(leaderboards.AUTHORS, "2026-06", user),
        gateway.idempotency_record(user, "k" * 255),
        devices.device(user, "d" * 200),
        match_follows.match_follow(longest, user),
        live_activities.live_activity(longest, user, longest),
    ]

    assert is_user_id(user)
    assert [check_key(key) for key in keys] == keys
