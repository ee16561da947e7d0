"""The check of all text that users write: every text argument of a mutation refuses and accepts the same characters."""

from collections.abc import Iterator
from typing import Any
from unicodedata import normalize

import pytest
from graphql import (
    GraphQLArgument,
    GraphQLInputField,
    GraphQLInputObjectType,
    GraphQLList,
    GraphQLNonNull,
    GraphQLSchema,
)

import schema as api
from datastore.errors import BadUserInput
from datastore.keyspace import PATTERNS
from datastore.model.access_patterns import Who
from datastore.model.identity import Role
from datastore.model.ids import uuid7
from resolvers.shared import user_text
from tests.support.photo_items import ADA
from tests.support.served import NOON, Served

HEX, UUID = "1" * 32, uuid7(NOON, "chosen")
# Valid values by the name of the field. Other fields accept the value of their type in VALUES.
NAMED: dict[str, Any] = {
    "area": "Downtown",
    "category": "Cats",
    "deviceToken": HEX,
    "apnsToken": HEX,
    "updateToken": HEX,
    "pushToStartToken": HEX,
    "commentId": UUID,
    "email": ADA,
    "eventType": "VIEW",
    "faceId": UUID,
    "thumbnailUrl": "https://example.com/a.jpg",
    "streamUrl": "https://example.com/live",
    "imageUrl": "https://example.com/a.png",
    "feed": "all_day",
    "balls": 6,
    "ballsPerOver": 6,
    "scheduledOvers": 20,
    "uploadLimit": 1,
    "width": 0.1,
    "height": 0.1,
    "expectedVersion": 0,
    "endTime": "2026-06-25T13:00:00Z",
}
OF_INPUT = {("CreatePersonInput", "personId"): UUID, ("CreateLivestreamInput", "livestreamId"): UUID}
OF_INPUT |= {("CreatePhotoInput", "imageId"): UUID, ("", "userId"): "ada"}
VALUES: dict[str, Any] = {
    "String": "x",
    "ID": "x",
    "Int": 1,
    "Float": 0.1,
    "Boolean": True,
    "DateTime": "2026-06-25T12:00:00Z",
    "JSON": {"word": "x"},
}
TEXTS = {"String", "ID", "JSON"}
HOSTILE = {"NUL": "a\x00b", "override": "a\u202eb", "invisible": "\u200b"}
# A path in the values of an argument.
Place = tuple[str | int, ...]

SCHEMA: GraphQLSchema = api.build()._schema


# Fields of inputs that exclude the other fields.
ALONE = {("UpdateFixtureInput", "clear")}


def value_of(kind: Any, name: str, of: str = "") -> Any:
    """Return a valid value, with every field of input objects."""
    if isinstance(kind, GraphQLNonNull):
        return value_of(kind.of_type, name, of)
    if isinstance(kind, GraphQLList):
        return [value_of(kind.of_type, name, of)]
    if isinstance(kind, GraphQLInputObjectType):
        return {
            field: value_of(member.type, field, kind.name)
            for field, member in kind.fields.items()
            if (kind.name, field) not in ALONE
        }
    if (of, name) in OF_INPUT or name in NAMED:
        return OF_INPUT.get((of, name), NAMED.get(name))
    return VALUES[kind.name] if kind.name in VALUES else next(iter(kind.values))


def texts_in(kind: Any, at: Place = ()) -> Iterator[Place]:
    """Yield the path of each text in the values of a type."""
    if isinstance(kind, GraphQLNonNull):
        yield from texts_in(kind.of_type, at)
    elif isinstance(kind, GraphQLList):
        yield from texts_in(kind.of_type, (*at, 0))
    elif isinstance(kind, GraphQLInputObjectType):
        for name, member in kind.fields.items():
            yield from texts_in(member.type, (*at, name))
    elif kind.name in TEXTS:
        yield (*at, "word") if kind.name == "JSON" else at


def replaced(value: Any, at: Place, text: str) -> Any:
    if not at:
        return text
    if isinstance(value, list):
        return [replaced(value[0], at[1:], text)]
    return value | {at[0]: replaced(value[at[0]], at[1:], text)}


def literal_types(arguments: dict[str, GraphQLArgument | GraphQLInputField]) -> str:
    return ", ".join(f"${name}: {argument.type}" for name, argument in arguments.items())


