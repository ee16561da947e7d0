"""What the API says about matches that are played: their live state, and the subscriptions to it."""

from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Any

import strawberry

from datastore.keyspace.matches import active_matches as patterns
from datastore.keyspace.matches import fixtures as fixture_patterns
from datastore.matches import cricket, live_state
from datastore.model.access_patterns import Extent
from resolvers.matches import active_matches as resolve
from resolvers.matches import live as resolve_live
from resolvers.shared import node_ids as nodes
from schema.connections import Node
from schema.fields import ask, listen
from schema.matches.fixtures import Match, Result, Target
from schema.matches.scores import Ball, BattingLine, BowlingLine, CricketEvent, Innings, Partnership

strawberry.enum(
    live_state.ActiveStatus,
    description="ACTIVE: polled. IDLE: polled again when it is back in the live scores. ENDED: kept for a day.",
)
strawberry.enum(
    live_state.LiveStatePart,
    description="A part of a match's state. SCORECARDS: the scorecards, or another detail of the match.",
    name="MatchPart",
)


@strawberry.type(description="How a match stands: all innings, who is in, who bowls, the last balls.")
class LiveScore:
    version: int = strawberry.field(description="How often the state has changed; it never goes back.")
    updated_at: datetime = strawberry.field(description="When it changed last.")
    status: str = strawberry.field(description="Where the match stands in the source's word.")
    phase: cricket.MatchPhase = strawberry.field(description="The same as one of a closed set.")
    innings: list[Innings] = strawberry.field(description="The total of each innings.")
    batting: list[BattingLine] = strawberry.field(description="The batters at the crease.")
    bowling: list[BowlingLine] = strawberry.field(description="Who bowls.")
    partnership: Partnership | None = strawberry.field(description="The stand in progress.")
    target: Target | None = strawberry.field(description="What the side batting last needs.")
    result: Result | None = strawberry.field(description="How it ended.")
    note: str | None = strawberry.field(description="The source's remark.")
    recent_balls: list[Ball] = strawberry.field(description="The last balls, at most 30, oldest first.")


@strawberry.type(description="A match that is live.")
class LiveMatch:
    match_id: strawberry.ID = strawberry.field(description="Which match.")
    league_code: str = strawberry.field(description="The league's `code`.")
    version: int = strawberry.field(description="How often its state has changed.")
    live_score = ask(
        patterns.LIVE_DETAILS,
        resolver=resolve.listed_score,
        graphql_type=LiveScore,
        extent=Extent(at_hand=resolve.SUMMARY_FIELDS),
        description="How it stands. `batting`, `bowling` and `recentBalls` cost a read of each match; without them "
        "nothing is read besides the list.",
    )
    match = ask(
        fixture_patterns.FIXTURE, resolver=resolve.match, graphql_type=Match | None, description="The whole match."
    )


@strawberry.type(description="A match with the state that its poller keeps, for the system.")
class ActiveMatch(Node):
    id = strawberry.field(resolver=nodes.active_match_id, graphql_type=strawberry.ID, description="Globally unique.")
    match_id: strawberry.ID = strawberry.field(description="Which match.")
    match = ask(
        fixture_patterns.FIXTURE, resolver=resolve.match, graphql_type=Match | None, description="The whole match."
    )
    league_code: str = strawberry.field(description="The league's `code`.")
    status: live_state.ActiveStatus = strawberry.field(description="Whether it is polled.")
    instance_id: strawberry.ID | None = strawberry.field(description="Who polls it; null until somebody does.")
    fence: int = strawberry.field(description="How often it changed hands: writes of earlier hands are refused.")
    version: int = strawberry.field(description="How often its state has changed.")
    last_tick_at: datetime | None = strawberry.field(description="When it was last polled.")
    updated_at: datetime = strawberry.field(description="When its state last changed.")
    previous_ball_id: strawberry.ID = strawberry.field(description="The last ball whose events were told; 0: none.")
    live: LiveScore = strawberry.field(name="liveScore", description="How it stands.")
    changed: list[live_state.LiveStatePart] = strawberry.field(description="What the last change changed.")
    events: list[CricketEvent] = strawberry.field(description="The events of the last change.")
    expires_at: datetime | None = strawberry.field(description="When an ended one is forgotten.")

    @classmethod
    def is_type_of(cls, value: Any, _info: object) -> bool:
        return isinstance(value, live_state.ActiveMatch)


