"""The ordered versions of matches: for a subscriber, and for a subscriber that joins a running sequence.

A sequence subscribes to the change feed before it reads the state. Each later version is therefore in the state or in
the feed. The sequence drops versions that are not newer than the state; the remaining ones have no gap.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import msgspec

from datastore.change_streams.shards.stream_reader import Change
from datastore.change_streams.subscriptions.resume_position import SubscriptionProgress
from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import DAMAGE, DAMAGED
from datastore.errors import Internal
from datastore.keyspace.matches import active_matches as keys
from datastore.keyspace.matches.fixtures import FIXTURES
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.fixture_changes import is_shown
from datastore.matches.fixtures import Fixtures, no_match
from datastore.matches.live_state import ActiveMatch, ActiveStatus, LiveScore, begun
from datastore.queues import QueueLimits
from resolvers.matches.match_update import LiveScores, MatchUpdate, UnreadableUpdate, Updates, is_over, snapshot_of
from resolvers.shared.context import Context
from resolvers.shared.event_source import SecondTable, follow, log_unreadable

# The attributes of a state that updates show. A poll that found nothing new writes only other attributes.
SHOWN = (
    "version",
    "status",
    "matchPhase",
    "previousStatus",
    "previousScore",
    "previousBatting",
    "previousBowling",
    "last30Balls",
)
# An event holds the changes since the previous version, so only a conflated event may replace others.
KEEPING = QueueLimits(keys.MATCH_UPDATES.policy)


class _MatchEnded(NamedTuple):
    """A match is over and is not polled any more: no version follows this one."""

    version: int


class _StateDeleted(NamedTuple):
    """The state of a match was deleted."""

    match_id: str


class _FixtureChanged(NamedTuple):
    """The fixture of a match was changed, and not by the match's poller."""

    match_id: str


_Change = ActiveMatch | UnreadableUpdate | _StateDeleted | _FixtureChanged | _MatchEnded | Updates