def mutations() -> dict[str, Any]:
    root = SCHEMA.mutation_type
    assert root is not None
    return dict(root.fields)


CASES = [
    (name, (argument, *at))
    for name, field in mutations().items()
    for argument, member in field.args.items()
    for at in texts_in(member.type)
]


def dotted_name(place: Place) -> str:
    return ".".join(map(str, place))


def mutation_with_values(name: str) -> tuple[str, dict[str, Any]]:
    """Return the mutation with every argument, and valid values."""
    field = mutations()[name]
    given = ", ".join(f"{argument}: ${argument}" for argument in field.args)
    kind = field.type
    while hasattr(kind, "of_type"):
        kind = kind.of_type
    selection = " { __typename }" if hasattr(kind, "fields") else ""
    query = f"mutation ({literal_types(field.args)}) {{ {name}({given}){selection} }}"
    return query, {argument: value_of(member.type, argument) for argument, member in field.args.items()}


def role_for(name: str) -> Role:
    callers = {pattern.who for pattern in PATTERNS if name in pattern.fields}
    return Role.SYSTEM if Who.SYSTEM in callers else Role.ADMIN


def test_there_are_texts_to_check() -> None:
    assert len(CASES) > 100
    assert ("reportSighting", ("input", "description")) in CASES
    assert ("logEvent", ("input", 0, "eventData", "word")) in CASES
    assert ("syncFixtures", ("input", 0, "venue", "name")) in CASES


@pytest.mark.parametrize("name", dict.fromkeys(name for name, _ in CASES))
async def test_every_text_of_a_mutation_refuses_hidden_characters(served: Served, name: str) -> None:
    query, values = mutation_with_values(name)
    wrong = {}
    for place in (place for field, place in CASES if field == name):
        # An empty text is valid in the data of an event.
        for what, text in HOSTILE.items() if "word" not in place else list(HOSTILE.items())[:2]:
            answer = await served.ask(query, replaced(values, place, text), user="ada", role=role_for(name), email=ADA)
            errors = [(error["extensions"]["code"], error["extensions"].get("field")) for error in answer.errors or ()]
            leaf = next(part for part in reversed(place) if isinstance(part, str) and part != "word")
            if [code for code, _ in errors] != ["BAD_USER_INPUT"] or leaf not in str(errors[0][1]):
                wrong[f"{dotted_name(place)} with {what}"] = answer.errors or answer.data
            elif answer.calls:
                wrong[f"{dotted_name(place)} with {what}"] = answer.made
    assert wrong == {}


# Accepted text, and its stored form.

UNSEEN = [
    "\u200b",
    "\u2060\u200d",
    "\u3164",
    "\u115f\u1160",
    "\uffa0",
    "\u2800",
    "\ufe0f",
    "\u034f",
    "\u00ad",
    "\u00a0",
]
DECEIVING = [
    "\x00",
    "\x1b",
    "\x7f",
    "\x85",
    *map(chr, range(0x202A, 0x202F)),
    *map(chr, range(0x2066, 0x206A)),
    "\U000e0001",
    "\U000e0041",
    "\U000e007f",
    "\ud800",
    "\udfff",
    "\ufdd0",
    "\uffff",
    "\U0010fffe",
]
INVISIBLE = ["\u034f", "\u1160", "\u17b4", "\u180b", "\ufe0f", "\ufe00", "\U000e0100", "\u2065", "\U000e0fff", "\u3164"]
IN_PROSE_ALONE = ["\n", "\r\n", "\t", "\u200e", "\u200f", "\u2028", "\u00ad", "\u200b", "\ufeff"]
ACCEPTED = [
    "Ada",
    "Zo\u00eb",
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian, with ZWNJ
    "\u0d28\u0d4d\u200d",  # Malayalam, with ZWJ
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",  # a family
    "\u2764\ufe0f",
    "\U0001f3f3\ufe0f\u200d\U0001f308",  # a rainbow flag
    "\U0001f575\U0001f3fd\u200d\u2640\ufe0f",  # a detective
    "1\ufe0f\u20e3",  # a keycap
    "\U0001f1ee\U0001f1f3",  # a flag
    "\u05d0\u05d3\u05d4",
    "\u6771\u4eac",
    "\u0600\u0661",  # ARABIC NUMBER SIGN is a visible format character
]


