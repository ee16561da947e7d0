"""Street sightings through the API, on the real engine (BLIP-1, BLIP-2, BLIP-5, BLIP-6, BLIP-8)."""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from datastore.keyspace import sightings as keys
from datastore.model.composite_keys import Key
from datastore.model.identity import Role
from tests.support.served import NOON, Answer, Served
from tests.support.sightings import REPORT, confirm_sighting, report_sighting

IN_AREA = """
query ($area: String!, $first: Int, $after: String, $last: Int, $before: String) {
  sightings(area: $area, first: $first, after: $after, last: $last, before: $before) {
    edges { cursor node { sightingId } }
    pageInfo { hasNextPage hasPreviousPage startCursor endCursor }
    lastEvaluatedKey
  }
}
"""

PROFILE = "query ($id: ID!) { userProfile(id: $id) { reportTotal streakDays trustTier lastReportedOn } }"


async def profile(served: Served, user: str) -> dict[str, Any]:
    answer = await served.ask(PROFILE, {"id": user})
    assert answer.errors is None
    found: dict[str, Any] = answer.data["userProfile"]
    return found


def sighting_ids(answer: Answer) -> list[str]:
    return [edge["node"]["sightingId"] for edge in answer.data["sightings"]["edges"]]


# BLIP-1


async def test_an_area_lists_its_active_sightings_newest_first(served: Served) -> None:
    first = await report_sighting(served)
    served.clock.forward(seconds=1)
    second = await report_sighting(served)
    await report_sighting(served, area="Harbor")

    answer = await served.ask('{ sightings(area: "Downtown") { nodes { sightingId } lastEvaluatedKey } }')

    assert answer.errors is None
    assert answer.data == {
        "sightings": {
            "nodes": [{"sightingId": second["sightingId"]}, {"sightingId": first["sightingId"]}],
            "lastEvaluatedKey": None,
        }
    }
    assert answer.made == ["Query blip"]


async def test_reporters_of_a_page_are_read_in_one_batch(served: Served) -> None:
    for user in ("ada", "grace", "linus", "ada"):
        await report_sighting(served, user=user)
        served.clock.forward(seconds=1)

    answer = await served.ask('{ sightings(area: "Downtown") { nodes { reporter { userId reportTotal } } } }')

    assert [node["reporter"]["reportTotal"] for node in answer.data["sightings"]["nodes"]] == [2, 1, 1, 2]
    assert answer.made == ["BatchGetItem blip", "Query blip"]
    batch = next(call for call in answer.calls if call.operation == "BatchGetItem")
    ((_, entry),) = batch.request["RequestItems"].items()
    assert len(entry["Keys"]) == 3


async def test_the_list_is_paged_in_both_directions(served: Served) -> None:
    reported = []
    for _ in range(7):
        reported.append((await report_sighting(served))["sightingId"])
        served.clock.forward(seconds=1)
    newest_first = reported[::-1]

    first = await served.ask(IN_AREA, {"area": "Downtown", "first": 3})
    second = await served.ask(
        IN_AREA, {"area": "Downtown", "first": 3, "after": first.data["sightings"]["lastEvaluatedKey"]}
    )
    third = await served.ask(
        IN_AREA, {"area": "Downtown", "first": 3, "after": second.data["sightings"]["pageInfo"]["endCursor"]}
    )
    back = await served.ask(
        IN_AREA, {"area": "Downtown", "last": 3, "before": third.data["sightings"]["pageInfo"]["startCursor"]}
    )

    assert [sighting_ids(first), sighting_ids(second), sighting_ids(third)] == [
        newest_first[:3],
        newest_first[3:6],
        newest_first[6:],
    ]
    assert third.data["sightings"]["lastEvaluatedKey"] is None
    assert back.data == second.data | {"sightings": back.data["sightings"]}
    assert sighting_ids(back) == sighting_ids(second)
    assert (
        back.data["sightings"]["pageInfo"] | {"hasNextPage": True, "hasPreviousPage": True}
        == (back.data["sightings"]["pageInfo"])
    )


