"""Livestreams: records, reads and writes, and the schedule of their changes of status."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from msgspec.structs import replace

from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import readable_records, record
from datastore.errors import BadUserInput, Conflict, NotFound
from datastore.items import attributes as stored
from datastore.items.forms import Line, Moment, Prose, Url
from datastore.items.stored_item import StoredItem
from datastore.keyspace.photos import livestreams as keys
from datastore.keyspace.photos.table import SPARKS
from datastore.model.access_patterns import AccessPattern, consistently
from datastore.model.composite_keys import key_of
from datastore.model.ids import uuid7_moment
from datastore.photos.lookups import Lookups
from datastore.session.optimistic_locking import (
    check_version,
    may_be_applied,
    updated_record,
    version_values,
    versioned_update,
)
from datastore.session.store import Store
from datastore.session.writes import WriteResult

MAX_DURATION = timedelta(days=30)
# The number of the newest livestreams whose starts and ends a subscriber receives.
WATCHED = 100
ATTEMPTS = 5
# The interval in which the clock is read at least: it may be set, and timers do not run while the machine sleeps.
MAX_SLEEP_SECONDS = 60.0
MIN_SLEEP_SECONDS = 0.01


class LivestreamStatus(StrEnum):
    """The status of a livestream, in the order in which it changes."""

    UPCOMING = "upcoming"
    LIVE = "live"
    ENDED = "ended"


_STATUS_ORDER = tuple(LivestreamStatus)


class Livestream(StoredItem, key=keys.livestream):
    """A livestream."""

    entity_type = stored.constant("entityType", keys.TYPE)
    livestream_id: str = stored.part()
    title: str = stored.text("title", form=Line(200))
    description: str | None = stored.text("description", missing=None, form=Prose(2000), removable=True)
    stream_url: str = stored.text("streamUrl", form=Url())
    start_time: datetime = stored.moment("startTime", form=Moment())
    #: None if the end is not known.
    end_time: datetime | None = stored.moment("endTime", missing=None, form=Moment(), removable=True)
    created_at: datetime = stored.moment("createdAt")
    #: The time of the event that carries the livestream.
    event_time: datetime | None = None
    version: int = stored.version(default=0)

    @property
    def sort(self) -> str:
        """The sort key of a new livestream: the time of its id."""
        return keys.livestream_at(self.livestream_id, uuid7_moment(self.livestream_id) or self.created_at).sort

    def status(self, now: datetime) -> LivestreamStatus:
        if self.end_time is not None and now >= self.end_time:
            return LivestreamStatus.ENDED
        return LivestreamStatus.LIVE if now >= self.start_time else LivestreamStatus.UPCOMING

    def next_state_change(self, now: datetime) -> datetime | None:
        """Return the time of the next scheduled change of status, or None."""
        future = [moment for moment in (self.start_time, self.end_time) if moment is not None and moment > now]
        has_ended = self.status(now) is LivestreamStatus.ENDED
        return None if has_ended else min(future, default=None)


is_livestream = keys.livestream_at.matches


def check_times(start: datetime, end: datetime | None, field: str = "endTime") -> None:
    """Raise `BadUserInput` for `field` unless the end is after the start, by at most `MAX_DURATION`."""
    if end is not None and not timedelta(0) < end - start <= MAX_DURATION:
        raise BadUserInput(f"`endTime` must be after `startTime`, by at most {MAX_DURATION.days} days.", field=field)


class _TimesChanged(Exception):
    """The times of a livestream changed after it was read, or it was deleted."""


class Livestreams:
    """One method for each access pattern."""

    def __init__(self, store: Store, lookups: Lookups, now: datetime) -> None:
        self._store = store
        self._lookups = lookups
        self._now = now

    async def by_id(self, livestream_id: str, pattern: AccessPattern = keys.LIVESTREAM) -> Livestream | None:
        """SPARKS-N3: return a livestream, or None."""
        return record(
            Livestream.decoder,
            await self._lookups.find(pattern, keys.livestream.partition_of(livestream_id), keys.livestream_at.prefix),
        )

    async def latest(self) -> Livestream | None:
        """SPARKS-8: return the newest livestream, or None."""
        page = await self._store.query(keys.LATEST_LIVESTREAM, {"partition": keys.TYPE}, limit=1)
        return record(Livestream.decoder, page.items[0] if page.items else None)

    async def at_start(self) -> list[Livestream]:
        """SPARKS-S1: return the newest `WATCHED` livestreams for a subscription. The index may lag."""
        page = await self._store.query(keys.LIVESTREAM_CHANGED, {"partition": keys.TYPE}, limit=WATCHED)
        return readable_records(Livestream.decoder, page.items)

    async def one_at_start(self, livestream_id: str) -> tuple[Item, Livestream]:
        """SPARKS-S1: read a livestream and its item consistently for a subscription. Raises `NotFound`."""
        return await self._current(consistently(keys.LIVESTREAM), livestream_id)

    async def create(self, livestream: Livestream) -> Livestream:
        """SPARKS-W1: create a livestream. Return the existing livestream of the id, if there is one."""
        written = await self._store.put(keys.CREATE_LIVESTREAM, livestream.item())
        return record(Livestream.decoder, written.item) or livestream

    async def update(self, livestream_id: str, changes: Mapping[str, Any], expected: int | None = None) -> Livestream:
        """SPARKS-W1: change fields, named as in `Livestream`; None removes one. Return the changed livestream.

        Raises `NotFound`, `Outdated`, `BadUserInput` if it would end before it starts, and `Conflict` if other requests
        change its times at each attempt.
        """
        return await self._change(livestream_id, lambda stored: _checked(stored, changes), expected)

    async def end(self, livestream_id: str, expected: int | None = None) -> Livestream:
        """SPARKS-W1: end a livestream now, unless it has ended. Raises `NotFound`, `Outdated`, `Conflict`."""
        return await self._change(livestream_id, self._end_change, expected)

    def _end_change(self, livestream: Livestream) -> Mapping[str, Any]:
        status = livestream.status(self._now)
        if status is LivestreamStatus.UPCOMING:
            raise Conflict("The livestream has not started: change its times instead.")
        return {} if status is LivestreamStatus.ENDED else {"end_time": self._now}

    async def _change(
        self, livestream_id: str, decide: Callable[[Livestream], Mapping[str, Any]], expected: int | None
    ) -> Livestream:
        """Write the changes that `decide` returns for the stored livestream, if its times are still unchanged.

        Return the stored livestream if there are none, or if an earlier attempt of this mutation applied them.
        """
        is_retry = self._store.is_retry
        for _ in range(ATTEMPTS):
            item, stored = await self._current(keys.UPDATE_LIVESTREAM, livestream_id)
            if not is_retry:
                check_version(item, expected, Livestream.decoder)
            changes = Livestream.attributes(decide(stored))
            if is_retry:
                if may_be_applied(item, expected, changes):
                    return stored
                check_version(item, expected, Livestream.decoder)
            if not changes:
                return stored
            written = await self._write(item, changes, expected)
            with suppress(_TimesChanged):
                return updated_record(written, expected, changes, Livestream.decoder, _TimesChanged)
        raise Conflict("Other requests are changing the livestream at the same time; try again.")

    async def _write(self, item: Item, changes: Mapping[str, Any], expected: int | None) -> WriteResult:
        expression, values = versioned_update(changes)
        values |= {"startWas": item["startTime"], "endWas": item.get("endTime"), **version_values(expected)}
        pattern = keys.UPDATE_LIVESTREAM if "endTime" in item else keys.UPDATE_OPEN_LIVESTREAM
        return await self._store.update(pattern, key_of(SPARKS, item), update=expression, **values)

    async def _current(self, pattern: AccessPattern, livestream_id: str) -> tuple[Item, Livestream]:
        """Read a livestream without the request's cache. Raises `NotFound`."""
        page = await self._store.query(pattern, keys.livestream_at.values_of(livestream_id), limit=1)
        item = page.items[0] if page.items else None
        livestream = record(Livestream.decoder, item)
        if item is None or livestream is None:
            raise NotFound(f"There is no livestream {livestream_id!r}.")
        return item, livestream


