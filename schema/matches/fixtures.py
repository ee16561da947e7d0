"""GraphQL types and fields of matches."""

from datetime import datetime

import strawberry

from datastore.keyspace.matches import active_matches as active_patterns
from datastore.keyspace.matches import display_states as display_patterns
from datastore.keyspace.matches import fixture_cache as cache_patterns
from datastore.keyspace.matches import fixtures as patterns
from datastore.keyspace.matches import leagues as league_patterns
from datastore.keyspace.matches import live_activities as activity_patterns
from datastore.keyspace.matches import match_follows as follow_patterns
from datastore.matches import cricket
from datastore.matches.cricket import FixtureField
from datastore.model.access_patterns import Extent
from resolvers.matches import active_matches as resolve_active
from resolvers.matches import display_states as resolve_display
from resolvers.matches import fixtures as resolve
from resolvers.matches import leagues as resolve_leagues
from resolvers.matches import live_activities as resolve_activities
from resolvers.matches import match_follows as resolve_follows
from resolvers.matches import parts, related
from schema.connections import Connection
from schema.fields import batch_field, described, pattern_field
from schema.matches.display_states import DisplayState
from schema.matches.lazy_types import LazyActiveMatch, LazyLiveScore
from schema.matches.leagues import League
from schema.matches.live_activities import LiveActivity
from schema.matches.match_follows import MatchFollow
from schema.matches.scores import Scorecard, innings_field
from schema.matches.team_seasons import Season
from schema.matches.teams import team_field
from schema.nodes import Node, node_type, object_type, value_type

READ_IN_LISTS = "In the lists of a league, selecting it costs one read per match."


@value_type(description="The place where a match is played.")
class Venue:
    venue_id: strawberry.ID | None = described("The venue's id at the source; null if it is unknown.")
    name: str = described("The name of the ground.")
    city: str | None = described("The city; null if it is unknown.")
    country: str | None = described("The country; null if it is unknown.")


@value_type(description="The toss before a match.")
class Toss:
    team_id: strawberry.ID = described("The `teamId` of the team that won the toss.", name="winnerTeamId")
    elected: str | None = described(
        "The winner's choice in the source's words, such as batting or bowling; null if it is unknown."
    )


@value_type(description="The target of the side that bats last.")
class Target:
    runs: int = described("The runs that win the match.")
    overs: str | None = described("The overs available for the runs; null without a limit.")
    method: str | None = described(
        "The method by which the target was revised after rain, such as D/L; null if it was not."
    )


@value_type(description="The result of a match.")
class Result:
    kind: cricket.ResultKind = described("The kind of result.")
    text: str = described("The result in one line.")
    winner_team_id: strawberry.ID | None = described("The `teamId` of the winner; null if there is none.")
    by_runs: int | None = described(
        "The winning margin in runs; null if the match was not won by runs.", name="wonByRuns"
    )
    by_wickets: int | None = described(
        "The winning margin in wickets; null if the match was not won by wickets.", name="wonByWickets"
    )
    by_innings: bool = described("Whether the match was won by an innings and `wonByRuns`.", name="wonByInnings")
    method: str | None = described("The method that decided the match after rain, such as D/L; null if none did.")
    eliminator: bool = described(
        "Whether a super over or the number of boundaries decided a tie.", name="decidedByTiebreak"
    )


@object_type(id=parts.part_id("LineupPlayer"), description="A player in the line-up of a match.")
class LineupPlayer:
    player_id: strawberry.ID = described("The player's id at the source.")
    name: str = described("The player's name.")
    team_id: strawberry.ID = described("The `teamId` of the player's team.")
    captain: bool = described("Whether the player is the captain.", name="isCaptain")
    wicketkeeper: bool = described("Whether the player is the wicketkeeper.", name="isWicketkeeper")
    substitute: bool = described("Whether the player is a substitute.", name="isSubstitute")