async def test_a_cursor_is_valid_for_its_area_only(served: Served) -> None:
    await report_sighting(served)
    served.clock.forward(seconds=1)
    await report_sighting(served)
    cursor = (await served.ask(IN_AREA, {"area": "Downtown", "first": 1})).data["sightings"]["lastEvaluatedKey"]

    answer = await served.ask(IN_AREA, {"area": "Harbor", "first": 1, "after": cursor})

    assert answer.codes == ["BAD_CURSOR"]
    assert answer.calls == []


async def test_an_expired_sighting_disappears_from_every_read_at_its_second(served: Served) -> None:
    sighting = await report_sighting(served)
    everywhere = f"""{{
      sightings(area: "Downtown") {{ nodes {{ sightingId }} }}
      trending(categories: ["Cats"]) {{ sightingCount sightings {{ nodes {{ sightingId }} }} }}
      counted: trending(categories: ["Cats"]) {{ sightingCount }}
      node(id: "{sighting["id"]}") {{ id }}
    }}"""

    served.clock.now = NOON + timedelta(seconds=1799, milliseconds=999)
    before = await served.ask(everywhere)
    served.clock.now = NOON + timedelta(seconds=1800)
    after = await served.ask(everywhere)
    confirmed = await confirm_sighting(served, sighting, "grace")

    alive = [{"sightingId": sighting["sightingId"]}]
    assert before.data == {
        "sightings": {"nodes": alive},
        "trending": [{"sightingCount": 1, "sightings": {"nodes": alive}}],
        "counted": [{"sightingCount": 1}],
        "node": {"id": sighting["id"]},
    }
    assert after.data == {
        "sightings": {"nodes": []},
        "trending": [{"sightingCount": 0, "sightings": {"nodes": []}}],
        "counted": [{"sightingCount": 0}],
        "node": None,
    }
    assert confirmed.codes == ["NOT_FOUND"]


@pytest.mark.parametrize(
    ("seconds", "confirmations", "user", "confidence", "freshness"),
    [
        (0, 0, "ada", 1.0, "FRESH"),
        (900, 0, "ada", 0.5, "FADING"),
        (900, 1, "ada", 0.6, "FADING"),
        (900, 5, "ada", 0.8, "FRESH"),
        (1350, 0, "ada", 0.25, "STALE"),
        (1350, 0, "silver", 0.30, "STALE"),
        (1350, 0, "gold", 0.35, "FADING"),
        (612, 0, "ada", 0.66, "FADING"),
        (1206, 0, "ada", 0.33, "FADING"),
        (1207, 0, "ada", 0.3294, "STALE"),
    ],
)
async def test_confidence_depends_on_remaining_time_confirmations_and_trust(
    served: Served, seconds: int, confirmations: int, user: str, confidence: float, freshness: str
) -> None:
    for tier in ("silver", "gold"):
        key = keys.profile(tier)
        await served.store().put(
            keys.CREATE_WATCH, {"PK": key.partition, "SK": key.sort, "userId": tier, "trustTier": tier}
        )
    sighting = await report_sighting(served, user=user)
    for number in range(confirmations):
        assert (await confirm_sighting(served, sighting, f"witness-{number}")).errors is None

    served.clock.forward(seconds=seconds)
    answer = await served.ask('{ sightings(area: "Downtown") { nodes { confidence freshness } } }')

    (node,) = answer.data["sightings"]["nodes"]
    assert node == {"confidence": pytest.approx(confidence, abs=1e-3), "freshness": freshness}


