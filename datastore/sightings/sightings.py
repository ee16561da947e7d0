"""Street sightings: their record, its item, and a method for each access pattern (BLIP-1 to BLIP-8)."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from datastore.dynamodb.client import TransactionCancelled
from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import record
from datastore.errors import Conflict, NotFound
from datastore.items import attributes as stored
from datastore.items.attributes import FROM_KEY
from datastore.items.forms import Prose
from datastore.items.repository import Repository
from datastore.items.stored_item import StoredItem
from datastore.keyspace import sightings as keys
from datastore.keyspace.sightings import BLIP
from datastore.model.composite_keys import Key
from datastore.model.timestamp_forms import canonical
from datastore.model.timestamps import from_seconds, iso, to_millisecond, to_seconds
from datastore.session.pagination import ItemsByTime, Page, Span, empty_page, page_by_time
from datastore.session.writes import Action
from datastore.sightings.reporters import (
    TrustTier,
    UserProfile,
    count_confirmed,
    count_report,
    create_profile,
    profile_from,
)

LIFETIME = timedelta(seconds=1800)
CONFIRMATION_BOOST = 0.1
MAX_CONFIRMATION_BOOST = 0.3
TRUST_BOOST = {TrustTier.BRONZE: 0.0, TrustTier.SILVER: 0.05, TrustTier.GOLD: 0.10}
REPORT_ATTEMPTS = 12
# The positions of two actions in a confirmation's transaction: the user's marker, and the update of the sighting.
CONFIRMER, CONFIRMED = 1, 2
CONFIRM_ATTEMPTS = 3  # one is enough, two if another user confirms first concurrently


class Freshness(StrEnum):
    """The class of a sighting's confidence: fresh above 0.66, fading from 0.33 on, stale below."""

    FRESH = "fresh"
    FADING = "fading"
    STALE = "stale"


class Sighting(StoredItem, key=keys.sighting, indexes=(keys.sighting_in_category,)):
    """A sighting in the street. `trust_tier` is the reporter's at the time of the report."""

    key: Key = stored.key()
    sighting_id: str = stored.text("sightingId")
    # The keys contain these values, too: another program may omit the attributes.
    area: str = stored.text("area", missing=FROM_KEY, typical=8)
    category: str = stored.text("category", missing=FROM_KEY, typical=6)
    description: str = stored.text("description", missing="", form=Prose(500))
    reporter_id: str = stored.text("reporterId")
    trust_tier: TrustTier = stored.choice("trustTier", TrustTier, missing=TrustTier.BRONZE)
    reported_at: datetime = stored.moment("reportedAt", missing=FROM_KEY)
    expires_at: datetime = stored.seconds("expiresAt")
    confirmation_count: int = stored.number("confirmationCount", default=0)

    def confidence(self, now: datetime) -> float:
        """Return (expiresAt - now)/1800 + min(0.1 per confirmation, 0.3) + trust, limited to 0 to 1."""
        time_left = (self.expires_at - now) / LIFETIME
        boost = min(CONFIRMATION_BOOST * self.confirmation_count, MAX_CONFIRMATION_BOOST)
        return min(max(time_left + boost + TRUST_BOOST[self.trust_tier], 0.0), 1.0)

    def freshness(self, now: datetime) -> Freshness:
        confidence = self.confidence(now)
        if confidence > 0.66:
            return Freshness.FRESH
        return Freshness.FADING if confidence >= 0.33 else Freshness.STALE


class TrendingWindow(StrEnum):
    """A time window before the present in which the sightings of a category are counted."""

    QUARTER_HOUR = "QUARTER_HOUR"
    SIX_HOURS = "SIX_HOURS"

    @property
    def length(self) -> timedelta:
        return _LENGTHS[self]


_LENGTHS = {
    TrendingWindow.QUARTER_HOUR: timedelta(minutes=15),
    TrendingWindow.SIX_HOURS: timedelta(hours=6),
}


