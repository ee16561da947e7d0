"""Where push notifications of a user go: one device a user (DEV-1 … DEV-4)."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import record
from datastore.errors import NotFound
from datastore.keyspace.matches import devices as keys
from datastore.keyspace.matches.devices import DEVICES
from datastore.model.composite_keys import Key
from datastore.model.timestamps import from_iso, from_seconds, iso, to_seconds
from datastore.session.optimistic_locking import (
    PUT_VERSIONS,
    check_version,
    may_be_applied,
    updated_record,
    version_of,
    version_values,
)
from datastore.session.store import Store

LIFETIME = timedelta(days=90)


class Platform(StrEnum):
    """What a device runs: the systems that APNs delivers matches to."""

    IOS = "ios"
    IPADOS = "ipados"
    WATCHOS = "watchos"


@dataclass(frozen=True, slots=True)
class Device:
    """A device that is registered for push notifications. Its tokens are not shown where the record is printed."""

    user_id: str
    device_token: str = field(repr=False)
    platform: Platform
    apns_token: str = field(repr=False)
    push_to_start_token: str | None = field(repr=False)
    os_version: str | None
    app_version: str | None
    registered_at: datetime | None
    expires_at: datetime
    version: int = 0


class Devices:
    """One method for each access pattern. `now` is the moment of the request: what has expired is not there."""

    def __init__(self, store: Store, now: datetime) -> None:
        self._store = store
        self._now = now

    async def of_user(self, user_id: str) -> Device | None:
        """DEV-1: one item is read, more only while those before have expired."""
        values = {"partition": user_id, "now": self._now.timestamp()}
        start: Item | None = None
        while True:
            page = await self._store.query(keys.DEVICE_OF_USER, values, start=start, limit=1)
            if page.items:
                return record(device_from, page.items[0])
            if (start := page.next_start) is None:
                return None

    async def register(
        self,
        user_id: str,
        device_token: str,
        *,
        platform: Platform,
        apns_token: str,
        os_version: str,
        app_version: str,
    ) -> Device:
        """DEV-2: register a device for 90 days in place of any other; its push-to-start token stays.

        It is written first and the others are looked for then, so that of two registrations at once the later finds
        the earlier: whoever sees both keeps the one registered last, and one device is left, never two or none.
        """
        key = keys.device(user_id, device_token)
        values: dict[str, Any] = {
            "platform": platform.value,
            "apnsToken": apns_token,
            "osVersion": os_version,
            "appVersion": app_version,
            "registeredAt": iso(self._now),
            "ttl": to_seconds(self._now + LIFETIME),
            "begun": PUT_VERSIONS.initial(self._now, (DEVICES.name, key)),
            "one": 1,
        }
        written = await self._store.update(keys.REGISTER_DEVICE, key, **values)
        assert written.item is not None, "An update without a condition answers the item."
        items = [item async for item in self._store.query_all(keys.REGISTER_DEVICE, {"partition": user_id})]
        await asyncio.gather(*[self._replace(item) for item in _replaced(items)])
        return device_from(written.item)

    async def _replace(self, item: Item) -> None:
        key = keys.device(item["userId"], item["deviceToken"])
        # One that was registered anew meanwhile is left: that registration looks after the others.
        written = await self._store.delete(keys.REPLACE_DEVICE, key, seen=item.get("registeredAt", ""))
        _saw_deleted(key, written.item if written.ok else None)

    async def update_push_to_start_token(
        self, user_id: str, device_token: str, token: str, expected: int | None = None
    ) -> Device:
        """DEV-3: one that is known already is not written again.

        Raises `NotFound` when there is no such device, and `Outdated`.
        """
        key = keys.device(user_id, device_token)
        item = await self._store.get(keys.UPDATE_PUSH_TO_START, key)
        device = self._living(item)
        if device is None or item is None:
            raise _no_device()
        if not (self._store.is_retry and may_be_applied(item, expected, {"pushToStartToken": token})):
            check_version(item, expected, device_from)
        if device.push_to_start_token == token:
            return device
        values: dict[str, Any] = {"token": token, "one": 1, **version_values(expected)}
        written = await self._store.update(keys.UPDATE_PUSH_TO_START, key, **values)
        return updated_record(written, expected, {"pushToStartToken": token}, device_from, _no_device)

    async def forget_push_to_start_token(self, user_id: str, device_token: str, rejected: str) -> None:
        """DEV-3: the device is asked in no more until it tells a new token; one it has told meanwhile stays."""
        await self._store.update(
            keys.FORGET_PUSH_TO_START, keys.device(user_id, device_token), rejected=rejected, one=1
        )

    async def delete(self, user_id: str, device_token: str) -> Device | None:
        """DEV-4: the device that was deleted, or None if there was none."""
        key = keys.device(user_id, device_token)
        written = await self._store.delete(keys.DELETE_DEVICE, key)
        _saw_deleted(key, written.item)
        return self._living(written.item)

    def _living(self, item: Mapping[str, Any] | None) -> Device | None:
        device = record(device_from, item)
        return device if device and device.expires_at > self._now else None


def _saw_deleted(key: Key, item: Item | None) -> None:
    if item is not None:
        PUT_VERSIONS.observe((DEVICES.name, key), version_of(item))


def _no_device() -> NotFound:
    return NotFound("You have no such device: register it first.")


def _replaced(items: Sequence[Item]) -> Sequence[Item]:
    """All but the one that was registered last; of one moment's, the token decides."""
    return sorted(items, key=lambda item: (item.get("registeredAt", ""), item["deviceToken"]))[:-1]


def device_from(item: Mapping[str, Any]) -> Device:
    registered_at = item.get("registeredAt")
    return Device(
        user_id=item["userId"],
        device_token=item["deviceToken"],
        platform=Platform(item["platform"].lower()),
        apns_token=item.get("apnsToken", item["deviceToken"]),
        push_to_start_token=item.get("pushToStartToken"),
        os_version=item.get("osVersion"),
        app_version=item.get("appVersion"),
        registered_at=None if registered_at is None else from_iso(registered_at),
        expires_at=from_seconds(item["ttl"]),
        version=version_of(item),
    )