async def test_a_damaged_sighting_is_an_error_in_its_place(served: Served) -> None:
    good = await report_sighting(served)
    key = keys.sighting("Downtown", "2026-06-25T12:00:01.000Z", "damaged")
    await served.store().put(
        keys.CREATE_WATCH,
        {"PK": key.partition, "SK": key.sort, "sightingId": "damaged", "expiresAt": int(NOON.timestamp()) + 900},
    )

    answer = await served.ask('{ sightings(area: "Downtown") { nodes { sightingId } edges { node { area } } } }')

    assert answer.data["sightings"] == {
        "nodes": [None, {"sightingId": good["sightingId"]}],
        "edges": [{"node": None}, {"node": {"area": "Downtown"}}],
    }
    assert [(error["path"], error["message"]) for error in answer.errors or ()] == [
        (["sightings", "nodes", 0], "A stored record is damaged."),
        (["sightings", "edges", 0, "node"], "A stored record is damaged."),
    ]


async def test_a_damaged_item_is_an_error_of_its_field(served: Served) -> None:
    key = keys.profile("damaged")
    await served.store().put(keys.CREATE_WATCH, {"PK": key.partition, "SK": key.sort, "trustTier": "platinum"})
    await report_sighting(served, user="ada")

    answer = await served.ask('{ bad: userProfile(id: "damaged") { userId } good: userProfile(id: "ada") { userId } }')

    assert answer.data == {"bad": None, "good": {"userId": "ada"}}
    assert [(error["path"], error["message"]) for error in answer.errors or ()] == [
        (["bad"], "A stored record is damaged.")
    ]


# BLIP-2, BLIP-6


async def test_an_unknown_profile_is_null(served: Served) -> None:
    answer = await served.ask(PROFILE, {"id": "nobody"})

    assert (answer.data, answer.errors, answer.made) == ({"userProfile": None}, None, ["GetItem blip"])


async def test_a_report_is_stored_with_all_attributes_and_counted(served: Served) -> None:
    answer = await served.ask(REPORT, {"area": "Downtown", "category": "Cats"}, user="ada")

    sighting = answer.data["reportSighting"]
    assert sighting | {"id": "", "sightingId": ""} == {
        "id": "",
        "sightingId": "",
        "area": "Downtown",
        "category": "Cats",
        "description": "A tabby on the steps",
        "reporterId": "ada",
        "trustTier": "BRONZE",
        "reportedAt": "2026-06-25T12:00:00.000Z",
        "expiresAt": "2026-06-25T12:30:00.000Z",
        "confirmationCount": 0,
        "confidence": 1.0,
        "freshness": "FRESH",
    }
    assert answer.made == ["GetItem blip", "TransactWriteItems blip"]
    assert await profile(served, "ada") == {
        "reportTotal": 1,
        "streakDays": 1,
        "trustTier": "BRONZE",
        "lastReportedOn": "2026-06-25",
    }


async def test_a_streak_grows_by_the_day_and_restarts_after_a_gap(served: Served) -> None:
    seen = []
    for days in (0, 0, 1, 1, 2):
        served.clock.forward(days=days)
        await report_sighting(served)
        found = await profile(served, "ada")
        seen.append((found["reportTotal"], found["streakDays"], found["lastReportedOn"]))

    assert seen == [
        (1, 1, "2026-06-25"),
        (2, 1, "2026-06-25"),
        (3, 2, "2026-06-26"),
        (4, 3, "2026-06-27"),
        (5, 1, "2026-06-29"),
    ]


async def test_totals_and_streak_are_exact_for_concurrent_first_reports_of_a_day(served: Served) -> None:
    await report_sighting(served)
    served.clock.forward(days=1)

    reported = await asyncio.gather(*[report_sighting(served) for _ in range(40)])

    assert len({sighting["sightingId"] for sighting in reported}) == 40
    assert await profile(served, "ada") == {
        "reportTotal": 41,
        "streakDays": 2,
        "trustTier": "BRONZE",
        "lastReportedOn": "2026-06-26",
    }


async def test_a_sighting_keeps_the_tier_of_its_reporter_at_that_time(served: Served) -> None:
    tiers = []
    for _ in range(12):
        sighting = await report_sighting(served)
        tiers.append(sighting["trustTier"])
        assert (await confirm_sighting(served, sighting, "grace")).errors is None

    assert tiers == ["BRONZE"] * 10 + ["SILVER"] * 2


