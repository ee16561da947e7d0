"""Budgets over HTTP and WebSockets: operations and subscriptions are charged, refunded and refused."""

from dataclasses import replace
from typing import Any

import pytest

from datastore.keyspace.sightings import BLIP
from datastore.model.identity import Role
from server.admission.budgets import Allowance
from server.admission.callers import Caller
from server.admission.settings import Capacity
from server.documents.cost.analysis import CostEstimate
from server.documents.request import Stage
from server.operations.request import MIN_UNITS
from server.settings import Settings
from tests.support.served import Answer, Served
from tests.support.sighting_subscriptions import foreign_sighting, raw_put
from tests.support.until import until

# --- Over the wire ----------------------------------------------------------------------------------------------------

READ = '{ sightings(area: "Harbor", first: 5) { edges { node { sightingId } } } }'


@pytest.fixture
def settings(settings: Settings) -> Settings:
    capacity = Capacity(
        budget_units=2,
        budget_units_per_second=0.01,
        anonymous_budget_units=1,
        anonymous_budget_units_per_second=0.01,
    )
    return replace(settings, capacity=capacity)


async def until_refused(served: Served, **who: Any) -> tuple[Answer, int]:
    """Return the first refusal, and the number of responses before it."""
    for number in range(100):
        answer = await served.ask(READ, **who)
        if answer.status != 200:
            return answer, number
        assert answer.made == ["Query blip"]
        assert answer.headers["ratelimit-limit"] == ("2" if who else "1")
    raise AssertionError("Nothing was refused.")


async def test_an_operation_over_budget_reads_nothing(served: Served) -> None:
    answer, before = await until_refused(served, user="ada")
    assert before > 1
    assert (answer.status, answer.codes, answer.made) == (429, ["THROTTLED"], [])
    assert answer.data is None
    assert int(answer.headers["retry-after"]) == (answer.errors or [])[0]["extensions"]["retryAfter"] > 0
    assert answer.headers["ratelimit-limit"] == "2"
    assert int(answer.headers["ratelimit-remaining"]) < 2
    assert int(answer.headers["ratelimit-reset"]) > 0

    # Over a WebSocket the operation fails.
    listener = await served.listen(READ, user="ada")
    message = await listener.message()
    assert (message["type"], message["payload"][0]["extensions"]["code"]) == ("error", "THROTTLED")

    # Other users have their own budgets, and services have none.
    assert (await served.ask(READ, user="bob")).status == 200
    assert (await served.ask(READ, user="ada", role=Role.SYSTEM)).status == 200
    answer, before = await until_refused(served)
    assert before >= 1
    assert "This address's budget of 1 read units" in (answer.errors or [])[0]["message"]


async def test_unused_units_are_refunded(served: Served) -> None:
    for _ in range(3):
        # An operation that fails at a wrong argument reads nothing: it costs the minimum of a quarter.
        answer = await served.ask('{ sightings(area: "Atlantis") { edges { node { sightingId } } } }', user="ada")
        assert (answer.codes, answer.made) == (["BAD_USER_INPUT"], [])
    assert left(served) == pytest.approx(2 - 3 * 0.25, abs=0.05)


def left(served: Served) -> float:
    ((_, balance, _),) = served.gateway.server.admission.budgets._local._buckets.values()
    return balance


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("{ areas }", 0.25),
        ("{ nothing }", 0.25),
        ("{ areas }" + " " * 1_024, 0.5),
        ("{ nothing " + " " * 3_072 + "}", 1.0),
        ("{ __schema { types { name } } }", 0.55),
    ],
)
async def test_work_without_reads_is_charged(served: Served, text: str, units: float) -> None:
    answer = await served.ask(text, user="ada")

    assert answer.made == []
    assert left(served) == pytest.approx(2 - units, abs=0.05)


async def test_a_caller_in_debt_is_refused_before_any_work(served: Served) -> None:
    answers = [await served.ask("{ nothing " + " " * 3_072 + "}", user="ada") for _ in range(4)]

    assert [answer.status for answer in answers] == [200, 200, 200, 429]
    assert answers[-1].codes == ["THROTTLED"]
    assert int(answers[-1].headers["retry-after"]) > 0


async def test_a_subscription_that_far_overdraws_its_budget_ends(served: Served) -> None:
    listener = await served.listen("subscription { sightingReported { reporter { reportTotal } } }", user="ada")
    await served.settle(BLIP)
    for number in range(30):
        raw_put(served, foreign_sighting(f"{number}"))
    events = 0
    while (message := await listener.message())["type"] == "next":
        events += 1
    assert (message["type"], message["payload"][0]["extensions"]["code"]) == ("error", "THROTTLED")
    assert "overdrew your budget" in message["payload"][0]["message"]
    # Half a unit each: the whole budget, and a debt of the same size.
    assert 4 <= events <= 9
    # The operation was executed, not refused.
    assert (served.reports[-1].stage, served.reports[-1].events) == (Stage.EXECUTION, events)


async def test_the_estimate_of_a_subscription_is_refunded_once(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """This is also the case if the first event overdraws the budget."""
    settled: list[float] = []

    async def overdrawn(caller: Caller, units: float) -> Allowance:
        settled.append(units)
        return Allowance(2, -3, 5)

    monkeypatch.setattr(served.gateway.server.admission.budgets, "settle", overdrawn)
    monkeypatch.setattr(served.gateway.server.documents, "estimate", lambda *_: CostEstimate(1.0, 1.0))
    listener = await served.listen("subscription { sightingReported { reporter { reportTotal } } }", user="ada")
    await served.settle(BLIP)
    raw_put(served, foreign_sighting("0"))
    assert [(await listener.message())["type"] for _ in range(2)] == ["next", "error"]
    await until(lambda: bool(served.reports))
    (report,) = served.reports
    assert (report.cost, report.estimate) == (0.5, 1)
    assert sum(settled) == pytest.approx(report.cost + MIN_UNITS - report.estimate)
