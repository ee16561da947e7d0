"""Responses are limited in values and characters and charged by their size. Subscriptions keep little memory."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson
import pytest
from starlette.types import Message

from datastore.errors import Throttled, Unavailable
from datastore.keyspace.sightings import BLIP
from datastore.model.identity import Role
from server.admission.budgets import Allowance
from server.admission.callers import Caller
from server.admission.quotas import KeyedQuota
from server.admission.settings import Capacity
from server.documents.request import GraphQLParams
from server.documents.variables import characters_in
from server.http.body import Bodies
from server.http.cycle import ClientGone
from server.http.headers import Headers
from server.http.responses import Refused
from server.operations.outcome import MAX_RESPONSE_CHARACTERS, is_too_large
from server.operations.request import (
    FREE_EVENT_BYTES,
    MIN_UNITS,
    RESPONSE_BYTES_PER_UNIT,
    VALUES_PER_UNIT,
    Request,
    Transport,
)
from server.settings import Settings
from tests.support.served import Answer, Served
from tests.support.sighting_subscriptions import foreign_sighting, raw_put
from tests.support.until import until

SIGHTING = (
    "area category description confidence freshness reportedAt expiresAt reporter {trustTier streakDays reportTotal}"
)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, capacity=Capacity(budget_units_per_second=0.01))


LIVE_SCORES = " ".join(f"a{number}: liveScore {{...L}}" for number in range(60))
LIVE_SCORE = "innings {runs wickets overs} batting {runs balls fours sixes} bowling {runs} recentBalls {label runs}"


def sightings_query(fields: int) -> str:
    """Return a query for `fields` pages of sightings, whose size is the variable `n`."""
    asked = " ".join(f's{number}: sightings(area: "Harbor", first: $n) {{nodes {{...F}}}}' for number in range(fields))
    return f"query ($n: Int) {{{asked}}} fragment F on Sighting {{{SIGHTING}}}"


def wide(names: int) -> str:
    """Return a subscription with this number of aliases of one field."""
    fields = " ".join(f"a{number}: description" for number in range(names))
    return f"subscription {{sightingReported {{{fields}}}}}"


async def prepare_http_request(
    served: Served, text: str, variables: dict[str, Any] | None = None, **more: Any
) -> Request:
    request = await served.gateway.server.runner.prepare(
        GraphQLParams(text, variables, **more), Caller(None), Transport.HTTP
    )
    assert isinstance(request, Request)
    return request


# --- Values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "variables", "values"),
    [
        ("{areas}", {}, 1),
        ("{areas a: areas b: areas}", {}, 3),
        ('{sightings(area: "Harbor", first: 100) {nodes {area category}}}', {}, 1 + 100 * 2),
        ("query ($n: Int) {sightings(first: $n) {nodes {area}}}", {"n": 40}, 1 + 40),
        ("query ($n: Int = 7) {sightings(first: $n) {nodes {area}}}", {}, 1 + 7),
        ("query ($n: Int) {sightings(first: $n) {nodes {area}}}", {"n": 10**9}, 1 + 100),
        ("query ($s: Boolean!) {areas @skip(if: $s) categories}", {"s": True}, 1),
        ("query ($s: Boolean!) {areas @skip(if: $s) categories}", {"s": False}, 2),
        ("{liveMatches {liveScore {innings {runs} batting {runs}}}}", {}, 1 + 10 * (1 + 1 + 5 + 1 + 5)),
        ("{photos(first: 10) {nodes {user {photos(first: 20) {nodes {id}}}}}}", {}, 1 + 10 * (1 + 1 + 20)),
        ("{a: areas ...F} fragment F on Query {b: areas ... on Query {c: areas}}", {}, 3),
    ],
)
async def test_values_are_estimated_from_the_sizes_of_pages_and_lists(
    served: Served, text: str, variables: dict[str, Any], values: float
) -> None:
    text = text.replace("sightings(first", 'sightings(area: "Harbor", first')

    assert (await prepare_http_request(served, text, variables)).max_values == values


async def test_a_response_with_too_many_values_is_refused_before_any_read(served: Served) -> None:
    allowed = await served.ask(sightings_query(20), {"n": 20})
    refused = await served.ask(sightings_query(24), {"n": 100})

    assert allowed.errors is None
    assert refused.errors is not None
    (error,) = refused.errors
    assert error["extensions"]["code"] == "BAD_USER_INPUT"
    assert (error["extensions"]["measure"], error["extensions"]["limit"]) == ("values", 25_000)
    assert error["extensions"]["estimate"] > 20_000
    assert "at most 25,000 are allowed" in error["message"]
    assert (refused.data, refused.made) == (None, [])


async def test_values_are_charged_in_advance(served: Served) -> None:
    request = await prepare_http_request(served, sightings_query(10), {"n": 100})

    assert request.max_values / VALUES_PER_UNIT > request.min_units
    assert request.charged >= request.max_values / VALUES_PER_UNIT


# --- Bytes ------------------------------------------------------------------------------------------------------------


def units_spent(answer: Answer) -> float:
    return float(answer.headers["ratelimit-limit"]) - float(answer.headers["ratelimit-remaining"])


async def test_a_response_costs_at_least_one_unit_per_8_kb(served: Served) -> None:
    text = "{__schema {types {name fields {name}}}}"

    answer = await served.ask(text, user="ada")

    size = len(orjson.dumps(answer.data))
    assert size > RESPONSE_BYTES_PER_UNIT
    assert units_spent(answer) == pytest.approx(size / RESPONSE_BYTES_PER_UNIT, abs=1)


async def test_the_json_of_a_request_is_charged_by_its_size(served: Served) -> None:
    body = {"query": "{areas}", "extensions": {"unknown": [{}] * 50_000}}

    async with served.http.post(
        f"{served.url}/graphql", json=body, headers=served.headers("ada", Role.USER)
    ) as response:
        assert (await response.json())["data"]["areas"]

    left = float(response.headers["ratelimit-remaining"])
    assert float(response.headers["ratelimit-limit"]) - left == pytest.approx(0.25 * (1 + 200_000 // 16_384), abs=1)


def test_a_repeated_string_counts_each_time() -> None:
    text = "x" * 1_000
    least = MAX_RESPONSE_CHARACTERS // 1_000

    assert not is_too_large({"nodes": [{"a": text, "n": 1, "none": None}] * least})
    assert is_too_large({"nodes": [{"a": text, "b": [text]}] * (least // 2 + 1)})
    assert not is_too_large(None)


@pytest.mark.parametrize("unmeasured", [1, 2_000], ids=["many values", "few values"])
async def test_a_response_with_too_many_characters_is_refused(
    served: Served, monkeypatch: pytest.MonkeyPatch, unmeasured: int
) -> None:
    monkeypatch.setattr("server.operations.outcome.MAX_RESPONSE_CHARACTERS", 50)
    monkeypatch.setattr("server.operations.runner.MAX_RESPONSE_CHARACTERS", 50)
    monkeypatch.setattr("server.operations.runner.UNMEASURED_VALUES", unmeasured)

    answer = await served.ask("{areas categories}")

    assert answer.errors is not None
    assert answer.errors[0]["extensions"]["measure"] == "answerCharacters"
    assert answer.data is None


# --- Subscriptions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [1, 90])
async def test_large_events_are_charged_by_their_size(
    served: Served, monkeypatch: pytest.MonkeyPatch, names: int
) -> None:
    settled: list[float] = []

    async def settle(_caller: Caller, units: float) -> Allowance:
        settled.append(units)
        return Allowance(5_000, 5_000, 1)

    monkeypatch.setattr(served.gateway.server.admission.budgets, "settle", settle)
    listener = await served.listen(wide(names), user="ada")
    await served.settle(BLIP)
    raw_put(served, foreign_sighting("0", description="z" * 280))
    raw_put(served, foreign_sighting("1", description="z" * 280))
    event = await listener.message()
    assert (await listener.message())["type"] == "next"

    size = len(orjson.dumps(event["payload"]))
    charged = (await prepare_http_request(served, wide(names))).charged
    assert event["type"] == "next"
    # The second event is charged after it was sent. The estimate has paid for the first one.
    await until(lambda: size < FREE_EVENT_BYTES or len(settled) == 2)
    paid = charged + sum(settled)
    assert paid == pytest.approx(max(0.25, 2 * (size - FREE_EVENT_BYTES) / RESPONSE_BYTES_PER_UNIT), abs=0.1)


@pytest.mark.parametrize(("texts", "executions"), [((1, 1), 1), ((1, 2), 2)], ids=["the same", "different"])
async def test_subscribers_share_the_cost_of_each_execution_of_an_event(
    served: Served, monkeypatch: pytest.MonkeyPatch, texts: tuple[int, int], executions: int
) -> None:
    settled: list[float] = []

    async def settle(_caller: Caller, units: float) -> Allowance:
        settled.append(units)
        return Allowance(5_000, 5_000, 1)

    monkeypatch.setattr(served.gateway.server.admission.budgets, "settle", settle)
    listeners = [await served.listen(wide(names), user="ada") for names in texts]
    await served.settle(BLIP, executions)
    for number in range(12):
        raw_put(served, foreign_sighting(str(number)))
    for listener in listeners:
        assert [(await listener.message())["type"] for _ in range(12)] == ["next"] * 12
        await listener.socket.close()
    await until(lambda: len(served.reports) == 2)

    charged = sum([(await prepare_http_request(served, wide(names))).charged for names in texts])
    # Each subscription pays the minimum of an operation, which covers its first event.
    assert charged + sum(settled) == pytest.approx((len(texts) + 11 * executions) * MIN_UNITS)


async def test_a_subscription_keeps_only_its_declared_variables(served: Served) -> None:
    text = "subscription ($area: String) {sightingReported(area: $area) {area}}"
    variables = {"area": "Harbor", "other": "x" * 100_000}

    request = await prepare_http_request(served, text, variables, extensions={"other": "x" * 100_000})

    assert request.params.variables == {"area": "Harbor"}
    assert request.params.extensions is None


def test_characters_of_variables_are_counted_in_names_lists_and_objects() -> None:
    assert characters_in({"ab": ["cd", {"e": "fgh", "i": 1}], "j": None, "k": True}) == 2 + 2 + 1 + 3 + 1 + 1 + 1


@pytest.mark.parametrize(
    "large",
    [
        "subscription {sightingReported {area}} #" + "x" * 3 * 4_096,
        f'subscription {{matchUpdates(matchId: "m1") {{{LIVE_SCORES}}}}} fragment L on LiveScore {{{LIVE_SCORE}}}',
    ],
    ids=["characters", "values"],
)
async def test_a_large_subscription_takes_more_units_of_the_quota(
    served: Served, monkeypatch: pytest.MonkeyPatch, large: str
) -> None:
    monkeypatch.setattr(served.gateway.server.subscriptions, "_quota", KeyedQuota("subscriptions", 100, 4))
    first = await served.listen(large, user="ada")
    second = await served.listen("subscription {sightingReported {area}}", user="ada")
    refused = await second.message()

    assert first is not None
    assert refused["type"] == "error"
    assert refused["payload"][0]["extensions"]["code"] == "THROTTLED"


def test_units_of_a_quota_are_acquired_and_released_by_number() -> None:
    places = KeyedQuota("places", 10, 6)

    places.acquire("a", 6)
    with pytest.raises(Throttled):
        places.acquire("a")
    with pytest.raises(Unavailable):
        places.acquire("b", 5)
    places.acquire("b", 4)
    places.release("a", 6)

    assert (places.total, places.held_by("a"), places.held_by("b")) == (4, 0, 4)


# --- Bodies -----------------------------------------------------------------------------------------------------------

JSON = Headers([(b"content-type", b"application/json")])


class Arriving:
    """A body that arrives in pieces as in ASGI. Its end is withheld until `go_on` is set."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = [*pieces]
        self.waits = asyncio.Event()
        self.go_on = asyncio.Event()

    async def receive(self) -> Message:
        if not self.pieces:
            self.waits.set()
            await self.go_on.wait()
            return {"type": "http.request", "body": b"", "more_body": False}
        return {"type": "http.request", "body": self.pieces.pop(0), "more_body": True}


