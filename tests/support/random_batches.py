"""Random schemas whose fields are resolved in batches: keys, delays and failures."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from inspect import isawaitable
from random import Random
from typing import Any

import strawberry
from graphql import ExecutionResult, GraphQLSchema, OperationDefinitionNode, execute, parse, validate
from strawberry.schema.schema import StrawberryGraphQLCoreExecutionContext

from jit import operation_of
from tests.support.batches import batch_field
from tests.support.executor_differences import nulled
from tests.support.executors import EagerStrawberryExecutor


@dataclass(frozen=True)
class SharedWorld:
    """The data of the resolvers: the same for each reader with the same key, however often."""

    seed: int

    def rng(self, *about: str) -> Random:
        return Random(repr((self.seed, *about)))

    async def wait(self, *about: str) -> None:
        for _ in range(self.rng("turns", *about).choice((0, 0, 1, 2, 3, 6))):
            await asyncio.sleep(0)

    async def person(self, person_id: str) -> "SharedPerson | None":
        await self.wait("person", person_id)
        kind = self.rng("person", person_id).random()
        if kind < 0.15:
            raise ValueError(f"no {person_id}")
        if kind < 0.25:
            return None
        return SharedPerson(person_id, None if kind < 0.35 else person_id.upper())

    def things(self, of: str) -> list["SharedThing"]:
        rng = self.rng("things", of)
        return [
            SharedThing(f"{of}{number}", rng.choice("abc"), rng.choice("abc"), rng.choice([None, "a", "b"]))
            for number in range(rng.choice((0, 1, 2, 3, 4)))
        ]


@dataclass(frozen=True)
class SharedPerson:
    id: str
    name: str | None


@dataclass(frozen=True)
class SharedThing:
    id: str
    who: str
    other: str
    perhaps: str | None


Info = strawberry.Info[SharedWorld, None]


async def people_by_id(ids: Sequence[str], info: Info) -> Sequence[SharedPerson | BaseException | None]:
    return await asyncio.gather(*map(info.context.person, ids), return_exceptions=True)


async def owners(things: Sequence[SharedThing], info: Info) -> Sequence[SharedPerson | BaseException | None]:
    await info.context.wait("owners", *[thing.id for thing in things])
    return await asyncio.gather(*[info.context.person(thing.who) for thing in things], return_exceptions=True)


async def friends(
    ids: Sequence[str], info: Info, of: str, also: list[str] | None = None
) -> Sequence[SharedPerson | BaseException | None]:
    await info.context.wait("friends", *ids)
    if of == "nobody":
        raise ValueError("nobody has friends")
    persons = [f"{person_id} {of} {also}" for person_id in ids]
    return await asyncio.gather(*map(info.context.person, persons), return_exceptions=True)


def at_once_of(parent: strawberry.Parent[SharedThing], info: Info) -> str:
    if info.context.rng("at once", parent.id).random() < 0.3:
        raise ValueError(f"at once {parent.id}")
    return "at once"


async def later_of(parent: strawberry.Parent[SharedThing | SharedPerson], info: Info) -> str:
    await info.context.wait("later", parent.id)
    if info.context.rng("later", parent.id).random() < 0.3:
        raise ValueError(f"later {parent.id}")
    return "later"


async def things_of(parent: strawberry.Parent[Any], info: Info) -> list[SharedThing]:
    of = "root" if parent is None else f"{type(parent).__name__} {parent.id}"
    await info.context.wait("things", of)
    return info.context.things(of)


@strawberry.type(name="User")
class SharingUser:
    id: str
    name: str
    later = strawberry.field(resolver=later_of, graphql_type=str)
    things = strawberry.field(resolver=things_of, graphql_type=list["Item | None"])


@strawberry.type
class Item:
    id: str
    who = batch_field(people_by_id, SharingUser | None, "who")
    other = batch_field(people_by_id, SharingUser | None, "other")
    must = batch_field(people_by_id, SharingUser, "who")
    owner = batch_field(owners, SharingUser | None, None)
    friend = batch_field(friends, SharingUser | None, "perhaps")
    at_once = strawberry.field(resolver=at_once_of, graphql_type=str)
    later = strawberry.field(resolver=later_of, graphql_type=str)
    things = strawberry.field(resolver=things_of, graphql_type=list["Item | None"])
    strict = strawberry.field(resolver=things_of, graphql_type=list["Item"] | None)


@strawberry.type(name="Query")
class SharingQuery:
    things = strawberry.field(resolver=things_of, graphql_type=list[Item | None])
    strict = strawberry.field(resolver=things_of, graphql_type=list[Item] | None)


SCHEMA: GraphQLSchema = strawberry.Schema(SharingQuery)._schema
SELECTIONS = [
    "id",
    "who { name }",
    "who { id }",
    "other { id name }",
    "must { id }",
    "owner { id name }",
    "m: must { name }",
    "w: who { name id }",
    "l: who { later name }",
    "o: owner { name }",
    "atOnce",
    "later",
    'friend(of: "x") { name }',
    'n: friend(of: "nobody", also: ["y"]) { name }',
    "f: friend(of: $given, also: [$given]) { id }",
    "g: friend(of: $perhaps) { id later }",
    "__typename",
]
DECLARATIONS = {"$given": '$given: String! = "g"', "$perhaps": '$perhaps: String = "p"'}
# A variable with a default may be null at run time, where the argument is required.
VARIABLES: tuple[dict[str, Any], ...] = ({}, {"perhaps": None}, {"given": "z", "perhaps": "nobody"})


def random_text(seed: int) -> str:
    """Return a random operation, which may be invalid."""
    rng = Random(seed)
    first, second = [rng.choice(["things", "strict"]) for _ in range(2)]
    selected = f"{{ {first} {{ {_selection(rng, 2)} }} x: {second} {{ {_selection(rng, 1)} }} }}"
    declared = ", ".join(text for name, text in DECLARATIONS.items() if name in selected)
    return f"query Q({declared}) {selected}" if declared else selected


def _selection(rng: Random, depth: int) -> str:
    some = list(SELECTIONS)
    if depth:
        below = [_selection(rng, depth - 1) for _ in range(4)]
        some += [f"things {{ {below[0]} }}", f"strict {{ {below[1]} }}"]
        some += [f"r: owner {{ things {{ {below[1]} }} }}"]
        some += [f"p: who {{ name things {{ {below[2]} }} }}", f"q: other {{ things {{ {below[3]} }} }}"]
        some += [f"s: owner {{ things {{ {below[0]} }} name }}"]
    return " ".join(rng.sample(some, rng.randint(2, 7)))


async def difference_of(seed: int) -> str | None:
    """Return how the answers differ from graphql-core's, or None.

    Each runs twice: the second run knows the classes of values.
    """
    written = random_text(seed)
    document = parse(written)
    if validate(SCHEMA, document):
        return None
    world, variables = SharedWorld(seed), Random(seed).choice(VARIABLES)
    interpreter = StrawberryGraphQLCoreExecutionContext
    expected = await _seen(execute(SCHEMA, document, None, world, variables, executor_class=interpreter))
    (operation,) = document.definitions
    assert isinstance(operation, OperationDefinitionNode)
    compiled = operation_of(EagerStrawberryExecutor, SCHEMA, document, operation)
    for _ in range(2):
        found = await _seen(compiled.execute(world, variables))
        if found != expected:
            return f"seed {seed}: {written}\n{found}\nnot\n{expected}"
    return None


async def _seen(result: Any) -> tuple[str, set[tuple[Any, ...]]]:
    try:
        answer: ExecutionResult = await asyncio.wait_for(result, 50) if isawaitable(result) else result
    except (TimeoutError, asyncio.CancelledError) as error:
        return type(error).__name__, set()
    errors = [tuple(error.path or ()) for error in answer.errors or ()]
    # Which of several errors made a null around them is chance, and so is whether the others are reported.
    places = [(nulled(answer.data, path), path) for path in errors]
    received = [
        (place,) if place != path else (path, error.message)
        for (place, path), error in zip(places, answer.errors or (), strict=True)
    ]
    return repr(answer.data), set(received)
