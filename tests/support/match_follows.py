"""Documents and steps for the tests of follows of matches."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from datastore.keyspace.matches.match_follows import MATCH_FOLLOWS
from datastore.matches.cricket import Match
from datastore.matches.fixtures import Fixtures
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.timestamps import to_seconds
from datastore.session.store import Store
from tests.support.served import NOON, Served

REMOVE = 'mutation { deleteMatchFollows(matchId: "m1") }'

ALL = AccessPattern("T-2", "", MATCH_FOLLOWS, ("Query",), Who.INTERNAL, key="matchId = :partition", consistent=True)


@pytest.fixture
async def match(served: Served) -> Match:
    """India (10) against Australia (20), two hours from noon."""
    return await schedule(served, NOON + timedelta(hours=2))


async def schedule(served: Served, start: datetime) -> Match:
    match = Match("m1", "L", "IPL", home_team_id="10", away_team_id="20", start_time=start)
    await Fixtures(served.store(), NOON).sync([match])
    return match


async def stored_follows(store: Store, match_id: str = "m1") -> list[dict[str, Any]]:
    return [item async for item in store.query_all(ALL, {"partition": match_id})]


async def put_follows(store: Store, numbers: range, match_id: str = "m1", **more: Any) -> None:
    """Store followers as they are."""
    items = [
        {
            "matchId": match_id,
            "userId": f"user-{number:04}",
            "teamId": "10",
            "createdAt": "2026-06-25T11:00:00.000Z",
            "expiresAt": to_seconds(NOON) + 1,
            **more,
        }
        for number in numbers
    ]
    await store.write_all(MATCH_FOLLOWS, puts=items)
