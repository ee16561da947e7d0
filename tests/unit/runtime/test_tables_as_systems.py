"""The design of a system for an existing table: the names and types that a sample shows, and what it does not show."""

from typing import Any

import pytest

from datastore.dynamodb.codec import Item
from runtime.scaffold.design import CannotGenerate, ItemKind, SystemDesign
from runtime.scaffold.from_table import MOST_KINDS, design_from_table

DESCRIPTION: dict[str, Any] = {
    "TableName": "notes",
    "KeySchema": [{"AttributeName": "PK", "KeyType": "HASH"}, {"AttributeName": "SK", "KeyType": "RANGE"}],
    "AttributeDefinitions": [
        {"AttributeName": "PK", "AttributeType": "S"},
        {"AttributeName": "SK", "AttributeType": "S"},
        {"AttributeName": "owner", "AttributeType": "S"},
        {"AttributeName": "number", "AttributeType": "N"},
    ],
}


def design_of(*items: Item, **description: Any) -> tuple[SystemDesign, list[str]]:
    """Return the design for the table `notes`, and what its sample does not show."""
    return design_from_table("notes", DESCRIPTION | description, None, items)


def only_kind(*items: Item, **description: Any) -> ItemKind:
    (kind,) = design_of(*items, **description)[0].kinds
    return kind


def index(*keys: str, projection: str = "ALL") -> dict[str, Any]:
    schema = [{"AttributeName": name, "KeyType": kind} for name, kind in zip(keys, ("HASH", "RANGE"), strict=False)]
    return {"IndexName": f"by-{keys[0]}", "KeySchema": schema, "Projection": {"ProjectionType": projection}}


def fields_of(kind: ItemKind) -> dict[str, tuple[str, bool]]:
    """Return the fields of a kind: the type, and whether it is optional."""
    return {attribute.field: (attribute.type, attribute.is_optional) for attribute in kind.attributes}


def test_kinds_have_names_of_their_own() -> None:
    system, _ = design_of({"PK": "USER#1", "SK": "POST"}, {"PK": "USER#1#2", "SK": "POST"}, {"PK": "1", "SK": "2"})

    assert [kind.name for kind in system.kinds] == ["note_user_post", "note_user_post_2", "note"]
    assert [kind.plural for kind in system.kinds] == ["note_user_posts", "note_user_post_2s", "notes"]


def test_parts_of_keys_are_named_after_the_same_attribute_or_the_word_before_them() -> None:
    item = {"PK": "USER#1", "SK": "POST#2#3", "userId": "1", "number": 3}

    system, unknown = design_of(item, item | {"PK": "USER#2", "userId": "2"})
    (kind,) = system.kinds

    assert [part.name for part in kind.parameters] == ["user_id", "post_id", "sk_part_3"]
    assert [line for line in unknown if "part" in line] == [
        "NoteUserPost: an attribute with the value of part 2 of SK (postId).",
        "NoteUserPost: an attribute with the value of part 3 of SK (skPart3).",
    ]


def test_a_value_that_a_key_contains_twice_is_one_argument() -> None:
    kind = only_kind({"PK": "USER#1", "SK": "USER#1"}, {"PK": "USER#2", "SK": "USER#2"})

    assert [part.name for part in kind.parameters] == ["user_id"]


def test_names_that_the_generated_code_uses_otherwise_are_changed() -> None:
    kind = only_kind(
        {"PK": "NOTE#1", "SK": "x", "id": "a", "item": "b", "2nd": "c", 'a"b': "d", "class": "e", "_": "f"}
    )

    assert fields_of(kind).keys() == {"stored_id", "stored_item", "attribute_2nd", "a_b", "stored_class", "attribute"}


def test_attributes_with_the_same_name_of_the_field_have_numbers() -> None:
    kind = only_kind({"PK": "NOTE#1", "SK": "x", "authorId": "a", "author_id": "b"})

    assert [(each.name, each.field) for each in kind.attributes] == [
        ("authorId", "author_id"),
        ("author_id", "author_id_2"),
    ]


def test_types_follow_from_the_values() -> None:
    values = {"text": "a", "at": "2026-06-25T12:00:00Z", "count": 1.5, "flag": True, "tags": ["a"], "map": {"a": 1}}

    system, unknown = design_of(
        {"PK": "NOTE#1", "SK": "1", **values, "mixed": 1, "some": "a", "empty": None},
        {"PK": "NOTE#1", "SK": "2", **values, "mixed": "1", "tags": None, "empty": None},
    )

    assert fields_of(system.kinds[0]) == {
        **{"text": ("text", False), "at": ("time", False), "count": ("number", False), "flag": ("flag", False)},
        **{"tags": ("any", True), "map": ("any", False), "mixed": ("any", False)},
        **{"some": ("text", True), "empty": ("any", True)},
    }
    assert "Note.mixed: the type of 'mixed', which is declared as JSON." in unknown


