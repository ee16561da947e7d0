"""The reporters of sightings: trust, totals and streaks (BLIP-2, and the reporter's part of BLIP-5 and BLIP-6).

A reporter earns trust by reports that another user confirmed: silver from 10 reports, gold from 50. At most 10 reports
count per day (UTC), so two accounts that confirm each other's reports need a day for silver, and five for gold.

The profile has a counter for each day with such reports, `confirmed20260625`. The transaction that stores the first
confirmation of a sighting increments it, so each report counts once, without a read. The daily maximum is applied when
the profile is read. Reports of a gold reporter are no longer counted, so a profile has at most about 50 counters.

Before this rule 10 and 50 reports of any kind earned the tiers. A profile of that time keeps the tier that it has when
its user first reports under the rule (`tierSince`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Any

from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import LazyItem, record, record_or_error
from datastore.keyspace import sightings as keys
from datastore.model.access_patterns import AccessPattern
from datastore.model.composite_keys import second_part
from datastore.session.store import Store
from datastore.session.writes import Action


class TrustTier(StrEnum):
    """The trust in a reporter: earned by confirmed reports, or set in the profile if that is higher."""

    BRONZE = "bronze"
    SILVER = "silver"
    GOLD = "gold"


REPORTS_BY_TIER = {TrustTier.SILVER: 10, TrustTier.GOLD: 50}
MAX_CONFIRMED_PER_DAY = 10


@dataclass(frozen=True, slots=True)
class UserProfile:
    """The profile of a reporter. Days are those of UTC."""

    user_id: str
    trust_tier: TrustTier
    report_total: int
    #: The number of consecutive days with a report, up to `last_reported_on`.
    streak_days: int
    last_reported_on: date | None
    #: The reports that another user confirmed, at most ten per day.
    confirmed_reports: int = 0


class Reporters:
    """The reporters, with one method for each access pattern."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def by_id(self, user_id: str, pattern: AccessPattern = keys.USER_PROFILE) -> UserProfile | None:
        """BLIP-2: return the profile of a user, or None. `pattern` may be one that reads consistently."""
        return record(profile_from, await self._store.get(pattern, keys.profile(user_id)))

    async def by_ids(self, user_ids: Sequence[str]) -> list[UserProfile | Exception | None]:
        """BLIP-2: return the profile of each user, None, or the error of its read."""
        items = await self._store.find_all(keys.USER_PROFILE, list(map(keys.profile, user_ids)))
        return [record_or_error(profile_from, item.item) if isinstance(item, LazyItem) else item for item in items]


def count_report(user_id: str, profile: Item | None, now: datetime) -> Action:
    """BLIP-6: return the action that counts a report in the totals and the streak of a reporter.

    Its condition is that the profile has not changed since it was read.
    """
    today = now.astimezone(UTC).date()
    yesterday = (today - timedelta(days=1)).isoformat()
    last = (profile or {}).get("lastReportedOn", "")
    values: dict[str, Any] = {"one": 1, "today": today.isoformat(), "yesterday": yesterday, "user": user_id}
    forms = [keys.SAME_DAY if last >= values["today"] else keys.NEXT_DAY if last == yesterday else keys.NEW_STREAK]
    if profile is None or "tierSince" not in profile:
        forms.append(keys.KEEP_TIER)
        values["tier"] = tier_from(profile or {}).value
    settings = ", ".join(update for _, update in forms if update)
    return Action(
        "Update",
        key=keys.profile(user_id),
        update=f"{f'SET {settings} ' if settings else ''}{keys.COUNT_REPORT}",
        condition=" AND ".join(condition for condition, _ in forms),
        values=values,
    )


def count_confirmed(reporter_id: str, now: datetime) -> Action:
    """BLIP-5: return the action that counts a confirmed report of a reporter, on this day (UTC)."""
    return Action(
        "Update",
        key=keys.profile(reporter_id),
        update=keys.count_confirmed(now.astimezone(UTC).date()),
        values={"reporter": reporter_id, "one": 1},
    )


def tier_from(profile: Mapping[str, Any]) -> TrustTier:
    """Return the tier that a profile has earned, or the stored one if that is higher."""
    reports = _confirmed(profile)
    if "tierSince" not in profile:
        reports = max(reports, profile.get("reportTotal", 0))
    earned = [tier for tier, needed in REPORTS_BY_TIER.items() if reports >= needed]
    return max([TrustTier(profile.get("trustTier", "bronze")), *earned], key=list(TrustTier).index)


def _confirmed(profile: Mapping[str, Any]) -> int:
    return sum(min(count, MAX_CONFIRMED_PER_DAY) for count in keys.confirmed_reports(profile))


def create_profile(profile: UserProfile) -> Action:
    """BLIP-8: return the action that creates a profile. It does not change the attributes of an existing one."""
    values = {
        "userId": profile.user_id,
        "trustTier": profile.trust_tier.value,
        "reportTotal": profile.report_total,
        "streakDays": profile.streak_days,
        "lastReportedOn": profile.last_reported_on and profile.last_reported_on.isoformat(),
    }
    given = {name: value for name, value in values.items() if value is not None}
    settings = ", ".join(f"{name} = if_not_exists({name}, :{name})" for name in given)
    return Action("Update", key=keys.profile(profile.user_id), update=f"SET {settings}", values=given)


def profile_from(item: Mapping[str, Any]) -> UserProfile:
    last = item.get("lastReportedOn")
    return UserProfile(
        user_id=item.get("userId") or second_part(item["PK"]),
        trust_tier=tier_from(item),
        report_total=item.get("reportTotal", 0),
        streak_days=item.get("streakDays", 0),
        last_reported_on=date.fromisoformat(last) if last else None,
        confirmed_reports=_confirmed(item),
    )
