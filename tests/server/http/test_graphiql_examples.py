"""The examples of GraphiQL: each names a declared access pattern and runs."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from graphql import get_named_type, is_leaf_type
from websockets.sync.client import connect

from datastore.keyspace import PATTERNS
from server.http.graphiql import Example, examples
from tests.support.command_line import GatewayProcess
from tests.support.contract import PAGE_OF
from tests.support.example_runs import SCHEMA, find_variables, token_of, with_fields
from tests.support.graphiql import gateway
from tests.support.until import until_blocking

__all__ = ["gateway"]

# The examples


def pattern_ids(name: str) -> list[str]:
    return re.findall(r"^[A-Z]+-\w+", name)


def test_every_example_begins_with_the_id_of_a_declared_access_pattern() -> None:
    declared = {pattern.id for pattern in PATTERNS}
    assert [example.name for example in examples() if not set(pattern_ids(example.name)) & declared] == []


def test_every_access_pattern_that_clients_reach_has_an_example() -> None:
    shown = {id for example in examples() for id in pattern_ids(example.name)}
    assert {pattern.id for pattern in PATTERNS if pattern.fields} - shown == set()


def test_no_two_examples_have_the_same_title_or_operation_name() -> None:
    titles = [re.sub(r"^[A-Z]+-\w+ ", "", example.name).casefold() for example in examples()]
    names = [re.findall(r"^\w+ (\w+)", example.query)[0] for example in examples()]
    assert [text for listed in (titles, names) for text, count in Counter(listed).items() if count > 1] == []


def test_the_groups_have_names_of_their_own_in_plain_words() -> None:
    groups = list(dict.fromkeys(example.group for example in examples()))
    assert groups == [
        "Earthquakes",
        "Social feed",
        "Cricket: fixtures and scores",
        "Cricket: teams and leagues",
        "Cricket: follows and devices",
        "Cricket: widgets",
        "Photos and livestreams",
        "Street sightings",
    ]


PAGED = [example for example in examples() if "after: $after" in example.query]


@pytest.mark.parametrize("example", PAGED, ids=lambda example: example.name)
def test_an_example_that_pages_has_a_next_page_in_the_demo(example: Example, gateway: GatewayProcess) -> None:
    token = token_of(example, gateway)
    variables = find_variables(example, gateway)
    pages: list[Any] = []

    def has_two_pages() -> bool:
        """Read two pages. The demo's entries are stored while the gateway already serves."""
        pages[:] = [next(iter(gateway.data(example.query, token, variables).values()))]
        info = pages[0]["pageInfo"]
        if info["hasNextPage"]:
            after = {**(variables or {}), "after": info["endCursor"]}
            pages.append(next(iter(gateway.data(example.query, token, after).values())))
        return len(pages) == 2

    until_blocking(has_two_pages, 20)
    first, second = (page.get("nodes") or page["edges"] for page in pages)
    assert second
    assert [entry for entry in second if entry in first] == []


@pytest.mark.proof
@pytest.mark.parametrize("example", examples(), ids=lambda example: example.name)
def test_every_example_runs(example: Example, gateway: GatewayProcess) -> None:
    token = token_of(example, gateway)
    variables = find_variables(example, gateway)
    if example.query.startswith("subscription"):
        assert _followed(example.query, variables, gateway, token)
        return
    answer = gateway.ask(example.query, token, variables)
    assert "errors" not in answer
    missing = [field for field, value in answer["data"].items() if value is None]
    assert [field for field in missing if not PAGE_OF[field].is_stored_elsewhere] == []


QUERIES = [example for example in examples() if example.query.startswith("query")]


@pytest.mark.proof
@pytest.mark.parametrize("example", QUERIES, ids=lambda example: example.name)
def test_every_object_of_an_example_has_an_id_for_caches(example: Example, gateway: GatewayProcess) -> None:
    """A normalised cache stores each object under its id: objects with one id are of one type and agree."""
    token = token_of(example, gateway)
    variables = find_variables(example, gateway)
    answer = gateway.ask(with_fields(example.query, "id", "__typename"), token, variables)
    assert "errors" not in answer

    stored: dict[str, dict[str, Any]] = {}
    for found in _objects(answer["data"]):
        kind = SCHEMA.type_map[found["__typename"]]
        leaves = {name: value for name, value in found.items() if is_plain_leaf(kind, name)}
        known = stored.setdefault(found["id"], leaves)
        assert known["__typename"] == found["__typename"]
        # A match in play may change between two reads of a request.
        if not example.group.startswith("Cricket"):
            assert {name: known[name] for name in known.keys() & leaves.keys()} == {
                name: leaves[name] for name in known.keys() & leaves.keys()
            }


def is_plain_leaf(kind: Any, name: str) -> bool:
    """Return whether a name in a response is that of a leaf field without arguments."""
    field = kind.fields.get(name)
    return name == "__typename" or (field is not None and not field.args and is_leaf_type(get_named_type(field.type)))


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Return the objects with an id in a response."""
    if isinstance(value, dict):
        if "__typename" in value:
            yield value
        for each in value.values():
            yield from _objects(each)
    elif isinstance(value, list):
        for each in value:
            yield from _objects(each)


def test_changing_variables_are_found() -> None:
    pasted = [example for example in examples() if "paste" in json.dumps(example.variables)]
    assert pasted
    assert [example.name for example in pasted if example.find is None] == []


def _followed(query: str, variables: dict[str, Any] | None, gateway: GatewayProcess, token: str) -> bool:
    """Return whether the subscription continues without an error for a moment."""
    with _socket(gateway, token) as socket:
        payload = {"query": query, "variables": variables}
        socket.send(json.dumps({"id": "1", "type": "subscribe", "payload": payload}))
        try:
            message = json.loads(socket.recv(0.2))
        except TimeoutError:
            return True
        return bool(message["type"] in ("next", "ping") and "errors" not in message.get("payload", {}))


@contextmanager
def _socket(gateway: GatewayProcess, token: str) -> Iterator[Any]:
    url = gateway.url.replace("http", "ws") + "/graphql"
    with connect(url, subprotocols=["graphql-transport-ws"]) as socket:  # type: ignore[list-item]
        socket.send(json.dumps({"type": "connection_init", "payload": {"Authorization": f"Bearer {token}"}}))
        assert json.loads(socket.recv(5))["type"] == "connection_ack"
        yield socket
