"""Fields that share a value are resolved once per operation, even if some of their positions become null."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import pytest
import strawberry
from graphql import ExecutionResult, GraphQLSchema, OperationDefinitionNode, execute, parse
from strawberry.schema.schema import StrawberryGraphQLCoreExecutionContext

from jit import operation_of
from tests.support.executors import EagerStrawberryExecutor

SAME = {"shared_by": ("users", "user_id")}


@dataclass
class UserReads:
    """The context of resolvers: it reads users and counts the reads."""

    read: Callable[[str], Awaitable["ReadPerson | None"]]
    reads: Counter[str] = field(default_factory=Counter)
    cancelled: list[str] = field(default_factory=list)
    name: str = "before"

    async def user(self, user_id: str) -> "ReadPerson | None":
        self.reads[user_id] += 1
        try:
            return await self.read(user_id)
        except asyncio.CancelledError:
            self.cancelled.append(user_id)
            raise


@dataclass(frozen=True)
class ReadPerson:
    name: str | None


@dataclass(frozen=True)
class OwnedNote:
    user_id: str
    fails: int = 0  # the number of turns before the failure


Info = strawberry.Info[UserReads, None]


async def user_of(parent: strawberry.Parent[OwnedNote], info: Info) -> "ReadPerson | None":
    return await info.context.user(parent.user_id)


async def checked_note(parent: strawberry.Parent[OwnedNote]) -> str:
    for _ in range(parent.fails or 1):
        await asyncio.sleep(0)
    if parent.fails:
        raise ValueError("no note")
    return "yes"


def checked_at_once(parent: strawberry.Parent[OwnedNote]) -> str:
    if parent.fails:
        raise ValueError("no note")
    return "yes"


async def rename_note(info: Info, name: str) -> "OwnedNote":
    info.context.name = name
    return OwnedNote("a")


def notes_of(ids: list[str]) -> list[OwnedNote]:
    return [OwnedNote(id.lstrip("!"), id.count("!")) for id in ids]


async def later_notes(ids: list[str]) -> list[OwnedNote]:
    for _ in range(2):
        await asyncio.sleep(0)
    return notes_of(ids)


@strawberry.type(name="User")
class NoteUser:
    name: str


@strawberry.type
class Perhaps:
    name: str | None


@strawberry.type(name="Written")
class SharedNote:
    user_id: strawberry.ID
    author = strawberry.field(resolver=user_of, graphql_type=NoteUser | None, metadata=SAME)
    editor = strawberry.field(resolver=user_of, graphql_type=NoteUser | None, metadata=SAME)
    maybe = strawberry.field(resolver=user_of, graphql_type=Perhaps | None, metadata=SAME)
    checked = strawberry.field(resolver=checked_note, graphql_type=str)
    at_once = strawberry.field(resolver=checked_at_once, graphql_type=str)


@strawberry.type(name="Query")
class SharedNotesQuery:
    notes = strawberry.field(resolver=notes_of, graphql_type=list[SharedNote | None])
    later = strawberry.field(resolver=later_notes, graphql_type=list[SharedNote | None])


@strawberry.type(name="Mutation")
class NotesMutation:
    rename = strawberry.field(resolver=rename_note, graphql_type=SharedNote)


SCHEMA: GraphQLSchema = strawberry.Schema(SharedNotesQuery, NotesMutation)._schema


async def execute_with(
    executor: Any, world: UserReads, text: str, variables: dict[str, Any] | None = None
) -> ExecutionResult:
    document = parse(text)
    if executor is EagerStrawberryExecutor:
        definition = document.definitions[0]
        assert isinstance(definition, OperationDefinitionNode)
        result: Any = operation_of(executor, SCHEMA, document, definition).execute(world, variables)
    else:
        result = execute(SCHEMA, document, None, world, variables, executor_class=executor)
    return result if isinstance(result, ExecutionResult) else await result


async def soon(user_id: str) -> ReadPerson | None:
    await asyncio.sleep(0)
    return None if user_id == "nobody" else ReadPerson(user_id.upper())


async def at_once(user_id: str) -> ReadPerson | None:
    return None if user_id == "nobody" else ReadPerson(user_id.upper())


async def broken(user_id: str) -> ReadPerson | None:
    await asyncio.sleep(0)
    if user_id == "b":
        raise ValueError("no user b")
    return ReadPerson(None if user_id == "c" else user_id.upper())


NOTES = "query Q($ids: [String!]!) { notes(ids: $ids) { userId author { name } editor { n: name } } }"
CHECKED = "query Q($ids: [String!]!) { notes(ids: $ids) { checked author { name } } }"


@pytest.mark.parametrize("read", [soon, at_once, broken])
@pytest.mark.parametrize("text", [NOTES, CHECKED])
async def test_the_result_equals_that_of_graphql_core(
    read: Callable[[str], Awaitable[ReadPerson | None]], text: str
) -> None:
    variables = {"ids": ["a", "b", "!a", "c", "b", "nobody", "a", "c", "!b"]}
    shared, single = UserReads(read), UserReads(read)
    expected = await execute_with(StrawberryGraphQLCoreExecutionContext, single, text, variables)
    for _ in range(2):  # the second execution knows the classes of values
        found = await execute_with(EagerStrawberryExecutor, shared, text, variables)
        assert found.data == expected.data
        assert _errors(found) == _errors(expected)


def _errors(result: ExecutionResult) -> list[Any]:
    return sorted((str(error.path), error.message, str(error.locations)) for error in result.errors or ())


@pytest.mark.parametrize("read", [soon, at_once])
async def test_each_value_is_resolved_once(read: Callable[[str], Awaitable[ReadPerson | None]]) -> None:
    world = UserReads(read)
    result = await execute_with(EagerStrawberryExecutor, world, NOTES, {"ids": ["a", "b"] * 25 + ["nobody"]})
    assert result.errors is None
    assert world.reads == {"a": 1, "b": 1, "nobody": 1}


async def test_a_failure_is_reported_at_each_position() -> None:
    result = await execute_with(EagerStrawberryExecutor, UserReads(broken), NOTES, {"ids": ["b", "a", "b"]})
    assert sorted(str(error.path) for error in result.errors or ()) == [
        str(["notes", place, name]) for place in (0, 2) for name in ("author", "editor")
    ]
    assert result.data is not None
    assert [note["author"] for note in result.data["notes"]] == [None, {"name": "A"}, None]


async def test_a_shared_value_survives_while_another_field_waits_for_it() -> None:
    released = asyncio.Event()

    async def late(user_id: str) -> ReadPerson | None:
        await released.wait()
        return ReadPerson(user_id.upper())

    world = UserReads(late)
    answering = asyncio.ensure_future(execute_with(EagerStrawberryExecutor, world, CHECKED, {"ids": ["!a", "a", "!b"]}))
    for _ in range(10):
        await asyncio.sleep(0)
    assert world.cancelled == ["b"]  # its only position has become null
    released.set()
    result = await answering
    assert result.data == {"notes": [None, {"checked": "yes", "author": {"name": "A"}}, None]}
    assert world.reads == {"a": 1, "b": 1}


async def test_a_shared_value_is_abandoned_when_no_field_waits_for_it() -> None:
    async def never(user_id: str) -> ReadPerson | None:
        await asyncio.Event().wait()
        return None

    world = UserReads(never)
    result = await asyncio.wait_for(
        execute_with(EagerStrawberryExecutor, world, CHECKED, {"ids": ["!a", "!!!a", "!!a"]}), 50
    )
    assert result.data == {"notes": [None, None, None]}
    assert world.reads == {"a": 1}
    assert world.cancelled == ["a"]


async def test_an_abandoned_value_is_read_again_for_a_later_field() -> None:
    async def slowly_left(user_id: str) -> ReadPerson | None:
        try:
            await asyncio.sleep(1 if world.reads[user_id] == 1 else 0)
        except asyncio.CancelledError:
            for _ in range(10):
                await asyncio.sleep(0)
            raise
        return ReadPerson(user_id.upper())

    world = UserReads(slowly_left)
    text = CHECKED.replace("author { name } }", "author { name } } later(ids: $later) { author { name } }")
    text = text.replace("$ids: [String!]!", "$ids: [String!]!, $later: [String!]!")
    result = await execute_with(EagerStrawberryExecutor, world, text, {"ids": ["!a"], "later": ["a", "a"]})
    assert result.data == {"notes": [None], "later": [{"author": {"name": "A"}}] * 2}
    assert world.reads == {"a": 2}
    assert world.cancelled == ["a"]


@pytest.mark.parametrize(
    "selections",
    [
        "author { name } editor { name }",
        "author { x: name } editor { x: __typename }",
        "author { name n: name } editor { n: name name }",
        "author { name @include(if: $x) } editor { name @include(if: $y) }",
        "author { name n: name @include(if: $x) name } editor { n: name @skip(if: $y) name }",
    ],
)
async def test_fields_with_different_selections_have_different_results(selections: str) -> None:
    text = f"query Q($ids: [String!]!, $x: Boolean!, $y: Boolean!) {{ notes(ids: $ids) {{ {selections} }} ...Both }}"
    text += " fragment Both on Query { __typename @include(if: $x) @skip(if: $y) }"
    variables = {"ids": ["a", "b", "a"], "x": True, "y": False}
    expected = await execute_with(StrawberryGraphQLCoreExecutionContext, UserReads(soon), text, variables)
    for read in (soon, at_once):
        found = await execute_with(EagerStrawberryExecutor, UserReads(read), text, variables)
        assert str(found.data) == str(expected.data)


@pytest.mark.parametrize("conditions", [{"x": True, "y": True}, {"x": False, "y": True}, {"x": True, "y": False}])
async def test_keys_are_in_the_order_that_the_variables_determine(conditions: dict[str, bool]) -> None:
    text = """query Q($ids: [String!]!, $x: Boolean!, $y: Boolean!) {
        notes(ids: $ids) {
            author @include(if: $x) { name } userId editor { name } author @include(if: $y) { name }
        }
    }"""
    variables = {"ids": ["a", "b", "a", "b"], **conditions}
    expected = await execute_with(StrawberryGraphQLCoreExecutionContext, UserReads(soon), text, variables)
    for _ in range(2):
        found = await execute_with(EagerStrawberryExecutor, UserReads(soon), text, variables)
        assert str(found.data) == str(expected.data)


async def test_a_cancelled_execution_cancels_its_resolvers() -> None:
    async def never(user_id: str) -> ReadPerson | None:
        await asyncio.Event().wait()
        return None

    world = UserReads(never)
    answering = asyncio.ensure_future(execute_with(EagerStrawberryExecutor, world, NOTES, {"ids": ["a", "a", "b"]}))
    for _ in range(5):
        await asyncio.sleep(0)
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(answering, 50)
    assert sorted(world.cancelled) == ["a", "b"]


async def test_a_mutation_sees_the_changes_of_the_previous_one() -> None:
    world = UserReads(soon)

    async def now(_: str) -> ReadPerson:
        await asyncio.sleep(0)
        return ReadPerson(world.name)

    world.read = now
    text = 'mutation { a: rename(name: "x") { author { name } } b: rename(name: "y") { author { name } } }'
    result = await execute_with(EagerStrawberryExecutor, world, text)
    assert result.data == {"a": {"author": {"name": "x"}}, "b": {"author": {"name": "y"}}}


async def test_a_value_that_is_requested_while_it_is_abandoned_is_resolved_again() -> None:
    """The first note becomes null, which abandons its value. The second requests it before the end of the read."""

    async def slowly(user_id: str) -> ReadPerson:
        await asyncio.sleep(0.001)
        return ReadPerson(user_id.upper())

    text = "query Q($ids: [String!]!) { notes(ids: $ids) { author { name } atOnce } }"
    world = UserReads(slowly)
    result = await asyncio.wait_for(execute_with(EagerStrawberryExecutor, world, text, {"ids": ["!a", "a", "a"]}), 50)
    assert result.data == {"notes": [None, *[{"author": {"name": "A"}, "atOnce": "yes"}] * 2]}
    assert [error.path for error in result.errors or ()] == [["notes", 0, "atOnce"]]
    assert world.reads == {"a": 2}
    assert world.cancelled == ["a"]


async def test_the_first_field_may_be_abandoned_before_its_followers() -> None:
    async def never(user_id: str) -> ReadPerson | None:
        await asyncio.Event().wait()
        return None

    world = UserReads(never)
    ids = ["!a", "!!!a", "!!a"]
    result = await asyncio.wait_for(execute_with(EagerStrawberryExecutor, world, CHECKED, {"ids": ids}), 50)
    assert result.data == {"notes": [None, None, None]}
    assert world.cancelled == ["a"]


async def read_in_time(user_id: str) -> ReadPerson:
    try:
        async with asyncio.timeout(0.001):
            await asyncio.Event().wait()
    except TimeoutError:
        await asyncio.sleep(0)
        return ReadPerson("late")
    return ReadPerson("in time")


async def read_in_task_group(user_id: str) -> ReadPerson:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("one of them")

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.Event().wait())
            group.create_task(fails())
    except ExceptionGroup as group:
        return ReadPerson(str(group.exceptions[0]))
    return ReadPerson("none failed")


@pytest.mark.parametrize(("read", "name"), [(read_in_time, "late"), (read_in_task_group, "one of them")])
async def test_a_cancellation_inside_a_resolver_does_not_affect_followers(
    read: Callable[[str], Awaitable[ReadPerson]], name: str
) -> None:
    world = UserReads(read)
    result = await asyncio.wait_for(execute_with(EagerStrawberryExecutor, world, NOTES, {"ids": ["a", "b", "a"]}), 50)
    assert result.errors is None
    assert result.data is not None
    assert [(note["author"], note["editor"]) for note in result.data["notes"]] == [({"name": name}, {"n": name})] * 3
    assert world.reads == {"a": 1, "b": 1}
    assert world.cancelled == []


@dataclass(frozen=True)
class NoName:
    """An awaitable that fails each time, after a number of turns."""

    turns: int

    def __await__(self) -> Generator[None, None, str]:
        for _ in range(self.turns):
            yield
        raise ValueError("no name")


@dataclass(frozen=True)
class Nameless:
    name: NoName


@pytest.mark.parametrize("turns", [0, 1])
@pytest.mark.parametrize("waits", [True, False])
async def test_an_awaitable_attribute_that_fails_is_reported_at_each_position(turns: int, waits: bool) -> None:
    async def read(user_id: str) -> Any:
        if waits:
            await asyncio.sleep(0)
        return Nameless(NoName(turns))

    text = "query Q($ids: [String!]!) { notes(ids: $ids) { maybe { name } } }"
    variables = {"ids": ["a", "a", "a"]}
    expected = await execute_with(StrawberryGraphQLCoreExecutionContext, UserReads(read), text, variables)
    for _ in range(2):
        found = await execute_with(EagerStrawberryExecutor, UserReads(read), text, variables)
        assert found.data == expected.data == {"notes": [{"maybe": {"name": None}}] * 3}
        assert _errors(found) == _errors(expected)
