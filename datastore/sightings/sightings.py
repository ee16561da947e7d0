"""Street sightings: what one is, how the table keeps it, what the table can be asked (BLIP-1 … BLIP-8)."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from msgspec import Struct

from datastore.dynamodb.client import TransactionCancelled
from datastore.dynamodb.codec import Item
from datastore.dynamodb.record_decoder import RecordDecoder, derived, number, text
from datastore.dynamodb.records import record
from datastore.errors import Conflict, NotFound
from datastore.keyspace import sightings as keys
from datastore.keyspace.sightings import BLIP
from datastore.model.composite_keys import Key, second_part
from datastore.model.timestamps import from_iso, from_seconds, iso, to_millisecond, to_seconds
from datastore.session.pagination import Page, Span, empty_page
from datastore.session.store import Store
from datastore.session.writes import Action
from datastore.sightings.pages import read_by_moment
from datastore.sightings.reporters import TrustTier, UserProfile, count_confirmed, count_report, introduce, profile_from

LIFETIME = timedelta(seconds=1800)
CONFIRMATION_BOOST = 0.1
MOST_CONFIRMATION_BOOST = 0.3
TRUST_BOOST = {TrustTier.BRONZE: 0.0, TrustTier.SILVER: 0.05, TrustTier.GOLD: 0.10}
REPORT_TRIES = 12
# Of the actions of a confirmation, the one that puts the user's marker and the one that counts.
CONFIRMER, CONFIRMED = 1, 2
CONFIRM_TRIES = 3  # one is enough, and one more where another user was the first meanwhile
TIERS: Mapping[str, TrustTier] = {tier.value: tier for tier in TrustTier}


class Freshness(StrEnum):
    """How a sighting is drawn: above 0.66 of confidence fresh, from 0.33 fading, below stale."""

    FRESH = "fresh"
    FADING = "fading"
    STALE = "stale"


class Sighting(Struct, frozen=True, gc=False):
    """Something seen in the street. `trust_tier` is the reporter's at the moment of the report."""

    key: Key
    sighting_id: str
    area: str
    category: str
    description: str
    reporter_id: str
    trust_tier: TrustTier
    reported_at: datetime
    expires_at: datetime
    confirmation_count: int = 0

    def confidence(self, now: datetime) -> float:
        """(expiresAt - now)/1800 + min(0.1 per confirmation, 0.3) + trust, held within 0…1."""
        time_left = (self.expires_at - now) / LIFETIME
        boost = min(CONFIRMATION_BOOST * self.confirmation_count, MOST_CONFIRMATION_BOOST)
        return min(max(time_left + boost + TRUST_BOOST[self.trust_tier], 0.0), 1.0)

    def freshness(self, now: datetime) -> Freshness:
        confidence = self.confidence(now)
        if confidence > 0.66:
            return Freshness.FRESH
        return Freshness.FADING if confidence >= 0.33 else Freshness.STALE


@dataclass(frozen=True, slots=True)
class Trend:
    """How many live sightings a category has in a window; `items` holds them newest first, when they were asked for."""

    category: str
    window: timedelta
    score: int
    items: Sequence[Item]