@pytest.mark.parametrize("check", [user_text.line, user_text.prose])
@pytest.mark.parametrize("text", ACCEPTED, ids=ascii)
def test_text_of_any_script_is_accepted(check: Any, text: str) -> None:
    assert check("text", f" {text} ", 20) == text


@pytest.mark.parametrize("check", [user_text.line, user_text.prose])
@pytest.mark.parametrize("character", DECEIVING, ids=ascii)
def test_deceptive_characters_are_refused_and_named(check: Any, character: str) -> None:
    code = f"U+{ord(character):04X}"
    with pytest.raises(BadUserInput, match=f"^`text` must not contain {code}".replace("+", r"\+")) as refused:
        check("text", f"a{character}b", 20)
    assert refused.value.extensions["field"] == "text"


@pytest.mark.parametrize("check", [user_text.line, user_text.prose])
@pytest.mark.parametrize("text", ["", " ", *UNSEEN, "".join(UNSEEN)], ids=ascii)
def test_text_of_invisible_characters_counts_as_empty(check: Any, text: str) -> None:
    with pytest.raises(BadUserInput, match="`text` must have between 1 and 20 characters"):
        check("text", text, 20)


@pytest.mark.parametrize("character", [*IN_PROSE_ALONE, *INVISIBLE], ids=ascii)
def test_prose_may_span_lines_and_names_may_not(character: str) -> None:
    text = f"a{character}b"

    assert user_text.prose("text", text, 20) == text
    with pytest.raises(BadUserInput, match="`text` must not contain U"):
        user_text.line("text", text, 20)


def test_text_is_stored_in_nfc() -> None:
    assert user_text.line("text", "Zoe\u0308", 3) == "Zo\u00eb"
    assert user_text.prose("text", "\u1112\u1161\u11ab" * 20, 20) == normalize("NFC", "\u1112\u1161\u11ab") * 20
    with pytest.raises(BadUserInput, match="between 1 and 3"):
        user_text.line("text", "\u0958" * 3, 3)  # longer in NFC: its composition is excluded


def test_many_combining_marks_are_refused_before_normalization() -> None:
    assert user_text.prose("text", "a" + "\u0300" * 30 + "b", 100)
    with pytest.raises(BadUserInput, match="`text` must not contain more than 30 consecutive combining marks"):
        user_text.prose("text", "a" + "\u0300\u0316" * 1000, 2000)
    for mark in ("\u20dd", "\ufe0f", "\U000e0100", "\u0903", "\u034f"):
        assert user_text.prose("text", "a" + mark * 30 + "b", 100)
        with pytest.raises(BadUserInput, match="more than 30 consecutive combining marks"):
            user_text.prose("text", "a" + mark * 31, 100)
    with pytest.raises(BadUserInput, match="more than 30 consecutive combining marks"):
        user_text.prose("text", "a" + ("\u0301" * 30 + "\u200d") * 2, 100)
    with pytest.raises(BadUserInput, match="more than 30 consecutive combining marks"):
        user_text.prose("text", "a" + "\u0344" * 30, 100)  # NFC makes two marks of each
    with pytest.raises(BadUserInput, match="`text` must have between 1 and 2000 characters"):
        user_text.prose("text", "a" + "\u0316\u0300" * 100_000, 2000)  # normalization would take minutes


@pytest.mark.parametrize("character", INVISIBLE, ids=ascii)
async def test_names_cannot_differ_by_invisible_characters_alone(served: Served, character: str) -> None:
    create = "mutation ($name: String!) { createUser(input: {name: $name}) { name } }"

    answer = await served.ask(create, {"name": f"Alice{character}"}, user="mallory")
    read = await served.ask('{ user(id: "mallory") { name } }')

    assert (answer.codes, read.data) == (["BAD_USER_INPUT"], {"user": None})


async def test_a_text_is_stored_as_it_is_shown(served: Served) -> None:
    create = "mutation ($name: String!, $bio: String) { createUser(input: {name: $name, bio: $bio}) { name bio } }"

    created = await served.ask(
        create, {"name": " Zoe\u0308 ", "bio": "one\n\ttwo \U0001f468\u200d\U0001f467"}, user="ada"
    )
    read = await served.ask('{ user(id: "ada") { name bio } }')

    assert created.data["createUser"] == {"name": "Zo\u00eb", "bio": "one\n\ttwo \U0001f468\u200d\U0001f467"}
    assert read.data["user"] == created.data["createUser"]
