"""What the API says about matches: the shape only."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from datastore.keyspace.matches import active_matches as active_patterns
from datastore.keyspace.matches import display_states as display_patterns
from datastore.keyspace.matches import fixture_cache as cache_patterns
from datastore.keyspace.matches import fixtures as patterns
from datastore.keyspace.matches import leagues as league_patterns
from datastore.keyspace.matches import live_activities as activity_patterns
from datastore.keyspace.matches import match_follows as follow_patterns
from datastore.keyspace.matches import teams as team_patterns
from datastore.matches import cricket
from datastore.matches.operator_fields import FixtureField
from datastore.model.access_patterns import Extent
from resolvers.matches import active_matches as resolve_active
from resolvers.matches import display_states as resolve_display
from resolvers.matches import fixtures as resolve
from resolvers.matches import live_activities as resolve_activities
from resolvers.matches import match_follows as resolve_follows
from resolvers.shared import node_ids as nodes
from schema.connections import Connection, Node
from schema.fields import ask
from schema.matches.display_states import DisplayState
from schema.matches.leagues import League
from schema.matches.live_activities import LiveActivity
from schema.matches.match_follows import MatchFollow
from schema.matches.scores import Innings, Scorecard
from schema.matches.team_seasons import Season
from schema.matches.teams import Team

if TYPE_CHECKING:
    from schema.matches.active_matches import ActiveMatch, LiveScore

LazyActiveMatch = Annotated["ActiveMatch", strawberry.lazy("schema.matches.active_matches")]
LazyLiveScore = Annotated["LiveScore", strawberry.lazy("schema.matches.active_matches")]


@strawberry.type(description="Where a match is played.")
class Venue:
    venue_id: strawberry.ID | None = strawberry.field(description="The source's id.")
    name: str = strawberry.field(description="The ground.")
    city: str | None = strawberry.field(description="The city.")
    country: str | None = strawberry.field(description="The country.")


@strawberry.type(description="The toss before a match.")
class Toss:
    team_id: strawberry.ID = strawberry.field(description="Who won it.")
    elected: str | None = strawberry.field(description="What they chose: batting or bowling, in the source's word.")


@strawberry.type(description="What the side batting last needs to win.")
class Target:
    runs: int = strawberry.field(description="The runs that win.")
    overs: str | None = strawberry.field(description="In how many overs.")
    method: str | None = strawberry.field(description="The rule by which rain revised it: D/L.")


@strawberry.type(description="How a match ended.")
class Result:
    kind: cricket.ResultKind = strawberry.field(description="Won, tied, drawn, or none.")
    text: str = strawberry.field(description="The result in a line.")
    winner_team_id: strawberry.ID | None = strawberry.field(description="Who won.")
    by_runs: int | None = strawberry.field(description="By how many runs.")
    by_wickets: int | None = strawberry.field(description="By how many wickets.")
    by_innings: bool = strawberry.field(description="Whether by an innings and those runs.")
    method: str | None = strawberry.field(description="The rule that decided, if rain did: D/L.")
    eliminator: bool = strawberry.field(description="Whether a super over, or boundaries, decided a tie.")


@strawberry.type(description="A player named for a match.")
class LineupPlayer:
    player_id: strawberry.ID = strawberry.field(description="Who.")
    name: str = strawberry.field(description="The player's name.")
    team_id: strawberry.ID = strawberry.field(description="For which team.")
    captain: bool = strawberry.field(description="Whether they lead it.")
    wicketkeeper: bool = strawberry.field(description="Whether they keep wicket.")
    substitute: bool = strawberry.field(description="Whether they came in for another.")


@strawberry.type(description="A match: its fixture, how it stands, and what belongs to it.")
class Match(Node):
    id = strawberry.field(resolver=nodes.match_id, graphql_type=strawberry.ID, description="Globally unique.")
    match_id: strawberry.ID = strawberry.field(description="Unique among matches: its id at the source.")
    league_id: strawberry.ID = strawberry.field(description="Which league.")
    league_code: str = strawberry.field(description="The league's `code`.")
    league = ask(
        league_patterns.LEAGUE,
        resolver=resolve.league,
        by="league_id",
        graphql_type=League | None,
        description="The league.",
    )
    season = strawberry.field(
        resolver=resolve.season, graphql_type=Season | None, description="The season of the league."
    )
    home_team_id: strawberry.ID = strawberry.field(description="The home side, or the one named first.")
    home_team = ask(
        team_patterns.TEAM,
        resolver=resolve.home_team,
        by="home_team_id",
        graphql_type=Team | None,
        description="The home side.",
    )
    away_team_id: strawberry.ID = strawberry.field(description="The other side.")
    away_team = ask(
        team_patterns.TEAM,
        resolver=resolve.away_team,
        by="away_team_id",
        graphql_type=Team | None,
        description="The other side.",
    )
    start_time: datetime = strawberry.field(description="When it starts.")
    status: str = strawberry.field(description="Where it stands in the source's word: NS, 1st Innings, Finished.")
    phase: cricket.MatchPhase = strawberry.field(description="The same as one of a closed set.")
    round: str | None = strawberry.field(description="Such as 3rd T20I, or Final.")
    format: str | None = strawberry.field(description="Such as T20, ODI, Test.")
    note: str | None = strawberry.field(description="The source's remark, such as the result in words.")
    venue: Venue | None = strawberry.field(description="Where it is played.")
    toss: Toss | None = strawberry.field(description="Who chose what.")
    scheduled_overs: int | None = strawberry.field(description="Overs an innings; null where there is no limit.")
    balls_per_over: int = strawberry.field(description="Usually 6.")
    target: Target | None = strawberry.field(description="What the side batting last needs.")
    result: Result | None = strawberry.field(description="How it ended.")
    follow_on: bool = strawberry.field(description="Whether a side batted twice in a row.")
    player_of_match: str | None = strawberry.field(description="The player of the match.")
    innings: list[Innings] = strawberry.field(description="The total of each innings, super overs included.")
    scorecards = ask(
        patterns.FIXTURE,
        resolver=resolve.scorecards,
        graphql_type=list[Scorecard],
        extent=Extent(size=4),
        description="The players' figures of each innings. Lists read them in one go when they are selected.",
    )
    lineups = ask(
        cache_patterns.CACHED,
        resolver=resolve.lineups,
        graphql_type=list[LineupPlayer],
        extent=Extent(size=22),
        description="The players named for it, while the source's last answer is kept: until a week after the match.",
    )
    version: int = strawberry.field(description="How often its live state has changed; it never goes back.")
    revision: int | None = strawberry.field(
        description="Grows with every change of it, live ones too, for `expectedVersion`; null in `matchesByLeague`."
    )
    operator_fields: list[FixtureField] | None = strawberry.field(
        description="The fields that an operator set, which the source does not change; null in `matchesByLeague`."
    )
    updated_at: datetime | None = strawberry.field(description="When it was last stored or changed.")
    live_updated_at: datetime | None = strawberry.field(description="When its live state was last written.")
    archived_at: datetime | None = strawberry.field(description="When it left the live scores.")
    live_score = ask(
        active_patterns.LIVE_SCORE,
        resolver=resolve_active.live_score,
        graphql_type=LazyLiveScore | None,
        description="How it stands this moment; null unless it is polled, or was until a day ago.",
    )
    active = ask(
        active_patterns.STATE,
        resolver=resolve_active.active,
        graphql_type=LazyActiveMatch | None,
        description="The state its poller keeps, for the system.",
    )
    display_state = ask(
        display_patterns.DISPLAY_STATE,
        resolver=resolve_display.of_match,
        graphql_type=DisplayState | None,
        # Of one that is not kept: the match, its live state, both teams and the league.
        extent=Extent(reads=6),
        description="What a widget shows of it from one team's side.",
    )
    is_followed = ask(
        follow_patterns.FOLLOW_OF_USER,
        resolver=resolve_follows.is_followed,
        graphql_type=bool | None,
        description="Whether the caller follows it.",
    )
    followers = ask(
        follow_patterns.FOLLOWERS,
        resolver=resolve_follows.followers,
        graphql_type=Connection[MatchFollow] | None,
        description="Who follows it, for the system.",
    )
    live_activities = ask(
        activity_patterns.ACTIVITIES_OF_MATCH,
        resolver=resolve_activities.live_activities_of_match,
        graphql_type=Connection[LiveActivity] | None,
        description="The sessions of it on users' lock screens, for the system.",
    )

    @classmethod
    def is_type_of(cls, value: Any, _info: object) -> bool:
        return isinstance(value, cricket.Match)


@strawberry.type
class FixtureQueries:
    match = ask(patterns.FIXTURE, resolver=resolve.match, graphql_type=Match | None, description="A match, or null.")
    matches = ask(
        patterns.MATCHES,
        resolver=resolve.matches,
        graphql_type=list[Match | None],
        description="Matches by their ids, in the order of the ids, null for unknown ones; all are read together.",
    )
    matches_by_league = ask(
        patterns.BY_LEAGUE,
        resolver=resolve.matches_by_league,
        graphql_type=Connection[Match],
        description="The matches of a league that start within a time, soonest first.",
    )


@strawberry.type
class FixtureMutations:
    sync_fixtures = ask(
        patterns.SYNC_FIXTURES,
        resolver=resolve.sync_fixtures,
        graphql_type=list[Match],
        description="Store fixtures, each in place of the one with its id: the matches as they stand. What was played "
        "of one here stays.",
    )
    update_fixture = ask(
        patterns.UPDATE_FIXTURE,
        resolver=resolve.update_fixture,
        graphql_type=Match,
        description="Set some fields of a fixture, which keep these values against the source until they are cleared, "
        "or clear some: the match as it is then.",
    )
    archive_fixture = ask(
        patterns.ARCHIVE_FIXTURE,
        resolver=resolve.archive_fixture,
        graphql_type=Match,
        description="Mark a match that has left the live scores.",
    )