class VersionSequence:
    """The present state, then every later version, each once and without a gap.

    With `only_live` the sequence reports that a match has left when the gateway no longer polls it, and sends a
    snapshot when the match returns. With a `match_id` the sequence contains that match and ends with its last version.
    `known` maps match ids to the versions that a resuming subscriber has. `seen` maps them to the versions delivered
    last, and `left` to the last versions of matches that left.
    """

    def __init__(
        self,
        context: Context,
        wanted: Callable[[Item], bool],
        known: Mapping[str, int],
        *,
        only_live: bool = False,
        match_id: str | None = None,
    ) -> None:
        self.seen: dict[str, int] = {**known}
        self.left: dict[str, int] = {}
        self._context = context
        self._wanted = wanted
        self._only_live = only_live
        self._match_id = match_id
        self._given: dict[str, MatchUpdate] = {}
        self._last_version: int | None = None
        self._is_deleted = False

    async def updates(
        self, stands: Callable[[], Awaitable[Updates]], progress: SubscriptionProgress | None
    ) -> AsyncGenerator[Updates, None]:
        """Yield the batch that `stands` reads, then a batch of one for each update."""
        changes: AsyncGenerator[_Change, None] = follow(
            self._context,
            keys.ACTIVE_MATCHES,
            self._select,
            KEEPING,
            prepare=partial(self._read_last_version, progress),
            first=partial(self._begin, stands),
            beside=SecondTable(FIXTURES, self._select_fixture),
            resumed=self._read_fixture_again,
            progress=progress,
        )
        async with aclosing(changes):
            async for change in changes:
                batch = await self._batch(change)
                if batch is not None:
                    yield batch
                if self._has_ended():
                    return

    async def _begin(self, stands: Callable[[], Awaitable[Updates]]) -> Updates:
        updates = await stands()
        given = [update for update in updates if isinstance(update, MatchUpdate)]
        self.seen.clear()
        self.seen.update({update.match_id: update.version for update in given})
        self._given = {update.match_id: update for update in given}
        return updates

    async def _read_last_version(self, progress: SubscriptionProgress | None) -> _MatchEnded | None:
        """Return the last version of a match that is over if the client resumes, else None."""
        if self._match_id is None or progress is None or not progress.is_resumed:
            return None
        update = await read_update(self._context, self._match_id)
        return _MatchEnded(update.version) if update.is_final else None

    async def _read_fixture_again(self) -> Updates | None:
        """Return a snapshot for a client that has resumed a match without a live state, else None.

        A change of a fixture has no resume position. If the match has a live state, its next update shows the change.
        """
        if self._match_id is None or await self._is_there(self._match_id):
            return None
        update = await self._fixture_update(self._match_id)
        return None if update is None else [update]

    async def _batch(self, change: _Change) -> Updates | None:
        """Return the updates of a change, None if it has none, or an `UnreadableUpdate` if an item is damaged."""
        try:
            return await self._batch_of(change)
        except Internal as error:
            if not isinstance(change, ActiveMatch | _StateDeleted | _FixtureChanged):
                raise
            return [UnreadableUpdate(change.match_id, error)]

    async def _batch_of(self, change: _Change) -> Updates | None:
        """Return the updates of a change, or None if it has none. Record the last version, or the state's deletion.

        Raises `Internal` if an item is damaged.
        """
        update: MatchUpdate | None = None
        match change:
            case UnreadableUpdate():
                # A later snapshot has been delivered already.
                is_past = 0 <= change.version < self.seen.get(change.of_match, 0)
                return None if is_past else [change]
            case _MatchEnded(version):
                self._last_version = version
            case _StateDeleted(match_id):
                update = await self._deleted(match_id)
            case _FixtureChanged(match_id):
                update = await self._fixture_update(match_id)
                self._note_last([] if update is None else [update])
            case ActiveMatch():
                update = await self._update(change)
                if is_over(change) and await self._is_over_now(change):
                    self._last_version = change.version
            case _:
                self._note_last(change)
                return change
        return None if update is None else [update]

    def _note_last(self, updates: Updates) -> None:
        final = (update.version for update in updates if isinstance(update, MatchUpdate) and update.is_final)
        self._last_version = next(final, self._last_version)

    async def _is_over_now(self, active: ActiveMatch) -> bool:
        """Return whether the stored match is over: the change may be older than the subscriber's state."""
        if self._match_id is None:
            return False
        matches = ActiveMatches(self._context.new_store(), self._context.services.now())
        latest = await matches.latest(active.match_id)
        return latest is None or is_over(latest)

    async def _deleted(self, match_id: str) -> MatchUpdate | None:
        """Return the update that a match has left; end the sequence instead if it contains a single match.

        Return None if the match has a new state by now.
        """
        if await self._is_there(match_id):
            return None
        self._is_deleted = not self._only_live
        return self._has_left(match_id) if self._only_live else None

    def _has_ended(self) -> bool:
        """Return whether the sequence's single match was deleted, or is over and its last version was delivered."""
        if self._is_deleted:
            return True
        if self._match_id is None or self._last_version is None:
            return False
        return self.seen.get(self._match_id, -1) >= self._last_version

    def _select(self, change: Change) -> ActiveMatch | UnreadableUpdate | _StateDeleted | None:
        image = change.new or change.old
        if image is None or not self._wanted(image):
            return None
        if change.new is None:
            return _StateDeleted(image["matchId"])
        if not _differs(change.old or {}, image):
            return None  # the poll found nothing new
        try:
            return self._context.services.parsed_matches.of(change)
        except DAMAGE as problem:
            log_unreadable(change, problem)
            return self._unreadable(image)

    def _unreadable(self, image: Item) -> UnreadableUpdate | None:
        """Return the error of a damaged item; None for a match that is not live in a sequence of live matches."""
        match_id, status = image["matchId"], image.get("status")
        if self._only_live and match_id not in self.seen and status in (ActiveStatus.IDLE, ActiveStatus.ENDED):
            return None
        version = image.get("version")
        return UnreadableUpdate(match_id, Internal(DAMAGED), version if isinstance(version, int) else -1)

    def _select_fixture(self, change: Change) -> _FixtureChanged | None:
        match_id = change.keys["matchId"]
        is_wanted = match_id in self.seen if self._match_id is None else match_id == self._match_id
        return _FixtureChanged(match_id) if is_wanted and is_shown(change) else None

    async def _fixture_update(self, match_id: str) -> MatchUpdate | None:
        """Return a snapshot after a change of the fixture; None if a later version of the match will show the change.

        For a match without a live state the snapshot has the fixture's version. For any other match it has the version
        delivered last, and the field `MatchUpdate.match` shows the change.
        """
        seen = self.seen.get(match_id, -1)
        active = await ActiveMatches(self._context.new_store(), self._context.services.now()).latest(match_id)
        if active is None:
            if self._only_live:
                return None
            update = await _read_fixture(self._context, match_id)
            if update.version < seen:
                return None
        elif active.version != seen or (self._only_live and active.status is not ActiveStatus.ACTIVE):
            return None
        else:
            update = snapshot_of(active)
        self._given[match_id] = update
        self.seen[match_id] = update.version
        return update

    async def _is_there(self, match_id: str) -> bool:
        matches = ActiveMatches(self._context.new_store(), self._context.services.now())
        return await matches.latest(match_id) is not None

    def _has_left(self, match_id: str) -> MatchUpdate | None:
        version, given = self.seen.pop(match_id, None), self._given.pop(match_id, None)
        if version is None or given is None:
            return None
        self.left[match_id] = version
        return replace(given, version=version, is_snapshot=False, changed=(), events=(), conflated=0, left=True)

    async def _restated(self, match_id: str, seen: int) -> MatchUpdate | None:
        """Return the present state if it has the version delivered last but other content, else None."""
        given, update = self._given.get(match_id), await read_update(self._context, match_id)
        is_same = given is not None and _content(given) == _content(update)
        return None if update.version != seen or is_same else update

    async def _update(self, active: ActiveMatch) -> MatchUpdate | None:
        if active.is_partial:  # the fixture has its league and its version
            matches = ActiveMatches(self._context.new_store(), self._context.services.now())
            active = await matches.latest(active.match_id) or active
            if not self._wanted({"matchId": active.match_id, "leagueCode": active.league_code}):
                return None
        if self._only_live and active.status is not ActiveStatus.ACTIVE:
            self.left[active.match_id] = active.version
            if self.seen.pop(active.match_id, None) is None:
                return None
            return replace(snapshot_of(active), is_snapshot=False, left=True)
        seen = self.seen.get(active.match_id)
        if seen == active.version and active.status is ActiveStatus.ACTIVE:
            # Another program has changed the state without a new version.
            update = await self._restated(active.match_id, active.version)
        else:
            update = await _next(self._context, active, seen)
        if update is not None:
            self._given[update.match_id] = update
            self.seen[update.match_id] = update.version
            self.left.pop(update.match_id, None)
        return update


