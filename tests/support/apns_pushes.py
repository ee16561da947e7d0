"""Display states and pushes for the tests of APNs."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from datastore.matches.cricket import MatchPhase
from datastore.matches.display import DisplayBatter, DisplayBowler, DisplaySide, DisplayState
from pipelines.matches.push.apns import ApnsLimits, ApnsPushService
from pipelines.matches.push.apns_payload import update
from pipelines.matches.push.push_service import Push, Sent
from tests.support.apns import LIMITS, credentials
from tests.support.apns_server import ApnsServer
from tests.support.served import NOON, Clock

TOKEN = "a1" * 32


def display(**changes: Any) -> DisplayState:
    state = DisplayState(
        match_id="m1",
        team_id="1",
        version=7,
        phase=MatchPhase.LIVE,
        status="2nd Innings",
        headline="MUM 120/3 (15.4)",
        situation="Mumbai need 34 from 26 balls",
        team=DisplaySide("1", "Mumbai", "MUM", score="120/3", overs="15.4", batting=True),
        opponent=DisplaySide("2", "Chennai", "CHE", score="153/6", overs="20"),
        start_time=NOON,
        updated_at=NOON,
        batters=(DisplayBatter("Rohit Sharma", 55, 38, on_strike=True), DisplayBatter("Suryakumar Yadav", 21, 14)),
        bowler=DisplayBowler("Ravindra Jadeja", "3.4", 0, 24, 2),
        recent="1 4 W . 6 2",
        target=154,
        required_runs=34,
        balls_left=26,
    )
    return replace(state, **changes)


UPDATE = update(display(), NOON)


async def pushes(count: int, settle: Callable[[Sent], Any] | None = None) -> AsyncIterator[Push]:
    for number in range(count):
        yield Push(f"{number:064x}", UPDATE, settle)


@pytest.fixture
async def make(server: ApnsServer, clock: Clock) -> AsyncIterator[Callable[..., ApnsPushService]]:
    deliveries: list[ApnsPushService] = []

    def make(limits: ApnsLimits = LIMITS) -> ApnsPushService:
        deliveries.append(ApnsPushService(credentials(server), clock, limits=limits, verify=server.trust))
        return deliveries[-1]

    yield make
    for delivery in deliveries:
        await delivery.aclose()


@pytest.fixture
def delivery(make: Callable[..., ApnsPushService]) -> ApnsPushService:
    return make()
