"""The running gateways, with fingerprints of the settings that all gateways of an installation share (GW-S1 to GW-S3).

Each gateway stores its item at the start and every minute. The item of one that has not ended cleanly expires.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from datastore.dynamodb.records import readable_records
from datastore.keyspace import gateway as keys
from datastore.model.composite_keys import Key
from datastore.model.timestamps import from_iso, iso, to_seconds
from datastore.session.store import Store

LIFETIME = timedelta(hours=1)
# The running gateways that are read. A fleet of more is compared in part.
MOST_GATEWAYS = 500


@dataclass(frozen=True, slots=True)
class SettingsFingerprints:
    """The fingerprints of a gateway's settings: each is a keyed hash, which reveals no value.

    A fingerprint of a secret names it, so that gateways can compare whether they accept the secrets of each other.
    """

    #: The secret that signs new values.
    secret: str
    #: All accepted secrets, with the one that signs.
    accepted: tuple[str, ...]
    #: The secret that encrypts new ids of photo users, and all that decrypt them.
    user_ids: str
    accepted_user_ids: tuple[str, ...]
    #: The other settings by the name of their variable, hashed with a secret: by the fingerprint of that secret.
    settings: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """A gateway that runs, or has ended without deleting its item."""

    #: The name of its host, and its port.
    address: str
    #: A text that is unique to the process.
    run: str
    #: The time at which it stored the item.
    seen_at: datetime
    fingerprints: SettingsFingerprints


class RunningGateways:
    """The running gateways, with one method for each access pattern."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def put(self, gateway: RunningGateway) -> None:
        """GW-S1: store a gateway, in place of an earlier one with its address."""
        await self._store.put(keys.PUT_SETTINGS, _item(gateway))

    async def all(self) -> list[RunningGateway]:
        """GW-S2: return the running gateways, at most `MOST_GATEWAYS`, in the order of their addresses."""
        values = keys.running_gateway.values_of()
        page = await self._store.query(keys.ALL_SETTINGS, values, limit=MOST_GATEWAYS)
        return list(readable_records(gateway_from, page.items))

    async def delete(self, gateway: RunningGateway) -> None:
        """GW-S3: delete a gateway, unless another process has replaced it."""
        await self._store.delete(keys.DELETE_SETTINGS, keys.running_gateway(gateway.address), run=gateway.run)


def gateway_from(item: Mapping[str, Any]) -> RunningGateway:
    (address,) = keys.running_gateway.parts(Key(item["PK"], item["SK"]))
    return RunningGateway(
        address,
        item["run"],
        from_iso(item["seenAt"]),
        SettingsFingerprints(
            item["secret"],
            tuple(item["accepted"]),
            item["userIds"],
            tuple(item["acceptedUserIds"]),
            item["settings"],
        ),
    )


def _item(gateway: RunningGateway) -> dict[str, Any]:
    found = gateway.fingerprints
    return {
        **keys.running_gateway.item(gateway.address),
        "run": gateway.run,
        "seenAt": iso(gateway.seen_at),
        "expiresAt": to_seconds(gateway.seen_at + LIFETIME),
        "secret": found.secret,
        "accepted": list(found.accepted),
        "userIds": found.user_ids,
        "acceptedUserIds": list(found.accepted_user_ids),
        "settings": {secret: dict(settings) for secret, settings in found.settings.items()},
    }
