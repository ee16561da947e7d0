"""A preloaded attribute is returned without calling the resolver. If it is None, the resolver is called."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

import pytest
import strawberry
from graphql import ExecutionResult, GraphQLSchema, execute, parse
from strawberry.schema.schema import StrawberryGraphQLCoreExecutionContext

from jit import operation_of
from tests.support.executors import EagerStrawberryExecutor


@dataclass(frozen=True)
class NoteRecord:
    title: Any
    likes: Any
    tags: Any = ()


calls: list[str] = []
Info = strawberry.Info[None, None]


def like_count(parent: strawberry.Parent[NoteRecord], info: Info) -> int | Awaitable[int]:
    calls.append(info.field_name)
    return parent.likes if parent.likes is not None else count_later(parent)


async def count_later(note: NoteRecord) -> int:
    await asyncio.sleep(0)
    if note.title == "uncounted":
        raise ValueError("not counted")
    return 7


def tags_of_note(parent: strawberry.Parent[NoteRecord]) -> Any:
    calls.append("tags")
    return parent.tags


@strawberry.type(name="Written")
class WrittenNote:
    title: str
    likes = strawberry.field(resolver=like_count, graphql_type=int, metadata={"preloaded": "likes"})
    maybe = strawberry.field(resolver=like_count, graphql_type=int | None, metadata={"preloaded": "likes"})
    tags = strawberry.field(resolver=tags_of_note, graphql_type=list[str] | None, metadata={"preloaded": "tags"})


def notes(info: Info) -> Any:
    return info.root_value


@strawberry.type(name="Query")
class NotesQuery:
    notes = strawberry.field(resolver=notes, graphql_type=list[WrittenNote | None])


SCHEMA: GraphQLSchema = strawberry.Schema(NotesQuery)._schema
TEXT = "{ notes { title likes maybe tags } }"


async def execute_notes(given: list[NoteRecord], *, compiled: bool, text: str = TEXT) -> ExecutionResult:
    document = parse(text)
    if compiled:
        operation = operation_of(EagerStrawberryExecutor, SCHEMA, document, document.definitions[0])  # type: ignore[arg-type]
        result: Any = operation.execute(None, root=given)
        result = result if isinstance(result, ExecutionResult) else await result
        calls.clear()
        result = operation.execute(None, root=given)
    else:
        result = execute(SCHEMA, document, given, executor_class=StrawberryGraphQLCoreExecutionContext)
    return result if isinstance(result, ExecutionResult) else await result


async def test_no_resolver_is_called_for_a_preloaded_value() -> None:
    result = await execute_notes([NoteRecord("a", 1, ["x"]), NoteRecord("b", 0, ("x", "y"))], compiled=True)
    assert result.errors is None
    assert result.data == {
        "notes": [
            {"title": "a", "likes": 1, "maybe": 1, "tags": ["x"]},
            {"title": "b", "likes": 0, "maybe": 0, "tags": ["x", "y"]},
        ]
    }
    assert calls == []


async def test_the_resolver_is_called_for_a_value_that_is_not_preloaded() -> None:
    result = await execute_notes([NoteRecord("a", 1), NoteRecord("b", None)], compiled=True)
    assert result.data is not None
    assert result.data["notes"][1] == {"title": "b", "likes": 7, "maybe": 7, "tags": []}
    assert calls == ["likes", "maybe"]


@pytest.mark.parametrize(
    "odd",
    [
        NoteRecord("b", None),
        NoteRecord("b", "no number"),
        NoteRecord("b", ValueError("no likes")),
        NoteRecord("b", 1, None),
        NoteRecord("b", 1, ("x", 5)),
        NoteRecord("b", 1, ("x", None)),
        NoteRecord("b", 1, 5),
        NoteRecord("b", 1, {"x": 1, "y": 2}),
        NoteRecord(None, 1),
    ],
    ids=str,
)
async def test_an_unusual_value_has_the_result_of_graphql_core(odd: NoteRecord) -> None:
    given = [NoteRecord("a", 1), odd, NoteRecord("c", 2)]

    expected, found = await execute_notes(given, compiled=False), await execute_notes(given, compiled=True)
    assert found.data == expected.data
    assert _errors(found) == _errors(expected)


@pytest.mark.parametrize("name", ["likes", "maybe"])
async def test_a_called_resolver_may_fail(name: str) -> None:
    given, text = [NoteRecord("a", 1), NoteRecord("uncounted", None)], f"{{ notes {{ title {name} }} }}"
    expected = await execute_notes(given, compiled=False, text=text)
    found = await execute_notes(given, compiled=True, text=text)
    assert found.data == expected.data
    assert _errors(found) == _errors(expected)


def _errors(result: ExecutionResult) -> list[Any]:
    return sorted((str(error.path), error.message) for error in result.errors or ())
