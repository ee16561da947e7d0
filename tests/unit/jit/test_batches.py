"""One call resolves a field for many objects, and each key once per operation, even if some positions become null."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import strawberry
from graphql import ExecutionResult, GraphQLSchema, OperationDefinitionNode, execute, parse
from strawberry.schema.schema import StrawberryGraphQLCoreExecutionContext

from jit import operation_of
from tests.support.batches import batch_field
from tests.support.executors import CompilingStrawberryExecutor, EagerStrawberryExecutor


@dataclass
class UserReads:
    """The context of resolvers: it reads users and counts the reads."""

    read: Callable[[str], Awaitable["ReadPerson | None"]]
    reads: Counter[str] = field(default_factory=Counter)
    calls: list[list[str]] = field(default_factory=list)
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
    fails: int = 0


@dataclass(frozen=True)
class OwnedNote:
    user_id: str
    fails: int = 0  # the number of turns before the failure

    @property
    def optional_id(self) -> str | None:
        return self.user_id or None

    @property
    def unreadable_id(self) -> str:
        raise ValueError("unreadable")

    @property
    def ids(self) -> list[str]:
        return [self.user_id]


Info = strawberry.Info[UserReads, None]


async def users(ids: Sequence[str], info: Info) -> Sequence["ReadPerson | BaseException | None"]:
    info.context.calls.append(list(ids))
    return await asyncio.gather(*map(info.context.user, ids), return_exceptions=True)


async def names_of_notes(notes: Sequence[OwnedNote], info: Info) -> Sequence[ReadPerson]:
    return [ReadPerson(note.user_id) for note in notes]


FAULTS = {"checkedAuthor": "refused", "faulty": "refused at once", "short": "no_values returned 0 values for 2 keys."}


async def refuse_all(ids: Sequence[str], info: Info) -> Sequence[ReadPerson]:
    await asyncio.sleep(0)
    raise ValueError("refused")


def refuse_at_once(ids: Sequence[str], info: Info) -> Any:
    raise ValueError("refused at once")


async def no_values(ids: Sequence[str], info: Info) -> Sequence[ReadPerson]:
    return []


async def checked_note(parent: strawberry.Parent[OwnedNote | ReadPerson]) -> str:
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
    for _ in range(5):
        await asyncio.sleep(0)
    return notes_of(ids)


@strawberry.type(name="User")
class NoteUser:
    checked = strawberry.field(resolver=checked_note, graphql_type=str)
    name: str


@strawberry.type
class Perhaps:
    name: str | None


@strawberry.type(name="Written")
class SharedNote:
    user_id: strawberry.ID
    author = batch_field(users, NoteUser | None, "user_id")
    editor = batch_field(users, NoteUser | None, "user_id")
    maybe = batch_field(users, Perhaps | None, "user_id")
    optional = batch_field(users, NoteUser | None, "optional_id")
    parent = batch_field(names_of_notes, NoteUser | None, None)
    checked_author = batch_field(refuse_all, NoteUser | None, "user_id")
    faulty = batch_field(refuse_at_once, NoteUser | None, "user_id")
    short = batch_field(no_values, NoteUser | None, "user_id")
    unreadable = batch_field(users, NoteUser | None, "unreadable_id")
    unhashable = batch_field(users, NoteUser | None, "ids")
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
    assert world.calls == [["a", "b", "nobody"]]


@pytest.mark.parametrize("executor", [EagerStrawberryExecutor, CompilingStrawberryExecutor])
async def test_the_function_is_called_with_single_keys_unless_coroutines_start_at_once(executor: Any) -> None:
    world = UserReads(soon)
    result = await execute_with(executor, world, '{ notes(ids: ["a", "b"]) { author { name } } }')
    assert result.data == {"notes": [{"author": {"name": "A"}}, {"author": {"name": "B"}}]}
    assert world.calls == ([["a", "b"]] if executor.eager else [["a"], ["b"]])


async def test_lists_of_one_turn_wait_together_and_known_keys_are_not_read_again() -> None:
    text = """{
        one: later(ids: ["a", "b"]) { author { name } }
        other: notes(ids: ["b", "c"]) { author { name } }
    }"""
    world = UserReads(soon)
    result = await execute_with(EagerStrawberryExecutor, world, text)
    assert result.data == {
        "one": [{"author": {"name": "A"}}, {"author": {"name": "B"}}],
        "other": [{"author": {"name": "B"}}, {"author": {"name": "C"}}],
    }
    assert world.calls == [["b", "c"], ["a"]]


@pytest.mark.parametrize("field", ["checkedAuthor", "faulty", "short"])
async def test_a_fault_of_the_function_is_reported_at_each_position(field: str) -> None:
    text = "query Q($ids: [String!]!) { notes(ids: $ids) { userId " + field + " { name } } }"
    result = await execute_with(EagerStrawberryExecutor, UserReads(soon), text, {"ids": ["a", "b", "a"]})
    assert result.data == {"notes": [{"userId": user_id, field: None} for user_id in ("a", "b", "a")]}
    assert sorted(str(error.path) for error in result.errors or ()) == [str(["notes", n, field]) for n in range(3)]
    assert {error.message for error in result.errors or ()} == {FAULTS[field]}


async def test_the_parents_are_the_keys_if_there_is_no_attribute() -> None:
    text = "query Q($ids: [String!]!) { notes(ids: $ids) { parent { name } } }"
    variables = {"ids": ["a", "b", "", "a"]}
    expected = await execute_with(StrawberryGraphQLCoreExecutionContext, UserReads(soon), text, variables)
    found = await execute_with(EagerStrawberryExecutor, UserReads(soon), text, variables)
    assert found.data == expected.data == {"notes": [{"parent": {"name": name}} for name in ("a", "b", "", "a")]}


@pytest.mark.parametrize("conditions", ["", " @include(if: $x)"])
async def test_a_key_that_is_none_has_the_value_null(conditions: str) -> None:
    text = f"query Q($ids: [String!]!, $x: Boolean!) {{ notes(ids: $ids) {{ optional{conditions} {{ name }} }} }}"
    for ids, x in ((["a", "", "b"], True), ([""], True), (["a"], False)):
        world, variables = UserReads(soon), {"ids": ids, "x": x}
        expected = await execute_with(StrawberryGraphQLCoreExecutionContext, UserReads(soon), text, variables)
        found = await execute_with(EagerStrawberryExecutor, world, text, variables)
        assert found == expected
        assert world.reads.keys() == {key for key in ids if key and (x or not conditions)}


async def test_an_attribute_that_cannot_be_read_fails_at_its_position() -> None:
    text = "query Q($ids: [String!]!) { notes(ids: $ids) { userId unreadable { name } unhashable { name } } }"
    result = await execute_with(EagerStrawberryExecutor, UserReads(soon), text, {"ids": ["a", "b"]})
    assert result.data == {"notes": [{"userId": id, "unreadable": None, "unhashable": None} for id in ("a", "b")]}
    assert {error.message for error in result.errors or ()} == {"unreadable", "unhashable type: 'list'"}
    assert len(result.errors or ()) == 4


@pytest.mark.parametrize("ids", ["bab", "bb", "abb"])
async def test_a_failure_is_reported_at_each_position(ids: str) -> None:
    result = await execute_with(EagerStrawberryExecutor, UserReads(broken), NOTES, {"ids": list(ids)})
    assert sorted(str(error.path) for error in result.errors or ()) == [
        str(["notes", place, name]) for place, id in enumerate(ids) for name in ("author", "editor") if id == "b"
    ]
    assert result.data is not None
    assert [note["author"] for note in result.data["notes"]] == [None if id == "b" else {"name": "A"} for id in ids]


async def test_a_batch_goes_on_while_a_field_waits_for_one_of_its_keys() -> None:
    released = asyncio.Event()

    async def late(user_id: str) -> ReadPerson | None:
        await released.wait()
        return ReadPerson(user_id.upper())

    world = UserReads(late)
    answering = asyncio.ensure_future(execute_with(EagerStrawberryExecutor, world, CHECKED, {"ids": ["!a", "a", "!b"]}))
    for _ in range(10):
        await asyncio.sleep(0)
    assert world.reads == {"a": 1, "b": 1}
    released.set()
    result = await answering
    assert result.data == {"notes": [None, {"checked": "yes", "author": {"name": "A"}}, None]}
    assert world.cancelled == []


async def test_a_batch_is_abandoned_when_no_field_waits_for_it() -> None:
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
    result = await execute_with(EagerStrawberryExecutor, world, text, {"ids": ["!!a"], "later": ["a", "a"]})
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


async def test_a_value_becomes_null_while_its_fields_wait() -> None:
    text = 'query { notes(ids: ["c", "a", "c"]) { author { checked name } } }'
    expected = await execute_with(StrawberryGraphQLCoreExecutionContext, UserReads(broken), text)
    found = await execute_with(EagerStrawberryExecutor, UserReads(broken), text)
    assert (found.data, _errors(found)) == (expected.data, _errors(expected))


async def test_a_key_is_not_read_for_a_place_that_is_null_before_the_call() -> None:
    text = "query Q($ids: [String!]!) { notes(ids: $ids) { author { name } atOnce } }"
    world = UserReads(soon)
    result = await execute_with(EagerStrawberryExecutor, world, text, {"ids": ["!a", "b", "!c", "c"]})
    shown = [None if name is None else {"author": {"name": name}, "atOnce": "yes"} for name in (None, "B", None, "C")]
    assert result.data == {"notes": shown}
    assert [error.path for error in result.errors or ()] == [["notes", place, "atOnce"] for place in (0, 2)]
    assert world.calls == [["b", "c"]]


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
