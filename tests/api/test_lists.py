"""The cursors of each list are bound to the list and to all of its arguments."""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from graphql import GraphQLField, GraphQLObjectType, get_named_type, is_required_argument

import schema as api
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.identity import Role
from datastore.session.cursors import binding
from resolvers.shared import paging
from tests.support.contract import PAGES
from tests.support.photo_items import ADA, EVE
from tests.support.served import Served
from tests.support.store_engines import ROOT

PAGING = {"first", "after", "last", "before"}
ROLES = {Who.ADMIN: Role.ADMIN, Who.SYSTEM: Role.SYSTEM}

# Two values of each argument of a list, which all lists with the argument accept. Others accept "one" and "two".
VALUES: dict[str, tuple[str, str]] = {
    "active": ("true", "false"),
    "area": ('"Downtown"', '"Harbor"'),
    "authorId": ('"ada"', '"grace"'),
    "day": ('"2026-06-24"', '"2026-06-25"'),
    "email": (f'"{ADA}"', f'"{EVE}"'),
    "from": ('"2026-06-24T00:00:00Z"', '"2026-06-25T00:00:00Z"'),
    "kind": ("EARTHQUAKE", "OTHER"),
    "leagueCode": ('"ONE"', '"TWO"'),
    "minMagnitude": ("1", "2"),
    "order": ("ASCENDING", "DESCENDING"),
    "personId": ('"p1"', '"p2"'),
    "postId": ('"p1"', '"p2"'),
    "query": ('"hello"', '"world"'),
    "seasonId": ('"1"', '"2"'),
    "tag": ('"cats"', '"dogs"'),
    "to": ('"2026-06-26T00:00:00Z"', '"2026-06-27T00:00:00Z"'),
    "type": ("QUERY", "INGEST"),
    "userId": ('"ada"', '"grace"'),
}
# Lists of which an argument has values of its own: ids that the gateway creates. No other argument names the user then.
OTHER_VALUES = {("photosByUser", "userId")}
BOOLEANS = ("true", "false")
# The argument chooses no other list: a cursor serves both values.
UNBOUND = {"consistent"}
# The list requires one of two arguments.
ONE_REQUIRED = {("photosByUser", "email")}

# The pattern of each list, and the bound values of its cursors.
BOUND = {name: bound for page in PAGES for name, bound in page.cursors.items()}


def values_of(argument: str) -> tuple[str, str]:
    return VALUES.get(argument, ('"one"', '"two"'))


def with_values(text: str) -> str:
    """Return a bound value with the values of arguments in place of `<argument>`."""
    return re.sub(r"<(\w+)>", lambda argument: values_of(argument[1])[0], text)


def list_fields() -> Iterator[tuple[str, GraphQLField]]:
    """Yield the lists among the queries."""
    query = api.build()._schema.query_type
    assert isinstance(query, GraphQLObjectType)
    for name, field in query.fields.items():
        fields = getattr(get_named_type(field.type), "fields", {})
        if {"nodes", "pageInfo"} <= fields.keys():
            yield name, field


LISTS = dict(list_fields())
ARGUMENTS = [
    (name, argument)
    for name, field in LISTS.items()
    for argument in field.args
    if argument not in PAGING | UNBOUND and (name, argument) not in OTHER_VALUES
]


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the bindings of the cursors that are opened from now on."""
    bindings: list[bytes] = []

    def recorded(field: str, arguments: Mapping[str, Any]) -> bytes:
        bindings.append(binding(field, arguments))
        return bindings[-1]

    monkeypatch.setattr(paging, "binding", recorded)
    return bindings


async def binding_of(
    served: Served, bound: list[bytes], name: str, arguments: dict[str, str], *, in_variables: bool = False
) -> bytes:
    """Return the binding that the list opens a cursor with. `in_variables` sends the arguments as variables."""
    patterns: tuple[AccessPattern, ...] = LISTS[name].extensions["strawberry-definition"].metadata["patterns"]
    values = {**arguments, "after": '"none"'}
    declared = ", ".join(f"${argument}: {LISTS[name].args[argument].type}" for argument in values)
    given = ", ".join(f"{argument}: {f'${argument}' if in_variables else value}" for argument, value in values.items())
    head = f"query ({declared}) " if in_variables else ""
    bound.clear()

    answer = await served.ask(
        f"{head}{{ {name}({given}) {{ pageInfo {{ endCursor }} }} }}",
        {
            argument: json.loads(value if value[0] in '"0123456789' or value in BOOLEANS else f'"{value}"')
            for argument, value in values.items()
        },
        user="ada",
        role=ROLES.get(patterns[0].who, Role.ADMIN),
        email=ADA,
    )

    assert answer.codes == ["BAD_CURSOR"], (
        f"`{name}({given})` does not open its cursor: write values of its arguments into VALUES of "
        f"tests/api/test_lists.py. {answer}"
    )
    (binding,) = bound
    return binding


def is_required(name: str, argument: str) -> bool:
    definition = LISTS[name].args[argument]
    return is_required_argument(definition) or (name, argument) in ONE_REQUIRED


def arguments_of(name: str) -> dict[str, str]:
    arguments = [argument for argument in LISTS[name].args if (name, argument) in ARGUMENTS]
    return {argument: values_of(argument)[0] for argument in arguments}


@pytest.mark.parametrize("name", LISTS)
async def test_the_cursors_of_earlier_releases_stay_valid(served: Served, bound: list[bytes], name: str) -> None:
    arguments = arguments_of(name)
    required = {argument: value for argument, value in arguments.items() if is_required(name, argument)}

    bindings = [await binding_of(served, bound, name, given) for given in (arguments, required)]

    pattern, *values = BOUND.get(name, ("new",))
    assert bindings == [f"{pattern} Query.{name}?{with_values(value)}".encode() for value in values], (
        f"State the binding of the new list `{name}` in `cursors` of the page of its system in "
        "tests/support/contract/. If the list is not new, add its new argument to the first binding, and leave out "
        "an argument that is null."
    )


@pytest.mark.parametrize("name", sorted({name for name, _ in ARGUMENTS}))
async def test_a_cursor_is_bound_to_each_argument(served: Served, bound: list[bytes], name: str) -> None:
    arguments = arguments_of(name)
    binding = await binding_of(served, bound, name, arguments, in_variables=True)

    for argument in arguments:
        other = {**arguments, argument: values_of(argument)[1]}
        assert await binding_of(served, bound, name, other, in_variables=True) != binding, (
            f"`{name}` accepts cursors of another `{argument}`: let its resolver call `connection_of(info, …)` of "
            "resolvers/shared/paging.py, and bind the argument under another name if it is in `replaces`."
        )


def test_resolvers_build_connections_with_the_helper() -> None:
    for source in (ROOT / "resolvers").rglob("*.py"):
        names = [node.func for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.Call)]
        built = any(isinstance(name, ast.Name) and name.id == "Connection" for name in names)

        assert not built or source.name == "paging.py", (
            f"{source.relative_to(ROOT)} builds a Connection: call `connection_of(info, …)` of "
            "resolvers/shared/paging.py, which binds all arguments into its cursors."
        )
