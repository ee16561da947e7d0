"""Changes, sessions and devices for the tests of Live Activities."""

from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from datastore.database import Database
from datastore.dynamodb.retry.backoff import Backoff
from datastore.keyspace.matches.live_activities import ACTIVITIES_OF_USER, LIVE_ACTIVITIES
from datastore.keyspace.matches.live_activities import live_activity as session_key
from datastore.matches.cricket import MatchPhase, Result, ResultKind
from datastore.matches.cricket_events import CricketEvent, CricketEventKind
from datastore.matches.display import display_state
from datastore.matches.live_activities import LiveActivities
from datastore.model.composite_keys import key_attributes
from datastore.model.timestamps import iso
from datastore.session.metering import Deadline
from datastore.session.store import Store
from pipelines.matches.push.apns import ApnsPushService
from pipelines.matches.push.live_activities import LACoordinator
from pipelines.matches.push.push_queue import MatchChange
from tests.support.apns import LIMITS, credentials
from tests.support.apns_server import ApnsServer
from tests.support.display_states import NAMES, first, fixture_in_chase, in_chase, second
from tests.support.served import NOON, Clock

MATCH = fixture_in_chase(version=7)
FINISHED = replace(
    MATCH, version=9, phase=MatchPhase.FINISHED, result=Result(ResultKind.WIN, "Mumbai won"), innings=(first(),)
)


FAST_RETRIES = Backoff(initial=0.01, maximum=0.05, attempts=4)


def change(version: int = 7, *events: CricketEvent, at: datetime = NOON) -> MatchChange:
    """Return a change all of whose events may ring."""
    active = replace(in_chase(version, innings=(first(), second(113 + version))), events=events, updated_at=at)
    states = {team: display_state(MATCH, active, NAMES, team) for team in ("1", "2")}
    return MatchChange(MATCH, states, events, frozenset(event.event_id for event in events))


def event(kind: CricketEventKind, text: str = "", innings: int = 2) -> CricketEvent:
    return CricketEvent(f"m1:{kind}:{text}", kind, text or kind.value, innings=innings)


async def register(store: Store, *users: str) -> None:
    """Register a session for each user. Its token is the user's name."""
    for user in users:
        await LiveActivities(store, NOON).register(MATCH, user, "phone", user)


async def session(store: Store, user: str) -> dict[str, str | None]:
    values = {"partition": user}
    (item,) = [item async for item in store.query_all(ACTIVITIES_OF_USER, values)]
    return {name: item.get(name) for name in ("status", "endReason", "updateToken")}


def shown_by_token(server: ApnsServer) -> dict[str, list[str]]:
    """Return the pushes that each token received, in order."""
    shown: dict[str, list[str]] = {}
    for request in server.requests:
        state = request.aps["content-state"]
        shown.setdefault(request.token, []).append(f"{request.aps['event']} {state['team']['code']} {state['version']}")
    return shown


def rings(server: ApnsServer) -> list[tuple[int, str | None]]:
    """Return the version and the alert of each push."""
    return [
        (request.aps["content-state"]["version"], request.aps.get("alert", {}).get("body"))
        for request in server.requests
    ]


def session_item(user: str, token: str) -> dict[str, object]:
    return {
        **key_attributes(LIVE_ACTIVITIES, session_key("m1", user, "phone")),
        "userId": user,
        "deviceId": "phone",
        "updateToken": token,
        "status": "active",
        "sessionStartedAt": iso(NOON),
        "ttl": int((NOON + timedelta(hours=12)).timestamp()),
    }


@pytest.fixture
def open_store(database: Database) -> Callable[[], Store]:
    return lambda: Store(
        database.client, prefix=database.prefix, deadline=Deadline(30), token=lambda: "token", now=lambda: NOON
    )


@pytest.fixture
async def delivery(server: ApnsServer, clock: Clock) -> AsyncIterator[ApnsPushService]:
    delivery = ApnsPushService(credentials(server), clock, limits=LIMITS, verify=server.trust)
    yield delivery
    await delivery.aclose()


@pytest.fixture
async def coordinator(
    open_store: Callable[[], Store], delivery: ApnsPushService, clock: Clock
) -> AsyncIterator[LACoordinator]:
    coordinator = LACoordinator(open_store, delivery, clock, backoff=FAST_RETRIES)
    yield coordinator
    await coordinator.aclose(0)
