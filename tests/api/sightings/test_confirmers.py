"""The users that confirmed a sighting: each counts once, at a cost independent of their number (BLIP-5)."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from datastore.database import StoreOptions
from datastore.dynamodb.codec import Item
from datastore.keyspace import sightings as keys
from datastore.keyspace.sightings import BLIP
from datastore.model.identity import Role
from tests.support.fault_proxy import Proxy, Seen, forward, lose_answer
from tests.support.served import NOON, Answer, Served

REPORT = 'mutation { reportSighting(input: {area: "Downtown", category: "Cats", description: "A cat"}) { sightingId } }'
CONFIRM = 'mutation ($id: ID!) { confirmSighting(area: "Downtown", sightingId: $id) { confirmationCount } }'
TRUST = '{ userProfile(id: "ada") { confirmedReportCount } }'
# As long as the ids of identity providers, so that some hundred of them would take several write units.
WITNESS = "auth0|507f1f77bcf86cd799439011-{}"


async def report_sighting_id(served: Served) -> str:
    return str((await served.ask(REPORT, user="ada")).data["reportSighting"]["sightingId"])


async def confirm_by_id(served: Served, sighting: str, user: str) -> Answer:
    answer = await served.ask(CONFIRM, {"id": sighting}, user=user)
    assert answer.errors is None, answer.errors
    return answer


def confirmation_count(answer: Answer) -> int:
    return int(answer.data["confirmSighting"]["confirmationCount"])


def written_units(answer: Answer) -> float:
    return sum(call.units for call in answer.calls if call.operation == "TransactWriteItems")


async def confirmed_reports(served: Served) -> int:
    return int((await served.ask(TRUST)).data["userProfile"]["confirmedReportCount"])


async def items_of_sighting(served: Served, sighting: str, prefix: str) -> list[Item]:
    values = {"partition": f"SIGHTING#{sighting}", "prefix": prefix}
    return [item async for item in served.store().query_all(keys.WATCHES_OF_USER, values)]


async def test_the_cost_of_a_confirmation_does_not_depend_on_their_number(served: Served) -> None:
    sighting = await report_sighting_id(served)
    await confirm_by_id(served, sighting, WITNESS.format("first"))

    second = await confirm_by_id(served, sighting, WITNESS.format("second"))
    await asyncio.gather(*[confirm_by_id(served, sighting, WITNESS.format(number)) for number in range(120)])
    last = await confirm_by_id(served, sighting, WITNESS.format("last"))

    assert (confirmation_count(second), confirmation_count(last)) == (2, 123)
    assert written_units(last) == written_units(second)
    assert last.made == second.made == ["Query blip", "TransactWriteItems blip"]


async def test_each_user_leaves_a_marker_that_expires_with_the_sighting(served: Served) -> None:
    sighting = await report_sighting_id(served)

    await confirm_by_id(served, sighting, "grace")
    again = await confirm_by_id(served, sighting, "grace")

    (marker,) = await items_of_sighting(served, sighting, "CONFIRMER#")
    assert (marker["SK"], marker["userId"]) == ("CONFIRMER#grace", "grace")
    assert marker["expiresAt"] == int(NOON.timestamp()) + 1800
    assert confirmation_count(again) == 1
    assert len(await items_of_sighting(served, sighting, "CONFIRMATION#")) == 1


async def test_concurrent_confirmations_of_a_user_count_once(served: Served) -> None:
    sighting = await report_sighting_id(served)

    answers = await asyncio.gather(*[confirm_by_id(served, sighting, "grace") for _ in range(20)])

    assert [confirmation_count(answer) for answer in answers] == [1] * 20
    assert await confirmed_reports(served) == 1


def sighting_of_an_earlier_version(**more: Any) -> Item:
    """Return a sighting as earlier versions stored it."""
    key = keys.sighting("Downtown", "2026-06-25T12:00:00.000Z", "before")
    return {
        "PK": key.partition,
        "SK": key.sort,
        "GSI1PK": "CATEGORY#Cats",
        "GSI1SK": "2026-06-25T12:00:00.000Z#before",
        "sightingId": "before",
        "area": "Downtown",
        "category": "Cats",
        "description": "A cat",
        "reporterId": "ada",
        "reportedAt": "2026-06-25T12:00:00.000Z",
        "expiresAt": int(NOON.timestamp()) + 1800,
        "trustTier": "bronze",
        "confirmationCount": 0,
    } | more


async def test_earlier_confirmers_do_not_count_again(served: Served) -> None:
    await report_sighting_id(served)
    await served.store().write_all(
        BLIP, puts=[sighting_of_an_earlier_version(confirmationCount=2, confirmers={"grace", "eve"})]
    )

    counts = [
        confirmation_count(await confirm_by_id(served, "before", user))
        for user in ("grace", "eve", "linus", "linus", "grace")
    ]

    assert counts == [2, 2, 3, 3, 3]
    assert await confirmed_reports(served) == 0  # the earlier version counted it with the first confirmation


async def test_an_old_unconfirmed_sighting_counts_for_trust(served: Served) -> None:
    await report_sighting_id(served)
    await served.store().write_all(BLIP, puts=[sighting_of_an_earlier_version()])

    counts = [confirmation_count(await confirm_by_id(served, "before", user)) for user in ("grace", "eve", "grace")]

    assert counts == [1, 2, 2]
    assert await confirmed_reports(served) == 1


class TestLostAnswers:
    @pytest.fixture
    def store_options(self, store_options: StoreOptions, proxy: Proxy) -> StoreOptions:
        return replace(store_options, store=proxy.url)

    @pytest.fixture
    def lost(self, proxy: Proxy) -> list[str]:
        """Lose the response to the first try of each transaction, and remove the token of the second.

        The engine then does not recognize the second try, as after a crash.
        """
        tokens: list[str] = []

        async def lose(proxy: Proxy, seen: Seen) -> web.StreamResponse:
            if seen.operation != "TransactWriteItems":
                return await forward(proxy, seen)
            tokens.append(str(seen.body["ClientRequestToken"]))
            if tokens.count(tokens[-1]) == 1:
                return await lose_answer(proxy, seen)
            del seen.body["ClientRequestToken"]
            return await forward(proxy, seen)

        proxy.always = lose
        return tokens

    async def test_a_confirmation_with_a_lost_response_counts_once(self, served: Served, lost: list[str]) -> None:
        sighting = await report_sighting_id(served)

        answers = [await confirm_by_id(served, sighting, user) for user in ("grace", "eve", "grace")]

        assert [confirmation_count(answer) for answer in answers] == [1, 2, 2]
        assert len(lost) > len(set(lost))
        assert await confirmed_reports(served) == 1
        assert len(await items_of_sighting(served, sighting, "CONFIRMER#")) == 2

    async def test_a_repeated_idempotency_key_counts_once(self, served: Served, lost: list[str]) -> None:
        sighting = await report_sighting_id(served)
        body = {"query": CONFIRM, "variables": {"id": sighting}}
        headers = served.headers("grace", Role.USER) | {"Idempotency-Key": "k"}

        for _ in range(2):
            async with served.http.post(f"{served.url}/graphql", json=body, headers=headers) as response:
                assert (await response.json())["data"] == {"confirmSighting": {"confirmationCount": 1}}

        assert await confirmed_reports(served) == 1
