"""Lists of enums and of custom scalars complete as in graphql-core, also once their values are known."""

from enum import Enum
from typing import Any

import pytest
import strawberry
from graphql import GraphQLSchema, Undefined, build_schema, execute_sync, parse

from jit import CompiledExecutor
from tests.support.executors import CompilingExecutor, CompilingStrawberryExecutor, EagerExecutor, first_operation


class Colour(Enum):
    RED = 1
    BLUE = 2


def even(value: Any) -> Any:
    if value == 0:
        return None
    if value == 4:
        return Undefined
    if value % 2:
        raise ValueError(f"{value} is odd")
    return f"<{value}>"


def schema_of(item: str) -> GraphQLSchema:
    schema = build_schema(f"enum Colour {{ RED BLUE }} scalar Even type Query {{ values: [{item}] }}")
    schema.type_map["Even"].coerce_output_value = even  # type: ignore[attr-defined]
    schema.type_map["Colour"].values["RED"].value = Colour.RED  # type: ignore[attr-defined]
    schema.type_map["Colour"].values["BLUE"].value = Colour.BLUE  # type: ignore[attr-defined]
    return schema


@pytest.mark.parametrize("executor", [CompilingExecutor, EagerExecutor])
@pytest.mark.parametrize(
    ("item", "lists"),
    [
        ("Colour", [[Colour.RED, Colour.BLUE], (Colour.BLUE,), [], [Colour.RED, None], ["RED", Colour.RED], [3], None]),
        ("Colour!", [[Colour.RED], [Colour.BLUE, Colour.RED], [None, Colour.RED], [Colour.RED, "GREEN"]]),
        ("Even", [[2, 6], (8,), [2, None], [2, 3, 6], [2, 0], [2, 4], ["2"], [ValueError("no value"), 2], [2]]),
        ("Even!", [[2], [2, 6], [2, 3], [0], [4, 2], [6]]),
    ],
)
async def test_lists_complete_as_in_graphql_core(executor: type[CompiledExecutor], item: str, lists: list[Any]) -> None:
    schema = schema_of(item)
    operation = first_operation(schema, "{ values }", executor)
    for values in lists:
        expected = execute_sync(schema, parse("{ values }", no_location=True), {"values": values}).formatted
        result: Any = operation.execute(None, root={"values": values})
        assert result.formatted == expected
    assert operation.compiled is not None


strawberry.enum(Colour)


def extended(ids: list[strawberry.ID], colours: list[Colour] | None = None) -> list[str]:
    ids.append(strawberry.ID("added"))
    return [*ids, *[colour.name for colour in colours or ()]]


@strawberry.type
class Lists:
    extended: list[str] = strawberry.field(resolver=extended)


def test_a_resolver_may_change_a_list_argument() -> None:
    schema = strawberry.Schema(Lists)._schema
    text = "query($ids: [ID!]!) { first: extended(ids: $ids) second: extended(ids: $ids, colours: [BLUE]) }"
    operation = first_operation(schema, text, CompilingStrawberryExecutor)
    variables = {"ids": ["a"]}
    for _ in range(3):
        result: Any = operation.execute(None, variables)
        assert result.data == {"first": ["a", "added"], "second": ["a", "added", "BLUE"]}
    assert variables == {"ids": ["a"]}
    assert operation.compiled is not None
