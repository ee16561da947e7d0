"""Changes of active matches as the feed brings them."""

from datastore.change_streams.shards.stream_reader import Change
from datastore.matches.live_state import ActiveMatch, active_match_from


class ParsedMatches:
    """Parses each change once for all who follow: they are told of it one after another."""

    def __init__(self) -> None:
        self._change: Change | None = None
        self._active: ActiveMatch | None = None

    def of(self, change: Change) -> ActiveMatch | None:
        """The match as it is after the change, None when it was removed."""
        if change is not self._change:
            self._active = None if change.new is None else active_match_from(change.new)
            self._change = change
        return self._active