# BLIP-5


@pytest.mark.parametrize("times", [1, 2])
async def test_fifty_concurrent_confirmations_are_counted_exactly(served: Served, times: int) -> None:
    sighting = await report_sighting(served)
    witnesses = [f"witness-{number}" for number in range(50)] * times

    answers = await asyncio.gather(*[confirm_sighting(served, sighting, witness) for witness in witnesses])

    assert [answer.errors for answer in answers] == [None] * len(witnesses)
    assert {1 <= answer.data["confirmSighting"]["confirmationCount"] <= 50 for answer in answers} == {True}
    standing = await served.ask('{ sightings(area: "Downtown") { nodes { confirmationCount } } }')
    assert standing.data["sightings"]["nodes"] == [{"confirmationCount": 50}]


async def test_a_second_confirmation_or_that_of_the_reporter_changes_nothing(served: Served) -> None:
    sighting = await report_sighting(served)

    first = await confirm_sighting(served, sighting, "grace")
    second = await confirm_sighting(served, sighting, "grace")
    own = await confirm_sighting(served, sighting, "ada")

    counts = [answer.data["confirmSighting"]["confirmationCount"] for answer in (first, second, own)]
    assert counts == [1, 1, 1]
    assert first.made == ["Query blip", "TransactWriteItems blip"]
    assert second.made == ["Query blip", "Query blip", "TransactWriteItems blip"]
    assert own.made == ["Query blip"]


async def test_a_confirmation_is_stored_until_its_sighting_expires(served: Served) -> None:
    sighting = await report_sighting(served)

    served.clock.forward(seconds=10)
    await confirm_sighting(served, sighting, "grace")

    values = {"partition": f"SIGHTING#{sighting['sightingId']}", "prefix": "CONFIRMATION#"}
    (item,) = [item async for item in served.store().query_all(keys.WATCHES_OF_USER, values)]
    assert item["userId"] == "grace"
    assert item["SK"].startswith("CONFIRMATION#2026-06-25T12:00:10.000Z#")
    assert item["expiresAt"] == int(NOON.timestamp()) + 1800


async def test_confirming_a_missing_sighting_is_not_found(served: Served) -> None:
    sighting = await report_sighting(served)

    elsewhere = await confirm_sighting(served, sighting | {"area": "Harbor"}, "grace")
    unknown = await confirm_sighting(served, sighting | {"sightingId": "x#y\n"}, "grace")

    assert elsewhere.codes == unknown.codes == ["NOT_FOUND"]


# BLIP-8


async def test_an_admin_seeds_eight_sightings_across_all_areas(served: Served) -> None:
    answer = await served.ask("mutation { seedDemo { area category freshness } }", user="root", role=Role.ADMIN)

    assert answer.made == ["TransactWriteItems blip"]
    seeded = answer.data["seedDemo"]
    assert len(seeded) == 8
    assert {sighting["area"] for sighting in seeded} == set((await served.ask("{ areas }")).data["areas"])
    assert set(Counter(sighting["freshness"] for sighting in seeded)) == {"FRESH", "FADING", "STALE"}
    listed = await served.ask('{ sightings(area: "Downtown") { nodes { reporter { trustTier } } } }')
    assert [node["reporter"]["trustTier"] for node in listed.data["sightings"]["nodes"]] == ["GOLD", "GOLD"]


async def test_seeding_again_adds_sightings_and_leaves_the_reporters_unchanged(served: Served) -> None:
    seed = "mutation { seedDemo { sightingId } }"
    await served.ask(seed, user="root", role=Role.ADMIN)
    before = await profile(served, "demo-ada")
    await report_sighting(served, user="demo-ada")

    again = await served.ask(seed, user="root", role=Role.ADMIN)

    assert again.errors is None
    assert (await profile(served, "demo-ada"))["reportTotal"] == before["reportTotal"] + 1
    scores = (await served.ask("{ trending { sightingCount } }")).data["trending"]
    assert sum(trend["sightingCount"] for trend in scores) == 17


