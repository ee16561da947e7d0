"""Idempotency records: the responses of mutations by their Idempotency-Key, for a day (GW-I1 to GW-I5).

A request claims a key, executes the mutation and stores its response under the claim. A claim has a fencing token and
an owner: writes of a former owner fail after another request took the claim over. The claim contains the `IdSource` of
the mutation, so that the next owner derives the same ids.
"""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from datastore.keyspace import gateway as keys
from datastore.model.ids import IdSource
from datastore.model.timestamps import from_iso, iso, to_seconds
from datastore.session.store import Store
from datastore.session.writes import WriteResult

LIFETIME = timedelta(hours=24)
# An item has at most 400 KB. The rest is for its other attributes.
MAX_RESPONSE_BYTES = 350_000
# Smaller responses are not compressed: a write consumes a unit for each KB.
MIN_COMPRESSED_BYTES = 1024
PLAIN, DEFLATED = "plain", "zlib"


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to execute the mutation of an idempotency key and to store its response."""

    user_id: str
    key: str
    #: A hash of the document, the operation, the variables, and the role and email of the caller.
    fingerprint: str
    #: A text that is unique to the claim.
    owner: str
    #: The fencing token.
    fence: int
    origin: IdSource

    def taken_over(self, seen: "IdempotencyRecord") -> "Claim":
        """Return the claim that replaces the one that was read. Earlier versions stored no origin."""
        origin = replace(seen.origin or self.origin, is_retry=True)
        return replace(self, fence=seen.fence + 1, origin=origin)


@dataclass(frozen=True, slots=True)
class IdempotencyRecord:
    """The record of a key that another request used: its response, or its claim."""

    #: A hash of the document, the operation, the variables, and the role and email of the caller.
    fingerprint: str
    owner: str
    #: The fencing token.
    fence: int
    #: When the claim may be taken over, in epoch seconds.
    held_until: float
    #: The response, None while the mutation is executed.
    body: bytes | None
    #: The source of the mutation's ids, None if an earlier version of the gateway claimed the key.
    origin: IdSource | None = None


ClaimResult = Claim | IdempotencyRecord | None


@dataclass(frozen=True, slots=True)
class EncodedResponse:
    """A response as it is stored."""

    content: bytes
    coding: str

    @property
    def fits(self) -> bool:
        return len(self.content) <= MAX_RESPONSE_BYTES


def encoded_response(body: bytes) -> EncodedResponse:
    """Return the response, compressed if that makes it smaller."""
    if len(body) >= MIN_COMPRESSED_BYTES and len(deflated := zlib.compress(body)) < len(body):
        return EncodedResponse(deflated, DEFLATED)
    return EncodedResponse(body, PLAIN)


class IdempotencyRecords:
    """The idempotency records, with one method for each access pattern. `lease` is the duration of a claim."""

    def __init__(self, store: Store, now: Callable[[], datetime], lease: timedelta) -> None:
        self._store = store
        self._now = now
        self._lease = lease

    async def begin(self, claim: Claim) -> ClaimResult:
        """GW-I1: claim a key. Return the claim, or the record of another request.

        Return None if that record has just been released: the caller tries again.
        """
        written = await self._store.put(keys.CLAIM, self._item(claim))
        return _claimed(claim, written)

    async def take_over(self, claim: Claim, seen: IdempotencyRecord) -> ClaimResult:
        """GW-I2: claim a key with the next fencing token if its record is still the one that was `seen`.

        Return the claim, or the same as `begin`.
        """
        written = await self._store.put(keys.TAKE_OVER, self._item(claim), fence=seen.fence, owner=seen.owner)
        return _claimed(claim, written)

    async def finish(self, claim: Claim, response: EncodedResponse) -> IdempotencyRecord | None:
        """GW-I3: store the response. Return the record of the request that took the claim over, if there is one."""
        written = await self._store.update(
            keys.STORE_RESPONSE,
            keys.idempotency_record(claim.user_id, claim.key),
            fence=claim.fence,
            owner=claim.owner,
            body=response.content,
            coding=response.coding,
            expiry=to_seconds(self._now() + LIFETIME),
        )
        return None if written.ok or written.item is None else record_from(written.item)

    async def find(self, user_id: str, key: str) -> IdempotencyRecord | None:
        """GW-I4: read the record of a key again."""
        place = keys.idempotency_record(user_id, key)
        self._store.invalidate(keys.RECORD.table, place)
        item = await self._store.get(keys.RECORD, place)
        return None if item is None else record_from(item)

    async def release(self, claim: Claim) -> None:
        """GW-I5: make the key unused again, unless another request took the claim over.

        A claim that was taken over itself is kept and expires at once (GW-I2): its former owner may have written, and
        the next owner must derive the same ids.
        """
        if claim.origin.is_retry:
            item = self._item(claim) | {"held_until": self._now().timestamp()}
            await self._store.put(keys.TAKE_OVER, item, fence=claim.fence, owner=claim.owner)
            return
        place = keys.idempotency_record(claim.user_id, claim.key)
        await self._store.delete(keys.RELEASE, place, fence=claim.fence, owner=claim.owner)

    def _item(self, claim: Claim) -> dict[str, Any]:
        key = keys.idempotency_record(claim.user_id, claim.key)
        now = self._now()
        return {
            "PK": key.partition,
            "SK": key.sort,
            "fingerprint": claim.fingerprint,
            "owner": claim.owner,
            "fence": claim.fence,
            "moment": iso(claim.origin.requested_at),
            "seed": claim.origin.seed,
            "held_until": (now + self._lease).timestamp(),
            "expiresAt": to_seconds(now + LIFETIME),
        }


def _claimed(claim: Claim, written: WriteResult) -> ClaimResult:
    if written.has_acquired(claim.owner, claim.fence):
        return claim
    return None if written.item is None else record_from(written.item)


def record_from(item: Mapping[str, Any]) -> IdempotencyRecord:
    body = item.get("body")
    if body is not None and item["coding"] == DEFLATED:
        body = zlib.decompress(body)
    origin = IdSource(from_iso(item["moment"]), item["seed"]) if "seed" in item else None
    return IdempotencyRecord(
        item["fingerprint"], item["owner"], item["fence"], item.get("held_until", 0.0), body, origin
    )
