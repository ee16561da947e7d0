"""Sessions of Live Activities, which show a match on a device's lock screen (LA-1 … LA-6)."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from datastore.dynamodb.records import readable_records, record
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

# iOS ends a Live Activity after at most eight hours, and removes it from the lock screen after four more.
LIFETIME = timedelta(hours=12)
MAX_DEVICES = 10


class LiveActivityStatus(StrEnum):
    """The status of a session."""

    #: Receives updates.
    ACTIVE = "active"
    ENDED = "ended"
    #: Receives no updates until the device sends a new push token.
    SUSPENDED = "suspended"


@dataclass(frozen=True, slots=True)
class LiveActivity:
    """A session on a device. Its `repr` omits the push token."""

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
    """One method for each access pattern. `now` is the time of the request. Expired sessions are not returned."""

    def __init__(self, store: Store, now: datetime) -> None:
        self._store = store
        self._now = now

    async def of_match(self, match_id: str, span: Span) -> Page:
        """LA-1: return the sessions of a match, by user and device."""
        return await read_page(self._store, keys.ACTIVITIES_OF_MATCH, [self._of(match_id)], span)

    async def pages_of_match(self, match_id: str) -> AsyncIterator[list[LiveActivity]]:
        """LA-1: yield the active sessions of a match in pages. Damaged items are logged and omitted."""
        values = self._of(match_id) | {"active": LiveActivityStatus.ACTIVE.value}
        async for items in self._store.query_pages(keys.ACTIVE_OF_MATCH, values):
            if activities := readable_records(live_activity_from, items):
                yield activities

    async def of_user(self, user_id: str, span: Span) -> Page:
        """LA-2: return the sessions of a user. The index has no sort key: their order is stable but arbitrary."""
        return await read_page(self._store, keys.ACTIVITIES_OF_USER, [self._of(user_id)], span)

    async def register(self, match: Match, user_id: str, device_id: str, update_token: str) -> LiveActivity:
        """LA-3: start or restart a session of a match.

        Raises `Conflict` if the match has ended, or the user has sessions of it on `MAX_DEVICES` other devices. Ended
        and suspended sessions count until they expire, or their number would be unbounded.
        """
        if match.phase.is_over or match.archived_at is not None:
            raise Conflict(f"The match {match.match_id} has ended: it has no more updates.")
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
        assert activity is not None, "An update without a condition returns the item."
        return activity

    async def _check_devices(self, match_id: str, user_id: str, device_id: str) -> None:
        values = self._of(match_id) | {"user": keys.user_prefix(user_id)}
        pages = self._store.query_pages(keys.REGISTER_ACTIVITY, values, attributes=("userId#deviceId",))
        devices = {_device_of(item) async for items in pages for item in items}
        if len(devices) >= MAX_DEVICES and device_id not in devices:
            raise Conflict(f"You have sessions of the match {match_id!r} on {MAX_DEVICES} devices, which is the limit.")

    async def update_token(
        self, match_id: str, user_id: str, device_id: str, update_token: str, expected: int | None = None
    ) -> LiveActivity:
        """LA-4: store a new push token. A suspended session becomes active again.

        Raises `NotFound` if there is no session, or it has ended; `Outdated` if its version is not the expected one.
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
        stored = record(live_activity_from, written.item)
        if stored is None or stored.status is LiveActivityStatus.ENDED or stored.expires_at <= self._now:
            raise _no_session(match_id)
        changes = {"updateToken": update_token, "status": active}
        return updated_record(written, expected, changes, live_activity_from, lambda: _no_session(match_id))

    async def end(self, match_id: str, user_id: str, device_id: str, reason: str) -> LiveActivity | None:
        """LA-5: end a session. An ended session keeps its time and reason. Return None if there is none."""
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
        """LA-6: suspend a session. With a rejected `token`, only if that is still its token.

        Return None if there is no such session, it has ended, or its token has changed.
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
    """Return the device of a session. An item of another program has it only in its key."""
    return item.get("deviceId") or second_part(item["userId#deviceId"])


def _moment(item: Mapping[str, Any], name: str) -> datetime | None:
    text = item.get(name)
    return None if text is None else from_iso(text)