class _Behind:
    """The difference between a subscriber that joins a running sequence and the sequence's own position.

    The subscriber read each match at some version, which may be later than the version the sequence delivered last.
    A match that the subscriber's read did not contain stays unknown until the sequence reports that it has left.
    """

    def __init__(self, sequence: VersionSequence) -> None:
        self._delivered = dict(sequence.seen)
        self._known: dict[str, int | None] = {}

    @property
    def is_settled(self) -> bool:
        return not self._known

    def knows(self, updates: Sequence[MatchUpdate]) -> None:
        self.go_on({update.match_id: update.version for update in updates})

    def is_reached(self, seen: Mapping[str, int], left: Mapping[str, int]) -> bool:
        return all(max(seen.get(id, -1), left.get(id, -1)) >= version for id, version in self._delivered.items())

    def go_on(self, seen: Mapping[str, int]) -> None:
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


class SinceUpdate(_Behind):
    """A filter for the updates of one match that are later than the first one."""

    def begin(self, first: MatchUpdate) -> None:
        self.knows([first])

    def is_news(self, event: MatchUpdate | Internal) -> bool:
        return isinstance(event, Internal) or self.is_new(event.match_id, event)


class SinceScores(_Behind):
    """A filter for live scores that are later than the first snapshot."""

    def begin(self, first: LiveScores) -> None:
        self.knows(first.updates)

    def is_news(self, event: LiveScores | Internal) -> bool:
        """Return whether an event is new. Each event of a sequence concerns one match."""
        if isinstance(event, Internal):
            return True
        if event.ended:
            return self.is_new(event.ended[0], None)
        return any([self.is_new(update.match_id, update) for update in event.updates])


def _differs(old: Item, new: Item) -> bool:
    return any(old.get(name) != new.get(name) for name in SHOWN)


def _content(update: MatchUpdate) -> LiveScore:
    return msgspec.structs.replace(update.live, updated_at=None)


async def _next(context: Context, active: ActiveMatch, seen: int | None) -> MatchUpdate | None:
    """Return the update of a change; None if the version was delivered already; a snapshot if versions are missing."""
    if seen is None:
        return snapshot_of(active)
    if active.version <= seen:
        return None
    if active.version == seen + 1:
        return MatchUpdate(
            active.match_id,
            active.league_code,
            active.version,
            active.live,
            changed=active.changed,
            events=active.events,
            is_final=is_over(active),
        )
    update = await read_update(context, active.match_id)
    return update if update.version > seen else None


async def read_update(context: Context, match_id: str) -> MatchUpdate:
    """Return a snapshot of a match from its live state or, without one, from its fixture.

    Raises `NotFound` for an unknown match.
    """
    active = await ActiveMatches(context.new_store(), context.services.now()).latest(match_id)
    return await _read_fixture(context, match_id) if active is None else snapshot_of(active)


async def _read_fixture(context: Context, match_id: str) -> MatchUpdate:
    """Return a snapshot of a match without a live state. Raises `NotFound` for an unknown match."""
    match = await Fixtures(context.new_store(), context.services.now()).latest(match_id)
    if match is None:
        raise no_match(match_id)
    return replace(snapshot_of(begun(match)), is_final=match.phase.is_over)
