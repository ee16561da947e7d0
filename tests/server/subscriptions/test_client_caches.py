"""Clients whose normalised caches subscriptions and optimistic mutations keep current."""

import json
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from datastore.keyspace.feeds.table import FEED
from datastore.keyspace.sightings import BLIP
from tests.support.feed_items import post_item
from tests.support.feed_steps import create_profiles
from tests.support.match_updates import advance, register_at_version_1
from tests.support.node_client import NodeScript, running_script
from tests.support.served import Served
from tests.support.store_engines import ROOT

pytestmark = pytest.mark.proof
SCHEMA = str(ROOT / "schema" / "api.graphql")
REPORT = """mutation ($description: String!) {
  reportSighting(input: { area: "Harbor", category: "Cats", description: $description }) { id }
}"""
MATCH = "query Match($id: ID!) { match(id: $id) { id liveScore { id version note } } }"
UPDATES = """subscription Updates($id: ID!) {
  matchUpdates(matchId: $id) { id version liveScore { id version note } }
}"""
POST = "query Post($id: ID!) { post(id: $id) { id likeCount commentCount } }"
ENGAGEMENT = """subscription Engagement($id: ID!) {
  postEngagement(postId: $id) { id post { id likeCount commentCount } }
}"""


async def report_in_harbor(served: Served, *descriptions: str) -> None:
    for description in descriptions:
        answer = await served.ask(REPORT, {"description": description}, user="bob")
        assert answer.errors is None
        served.clock.forward(seconds=1)


def address(served: Served) -> dict[str, str]:
    """Return what each script needs to connect."""
    return {"url": f"{served.url}/graphql", "token": served.token(), "schema": SCHEMA}


async def until_said(client: NodeScript, wanted: Callable[[Any], bool]) -> list[Any]:
    """Return what the script says, up to the first value that satisfies `wanted`."""
    said = [await client.said()]
    while not wanted(said[-1]):
        said.append(await client.said())
    return said


async def assert_no_complaints(client: NodeScript) -> None:
    await client.tell(None)
    (last,) = await until_said(client, lambda said: "complaints" in said)
    assert last == {"complaints": []}


# Optimistic mutations


@pytest.mark.parametrize("name", ["apollo", "urql"])
async def test_a_like_is_shown_at_once_and_does_not_flicker(served: Served, name: str) -> None:
    """The response contains the caller's own like: the count does not fall back until a consumer has counted it."""
    await create_profiles(served, "ada", "bob")
    await served.store().write_all(FEED, puts=[post_item("p", "bob") | {"likes": 6}])

    async with running_script("optimistic-like.js", client=name, **address(served), post="p") as client:
        *shown, last = await client.everything()

    # urql also passes on states that equal the one before.
    assert [state for state, _ in groupby(shown)] == [[6, False], [7, True]]
    assert last == {"answered": [7, True], "complaints": []}


# Live lists


async def test_a_subscription_keeps_a_list_of_apollo_client_current(served: Served) -> None:
    """Pages that are fetched later are appended to the same list."""
    await report_in_harbor(served, "one", "two", "three")
    async with running_script(
        "live-list.js", client="apollo", **address(served), variables={"area": "Harbor"}
    ) as client:
        assert await client.said() == {"list": ["three", "two"], "requests": 1, "hasNextPage": True}
        await served.settle(BLIP)
        await report_in_harbor(served, "four")
        assert await client.said() == {"list": ["four", "three", "two"], "requests": 1, "hasNextPage": True}
        await client.tell("fetch more")
        assert await client.said() == {"list": ["four", "three", "two", "one"], "requests": 2, "hasNextPage": False}
        await assert_no_complaints(client)


async def test_a_subscription_over_sse_keeps_a_list_of_graphcache_current(served: Served) -> None:
    await report_in_harbor(served, "one")
    async with running_script("live-list.js", client="urql", **address(served), variables={"area": "Harbor"}) as client:
        # The subscription is a request, too.
        assert (await client.said())["list"] == ["one"]
        await served.settle(BLIP)
        await report_in_harbor(served, "two", "three")
        assert await client.said() == {"list": ["two", "one"], "requests": 2}
        assert await client.said() == {"list": ["three", "two", "one"], "requests": 2}
        await assert_no_complaints(client)


# Objects that a subscription updates in the cache


@pytest.mark.parametrize("name", ["apollo", "urql", "relay"])
async def test_match_updates_update_the_cached_match(served: Served, tmp_path: Path, name: str) -> None:
    await register_at_version_1(served, "m1")
    (tmp_path / "operations.json").write_text(json.dumps([MATCH, UPDATES]))
    given = {"query": MATCH, "subscription": UPDATES, "variables": {"id": "m1"}, "folder": str(tmp_path)}

    async with running_script("watched-query.js", client=name, **address(served), **given) as client:
        (first,) = await until_said(client, lambda said: "seen" in said)
        requests = first["requests"]
        await client.tell("follow")
        await until_said(client, lambda said: said.get("event", {}).get("matchUpdates", {}).get("version") == 1)
        await advance(served)
        said = [await client.said(), await client.said()]
        await assert_no_complaints(client)

    assert first["seen"]["match"]["liveScore"]["version"] == 1
    (seen,) = [each for each in said if "seen" in each]
    (event,) = [each for each in said if "event" in each]
    score = event["event"]["matchUpdates"]["liveScore"]
    assert (score["version"], score["note"]) == (2, "version 2")
    assert seen["seen"]["match"]["liveScore"] == score
    # urql's subscription is a request.
    assert seen["requests"] == requests + (name == "urql")


@pytest.mark.parametrize("name", ["apollo", "urql", "relay"])
async def test_post_engagement_updates_the_cached_post(served: Served, tmp_path: Path, name: str) -> None:
    await create_profiles(served, "ada", "bob")
    post = post_item("p", "bob")
    await served.store().write_all(FEED, puts=[post])
    (tmp_path / "operations.json").write_text(json.dumps([POST, ENGAGEMENT]))
    given = {"query": POST, "subscription": ENGAGEMENT, "variables": {"id": "p"}, "folder": str(tmp_path)}

    async with running_script("watched-query.js", client=name, **address(served), **given) as client:
        (first,) = await until_said(client, lambda said: "seen" in said)
        await client.tell("follow")
        await until_said(client, lambda said: "event" in said)
        await served.store().write_all(FEED, puts=[post | {"likes": 3, "comments": 2}])
        said = [await client.said(), await client.said()]
        await assert_no_complaints(client)

    assert (first["seen"]["post"]["likeCount"], first["seen"]["post"]["commentCount"]) == (0, 0)
    (seen,) = [each["seen"] for each in said if "seen" in each]
    (event,) = [each["event"] for each in said if "event" in each]
    assert (seen["post"]["likeCount"], seen["post"]["commentCount"]) == (3, 2)
    assert seen["post"] == event["postEngagement"]["post"]