@strawberry.type(description="A match at one of its versions, and what led to it.")
class MatchUpdate:
    match_id: strawberry.ID = strawberry.field(description="Which match.")
    league_code: str = strawberry.field(description="The league's `code`.")
    version: int = strawberry.field(
        description="The version: of each match one more than in the update before, and the `conflated` ones."
    )
    is_snapshot: bool = strawberry.field(
        description="How the match stands, to be taken as it is: the first update of a match, and after a gap."
    )
    conflated: int = strawberry.field(description="How many versions were left out; their events are in this one.")
    changed: list[live_state.LiveStatePart] = strawberry.field(description="What changed since the update before.")
    events: list[CricketEvent] = strawberry.field(description="What happened since the update before, in order.")
    live: LiveScore = strawberry.field(name="liveScore", description="How the match stands now.")
    server_time = strawberry.field(
        resolver=resolve_live.server_time, graphql_type=datetime, description="The server's clock at this update."
    )
    match = ask(
        fixture_patterns.FIXTURE,
        resolver=resolve_live.match,
        graphql_type=Match | None,
        description="The whole match, read when it is selected: it may be newer than the update.",
    )


@strawberry.type(description="Updates of live matches.")
class LiveScores:
    is_snapshot: bool = strawberry.field(
        description="Whether these are all matches that are live: the first event. Later ones hold what changed."
    )
    updates: list[MatchUpdate] = strawberry.field(description="At most one update of each match.")
    ended: list[strawberry.ID] = strawberry.field(
        description="Matches that are no longer live: over, resting, or taken off the list. One that comes back begins "
        "with a snapshot again."
    )


@strawberry.type
class ActiveMatchQueries:
    active_match = ask(
        patterns.STATE,
        resolver=resolve.active_match,
        graphql_type=ActiveMatch | None,
        description="The state of a match that is polled, or null.",
    )
    active_matches = ask(
        patterns.ALL_ACTIVE,
        resolver=resolve.active_matches,
        graphql_type=list[ActiveMatch],
        extent=Extent(size=10),
        description="All matches with a state: polled, resting, or ended within a day.",
    )
    live_matches = ask(
        patterns.LIVE_MATCHES,
        resolver=resolve.live_matches,
        graphql_type=list[LiveMatch],
        extent=Extent(size=10),
        description="The matches that are live.",
    )


@strawberry.type
class ActiveMatchMutations:
    register_active_match = ask(
        patterns.REGISTER,
        resolver=resolve.register_active_match,
        graphql_type=ActiveMatch,
        # One that rests goes on with its state, of some KB.
        extent=Extent(written=3),
        description="Have a match polled, from where it stands. CONFLICT when it is polled already, or just ended.",
    )
    deactivate_match = ask(
        patterns.DEACTIVATE,
        resolver=resolve.deactivate_match,
        graphql_type=ActiveMatch,
        description="End the polling of a match. Its state stays for a day.",
    )
    delete_active_match = ask(
        patterns.DELETE,
        resolver=resolve.delete_active_match,
        graphql_type=ActiveMatch | None,
        description="Remove the state of a match that is not polled; null when there was none. CONFLICT while it is.",
    )


@strawberry.type
class ActiveMatchSubscriptions:
    match_updates = listen(
        patterns.MATCH_UPDATES,
        resolver=resolve_live.match_updates,
        graphql_type=AsyncGenerator[MatchUpdate, None],
        description="A match as it is played: first a snapshot at its version, then every version after it, each once. "
        "It completes when the match is over and is no longer polled; of such a match it gives the snapshot alone. "
        "A version that cannot be read is an event with the error INTERNAL, and what can be read follows.",
    )
    live_scores = listen(
        patterns.LIVE_SCORES,
        resolver=resolve_live.live_scores,
        graphql_type=AsyncGenerator[LiveScores, None],
        extent=Extent(scanned=10),
        description="Every live match of a league, or of all: first all of them as they stand, then each change.",
    )
