"""Sessions of Live Activities, which show a match on a device's lock screen (LA-1 … LA-6)."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from datastore.dynamodb.records import readable_records, record
from datastore.errors import Conflict, NotFound
from datastore.items import attributes as stored
from datastore.items.repository import Repository
from datastore.items.stored_item import StoredItem
from datastore.keyspace.matches import live_activities as keys
from datastore.keyspace.matches.live_activities import LIVE_ACTIVITIES
from datastore.matches.cricket import Match
from datastore.model.access_patterns import AccessPattern
from datastore.model.composite_keys import Key, second_part
from datastore.model.timestamps import iso, to_seconds
from datastore.session.optimistic_locking import PUT_VERSIONS, updated_record, version_values
from datastore.session.pagination import Page, Span, read_page

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


# The values of expressions that are the same in all requests.
CONSTANTS: dict[str, Any] = {"one": 1, **{status.name.lower(): status.value for status in LiveActivityStatus}}


class LiveActivity(StoredItem, key=keys.live_activity):
    """A session on a device. Its `repr` omits the push token."""

    match_id: str = stored.part()
    user_id: str = stored.text("userId")
    # Writes address the item by its key. Another program may omit the attribute `deviceId`, or write another value.
    device_id: str = stored.part("deviceId", typical=64)
    update_token: str = stored.text("updateToken", secret=True, typical=140)
    status: LiveActivityStatus = stored.choice("status", LiveActivityStatus)
    session_started_at: datetime = stored.moment("sessionStartedAt")
    ended_at: datetime | None = stored.moment("endedAt", missing=None)
    end_reason: str | None = stored.text("endReason", missing=None)
    suspended_at: datetime | None = stored.moment("suspendedAt", missing=None)
    expires_at: datetime = stored.seconds("ttl")
    version: int = stored.version(default=0)


class LiveActivities(Repository):
    """One method for each access pattern. `now` is the time of the request. Expired sessions are not returned."""

    async def by_key(self, match_id: str, user_id: str, device_id: str) -> LiveActivity | None:
        """LA-N1: return a session, or None."""
        key = keys.live_activity(match_id, user_id, device_id)
        return record(LiveActivity.decoder, await self._store.get(keys.ACTIVITY, key))

    async def of_match(self, match_id: str, span: Span) -> Page:
        """LA-1: return the sessions of a match, by user and device."""
        return await read_page(self._store, keys.ACTIVITIES_OF_MATCH, [{"partition": match_id}], span)

    async def pages_of_match(self, match_id: str) -> AsyncIterator[list[LiveActivity]]:
        """LA-1: yield the active sessions of a match in pages. Damaged items are logged and omitted."""
        values = keys.live_activity.values_of(match_id) | {"active": LiveActivityStatus.ACTIVE.value}
        async for items in self._store.query_pages(keys.ACTIVE_OF_MATCH, values):
            if activities := readable_records(LiveActivity.decoder, items):
                yield activities

    async def of_user(self, user_id: str, span: Span) -> Page:
        """LA-2: return the sessions of a user. The index has no sort key: their order is stable but arbitrary."""
        return await read_page(self._store, keys.ACTIVITIES_OF_USER, [{"partition": user_id}], span)

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
            "startedAt": iso(self._now),
            "ttl": to_seconds(self._now + LIFETIME),
            "begun": PUT_VERSIONS.initial(self._now, (LIVE_ACTIVITIES.name, key)),
        }
        activity = await self._update(keys.REGISTER_ACTIVITY, key, values)
        assert activity is not None, "An update without a condition returns the item."
        return activity

    async def _check_devices(self, match_id: str, user_id: str, device_id: str) -> None:
        values = {"partition": match_id, "user": keys.user_prefix(user_id)}
        pages = self._store.query_pages(keys.REGISTER_ACTIVITY, values, attributes=("userId#deviceId",))
        devices = {second_part(item["userId#deviceId"]) async for items in pages for item in items}
        if len(devices) >= MAX_DEVICES and device_id not in devices:
            raise Conflict(f"You have sessions of the match {match_id!r} on {MAX_DEVICES} devices, which is the limit.")

    async def update_token(
        self, match_id: str, user_id: str, device_id: str, update_token: str, expected: int | None = None
    ) -> LiveActivity:
        """LA-4: store a new push token. A suspended session becomes active again.

        Raises `NotFound` if there is no session, or it has ended; `Outdated` if its version is not the expected one.
        """
        key = keys.live_activity(match_id, user_id, device_id)
        values = CONSTANTS | {"token": update_token} | version_values(expected)
        written = await self._store.update(keys.UPDATE_TOKEN, key, **values)
        activity = record(LiveActivity.decoder, written.item)
        if activity is None or activity.status is LiveActivityStatus.ENDED:
            raise _no_session(match_id)
        changes = {"updateToken": update_token, "status": LiveActivityStatus.ACTIVE.value}
        return updated_record(written, expected, changes, LiveActivity.decoder, lambda: _no_session(match_id))

    async def end(
        self, match_id: str, user_id: str, device_id: str, reason: str, expected: int | None = None
    ) -> LiveActivity | None:
        """LA-5: end a session. A session that has ended stays unchanged. Return None if there is none.

        Raises `Outdated` if a session that has not ended has another version than the expected one.
        """
        values = CONSTANTS | {"endedAt": iso(self._now), "reason": reason} | version_values(expected)
        key = keys.live_activity(match_id, user_id, device_id)
        written = await self._store.update(keys.END_ACTIVITY, key, **values)
        activity = record(LiveActivity.decoder, written.item)
        if activity is None or activity.status is LiveActivityStatus.ENDED:
            return activity
        return updated_record(written, expected, {}, LiveActivity.decoder, lambda: _no_session(match_id))

    async def suspend(
        self, match_id: str, user_id: str, device_id: str, token: str | None = None
    ) -> LiveActivity | None:
        """LA-6: suspend a session. With a rejected `token`, only if that is still its token.

        Return None if there is no such session, it has ended, or its token has changed.
        """
        values = {"suspendedAt": iso(self._now), "rejected": token}
        pattern = keys.SUSPEND_ACTIVITY if token is None else keys.SUSPEND_REJECTED
        return await self._update(pattern, keys.live_activity(match_id, user_id, device_id), values)

    async def _update(self, pattern: AccessPattern, key: Key, values: dict[str, Any]) -> LiveActivity | None:
        written = await self._store.update(pattern, key, **CONSTANTS | values)
        return record(LiveActivity.decoder, written.item) if written.ok else None


def _no_session(match_id: str) -> NotFound:
    return NotFound(f"You have no session for the match {match_id!r} on this device, or it has ended.")
