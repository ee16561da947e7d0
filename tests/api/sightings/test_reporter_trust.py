"""The trust of reporters: the number of their reports that others confirmed, at most ten a day (BLIP-5, BLIP-6)."""

import asyncio
from typing import Any

import pytest

from datastore.keyspace import sightings as keys
from datastore.keyspace.sightings import BLIP
from datastore.model.access_patterns import Table
from datastore.model.identity import Role
from tests.support.served import NOON, Answer, Served

REPORT = """mutation ($area: String!) {
  reportSighting(input: {area: $area, category: "Cats", description: "A cat"}) { sightingId trustTier }
}"""
CONFIRM = """mutation ($area: String!, $id: ID!) {
  confirmSighting(area: $area, sightingId: $id) { confirmationCount }
}"""
PROFILE = '{ userProfile(id: "%s") { trustTier confirmedReportCount reportTotal } }'
AREA = "Downtown"


async def report_in_area(served: Served, user: str = "ada") -> dict[str, Any]:
    answer = await served.ask(REPORT, {"area": AREA}, user=user)
    assert answer.errors is None, answer.errors
    found: dict[str, Any] = answer.data["reportSighting"]
    return found


async def confirm_in_area(served: Served, sighting: dict[str, Any], user: str = "grace") -> Answer:
    answer = await served.ask(CONFIRM, {"area": AREA, "id": sighting["sightingId"]}, user=user)
    assert answer.errors is None, answer.errors
    return answer


async def trust(served: Served, user: str = "ada") -> tuple[str, int, int]:
    """Return the user's tier, the number of confirmed reports, and that of all reports."""
    found = (await served.ask(PROFILE % user)).data["userProfile"]
    return found["trustTier"], found["confirmedReportCount"], found["reportTotal"]


async def stored_profile(served: Served, user: str = "ada") -> dict[str, Any]:
    item = await served.store().get(keys.REPORT, keys.profile(user))
    assert item is not None
    return dict(item)


async def store_profile(served: Served, table: Table = BLIP, **profile: Any) -> None:
    """Store a profile as an earlier version wrote it."""
    key = keys.profile("ada")
    await served.store().write_all(table, puts=[{"PK": key.partition, "SK": key.sort, "userId": "ada", **profile}])


async def test_reports_alone_earn_no_trust(served: Served) -> None:
    sightings = [await report_in_area(served) for _ in range(60)]
    own = [
        await served.ask(CONFIRM, {"area": AREA, "id": sighting["sightingId"]}, user="ada")
        for sighting in sightings[:5]
    ]

    assert {sighting["trustTier"] for sighting in sightings} == {"BRONZE"}
    assert [answer.data["confirmSighting"]["confirmationCount"] for answer in own] == [0] * 5
    assert await trust(served) == ("BRONZE", 0, 60)


async def test_two_accounts_need_a_day_for_silver_and_five_for_gold(served: Served) -> None:
    tiers = []
    for _ in range(5):
        for _ in range(14):
            await confirm_in_area(served, await report_in_area(served))
        tiers.append(await trust(served))
        served.clock.forward(days=1)

    assert tiers == [
        ("SILVER", 10, 14),
        ("SILVER", 20, 28),
        ("SILVER", 30, 42),
        ("SILVER", 40, 56),
        ("GOLD", 50, 70),
    ]


async def test_days_are_counted_in_utc(served: Served) -> None:
    served.clock.forward(hours=11, minutes=59)
    sightings = [await report_in_area(served) for _ in range(20)]
    for sighting in sightings[:12]:
        await confirm_in_area(served, sighting)
    served.clock.forward(minutes=2)
    for sighting in sightings[12:]:
        await confirm_in_area(served, sighting)

    assert await trust(served) == ("SILVER", 18, 20)


async def test_a_report_counts_once_for_any_number_of_confirmations(served: Served) -> None:
    sighting = await report_in_area(served)

    answers = await asyncio.gather(*[confirm_in_area(served, sighting, f"witness-{number}") for number in range(30)])
    await confirm_in_area(served, sighting, "witness-0")
    later = await confirm_in_area(served, sighting, "grace")

    assert {1 <= answer.data["confirmSighting"]["confirmationCount"] <= 30 for answer in answers} == {True}
    assert later.data == {"confirmSighting": {"confirmationCount": 31}}
    assert await trust(served) == ("BRONZE", 1, 1)
    assert (await stored_profile(served))["confirmed20260625"] == 1


