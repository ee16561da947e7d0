"""Filters for subscribers that join a running sequence of versions: see `JoinFilter`."""

from collections.abc import Mapping, Sequence

from datastore.errors import Internal
from resolvers.matches.match_update import LiveScores, MatchUpdate


class _VersionFilter:
    """A filter for the versions of a running sequence that a joining subscriber does not have yet.

    The subscriber read each match at some version, which may be later than the version the sequence delivered last.
    A match that the subscriber's read did not contain stays unknown until the sequence reports that it has left.
    """

    def __init__(self, delivered: Mapping[str, int]) -> None:
        self._delivered = dict(delivered)
        self._known: dict[str, int | None] = {}

    @property
    def is_settled(self) -> bool:
        return not self._known

    def knows(self, updates: Sequence[MatchUpdate]) -> None:
        self.resume_from({update.match_id: update.version for update in updates})

    def is_reached(self, seen: Mapping[str, int], left: Mapping[str, int]) -> bool:
        return all(max(seen.get(id, -1), left.get(id, -1)) >= version for id, version in self._delivered.items())

    def resume_from(self, seen: Mapping[str, int]) -> None:
        known = {**seen}
        delivered = self._delivered
        self._known = {id: known.get(id) for id in known | delivered if known.get(id) != delivered.get(id)}

    def is_new(self, id: str, update: MatchUpdate | None) -> bool:
        """Return whether an update is new to the subscriber. An `update` of None means that the match has left."""
        if id not in self._known:
            return True
        version = self._known[id]
        if update is None or (version is None and update.is_snapshot):
            del self._known[id]
            return update is not None or version is not None
        if version is None:
            return False
        if update.version >= version:
            del self._known[id]
        return update.version > version


class UpdateJoinFilter(_VersionFilter):
    """A filter for the updates of one match that are later than the first one."""

    def begin(self, first: MatchUpdate) -> None:
        self.knows([first])

    def accepts(self, event: MatchUpdate | Internal) -> bool:
        return isinstance(event, Internal) or self.is_new(event.match_id, event)


class ScoresJoinFilter(_VersionFilter):
    """A filter for live scores that are later than the first snapshot."""

    def begin(self, first: LiveScores) -> None:
        self.knows(first.updates)

    def accepts(self, event: LiveScores | Internal) -> bool:
        """Return whether an event is new. Each event of a sequence concerns one match."""
        if isinstance(event, Internal):
            return True
        if event.ended:
            return self.is_new(event.ended[0], None)
        return any([self.is_new(update.match_id, update) for update in event.updates])
