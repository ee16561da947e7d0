"""The contract of cricket matches: each field with its access patterns, callers, calls, and an operation."""

from msgspec.structs import replace

from datastore.keyspace.matches.active_matches import ACTIVE_MATCHES
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.cricket import Match
from datastore.matches.fixtures import Fixtures
from datastore.model.access_patterns import Who
from datastore.model.identity import Role
from tests.support.contract.match_followers import FOLLOWERS
from tests.support.contract.pages import FORBIDDEN, SIGN_IN, Again, Field, Followed, Nested, NodeType, Page
from tests.support.served import NOON, Served

SYSTEM_SETUP = """mutation {
  syncTeams(input: [{teamId: "1", name: "One", code: "ONE"}]) { teamId }
  putLeague(id: "1", input: {name: "One", code: "ONE"}) { leagueId }
  syncTeamSeasons(seasonId: "1", input: {teamSeasons: [{teamId: "1"}]}) { teamId }
}"""
FOLLOWER_SETUP = """mutation {
  followMatch(matchId: "m1", input: {teamId: "10"}) { teamId }
  registerDevice(
    deviceToken: "11111111111111111111111111111111", input: {platform: IOS, osVersion: "26.1", appVersion: "3.0"}
  ) { platform }
  registerLiveActivity(
    matchId: "m1", deviceId: "phone", input: {updateToken: "11111111111111111111111111111111"}
  ) { status }
}"""


async def prepare_matches(served: Served) -> dict[str, str]:
    assert (await served.ask(SYSTEM_SETUP, user="poller", role=Role.SYSTEM)).errors is None
    match = Match("m1", "1", "ONE", home_team_id="10", away_team_id="20", start_time=NOON)
    await Fixtures(served.store(), NOON).sync([match])
    await begin_polled_match(served)
    assert (await served.ask(FOLLOWER_SETUP, user="ada")).errors is None
    return {}


async def begin_polled_match(served: Served) -> None:
    """Register the match `m3`, which has begun and is polled."""
    match = Match("m3", "1", "ONE", home_team_id="10", away_team_id="20", start_time=NOON)
    fixtures = Fixtures(served.store(), NOON)
    await fixtures.sync([match])
    assert await fixtures.write_live(replace(match, status="1st Innings", version=1))
    await ActiveMatches(served.store(), NOON).register(match)


