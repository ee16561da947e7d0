"""Global ids, and arguments that accept them beside local ids."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson
import pytest
import strawberry
from hypothesis import given
from hypothesis import strategies as st

from datastore.errors import BadUserInput
from datastore.model import base64url
from resolvers.shared import validation as validate
from resolvers.shared.global_ids import global_id, local_id, parse_global_id
from schema.nodes import object_type, value_type

names = st.from_regex(r"[A-Za-z]\w*", fullmatch=True)
parts = st.lists(st.text(), min_size=1, max_size=4)


@given(kind=names, key=parts)
def test_a_global_id_is_parsed_into_what_it_was_made_of(kind: str, key: list[str]) -> None:
    made = global_id(kind, *key)
    assert parse_global_id(made) == (None if len(made) > 4096 else (kind, key))


@given(st.text() | st.text().map(lambda text: "WyJ" + text) | st.binary().map(base64url.encode))
def test_any_text_is_a_local_id_a_global_id_or_refused(text: str) -> None:
    try:
        assert local_id("id", text, "Post") == text or parse_global_id(text) is not None
    except BadUserInput:
        assert parse_global_id(text) is not None


@pytest.mark.parametrize("value", [[], ["Post"], ["Post", 1], ["Post", None], {"Post": "p1"}, "Post", 1])
def test_other_json_is_no_global_id(value: object) -> None:
    assert parse_global_id(base64url.encode(orjson.dumps(value))) is None


def test_an_argument_accepts_the_global_id_of_its_type() -> None:
    assert validate.id("postId", global_id("Post", "p1"), of=("Post",)) == "p1"
    assert validate.id("postId", " p1 ", of=("Post",)) == "p1"
    assert validate.ids("ids", ["m1", global_id("Match", "m2")], of=("Match",)) == ["m1", "m2"]
    assert validate.user_id("userId", global_id("UserProfile", "ada")) == "ada"


def test_the_global_id_of_another_type_is_refused_with_both_names() -> None:
    with pytest.raises(BadUserInput) as refused:
        validate.id("postId", global_id("User", "ada"), of=("Post",))
    assert str(refused.value) == "`postId` is a global id of the type User, not of Post."
    assert refused.value.extensions == {"code": "BAD_USER_INPUT", "field": "postId"}


def test_the_error_repeats_no_text_of_the_caller() -> None:
    with pytest.raises(BadUserInput, match=r"^`id` is a global id of an unknown type, not of Earthquake\.$"):
        local_id("id", global_id("B<script>", "1"), "Earthquake")


def test_the_preceding_parts_of_a_key_must_agree() -> None:
    comment = global_id("Comment", "p1", "c1")
    assert local_id("commentId", comment, "Comment", within=("p1",)) == "c1"
    with pytest.raises(BadUserInput, match="does not fit"):
        local_id("commentId", comment, "Comment", within=("p2",))
    with pytest.raises(BadUserInput, match="does not fit"):
        local_id("commentId", comment, "Comment")


@pytest.mark.parametrize("name", ["", " ", "x" * 101, "\u202e"])
def test_the_local_id_in_a_global_id_is_checked_as_any_other(name: str) -> None:
    with pytest.raises(BadUserInput, match=r"^`id` must"):
        validate.id("id", global_id("Post", name), of=("Post",))


class Toss(NamedTuple):
    winner: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Stroke:
    position: int
    toss: Toss


NOON = datetime(2026, 6, 25, 12, tzinfo=UTC)


@object_type("position", description="A stroke.")
class StrokeType:
    position: int


@value_type(description="A toss.")
class TossType:
    winner: str


@strawberry.type
class Strokes:
    @strawberry.field
    def lines(self) -> list[StrokeType]:
        values: Any = [Stroke(1, Toss("m1", NOON)), Stroke(2, Toss("m1", NOON))]
        return list(values)

    @strawberry.field
    def tosses(self) -> list[TossType]:
        values: Any = [Toss("m1", NOON), Toss("m1", NOON), Toss("m2", NOON)]
        return list(values)


def test_objects_have_ids_of_their_keys_and_values_of_their_content() -> None:
    result = strawberry.Schema(Strokes).execute_sync("{ lines { id } tosses { id } }")
    assert result.errors is None
    assert result.data is not None
    assert [line["id"] for line in result.data["lines"]] == [global_id("StrokeType", "1"), global_id("StrokeType", "2")]
    first, second, third = [toss["id"] for toss in result.data["tosses"]]
    assert first == second != third
    assert parse_global_id(first) is not None
