"""GraphQL types, fields and subscriptions of live matches."""

from collections.abc import AsyncGenerator
from datetime import datetime

import strawberry

from datastore.keyspace.matches import active_matches as patterns
from datastore.keyspace.matches import fixtures as fixture_patterns
from datastore.matches import cricket, live_state
from datastore.model.access_patterns import Extent
from resolvers.matches import active_matches as resolve
from resolvers.matches import live as resolve_live
from resolvers.matches import parts
from schema.fields import described, pattern_field, pattern_subscription
from schema.matches.fixtures import Result, Target
from schema.matches.lazy_types import LazyMatch, match_field
from schema.matches.scores import Ball, BattingLine, BowlingLine, Partnership, events_field, innings_field
from schema.nodes import Node, node_type, object_type, value_type

strawberry.enum(
    live_state.ActiveStatus,
    name="ActiveMatchStatus",
    description="The polling of a match. ACTIVE: polled. IDLE: not in the live scores at present, and polled "
    "again when it returns. ENDED: no longer polled; its state is kept for a day.",
)
strawberry.enum(
    live_state.LiveStatePart,
    description="A part of a match's state. STATUS: `status` and `phase`. SCORE: the innings, the partnership and the "
    "balls. BATTING: the batters at the crease. BOWLING: the current bowlers. TARGET, RESULT and NOTE: the fields with "
    "these names. SCORECARDS: the scorecards, or any detail of the match that no other part names.",
    name="MatchPart",
)


@object_type("match_id", description="The live score of a match: innings, batters, bowlers and the latest balls.")
class LiveScore:
    match_id: strawberry.ID = described("The `matchId` of the match.")
    version: int = described("The version of the live state. It grows by one with each change.")
    updated_at: datetime = described("The time of the latest change.")
    status: str = described("The status in the source's words, such as `1st Innings`.")
    phase: cricket.MatchPhase = described("The status as one of a fixed set of phases.")
    innings = innings_field("The total of each innings.")
    batting = strawberry.field(
        resolver=parts.current_batting,
        graphql_type=list[BattingLine],
        description="The batters at the crease, usually two, in batting order.",
    )
    bowling = strawberry.field(
        resolver=parts.current_bowling,
        graphql_type=list[BowlingLine],
        description="The current bowlers, usually one, in the order of their first overs.",
    )
    partnership: Partnership | None = described("The current partnership; null if there is none.")
    target: Target | None = described("The target of the side that bats last; null before there is one.")
    result: Result | None = described("The result; null until there is one.")
    note: str | None = described("A remark of the source; null without one.")
    recent_balls = strawberry.field(
        resolver=parts.recent_balls,
        graphql_type=list[Ball],
        description="The latest balls, at most 30, oldest first.",
    )


@object_type("match_id", description="A live match.")
class LiveMatch:
    match_id: strawberry.ID = described("The `matchId` of the match.")
    league_code: str = described("The league's `code`.")
    version: int = described(
        "The version of the live state: of the innings, the score and the status. It grows by one with each "
        "change of them."
    )
    live_score = pattern_field(
        patterns.LIVE_DETAILS,
        resolver=resolve.listed_score,
        graphql_type=LiveScore,
        extent=Extent(from_parent=resolve.SUMMARY_FIELDS),
        description="The live score. Selecting `batting`, `bowling` or `recentBalls` costs one read per match; "
        "the other fields are read with the list.",
    )
    match = match_field("The match with all its details; null if it was deleted.")


@node_type(
    live_state.ActiveMatch,
    patterns.STATE,
    parts=("match_id",),
    read=lambda context, *key: context.active_matches.by_id(*key),
    description="A match with the state that its poller maintains, for the system.",
)
class ActiveMatch(Node):
    match_id: strawberry.ID = described("The `matchId` of the match.")
    match = match_field("The match with all its details; null if it was deleted.")
    league_code: str = described("The league's `code`.")
    status: live_state.ActiveStatus = described("Whether the match is polled.")
    instance_id: strawberry.ID | None = described("The instance that polls the match; null until one does.")
    fence: int = described(
        "The number of times that an instance took over the match. A write of an instance that took it over "
        "earlier is rejected: its number is lower (a fencing token)."
    )
    version: int = described(
        "The version of the live state: of the innings, the score and the status. It grows by one with each "
        "change of them."
    )
    last_tick_at: datetime | None = described("The time of the latest poll; null before the first.")
    updated_at: datetime = described("The time of the latest change.")
    previous_ball_id = strawberry.field(
        resolver=resolve.previous_ball_id,
        graphql_type=strawberry.ID | None,
        description="The `ballId` of the latest ball whose events were sent; null before the first ball.",
    )
    live: LiveScore = strawberry.field(name="liveScore", description="The live score.")
    changed: list[live_state.LiveStatePart] = described(
        "The parts that the latest change updated, each at most once, in no order."
    )
    events = events_field("The events of the latest change, oldest first: at most 40, or those of one ball.")
    expires_at: datetime | None = described(
        "The time at which the state of an ended match expires; null for other matches."
    )


