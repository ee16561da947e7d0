"""Livestreams: what one is, how the table keeps it, and when it begins and ends."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import readable, record
from datastore.errors import BadUserInput, Conflict, NotFound
from datastore.keyspace.photos import livestreams as keys
from datastore.model.access_patterns import AccessPattern
from datastore.model.composite_keys import Key
from datastore.model.ids import uuid7_moment
from datastore.model.timestamps import from_iso, iso
from datastore.photos.lookups import Lookups
from datastore.session.optimistic_locking import (
    check_version,
    may_be_applied,
    updated_record,
    version_of,
    version_values,
    versioned_update,
)
from datastore.session.pagination import Page, SortOrder, Span, ordered, read_page
from datastore.session.store import Store
from datastore.session.writes import WriteResult

LONGEST = timedelta(days=30)
# How many of those made last a subscriber hears of when they begin or end without being changed.
WATCHED = 100
TRIES = 5
# A clock may be set, and a timer does not run while the machine sleeps: so often it is looked at in any case.
LONGEST_NAP_SECONDS = 60.0
SHORTEST_NAP_SECONDS = 0.01


class LivestreamState(StrEnum):
    """Where a livestream is in its time, in the order in which it comes to be there."""

    UPCOMING = "upcoming"
    LIVE = "live"
    ENDED = "ended"


_IN_ORDER = tuple(LivestreamState)


@dataclass(frozen=True, slots=True)
class Livestream:
    """A livestream. Without `end_time` its end is not known. `told_at`: the moment of the event that tells of it."""

    livestream_id: str
    title: str
    description: str | None
    stream_url: str
    start_time: datetime
    end_time: datetime | None
    created_at: datetime
    told_at: datetime | None = None
    version: int = 0

    def state(self, now: datetime) -> LivestreamState:
        if self.end_time is not None and now >= self.end_time:
            return LivestreamState.ENDED
        return LivestreamState.LIVE if now >= self.start_time else LivestreamState.UPCOMING

    def passes(self, now: datetime) -> datetime | None:
        """When its state changes next, unless it is changed itself; None when it does not."""
        ahead = [moment for moment in (self.start_time, self.end_time) if moment is not None and moment > now]
        ended = self.state(now) is LivestreamState.ENDED
        return None if ended else min(ahead, default=None)


def is_livestream(item_keys: Mapping[str, str]) -> bool:
    return item_keys["PK"].startswith(keys.PREFIX)


def livestream_from(item: Mapping[str, Any]) -> Livestream:
    return Livestream(
        livestream_id=keys.livestream_parts(Key(item["PK"], item["SK"])),
        title=item["title"],
        description=item.get("description"),
        stream_url=item["streamUrl"],
        start_time=from_iso(item["startTime"]),
        # Others write an attribute that is not there as null, too.
        end_time=None if item.get("endTime") is None else from_iso(item["endTime"]),
        created_at=from_iso(item["createdAt"]),
        version=version_of(item),
    )


def _livestream_item(livestream: Livestream) -> Item:
    made = uuid7_moment(livestream.livestream_id)
    key = keys.livestream(livestream.livestream_id, keys.sort_key_at(made or livestream.created_at))
    item = {
        "PK": key.partition,
        "SK": key.sort,
        "entityType": keys.TYPE,
        "streamUrl": livestream.stream_url,
        "title": livestream.title,
        "description": livestream.description,
        "startTime": iso(livestream.start_time),
        "endTime": None if livestream.end_time is None else iso(livestream.end_time),
        "createdAt": iso(livestream.created_at),
    }
    return {name: value for name, value in item.items() if value is not None}


def check_times(start: datetime, end: datetime | None, field: str = "endTime") -> None:
    """Raise `BadUserInput`, about `field`, unless the end comes after the start and soon enough."""
    if end is not None and not timedelta(0) < end - start <= LONGEST:
        raise BadUserInput(f"`endTime` must be after `startTime`, by at most {LONGEST.days} days.", field=field)


class _TimesChanged(Exception):
    """It does not begin or end when it did as it was read, or is gone."""


class Livestreams:
    """One method for each access pattern."""

    def __init__(self, store: Store, lookups: Lookups, now: datetime) -> None:
        self._store = store
        self._lookups = lookups
        self._now = now

    async def by_id(self, livestream_id: str, *, consistent: bool = False) -> Livestream | None:
        """SPARKS-N3."""
        pattern = keys.LIVESTREAM_CONSISTENT if consistent else keys.LIVESTREAM
        return record(livestream_from, await self._lookups.find(pattern, keys.partition(livestream_id), keys.PREFIX))

    async def latest(self) -> Livestream | None:
        """SPARKS-8."""
        page = await self._store.query(keys.LATEST_LIVESTREAM, {"partition": keys.TYPE}, limit=1)
        return record(livestream_from, page.items[0] if page.items else None)

    async def all(self, span: Span, order: SortOrder) -> Page:
        """SPARKS-8: those made last first, or the other way round."""
        return await read_page(self._store, ordered(keys.LIVESTREAMS, order), [{"partition": keys.TYPE}], span)

    async def at_start(self) -> list[Livestream]:
        """SPARKS-S1: the `WATCHED` made last, as a subscription finds them; the index may be a moment behind."""
        page = await self._store.query(keys.LIVESTREAM_CHANGED, {"partition": keys.TYPE}, limit=WATCHED)
        return readable(livestream_from, page.items)

    async def one_at_start(self, livestream_id: str) -> tuple[Item, Livestream]:
        """SPARKS-S1: one with all writes up to now, and its item. Raises `NotFound`."""
        return await self._there(keys.LIVESTREAM_CONSISTENT, livestream_id)

    async def create(self, livestream: Livestream) -> Livestream:
        """SPARKS-W1: announce it; of one id there is one, and that is answered."""
        written = await self._store.put(keys.CREATE_LIVESTREAM, _livestream_item(livestream))
        return record(livestream_from, written.item) or livestream

    async def update(self, livestream_id: str, changes: Mapping[str, Any], expected: int | None = None) -> Livestream:
        """SPARKS-W1: change attributes, by their names in the item; None takes one away.

        Raises `NotFound`, `BadUserInput` when it would end before it begins, `Outdated`, `Conflict`.
        """
        return await self._change(livestream_id, lambda there: _allowed(there, changes), expected)

    async def end(self, livestream_id: str, expected: int | None = None) -> Livestream:
        """SPARKS-W1: it ends now; one that has ended stays as it is. Raises `NotFound`, `Outdated`, `Conflict`."""
        return await self._change(livestream_id, self._ending, expected)

    def _ending(self, livestream: Livestream) -> Mapping[str, Any]:
        state = livestream.state(self._now)
        if state is LivestreamState.UPCOMING:
            raise Conflict("The livestream has not begun: change its times instead.")
        return {} if state is LivestreamState.ENDED else {"endTime": iso(self._now)}

    async def _change(
        self, livestream_id: str, decide: Callable[[Livestream], Mapping[str, Any]], expected: int | None
    ) -> Livestream:
        """What `decide` makes of it as it is, written only while its times are those that were read."""
        for _ in range(TRIES):
            item, there = await self._there(keys.UPDATE_LIVESTREAM, livestream_id)
            changes = self._decided(item, there, decide, expected)
            if not changes:
                return there
            written = await self._write(item, changes, expected)
            with suppress(_TimesChanged):
                return updated_record(written, expected, changes, livestream_from, _TimesChanged)
        raise Conflict("The livestream is being changed by others at the same time; try again.")

    def _decided(
        self,
        item: Item,
        there: Livestream,
        decide: Callable[[Livestream], Mapping[str, Any]],
        expected: int | None,
    ) -> Mapping[str, Any]:
        """What `decide` makes of it, or nothing where this mutation did it before. Raises `Outdated`."""
        if not self._store.is_retry:
            check_version(item, expected, livestream_from)
            return decide(there)
        changes = decide(there)
        if may_be_applied(item, expected, changes):
            return {}
        check_version(item, expected, livestream_from)
        return changes

    async def _write(self, item: Item, changes: Mapping[str, Any], expected: int | None) -> WriteResult:
        expression, values = versioned_update(changes)
        values |= version_values(expected)
        key, was = Key(item["PK"], item["SK"]), {"startWas": item["startTime"], "endWas": item.get("endTime")}
        pattern = keys.UPDATE_LIVESTREAM if "endTime" in item else keys.UPDATE_OPEN_LIVESTREAM
        return await self._store.update(pattern, key, update=expression, **values, **was)

    async def _there(self, pattern: AccessPattern, livestream_id: str) -> tuple[Item, Livestream]:
        """As it is now, not as it was found before. Raises `NotFound`."""
        values = {"partition": keys.partition(livestream_id), "prefix": keys.PREFIX}
        page = await self._store.query(pattern, values, limit=1)
        item = page.items[0] if page.items else None
        livestream = record(livestream_from, item)
        if item is None or livestream is None:
            raise NotFound(f"There is no livestream {livestream_id!r}.")
        return item, livestream


def _allowed(there: Livestream, changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """The changes. Raises `BadUserInput` when the times do not go together with those that stay."""
    if changes.keys() & {"startTime", "endTime"}:
        start = from_iso(changes["startTime"]) if "startTime" in changes else there.start_time
        end = there.end_time
        if "endTime" in changes:
            end = None if changes["endTime"] is None else from_iso(changes["endTime"])
        check_times(start, end, "endTime" if "endTime" in changes else "startTime")
    return changes


class Schedule:
    """Livestreams that will begin or end, each with the state in which it was told of last.

    It holds none that only a change can bring to another state. `now` is the clock; one that is set back brings none
    back to a state that it has left.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._known: dict[str, tuple[Livestream, LivestreamState]] = {}

    def told(self, livestream: Livestream) -> Livestream:
        """The livestream at this moment, as an event tells of it; from now on that is known."""
        now = self._now()
        self._known.pop(livestream.livestream_id, None)
        if livestream.passes(now) is not None:
            self._known[livestream.livestream_id] = (livestream, livestream.state(now))
        return replace(livestream, told_at=now)

    def seen(self, livestream: Livestream, then: datetime) -> None:
        """It was told of as it stood then, somewhere else."""
        if livestream.passes(then) is not None:
            self._known[livestream.livestream_id] = (livestream, livestream.state(then))

    def forget(self, livestream_id: str) -> None:
        self._known.pop(livestream_id, None)

    def passed(self) -> list[Livestream]:
        """Those whose state is another than the one that was told."""
        now = self._now()
        return [self.told(stream) for stream, state in tuple(self._known.values()) if _is_past(stream, state, now)]

    def nap(self) -> float | None:
        """For how many seconds nothing begins or ends, as far as one should trust that; None when nothing will."""
        if not self._known:
            return None
        now = self._now()
        if any(_is_past(stream, state, now) for stream, state in self._known.values()):
            return 0.0
        moments = [moment for stream, _ in self._known.values() if (moment := stream.passes(now)) is not None]
        seconds = min(((moment - now).total_seconds() for moment in moments), default=LONGEST_NAP_SECONDS)
        return min(max(seconds, SHORTEST_NAP_SECONDS), LONGEST_NAP_SECONDS)


def _is_past(livestream: Livestream, state: LivestreamState, now: datetime) -> bool:
    return _IN_ORDER.index(livestream.state(now)) > _IN_ORDER.index(state)