def test_lists_follow_from_the_keys_of_the_table_and_its_indexes() -> None:
    description = {"GlobalSecondaryIndexes": [index("owner", "number"), index("PK", projection="KEYS_ONLY")]}

    kind = only_kind({"PK": "BOOK#1", "SK": "NOTE#1", "owner": "a", "number": 1}, **description)

    assert [(each.name, each.prefix, each.index, each.is_partial) for each in kind.lists] == [
        ("note_books", "NOTE#", "", False),
        ("note_books_by_owner", "", "by-owner", False),
        ("note_books_by_book_id", "", "by-PK", True),
    ]


def test_the_example_of_a_kind_has_the_constant_parts_of_its_keys() -> None:
    description = {"GlobalSecondaryIndexes": [index("owner", "kind"), index("group", "place")]}
    types = [
        *DESCRIPTION["AttributeDefinitions"],
        *({"AttributeName": name, "AttributeType": "S"} for name in ("kind", "group", "place")),
    ]
    item = {
        "PK": "BOOK#7",
        "SK": "2026-06-25T12:00:00.000Z",
        "owner": "ada",
        "kind": "NOTE",
        "group": "ALL",
        "place": "AT#x",
    }

    kind = only_kind(item, **description, AttributeDefinitions=types)

    assert kind.example == {
        **{"PK": "BOOK#one", "SK": "2026-06-25T12:00:00.000Z", "owner": "one", "kind": "NOTE"},
        **{"group": "ALL", "place": "AT#one"},
    }
    assert [(each.name, each.prefix) for each in kind.lists] == [
        ("note_books", ""),
        ("note_books_by_owner", "NOTE"),
        ("note_books_by_group", "AT#"),
    ]


def test_what_cannot_be_inferred_is_reported() -> None:
    _, unknown = design_of(
        {"PK": "NOTE#1", "SK": "DETAILS", "owner": "A#1", "a.b": "1"},
        {"PK": "NOTE#2", "SK": "DETAILS", "owner": "1", "a.b": "1"},
        {"PK": "SETTINGS", "SK": "ALL"},
        {"PK": "NOTE##1", "SK": "1"},
        LocalSecondaryIndexes=[{"IndexName": "local"}],
        GlobalSecondaryIndexes=[index("number"), index("owner")],
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"},
    )

    assert unknown == [
        "The index by-number: its partition key is not a text.",
        "The local secondary indexes: a table declares only global ones.",
        "The stream with KEYS_ONLY: consumers and subscriptions need NEW_AND_OLD_IMAGES.",
        "Items with an empty part, `%` or control characters in their keys.",
        "NoteDetails: an attribute with the value of part 2 of PK (noteId).",
        "NoteDetails: its keys in the index by-owner have several forms.",
        "NoteDetails: a list, for which neither the table nor an index has a key.",
        "The item SETTINGS / ALL: no part of its key differs.",
    ]


def test_the_most_frequent_kinds_are_generated() -> None:
    words = [f"{letter}KIND" for letter in "ABCDEFGHIJKLMNOP"[: MOST_KINDS + 1]]
    items = [{"PK": f"{word}#{number}", "SK": "A"} for word in words for number in range(2)]

    system, unknown = design_of(*items[1:])

    assert [kind.name for kind in system.kinds] == [f"note_{word.lower()}_a" for word in words[1:]]
    assert f"The items AKIND#… / A: the modules of a system have room for {MOST_KINDS} kinds." in unknown


@pytest.mark.parametrize(
    ("items", "keys", "reason"),
    [
        ([], "S", "no items"),
        ([{"PK": 1, "SK": "a"}], "N", "are not texts"),
        ([{"PK": "A", "SK": "B"}], "S", "no items"),
    ],
)
def test_a_table_that_generated_code_cannot_read_is_refused(items: list[Item], keys: str, reason: str) -> None:
    types = [{"AttributeName": "PK", "AttributeType": keys}, {"AttributeName": "SK", "AttributeType": "S"}]

    with pytest.raises(CannotGenerate, match=reason):
        design_of(*items, AttributeDefinitions=types)
