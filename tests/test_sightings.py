"""Street sightings through the API, on the real engine."""

import asyncio
from datetime import timedelta

import pytest

from conftest import Served
from resolvers.access import Role

REPORT = """
mutation ($area: String!, $category: String!) {
  reportSighting(input: {area: $area, category: $category, description: "A tabby on the steps"}) {
    id sightingId area category description reporterId trustTier reportedAt expiresAt
    confirmationCount confidence freshness
  }
}
"""


async def report(served: Served, area: str = "Downtown", category: str = "Cats", user: str = "ada") -> dict:
    answer = await served.ask(REPORT, {"area": area, "category": category}, user=user)
    assert answer.errors is None, answer.errors
    return answer.data["reportSighting"]


async def test_an_area_lists_its_active_sightings_newest_first(served: Served) -> None:
    first = await report(served)
    served.clock.forward(seconds=1)
    second = await report(served)
    await report(served, area="Harbor")

    answer = await served.ask('{ sightings(area: "Downtown") { nodes { sightingId } lastEvaluatedKey } }')

    assert answer.errors is None
    assert answer.data == {
        "sightings": {
            "nodes": [{"sightingId": second["sightingId"]}, {"sightingId": first["sightingId"]}],
            "lastEvaluatedKey": None,
        }
    }
    assert answer.made == ["Query blip"]


async def test_reporters_of_a_page_are_read_in_one_batch(served: Served) -> None:
    for user in ("ada", "grace", "linus", "ada"):
        await report(served, user=user)
        served.clock.forward(seconds=1)

    answer = await served.ask('{ sightings(area: "Downtown") { nodes { reporter { userId reportTotal } } } }')

    assert [node["reporter"]["reportTotal"] for node in answer.data["sightings"]["nodes"]] == [2, 1, 1, 2]
    assert answer.made == ["BatchGetItem blip", "Query blip"]
    batch = next(call for call in answer.calls if call.operation == "BatchGetItem")
    ((_, entry),) = batch.request["RequestItems"].items()
    assert len(entry["Keys"]) == 3
