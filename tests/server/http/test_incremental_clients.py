"""Apollo Client, in both formats, and Relay with `@defer` and `@stream`."""

import json
from pathlib import Path
from typing import Any

import pytest

import schema as api
from server.settings import Settings
from tests.support.incremental import with_increments
from tests.support.node_client import run_node_script
from tests.support.served import Served
from tests.support.sightings import report_sighting

DEFERRED = """query Harbor {
  sightings(area: "Harbor", first: 10) {
    __typename
    nodes { __typename id reporter { __typename id } ...Harbor_tier @defer(label: "tier") }
  }
}
fragment Harbor_tier on Sighting { __typename reporter { __typename id trustTier } }"""
STREAMED = """query Streamed {
  sightings(area: "Harbor", first: 10) {
    __typename
    nodes @stream(label: "all", initialCount: 1) { __typename id reporter { __typename id trustTier } }
  }
}"""


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return with_increments(settings)


async def seen_by(served: Served, client: str, query: str, folder: Path) -> list[Any]:
    """Return the states that a client shows. It must not complain."""
    for user in ("ada", "ben", "cleo"):
        await report_sighting(served, area="Harbor", category="Cats", user=user)
    (folder / "operations.json").write_text(json.dumps([query]))
    (folder / "api.graphql").write_text(api.build(incremental=True).as_str())
    given = {"url": f"{served.url}/graphql", "token": served.token("ada"), "folder": str(folder)}
    *states, end = await run_node_script(
        "incremental.js", client=client, query=query, schema=str(folder / "api.graphql"), **given
    )
    assert end == {"complaints": [], "error": None}
    return states


@pytest.mark.parametrize("client", ["apollo2022", "apollo"])
async def test_apollo_shows_a_deferred_fragment_later(served: Served, client: str, tmp_path: Path) -> None:
    states = await seen_by(served, client, DEFERRED, tmp_path)
    assert [state["dataState"] for state in states] == ["streaming", "complete"]
    first, last = ([node["reporter"] for node in state["data"]["sightings"]["nodes"]] for state in states)
    assert len(first) == len(last) == 3
    assert not any("trustTier" in reporter for reporter in first)
    assert {reporter["trustTier"] for reporter in last} == {"BRONZE"}


@pytest.mark.parametrize("client", ["apollo2022", "apollo"])
async def test_apollo_shows_a_streamed_list_grow(served: Served, client: str, tmp_path: Path) -> None:
    states = await seen_by(served, client, STREAMED, tmp_path)
    assert [len(state["data"]["sightings"]["nodes"]) for state in states] == [1, 3]
    assert {node["reporter"]["trustTier"] for node in states[-1]["data"]["sightings"]["nodes"]} == {"BRONZE"}


async def test_relay_shows_a_deferred_fragment_later(served: Served, tmp_path: Path) -> None:
    states = await seen_by(served, "relay", DEFERRED, tmp_path)
    assert states[0]["fragments"] == [[None]] * 3
    assert [[tier["reporter"]["trustTier"] for tier in node] for node in states[-1]["fragments"]] == [["BRONZE"]] * 3


async def test_relay_shows_a_streamed_list_grow(served: Served, tmp_path: Path) -> None:
    states = await seen_by(served, "relay", STREAMED, tmp_path)
    assert [len(state["data"]["sightings"]["nodes"]) for state in (states[0], states[-1])] == [1, 3]
