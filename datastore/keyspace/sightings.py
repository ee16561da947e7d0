"""The table `blip`: street sightings, their reporters, watches and confirmations on one page."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

from datastore.model import timestamp_forms as two_forms
from datastore.model.access_patterns import CROWD_MS, AccessPattern, Index, Table, Who
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
# The least text above all that begins with the prefix: the upper bound of a range of sort keys.
SIGHTINGS_END = "SIGHTING$"
WATCH_PREFIX = "WATCH#"
_MOMENT = len(SIGHTING_PREFIX)


def area(name: str) -> str:
    return join("AREA", name)


def category(name: str) -> str:
    return join("CATEGORY", name)


def sighting(area_name: str, moment: str, sighting_id: str) -> Key:
    """`moment` is the time of the report in ISO 8601, in UTC at a fixed width, so that text order is time order."""
    return Key(area(area_name), SIGHTING_PREFIX + join(moment, sighting_id))


def sightings_since(moment: datetime) -> str:
    """The lower bound of the sort keys of sightings that were reported at a moment or later.

    Without a fraction of the second and its Z, it sorts before the forms with and without milliseconds.
    """
    return SIGHTING_PREFIX + _to_second(moment)


def trending_since(moment: datetime) -> str:
    """The same for the sort keys of TrendingIndex."""
    return _to_second(moment)


def second_of(sort: str) -> str:
    """The sort key of a sighting to the second of its moment."""
    return two_forms.second_of(sort, _MOMENT)


def is_whole_second(sort: str) -> bool:
    """Whether a sort key has its moment without a fraction of the second, as other programs write it."""
    return two_forms.is_whole_second(sort, _MOMENT)


def in_time(sort: str) -> tuple[str, bool, str]:
    """What orders sort keys by their moments: those of whole seconds come before the others of their second."""
    return second_of(sort), not is_whole_second(sort), sort


def _to_second(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")


def sighting_parts(key: Key) -> tuple[str, str, str]:
    """Area, moment and sighting id of a sighting's key."""
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
    """User, area, category and watch id of a watch's key."""
    _, user_id = split(key.partition)
    _, area_name, category_name, watch_id = split(key.sort)
    return user_id, area_name, category_name, watch_id


def confirmation(sighting_id: str, confirmed_at: datetime, nano_id: str) -> Key:
    return Key(join("SIGHTING", sighting_id), join("CONFIRMATION", iso(confirmed_at), nano_id))


def confirmer(sighting_id: str, user_id: str) -> Key:
    """The marker of a user who confirmed a sighting."""
    return Key(join("SIGHTING", sighting_id), join("CONFIRMER", user_id))