class Sightings:
    """One method for each access pattern. `now` is the moment of the request: TTL and confidence go by it."""

    def __init__(self, store: Store, now: datetime) -> None:
        self._store = store
        self._now = now

    async def active_in(self, area: str, span: Span) -> Page:
        """BLIP-1: the active sightings of an area, newest first."""
        values = self._alive_in(area)
        if span.start is not None and span.start["SK"] < values["oldest"]:
            # A start key has to lie within the range. All that the list has beyond this one has expired.
            if not span.backward:
                return empty_page(span)
            span = Span(span.size, backward=True)
        return await read_by_moment(self._store, keys.ACTIVE_IN_AREA, values, span)

    def _alive_in(self, area: str) -> dict[str, Any]:
        """The values of a Query for the sightings of an area that may be alive."""
        oldest, now = keys.sightings_since(self._oldest), _ttl_now(self._now)
        return {"partition": keys.area(area), "oldest": oldest, "end": keys.SIGHTINGS_END, "now": now}

    @property
    def _oldest(self) -> datetime:
        """Sightings from before this moment have expired: TTL attributes are rounded up to a second."""
        return self._now - LIFETIME - timedelta(seconds=1)

    async def by_key(self, key: Key) -> Sighting | None:
        """One sighting by its full key, unless it has expired."""
        found = record(sighting_from, await self._store.get(keys.SIGHTING_NODE, key))
        return found if found and found.expires_at > self._now else None

    async def trending(self, categories: Sequence[str], window: timedelta, *, with_items: bool) -> list[Trend]:
        """BLIP-4: the categories by score, the number of live sightings reported in the window, highest first.

        One Query a category, side by side. The window begins with a whole second, within which the keys' order is not
        that of time. `with_items` fetches what it counts instead of counting alone.
        """
        trends = await asyncio.gather(*[self._trend(category, window, with_items) for category in categories])
        return sorted(trends, key=lambda trend: (-trend.score, trend.category))

    async def _trend(self, category: str, window: timedelta, with_items: bool) -> Trend:
        values = {
            "partition": keys.category(category),
            "cutoff": keys.trending_since(max(self._now - window, self._oldest)),
            "now": _ttl_now(self._now),
        }
        if not with_items:
            return Trend(category, window, await self._store.count(keys.TRENDING, values), ())
        items = [item async for item in self._store.query_all(keys.TRENDING, values)]
        return Trend(category, window, len(items), sorted(items, key=newness, reverse=True))

    async def confirm(self, area: str, sighting_id: str, *, user_id: str, nano_id: str) -> Sighting:
        """BLIP-5: count a user's confirmation once. One's own, or a second one, leaves the sighting as it stands.

        Raises `NotFound` when the area has no such sighting that is still active.
        """
        item = await self._find(area, sighting_id)
        for _ in range(CONFIRM_TRIES):
            if _counted(item, user_id):
                return sighting_from(item)
            try:
                await self._store.transact(keys.CONFIRM, self._confirmation(item, user_id, nano_id))
            except TransactionCancelled as cancelled:
                if cancelled.reasons[CONFIRMER] == "ConditionalCheckFailed":
                    # The user's confirmation may have been counted after the sighting was read.
                    return sighting_from(await self._find(area, sighting_id))
                # Another user may have been the first meanwhile.
                item = self._as_it_stands(cancelled, sighting_id)
                continue
            return sighting_from(item | {"confirmationCount": item.get("confirmationCount", 0) + 1})
        raise Conflict("The sighting changes too often at the moment; try again.", retryable=True)

    async def _find(self, area: str, sighting_id: str) -> Item:
        values = {**self._alive_in(area), "id": sighting_id}
        async for item in self._store.query_all(keys.CONFIRM, values):
            return item
        raise _no_sighting(sighting_id)

    def _confirmation(self, item: Item, user_id: str, nano_id: str) -> list[Action]:
        said = {
            "sightingId": item["sightingId"],
            "userId": user_id,
            "confirmedAt": iso(self._now),
            "expiresAt": item["expiresAt"],
        }
        confirmation = keys.confirmation(item["sightingId"], self._now, nano_id)
        # Confirmers were once a set in the sighting, which each confirmation wrote again, to the table and its index.
        confirmer = keys.confirmer(item["sightingId"], user_id)
        actions = [
            Action("Put", item={"PK": key.partition, "SK": key.sort, **said}, condition="attribute_not_exists(PK)")
            for key in (confirmation, confirmer)
        ]
        values: dict[str, Any] = {"now": _ttl_now(self._now), "me": user_id, "one": 1}
        counts = _counts_for_trust(item)
        if counts:
            values["none"] = 0
        sighting = Action(
            "Update",
            key=Key(item["PK"], item["SK"]),
            update=keys.CONFIRM.update,
            condition=keys.CONFIRM.condition + (f" AND {keys.FIRST_CONFIRMATION}" if counts else ""),
            values=values,
        )
        return [*actions, sighting, *([count_confirmed(item["reporterId"], self._now)] if counts else [])]

    def _as_it_stands(self, cancelled: TransactionCancelled, sighting_id: str) -> Item:
        item = cancelled.items[CONFIRMED]
        if cancelled.reasons[CONFIRMED] != "ConditionalCheckFailed":
            raise cancelled
        if item is None or item["expiresAt"] <= self._now.timestamp():
            raise _no_sighting(sighting_id)
        return item

    async def report(
        self,
        *,
        sighting_id: str,
        area: str,
        category: str,
        description: str,
        user_id: str,
        reported_at: datetime | None = None,
    ) -> Sighting:
        """BLIP-6: store a new sighting and count it in the reporter's totals and streak, in one transaction.

        One of this id and moment that says the same is answered as it stands, and not counted again.
        Raises `Conflict` if it says anything else, and for one of a moment (now if nothing is said) so long ago that it
        has expired: its earlier result is no longer known.
        """
        reported_at = reported_at or self._now
        if reported_at + LIFETIME <= self._now:
            raise Conflict("This was asked for so long ago that the sighting has expired.", mayHaveBeenApplied=True)
        for _ in range(REPORT_TRIES):
            profile = await self._store.get(keys.REPORT, keys.profile(user_id))
            tier = profile_from(profile).trust_tier if profile else TrustTier.BRONZE
            sighting = new_sighting(sighting_id, area, category, description, user_id, tier, reported_at)
            try:
                await self._store.transact(
                    keys.REPORT, [_put_new(sighting), count_report(user_id, profile, reported_at)]
                )
            except TransactionCancelled as cancelled:
                if cancelled.reasons[0] == "ConditionalCheckFailed":
                    return _reported_before(cancelled, sighting)
                if cancelled.reasons[1] != "ConditionalCheckFailed":
                    raise
                # Another report of the same user moved the streak to a new day meanwhile: look again.
                self._store.invalidate(BLIP, keys.profile(user_id))
                continue
            return sighting
        raise Conflict("The reporter's profile changes too often at the moment; try again.", retryable=True)

    async def seed(self, sightings: Sequence[Sighting], profiles: Sequence[UserProfile]) -> None:
        """BLIP-8: store demo sightings and their reporters, all or none. A reporter who is there stays as they are."""
        actions = [Action("Put", item=_sighting_item(sighting)) for sighting in sightings]
        actions += [introduce(profile) for profile in profiles]
        await self._store.transact(keys.SEED, actions)


