"""The table `blip`: street sightings, their reporters, watches and confirmations."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

from datastore.model import timestamp_forms as two_forms
from datastore.model.access_patterns import SHARED_MS, AccessPattern, Index, Table, Who
from datastore.model.composite_keys import Key, join, split
from datastore.model.timestamps import iso
from datastore.queues import OverflowPolicy

BLIP = Table(
    name="blip",
    partition="PK",
    sort="SK",
    indexes=(Index("TrendingIndex", partition="GSI1PK", sort="GSI1SK"),),
    ttl="expiresAt",
    stream="NEW_AND_OLD_IMAGES",
    item_bytes=350,
)

SIGHTING_PREFIX = "SIGHTING#"
# The smallest text above all texts with the prefix: the upper bound of a range of sort keys.
SIGHTINGS_END = "SIGHTING$"
WATCH_PREFIX = "WATCH#"
_MOMENT = len(SIGHTING_PREFIX)


def area(name: str) -> str:
    return join("AREA", name)


def category(name: str) -> str:
    return join("CATEGORY", name)


def sighting(area_name: str, moment: str, sighting_id: str) -> Key:
    """`moment` is the time of the report in ISO 8601, in UTC and of fixed width: text order is time order."""
    return Key(area(area_name), SIGHTING_PREFIX + join(moment, sighting_id))


def sightings_since(moment: datetime) -> str:
    """Return the lower bound of the sort keys of sightings that were reported at a time or later.

    It has no fraction of a second and no Z, so it sorts before the forms with and without milliseconds.
    """
    return SIGHTING_PREFIX + _to_second(moment)


def trending_since(moment: datetime) -> str:
    """Return the lower bound of the sort keys of TrendingIndex, as `sightings_since` does for the table."""
    return _to_second(moment)


def second_of(sort: str) -> str:
    """Return the sort key of a sighting up to the second of its time."""
    return two_forms.second_of(sort, _MOMENT)


def is_whole_second(sort: str) -> bool:
    """Return whether the time in a sort key has no fraction of a second, as other programs write it."""
    return two_forms.is_whole_second(sort, _MOMENT)


def chronological(sort: str) -> tuple[str, bool, str]:
    """Return the value that orders sort keys by time. A whole second precedes the fractions of the same second."""
    return second_of(sort), not is_whole_second(sort), sort


def _to_second(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")


def sighting_parts(key: Key) -> tuple[str, str, str]:
    """Return the area, the time (ISO 8601) and the sighting id of a sighting's key."""
    _, area_name = split(key.partition)
    _, moment, sighting_id = split(key.sort)
    return area_name, moment, sighting_id


def profile(user_id: str) -> Key:
    return Key(user(user_id), "PROFILE")


def user(user_id: str) -> str:
    return join("USER", user_id)


def watch(user_id: str, area_name: str, category_name: str, watch_id: str) -> Key:
    return Key(user(user_id), WATCH_PREFIX + join(area_name, category_name, watch_id))


def watch_parts(key: Key) -> tuple[str, str, str, str]:
    """Return the user, area, category and watch id of a watch's key."""
    _, user_id = split(key.partition)
    _, area_name, category_name, watch_id = split(key.sort)
    return user_id, area_name, category_name, watch_id


def confirmation(sighting_id: str, confirmed_at: datetime, nano_id: str) -> Key:
    return Key(join("SIGHTING", sighting_id), join("CONFIRMATION", iso(confirmed_at), nano_id))


def confirmer(sighting_id: str, user_id: str) -> Key:
    """Return the key of the marker that a user confirmed a sighting."""
    return Key(join("SIGHTING", sighting_id), join("CONFIRMER", user_id))