ACTIVE_IN_AREA = AccessPattern(
    id="BLIP-1",
    question="The active sightings of an area, newest first",
    table=BLIP,
    operations=("Query",),
    who=Who.ANY,
    max_age=5,
    fields=("sightings",),
    # Not by the prefix alone: DynamoDB deletes expired items days late, and they would be read with every page.
    key="PK = :partition AND SK BETWEEN :oldest AND :end",
    filter=("expiresAt > :now",),
    descending=True,
)
USER_PROFILE = AccessPattern(
    id="BLIP-2",
    question="The profile of a reporter: trust tier, streak and totals",
    table=BLIP,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    max_age=5,
    shared_ms=CROWD_MS,
    fields=("userProfile", "Sighting.reporter", "Me.profile", "node", "nodes"),
    key="PK = USER#<userId>, SK = PROFILE",
)
WATCHES_OF_USER = AccessPattern(
    id="BLIP-3",
    question="The areas and categories a user watches",
    table=BLIP,
    operations=("Query",),
    who=Who.USER,
    fields=("watches",),
    key="PK = :partition AND begins_with(SK, :prefix)",
)
SIGHTING_NODE = AccessPattern(
    id="BLIP-N1",
    question="One active sighting by its full key",
    table=BLIP,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    fields=("node", "nodes"),
    key="PK = AREA#<area>, SK = SIGHTING#<reportedAt>#<sightingId>",
)
WATCH_NODE = AccessPattern(
    id="BLIP-N2",
    question="One watch by its full key",
    table=BLIP,
    operations=("GetItem", "BatchGetItem"),
    who=Who.USER,
    fields=("node", "nodes"),
    key="PK = USER#<userId>, SK = WATCH#<area>#<category>#<watchId>",
)
TRENDING = AccessPattern(
    id="BLIP-4",
    question="The categories by number of live sightings in a window",
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
    question="Confirm that a sighting is still there; the first to do so counts for the reporter's trust",
    table=BLIP,
    operations=("Query", "TransactWriteItems"),
    transacts=("Put", "Update"),
    who=Who.USER,
    fields=("confirmSighting",),
    key="PK = :partition AND SK BETWEEN :oldest AND :end",
    filter=("sightingId = :id", "expiresAt > :now"),
    # `confirmers` is of an earlier version: a condition on an absent attribute with NOT contains holds.
    condition="expiresAt > :now AND reporterId <> :me AND NOT contains(confirmers, :me)",
    update="ADD confirmationCount :one",
    descending=True,
    # A sighting that was just reported must be found: this read leads to a write.
    consistent=True,
)
REPORT = AccessPattern(
    id="BLIP-6",
    question="Report a sighting, and count it in the reporter's totals and streak",
    table=BLIP,
    operations=("GetItem", "TransactWriteItems"),
    transacts=("Put", "Update"),
    who=Who.USER,
    fields=("reportSighting",),
    condition="attribute_not_exists(PK)",
    # The streak goes by the profile as it is.
    consistent=True,
)
CREATE_WATCH = AccessPattern(
    id="BLIP-7",
    question="Watch an area and category",
    table=BLIP,
    operations=("PutItem",),
    who=Who.USER,
    fields=("createWatch",),
    condition="attribute_not_exists(PK)",
)
DELETE_WATCH = AccessPattern(
    id="BLIP-7",
    question="Stop watching an area and category",
    table=BLIP,
    operations=("DeleteItem",),
    who=Who.USER,
    fields=("deleteWatch",),
)
SEED = AccessPattern(
    id="BLIP-8",
    question="Eight realistic sightings across all areas",
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
    question="Sightings that match the user's watches: these are read at the start, then the change feed",
    table=BLIP,
    operations=("Query",),
    who=Who.USER,
    fields=("watchAlerts",),
    key="PK = :partition AND begins_with(SK, :prefix)",
    # A watch made just before must be among them: no later change would tell of it.
    consistent=True,
    when_slow=OverflowPolicy.CLOSE,
)

# The streak goes on, starts anew, or stands, by the day of the report before this one. Each form holds only while the
# profile is as it was read, so totals and streaks stay exact however many reports arrive at once.
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
# The first report under the rule that confirmed reports make the tier: what was earned before it stays as it is.
SETTLE_TIER = ("attribute_not_exists(tierSince)", "trustTier = :tier, tierSince = :today")
# With the first confirmation of a sighting, and only then, its reporter's profile counts one more for the day.
FIRST_CONFIRMATION = (
    "(attribute_not_exists(confirmationCount) OR confirmationCount = :none) AND attribute_not_exists(confirmers)"
)
CONFIRMED_ON = "confirmed"


def count_confirmed(day: date) -> str:
    """The update that counts one more confirmed report on a day (UTC): an attribute of the profile for each day."""
    return f"SET userId = :reporter ADD {CONFIRMED_ON}{day:%Y%m%d} :one"


def confirmed_reports(profile: Mapping[str, Any]) -> list[int]:
    """How many confirmed reports a profile counts on each day that has some."""
    return [
        int(count)
        for name, count in profile.items()
        if name.startswith(CONFIRMED_ON) and name.removeprefix(CONFIRMED_ON).isdigit()
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