@object_type(
    "match_id", "version", description="A version of a match, with the changes and events since the previous update."
)
class MatchUpdate:
    match_id: strawberry.ID = described("The `matchId` of the match.")
    league_code: str = described("The league's `code`.")
    version: int = described(
        "The version of the match's state. It is one more than in the previous update of the match, plus "
        "`conflatedCount`."
    )
    is_snapshot: bool = described(
        "Whether the update is a snapshot, which replaces the client's state: the first update of a "
        "match, and the first one after a gap."
    )
    conflated: int = described(
        "The number of earlier versions that this update replaces, because they came within "
        "`minIntervalMs`. Their events are included here.",
        name="conflatedCount",
    )
    changed: list[live_state.LiveStatePart] = described(
        "The parts of the state that changed since the previous update, each at most once, in no order."
    )
    events = events_field(
        "The events since the previous update, oldest first: for each version at most 40, or those of one ball."
    )
    live: LiveScore = strawberry.field(name="liveScore", description="The live score at this version.")
    sent_at = strawberry.field(
        resolver=resolve_live.sent_at,
        graphql_type=datetime,
        description="The time at which the server sent this update.",
    )
    match = pattern_field(
        fixture_patterns.FIXTURE,
        resolver=resolve_live.match,
        graphql_type=LazyMatch | None,
        description="The match, for a normalised cache. The update contains `version`, `status`, `phase`, `innings`, "
        "`target`, `result` and `note`. If other fields are selected, or the update is a snapshot, the match is read "
        "when the update is sent, and may be newer than the `version` of the update. Null if the match was deleted.",
    )


@value_type(description="Updates of live matches.")
class LiveScores:
    is_snapshot: bool = described(
        "Whether the updates are a snapshot of all live matches: the first event. Later events contain changes only."
    )
    updates: list[MatchUpdate] = described("The updates, at most one per match, in no order.")
    ended: list[strawberry.ID] = described(
        "The `matchId` of each match that the gateway no longer polls, in no order: it ended five minutes ago, its "
        "play is suspended, or the source no longer lists it. A match that returns starts with a snapshot.",
        name="removedMatchIds",
    )


@strawberry.type
class ActiveMatchQueries:
    active_match = pattern_field(
        patterns.STATE,
        resolver=resolve.active_match,
        graphql_type=ActiveMatch | None,
        description="Return the state that the poller of a match maintains; null if it has none.",
    )
    active_matches = pattern_field(
        patterns.ALL_ACTIVE,
        resolver=resolve.active_matches,
        graphql_type=list[ActiveMatch],
        extent=Extent(size=10),
        description="Return one state for each match that is active, idle, or ended within the last day, by `matchId`.",
    )
    live_matches = pattern_field(
        patterns.LIVE_MATCHES,
        resolver=resolve.live_matches,
        graphql_type=list[LiveMatch],
        extent=Extent(size=10),
        description="Return one entry for each live match, by `matchId`. A match is live while the gateway polls it, "
        "which includes the five minutes after its end.",
    )


@strawberry.type
class ActiveMatchMutations:
    register_active_match = pattern_field(
        patterns.REGISTER,
        resolver=resolve.register_active_match,
        graphql_type=ActiveMatch,
        # The state of an idle match, which the registration continues, has some KB.
        extent=Extent(written=3),
        description="Start polling a match from its present state, and return it. A repeated request returns the match "
        "and changes nothing. CONFLICT if the match ended within the last day. NOT_FOUND for an unknown match.",
    )
    end_active_match = pattern_field(
        patterns.DEACTIVATE,
        resolver=resolve.end_active_match,
        graphql_type=ActiveMatch,
        description="Stop polling a match, and return it. Its state is kept for a day. NOT_FOUND if it has no state.",
    )
    delete_active_match = pattern_field(
        patterns.DELETE,
        resolver=resolve.delete_active_match,
        graphql_type=ActiveMatch | None,
        description="Delete the state of a match that is not polled. Return the state as it was, or null if there "
        "was none. CONFLICT if the match is polled.",
    )


@strawberry.type
class ActiveMatchSubscriptions:
    match_updates = pattern_subscription(
        patterns.MATCH_UPDATES,
        resolver=resolve_live.match_updates,
        graphql_type=AsyncGenerator[MatchUpdate, None],
        description="Receive a match as it is played: first a snapshot, then each later version exactly once, alone "
        "or conflated within `minIntervalMs`. The subscription completes when the match has ended and is no longer "
        "polled; for a match that ended earlier, it completes after the snapshot. A version that cannot be read "
        "arrives as an event with the error INTERNAL, and the subscription continues. NOT_FOUND for an unknown match.",
    )
    live_scores = pattern_subscription(
        patterns.LIVE_SCORES,
        resolver=resolve_live.live_scores,
        graphql_type=AsyncGenerator[LiveScores, None],
        extent=Extent(scanned=10),
        description="Receive all live matches of a league, or of all leagues: first a snapshot of all of them, "
        "then each change. A match is live while the gateway polls it, which includes the five minutes after its end: "
        "`liveScore.phase` distinguishes finished matches from those in play. NOT_FOUND for an unknown league.",
    )
