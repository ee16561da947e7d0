"""The eleven tables of matches as their document lists them, written by another program.

The document names keys, index keys and some attributes of each table; the items here have no others. The format of
stored scores is unknown.
"""

from datetime import timedelta
from typing import Any

from datastore.dynamodb.codec import encode_item
from datastore.keyspace.matches.active_matches import ACTIVE_MATCHES
from datastore.keyspace.matches.devices import DEVICES
from datastore.keyspace.matches.display_states import DISPLAY_STATES
from datastore.keyspace.matches.fixture_cache import FIXTURE_CACHE
from datastore.keyspace.matches.fixtures import FIXTURES
from datastore.keyspace.matches.leagues import LEAGUES
from datastore.keyspace.matches.live_activities import LIVE_ACTIVITIES
from datastore.keyspace.matches.locks import LOCKS
from datastore.keyspace.matches.match_follows import MATCH_FOLLOWS
from datastore.keyspace.matches.team_seasons import TEAM_SEASONS
from datastore.keyspace.matches.teams import TEAMS
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.fixtures import Fixtures
from datastore.model.access_patterns import Table
from datastore.model.identity import Role
from tests.support.active_matches import replay
from tests.support.answers import data_of
from tests.support.boto_client import boto_client
from tests.support.cricket_pipeline import PipelineInstance
from tests.support.fixture_steps import planned_match
from tests.support.moments import whole_seconds
from tests.support.served import NOON, Served

TOKEN = "d1" * 32
NOW, LATER = int(NOON.timestamp()), int((NOON + timedelta(hours=12)).timestamp())
FIXTURE = {"matchId": "m1", "leagueCode": "IPL", "startTime": whole_seconds(NOON)}
ACTIVE = {
    "matchId": "m1",
    "status": "active",
    "instanceId": "i-0abc",
    "lastTickAt": whole_seconds(NOON),
    "matchPhase": "INNINGS_1",
    "previousBallId": "0",
    "previousScore": {"runs": 12, "wickets": 0, "overs": "2.0"},
    "previousStatus": "1st Innings",
    "previousBatting": [{"name": "A Batter", "runs": 12}],
    "previousBowling": [],
    "last30Balls": [1, 4],
    "cooldowns": {"four": NOW},
}
ENDED = {"matchId": "m0", "status": "ended", "ttl": LATER}
SESSION = {
    "matchId": "m1",
    "userId#deviceId": "ada#phone",
    "userId": "ada",
    "updateToken": "aa11",
    "status": "active",
    "sessionStartedAt": whole_seconds(NOON),
    "ttl": LATER,
}
DEVICE = {"userId": "ada", "deviceToken": TOKEN, "platform": "iOS", "apnsToken": "ap1", "ttl": LATER}
FOLLOW = {"matchId": "m1", "userId": "ada", "teamId": "10", "createdAt": whole_seconds(NOON), "expiresAt": LATER}
DOCUMENT: list[tuple[Table, dict[str, Any]]] = [
    (FIXTURES, FIXTURE),
    (LIVE_ACTIVITIES, SESSION),
    (ACTIVE_MATCHES, ACTIVE),
    (ACTIVE_MATCHES, ENDED),
    (TEAMS, {"teamId": "10"}),
    (TEAM_SEASONS, {"seasonId": "s1", "teamId": "10"}),
    (LEAGUES, {"leagueId": "L", "active": True}),
    (DEVICES, DEVICE),
    (MATCH_FOLLOWS, FOLLOW),
    (LOCKS, {"lockKey": "match:m9", "owner": "i-0abc", "expiresAt": LATER}),
    (DISPLAY_STATES, {"cacheKey": "DISPLAY#m1#10", "ttl": LATER}),
    (FIXTURE_CACHE, {"matchId": "m1", "leagueId": "L", "startingAt": whole_seconds(NOON), "ttl": LATER}),
]


def write_match_items(served: Served, *items: tuple[Table, dict[str, Any]]) -> None:
    """Put items with boto3, as another program does."""
    assert served.gateway.database is not None
    client, prefix = boto_client(served.gateway.database), served.gateway.database.prefix
    for table, item in items:
        client.put_item(TableName=prefix + table.name, Item=encode_item(item))


async def data_as_system(served: Served, query: str) -> Any:
    return data_of(await served.ask(query, user="ops", role=Role.SYSTEM))


async def prepare_documents(served: Served, how: str) -> list[str]:
    """Store the document's items, alone or mixed with a match of this gateway, whose id is returned."""
    write_match_items(served, *DOCUMENT)
    if how == "alone":
        return []
    fixtures = Fixtures(served.store(), served.clock())
    (match,) = await fixtures.sync([planned_match("mine", start=NOON + timedelta(hours=1))])
    await ActiveMatches(served.store(), served.clock()).register(match)
    return ["mine"]


async def read_match_list(served: Served) -> None:
    """Let a pipeline read the list of matches once, as it does every five seconds."""
    instance = PipelineInstance(served, replay(served))
    await instance.orchestrator.reconcile()
    await instance.orchestrator.aclose()


def match_ids(nodes: Any) -> list[str]:
    return [node["matchId"] for node in nodes]


async def data_as(served: Served, query: str, user: str = "ada", role: Role = Role.USER) -> Any:
    """Return the data of a user's query, which must succeed."""
    return data_of(await served.ask(query, user=user, role=role))
