"""Asks a gateway for all items of the systems that `gateway.py new --from-table` generated, and compares them.

    python -m tests.support.described_tables URL TOKEN STORE PREFIX SYSTEM...

It prints the number of point reads and of lists. It runs in the project with the generated code.
"""

import asyncio
import importlib
import json
import re
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any
from urllib.request import Request, urlopen

from graphql import GraphQLObjectType
from strawberry.utils.str_converters import to_camel_case

import schema as api
from datastore.database import StoreOptions, open_database
from datastore.dynamodb.codec import Item
from datastore.items.stored_item import StoredItem
from datastore.model.access_patterns import AccessPattern, Table, patterns_of
from datastore.model.composite_keys import key_of, split
from tests.support.feed_changes import items_of

PAGING = {"first", "after", "last", "before"}


def query_fields() -> Mapping[str, Any]:
    query = api.build()._schema.query_type
    assert isinstance(query, GraphQLObjectType)
    return dict(query.fields)


class Api:
    """A client of the gateway."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}

    def read(self, field: str, arguments: Mapping[str, Any], selection: str) -> Any:
        """Return the value of a root field."""
        given = ", ".join(f"{name}: {json.dumps(value)}" for name, value in arguments.items())
        body = json.dumps({"query": f"{{ it: {field}{f'({given})' if given else ''} {{ {selection} }} }}"})
        with urlopen(Request(f"{self._url}/graphql", body.encode(), self._headers), timeout=20) as response:
            answer = json.load(response)
        assert "errors" not in answer, (field, given, answer)
        return answer["data"]["it"]

    def list(self, field: str, arguments: Mapping[str, Any], selection: str) -> list[Any]:
        """Return all nodes of a list, from pages of two."""
        nodes: list[Any] = []
        after = None
        while True:
            page = self.read(
                field,
                {**arguments, "first": 2, "after": after},
                f"nodes {{ {selection} }} pageInfo {{ hasNextPage endCursor }}",
            )
            nodes += page["nodes"]
            if not page["pageInfo"]["hasNextPage"]:
                return nodes
            after = page["pageInfo"]["endCursor"]


def stored_fields(kind: type[StoredItem], item: Item) -> dict[str, Any]:
    """Return the fields of an item as they are stored, without the declared decoder."""
    form = kind.__declaration__.key
    parts = dict(zip(form.parameters, form.parts(key_of(form.table, item)), strict=True))
    stored = {name: item.get(attribute.name) for name, attribute in kind.__declaration__.attributes.items()}
    return {to_camel_case(name): plain(parts.get(name, value)) for name, value in stored.items()}


def plain(value: Any) -> Any:
    """Return a value in the form in which stored and returned values are compared. Times are epoch seconds."""
    if isinstance(value, str):
        is_time = re.match(r"\d{4}-\d\d-\d\dT", value)
        return datetime.fromisoformat(value).timestamp() if is_time else value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, dict):
        return {name: plain(value[name]) for name in sorted(value)}
    if isinstance(value, set):
        return sorted(map(plain, value))
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def lists_of(patterns: tuple[AccessPattern, ...], kind: type[StoredItem]) -> Iterator[tuple[AccessPattern, str]]:
    """Yield the lists of a kind: the pattern of its Query and the field."""
    for pattern in patterns:
        for field in pattern.fields:
            if pattern.operations == ("Query",) and type_of_nodes(field) == kind.__name__:
                yield pattern, field


def type_of_nodes(field: str) -> str:
    kind: Any = query_fields()[field].type
    return str(kind).removesuffix("!").removesuffix("Connection")


def list_arguments(field: str, partition: str) -> dict[str, str]:
    """Return the arguments of a list for a partition: the parts of its key that are no words in upper case."""
    names = [name for name in query_fields()[field].args if name not in PAGING]
    values = [part for part in split(partition) if not re.fullmatch("[A-Z_]+", part)]
    return dict(zip(names, values, strict=True)) if names else {}


def in_order(values: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return values in an order that does not depend on the keys of an index."""
    return sorted(values, key=lambda value: repr(sorted(value.items())))


async def compare_items(gateway: Api, store: StoreOptions, system: str) -> tuple[int, int]:
    """Compare all items of a system's table with the responses. Return the numbers of point reads and of lists."""
    keys = importlib.import_module(f"datastore.keyspace.{system}")
    records = importlib.import_module(f"datastore.{system}.{system}")
    table: Table = getattr(keys, system.upper())
    async with open_database(store) as database:
        items = await items_of(database, table)
    kinds = [each for each in vars(records).values() if getattr(each, "__module__", "") == records.__name__]
    kinds = [each for each in kinds if issubclass(each, StoredItem)]
    reads = lists = 0
    for kind in kinds:
        form = kind.__declaration__.key
        own = [item for item in items if form.is_form_of(key_of(table, item))]
        wanted = {id(item): stored_fields(kind, item) for item in own}
        selection = " ".join(next(iter(wanted.values())))
        for item in own:
            arguments = dict(zip(map(to_camel_case, form.parameters), form.parts(key_of(table, item)), strict=True))
            found = gateway.read(to_camel_case(form.__name__), arguments, selection)
            assert plain(found) == wanted[id(item)], (system, found, item)
            reads += 1
        for pattern, field in lists_of(patterns_of(keys), kind):
            keys_of_list = table.index(pattern.index) if pattern.index else table
            partition = keys_of_list.partition
            for value in {item[partition] for item in own if partition in item}:
                members = [item for item in own if item.get(partition) == value]
                found = gateway.list(field, list_arguments(field, value), selection)
                assert in_order(plain(found)) == in_order([wanted[id(item)] for item in members]), field
                lists += 1
    assert reads == len(items), f"{system}: {reads} of {len(items)} items are read."
    return reads, lists


async def main(url: str, token: str, address: str, prefix: str, *systems: str) -> None:
    gateway, store = Api(url, token), StoreOptions(store=address, prefix=prefix)
    for system in systems:
        reads, lists = await compare_items(gateway, store, system)
        print(f"{system}: {reads} point reads, {lists} lists")
        assert reads > 0


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
