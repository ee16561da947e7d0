"""A declaration of a stored item gives its decoder, its encoder, its keys and the rules of its input."""

import math
import zlib
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from datastore.dynamodb.codec import decode_item, encode_item, item_bytes
from datastore.dynamodb.records import DAMAGE_ERRORS
from datastore.errors import BadUserInput
from datastore.items import attributes as stored
from datastore.items.attributes import FROM_KEY
from datastore.items.forms import Line, Prose
from datastore.items.keys import KeyParts, item_key
from datastore.items.sizes import typical_bytes
from datastore.items.stored_item import StoredItem
from datastore.keyspace import TABLES
from datastore.model.access_patterns import Index, Table
from datastore.model.composite_keys import Key
from datastore.stored_items import item_classes

NOON = datetime(2026, 6, 25, 12, tzinfo=UTC)
NOTES = Table("notes", "PK", "SK", indexes=(Index("ByKind", "GSIPK", "GSISK"),), ttl="expiresAt")
PLAIN = Table("plain", "id")


class Mood(StrEnum):
    """A mood."""

    CALM = "calm"
    WILD = "wild"


@item_key(NOTES)
def note_key(user_id: str, created_at: datetime, note_id: str) -> KeyParts:
    return ("USER", user_id), ("NOTE", created_at, note_id)


@item_key(NOTES, index="ByKind")
def note_by_mood(mood: Mood, note_id: str) -> KeyParts:
    return ("MOOD", mood), (note_id,)


@item_key(NOTES)
def drawer_key(user_id: str) -> KeyParts:
    return ("USER", user_id), ("DRAWER",)


@item_key(PLAIN)
def plain_key(plain_id: str) -> KeyParts:
    return (plain_id,), ()


class Note(StoredItem, key=note_key, indexes=(note_by_mood,)):
    """A note."""

    kind = stored.constant("entity", "NOTE")
    user_id: str = stored.part()
    created_at: datetime = stored.part(decode=datetime.fromisoformat)
    note_id: str = stored.part("noteId")
    text: str = stored.text("text", missing="", form=Line(20))
    mood: Mood = stored.choice("mood", Mood, missing=Mood.CALM)
    expires_at: datetime | None = stored.seconds("expiresAt", default=None)
    title: str | None = stored.text("title", default=None, form=Line(10), removable=True)
    tags: tuple[str, ...] = stored.texts("tags", default=(), omit=lambda tags: not tags)
    stars: int = stored.count("stars", default=0)
    pinned: bool = stored.flag("pinned", default=False)
    place: dict[str, int] | None = stored.json("place", dict[str, int], default=None, if_none=None)
    edited_at: datetime | None = stored.moment("editedAt", default=None)
    secret: str = stored.text("secret", default="", secret=True, encode=None)
    version: int = stored.version(default=0)
    is_open: bool = False


class Drawer(StoredItem, key=drawer_key):
    """An item with its stored key, and a value that follows from two others."""

    key: Key = stored.key()
    width: int = stored.number("width")
    height: int = stored.number("height")
    area: int = stored.derived(lambda width, height: width * height, "width", "height")
    user_id: str = stored.text("userId", missing=FROM_KEY)


class Size(msgspec.Struct, frozen=True):
    """A record within a record."""

    width: int
    height: int | None


class Shelf(StoredItem, key=plain_key):
    """An item with a record within it, and with values that depend on others."""

    label = stored.computed("label", lambda shelf: shelf.note)
    _width = stored.nested(stored.number("width"), "size.width")
    _height = stored.nested(stored.number("height", missing=None), "size.height")
    plain_id: str = stored.part()
    is_wide: bool = stored.flag(
        "isWide", lambda wide, size: size.width > 9 if wide is None else wide, given=("size",), missing=None
    )
    size: Size = stored.derived(Size, "_width", "_height")
    moods: tuple[Mood, ...] = stored.choices("moods", Mood, default=())
    rows: tuple[int, ...] = stored.json("rows", tuple[int, ...], default=())
    boxes: tuple[int, ...] | None = stored.json("boxes", tuple[int, ...], default=None, if_none="[]")
    photo: tuple[str, ...] = stored.compressed("photo", tuple[str, ...], default=())
    note: str | None = None


