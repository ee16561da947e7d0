"""Devices: the targets of push notifications, one per user (DEV-1 … DEV-4)."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import record
from datastore.errors import NotFound
from datastore.items import attributes as stored
from datastore.items.repository import Repository
from datastore.items.stored_item import StoredItem
from datastore.keyspace.matches import devices as keys
from datastore.keyspace.matches.devices import DEVICES
from datastore.model.access_patterns import consistently
from datastore.model.composite_keys import Key
from datastore.model.timestamps import iso, to_seconds
from datastore.session.optimistic_locking import (
    PUT_VERSIONS,
    check_version,
    may_be_applied,
    updated_record,
    version_of,
    version_values,
)

LIFETIME = timedelta(days=90)


class Platform(StrEnum):
    """The operating system of a device. APNs delivers to all of these."""

    IOS = "ios"
    IPADOS = "ipados"
    WATCHOS = "watchos"


def _platform(text: str) -> Platform:
    return Platform(text.lower())


class Device(StoredItem, key=keys.device):
    """A device that is registered for push notifications. Its `repr` omits the push tokens."""

    user_id: str = stored.part()
    device_token: str = stored.part(secret=True, typical=64)
    platform: Platform = stored.text("platform", _platform)
    apns_token: str = stored.text("apnsToken", missing=stored.text("deviceToken"), secret=True, typical=64)
    push_to_start_token: str | None = stored.text("pushToStartToken", missing=None, secret=True)
    os_version: str | None = stored.text("osVersion", missing=None)
    app_version: str | None = stored.text("appVersion", missing=None)
    registered_at: datetime | None = stored.moment("registeredAt", missing=None)
    expires_at: datetime = stored.seconds("ttl")
    version: int = stored.version(default=0)


class Devices(Repository):
    """One method for each access pattern. `now` is the time of the request. Expired devices are not returned."""

    async def of_user(self, user_id: str, *, consistent: bool = False) -> Device | None:
        """DEV-1: return the device of a user, or None. Reads one item, and more only after expired items."""
        values, pattern = {"partition": user_id}, consistently(keys.DEVICE_OF_USER, consistent)
        start: Item | None = None
        while True:
            page = await self._store.query(pattern, values, start=start, limit=1)
            if page.items:
                return record(Device.decoder, page.items[0])
            if (start := page.next_start) is None:
                return None

    async def register(
        self, user_id: str, device_token: str, *, platform: Platform, apns_token: str, os_version: str, app_version: str
    ) -> Device:
        """DEV-2: register a device for 90 days in place of any other device. It keeps its push-to-start token.

        The device is written before the other devices are read. Of two concurrent registrations the later therefore
        finds the earlier. A request that reads both keeps the last registered, so exactly one device remains.
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
        assert written.item is not None, "An update without a condition returns the item."
        items = [item async for item in self._store.query_all(keys.REGISTER_DEVICE, {"partition": user_id})]
        await asyncio.gather(*[self._replace(item) for item in _older(items)])
        return Device.decoder(written.item)

    async def _replace(self, item: Item) -> None:
        key = keys.device(item["userId"], item["deviceToken"])
        # A device that was registered again meanwhile remains: its registration removes the others.
        written = await self._store.delete(keys.REPLACE_DEVICE, key, seen=item.get("registeredAt", ""))
        _observe_deleted(key, written.item if written.ok else None)

    async def update_push_to_start_token(
        self, user_id: str, device_token: str, token: str, expected: int | None = None
    ) -> Device:
        """DEV-3: store a push-to-start token, unless it is stored already.

        Raises `NotFound` if there is no such device, `Outdated` if the stored version is not the expected one.
        """
        key = keys.device(user_id, device_token)
        item = await self._store.get(keys.UPDATE_PUSH_TO_START, key)
        device = record(Device.decoder, item)
        if device is None or item is None:
            raise _no_device()
        if not (self._store.is_retry and may_be_applied(item, expected, {"pushToStartToken": token})):
            check_version(item, expected, Device.decoder)
        if device.push_to_start_token == token:
            return device
        values: dict[str, Any] = {"token": token, "one": 1, **version_values(expected)}
        written = await self._store.update(keys.UPDATE_PUSH_TO_START, key, **values)
        return updated_record(written, expected, {"pushToStartToken": token}, Device.decoder, _no_device)

    async def remove_push_to_start_token(self, user_id: str, device_token: str, rejected: str) -> None:
        """DEV-3: remove the rejected push-to-start token. A newer token of the device remains."""
        await self._store.update(
            keys.REMOVE_PUSH_TO_START, keys.device(user_id, device_token), rejected=rejected, one=1
        )

    async def delete(self, user_id: str, device_token: str) -> Device | None:
        """DEV-4: delete a device. Return it as it was, or None if there was none."""
        key = keys.device(user_id, device_token)
        written = await self._store.delete(keys.DELETE_DEVICE, key)
        _observe_deleted(key, written.item)
        return record(Device.decoder, written.item)


def _observe_deleted(key: Key, item: Item | None) -> None:
    if item is not None:
        PUT_VERSIONS.observe((DEVICES.name, key), version_of(item))


def _no_device() -> NotFound:
    return NotFound("You have no such device: register it first.")


def _older(items: Sequence[Item]) -> Sequence[Item]:
    """Return all devices except the last registered. The token orders devices of one registration time."""
    return sorted(items, key=lambda item: (item.get("registeredAt", ""), item["deviceToken"]))[:-1]