def new_sighting(
    sighting_id: str,
    area: str,
    category: str,
    description: str,
    reporter_id: str,
    trust_tier: TrustTier,
    reported_at: datetime,
    confirmation_count: int = 0,
) -> Sighting:
    """A sighting as it is first stored; it lives 1800 s, to the whole second that DynamoDB's TTL takes."""
    moment = to_millisecond(reported_at)
    return Sighting(
        key=keys.sighting(area, iso(moment), sighting_id),
        sighting_id=sighting_id,
        area=area,
        category=category,
        description=description,
        reporter_id=reporter_id,
        trust_tier=trust_tier,
        reported_at=moment,
        expires_at=from_seconds(to_seconds(moment + LIFETIME)),
        confirmation_count=confirmation_count,
    )


def newness(item: Mapping[str, Any]) -> tuple[str, bool, str]:
    """What orders items of TrendingIndex, or keys of it, by their moments."""
    return keys.chronological(keys.SIGHTING_PREFIX + item["GSI1SK"])


def is_sighting(key: Mapping[str, Any]) -> bool:
    """Whether the table's key (or an item with it) is a sighting's."""
    return str(key["PK"]).startswith("AREA#") and str(key["SK"]).startswith(keys.SIGHTING_PREFIX)


def _put_new(sighting: Sighting) -> Action:
    return Action("Put", item=_sighting_item(sighting), condition=keys.REPORT.condition)


def _reported_before(cancelled: TransactionCancelled, wanted: Sighting) -> Sighting:
    """The sighting that was in the way of one with its key, if it says the same."""
    there = record(sighting_from, cancelled.items[0])
    said = (wanted.category, wanted.description, wanted.reporter_id)
    if there is None or (there.category, there.description, there.reporter_id) != said:
        raise Conflict(f"Sighting {wanted.sighting_id!r} is already reported.") from cancelled
    return there


def _counted(item: Item, user_id: str) -> bool:
    """Whether the sighting alone tells that a confirmation does not count: `confirmers` is of an earlier version."""
    return item["reporterId"] == user_id or user_id in item.get("confirmers", ())


def _counts_for_trust(item: Item) -> bool:
    """Whether the next confirmation is the first, of a report by somebody who can be trusted more."""
    is_first = not item.get("confirmationCount") and not item.get("confirmers")
    return is_first and item.get("trustTier") != TrustTier.GOLD.value


def _no_sighting(sighting_id: str) -> NotFound:
    return NotFound(f"There is no active sighting {sighting_id!r} in this area.")


def _ttl_now(now: datetime) -> float:
    """Now in epoch seconds as `expiresAt > :now` compares it: an item that expires this very moment is gone."""
    return now.timestamp()


def _moment_of(sort: str) -> datetime:
    return from_iso(second_part(sort))


def _sighting_item(sighting: Sighting) -> Item:
    return {
        "PK": sighting.key.partition,
        "SK": sighting.key.sort,
        "GSI1PK": keys.category(sighting.category),
        "GSI1SK": sighting.key.sort.removeprefix(keys.SIGHTING_PREFIX),
        "sightingId": sighting.sighting_id,
        "area": sighting.area,
        "category": sighting.category,
        "description": sighting.description,
        "reporterId": sighting.reporter_id,
        "trustTier": sighting.trust_tier.value,
        "reportedAt": iso(sighting.reported_at),
        "expiresAt": to_seconds(sighting.expires_at),
        "confirmationCount": sighting.confirmation_count,
    }


sighting_from = RecordDecoder(
    Sighting,
    _partition=text("PK"),
    _sort=text("SK"),
    key=derived(Key, "_partition", "_sort"),
    sighting_id=text("sightingId"),
    # Its keys tell these, too: another program need not store them beside.
    area=text("area", default=text("PK", second_part)),
    category=text("category", default=text("GSI1PK", second_part)),
    description=text("description", default=""),
    reporter_id=text("reporterId"),
    trust_tier=text("trustTier", TIERS, default=TrustTier.BRONZE),
    reported_at=text("reportedAt", from_iso, default=text("SK", _moment_of)),
    expires_at=number("expiresAt", from_seconds),
    confirmation_count=number("confirmationCount", default=0),
)