class Plain(StoredItem, key=plain_key):
    """An item of a table without a sort key."""

    plain_id: str = stored.part()


IDS = st.text("aB#%é/ ", min_size=1, max_size=8)
MOMENTS = st.integers(0, 2_000_000_000).map(lambda ms: NOON + timedelta(milliseconds=ms))
NOTES_OF_ANY_KIND = st.builds(
    Note,
    user_id=IDS,
    created_at=MOMENTS,
    note_id=IDS,
    text=st.text(max_size=5),
    mood=st.sampled_from(Mood),
    expires_at=st.none() | MOMENTS.map(lambda at: at.replace(microsecond=0)),
    title=st.none() | st.text(max_size=5),
    tags=st.lists(st.text(max_size=3), max_size=3).map(tuple),
    stars=st.integers(0, 5),
    pinned=st.booleans(),
    place=st.none() | st.dictionaries(st.sampled_from("xy"), st.integers(-5, 5)),
    edited_at=st.none() | MOMENTS,
    version=st.integers(0, 3),
)


@settings(max_examples=50)
@given(note=NOTES_OF_ANY_KIND)
def test_a_record_is_the_same_after_it_was_stored(note: Note) -> None:
    raw = encode_item(note.item())

    assert Note.decoder.raw(raw) == note
    assert Note.decoder(decode_item(raw)) == note


def test_an_item_has_its_keys_constants_and_values_that_are_not_none() -> None:
    note = Note("ada", NOON, "n#1", "Hi", Mood.WILD, place={"x": 1}, edited_at=NOON, secret="s")

    assert note.item() == {
        "PK": "USER#ada",
        "SK": "NOTE#2026-06-25T12:00:00.000Z#n%231",
        "GSIPK": "MOOD#wild",
        "GSISK": "n#1",
        "entity": "NOTE",
        "noteId": "n#1",
        "text": "Hi",
        "mood": "wild",
        "stars": 0,
        "pinned": False,
        "place": '{"x":1}',
        "editedAt": "2026-06-25T12:00:00.000Z",
    }
    assert Note("ada", NOON, "n", "", Mood.CALM).item()["place"] is None


def test_missing_attributes_have_their_declared_values() -> None:
    item = {"PK": "USER#ada", "SK": "NOTE#2026-06-25T12:00:00.000Z#n", "stars": -2, "version": None, "editedAt": ""}

    assert Note.decoder(item) == Note("ada", NOON, "n", "", Mood.CALM)
    assert Note.decoder.attributes == (
        *("PK", "SK", "editedAt", "expiresAt", "mood", "pinned", "place", "secret", "stars", "tags", "text"),
        *("title", "version"),
    )


@pytest.mark.parametrize(
    "damage",
    [
        {"SK": "NOTE#2026"},
        {"SK": "NOTE#2026-06-25T12:00:00Z#n#more"},
        {"mood": "sad"},
        {"expiresAt": "x"},
        {"PK": "USER"},
    ],
)
def test_a_damaged_item_is_refused(damage: dict[str, Any]) -> None:
    item = {"PK": "USER#ada", "SK": "NOTE#2026-06-25T12:00:00.000Z#n", **damage}

    with pytest.raises(DAMAGE_ERRORS):
        Note.decoder(item)
    with pytest.raises(DAMAGE_ERRORS):
        Note.decoder.raw(encode_item(item))


def test_a_required_attribute_is_required() -> None:
    with pytest.raises(KeyError, match="width"):
        Drawer.decoder({"PK": "USER#ada", "SK": "DRAWER", "height": 2})


def test_derived_values_follow_from_others_and_keys_stay_as_they_are_stored() -> None:
    drawer = Drawer.decoder({"PK": "USER#ada%23", "SK": "DRAWER", "width": 2, "height": 3})

    assert drawer == Drawer(Key("USER#ada%23", "DRAWER"), 2, 3, 6, "ada#")
    assert drawer.item() == {"PK": "USER#ada%23", "SK": "DRAWER", "width": 2, "height": 3, "userId": "ada#"}