PAGE = Page(
    name="matches",
    prepare=prepare_matches,
    fields=(
        Field(
            "match",
            ("FIX-1", Who.ANY, {"GetItem", "BatchGetItem"}),
            '{ match(id: "m1") { status scorecards { inningsNumber } } }',
            ["GetItem cricket-fixtures"],
        ),
        Field(
            "matches",
            ("FIX-2", Who.ANY, {"GetItem", "BatchGetItem"}),
            '{ matches(ids: ["m1", "m2"]) { status } }',
            ["BatchGetItem cricket-fixtures"],
        ),
        Field(
            "matchesByLeague",
            ("FIX-3", Who.ANY, {"Query"}),
            '{ matchesByLeague(leagueCode: "ONE") { nodes { status } } }',
            ["Query cricket-fixtures.leagueCode-startTime-index"],
            missing="NOT_FOUND",
        ),
        # A put would remove the live state, so that played matches are read first and updated.
        # `m2` is new and a month away; `m3` has live state.
        Field(
            "syncFixtures",
            ("FIX-4", Who.SYSTEM, {"GetItem", "BatchGetItem", "BatchWriteItem", "UpdateItem"}),
            """mutation { syncFixtures(input: [
          {matchId: "m2", leagueId: "1", leagueCode: "ONE", homeTeamId: "10", awayTeamId: "20",
            seasonId: "1", startTime: "2026-07-25T12:00:00Z"}
          {matchId: "m3", leagueId: "1", leagueCode: "ONE", homeTeamId: "10", awayTeamId: "20",
            startTime: "2026-06-25T12:00:00Z"}
        ]) { status } }""",
            ["BatchGetItem cricket-fixtures", "BatchWriteItem cricket-fixtures", "UpdateItem cricket-fixtures"],
            again=Again.WRITTEN,
        ),
        Field(
            "updateFixture",
            ("FIX-5", Who.SYSTEM, {"UpdateItem"}),
            'mutation { updateFixture(id: "m1", input: {round: "Final"}) { round } }',
            ["UpdateItem cricket-fixtures"],
            missing="NOT_FOUND",
            again=Again.WRITTEN,
        ),
        Field(
            "archiveFixture",
            ("FIX-6", Who.SYSTEM, {"UpdateItem"}),
            'mutation { archiveFixture(id: "m1") { archivedAt } }',
            ["UpdateItem cricket-fixtures"],
            missing="NOT_FOUND",
            again=Again.WRITTEN,
            order=4,
        ),
        Field(
            "activeMatch",
            ("AM-1", Who.SYSTEM, {"GetItem", "BatchGetItem"}),
            '{ activeMatch(id: "m3") { fence } }',
            ["GetItem active-matches"],
        ),
        Field(
            "activeMatches",
            ("AM-2", Who.SYSTEM, {"Scan"}),
            "{ activeMatches { fence } }",
            ["Scan active-matches"],
        ),
        Field(
            "liveMatches",
            ("AM-2", Who.ANY, {"Query"}),
            "{ liveMatches { version } }",
            ["Query active-matches.live-matchId-index"],
        ),
        # The state of an inactive match is read first: the new one continues from it.
        Field(
            "registerActiveMatch",
            ("AM-3", Who.SYSTEM, {"GetItem", "PutItem"}),
            'mutation { registerActiveMatch(id: "m1") { fence } }',
            ["GetItem active-matches", "GetItem cricket-fixtures", "PutItem active-matches"],
            missing="NOT_FOUND",
        ),
        Field(
            "endActiveMatch",
            ("AM-6", Who.SYSTEM, {"UpdateItem"}),
            'mutation { endActiveMatch(id: "m3") { fence } }',
            ["UpdateItem active-matches"],
            missing="NOT_FOUND",
            again=Again.WRITTEN,
            order=5,
        ),
        Field(
            "deleteActiveMatch",
            ("AM-7", Who.SYSTEM, {"DeleteItem"}),
            'mutation { deleteActiveMatch(id: "m1") { fence } }',
            ["DeleteItem active-matches"],
            again=Again.NOTHING_EITHER_TIME,
            order=-1,
        ),
        Field(
            "locks",
            ("LOCK-4", Who.SYSTEM, {"Scan"}),
            "{ locks { owner } }",
            ["Scan cricket-locks"],
        ),
        Field(
            "team",
            ("TM-1", Who.ANY, {"GetItem", "BatchGetItem"}),
            '{ team(id: "1") { name } }',
            ["GetItem cricket-teams"],
        ),
        Field(
            "teams",
            ("TM-2", Who.ANY, {"Scan"}),
            "{ teams { nodes { name } } again: teams { nodes { name } } }",
            ["Scan cricket-teams"],
        ),
        Field(
            "syncTeams",
            ("TM-3", Who.SYSTEM, {"BatchWriteItem"}),
            'mutation { syncTeams(input: [{teamId: "2", name: "Two", code: "TWO"}]) { name } }',
            ["BatchWriteItem cricket-teams"],
            again=Again.WRITTEN,
        ),
        Field(
            "updateTeam",
            ("TM-4", Who.ADMIN, {"UpdateItem"}),
            'mutation { updateTeam(id: "1", input: {name: "First"}) { name } }',
            ["UpdateItem cricket-teams"],
            missing="NOT_FOUND",
            again=Again.WRITTEN,
        ),
        Field(
            "teamSeasons",
            ("TS-1", Who.ANY, {"Query"}),
            '{ teamSeasons(seasonId: "1") { nodes { points } } }',
            ["Query cricket-team-seasons"],
        ),
        Field(
            "syncTeamSeasons",
            ("TS-2", Who.SYSTEM, {"BatchWriteItem"}),
            """mutation {
              syncTeamSeasons(seasonId: "1", input: {leagueId: "1", teamSeasons: [{teamId: "1", points: 4}]}) { points }
            }""",
            ["BatchWriteItem cricket-team-seasons"],
            again=Again.WRITTEN,
        ),
        Field(
            "league",
            ("LG-1", Who.ANY, {"GetItem", "BatchGetItem"}),
            '{ league(id: "1") { name currentSeason { seasonId } } }',
            ["GetItem cricket-leagues"],
        ),
        Field(
            "leagues",
            ("LG-2", Who.ANY, {"Scan"}),
            "{ leagues { nodes { name } } active: leagues(active: true) { nodes { name } } "
            "others: leagues(active: false) { nodes { name } } }",
            ["Scan cricket-leagues"] * 2,
            also=[("LG-3", Who.ANY, {"Scan"})],
        ),
        Field(
            "putLeague",
            ("LG-4", Who.SYSTEM, {"PutItem"}),
            'mutation { putLeague(id: "2", input: {name: "Two", code: "TWO", currentSeasonId: "1"}) { name } }',
            ["PutItem cricket-leagues"],
            again=Again.WRITTEN,
        ),
        Field(
            "updateLeague",
            ("LG-5", Who.ADMIN, {"UpdateItem"}),
            'mutation { updateLeague(id: "1", input: {active: false, currentSeasonId: "2"}) { name } }',
            ["UpdateItem cricket-leagues"],
            missing="NOT_FOUND",
            again=Again.WRITTEN,
        ),
        Field(
            "deleteLeague",
            ("LG-6", Who.ADMIN, {"DeleteItem"}),
            'mutation { deleteLeague(id: "1") { name } }',
            ["DeleteItem cricket-leagues"],
            again=Again.NOTHING_THERE,
            is_ambiguous=True,
        ),
        # A missing state is built from the match, its live state, the teams and the league, and stored.
        Field(
            "displayState",
            ("DSC-1", Who.ANY, {"GetItem", "BatchGetItem", "PutItem"}),
            '{ displayState(matchId: "m1", teamId: "10") { headline } }',
            [
                "BatchGetItem active-matches+cricket-fixtures",
                "BatchGetItem cricket-leagues+cricket-teams",
                "GetItem DisplayStateCache",
                "PutItem DisplayStateCache",
            ],
        ),
        *FOLLOWERS,
    ),
    subscriptions=(
        Followed(
            "matchUpdates",
            ("CRIC-S1", Who.ANY, {"GetItem"}),
            'matchUpdates(matchId: "m3") { version }',
            snapshot=(ACTIVE_MATCHES, "GetItem active-matches"),
        ),
        Followed(
            "liveScores",
            ("CRIC-S2", Who.ANY, {"Scan"}),
            "liveScores { isSnapshot }",
            snapshot=(ACTIVE_MATCHES, "Scan active-matches"),
            also_selected=('liveScores(leagueCode: "ONE") { isSnapshot }',),
        ),
    ),
    cursors={
        "leagues": ("LG-2", '{"active":true}', '{"active":null}'),
        "liveActivities": ("LA-2", '{"userId":"ada"}', '{"userId":"ada"}'),
        "matchesByLeague": (
            "FIX-3",
            '{"from":"2026-06-24T00:00:00.000Z","leagueCode":"ONE","to":"2026-06-26T00:00:00.000Z"}',
            '{"from":null,"leagueCode":"ONE","to":null}',
        ),
        "teamSeasons": ("TS-1", '{"seasonId":"1"}', '{"seasonId":"1"}'),
        "teams": ("TM-2", "{}", "{}"),
    },
    nodes=(
        NodeType("ActiveMatch", 'activeMatch(id: "m3") { id }', restricted="AM-1"),
        NodeType("Device", 'device(userId: "ada") { id }', restricted="DEV-1"),
        NodeType("DisplayState", 'displayState(matchId: "m1", teamId: "10") { id }'),
        NodeType("League", 'league(id: "1") { id }'),
        NodeType("LiveActivity", 'liveActivities(userId: "ada") { nodes { id } }', restricted="LA-N1"),
        NodeType("Match", 'match(id: "m1") { id }'),
        NodeType("MatchFollow", 'match(id: "m1") { follows { nodes { id } } }', restricted="FOL-1"),
        NodeType("Team", 'team(id: "1") { id }'),
        NodeType("TeamSeason", 'teamSeasons(seasonId: "1") { nodes { id } }'),
    ),
    nested=(
        Nested(
            "Match.followedByViewer",
            'match(id: "m1") { value: followedByViewer }',
            {"anonymous": None, "owner": True, "stranger": False, "admin": False, "system": False},
        ),
        Nested(
            "Match.activeMatch",
            'match(id: "m3") { value: activeMatch { matchId } }',
            {
                "anonymous": SIGN_IN,
                "owner": FORBIDDEN,
                "stranger": FORBIDDEN,
                "admin": FORBIDDEN,
                "system": {"matchId": "m3"},
            },
        ),
        Nested(
            "Match.follows",
            'match(id: "m1") { value: follows { nodes { userId } } }',
            {
                "anonymous": SIGN_IN,
                "owner": FORBIDDEN,
                "stranger": FORBIDDEN,
                "admin": FORBIDDEN,
                "system": {"nodes": [{"userId": "ada"}]},
            },
        ),
        Nested(
            "Match.liveActivities",
            'match(id: "m1") { value: liveActivities { nodes { deviceId } } }',
            {
                "anonymous": SIGN_IN,
                "owner": FORBIDDEN,
                "stranger": FORBIDDEN,
                "admin": FORBIDDEN,
                "system": {"nodes": [{"deviceId": "phone"}]},
            },
        ),
        Nested(
            "Me.device",
            "me { value: device { platform } }",
            {"anonymous": None, "owner": {"platform": "IOS"}, "stranger": None, "admin": None, "system": None},
        ),
        Nested(
            "Me.liveActivities",
            "me { value: liveActivities { nodes { deviceId } } }",
            {
                "anonymous": None,
                "owner": {"nodes": [{"deviceId": "phone"}]},
                "stranger": {"nodes": []},
                "admin": {"nodes": []},
                "system": {"nodes": []},
            },
        ),
    ),
)
