"""Sessions of Live Activities: what follows a match on a device's lock screen (LA-1 … LA-6)."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from datastore.dynamodb.records import readable, record
from datastore.errors import Conflict, NotFound
from datastore.keyspace.matches import live_activities as keys
from datastore.keyspace.matches.live_activities import LIVE_ACTIVITIES
from datastore.matches.cricket import Match
from datastore.model.access_patterns import AccessPattern
from datastore.model.composite_keys import Key, second_part
from datastore.model.timestamps import from_iso, from_seconds, iso, to_seconds
from datastore.session.optimistic_locking import PUT_VERSIONS, updated_record, version_of, version_values
from datastore.session.pagination import Page, Span, read_page
from datastore.session.store import Store

# iOS ends a Live Activity after at most eight hours, and takes it off the lock screen after four more.
LIFETIME = timedelta(hours=12)
MOST_DEVICES = 10


class LiveActivityStatus(StrEnum):
    """ACTIVE gets updates, SUSPENDED waits for a token that is accepted, ENDED is over."""

    ACTIVE = "active"
    ENDED = "ended"
    SUSPENDED = "suspended"


@dataclass(frozen=True, slots=True)
class LiveActivity:
    """One session on one device. Its token is not shown where the record is printed."""

    match_id: str
    user_id: str
    device_id: str
    update_token: str = field(repr=False)
    status: LiveActivityStatus
    session_started_at: datetime
    ended_at: datetime | None
    end_reason: str | None
    suspended_at: datetime | None
    expires_at: datetime
    version: int = 0


class LiveActivities:
    """One method for each access pattern. `now` is the moment of the request: what has expired is not there."""

    def __init__(self, store: Store, now: datetime) -> None:
        self._store = store
        self._now = now

    async def of_match(self, match_id: str, span: Span) -> Page:
        """LA-1: all sessions of a match, by user and device."""
        return await read_page(self._store, keys.ACTIVITIES_OF_MATCH, [self._of(match_id)], span)

    async def pages_of_match(self, match_id: str) -> AsyncIterator[list[LiveActivity]]:
        """LA-1: the active ones, a page at a time; what cannot be read is logged and left out."""
        values = self._of(match_id) | {"active": LiveActivityStatus.ACTIVE.value}
        async for items in self._store.query_pages(keys.ACTIVE_OF_MATCH, values):
            if activities := readable(live_activity_from, items):
                yield activities

    async def of_user(self, user_id: str, span: Span) -> Page:
        """LA-2: all sessions of a user. The index has no sort key: their order stays, and means nothing."""
        return await read_page(self._store, keys.ACTIVITIES_OF_USER, [self._of(user_id)], span)

    async def register(self, match: Match, user_id: str, device_id: str, update_token: str) -> LiveActivity:
        """LA-3: begin a session of a match, or begin it anew.

        Raises `Conflict` when the match is over, or the user has sessions of it on `MOST_DEVICES` others. Those that
        ended or are suspended count until they are forgotten: else there were no end to them.
        """
        if match.phase.is_over or match.archived_at is not None:
            raise Conflict(f"The match {match.match_id} is over: there is nothing more to show.")
        await self._check_devices(match.match_id, user_id, device_id)
        key = keys.live_activity(match.match_id, user_id, device_id)
        values: dict[str, Any] = {
            "user": user_id,
            "device": device_id,
            "token": update_token,
            "active": LiveActivityStatus.ACTIVE.value,
            "startedAt": iso(self._now),
            "ttl": to_seconds(self._now + LIFETIME),
            "begun": PUT_VERSIONS.initial(self._now, (LIVE_ACTIVITIES.name, key)),
        }
        activity = await self._update(keys.REGISTER_ACTIVITY, key, values)
        assert activity is not None, "An update without a condition answers the item."
        return activity

    async def _check_devices(self, match_id: str, user_id: str, device_id: str) -> None:
        values = self._of(match_id) | {"user": keys.of_user(user_id)}
        pages = self._store.query_pages(keys.REGISTER_ACTIVITY, values, attributes=("userId#deviceId",))
        taken = {_device_of(item) async for items in pages for item in items}
        if len(taken) >= MOST_DEVICES and device_id not in taken:
            raise Conflict(
                f"You have sessions of the match {match_id!r} on {MOST_DEVICES} devices, which is the limit."
            )

    async def update_token(
        self, match_id: str, user_id: str, device_id: str, update_token: str, expected: int | None = None
    ) -> LiveActivity:
        """LA-4: keep a new token; a suspended session is active again.

        Raises `NotFound` when there is none, or it has ended, and `Outdated`.
        """
        active = LiveActivityStatus.ACTIVE.value
        values: dict[str, Any] = {
            "token": update_token,
            "active": active,
            "ended": LiveActivityStatus.ENDED.value,
            "now": self._now.timestamp(),
            "one": 1,
        }
        key = keys.live_activity(match_id, user_id, device_id)
        written = await self._store.update(keys.UPDATE_TOKEN, key, **values, **version_values(expected))
        there = record(live_activity_from, written.item)
        if there is None or there.status is LiveActivityStatus.ENDED or there.expires_at <= self._now:
            raise _no_session(match_id)
        changes = {"updateToken": update_token, "status": active}
        return updated_record(written, expected, changes, live_activity_from, lambda: _no_session(match_id))

    async def end(self, match_id: str, user_id: str, device_id: str, reason: str) -> LiveActivity | None:
        """LA-5: end a session; what ended before keeps its time and reason. None when there is none."""
        values = {
            "ended": LiveActivityStatus.ENDED.value,
            "endedAt": iso(self._now),
            "reason": reason,
            "now": self._now.timestamp(),
        }
        return await self._update(keys.END_ACTIVITY, keys.live_activity(match_id, user_id, device_id), values)

    async def suspend(
        self, match_id: str, user_id: str, device_id: str, token: str | None = None
    ) -> LiveActivity | None:
        """LA-6: suspend a session, given the `token` that was rejected only while that is still its token.

        None when there is no such session, it has ended, or it has another token by now.
        """
        values: dict[str, Any] = {
            "suspended": LiveActivityStatus.SUSPENDED.value,
            "ended": LiveActivityStatus.ENDED.value,
            "suspendedAt": iso(self._now),
            "now": self._now.timestamp(),
            "rejected": token,
        }
        pattern = keys.SUSPEND_ACTIVITY if token is None else keys.SUSPEND_REJECTED
        return await self._update(pattern, keys.live_activity(match_id, user_id, device_id), values)

    async def _update(self, pattern: AccessPattern, key: Key, values: Mapping[str, Any]) -> LiveActivity | None:
        written = await self._store.update(pattern, key, **values, one=1)
        return record(live_activity_from, written.item) if written.ok else None

    def _of(self, partition: str) -> dict[str, Any]:
        return {"partition": partition, "now": self._now.timestamp()}


def _no_session(match_id: str) -> NotFound:
    return NotFound(f"You have no session for the match {match_id!r} on this device, or it has ended.")


def live_activity_from(item: Mapping[str, Any]) -> LiveActivity:
    return LiveActivity(
        match_id=item["matchId"],
        user_id=item["userId"],
        device_id=_device_of(item),
        update_token=item["updateToken"],
        status=LiveActivityStatus(item["status"]),
        session_started_at=from_iso(item["sessionStartedAt"]),
        ended_at=_moment(item, "endedAt"),
        end_reason=item.get("endReason"),
        suspended_at=_moment(item, "suspendedAt"),
        expires_at=from_seconds(item["ttl"]),
        version=version_of(item),
    )


def _device_of(item: Mapping[str, Any]) -> str:
    """Return the device of a session: an item of another program has it in its key alone."""
    return item.get("deviceId") or second_part(item["userId#deviceId"])


def _moment(item: Mapping[str, Any], name: str) -> datetime | None:
    text = item.get(name)
    return None if text is None else from_iso(text)