def test_a_record_within_a_record_is_stored_as_attributes_of_the_item() -> None:
    shelf = Shelf("s", True, Size(3, 4), (Mood.WILD,), (1, 2), None, ("a", "b"))
    item = shelf.item()

    assert item == {
        "id": "s",
        "isWide": True,
        "width": 3,
        "height": 4,
        "moods": ["wild"],
        "rows": "[1,2]",
        "boxes": "[]",
        "photo": zlib.compress(b'["a","b"]', 1),
    }
    assert replace(shelf, note="Old").item() == item | {"label": "Old"}
    assert Shelf.decoder.raw(encode_item(item)) == Shelf.decoder(item) == replace(shelf, boxes=())


def test_a_value_may_depend_on_other_values() -> None:
    shelf = {"id": "s", "width": 3, "rows": None}

    assert Shelf.decoder(shelf) == Shelf("s", False, Size(3, None))
    assert Shelf.decoder(shelf | {"width": 12}).is_wide
    assert Shelf.decoder(shelf | {"isWide": True}).is_wide
    assert Shelf.decoder.without(frozenset({"moods", "rows", "boxes", "photo"})).attributes == (
        *("height", "id", "isWide", "width"),
    )
    with pytest.raises(DAMAGE_ERRORS, match="damaged"):
        Shelf.decoder(shelf | {"photo": b"no"})


@settings(max_examples=30)
@given(note=NOTES_OF_ANY_KIND)
def test_a_projection_has_the_attributes_of_any_field(note: Note) -> None:
    drawer = Drawer(Key("USER#ada", "DRAWER"), 2, 3, 6, "ada")
    shelf = Shelf("s", True, Size(3, 4), (Mood.WILD,), (1, 2), None, ("a", "b"))

    for record in (note, drawer, shelf):
        item = record.item()
        for field in record.__declaration__.fields:
            decoder = type(record).decoder.projected(frozenset({field}))
            projected = {name: item[name] for name in decoder.attributes if name in item}
            read = decoder.raw(encode_item(projected))
            assert getattr(read, field) == getattr(decoder(projected), field)
            assert getattr(read, field) == getattr(type(record).decoder(item), field), field


def test_fields_of_a_record_are_the_changes_of_an_update() -> None:
    shelf = Shelf("s", True, Size(3, 4))

    assert shelf.attributes_of(["moods", "boxes"]) == {"moods": [], "boxes": "[]"}
    assert Note("ada", NOON, "n", "", Mood.CALM).attributes_of(["title", "place"]) == {"title": None, "place": None}


def test_the_input_of_an_update_follows_from_the_declaration() -> None:
    assert Note.__declaration__.forms == {"text": Line(20), "title": Line(10)}
    assert Note.__declaration__.removable == {"title"}
    assert Note.attributes({"title": None, "edited_at": NOON, "mood": Mood.WILD}) == {
        "title": None,
        "editedAt": "2026-06-25T12:00:00.000Z",
        "mood": "wild",
    }


def test_the_repr_of_a_record_has_no_secrets() -> None:
    shown = repr(Note("ada", NOON, "n", "Hi", Mood.CALM, secret="token"))

    assert "token" not in shown
    assert shown.startswith("Note(user_id='ada', ")


def test_a_key_is_made_split_matched_and_documented() -> None:
    key = note_key("ada", NOON, "n")

    assert key == Key("USER#ada", "NOTE#2026-06-25T12:00:00.000Z#n")
    assert note_key.parts(key) == ("ada", "2026-06-25T12:00:00.000Z", "n")
    assert note_key.prefix == "NOTE#"
    assert note_key.partition_of("a#") == "USER#a%23"
    assert note_key.documented == "PK = USER#<userId>, SK = NOTE#<createdAt>#<noteId>"
    assert note_key.matches({"PK": key.partition, "SK": key.sort})
    assert not note_key.matches({"PK": "USER#ada", "SK": "DRAWER"})
    assert drawer_key.matches({"PK": "USER#ada", "SK": "DRAWER"})
    assert not drawer_key.matches({"PK": "USER#ada", "SK": "DRAWERS"})
    assert plain_key("a#b") == Key("a#b")
    assert plain_key.parts(Key("a#b")) == ("a#b",)
    assert plain_key.documented == "id = <plainId>"
    assert Plain("a#b").item() == {"id": "a#b"}
    with pytest.raises(BadUserInput):
        note_key("", NOON, "n")
    with pytest.raises(ValueError, match="unpack"):
        note_key.parts(Key("USER#ada", "NOTE#n"))