@dataclass(frozen=True, slots=True)
class Trend:
    """The score of a category in a window."""

    category: str
    window: TrendingWindow
    #: The number of active sightings.
    score: int
    #: The sightings, newest first, if they were requested.
    items: Sequence[Item]


class Sightings(Repository):
    """The sightings, with one method for each access pattern. `now` is the time of the request, which TTLs refer to."""

    async def active_in(self, area: str, span: Span) -> Page:
        """BLIP-1: return the active sightings of an area, newest first."""
        values = self._active_values(area)
        if span.start is not None and span.start["SK"] < values["oldest"]:
            # DynamoDB requires a start key within the range. All sightings before this one in time have expired.
            if not span.is_upward:
                return empty_page(span)
            span = Span(span.size, span.backward, order=span.order, consistent=span.consistent)
        found = ItemsByTime(span, "SK", keys.sighting.prefix)
        await found.read(self._store, keys.ACTIVE_IN_AREA, values)
        return page_by_time(found.items, span)

    def _active_values(self, area: str) -> dict[str, Any]:
        """Return the values of a Query for the sightings of an area that may be active."""
        oldest = keys.sightings_since(self._oldest)
        return {"partition": keys.sighting.partition_of(area), "oldest": oldest, "end": keys.SIGHTINGS_END}

    @property
    def _oldest(self) -> datetime:
        """The time before which all sightings have expired. TTL attributes are rounded up to a second."""
        return self._now - LIFETIME - timedelta(seconds=1)

    async def by_key(self, area: str, moment: str, sighting_id: str) -> Sighting | None:
        """BLIP-N1: return a sighting by the parts of its key, or None if it is missing or has expired."""
        key = keys.sighting(area, moment, sighting_id)
        return record(Sighting.decoder, await self._store.get(keys.SIGHTING_NODE, key))

    async def trending(self, categories: Sequence[str], window: TrendingWindow, *, with_items: bool) -> list[Trend]:
        """BLIP-4: return the categories by score, the number of active sightings reported in the window, highest first.

        There is one Query for each category, all concurrent. The window begins with a whole second, because the order
        of keys within a second is not that of time. `with_items` fetches the sightings instead of only counting them.
        """
        trends = await asyncio.gather(*[self._trend(category, window, with_items) for category in categories])
        return sorted(trends, key=lambda trend: (-trend.score, trend.category))

    async def _trend(self, category: str, window: TrendingWindow, with_items: bool) -> Trend:
        values = {
            "partition": keys.sighting_in_category.partition_of(category),
            "cutoff": keys.trending_since(max(self._now - window.length, self._oldest)),
        }
        if not with_items:
            return Trend(category, window, await self._store.count(keys.TRENDING, values), ())
        items = [item async for item in self._store.query_all(keys.TRENDING, values)]
        return Trend(category, window, len(items), sorted(items, key=chronological_key, reverse=True))

    async def confirm(self, area: str, sighting_id: str, *, user_id: str, nano_id: str) -> Sighting:
        """BLIP-5: count a user's confirmation once. A further one, or one of the reporter, changes nothing.

        Raises `NotFound` if the area has no such active sighting.
        """
        item = await self._find(area, sighting_id)
        for _ in range(CONFIRM_ATTEMPTS):
            if _counted(item, user_id):
                return Sighting.decoder(item)
            try:
                await self._store.transact(keys.CONFIRM, self._confirmation(item, user_id, nano_id))
            except TransactionCancelled as cancelled:
                if cancelled.reasons[CONFIRMER] == "ConditionalCheckFailed":
                    # The user's confirmation may have been counted after the sighting was read.
                    return Sighting.decoder(await self._find(area, sighting_id))
                # Another user may have confirmed first concurrently.
                item = self._current_item(cancelled, sighting_id)
                continue
            return Sighting.decoder(item | {"confirmationCount": item.get("confirmationCount", 0) + 1})
        raise Conflict("The sighting is changing too often at the moment; try again.", retryable=True)

    async def _find(self, area: str, sighting_id: str) -> Item:
        values = {**self._active_values(area), "id": sighting_id}
        async for item in self._store.query_all(keys.CONFIRM, values):
            return item
        raise _no_sighting(sighting_id)

    def _confirmation(self, item: Item, user_id: str, nano_id: str) -> list[Action]:
        attributes = {
            "sightingId": item["sightingId"],
            "userId": user_id,
            "confirmedAt": iso(self._now),
            "expiresAt": item["expiresAt"],
        }
        confirmation = keys.confirmation(item["sightingId"], self._now, nano_id)
        # The marker is an item of its own: a set in the sighting would be rewritten by each confirmation, in the table
        # and in its index.
        confirmer = keys.confirmer(item["sightingId"], user_id)
        actions = [
            Action(
                "Put", item={"PK": key.partition, "SK": key.sort, **attributes}, condition="attribute_not_exists(PK)"
            )
            for key in (confirmation, confirmer)
        ]
        values: dict[str, Any] = {"now": self._now.timestamp(), "me": user_id, "one": 1}
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

    def _current_item(self, cancelled: TransactionCancelled, sighting_id: str) -> Item:
        """Return the sighting that failed the condition. Raises other reasons, and `NotFound` if it is not active."""
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

        If a sighting with this id and time has equal content, return it and do not count it again. `reported_at` is now
        by default.

        Raises `Conflict` if its content differs, or if `reported_at` is so long ago that the sighting has expired: the
        result of an earlier attempt is then unknown.
        """
        reported_at = reported_at or self._now
        if reported_at + LIFETIME <= self._now:
            raise Conflict(
                "The mutation was requested so long ago that its sighting has expired.", mayHaveBeenApplied=True
            )
        for _ in range(REPORT_ATTEMPTS):
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
                # A concurrent report of the same user changed the streak: read the profile again.
                self._store.invalidate(BLIP, keys.profile(user_id))
                continue
            return sighting
        raise Conflict("The reporter's profile is changing too often at the moment; try again.", retryable=True)

    async def seed(self, sightings: Sequence[Sighting], profiles: Sequence[UserProfile]) -> None:
        """BLIP-8: store demo sightings and their reporters, all or none. Existing reporters do not change."""
        actions = [Action("Put", item=sighting.item()) for sighting in sightings]
        actions += [create_profile(profile) for profile in profiles]
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
    """Return a new sighting. It lives for 1800 s, rounded up to a whole second for DynamoDB's TTL."""
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