def _checked(stored: Livestream, changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the changes. Raises `BadUserInput` if the resulting times are not valid."""
    if changes.keys() & {"start_time", "end_time"}:
        start, end = changes.get("start_time", stored.start_time), changes.get("end_time", stored.end_time)
        check_times(start, end, "endTime" if "end_time" in changes else "startTime")
    return changes


class LivestreamSchedule:
    """The livestreams with scheduled changes of status, each with the last status that was published.

    `now` is the clock. If it is set back, no livestream returns to an earlier status.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._published: dict[str, tuple[Livestream, LivestreamStatus]] = {}

    def publish(self, livestream: Livestream) -> Livestream:
        """Record that the current status is published. Return the livestream with the time of its event."""
        now = self._now()
        self._published.pop(livestream.livestream_id, None)
        if livestream.next_state_change(now) is not None:
            self._published[livestream.livestream_id] = (livestream, livestream.status(now))
        return replace(livestream, event_time=now)

    def add_published(self, livestream: Livestream, at: datetime) -> None:
        """Record that another process published the state of a livestream at the time `at`."""
        if livestream.next_state_change(at) is not None:
            self._published[livestream.livestream_id] = (livestream, livestream.status(at))

    def remove(self, livestream_id: str) -> None:
        self._published.pop(livestream_id, None)

    def due(self) -> list[Livestream]:
        """Publish the livestreams whose status has changed since it was published."""
        now = self._now()
        published = tuple(self._published.values())
        return [self.publish(stream) for stream, status in published if _has_advanced(stream, status, now)]

    def sleep_seconds(self) -> float | None:
        """Return the seconds until the next change of status, up to `MAX_SLEEP_SECONDS`; None if none is scheduled."""
        if not self._published:
            return None
        now = self._now()
        if any(_has_advanced(stream, status, now) for stream, status in self._published.values()):
            return 0.0
        changes = [stream.next_state_change(now) for stream, _ in self._published.values()]
        waits = [(change - now).total_seconds() for change in changes if change is not None]
        return min(max(min(waits, default=MAX_SLEEP_SECONDS), MIN_SLEEP_SECONDS), MAX_SLEEP_SECONDS)


def _has_advanced(livestream: Livestream, status: LivestreamStatus, now: datetime) -> bool:
    return _STATUS_ORDER.index(livestream.status(now)) > _STATUS_ORDER.index(status)
