"""The examples of GraphiQL: each names a declared access pattern and runs."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from websockets.sync.client import connect

from datastore.keyspace import PATTERNS
from server.http.graphiql import Example, examples
from tests.support.command_line import GatewayProcess
from tests.support.graphiql import gateway
from tests.support.until import until_blocking

__all__ = ["gateway"]

NAMES = {"user": "Demo user", "admin": "Admin", "system": "System"}

WATCH = 'mutation { createWatch(input: { area: "Downtown", category: "Cats" }) { id watchId } }'


# The examples


def pattern_ids(name: str) -> list[str]:
    return re.findall(r"^[A-Z]+-\w+", name)


def test_every_example_begins_with_the_id_of_a_declared_access_pattern() -> None:
    declared = {pattern.id for pattern in PATTERNS}
    assert [example.name for example in examples() if not set(pattern_ids(example.name)) & declared] == []


def test_every_access_pattern_that_clients_reach_has_an_example() -> None:
    shown = {id for example in examples() for id in pattern_ids(example.name)}
    assert {pattern.id for pattern in PATTERNS if pattern.fields} - shown == set()


@pytest.mark.proof
@pytest.mark.parametrize("example", examples(), ids=lambda example: example.name)
def test_every_example_runs(example: Example, gateway: GatewayProcess) -> None:
    token = gateway.token(NAMES[example.run_as or "user"])
    variables = example.variables if example.find is None else _found(example, gateway, token)
    if example.query.startswith("subscription"):
        assert _followed(example.query, variables, gateway, token)
        return
    answer = gateway.ask(example.query, token, variables)
    assert "errors" not in answer
    assert None not in answer["data"].values()


def test_changing_variables_are_found() -> None:
    pasted = [example for example in examples() if "paste" in json.dumps(example.variables)]
    assert [example.name for example in pasted if example.find is None] == []
    assert len(pasted) == 14


def _found(example: Example, gateway: GatewayProcess, token: str) -> dict[str, Any]:
    """Return the variables as the page finds them, once there is an item."""
    assert example.find is not None
    if "watches" in example.find:
        gateway.data(WATCH, token)
    found = None

    def find() -> bool:
        nonlocal found
        found = _first_with(set(example.variables or {}), gateway.data(example.find or "", token))
        return found is not None

    until_blocking(find, 20)
    assert found is not None
    return found


def _first_with(names: set[str], value: Any) -> dict[str, Any] | None:
    """Return the first nested object with all of these keys, reduced to them."""
    if isinstance(value, dict) and names <= value.keys():
        return {name: value[name] for name in names}
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((found for each in inner if (found := _first_with(names, each)) is not None), None)


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
