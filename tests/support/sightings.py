"""Sightings, reported and confirmed through the API."""

from collections.abc import Sequence
from typing import Any

from datastore.keyspace.sightings import BLIP
from tests.support.served import Answer, Served

REPORT = """
mutation ($area: String!, $category: String!) {
  reportSighting(input: {area: $area, category: $category, description: " A tabby on the steps "}) {
    id sightingId area category description reporterId trustTier reportedAt expiresAt
    confirmationCount confidence freshness
  }
}
"""
CONFIRM = """
mutation ($area: String!, $id: ID!) {
  confirmSighting(area: $area, sightingId: $id) { sightingId confirmationCount confidence freshness }
}
"""


async def report_sighting(
    served: Served, area: str = "Downtown", category: str = "Cats", user: str = "ada"
) -> dict[str, Any]:
    answer = await served.ask(REPORT, {"area": area, "category": category}, user=user)
    assert answer.errors is None, answer.errors
    sighting: dict[str, Any] = answer.data["reportSighting"]
    return sighting


async def confirm_sighting(served: Served, sighting: dict[str, Any], user: str) -> Answer:
    return await served.ask(CONFIRM, {"area": sighting["area"], "id": sighting["sightingId"]}, user=user)


async def put_sightings(served: Served, items: Sequence[dict[str, Any]]) -> None:
    """Store items of `blip` as they are."""
    await served.store().write_all(BLIP, puts=items)
