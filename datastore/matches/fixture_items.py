"""The parts of a match: those that writers set, those that subscribers see, and those that queries select."""

from collections.abc import Mapping
from functools import lru_cache
from itertools import chain

from datastore.change_streams.change import Change
from datastore.dynamodb.codec import Item
from datastore.dynamodb.record_decoder import RecordDecoder
from datastore.items import attributes as stored
from datastore.matches.cricket import Match

# The fields that are known before the first ball.
FACTS = (
    *("league_id", "league_code", "home_team_id", "away_team_id", "start_time", "season_id"),
    *("round", "format", "venue", "scheduled_overs", "balls_per_over"),
)
# The fields that change while a match is played.
STATE = (
    *("status", "phase", "note", "toss", "target", "result"),
    *("follow_on", "player_of_match", "innings", "scorecards"),
)
# The attributes that the subscribers of a match see: no times of writes, and none that only pollers and syncs use.
SHOWN = tuple(Match.__declaration__.attributes[name].name for name in (*FACTS, *STATE))

# The attributes of a fixture that a poll reads.
tick_from = Match.decoder.without(frozenset({"toss", "target", "result", "innings", "follow_on", "scorecards"}))


def _unknown() -> None:
    return None


# A match from the index, which does not project the revision: it is None, not 0.
summary_from = Match.decoder.replacing(revision=stored.derived(_unknown), operator_fields=stored.derived(_unknown))

# The parts of a match that are decoded only if the query selects them: the API fields of each part, and its fields in
# the record. There are few parts, so each combination has its own decoder.
_PARTS: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("venue",): ("venue",),
    ("result",): ("result",),
    ("toss", "target"): ("toss", "target"),
    ("innings", "followOnEnforced"): ("innings", "follow_on"),
    ("scorecards",): ("scorecards",),
    ("seasonId", "season", "note", "playerOfMatch", "scheduledOvers", "ballsPerOver"): (
        *("season_id", "note", "player_of_match", "scheduled_overs", "balls_per_over"),
    ),
    ("operatorFields",): ("operator_fields",),
    ("version", "revision"): ("version", "fence", "last_ball_id", "revision"),
    ("updatedAt", "liveUpdatedAt", "archivedAt"): ("updated_at", "live_updated_at", "archived_at"),
}
# The API fields that need none of these parts, or read them again.
_OTHERS = (
    *("__typename", "id", "matchId", "leagueId", "leagueCode", "league", "homeTeamId", "homeTeam"),
    *("awayTeamId", "awayTeam", "startTime", "status", "phase", "round", "format", "lineups", "liveScore"),
    *("activeMatch", "followedByViewer", "follows", "liveActivities"),
)
_ALL_FIELDS = frozenset(chain(_OTHERS, *_PARTS))


@lru_cache(256)
def decoder_for(fields: frozenset[str]) -> RecordDecoder[Match]:
    """Return the decoder of the table's items for a query that selects these fields."""
    if not fields <= _ALL_FIELDS:
        return Match.decoder  # a display state needs the complete match
    omitted = [values for shown_by, values in _PARTS.items() if fields.isdisjoint(shown_by)]
    return Match.decoder.without(frozenset(chain.from_iterable(omitted)))


def is_shown(change: Change) -> bool:
    """Return whether a change of a fixture shows in `matchUpdates`, and no change of `active-matches` follows it.

    A new fixture has no subscribers, and a deleted fixture shows nothing.
    """
    old, new = change.old, change.new
    if old is None or new is None or _is_written_by_poller(old, new):
        return False
    return any(old.get(name) != new.get(name) for name in SHOWN)


def _is_written_by_poller(old: Item, new: Item) -> bool:
    """Return whether a poller wrote the fixture: its version in `active-matches` reaches subscribers.

    Each write of a poller sets `liveUpdatedAt` and `updatedAt` to its time, and two writes may have the same time. A
    sync sets `updatedAt` alone.
    """
    written = new.get("liveUpdatedAt")
    is_version = old.get("version") != new.get("version") and new.get("updatedAt") == written
    return written is not None and (written != old.get("liveUpdatedAt") or is_version)