def test_a_part_that_no_key_has_fails_at_the_first_use() -> None:
    class Lost(StoredItem, key=plain_key):
        other_id: str = stored.part()

    with pytest.raises(TypeError, match="No key of these items has a part `other_id`: id = <plainId>"):
        Lost.decoder  # noqa: B018


@settings(max_examples=50)
@given(note=NOTES_OF_ANY_KIND)
def test_no_item_is_greater_than_its_declaration_states(note: Note) -> None:
    size = Note.__declaration__.size
    item = {name: value for name, value in encode_item(note.item()).items() if name not in size.unlimited}

    assert size.unlimited == ("tags", "place")
    assert item_bytes(item) <= size.greatest


def test_the_typical_size_of_an_item_follows_from_its_types_and_forms() -> None:
    class Page(StoredItem, key=drawer_key):
        kind = stored.constant("kind", "PAGE")
        user_id: str = stored.part(typical=10)
        heading: str = stored.text("heading", form=Line(100))
        mood: Mood = stored.choice("mood", Mood)
        width: int = stored.number("width")
        edited_at: datetime = stored.moment("editedAt")
        expires_at: datetime = stored.seconds("expiresAt")
        text: str | None = stored.text("text", default=None, form=Prose(5000))
        rare: str | None = stored.text("rare", default=None, typical=0)

    keys = len("PKUSER#") + 10 + len("SKDRAWER")
    attributes = len("kindPAGE") + len("heading") + 20 + len("text") + 40 // 2 + len("mood") + 4
    numbers_and_times = len("width") + 5 + len("editedAt") + 24 + len("expiresAt") + 6
    assert Page.__declaration__.size.typical == math.ceil((keys + attributes + numbers_and_times) / 10) * 10


def test_the_size_of_the_largest_kind_of_item_is_that_of_a_table() -> None:
    small, large = Table("small", "id"), Table("large", "id", item_bytes=700)

    class Word(StoredItem, key=item_key(small)(_word)):
        word: str = stored.part()

    class Text(StoredItem, key=item_key(small)(_word)):
        word: str = stored.part()
        text: str = stored.text("text", form=Prose(100))

    class Book(StoredItem, key=item_key(large)(_word)):
        word: str = stored.part()

    assert typical_bytes(small) == Text.__declaration__.size.typical > Word.__declaration__.size.typical
    assert typical_bytes(large) == 700 > Book.__declaration__.size.typical
    with pytest.raises(ValueError, match="no class declares its items"):
        typical_bytes(Table("empty", "id"))


def _word(word: str) -> KeyParts:
    return (word,), ()


def test_all_items_fit_into_dynamodb() -> None:
    assert [item.__name__ for item in item_classes() if item.__declaration__.size.greatest > 400 * 1024] == []


def test_the_sizes_of_tables_are_those_of_the_estimates_of_costs() -> None:
    item_classes()  # imports the declarations
    sizes = {
        "blip": 350,
        "feed": 280,
        "feed-metrics": 1000,
        "sparks": 700,
        "earthquake-events": 300,
        "cricket-fixtures": 4500,
        "active-matches": 4500,
        "cricket-teams": 110,
        "cricket-team-seasons": 170,
        "cricket-leagues": 200,
        "cricket-match-follows": 150,
        "cricket-devices": 300,
        "live-activities": 500,
        "DisplayStateCache": 1000,
        "cricket-fixture-cache": 4400,
        "cricket-locks": 60,
    }

    assert {table.name: typical_bytes(table) for table in TABLES if table.name in sizes} == sizes


class Box(StoredItem, key=plain_key):
    """An item with JSON texts that must be there, or that have a value if they are missing."""

    plain_id: str = stored.part()
    labels: tuple[str, ...] = stored.json("labels", tuple[str, ...])
    rows: tuple[int, ...] = stored.json("rows", tuple[int, ...], missing=(1,))


def test_a_json_text_that_is_null_counts_as_missing() -> None:
    item = Box("one", ("a",), (2,)).item()

    assert Box.decoder(item | {"rows": None}).rows == (1,)
    with pytest.raises(TypeError):
        Box.decoder(item | {"labels": None})
