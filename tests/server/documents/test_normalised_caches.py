"""Clients with normalised caches read from their cache what the gateway has sent, without a warning."""

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from server.http.graphiql import Example, examples
from tests.support.command_line import GatewayProcess, run_command, serve_process
from tests.support.example_runs import find_variables, token_of, with_fields
from tests.support.node_client import NodeScript, running_script
from tests.support.served import Served
from tests.support.sightings import report_sighting
from tests.support.store_engines import ROOT

pytestmark = [pytest.mark.proof, pytest.mark.timeout(240)]
SCHEMA = str(ROOT / "schema" / "api.graphql")
CLIENTS = ("apollo", "urql", "relay")
REPORT = """mutation {
  reportSighting(input: { area: "Downtown", category: "Cats", description: "A cat" }) { id }
}"""
FOLLOW = 'mutation { follow(userId: "admin") { id } }'
POST = 'mutation { createPost(input: { text: "Hello", visibility: PUBLIC }) { postId } }'
# Causes an event of each subscription that begins without one, as the demo user or as an admin.
CAUSES = {
    "sightingReported": ("Demo user", REPORT),
    "watchAlerts": ("Admin", REPORT),
    "homeFeedUpdated": ("Admin", POST),
    "notificationReceived": ("Admin", 'mutation { createComment(postId: "demo-1", input: { text: "Hm" }) { id } }'),
    "livestreamChanged": (
        "Admin",
        'mutation { createLivestream(input: { title: "A", streamUrl: "https://example.com/a",'
        ' startTime: "2030-01-01T00:00:00Z" }) { id } }',
    ),
}
# graphcache forgets the other objects of a type when a mutation returns an object that it does not know: of two objects
# that one mutation creates, the first is lost.
LOST = {"urql": {"LG-4 Store two leagues"}}
numbers = count()


async def test_a_lost_field_and_an_object_without_id_are_noticed(served: Served, tmp_path: Path) -> None:
    """The clients complain where the test of the examples expects them not to."""
    await report_sighting(served)
    query = 'query Sightings { sightings(area: "Downtown") { nodes { id description } } }'
    (tmp_path / "operations.json").write_text(json.dumps([query]))
    asked = {"query": query, "token": served.token()}
    for name in CLIENTS:
        async with cache_client(name, f"{served.url}/graphql", tmp_path) as client:
            await client.tell(asked)
            assert (await client.said())["complaints"] == []
            await client.tell(asked | {"lost": "description", "token": served.token("bob")})  # with an empty cache
            assert "description" in str((await client.said())["complaints"]), name
            if name == "urql":
                await client.tell(asked | {"query": query.replace("id ", "")})
                assert "no key" in str((await client.said())["complaints"])


def cache_client(name: str, url: str, folder: Path) -> AbstractAsyncContextManager[NodeScript]:
    """Run a client. Relay compiles the documents in `operations.json` of the folder."""
    return running_script("normalised-cache.js", client=name, url=url, schema=SCHEMA, folder=str(folder))


@pytest.mark.parametrize("name", CLIENTS)
async def test_every_example_is_read_from_the_cache_as_received(name: str, tmp_path: Path) -> None:
    """Each client has a gateway of its own, because some examples delete items of the demo."""
    documents = [with_fields(example.query, "id") for example in examples()]
    (tmp_path / "operations.json").write_text(json.dumps(documents))
    with serve_process(tmp_path / "data", "--memory") as gateway:
        gateway.data(FOLLOW, gateway.token())
        async with cache_client(name, f"{gateway.url}/graphql", tmp_path) as client:
            wrong = {}
            for example, query in zip(examples(), documents, strict=True):
                variables = await asyncio.to_thread(find_variables, example, gateway)
                await client.tell({"query": query, "variables": variables, "token": token_of(example, gateway)})
                said = await answer(client, example, gateway, tmp_path)
                if not is_as_received(said):
                    wrong[example.name] = said
    assert wrong.keys() == LOST.get(name, set()), wrong


def is_as_received(said: dict[str, Any]) -> bool:
    """Return whether the client delivered the response, reads it from its cache, and wrote nothing to the console."""
    found = [without_type_names(said[way]) for way in ("delivered", "read") if way in said]
    expected = without_type_names(said["received"]["data"])
    return bool(found) and all(data == expected for data in found) and not said["complaints"]


def without_type_names(data: Any) -> Any:
    """Remove `__typename`, which clients select in addition, and hide in different ways."""
    if isinstance(data, list):
        return [without_type_names(each) for each in data]
    if isinstance(data, dict):
        return {name: without_type_names(each) for name, each in data.items() if name != "__typename"}
    return data


async def answer(client: NodeScript, example: Example, gateway: GatewayProcess, folder: Path) -> Any:
    """Return what the script says. Cause events of a subscription until one has arrived."""
    answered = asyncio.create_task(client.said(60))
    while not answered.done():
        if example.query.startswith("subscription"):
            await asyncio.to_thread(cause_event, example, gateway, folder)
        await asyncio.wait({answered}, timeout=0.5)
    return answered.result()


def cause_event(example: Example, gateway: GatewayProcess, folder: Path) -> None:
    for field, (user, mutation) in CAUSES.items():
        if field in example.query:
            gateway.data(mutation, gateway.token(user))
    if "earthquakeDetected" in example.query:
        file = folder / "earthquakes.json"
        file.write_text(json.dumps({"type": "FeatureCollection", "metadata": {}, "features": [earthquake()]}))
        done = run_command("ingest", "earthquakes", file, "--memory", "--data-dir", gateway.folder)
        assert done.returncode == 0, done.stderr


def earthquake() -> dict[str, Any]:
    """Return a new event at Fiji."""
    now = int(datetime.now(UTC).timestamp() * 1000)
    properties = {"mag": 5.5, "place": "Fiji", "time": now, "updated": now, "type": "earthquake", "net": "us"}
    geometry = {"type": "Point", "coordinates": [178.0, -17.0, 10.0]}
    return {"type": "Feature", "id": f"cache{next(numbers)}", "properties": properties, "geometry": geometry}