ACTIVE_IN_AREA = AccessPattern(
    id="BLIP-1",
    question="The active sightings of an area, newest first",
    table=BLIP,
    operations=("Query",),
    who=Who.ANY,
    max_age=5,
    fields=("sightings",),
    # A range, not the prefix: DynamoDB deletes expired items days late, and each page would read them.
    key="PK = :partition AND SK BETWEEN :oldest AND :end",
    filter=("expiresAt > :now",),
    descending=True,
)
USER_PROFILE = AccessPattern(
    id="BLIP-2",
    question="The profile of a reporter: trust tier, streak and total",
    table=BLIP,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    max_age=5,
    shared_ms=SHARED_MS,
    fields=("userProfile", "Sighting.reporter", "Me.profile", "node", "nodes"),
    key="PK = USER#<userId>, SK = PROFILE",
)
WATCHES_OF_USER = AccessPattern(
    id="BLIP-3",
    question="The areas and categories that a user watches",
    table=BLIP,
    operations=("Query",),
    who=Who.USER,
    fields=("watches",),
    key="PK = :partition AND begins_with(SK, :prefix)",
)
SIGHTING_NODE = AccessPattern(
    id="BLIP-N1",
    question="An active sighting by its full key",
    table=BLIP,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    fields=("node", "nodes"),
    key="PK = AREA#<area>, SK = SIGHTING#<reportedAt>#<sightingId>",
)
WATCH_NODE = AccessPattern(
    id="BLIP-N2",
    question="A watch by its full key",
    table=BLIP,
    operations=("GetItem", "BatchGetItem"),
    who=Who.USER,
    fields=("node", "nodes"),
    key="PK = USER#<userId>, SK = WATCH#<area>#<category>#<watchId>",
)
TRENDING = AccessPattern(
    id="BLIP-4",
    question="The categories, ordered by the number of active sightings in a time window",
    table=BLIP,
    operations=("Query",),
    who=Who.ANY,
    max_age=5,
    fields=("trending",),
    index="TrendingIndex",
    projection="COUNT",
    key="GSI1PK = :partition AND GSI1SK >= :cutoff",
    filter=("expiresAt > :now",),
    descending=True,
)
CONFIRM = AccessPattern(
    id="BLIP-5",
    question="Confirm a sighting; the first confirmation counts towards the reporter's trust tier",
    table=BLIP,
    operations=("Query", "TransactWriteItems"),
    transacts=("Put", "Update"),
    who=Who.USER,
    fields=("confirmSighting",),
    key="PK = :partition AND SK BETWEEN :oldest AND :end",
    filter=("sightingId = :id", "expiresAt > :now"),
    # Only earlier versions wrote `confirmers`. The condition holds if the attribute is absent.
    condition="expiresAt > :now AND reporterId <> :me AND NOT contains(confirmers, :me)",
    update="ADD confirmationCount :one",
    descending=True,
    # The read must find a sighting that was just reported.
    consistent=True,
)
REPORT = AccessPattern(
    id="BLIP-6",
    question="Report a sighting, and count it in the reporter's total and streak",
    table=BLIP,
    operations=("GetItem", "TransactWriteItems"),
    transacts=("Put", "Update"),
    who=Who.USER,
    fields=("reportSighting",),
    condition="attribute_not_exists(PK)",
    # The streak is computed from the current profile.
    consistent=True,
)
CREATE_WATCH = AccessPattern(
    id="BLIP-7",
    question="Watch a category in an area",
    table=BLIP,
    operations=("PutItem",),
    who=Who.USER,
    fields=("createWatch",),
    condition="attribute_not_exists(PK)",
)
DELETE_WATCH = AccessPattern(
    id="BLIP-7",
    question="Stop watching a category in an area",
    table=BLIP,
    operations=("DeleteItem",),
    who=Who.USER,
    fields=("deleteWatch",),
)
SEED = AccessPattern(
    id="BLIP-8",
    question="Store eight demo sightings, spread over all areas",
    table=BLIP,
    operations=("TransactWriteItems",),
    transacts=("Put", "Update"),
    who=Who.ADMIN,
    fields=("seedDemo",),
)
SIGHTING_REPORTED = AccessPattern(
    id="BLIP-S1",
    question="Sightings as they are reported",
    table=BLIP,
    operations=(),
    who=Who.ANY,
    fields=("sightingReported",),
    when_slow=OverflowPolicy.CLOSE,
)
WATCH_ALERTS = AccessPattern(
    id="BLIP-S2",
    question="Sightings that match the user's watches, which are read at the start",
    table=BLIP,
    operations=("Query",),
    who=Who.USER,
    fields=("watchAlerts",),
    key="PK = :partition AND begins_with(SK, :prefix)",
    # The read must include a watch that was just created: no later change would announce it.
    consistent=True,
    when_slow=OverflowPolicy.CLOSE,
)

# The day of the previous report decides whether the streak continues, restarts or keeps its length. Each condition
# holds only while the profile is as it was read, so concurrent reports are counted exactly.
SAME_DAY = ("lastReportedOn >= :today", "")
NEXT_DAY = (
    "lastReportedOn = :yesterday",
    "userId = :user, streakDays = streakDays + :one, lastReportedOn = :today",
)
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


PATTERNS = (
    ACTIVE_IN_AREA,
    USER_PROFILE,
    WATCHES_OF_USER,
    SIGHTING_NODE,
    WATCH_NODE,
    TRENDING,
    CONFIRM,
    REPORT,
    CREATE_WATCH,
    DELETE_WATCH,
    SEED,
    SIGHTING_REPORTED,
    WATCH_ALERTS,
)
