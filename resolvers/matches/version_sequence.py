"""The sequence of the versions of one match, or of all live matches.

A sequence subscribes to the change feed before it reads the state. Each later version is therefore in the state or in
the feed. The sequence drops versions that are not newer than the state; the remaining ones have no gap.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import msgspec

from datastore.change_streams.change import Change, log_unreadable
from datastore.change_streams.subscriptions.delivery import Delivery
from datastore.change_streams.subscriptions.event_source import SourceReader
from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import DAMAGE_ERRORS, DAMAGED_RECORD
from datastore.errors import Internal
from datastore.keyspace.matches import active_matches as keys
from datastore.keyspace.matches.fixtures import FIXTURES
from datastore.matches.fixture_items import is_shown
from datastore.matches.live_state import ActiveMatch, ActiveStatus, LiveScore
from datastore.queues import QueueLimits
from resolvers.matches.match_update import MatchUpdate, UnreadableUpdate, Updates, is_over, snapshot_of
from resolvers.matches.snapshots import latest_state, read_fixture_snapshot, read_snapshot
from resolvers.shared.context import Context
from resolvers.shared.event_source import SecondTable, follow

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
# An event contains the changes since the previous version, so only a conflated event may replace others.
QUEUE_LIMITS = QueueLimits(keys.MATCH_UPDATES.default_policy)


class _StateChanged(NamedTuple):
    """The state of a match was changed."""

    active: ActiveMatch
    #: Whether the change kept the version: another program has corrected the state.
    is_correction: bool

    @property
    def match_id(self) -> str:
        return self.active.match_id


class _MatchEnded(NamedTuple):
    """A match has ended and is no longer polled: no version follows this one."""

    version: int


class _StateDeleted(NamedTuple):
    """The state of a match was deleted."""

    match_id: str


class _FixtureChanged(NamedTuple):
    """The fixture of a match was changed, and not by the match's poller."""

    match_id: str


_Change = _StateChanged | UnreadableUpdate | _StateDeleted | _FixtureChanged | _MatchEnded | Updates


