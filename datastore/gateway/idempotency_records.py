"""Answers of mutations, kept under Idempotency-Keys for a day (GW-I1…I5).

Who claims a key executes its mutation, and keeps the answer under that claim. A claim is held by its fence and owner:
what a former holder does after another took over fails. The mutation's `IdSource` goes with the claim: who takes it
over makes the ids that its former holder made.
"""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from datastore.keyspace.gateway import idempotency_records as keys
from datastore.model.ids import IdSource
from datastore.model.timestamps import from_iso, iso, to_seconds
from datastore.session.store import Store
from datastore.session.writes import WriteResult

LIFETIME = timedelta(hours=24)
# An item holds 400 KB: the rest is for the key and for what stands beside the answer.
LARGEST_ANSWER = 350_000
# A write costs a unit for each KB that is stored.
COMPRESSED_FROM = 1024
PLAIN, DEFLATED = "plain", "zlib"


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to execute the mutation of a key and to store its answer. Each claim has its own `owner`."""

    user_id: str
    key: str
    fingerprint: str
    owner: str
    fence: int
    origin: IdSource

    def taken_over(self, seen: "IdempotencyRecord") -> "Claim":
        """The claim that comes after the one that was seen. Earlier versions kept no origin."""
        origin = replace(seen.origin or self.origin, is_retry=True)
        return replace(self, fence=seen.fence + 1, origin=origin)


@dataclass(frozen=True, slots=True)
class IdempotencyRecord:
    """What is known of a key that another request used: its answer, or until when (epoch seconds) it is claimed.

    `fingerprint` tells what was asked then, and `origin` what is made from; None where an earlier version claimed it.
    """

    fingerprint: str
    owner: str
    fence: int
    held_until: float
    body: bytes | None
    origin: IdSource | None = None


Found = Claim | IdempotencyRecord | None


@dataclass(frozen=True, slots=True)
class Packed:
    """An answer as it is stored."""

    content: bytes
    coding: str

    @property
    def fits(self) -> bool:
        return len(self.content) <= LARGEST_ANSWER


def packed(body: bytes) -> Packed:
    """The answer, compressed where that makes it smaller."""
    if len(body) >= COMPRESSED_FROM and len(deflated := zlib.compress(body)) < len(body):
        return Packed(deflated, DEFLATED)
    return Packed(body, PLAIN)


class IdempotencyRecords:
    """One method for each access pattern. Claims are held for `lease` by the clock `now`."""

    def __init__(self, store: Store, now: Callable[[], datetime], lease: timedelta) -> None:
        self._store = store
        self._now = now
        self._lease = lease

    async def begin(self, claim: Claim) -> Found:
        """GW-I1: the claim, now one's own, or what another request left; None when that has just gone: try again."""
        written = await self._store.put(keys.CLAIM, self._item(claim), now=int(self._now().timestamp()))
        return _claimed(claim, written)

    async def take_over(self, claim: Claim, seen: IdempotencyRecord) -> Found:
        """GW-I2: the claim, with the next fence, if the key is still as it was `seen`; else as `begin`."""
        written = await self._store.put(keys.TAKE_OVER, self._item(claim), fence=seen.fence, owner=seen.owner)
        return _claimed(claim, written)

    async def finish(self, claim: Claim, answer: Packed) -> IdempotencyRecord | None:
        """GW-I3: keep the answer from now on. What another has made of the key, when it took over meanwhile."""
        written = await self._store.update(
            keys.STORE_RESPONSE,
            keys.idempotency_record(claim.user_id, claim.key),
            fence=claim.fence,
            owner=claim.owner,
            body=answer.content,
            coding=answer.coding,
            expiry=to_seconds(self._now() + LIFETIME),
        )
        return None if written.ok or written.item is None else entry_from(written.item)

    async def find(self, user_id: str, key: str) -> IdempotencyRecord | None:
        """GW-I4: read the record of a key again."""
        place = keys.idempotency_record(user_id, key)
        self._store.invalidate(keys.RECORD.table, place)
        item = await self._store.get(keys.RECORD, place)
        is_there = item is not None and item["expiresAt"] > self._now().timestamp()
        return entry_from(item) if item is not None and is_there else None

    async def release(self, claim: Claim) -> None:
        """GW-I5: the key is as if it had not been used, unless another took over.

        A claim that was taken over is released at once (GW-I2): the former owner may have written, and the next owner
        is to make what that one made.
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


def _claimed(claim: Claim, written: WriteResult) -> Found:
    if written.ok:
        return claim
    if written.item is None:
        return None
    entry = entry_from(written.item)
    # The answer to an earlier try may have been lost.
    return claim if (entry.owner, entry.fence) == (claim.owner, claim.fence) else entry


def entry_from(item: Mapping[str, Any]) -> IdempotencyRecord:
    body = item.get("body")
    if body is not None and item["coding"] == DEFLATED:
        body = zlib.decompress(body)
    origin = IdSource(from_iso(item["moment"]), item["seed"]) if "seed" in item else None
    return IdempotencyRecord(
        item["fingerprint"], item["owner"], item["fence"], item.get("held_until", 0.0), body, origin
    )
