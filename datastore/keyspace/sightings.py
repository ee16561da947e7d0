"""The table `blip`: street sightings, their reporters, watches and confirmations."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

from datastore.items.keys import KeyParts, item_key
from datastore.model.access_patterns import QUERY, SHARED_MS, TRANSACT, AccessPattern, Expiry, Index, Table, Who
from datastore.queues import OverflowPolicy

BLIP = Table(
    name="blip",
    partition="PK",
    sort="SK",
    indexes=(Index("TrendingIndex", partition="GSI1PK", sort="GSI1SK"),),
    ttl="expiresAt",
    expiry=Expiry.NEVER,  # of reporters and watches
    stream="NEW_AND_OLD_IMAGES",
)

# The smallest text above all sort keys of sightings: the upper bound of their range.
SIGHTINGS_END = "SIGHTING$"


@item_key(BLIP)
def sighting(area: str, reported_at: str, sighting_id: str) -> KeyParts:
    """`reported_at` is in ISO 8601, in UTC and of fixed width: text order is time order."""
    return ("AREA", area), ("SIGHTING", reported_at, sighting_id)


@item_key(BLIP, index="TrendingIndex")
def sighting_in_category(category: str, reported_at: datetime, sighting_id: str) -> KeyParts:
    return ("CATEGORY", category), (reported_at, sighting_id)


@item_key(BLIP)
def profile(user_id: str) -> KeyParts:
    return ("USER", user_id), ("PROFILE",)


@item_key(BLIP)
def watch(user_id: str, area: str, category: str, watch_id: str) -> KeyParts:
    return ("USER", user_id), ("WATCH", area, category, watch_id)


@item_key(BLIP)
def confirmation(sighting_id: str, confirmed_at: datetime, nano_id: str) -> KeyParts:
    return ("SIGHTING", sighting_id), ("CONFIRMATION", confirmed_at, nano_id)


@item_key(BLIP)
def confirmer(sighting_id: str, user_id: str) -> KeyParts:
    """Declare the key of the marker that a user confirmed a sighting."""
    return ("SIGHTING", sighting_id), ("CONFIRMER", user_id)


def sightings_since(moment: datetime) -> str:
    """Return the lower bound of the sort keys of sightings that were reported at a time or later.

    It has no fraction of a second and no Z, so it sorts before the forms with and without milliseconds.
    """
    return sighting.prefix + _to_second(moment)


def trending_since(moment: datetime) -> str:
    """Return the lower bound of the sort keys of TrendingIndex, as `sightings_since` does for the table."""
    return _to_second(moment)


def _to_second(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")


ACTIVE_IN_AREA = sighting.query(
    "BLIP-1",
    "The active sightings of an area, newest first",
    Who.ANY,
    ("sightings",),
    max_age=5,
    # A range, not the prefix: DynamoDB deletes expired items days late, and each page would read them.
    key="PK = :partition AND SK BETWEEN :oldest AND :end",
    expiry=Expiry.ALWAYS,
    descending=True,
)
USER_PROFILE = profile.read(
    "BLIP-2",
    "The profile of a reporter: trust tier, streak and total",
    Who.ANY,
    (
        "userProfile",
        "Sighting.reporter",
        "User.userProfile",
        "PhotoUser.userProfile",
        "Me.userProfile",
        "node",
        "nodes",
    ),
    max_age=5,
    shared_ms=SHARED_MS,
)
WATCHES_OF_USER = watch.query(
    "BLIP-3", "The areas and categories that a user watches", Who.USER, ("watches", "Me.watches")
)
SIGHTING_NODE = sighting.read(
    "BLIP-N1", "An active sighting by its full key", Who.ANY, ("node", "nodes"), expiry=Expiry.ALWAYS
)
WATCH_NODE = watch.read("BLIP-N2", "A watch by its full key", Who.USER, ("node", "nodes"))
TRENDING = sighting_in_category.query(
    "BLIP-4",
    "The categories, ordered by the number of active sightings in a time window",
    Who.ANY,
    ("trending",),
    max_age=5,
    projection="COUNT",
    key="GSI1PK = :partition AND GSI1SK >= :cutoff",
    expiry=Expiry.ALWAYS,
    descending=True,
)
CONFIRM = sighting.query(
    "BLIP-5",
    "Confirm a sighting; the first confirmation counts towards the reporter's trust tier",
    Who.USER,
    ("confirmSighting",),
    operations=QUERY + TRANSACT,
    transacts=("Put", "Update"),
    key="PK = :partition AND SK BETWEEN :oldest AND :end",
    filter=("sightingId = :id",),
    expiry=Expiry.ALWAYS,
    # Only earlier versions wrote `confirmers`. The condition holds if the attribute is absent.
    condition="expiresAt > :now AND reporterId <> :me AND NOT contains(confirmers, :me)",
    update="ADD confirmationCount :one",
    descending=True,
    # The read must find a sighting that was just reported.
    consistent=True,
)
REPORT = AccessPattern(
    "BLIP-6",
    "Report a sighting, and count it in the reporter's total and streak",
    BLIP,
    ("GetItem", "TransactWriteItems"),
    Who.USER,
    ("reportSighting",),
    transacts=("Put", "Update"),
    condition="attribute_not_exists(PK)",
    # The streak is computed from the current profile.
    consistent=True,
)
CREATE_WATCH = watch.put(
    "BLIP-7", "Watch a category in an area", Who.USER, ("createWatch",), condition="attribute_not_exists(PK)"
)
DELETE_WATCH = watch.delete("BLIP-7", "Stop watching a category in an area", Who.USER, ("deleteWatch",))
SEED = AccessPattern(
    "BLIP-8",
    "Store eight demo sightings, spread over all areas",
    BLIP,
    TRANSACT,
    Who.ADMIN,
    ("seedDemo",),
    transacts=("Put", "Update"),
)
SIGHTING_REPORTED = AccessPattern(
    "BLIP-S1",
    "Sightings as they are reported",
    BLIP,
    (),
    Who.ANY,
    ("sightingReported",),
    when_slow=OverflowPolicy.CLOSE,
)
WATCH_ALERTS = watch.query(
    "BLIP-S2",
    "Sightings that match the user's watches, which are read at the start",
    Who.USER,
    ("watchAlerts",),
    # The read must include a watch that was just created: no later change would announce it.
    consistent=True,
    when_slow=OverflowPolicy.CLOSE,
)

# The day of the previous report decides whether the streak continues, restarts or keeps its length. Each condition
# holds only while the profile is as it was read, so concurrent reports are counted exactly.
SAME_DAY = ("lastReportedOn >= :today", "")
NEXT_DAY = ("lastReportedOn = :yesterday", "userId = :user, streakDays = streakDays + :one, lastReportedOn = :today")
NEW_STREAK = (
    "(attribute_not_exists(lastReportedOn) OR lastReportedOn < :yesterday)",
    "userId = :user, streakDays = :one, lastReportedOn = :today",
)
COUNT_REPORT = "ADD reportTotal :one"
# The first report under the rule that confirmed reports decide the tier keeps the tier that was earned before.
KEEP_TIER = ("attribute_not_exists(tierSince)", "trustTier = :tier, tierSince = :today")
# Only the first confirmation of a sighting counts for its reporter.
FIRST_CONFIRMATION = (
    "(attribute_not_exists(confirmationCount) OR confirmationCount = :none) AND attribute_not_exists(confirmers)"
)
CONFIRMED_PREFIX = "confirmed"


def count_confirmed(day: date) -> str:
    """Return the update that counts a confirmed report on a day (UTC). The profile has an attribute for each day."""
    return f"SET userId = :reporter ADD {CONFIRMED_PREFIX}{day:%Y%m%d} :one"


def confirmed_reports(profile: Mapping[str, Any]) -> list[int]:
    """Return the numbers of confirmed reports of a profile, one for each day with any."""
    return [
        int(count)
        for name, count in profile.items()
        if name.startswith(CONFIRMED_PREFIX) and name.removeprefix(CONFIRMED_PREFIX).isdigit()
    ]