class VersionSequence:
    """The present state, then every later version, each once and without a gap.

    With `only_live` the sequence reports that a match has left when the gateway no longer polls it, and sends a
    snapshot when the match returns. With a `match_id` the sequence contains that match and ends with its last version.
    `includes` filters the items of matches. `known` maps match ids to the versions that a resuming subscriber has.
    """

    #: By match id, the version that was delivered last.
    seen: dict[str, int]
    #: By match id, the last version of a match that left.
    left: dict[str, int]

    def __init__(
        self,
        reader: SourceReader[Any],
        includes: Callable[[Item], bool],
        known: Mapping[str, int],
        *,
        only_live: bool = False,
        match_id: str | None = None,
    ) -> None:
        self.seen = {**known}
        self.left = {}
        self._reader = reader
        self._context: Context = reader.context
        self._is_resumed = False
        self._includes = includes
        self._only_live = only_live
        self._match_id = match_id
        self._delivered: dict[str, MatchUpdate] = {}
        self._last_version: int | None = None
        self._is_deleted = False

    async def updates(self, read_first: Callable[[], Awaitable[Updates]]) -> AsyncGenerator[Delivery[Updates], None]:
        """Yield the batch that `read_first` returns, then a batch of one for each update."""
        changes: AsyncGenerator[Delivery[_Change], None] = follow(
            self._reader,
            keys.ACTIVE_MATCHES,
            self._select,
            QUEUE_LIMITS,
            prepare=self._read_last_version,
            first=partial(self._begin, read_first),
            second_table=SecondTable(FIXTURES, self._select_fixture),
            on_resume=self._read_fixture_again,
        )
        async with aclosing(changes):
            async for delivery in changes:
                if delivery.start is not None:
                    self._is_resumed = self._reader.resume is not None and not delivery.start.is_too_old
                if delivery.event is None:
                    yield delivery.without_event()
                    continue
                try:
                    batch = await self._batch(delivery.event)
                except Internal as error:  # a damaged item
                    if not isinstance(delivery.event, _StateChanged | _StateDeleted | _FixtureChanged):
                        raise
                    batch = [UnreadableUpdate(delivery.event.match_id, error)]
                if batch is not None:
                    yield delivery.with_event(batch, delivery.known)
                if self._has_ended():
                    return

    async def _begin(self, read_first: Callable[[], Awaitable[Updates]]) -> Updates:
        updates = await read_first()
        snapshots = [update for update in updates if isinstance(update, MatchUpdate)]
        self.seen.clear()
        self.seen.update({update.match_id: update.version for update in snapshots})
        self._delivered = {update.match_id: update for update in snapshots}
        return updates

    async def _read_last_version(self) -> _MatchEnded | None:
        """Return the last version of the match if it has ended and the client resumes, else None."""
        if self._match_id is None or not self._is_resumed:
            return None
        update = await read_snapshot(self._context, self._match_id)
        return _MatchEnded(update.version) if update.is_final else None

    async def _read_fixture_again(self) -> Updates | None:
        """Return a snapshot for a client that has resumed a match without a live state, else None.

        A change of a fixture has no resume position. If the match has a live state, its next update shows the change.
        """
        if self._match_id is None or await self._has_state(self._match_id):
            return None
        update = await self._fixture_update(self._match_id)
        return None if update is None else [update]

    async def _batch(self, change: _Change) -> Updates | None:
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
                self._record_last_version([] if update is None else [update])
            case _StateChanged(active, is_correction):
                update = await self._update(active, is_correction=is_correction)
                if is_over(active) and await self._is_over_now(active):
                    self._last_version = active.version
            case _:
                self._record_last_version(change)
                return change
        return None if update is None else [update]

    def _record_last_version(self, updates: Updates) -> None:
        final = (update.version for update in updates if isinstance(update, MatchUpdate) and update.is_final)
        self._last_version = next(final, self._last_version)

    async def _is_over_now(self, active: ActiveMatch) -> bool:
        """Return whether the stored match has ended. The change may be older than the state of the subscriber."""
        if self._match_id is None:
            return False
        latest = await latest_state(self._context, active.match_id)
        return latest is None or is_over(latest)

    async def _deleted(self, match_id: str) -> MatchUpdate | None:
        """Return the update that a match has left. End the sequence instead if it contains a single match.

        Return None if the match has a new state by now.
        """
        if await self._has_state(match_id):
            return None
        self._is_deleted = not self._only_live
        return self._leave(match_id) if self._only_live else None

    def _has_ended(self) -> bool:
        """Return whether the sequence's single match was deleted, or has ended and its last version was delivered."""
        if self._is_deleted:
            return True
        if self._match_id is None or self._last_version is None:
            return False
        return self.seen.get(self._match_id, -1) >= self._last_version

    def _select(self, change: Change) -> _StateChanged | UnreadableUpdate | _StateDeleted | None:
        image, old = change.new or change.old, change.old or {}
        if image is None or not self._includes(image):
            return None
        if change.new is None:
            return _StateDeleted(image["matchId"])
        if not _is_shown_change(old, image):
            return None  # the poll found nothing new
        try:
            active = self._context.services.active_match_parser.parse(change)
        except DAMAGE_ERRORS as problem:
            log_unreadable(self._context.services.prefix, change, problem)
            return self._unreadable(image)
        return None if active is None else _StateChanged(active, old.get("version") == image.get("version"))

    def _unreadable(self, image: Item) -> UnreadableUpdate | None:
        """Return the error of a damaged item; None for a match that is not live in a sequence of live matches."""
        match_id, status = image["matchId"], image.get("status")
        if self._only_live and match_id not in self.seen and status in (ActiveStatus.IDLE, ActiveStatus.ENDED):
            return None
        version = image.get("version")
        return UnreadableUpdate(match_id, Internal(DAMAGED_RECORD), version if isinstance(version, int) else -1)

    def _select_fixture(self, change: Change) -> _FixtureChanged | None:
        match_id = change.keys["matchId"]
        is_included = match_id in self.seen if self._match_id is None else match_id == self._match_id
        return _FixtureChanged(match_id) if is_included and is_shown(change) else None

    async def _fixture_update(self, match_id: str) -> MatchUpdate | None:
        """Return a snapshot after a change of the fixture, or None if a later version of the match shows the change.

        For a match without a live state the snapshot has the fixture's version. For any other match it has the version
        delivered last, and the field `MatchUpdate.match` shows the change.
        """
        seen = self.seen.get(match_id, -1)
        active = await latest_state(self._context, match_id)
        if active is None:
            if self._only_live:
                return None
            update = await read_fixture_snapshot(self._context, match_id)
            if update.version < seen:
                return None
        elif active.version != seen or (self._only_live and active.status is not ActiveStatus.ACTIVE):
            return None
        else:
            update = snapshot_of(active)
        self._delivered[match_id] = update
        self.seen[match_id] = update.version
        return update

    async def _has_state(self, match_id: str) -> bool:
        return await latest_state(self._context, match_id) is not None

    def _leave(self, match_id: str) -> MatchUpdate | None:
        """Return the update that a match has left, or None if the sequence does not contain the match."""
        version, latest = self.seen.pop(match_id, None), self._delivered.pop(match_id, None)
        if version is None or latest is None:
            return None
        self.left[match_id] = version
        return replace(latest, version=version, is_snapshot=False, changed=(), events=(), conflated=0, left=True)

    async def _corrected(self, match_id: str, seen: int) -> MatchUpdate | None:
        """Return the present state if it has the version delivered last but other content, else None."""
        delivered, update = self._delivered.get(match_id), await read_snapshot(self._context, match_id)
        is_same = delivered is not None and _content(delivered) == _content(update)
        return None if update.version != seen or is_same else update

    async def _update(self, active: ActiveMatch, *, is_correction: bool) -> MatchUpdate | None:
        if active.is_partial:  # read the league and the version, which the change lacks
            active = await latest_state(self._context, active.match_id) or active
            if not self._includes({"matchId": active.match_id, "leagueCode": active.league_code}):
                return None
        if self._only_live and active.status is not ActiveStatus.ACTIVE:
            self.left[active.match_id] = active.version
            if self.seen.pop(active.match_id, None) is None:
                return None
            return replace(snapshot_of(active), is_snapshot=False, left=True)
        seen = self.seen.get(active.match_id)
        if is_correction and seen == active.version and active.status is ActiveStatus.ACTIVE:
            update = await self._corrected(active.match_id, active.version)
        else:
            update = await _next_update(self._context, active, seen)
        if update is not None:
            self._delivered[update.match_id] = update
            self.seen[update.match_id] = update.version
            self.left.pop(update.match_id, None)
        return update


def _is_shown_change(old: Item, new: Item) -> bool:
    return any(old.get(name) != new.get(name) for name in SHOWN)


def _content(update: MatchUpdate) -> LiveScore:
    return msgspec.structs.replace(update.live, updated_at=None)


async def _next_update(context: Context, active: ActiveMatch, seen: int | None) -> MatchUpdate | None:
    """Return the update of a change. It is None if the version was delivered, a snapshot if versions are missing."""
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
    update = await read_snapshot(context, active.match_id)
    return update if update.version > seen else None
