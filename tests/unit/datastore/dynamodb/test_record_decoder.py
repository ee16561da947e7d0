"""Records decoded from DynamoDB's encoding: equal to those from plain items, including damaged items."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, cast

import pytest
from graphql import GraphQLObjectType
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from strawberry.utils.str_converters import to_snake_case

import schema as api
from datastore.dynamodb.codec import decode_item, encode_item
from datastore.dynamodb.record_decoder import RecordDecoder
from datastore.dynamodb.records import DAMAGE_ERRORS, raw_record_or_error, record_or_error
from datastore.earthquakes.events import EARLIEST_MS, LATEST_MS, Earthquake
from datastore.errors import Internal
from datastore.feeds.comments import Comment
from datastore.feeds.follows import Follow, edge_from
from datastore.feeds.home_feeds import FeedEntry, entry_from
from datastore.feeds.likes import Like
from datastore.feeds.notifications import Notification, NotificationKind
from datastore.feeds.posts import Post
from datastore.feeds.users import User
from datastore.feeds.visibility import Visibility
from datastore.items import attributes as stored
from datastore.matches.cricket import (
    InningsScore,
    Match,
    MatchPhase,
    Result,
    ResultKind,
    Scorecard,
    Target,
    Toss,
    Venue,
    phase_of,
)
from datastore.matches.fixture_items import decoder_for, summary_from
from datastore.matches.leagues import League
from datastore.matches.teams import Team
from datastore.model.composite_keys import Key, split
from datastore.model.timestamps import epoch_ms, from_iso, from_seconds, iso
from datastore.sightings.reporters import TrustTier
from datastore.sightings.sightings import Sighting
from tests.support.served import NOON

WORDS = st.sampled_from(["", "a", "Zoë 日本", '"\\\n', "\x00", "12"])
NUMBERS = st.integers(-3, 10**20) | st.floats(0.5, 100) | st.just(7)
MOMENTS = st.sampled_from(["2026-06-25T14:30:00.000Z", "2026-06-25T14:30:00.5+02:00", "2026-06-25", "", "soon"])
KEYS = st.sampled_from(
    ["USER#ada", "POST#a%23b", "TAG#", "META", "x", "COMMENT#c", "2026-06-25T14:30:00.000Z#07#POST#p"]
)
TWICE = '[{"number":1,"team_id":"a"},{"number":2,"team_id":"a"}]'
JSON = st.sampled_from(["[]", "null", "{", TWICE, '{"name":"V"}'])
VALUES = (
    WORDS
    | NUMBERS
    | MOMENTS
    | KEYS
    | JSON
    | st.sampled_from(["public", "followers", "live", "unknown", "Finished"])
    | st.booleans()
    | st.none()
    | st.lists(WORDS | NUMBERS, max_size=3)
    | st.sets(WORDS, min_size=1, max_size=2)
    | st.dictionaries(WORDS, NUMBERS, max_size=1)
    | st.binary(max_size=3)
)


def user_by_hand(item: Mapping[str, Any]) -> User:
    return User(
        split(item["PK"])[1],
        item.get("name", split(item["PK"])[1]),
        item.get("bio"),
        item.get("avatar_ref"),
        from_iso(item["created_at"]) if "created_at" in item else None,
        max(0, int(item.get("posts", 0))),
        max(0, int(item.get("followers", 0))),
        max(0, int(item.get("following", 0))),
        from_iso(item["merged_since"]) if "merged_since" in item else None,
        int(item.get("version") or 0),
    )


def post_by_hand(item: Mapping[str, Any]) -> Post:
    place = next((name for name in ("GSI1SK", "GSI2SK") if name in item), None)
    if place is None:
        moment = item["created_at"]
    else:
        moment, _, _ = split(item[place])
    return Post(
        split(item["PK"])[1],
        item["author_id"] if "author_id" in item else split(item["GSI1PK"])[1],
        from_iso(moment),
        Visibility(item["visibility"]),
        item.get("text", ""),
        item.get("media_ref"),
        tuple(item.get("tags", ())),
        max(0, int(item.get("likes", 0))) if "GSI1PK" in item else None,
        max(0, int(item.get("comments", 0))) if "GSI1PK" in item else None,
        tuple(item.get("mentions", ())) if "created_at" in item else None,
    )


def comment_by_hand(item: Mapping[str, Any]) -> Comment:
    return Comment(
        split(item["PK"])[1],
        split(item["SK"])[1],
        item["user_id"],
        from_iso(item["created_at"]),
        item.get("text", ""),
        tuple(item.get("mentions", ())),
        item.get("post_author"),
        Visibility(item["post_visibility"]) if "post_visibility" in item else None,
        max(0, int(item["text_len"])) if "text_len" in item else None,
    )


def entry_by_hand(item: Mapping[str, Any]) -> FeedEntry:
    moment, _, _, post_id = split(item["SK"])
    return FeedEntry(
        split(item["PK"])[1], post_id, item.get("author_id"), from_iso(moment), bool(item.get("followers_only"))
    )


def like_by_hand(item: Mapping[str, Any]) -> Like:
    return Like(
        split(item["PK"])[1],
        split(item["SK"])[1],
        from_iso(item["created_at"]),
        item.get("post_author"),
        Visibility(item["post_visibility"]) if "post_visibility" in item else None,
    )


def following_by_hand(item: Mapping[str, Any]) -> Follow:
    return Follow(split(item["PK"])[1], split(item["SK"])[1], from_iso(item["since"]))


def edge_by_hand(item: Mapping[str, Any]) -> Follow:
    _, follower_id, moment = split(item["SK"])
    return Follow(follower_id, split(item["PK"])[1], from_iso(moment))


def notification_by_hand(item: Mapping[str, Any]) -> Notification:
    moment, _ = split(item.get("GSI_NOTIFSK", item["SK"]))
    return Notification(
        split(item["PK"])[1],
        item["SK"],
        NotificationKind(item["kind"]) if "kind" in item else None,
        from_iso(moment),
        from_seconds(item["expiresAt"]) if "expiresAt" in item else None,
        item.get("actor_id"),
        int(item.get("actor_count", 0)),
        item.get("post_id"),
        item.get("comment_id"),
    )


def sighting_by_hand(item: Mapping[str, Any]) -> Sighting:
    return Sighting(
        key=Key(item["PK"], item["SK"]),
        sighting_id=item["sightingId"],
        area=item["area"] if "area" in item else split(item["PK"])[1],
        category=item["category"] if "category" in item else split(item["GSI1PK"])[1],
        description=item.get("description", ""),
        reporter_id=item["reporterId"],
        trust_tier=TrustTier(item.get("trustTier", "bronze")),
        reported_at=from_iso(item["reportedAt"] if "reportedAt" in item else split(item["SK"])[1]),
        expires_at=from_seconds(item["expiresAt"]),
        confirmation_count=item.get("confirmationCount", 0),
    )


EVENT_ATTRIBUTES = {name: attribute.name for name, attribute in Earthquake.__declaration__.attributes.items()}


def event_by_hand(item: Mapping[str, Any]) -> Earthquake:
    values: dict[str, Any] = {name: item.get(attribute) for name, attribute in EVENT_ATTRIBUTES.items()}
    texts = {name: type(values[name]) is str for name in ("event_id", "place", "source")}
    moments = {
        name: type(values[name]) is int and EARLIEST_MS <= values[name] <= LATEST_MS
        for name in ("occurred_at_ms", "ingested_at_ms")
    }
    numbers = {name: type(values[name]) in (int, float, Decimal) for name in ("magnitude", "latitude", "longitude")}
    depth = {"depth_km": values["depth_km"] is None or type(values["depth_km"]) in (int, float, Decimal)}
    if not all((texts | moments | numbers | depth).values()):
        raise ValueError
    names = "type", "status", "alert", "url"
    optional = {name: values[name] if type(values[name]) is str else None for name in names}
    optional["type"] = optional["type"] or "earthquake"
    return Earthquake(**values | optional)


def team_by_hand(item: Mapping[str, Any]) -> Team:
    return Team(
        item["teamId"],
        item.get("name", item["teamId"]),
        item.get("code", item["teamId"]),
        item.get("imageUrl"),
        item.get("countryId"),
        item.get("national") is True,
        from_iso(item["updatedAt"]) if item.get("updatedAt") else None,
        int(item.get("version") or 0),
    )


def league_by_hand(item: Mapping[str, Any]) -> League:
    return League(
        item["leagueId"],
        item.get("name", item["leagueId"]),
        item.get("code", item["leagueId"]),
        item.get("active") is True,
        item.get("seasonId"),
        item.get("imageUrl"),
        item.get("countryId"),
        item.get("type"),
        from_iso(item["updatedAt"]) if item.get("updatedAt") else None,
        int(item.get("version") or 0),
    )


BY_HAND: dict[RecordDecoder[Any], Any] = {
    User.decoder: user_by_hand,
    Post.decoder: post_by_hand,
    Comment.decoder: comment_by_hand,
    entry_from: entry_by_hand,
    Like.decoder: like_by_hand,
    Follow.decoder: following_by_hand,
    edge_from: edge_by_hand,
    Notification.decoder: notification_by_hand,
    Earthquake.decoder: event_by_hand,
    Sighting.decoder: sighting_by_hand,
    Team.decoder: team_by_hand,
    League.decoder: league_by_hand,
}
BORREGO = Earthquake("us1", epoch_ms(NOON), 4.5, "Here", 33.25, -116, None, "USGS", epoch_ms(NOON))
SOUND: dict[RecordDecoder[Any], dict[str, Any]] = {
    User.decoder: {"PK": "USER#ada", "name": "Ada", "created_at": "2026-06-25T14:30:00.000Z", "bio": "x", "posts": 3},
    Post.decoder: {
        "PK": "POST#p",
        "SK": "META",
        "author_id": "ada",
        "GSI1PK": "USER#ada",
        "GSI1SK": "2026-06-25T14:30:00.000Z#POST#p",
        "created_at": "2026-06-25T14:30:00.000Z",
        "visibility": "public",
        "text": "Hi",
        "tags": ["a", "b"],
        "likes": 2,
        "comments": -1,
    },
    Comment.decoder: {
        "PK": "POST#p",
        "SK": "COMMENT#c",
        "user_id": "bob",
        "created_at": "2026-06-25T14:30:00.000Z",
        "text": "Hi",
        "post_author": "ada",
        "post_visibility": "followers",
    },
    entry_from: {"PK": "FEED#ada", "SK": "2026-06-25T14:30:00.000Z#07#POST#p", "author_id": "bob"},
    Like.decoder: {
        "PK": "POST#p",
        "SK": "LIKE#ada%23",
        "created_at": "2026-06-25T14:30:00.000Z",
        "post_author": "bob",
        "post_visibility": "public",
    },
    Follow.decoder: {"PK": "USER#ada", "SK": "FOLLOWING#bob", "since": "2026-06-25T14:30:00.000Z"},
    edge_from: {"PK": "FOLLOWEE#bob", "SK": "FOLLOWER#ada#2026-06-25T14:30:00.000Z"},
    Notification.decoder: {
        "PK": "USER#ada#UNREAD",
        "SK": "2026-06-25T14:30:00.000Z#LIKE%23p",
        "kind": "like",
        "expiresAt": 1782397800,
        "actor_id": "bob",
        "actor_count": 2,
        "post_id": "p",
    },
    Earthquake.decoder: BORREGO.item(),
    Sighting.decoder: {
        "PK": "AREA#Harbor",
        "SK": "SIGHTING#2026-06-25T14:30:00.000Z#s",
        "sightingId": "s",
        "area": "Harbor",
        "category": "food",
        "description": "Tacos",
        "reporterId": "ada",
        "trustTier": "gold",
        "reportedAt": "2026-06-25T14:30:00.000Z",
        "expiresAt": 1782397800,
        "confirmationCount": 2,
    },
    Team.decoder: {"teamId": "t", "name": "India", "code": "IND", "national": True, "version": 4},
    League.decoder: {"leagueId": "l", "name": "Premier League", "code": "IPL", "active": True, "type": "league"},
}
MORE = ("bio", "avatar_ref", "followers", "merged_since", "version", "media_ref", "mentions", "GSI2SK", "imageUrl")


def decoded_or_damaged(decoded: Any) -> Any:
    return "damaged" if isinstance(decoded, Internal) else decoded


@pytest.mark.proof
@pytest.mark.parametrize("convert", BY_HAND, ids=lambda convert: convert.name)
@settings(max_examples=60)
@given(data=st.data())
def test_a_record_is_the_same_from_either_form_of_its_item(convert: RecordDecoder[Any], data: st.DataObject) -> None:
    """Some attributes are missing, and some have any type."""
    item = dict(SOUND[convert])
    for name in data.draw(st.lists(st.sampled_from([*item, *MORE]), max_size=3, unique=True)):
        item.pop(name, None)
        if data.draw(st.booleans()):
            item[name] = data.draw(VALUES)
    raw = encode_item(item)
    plain = decode_item(raw)
    try:
        expected = BY_HAND[convert](plain)
    except DAMAGE_ERRORS:
        expected = "damaged"

    assert decoded_or_damaged(raw_record_or_error(convert, raw)) == expected
    assert decoded_or_damaged(record_or_error(convert, plain)) == expected


def test_valid_items_are_decoded() -> None:
    kinds = {User, Post, Comment, FeedEntry, Like, Follow, Notification, Earthquake, Sighting, Team, League}

    assert {type(convert(item)) for convert, item in SOUND.items()} == kinds


MATCH = Match(
    "m",
    "l",
    "T20I",
    "a",
    "b",
    NOON,
    "Finished",
    MatchPhase.FINISHED,
    venue=Venue("Eden Gardens"),
    innings=(InningsScore(1, "a", 170), InningsScore(2, "b", 12)),
    scorecards=(Scorecard(1),),
    updated_at=NOON,
    revision=3,
)


MATCH_FIELDS = cast(GraphQLObjectType, api.build()._schema.type_map["Match"]).fields
WHOLE = replace(
    MATCH,
    season_id="2026",
    round="Final",
    format="T20",
    note="By a run",
    toss=Toss("a"),
    scheduled_overs=20,
    target=Target(171),
    result=Result(ResultKind.WIN, "A won"),
    follow_on=True,
    player_of_match="p",
    version=2,
)


def test_a_match_is_decoded_as_it_was_stored() -> None:
    raw = encode_item(MATCH.item())

    assert Match.decoder.raw(raw) == Match.decoder(decode_item(raw)) == MATCH
    assert summary_from.raw(raw).revision is None


def test_attributes_of_a_match_that_an_index_lacks_are_derived() -> None:
    item = MATCH.item()
    for name in ("phase", "followOn", "scorecards", "revision"):
        del item[name]
    bats_again = {**item, "scores": TWICE, "status": None}

    read = Match.decoder.raw(encode_item(item))
    again = Match.decoder.raw(encode_item(bats_again))

    assert (read.phase, read.follow_on, read.scorecards, read.revision) == (phase_of("Finished"), False, None, 0)
    assert (again.follow_on, again.status, again.phase) == (True, "NS", MatchPhase.UPCOMING)


@pytest.mark.parametrize(
    "damage", [{"scores": "{"}, {"venue": "3"}, {"phase": "never"}, {"startTime": "soon"}, {"matchId": None}]
)
def test_a_damaged_match_is_detected_in_either_form(damage: dict[str, Any]) -> None:
    item = {**MATCH.item(), **damage}
    if damage == {"matchId": None}:
        del item["matchId"]

    assert {
        decoded_or_damaged(raw_record_or_error(Match.decoder, encode_item(item))),
        decoded_or_damaged(record_or_error(Match.decoder, item)),
    } == {"damaged"}


def test_attributes_that_a_reader_does_not_use_keep_their_default() -> None:
    short = Match.decoder.without(frozenset({"venue", "scorecards", "updated_at"}))
    raw = encode_item({**MATCH.item(), "venue": "{damaged"})

    read = short.raw(raw)

    assert (read.venue, read.scorecards, read.updated_at, read.innings) == (None, None, None, MATCH.innings)
    assert short is Match.decoder.without(frozenset({"venue", "scorecards", "updated_at"}))


def test_the_cached_combinations_of_unread_attributes_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datastore.dynamodb.record_decoder.VARIANT_CACHE_SIZE", 3)
    decoder = Earthquake.decoder.replacing()
    for name in list(EVENT_ATTRIBUTES)[:7]:
        assert decoder.projected(frozenset({name})).attributes == (EVENT_ATTRIBUTES[name],)
    assert len(decoder._variants) == 1


def test_a_match_has_all_attributes_of_the_requested_fields() -> None:
    raw = encode_item(WHOLE.item() | {"liveUpdatedAt": iso(NOON), "archivedAt": iso(NOON), "operatorFields": {"note"}})
    fields = {to_snake_case(name): name for name in MATCH_FIELDS}
    values = {name: fields.get(name) for name in Match.__struct_fields__} | {"season_id": "season"}
    values["follow_on"] = "followOnEnforced"
    shown = {name: field for name, field in values.items() if field is not None}

    assert [name for name in Match.__struct_fields__ if name not in shown] == ["fence", "last_ball_id"]
    for name, field in shown.items():
        alone = getattr(decoder_for(frozenset({field})).raw(raw), name)
        with_others = getattr(decoder_for(frozenset(fields.values()) - {"displayState"}).raw(raw), name)
        assert alone == with_others == getattr(Match.decoder.raw(raw), name)
        assert alone not in ((), None, 0, False, ""), (
            "Choose a value that differs from the default, so that a missing attribute is noticed."
        )
    assert decoder_for(frozenset({"matchId", "displayState"})) is Match.decoder
    assert decoder_for(frozenset({"matchId", "homeTeam"})).raw(raw) == Match(
        *("m", "l", "T20I", "a", "b", NOON, "Finished", MatchPhase.FINISHED), round="Final", format="T20"
    )


@pytest.mark.parametrize("kind", [Team, League])
def test_reference_data_that_differ_only_in_their_version_are_equal(kind: Callable[..., Any]) -> None:
    one, later, other = kind("1", "One", "A", version=1), kind("1", "One", "A", version=2), kind("2", "One", "A")

    assert (one == later, one != later, one == other, one != other) == (True, False, False, True)
    assert {one, later, other} == {one, other}
    assert Team("1", "One", "A") != League("1", "One", "A")


def test_a_decoder_without_a_required_field_is_refused_when_it_is_declared() -> None:
    with pytest.raises(TypeError, match="`created_at`"):
        User.decoder.without(frozenset({"version", "created_at"}))
    with pytest.raises(TypeError, match="`second`"):
        RecordDecoder(lambda first, second: (first, second), first=stored.text("first"), _second=stored.text("second"))


def test_numbers_keep_their_type_and_value() -> None:
    convert = RecordDecoder(
        lambda value, twice: (value, twice), value=stored.number("n"), twice=stored.derived(lambda n: [n, n], "value")
    )
    texts_of_numbers = [
        "0",
        "-7",
        "12345678901234567890123",
        "1.5",
        "0.1",
        "1E+3",
        "1.00000000000000000000000000000000001",
    ]

    for written in texts_of_numbers:
        raw = {"n": {"N": written}}
        decoded = convert.raw(raw)
        assert decoded == convert(decode_item(raw)) == (decode_item(raw)["n"], [decode_item(raw)["n"]] * 2)
        assert type(decoded[0]) is type(decode_item(raw)["n"])


def test_a_missing_attribute_without_a_default_is_damage() -> None:
    convert = RecordDecoder(
        lambda name, at: (name, at),
        name=stored.text("name", missing=stored.text("title")),
        at=stored.text("at", from_iso),
    )

    assert convert.raw({"title": {"S": "x"}, "at": {"S": "2026-06-25T12:00:00.000Z"}}) == (
        "x",
        datetime(2026, 6, 25, 12, tzinfo=UTC),
    )
    with pytest.raises(LookupError):
        convert.raw({"at": {"S": "2026-06-25T12:00:00.000Z"}})
