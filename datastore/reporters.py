"""Who reports sightings: trust, totals and streaks (BLIP-2, and the reporter's part of BLIP-6)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Any

from datastore.attributes import Item
from datastore.keyspace import sightings as keys
from datastore.records import record
from datastore.store import Action, Store


class TrustTier(StrEnum):
    """How far a reporter is trusted: silver from 10 reports, gold from 50, or as the profile was given."""

    BRONZE = "bronze"
    SILVER = "silver"
    GOLD = "gold"


REPORTS_FOR = {TrustTier.SILVER: 10, TrustTier.GOLD: 50}


@dataclass(frozen=True, slots=True)
class UserProfile:
    """A reporter's record. `streak_days` counts days in a row (UTC) with a report, up to `last_reported_on`."""

    user_id: str
    trust_tier: TrustTier
    report_total: int
    streak_days: int
    last_reported_on: date | None


class Reporters:
    """One method for each access pattern."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def by_id(self, user_id: str) -> UserProfile | None:
        """BLIP-2."""
        return record(profile_from, await self._store.get(keys.USER_PROFILE, keys.profile(user_id)))


def count_report(user_id: str, profile: Item | None, now: datetime) -> Action:
    """BLIP-6: one more report in the reporter's totals and streak, on condition that the profile is as it was read."""
    today = now.astimezone(UTC).date()
    yesterday = (today - timedelta(days=1)).isoformat()
    last = (profile or {}).get("lastReportedOn", "")
    values: dict[str, Any] = {
        "one": 1,
        "today": today.isoformat(),
        "yesterday": yesterday,
        "user": user_id,
    }
    condition, update = (
        keys.SAME_DAY if last >= values["today"] else keys.NEXT_DAY if last == yesterday else keys.NEW_STREAK
    )
    return Action("Update", key=keys.profile(user_id), update=update, condition=condition, values=values)


def tier_for(report_total: int, given: TrustTier) -> TrustTier:
    """The tier a reporter has earned, or was given if that is higher."""
    earned = [tier for tier, reports in REPORTS_FOR.items() if report_total >= reports]
    return max([given, *earned], key=list(TrustTier).index)


def introduce(profile: UserProfile) -> Action:
    """BLIP-8: a profile for somebody who has none; one that is there is left as it is."""
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
    total = item.get("reportTotal", 0)
    last = item.get("lastReportedOn")
    return UserProfile(
        user_id=item["userId"],
        trust_tier=tier_for(total, TrustTier(item.get("trustTier", "bronze"))),
        report_total=total,
        streak_days=item.get("streakDays", 0),
        last_reported_on=date.fromisoformat(last) if last else None,
    )