@node_type(
    cricket.Match,
    patterns.FIXTURE,
    parts=("match_id",),
    read=lambda context, *key: context.fixtures.by_id(*key),
    description="A match: its fixture, which is what is known before its start, its score and related objects.",
)
class Match(Node):
    match_id: strawberry.ID = described("The match's id at the source, unique among matches.")
    league_id: strawberry.ID = described("The `leagueId` of the league.")
    league_code: str = described("The league's `code`.")
    league = batch_field(
        league_patterns.LEAGUE,
        resolver=resolve_leagues.leagues_by_id,
        depends_on="league_id",
        graphql_type=League | None,
        description="The league; null if it is unknown.",
    )
    season_id: strawberry.ID | None = described("The `seasonId` of the season; null if it is unknown.")
    season = strawberry.field(
        resolver=related.season,
        graphql_type=Season | None,
        description="The season of the league; null if it is unknown.",
    )
    home_team_id: strawberry.ID = described(
        "The `teamId` of the home side, or on neutral ground of the side that the source names first."
    )
    home_team = team_field("home_team_id", "The home side")
    away_team_id: strawberry.ID = described("The `teamId` of the other side.")
    away_team = team_field("away_team_id", "The other side")
    start_time: datetime = described("The start time.")
    status: str = described("The status in the source's words: NS, 1st Innings, Finished.")
    phase: cricket.MatchPhase = described("The status as one of a fixed set of phases.")
    round: str | None = described("The round, such as 3rd T20I or Final; null if it is unknown.")
    format: str | None = described("The format, such as T20, ODI or Test; null if it is unknown.")
    note: str | None = described("A remark of the source, such as the result in words; null without one.")
    venue: Venue | None = described("The venue; null if it is unknown.")
    toss: Toss | None = described("The toss; null before it.")
    scheduled_overs: int | None = described("The scheduled overs per innings; null without a limit.")
    balls_per_over: int = described("The legal balls per over, usually 6.")
    target: Target | None = described("The target of the side that bats last; null before there is one.")
    result: Result | None = described("The result; null until there is one.")
    follow_on: bool = described("Whether a side had to follow on.", name="followOnEnforced")
    player_of_match: str | None = described("The name of the player of the match; null until there is one.")
    innings = innings_field("The total of each innings, super overs included.")
    scorecards = pattern_field(
        patterns.FIXTURE,
        resolver=resolve.scorecards,
        graphql_type=list[Scorecard],
        extent=Extent(size=4),
        description=f"The players' figures of each innings, in the order of the innings. {READ_IN_LISTS}",
    )
    lineups = pattern_field(
        cache_patterns.CACHED,
        resolver=resolve.lineups,
        graphql_type=list[LineupPlayer],
        extent=Extent(size=22),
        description="The line-ups: one entry for each named player, in the source's order. They are available while "
        "the source's latest response is cached, until a week after the match; otherwise the list is empty.",
    )
    version: int = described(
        "The version of the live state: of the innings, the score and the status. It grows by one with each "
        "change of them. Updates of a match take `revision` instead."
    )
    revision = pattern_field(
        patterns.FIXTURE,
        resolver=resolve.revision,
        preloaded="revision",
        graphql_type=int,
        description="The version of the stored match, for `expectedVersion`. It grows with every change: of the "
        f"fixture and of the live state. {READ_IN_LISTS}",
    )
    operator_fields = pattern_field(
        patterns.FIXTURE,
        resolver=resolve.operator_fields,
        preloaded="operator_fields",
        graphql_type=list[FixtureField],
        description="The fields that `updateFixture` set, each at most once, in the order of the enum. The source does "
        f"not update them. {READ_IN_LISTS}",
    )
    updated_at: datetime | None = described(
        "The time at which the match was last stored or changed; null if it is unknown."
    )
    live_updated_at: datetime | None = described(
        "The time at which the live score was last written; null before that, and after the match was archived."
    )
    archived_at: datetime | None = described("The time at which the match left the live scores; null before that.")
    live_score = pattern_field(
        active_patterns.LIVE_SCORE,
        resolver=resolve_active.live_score,
        graphql_type=LazyLiveScore | None,
        description="The present live score; null unless the match is polled, or was polled within the last day.",
    )
    active_match = pattern_field(
        active_patterns.STATE,
        resolver=resolve_active.active_match_of,
        graphql_type=LazyActiveMatch | None,
        description="The state that the poller maintains; null if there is none. Callers: the system; null, with an "
        "error, for others.",
    )
    display_state = pattern_field(
        display_patterns.DISPLAY_STATE,
        resolver=resolve_display.of_match,
        graphql_type=DisplayState | None,
        # The reads of an uncached state: the match, its live state, both teams and the league.
        extent=Extent(reads=6),
        description="The match as a widget shows it, from the point of view of one team; null, with the error "
        "BAD_USER_INPUT, if the team does not play in the match.",
    )
    followed_by_viewer = pattern_field(
        follow_patterns.FOLLOW_OF_USER,
        resolver=resolve_follows.followed_by_viewer,
        graphql_type=bool | None,
        description="Whether the caller follows the match; null without a token.",
    )
    follows = pattern_field(
        follow_patterns.FOLLOWERS,
        resolver=resolve_follows.follows_of_match,
        graphql_type=Connection[MatchFollow] | None,
        description="The follows of the match, in the order of `userId`. Callers: the system; null, with an error, "
        "for others.",
    )
    live_activities = pattern_field(
        activity_patterns.ACTIVITIES_OF_MATCH,
        resolver=resolve_activities.live_activities_of_match,
        graphql_type=Connection[LiveActivity] | None,
        description="The Live Activity sessions of the match on users' lock screens, in the order of `userId`. "
        "Callers: the system; null, with an error, for others.",
    )


@strawberry.type
class FixtureQueries:
    match = pattern_field(
        patterns.FIXTURE,
        resolver=resolve.match,
        graphql_type=Match | None,
        description="Return a match; null if it is unknown.",
    )
    matches = pattern_field(
        patterns.MATCHES,
        resolver=resolve.matches,
        graphql_type=list[Match | None],
        description="Return matches by their ids: one entry for each of at most 100 ids, in the order of the ids, and "
        "null for an unknown id. The matches are read in batches.",
    )
    matches_by_league = pattern_field(
        patterns.BY_LEAGUE,
        resolver=resolve.matches_by_league,
        graphql_type=Connection[Match],
        description="Return the matches of a league that start within a range of times, soonest first. NOT_FOUND for "
        "an unknown league.",
    )


@strawberry.type
class FixtureMutations:
    sync_fixtures = pattern_field(
        patterns.SYNC_FIXTURES,
        resolver=resolve.sync_fixtures,
        graphql_type=list[Match],
        description="Store fixtures, each in place of the stored fixture with the same id, and return the matches in "
        "the order of the input, at most 100. If several have the same id, the last one counts. Live scores are kept, "
        "and so are fields that `updateFixture` set.",
    )
    update_fixture = pattern_field(
        patterns.UPDATE_FIXTURE,
        resolver=resolve.update_fixture,
        graphql_type=Match,
        description="Set some fields of a fixture, or clear some, and return the match. The source does not "
        "update a field that is set until the field is cleared. NOT_FOUND for an unknown match.",
    )
    archive_fixture = pattern_field(
        patterns.ARCHIVE_FIXTURE,
        resolver=resolve.archive_fixture,
        graphql_type=Match,
        description="Mark a match as archived after it has left the live scores, and return it. NOT_FOUND for an "
        "unknown match.",
    )