def chronological_key(item: Mapping[str, Any]) -> str:
    """Return the sort key of an item or key of TrendingIndex in the order of time."""
    return canonical(item["GSI1SK"])


def _put_new(sighting: Sighting) -> Action:
    return Action("Put", item=sighting.item(), condition=keys.REPORT.condition)


def _reported_before(cancelled: TransactionCancelled, sighting: Sighting) -> Sighting:
    """Return the stored sighting with the same key. Raises `Conflict` if its content differs."""
    stored = record(Sighting.decoder, cancelled.items[0])
    content = (sighting.category, sighting.description, sighting.reporter_id)
    if stored is None or (stored.category, stored.description, stored.reporter_id) != content:
        raise Conflict(f"Sighting {sighting.sighting_id!r} is already reported.") from cancelled
    return stored


def _counted(item: Item, user_id: str) -> bool:
    """Return whether the sighting itself shows that the confirmation does not count.

    Earlier versions stored `confirmers` in the sighting.
    """
    return item["reporterId"] == user_id or user_id in item.get("confirmers", ())


def _counts_for_trust(item: Item) -> bool:
    """Return whether the next confirmation adds to the reporter's trust: it is the first, and the tier is not gold."""
    is_first = not item.get("confirmationCount") and not item.get("confirmers")
    return is_first and item.get("trustTier") != TrustTier.GOLD.value


def _no_sighting(sighting_id: str) -> NotFound:
    return NotFound(f"There is no active sighting {sighting_id!r} in this area.")
