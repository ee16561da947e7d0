"""The contract of the API: the access pattern, the calls and the roles of each field, with an operation for each."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest
from aiohttp import web
from msgspec.structs import replace

from datastore.dynamodb.calls import Call
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.cricket import Match
from datastore.matches.fixtures import Fixtures
from datastore.model.access_patterns import Operation, Who
from datastore.model.identity import Role
from tests.support import photo_contract
from tests.support.served import NOON, Served

# Access pattern, field, operations and role of each field.
CONTRACT: list[tuple[str, str, set[Operation], Who]] = [
    ("BLIP-1", "sightings", {"Query"}, Who.ANY),
    ("BLIP-2", "userProfile", {"GetItem", "BatchGetItem"}, Who.ANY),
    ("BLIP-3", "watches", {"Query"}, Who.USER),
    ("BLIP-4", "trending", {"Query"}, Who.ANY),
    ("BLIP-5", "confirmSighting", {"Query", "TransactWriteItems"}, Who.USER),
    # The tier is copied onto the sighting, so the profile is read before the transaction.
    ("BLIP-6", "reportSighting", {"GetItem", "TransactWriteItems"}, Who.USER),
    ("BLIP-7", "createWatch", {"PutItem"}, Who.USER),
    ("BLIP-7", "deleteWatch", {"DeleteItem"}, Who.USER),
    ("BLIP-8", "seedDemo", {"TransactWriteItems"}, Who.ADMIN),
    ("BLIP-S1", "sightingReported", set(), Who.ANY),
    ("BLIP-S2", "watchAlerts", {"Query"}, Who.USER),
    ("FEED-001", "user", {"GetItem", "BatchGetItem"}, Who.ANY),
    # For posts for followers: whether the caller is one.
    ("FEED-002", "postsByAuthor", {"GetItem", "BatchGetItem", "Query"}, Who.ANY),
    # For authors with very many followers: their posts since the user follows them.
    ("FEED-003", "homeFeed", {"Query"}, Who.USER),
    ("FEED-004", "post", {"GetItem", "BatchGetItem"}, Who.ANY),
    # The post is read too: callers who may not see it get no likes.
    ("FEED-005", "likes", {"GetItem", "BatchGetItem", "Query"}, Who.ANY),
    ("FEED-006", "comments", {"GetItem", "BatchGetItem", "Query"}, Who.ANY),
    ("FEED-007", "postsByTag", {"GetItem", "BatchGetItem", "Query"}, Who.ANY),
    ("FEED-008", "followers", {"Query"}, Who.ANY),
    ("FEED-009", "notifications", {"Query"}, Who.USER),
    ("FEED-010", "topAuthors", {"GetItem", "BatchGetItem"}, Who.ANY),
    ("FEED-010", "trendingTags", {"GetItem", "BatchGetItem"}, Who.ANY),
    # The read checks that the author is a user.
    ("FEED-W1", "createPost", {"GetItem", "BatchGetItem", "TransactWriteItems"}, Who.USER),
    # The reads check that the caller has a profile and may see the post.
    ("FEED-W2", "likePost", {"GetItem", "BatchGetItem", "PutItem"}, Who.USER),
    ("FEED-W2", "unlikePost", {"DeleteItem"}, Who.USER),
    ("FEED-W3", "addComment", {"GetItem", "BatchGetItem", "PutItem"}, Who.USER),
    # The reads check that both users exist.
    ("FEED-W4", "follow", {"GetItem", "BatchGetItem", "TransactWriteItems"}, Who.USER),
    # The time of the follow is a part of its key, and is read first.
    ("FEED-W4", "unfollow", {"GetItem", "BatchGetItem", "TransactWriteItems"}, Who.USER),
    ("FEED-W5", "markNotificationRead", {"DeleteItem"}, Who.USER),
    ("FEED-W6", "createUser", {"PutItem"}, Who.USER),
    ("FEED-W6", "updateUser", {"UpdateItem"}, Who.USER),
    # If the deletion is refused, the post is read: the caller must be allowed to see it.
    ("FEED-W6", "deleteComment", {"GetItem", "BatchGetItem", "UpdateItem"}, Who.USER),
    # The tags are read first.
    ("FEED-W6", "deletePost", {"GetItem", "BatchGetItem", "TransactWriteItems"}, Who.USER),
    # The authors that are merged into the feed.
    ("FEED-S1", "homeFeedUpdated", {"Query"}, Who.USER),
    ("FEED-S1", "notificationReceived", set(), Who.USER),
    # The post, and for a post for followers whether the caller follows its author.
    ("FEED-S1", "postEngagement", {"GetItem", "BatchGetItem"}, Who.ANY),
    # Besides the puts: the state of the last ingest is read and stored.
    # The bound of the day's magnitudes is raised before an event is stored.
    ("QUAKE-1", "ingestEarthquakes", {"GetItem", "PutItem", "UpdateItem"}, Who.SYSTEM),
    ("QUAKE-2", "earthquakes", {"Query"}, Who.ANY),
    ("QUAKE-4", "requestLogs", {"Query"}, Who.ADMIN),
    ("QUAKE-5", "earthquake", {"GetItem", "BatchGetItem"}, Who.ANY),
    ("QUAKE-6", "earthquakeStatistics", {"GetItem", "BatchGetItem", "Query"}, Who.ANY),
    ("QUAKE-S1", "earthquakeDetected", set(), Who.ANY),
    ("FIX-1", "match", {"GetItem", "BatchGetItem"}, Who.ANY),
    ("FIX-2", "matches", {"GetItem", "BatchGetItem"}, Who.ANY),
    ("FIX-3", "matchesByLeague", {"Query"}, Who.ANY),
    # A put would remove the live state, so that played matches are read first and updated.
    ("FIX-4", "syncFixtures", {"GetItem", "BatchGetItem", "BatchWriteItem", "UpdateItem"}, Who.SYSTEM),
    ("FIX-5", "updateFixture", {"UpdateItem"}, Who.SYSTEM),
    ("FIX-6", "archiveFixture", {"UpdateItem"}, Who.SYSTEM),
    ("AM-1", "activeMatch", {"GetItem", "BatchGetItem"}, Who.SYSTEM),
    ("AM-2", "activeMatches", {"Scan"}, Who.SYSTEM),
    ("AM-2", "liveMatches", {"Query"}, Who.ANY),
    # The state of an inactive match is read first: the new one continues from it.
    ("AM-3", "registerActiveMatch", {"GetItem", "PutItem"}, Who.SYSTEM),
    ("AM-6", "deactivateMatch", {"UpdateItem"}, Who.SYSTEM),
    ("AM-7", "deleteActiveMatch", {"DeleteItem"}, Who.SYSTEM),
    ("LOCK-4", "locks", {"Scan"}, Who.SYSTEM),
    ("CRIC-S1", "matchUpdates", {"GetItem"}, Who.ANY),
    ("CRIC-S2", "liveScores", {"Scan"}, Who.ANY),
    ("TM-1", "team", {"GetItem", "BatchGetItem"}, Who.ANY),
    ("TM-2", "teams", {"Scan"}, Who.ANY),
    ("TM-3", "syncTeams", {"BatchWriteItem"}, Who.SYSTEM),
    ("TM-4", "updateTeam", {"UpdateItem"}, Who.ADMIN),
    ("TS-1", "seasonTeams", {"Query"}, Who.ANY),
    ("TS-2", "syncTeamSeasons", {"BatchWriteItem"}, Who.SYSTEM),
    ("LG-1", "league", {"GetItem", "BatchGetItem"}, Who.ANY),
    ("LG-2", "leagues", {"Scan"}, Who.ANY),
    ("LG-3", "leagues", {"Scan"}, Who.ANY),
    ("LG-4", "putLeague", {"PutItem"}, Who.SYSTEM),
    ("LG-5", "updateLeague", {"UpdateItem"}, Who.ADMIN),
    ("LG-6", "deleteLeague", {"DeleteItem"}, Who.ADMIN),
    ("LA-2", "liveActivities", {"Query"}, Who.USER),
    # The match must be there, and the user must not have sessions of it on too many devices.
    ("LA-3", "registerLiveActivity", {"GetItem", "Query", "UpdateItem"}, Who.USER),
    ("LA-4", "updateLiveActivityToken", {"UpdateItem"}, Who.USER),
    ("LA-5", "endLiveActivity", {"UpdateItem"}, Who.USER),
    ("LA-6", "suspendLiveActivity", {"UpdateItem"}, Who.SYSTEM),
    ("DEV-1", "device", {"Query"}, Who.USER),
    ("DEV-2", "registerDevice", {"Query", "DeleteItem", "UpdateItem"}, Who.USER),
    ("DEV-3", "updatePushToStartToken", {"GetItem", "UpdateItem"}, Who.USER),
    ("DEV-4", "deleteDevice", {"DeleteItem"}, Who.USER),
    ("FOL-1", "matchFollow", {"GetItem", "BatchGetItem"}, Who.USER),
    # The match is read first: the expiry of a follow depends on its start.
    ("FOL-3", "followMatch", {"GetItem", "UpdateItem"}, Who.USER),
    ("FOL-4", "unfollowMatch", {"DeleteItem"}, Who.USER),
    ("FOL-5", "updateMatchFollow", {"UpdateItem"}, Who.USER),
    ("FOL-6", "removeMatchFollows", {"Query", "BatchWriteItem"}, Who.SYSTEM),
    # A missing state is built from the match, its live state, the teams and the league, and stored.
    ("DSC-1", "displayState", {"GetItem", "BatchGetItem", "PutItem"}, Who.ANY),
]
CONTRACT += photo_contract.CONTRACT
# An operation for each field with its role, and the exact calls that it makes. SETUP and SYSTEM_SETUP create what it
# needs; the ids from SETUP replace %s.
SETUP = """mutation {
  reportSighting(input: {area: "Downtown", category: "Cats", description: "x"}) { sightingId }
  createWatch(input: {area: "Downtown", category: "Cats"}) { watchId }
  createUser(input: {name: "Ada"}) { userId }
  createPost(input: {postId: "p1", text: "Hello #cats, dear @grace"}) { postId }
}"""
SYSTEM_SETUP = """mutation {
  syncTeams(teams: [{teamId: "1", name: "One", code: "ONE"}]) { teamId }
  putLeague(input: {leagueId: "1", name: "One", code: "ONE"}) { leagueId }
}"""
OTHER_SETUP = """mutation {
  createUser(input: {name: "Grace"}) { userId }
}"""
# Needs the match `m1` and the user `grace`.
FOLLOWER_SETUP = """mutation {
  follow(userId: "grace") { userId }
  followMatch(matchId: "m1", teamId: "10") { teamId }
  registerDevice(
    input: {deviceToken: "11111111111111111111111111111111", platform: IOS, osVersion: "26.1", appVersion: "3.0"}
  ) { platform }
  registerLiveActivity(matchId: "m1", deviceId: "phone", updateToken: "11111111111111111111111111111111") { status }
}"""
REPORT_AGAIN = """mutation {
  reportSighting(input: {area: "Harbor", category: "Cats", description: "x"}) { sightingId }
}"""
BY_GRACE = {"confirmSighting", "follow"}  # ada sends the others
ASK: dict[str, tuple[str, Role, list[str]]] = {
    "sightings": ('{ sightings(area: "Downtown") { nodes { area } } }', Role.USER, ["Query blip"]),
    "userProfile": ('{ userProfile(userId: "ada") { userId } }', Role.USER, ["GetItem blip"]),
    "watches": ('{ watches(userId: "ada") { watchId } }', Role.USER, ["Query blip"]),
    "trending": ("{ trending { score sightings { nodes { area } } } }", Role.USER, ["Query blip.TrendingIndex"] * 5),
    "confirmSighting": (
        'mutation { confirmSighting(area: "Downtown", sightingId: "%s") { area } }',
        Role.USER,
        ["Query blip", "TransactWriteItems blip"],
    ),
    "reportSighting": (REPORT_AGAIN, Role.USER, ["GetItem blip", "TransactWriteItems blip"]),
    "createWatch": (
        'mutation { createWatch(input: {area: "Harbor", category: "Cats"}) { area } }',
        Role.USER,
        ["PutItem blip"],
    ),
    "deleteWatch": (
        'mutation { deleteWatch(area: "Downtown", category: "Cats", watchId: "%s") { area } }',
        Role.USER,
        ["DeleteItem blip"],
    ),
    "seedDemo": ("mutation { seedDemo { area } }", Role.ADMIN, ["TransactWriteItems blip"]),
    "user": ('{ user(id: "ada") { name postCount } }', Role.USER, ["GetItem feed"]),
    "post": ('{ post(id: "p1") { text mentions likeCount } }', Role.USER, ["GetItem feed"]),
    "postsByAuthor": (
        '{ postsByAuthor(authorId: "grace") { nodes { text likeCount } } }',
        Role.USER,
        ["Query feed.GSI1"],
    ),
    "postsByTag": ('{ postsByTag(tag: "#Cats") { nodes { text } } }', Role.USER, ["Query feed.GSI2"]),
    "createUser": ('mutation { createUser(input: {name: "Ada"}) { name } }', Role.USER, ["PutItem feed"]),
    "updateUser": ('mutation { updateUser(input: {name: "Ada"}) { name } }', Role.USER, ["UpdateItem feed"]),
    "createPost": (
        'mutation { createPost(input: {text: "Hello #dogs"}) { text tags likeCount } }',
        Role.USER,
        ["GetItem feed", "TransactWriteItems feed"],
    ),
    "deletePost": (
        'mutation { deletePost(postId: "p1") { text } }',
        Role.USER,
        ["GetItem feed", "TransactWriteItems feed"],
    ),
    "comments": (
        '{ comments(postId: "p1") { nodes { text mentions } } }',
        Role.USER,
        ["GetItem feed", "Query feed"],
    ),
    "likes": ('{ likes(postId: "p1") { nodes { createdAt } } }', Role.USER, ["GetItem feed", "Query feed"]),
    "followers": ('{ followers(userId: "grace") { nodes { followedAt } } }', Role.USER, ["Query feed.GSI_FOL"]),
    "addComment": (
        'mutation { addComment(input: {postId: "p1", text: "Nice"}) { text } }',
        Role.USER,
        ["BatchGetItem feed", "PutItem feed"],
    ),
    "deleteComment": (
        'mutation { deleteComment(postId: "p1", commentId: "c1") { text } }',
        Role.USER,
        ["GetItem feed"],
    ),
    "likePost": (
        'mutation { likePost(postId: "p1") { createdAt } }',
        Role.USER,
        ["BatchGetItem feed", "PutItem feed"],
    ),
    "unlikePost": ('mutation { unlikePost(postId: "p1") { createdAt } }', Role.USER, ["DeleteItem feed"]),
    "follow": (
        'mutation { follow(userId: "%s") { followedAt } }',
        Role.USER,
        ["BatchGetItem feed", "Query feed", "TransactWriteItems feed"],
    ),
    "unfollow": (
        'mutation { unfollow(userId: "grace") { followedAt } }',
        Role.USER,
        ["GetItem feed", "TransactWriteItems feed"],
    ),
    "homeFeed": ('{ homeFeed(userId: "ada") { nodes { postId } } }', Role.USER, ["Query feed.GSI3"]),
    "notifications": ('{ notifications(userId: "ada") { nodes { kind } } }', Role.USER, ["Query feed.GSI_NOTIF"]),
    "markNotificationRead": (
        'mutation { markNotificationRead(notificationId: "none") { kind } }',
        Role.USER,
        ["DeleteItem feed"],
    ),
    "topAuthors": ('{ topAuthors(month: "2026-06") { score } }', Role.USER, ["GetItem feed-metrics"]),
    "trendingTags": ("{ trendingTags { velocity } }", Role.USER, ["GetItem feed-metrics"]),
    # Two events and the state of the feed are put; the request log is written in the background.
    "ingestEarthquakes": (
        'mutation { ingestEarthquakes(feed: "%s") { error } }',
        Role.SYSTEM,
        ["GetItem earthquake-events", *["PutItem earthquake-events"] * 3, "UpdateItem earthquake-events"],
    ),
    "earthquakes": (
        '{ earthquakes(start: "2026-06-25T00:00:00Z", minMagnitude: 1) { nodes { place } } }',
        Role.USER,
        ["Query earthquake-events.TimeOrderedIndex"],
    ),
    "earthquakeStatistics": (
        "{ earthquakeStatistics(by: REGION) { count groups { region count } } }",
        Role.USER,
        ["GetItem earthquake-events", "Query earthquake-events"],
    ),
    "requestLogs": ("{ requestLogs(type: QUERY) { nodes { route } } }", Role.ADMIN, ["Query earthquake-events"]),
    "earthquake": ('{ earthquake(eventId: "x") { place } }', Role.USER, ["GetItem earthquake-events"]),
    "match": ('{ match(id: "m1") { status scorecards { number } } }', Role.USER, ["GetItem cricket-fixtures"]),
    "matches": ('{ matches(ids: ["m1", "m2"]) { status } }', Role.USER, ["BatchGetItem cricket-fixtures"]),
    "matchesByLeague": (
        '{ matchesByLeague(leagueCode: "ONE") { nodes { status } } }',
        Role.USER,
        ["Query cricket-fixtures.leagueCode-startTime-index"],
    ),
    # `m2` is new and a month away; `m3` has live state.
    "syncFixtures": (
        """mutation { syncFixtures(fixtures: [
          {matchId: "m2", leagueId: "1", leagueCode: "ONE", homeTeamId: "10", awayTeamId: "20",
            startTime: "2026-07-25T12:00:00Z"}
          {matchId: "m3", leagueId: "1", leagueCode: "ONE", homeTeamId: "10", awayTeamId: "20",
            startTime: "2026-06-25T12:00:00Z"}
        ]) { status } }""",
        Role.SYSTEM,
        ["BatchGetItem cricket-fixtures", "BatchWriteItem cricket-fixtures", "UpdateItem cricket-fixtures"],
    ),
    "updateFixture": (
        'mutation { updateFixture(id: "m1", input: {round: "Final"}) { round } }',
        Role.SYSTEM,
        ["UpdateItem cricket-fixtures"],
    ),
    "archiveFixture": (
        'mutation { archiveFixture(id: "m1") { archivedAt } }',
        Role.SYSTEM,
        ["UpdateItem cricket-fixtures"],
    ),
    "activeMatch": ('{ activeMatch(id: "m3") { fence } }', Role.SYSTEM, ["GetItem active-matches"]),
    "activeMatches": ("{ activeMatches { fence } }", Role.SYSTEM, ["Scan active-matches"]),
    "liveMatches": ("{ liveMatches { version } }", Role.USER, ["Query active-matches.live-matchId-index"]),
    "registerActiveMatch": (
        'mutation { registerActiveMatch(id: "m1") { fence } }',
        Role.SYSTEM,
        ["GetItem active-matches", "GetItem cricket-fixtures", "PutItem active-matches"],
    ),
    "deactivateMatch": (
        'mutation { deactivateMatch(id: "m3") { fence } }',
        Role.SYSTEM,
        ["UpdateItem active-matches"],
    ),
    "deleteActiveMatch": (
        'mutation { deleteActiveMatch(id: "m1") { fence } }',
        Role.SYSTEM,
        ["DeleteItem active-matches"],
    ),
    "locks": ("{ locks { owner } }", Role.SYSTEM, ["Scan cricket-locks"]),
    "team": ('{ team(id: "1") { name } }', Role.USER, ["GetItem cricket-teams"]),
    "teams": ("{ teams { name } again: teams { name } }", Role.USER, ["Scan cricket-teams"]),
    "syncTeams": (
        'mutation { syncTeams(teams: [{teamId: "2", name: "Two", code: "TWO"}]) { name } }',
        Role.SYSTEM,
        ["BatchWriteItem cricket-teams"],
    ),
    "updateTeam": (
        'mutation { updateTeam(id: "1", input: {name: "First"}) { name } }',
        Role.ADMIN,
        ["UpdateItem cricket-teams"],
    ),
    "seasonTeams": ('{ seasonTeams(seasonId: "1") { nodes { points } } }', Role.USER, ["Query cricket-team-seasons"]),
    "syncTeamSeasons": (
        'mutation { syncTeamSeasons(input: {seasonId: "1", teams: [{teamId: "1", points: 4}]}) { points } }',
        Role.SYSTEM,
        ["BatchWriteItem cricket-team-seasons"],
    ),
    "league": ('{ league(id: "1") { name season { seasonId } } }', Role.USER, ["GetItem cricket-leagues"]),
    "leagues": (
        "{ leagues { name } active: leagues(active: true) { name } others: leagues(active: false) { name } }",
        Role.USER,
        ["Scan cricket-leagues"] * 2,
    ),
    "putLeague": (
        'mutation { putLeague(input: {leagueId: "2", name: "Two", code: "TWO"}) { name } }',
        Role.SYSTEM,
        ["PutItem cricket-leagues"],
    ),
    "updateLeague": (
        'mutation { updateLeague(id: "1", input: {active: false}) { name } }',
        Role.ADMIN,
        ["UpdateItem cricket-leagues"],
    ),
    "deleteLeague": ('mutation { deleteLeague(id: "1") { name } }', Role.ADMIN, ["DeleteItem cricket-leagues"]),
    "liveActivities": (
        '{ liveActivities(userId: "ada") { nodes { status } } }',
        Role.USER,
        ["Query live-activities.userId-index"],
    ),
    "registerLiveActivity": (
        """mutation {
          registerLiveActivity(
            matchId: "m1", deviceId: "pad", updateToken: "22222222222222222222222222222222"
          ) { status }
        }""",
        Role.USER,
        ["GetItem cricket-fixtures", "Query live-activities", "UpdateItem live-activities"],
    ),
    "updateLiveActivityToken": (
        """mutation {
          updateLiveActivityToken(
            matchId: "m1", deviceId: "phone", updateToken: "22222222222222222222222222222222"
          ) { status }
        }""",
        Role.USER,
        ["UpdateItem live-activities"],
    ),
    "endLiveActivity": (
        'mutation { endLiveActivity(matchId: "m1", deviceId: "phone") { status } }',
        Role.USER,
        ["UpdateItem live-activities"],
    ),
    "suspendLiveActivity": (
        'mutation { suspendLiveActivity(matchId: "m1", userId: "ada", deviceId: "phone") { status } }',
        Role.SYSTEM,
        ["UpdateItem live-activities"],
    ),
    "device": ('{ device(userId: "ada") { platform } }', Role.USER, ["Query cricket-devices"]),
    "registerDevice": (
        """mutation {
          registerDevice(
            input: {deviceToken: "22222222222222222222222222222222", platform: IOS, osVersion: "26", appVersion: "3.0"}
          ) { platform }
        }""",
        Role.USER,
        ["DeleteItem cricket-devices", "Query cricket-devices", "UpdateItem cricket-devices"],
    ),
    "updatePushToStartToken": (
        """mutation {
          updatePushToStartToken(
            deviceToken: "11111111111111111111111111111111", pushToStartToken: "22222222222222222222222222222222"
          ) { platform }
        }""",
        Role.USER,
        ["GetItem cricket-devices", "UpdateItem cricket-devices"],
    ),
    "deleteDevice": (
        'mutation { deleteDevice(deviceToken: "11111111111111111111111111111111") { platform } }',
        Role.USER,
        ["DeleteItem cricket-devices"],
    ),
    "matchFollow": ('{ matchFollow(matchId: "m1") { teamId } }', Role.USER, ["GetItem cricket-match-follows"]),
    "followMatch": (
        'mutation { followMatch(matchId: "m1", teamId: "20") { teamId } }',
        Role.USER,
        ["GetItem cricket-fixtures", "UpdateItem cricket-match-follows"],
    ),
    "unfollowMatch": (
        'mutation { unfollowMatch(matchId: "m1") { teamId } }',
        Role.USER,
        ["DeleteItem cricket-match-follows"],
    ),
    "updateMatchFollow": (
        'mutation { updateMatchFollow(matchId: "m1", teamId: "20") { teamId } }',
        Role.USER,
        ["UpdateItem cricket-match-follows"],
    ),
    "displayState": (
        '{ displayState(matchId: "m1", teamId: "10") { headline } }',
        Role.USER,
        [
            "BatchGetItem active-matches+cricket-fixtures",
            "BatchGetItem cricket-leagues+cricket-teams",
            "GetItem DisplayStateCache",
            "PutItem DisplayStateCache",
        ],
    ),
    "removeMatchFollows": (
        'mutation { removeMatchFollows(matchId: "m1") }',
        Role.SYSTEM,
        ["BatchWriteItem cricket-match-follows", "Query cricket-match-follows"],
    ),
}
ASK |= photo_contract.ASK


async def prepare_operation(served: Served, name: str, feed: str) -> dict[str, str]:
    """Create what the operation needs. Return the texts that replace %s, by operation."""
    if name in photo_contract.ASK:
        await photo_contract.prepare_photo_operations(served)
        return {}
    prepared = (await served.ask(SETUP, user="ada")).data
    assert (await served.ask(SYSTEM_SETUP, user="poller", role=Role.SYSTEM)).errors is None
    match = Match("m1", "1", "ONE", home_team_id="10", away_team_id="20", start_time=NOON)
    await Fixtures(served.store(), NOON).sync([match])
    await begin_polled_match(served)
    assert (await served.ask(OTHER_SETUP, user="grace")).errors is None
    assert (await served.ask(FOLLOWER_SETUP, user="ada")).errors is None
    # The estimate of the cost reads the statistics once a minute.
    assert (await served.ask(ASK["earthquakes"][0], user="ada")).errors is None
    return {
        "confirmSighting": prepared["reportSighting"]["sightingId"],
        "deleteWatch": prepared["createWatch"]["watchId"],
        "ingestEarthquakes": feed,
        "follow": "ada",
    }


async def begin_polled_match(served: Served) -> None:
    """Register the match `m3`, which has begun and is polled."""
    match = Match("m3", "1", "ONE", home_team_id="10", away_team_id="20", start_time=NOON)
    fixtures = Fixtures(served.store(), NOON)
    await fixtures.sync([match])
    assert await fixtures.write_live(replace(match, status="1st Innings", version=1))
    await ActiveMatches(served.store(), NOON).register(match)


@contextmanager
def every_call(served: Served) -> Iterator[list[Call]]:
    """Yield all calls of the process, including those that no request is charged with."""
    assert served.gateway.database is not None
    calls: list[Call] = []
    stop = served.gateway.database.client.add_call_listener(calls.append)
    yield calls
    stop()


@pytest.fixture
async def feed() -> AsyncIterator[str]:
    """Serve a feed of two events on this machine. Yield its URL."""
    events = [
        {
            "type": "Feature",
            "id": f"us{number}",
            "properties": {"mag": 4.5, "place": "Here", "time": 1_782_300_000_000 + number},
            "geometry": {"type": "Point", "coordinates": [1.5, 2.5, 3.5]},
        }
        for number in range(2)
    ]
    body = json.dumps({"type": "FeatureCollection", "metadata": {}, "features": events})
    app = web.Application()
    app.router.add_get("/feed.geojson", _answer(body))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield "http://{}:{}/feed.geojson".format(*runner.addresses[0][:2])
    await runner.cleanup()


def _answer(body: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=body)

    return answer