@pytest.fixture
def bodies() -> Iterator[Bodies]:
    bodies = Bodies(max_partial=250, max_partial_per_address=150)
    yield bodies
    assert bodies.held.total == 0


async def test_incomplete_bodies_are_limited_per_address_and_in_total(bodies: Bodies) -> None:
    held = [Arriving(b"x" * 100), Arriving(b"x" * 100)]
    reading = [
        asyncio.create_task(bodies.read(JSON, one.receive, f"192.0.2.{number}")) for number, one in enumerate(held)
    ]
    for one in held:
        await one.waits.wait()

    with pytest.raises(Refused) as same:
        await bodies.read(JSON, Arriving(b"x" * 100).receive, "192.0.2.0")
    with pytest.raises(Refused) as all_held:
        await bodies.read(JSON, Arriving(b"x" * 100).receive, "192.0.2.9")
    for one in held:
        one.go_on.set()

    assert (same.value.status, same.value.error.code) == (429, "THROTTLED")
    assert (all_held.value.status, all_held.value.error.code) == (503, "UNAVAILABLE")
    assert await asyncio.gather(*reading) == [b"x" * 100] * 2


async def test_an_abandoned_body_is_released(bodies: Bodies) -> None:
    one = Arriving(b"x" * 100)
    reading = asyncio.create_task(bodies.read(JSON, one.receive, "192.0.2.1"))
    await one.waits.wait()
    assert bodies.held.total == 100
    reading.cancel()
    await asyncio.wait([reading])

    async def gone() -> Message:
        return {"type": "http.disconnect"}

    with pytest.raises(ClientGone):
        await bodies.read(JSON, gone, "192.0.2.1")