async def test_concurrently_confirmed_reports_are_counted_exactly(served: Served) -> None:
    sightings = [await report_in_area(served) for _ in range(8)]

    await asyncio.gather(
        *[confirm_in_area(served, sighting, witness) for sighting in sightings for witness in ("grace", "eve")]
    )

    assert await trust(served) == ("BRONZE", 8, 8)
    assert (await stored_profile(served))["confirmed20260625"] == 8


async def test_a_first_or_later_confirmation_is_one_transaction(served: Served) -> None:
    sighting = await report_in_area(served)

    first, second = await confirm_in_area(served, sighting, "grace"), await confirm_in_area(served, sighting, "eve")

    for answer, actions in ((first, ["Put", "Put", "Update", "Update"]), (second, ["Put", "Put", "Update"])):
        assert answer.made == ["Query blip", "TransactWriteItems blip"]
        (written,) = [call for call in answer.calls if call.operation == "TransactWriteItems"]
        assert [kind for action in written.request["TransactItems"] for kind in action] == actions


async def test_a_repeated_idempotency_key_counts_once(served: Served) -> None:
    sighting = await report_in_area(served)
    body = {"query": CONFIRM, "variables": {"area": AREA, "id": sighting["sightingId"]}}
    headers = served.headers("grace", Role.USER) | {"Idempotency-Key": "k"}

    for _ in range(2):
        async with served.http.post(f"{served.url}/graphql", json=body, headers=headers) as response:
            assert (await response.json())["data"] == {"confirmSighting": {"confirmationCount": 1}}

    assert await trust(served) == ("BRONZE", 1, 1)


async def test_reports_of_gold_reporters_are_not_counted(served: Served) -> None:
    await store_profile(served, reportTotal=3, trustTier="gold", tierSince="2026-06-01")

    answer = await confirm_in_area(served, await report_in_area(served))

    assert len(answer.calls[-1].request["TransactItems"]) == 3
    assert await trust(served) == ("GOLD", 0, 4)
    assert not [name for name in await stored_profile(served) if name.startswith("confirmed")]


@pytest.mark.parametrize(
    ("reports", "given", "tier"),
    [(9, None, "BRONZE"), (10, None, "SILVER"), (49, None, "SILVER"), (50, None, "GOLD"), (2, "silver", "SILVER")],
)
async def test_a_profile_of_the_former_rule_keeps_its_tier_but_not_its_counts(
    served: Served, reports: int, given: str | None, tier: str
) -> None:
    profile: dict[str, Any] = {"reportTotal": reports, "lastReportedOn": "2026-06-25", "streakDays": 1}
    if given:
        profile["trustTier"] = given
    await store_profile(served, **profile)
    before = await trust(served)
    sightings = await asyncio.gather(*[report_in_area(served) for _ in range(5)])
    sightings += [await report_in_area(served) for _ in range(45)]

    assert before == (tier, 0, reports)
    assert {sighting["trustTier"] for sighting in sightings} == {tier}
    assert await trust(served) == (tier, 0, reports + 50)
    assert (await stored_profile(served))["tierSince"] == "2026-06-25"


async def test_a_reporter_without_a_profile_gets_one_with_the_first_confirmation(served: Served) -> None:
    """Another program stored the sighting."""
    key = keys.sighting(AREA, "2026-06-25T12:00:00Z", "theirs")
    item: dict[str, Any] = {
        "PK": key.partition,
        "SK": key.sort,
        "sightingId": "theirs",
        "area": AREA,
        "category": "Cats",
    }
    item |= {"reporterId": "ada", "reportedAt": "2026-06-25T12:00:00Z", "expiresAt": int(NOON.timestamp()) + 900}
    await served.store().write_all(BLIP, puts=[item])

    await confirm_in_area(served, {"sightingId": "theirs"})
    await report_in_area(served)

    assert await trust(served) == ("BRONZE", 1, 1)