async def test_only_admins_seed(served: Served) -> None:
    seed = "mutation { seedDemo { sightingId } }"

    assert (await served.ask(seed)).codes == ["UNAUTHENTICATED"]
    assert (await served.ask(seed, user="ada")).codes == ["FORBIDDEN"]
    assert (await served.ask(seed, user="job", role=Role.SYSTEM)).codes == ["FORBIDDEN"]
    assert (await served.ask("{ trending { sightingCount } }")).data["trending"] == [{"sightingCount": 0}] * 5


# Refused input

LONG_DESCRIPTION = (
    'mutation { reportSighting(input: {area: "Downtown", category: "Cats", description: "%s"}) { id } }' % ("x" * 501)
)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ('{ sightings(area: "Atlantis") { nodes { area } } }', "area"),
        ('{ sightings(area: "Downtown", first: 0) { nodes { area } } }', "first"),
        ('{ sightings(area: "Downtown", first: 101) { nodes { area } } }', "first"),
        ('{ sightings(area: "Downtown", last: -1) { nodes { area } } }', "last"),
        ('{ sightings(area: "Downtown", first: 1, last: 1) { nodes { area } } }', "first"),
        ('{ sightings(area: "Downtown", first: 1, before: "x") { nodes { area } } }', "before"),
        ('{ trending(categories: ["Dragons"]) { sightingCount } }', "category"),
        ('{ userProfile(id: "") { userId } }', "id"),
        (f'{{ userProfile(id: "{"x" * 3000}") {{ userId }} }}', "id"),
        (
            'mutation { reportSighting(input: {area: "Downtown", category: "Cats", description: " "}) { id } }',
            "description",
        ),
        (LONG_DESCRIPTION, "description"),
        ('mutation { reportSighting(input: {area: "Nowhere", category: "Cats", description: "x"}) { id } }', "area"),
        ('mutation { createWatch(input: {area: "Downtown", category: "Dragons"}) { id } }', "category"),
        ('mutation { deleteWatch(area: "Downtown", category: "Cats", watchId: "") { id } }', "watchId"),
        ("{ sightings { nodes { area } } }", "area"),
        ('{ node(id: "!!") { id } }', "id"),
        ('{ node(id: "WyJDYXQiLCJ4Il0") { id } }', "id"),
    ],
)
async def test_bad_input_is_named_without_a_call(served: Served, query: str, names: str) -> None:
    answer = await served.ask(query, user="ada")

    assert answer.codes == ["BAD_USER_INPUT"]
    assert names in (answer.errors or [])[0]["message"]
    assert answer.calls == []


async def test_an_id_with_separators_stays_within_its_key(served: Served) -> None:
    await report_sighting(served, user="eve#PROFILE")
    await report_sighting(served, user="eve%23PROFILE")
    await report_sighting(served, user="eve ")

    totals = [(await profile(served, user))["reportTotal"] for user in ("eve#PROFILE", "eve%23PROFILE", "eve ")]

    assert totals == [1, 1, 1]
    assert (await served.ask(PROFILE, {"id": "eve"})).data == {"userProfile": None}
    item = await served.store().get(keys.USER_PROFILE, Key("USER#eve%23PROFILE", "PROFILE"))
    assert item is not None
    assert item["userId"] == "eve#PROFILE"


async def test_reads_of_the_table_can_be_consistent(served: Served) -> None:
    fields = """sightings(area: "Downtown", consistent: %s) { nodes { id } }
        userProfile(id: "ada", consistent: %s) { id } watches(userId: "ada", consistent: %s) { id }"""

    for consistent in ("false", "true"):
        answer = await served.ask(f"{{ {fields.replace('%s', consistent)} }}", user="ada")

        assert answer.errors is None
        made = [call.request.get("ConsistentRead", False) for call in answer.calls]
        assert made == [consistent == "true"] * 3
