"""Changes of the table `cricket-fixtures` that the subscribers of a match receive."""

from datastore.change_streams.change import Change
from datastore.dynamodb.codec import Item

# The facts and the state of a match, without the times of writes and the attributes that only pollers and syncs use.
SHOWN = (
    "leagueId",
    "leagueCode",
    "homeTeamId",
    "awayTeamId",
    "startTime",
    "seasonId",
    "round",
    "format",
    "venue",
    "scheduledOvers",
    "ballsPerOver",
    "status",
    "phase",
    "note",
    "toss",
    "target",
    "result",
    "followOn",
    "playerOfMatch",
    "scores",
    "scorecards",
)


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
