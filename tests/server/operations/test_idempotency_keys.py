"""Idempotency-Key over HTTP, on the real engine: a mutation is executed once, and its response repeated."""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web

from datastore.database import StoreOptions
from datastore.dynamodb.calls import WRITE_UNIT_COST
from datastore.dynamodb.retry.budget import CAPACITY, TIMEOUT_RETRY_COST
from datastore.model.identity import Role
from runtime.container import Gateway
from server.admission.settings import Capacity
from server.settings import Settings
from tests.support.fault_proxy import QUICK, Proxy, Seen, forward, hang, lose_answer, plain_error, refuse
from tests.support.ports import free_port
from tests.support.served import SECRET, Clock, Served, call_name, listening
from tests.support.store_engines import make_tables
from tests.support.until import until

REPORT = """mutation Report($area: String!, $text: String!) {
  reportSighting(input: {area: $area, category: "Cats", description: $text}) { sightingId }
}
"""
CONFIRM = 'mutation { confirmSighting(area: "Harbor", sightingId: "none") { sightingId } }'
TOTAL = '{ userProfile(id: "%s") { reportTotal } }'
JSON, GRAPHQL = "application/json", "application/graphql-response+json"
FIRST = ["GetItem blip", "PutItem gateway", "TransactWriteItems blip", "UpdateItem gateway"]


@pytest.fixture
def settings() -> Settings:
    budgets = Capacity(budget_units=1000, budget_units_per_second=0.001)
    return Settings(secret=SECRET, port=free_port(), poll_interval=0.02, explain="user", capacity=budgets)


@dataclass
class Reply:
    """A response, and the calls that it caused."""

    status: int
    body: bytes
    headers: dict[str, str] = field(repr=False)
    made: list[str] = field(default_factory=list)

    @property
    def replayed(self) -> bool:
        return self.headers.get("idempotency-replayed") == "true"

    @property
    def codes(self) -> list[str]:
        return [error["extensions"]["code"] for error in orjson.loads(self.body).get("errors", ())]

    @property
    def data(self) -> Any:
        return orjson.loads(self.body)["data"]


async def send_with_key(
    served: Served,
    key: str | None,
    query: str = REPORT,
    variables: dict[str, Any] | None = None,
    *,
    user: str | None = "ada",
    role: Role = Role.USER,
    email: str | None = None,
    accept: str = JSON,
    **body: Any,
) -> Reply:
    """POST a mutation with a key."""
    served.reports.clear()
    headers = {**served.headers(user, role, email), "Accept": accept}
    if key is not None:
        headers["Idempotency-Key"] = key
    variables = {"area": "Harbor", "text": "A cat"} if variables is None else variables
    asked = {"query": query, "variables": variables, **body}
    async with served.http.post(f"{served.url}/graphql", json=asked, headers=headers) as response:
        content = await response.read()
    made = sorted(call_name(call) for report in served.reports for call in report.latest_calls)
    return Reply(response.status, content, dict(response.headers), made)


async def report_total(served: Served, user: str = "ada") -> int:
    """Return the number of sightings that a user has reported."""
    answer = await served.ask(TOTAL % user)
    profile = answer.data["userProfile"]
    return int(profile["reportTotal"]) if profile else 0


async def test_the_first_response_is_repeated(served: Served) -> None:
    first = await send_with_key(served, "k1")
    assert (first.status, first.codes, first.replayed, first.made) == (200, [], False, FIRST)
    for _ in range(3):
        again = await send_with_key(served, "k1")
        assert (again.status, again.body, again.replayed, again.made) == (200, first.body, True, ["PutItem gateway"])
    assert await report_total(served) == 1


async def test_the_log_marks_replayed_responses(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="gateway.operations"):
        await send_with_key(served, "k1")
        await send_with_key(served, "k1")
    assert ["replayed=True" in line for line in caplog.messages if "name=Report" in line] == [False, True]
    assert b'gateway_operation_units_to_estimate_count{type="mutation"} 1.0' in await metrics_bytes(served)


async def metrics_bytes(served: Served) -> bytes:
    headers = served.headers("ops", Role.ADMIN)
    async with served.http.get(f"{served.url}/metrics", headers=headers) as response:
        return await response.read()


async def test_without_a_key_no_response_is_stored(served: Served) -> None:
    first, second = await send_with_key(served, None), await send_with_key(served, None)
    assert first.made == second.made == ["GetItem blip", "TransactWriteItems blip"]
    assert first.body != second.body
    assert await report_total(served) == 2


async def test_a_key_on_a_query_is_ignored(served: Served) -> None:
    """Clients may send the header with every request, even with an invalid key."""
    for key in ("k1", "", "no key"):
        got = await send_with_key(served, key, TOTAL % "ada", {}, user=None)
        assert (got.status, got.codes, got.made) == (200, [], ["GetItem blip"])


@pytest.mark.parametrize(
    "key", ["", '""', "a b", "a, b", "é", "x" * 256, "a\tb", '"' + "x" * 256 + '"'], ids=lambda key: repr(key)[:12]
)
async def test_an_invalid_key_is_refused_before_the_execution(served: Served, key: str) -> None:
    got = await send_with_key(served, key, accept=GRAPHQL)
    assert (got.status, got.codes, got.made) == (400, ["BAD_USER_INPUT"], [])
    assert b"Idempotency-Key must have 1 to 255 visible ASCII characters" in got.body


async def test_keys_may_be_long_unusual_and_quoted(served: Served) -> None:
    """A key with the quotes of the draft is equal to the key without them, which many clients send."""
    for number, key in enumerate(("x" * 255, "!#%&/\\~", "ANSWER#ada#1"), 1):
        first = await send_with_key(served, key)
        assert first.codes == []
        assert (await send_with_key(served, f'"{key}"')).body == first.body
        assert await report_total(served) == number


async def test_each_caller_has_keys_of_its_own(served: Served) -> None:
    of_ada, of_bob = await send_with_key(served, "k1", user="ada"), await send_with_key(served, "k1", user="bob")
    assert not of_bob.replayed
    assert of_ada.body != of_bob.body
    # User and key are separate: "a#b" with "c" is not "a" with "b#c".
    await send_with_key(served, "c", user="a#b")
    assert not (await send_with_key(served, "b#c", user="a")).replayed

    anonymous = await send_with_key(served, "k1", user=None, accept=GRAPHQL)
    assert (anonymous.status, anonymous.codes, anonymous.made) == (401, ["UNAUTHENTICATED"], [])


async def test_another_request_with_the_same_key_is_refused(served: Served) -> None:
    await send_with_key(served, "k1")
    two = REPORT + "\nquery Other { areas }"
    for other in (
        await send_with_key(served, "k1", variables={"area": "Harbor", "text": "Two cats"}, accept=GRAPHQL),
        await send_with_key(served, "k1", variables={"area": "Harbor", "text": "A cat", "more": 1}, accept=GRAPHQL),
        await send_with_key(served, "k1", two, operationName="Report", accept=GRAPHQL),
        await send_with_key(served, "k1", CONFIRM, {}, accept=GRAPHQL),
    ):
        assert (other.status, other.codes, other.replayed) == (422, ["IDEMPOTENCY_MISMATCH"], False)
        assert other.made == ["PutItem gateway"]
    assert (await send_with_key(served, "k1", variables={"text": "Two cats", "area": "Harbor"})).status == 200
    assert (await send_with_key(served, "k1", variables={"text": "A cat", "area": "Harbor"})).replayed
    assert await report_total(served) == 1


ENTER = 'mutation Enter { createPhotoUser(input: {displayName: "Ada"}) { userId email } }'
RIGHTS: list[tuple[Role, str | None]] = [
    (Role.USER, "ada@example.com"),
    (Role.ADMIN, "ada@example.com"),
    (Role.SYSTEM, "ada@example.com"),
    (Role.USER, "eve@example.com"),
    (Role.USER, "\u212ada@example.com"),
    (Role.USER, None),
]


@pytest.mark.parametrize("first", range(len(RIGHTS)))
async def test_a_response_is_repeated_only_for_the_same_role_and_email(served: Served, first: int) -> None:
    role, email = RIGHTS[first]
    given = await send_with_key(served, "k1", ENTER, {}, role=role, email=email, accept=GRAPHQL)

    for at, (other_role, other_email) in enumerate(RIGHTS):
        again = await send_with_key(served, "k1", ENTER, {}, role=other_role, email=other_email, accept=GRAPHQL)
        if at == first:
            assert (again.body, again.replayed) == (given.body, True)
        else:
            assert (again.status, again.codes, again.replayed) == (422, ["IDEMPOTENCY_MISMATCH"], False)
            assert b"of another role or email" in again.body
        assert again.made == ["PutItem gateway"]


async def test_concurrent_requests_with_different_roles_do_not_share_a_response(served: Served) -> None:
    user, admin = await asyncio.gather(
        send_with_key(served, "k1", ENTER, {}, email="ada@example.com", accept=GRAPHQL),
        send_with_key(served, "k1", ENTER, {}, email="ada@example.com", role=Role.ADMIN, accept=GRAPHQL),
    )

    assert sorted([user.status, admin.status]) == [200, 422]


async def test_two_operations_of_a_document_are_different_requests(served: Served) -> None:
    both = "\n".join(REPORT.replace("Report", name, 1) for name in ("One", "Two"))
    assert (await send_with_key(served, "k1", both, operationName="One")).codes == []
    assert (await send_with_key(served, "k1", both, operationName="Two")).codes == ["IDEMPOTENCY_MISMATCH"]


async def test_responses_are_stored_for_a_day(served: Served, clock: Clock) -> None:
    first = await send_with_key(served, "k1")
    clock.forward(hours=23, minutes=59)
    assert (await send_with_key(served, "k1")).body == first.body
    clock.forward(minutes=1)
    # The record has expired by the clock, although DynamoDB deletes it days later.
    again = await send_with_key(served, "k1", variables={"area": "Midtown", "text": "Another one"})
    assert (again.codes, again.replayed, again.made) == ([], False, FIRST)
    assert await report_total(served) == 2


async def test_errors_that_would_repeat_are_stored(served: Served) -> None:
    first = await send_with_key(served, "k1", CONFIRM, {}, accept=GRAPHQL)
    assert first.codes == ["NOT_FOUND"]
    again = await send_with_key(served, "k1", CONFIRM, {}, accept=GRAPHQL)
    assert (again.status, again.body, again.replayed) == (first.status, first.body, True)


async def test_a_key_is_free_again_if_nothing_was_executed(served: Served) -> None:
    wrong = await send_with_key(served, "k1", variables={"area": "Harbor"}, accept=GRAPHQL)
    assert (wrong.status, wrong.codes) == (400, ["BAD_USER_INPUT"])
    assert wrong.made == ["DeleteItem gateway", "PutItem gateway"]
    assert (await send_with_key(served, "k1")).codes == []


async def test_a_partly_executed_mutation_is_not_repeated(served: Served) -> None:
    """The first field succeeds. The second fails, which nulls the data."""
    both = REPORT.replace("}\n}", '}\n  confirmSighting(area: "Harbor", sightingId: "none") { sightingId }\n}')
    first = await send_with_key(served, "k1", both)
    assert (first.data, first.codes) == (None, ["NOT_FOUND"])
    assert (await send_with_key(served, "k1", both)).body == first.body
    assert await report_total(served) == 1


async def test_a_socket_and_http_share_keys(served: Served) -> None:
    first = await send_with_key(served, "k1")
    async with served.http.ws_connect(f"{served.url}/graphql", protocols=["graphql-transport-ws"]) as socket:
        await socket.send_json({"type": "connection_init", "payload": served.headers("ada", Role.USER)})
        assert (await socket.receive_json())["type"] == "connection_ack"

        async def subscribe(key: Any) -> Any:
            asked = {"query": REPORT, "variables": {"area": "Harbor", "text": "A cat"}}
            payload = {**asked, "extensions": {"idempotencyKey": key}}
            await socket.send_json({"id": "1", "type": "subscribe", "payload": payload})
            message = await socket.receive_json(timeout=50)
            if message["type"] == "next":
                assert (await socket.receive_json())["type"] == "complete"
            return message["payload"]

        assert await subscribe("k1") == orjson.loads(first.body)
        own = await subscribe("k2")
        assert orjson.loads((await send_with_key(served, "k2")).body) == own
        for key in (5, ["k1"], "", "a b"):
            assert [error["extensions"]["code"] for error in await subscribe(key)] == ["BAD_USER_INPUT"]
    assert await report_total(served) == 2


async def test_extensions_carry_a_key_over_http_too(served: Served) -> None:
    first = await send_with_key(served, None, extensions={"idempotencyKey": "k1"})
    assert (await send_with_key(served, "k1")).body == first.body


async def test_only_the_first_response_has_an_explanation(served: Served) -> None:
    served.http.headers["X-Explain"] = "1"
    first, again = await send_with_key(served, "k1"), await send_with_key(served, "k1")
    del served.http.headers["X-Explain"]
    plain = await send_with_key(served, "k1")
    explained = orjson.loads(first.body)
    assert explained.pop("extensions")["dynamodb"]
    assert orjson.loads(plain.body) == explained
    assert plain.body == again.body


async def test_a_replay_costs_less_than_an_execution(served: Served) -> None:
    def left(got: Reply) -> int:
        return int(got.headers["ratelimit-remaining"])

    unkept = left(await send_with_key(served, None))
    (report,) = served.reports
    # Writes cost more than reads, as in the estimate.
    assert report.cost > report.units
    assert unkept == round(1000 - report.cost)
    first = left(await send_with_key(served, "k1"))
    assert first < unkept
    # The put that fails on its condition is billed by the size of the stored response, here one write unit.
    assert left(await send_with_key(served, "k1")) == first - WRITE_UNIT_COST
    assert (served.reports[-1].units, served.reports[-1].cost) == (0, WRITE_UNIT_COST)
    assert left(await send_with_key(served, "k2")) < first


async def test_a_client_that_disconnects_receives_the_response_later(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mutation with a key continues. One without a key is cancelled."""
    assert served.gateway.database is not None
    client = served.gateway.database.client
    begun, may_go_on = asyncio.Event(), asyncio.Event()
    call = client.call

    async def slow(operation: str, *given: Any, **more: Any) -> dict[str, Any]:
        if operation == "TransactWriteItems":
            begun.set()
            await may_go_on.wait()
        return await call(operation, *given, **more)

    monkeypatch.setattr(client, "call", slow)
    for key in ("k1", None):
        asking = asyncio.create_task(send_with_key(served, key))
        await begun.wait()
        begun.clear()
        asking.cancel()
        await asyncio.wait([asking])
    await until(lambda: any("CANCELLED" in report.codes for report in served.reports))
    may_go_on.set()
    got = await send_with_key(served, "k1")
    assert (got.codes, got.replayed) == ([], True)
    assert await report_total(served) == 1


# Two processes


@pytest.fixture
async def pair(
    request: pytest.FixtureRequest, proxy: Proxy, store_options: StoreOptions, clock: Clock
) -> AsyncIterator[tuple[Served, Served]]:
    """Two gateways on the same tables, behind a proxy that injects faults. The parameter is the first deadline."""
    deadlines = (getattr(request, "param", 30.0), 30.0)
    async with AsyncExitStack() as stack:
        running = []
        for deadline in deadlines:
            settings = Settings(secret=SECRET, port=free_port(), poll_interval=0.02, deadline_seconds=deadline)
            gateway = Gateway(settings, replace(store_options, store=proxy.url), now=clock)
            await stack.enter_async_context(gateway.running(jobs=False))
            assert gateway.database is not None
            gateway.database.client._backoff = QUICK
            await stack.enter_async_context(listening(gateway))
            http = await stack.enter_async_context(aiohttp.ClientSession())
            running.append(Served(gateway, settings.url, http, clock))
        assert running[0].gateway.database is not None
        await make_tables(running[0].gateway.database)
        proxy.seen.clear()
        yield running[0], running[1]


async def test_fifty_concurrent_requests_write_once_and_receive_equal_responses(
    pair: tuple[Served, Served], proxy: Proxy
) -> None:
    answers = await asyncio.gather(*[send_with_key(pair[number % 2], "k1") for number in range(50)])
    assert {answer.status for answer in answers} == {200}
    assert len({answer.body for answer in answers}) == 1
    assert answers[0].codes == []
    assert [answer.replayed for answer in answers].count(False) == 1
    made = Counter(proxy.operations())
    assert made["TransactWriteItems"] == made["UpdateItem"] == 1
    # One request of each process reads the store. The others wait for it.
    assert made["PutItem"] == 2
    assert await report_total(pair[0]) == 1


async def test_concurrent_requests_with_different_bodies_are_distinguished(pair: tuple[Served, Served]) -> None:
    texts = ["A cat", "A dog"] * 10
    sent = [
        send_with_key(pair[number // 2 % 2], "k1", variables={"area": "Harbor", "text": text}, accept=GRAPHQL)
        for number, text in enumerate(texts)
    ]
    answers = await asyncio.gather(*sent)
    statuses = {
        text: {answer.status for answer, of in zip(answers, texts, strict=True) if of == text} for text in texts
    }
    assert sorted(map(tuple, statuses.values())) == [(200,), (422,)]
    assert await report_total(pair[0]) == 1


@pytest.mark.parametrize("seed", range(2))
async def test_lost_and_throttled_calls_create_no_second_sighting(
    pair: tuple[Served, Served], proxy: Proxy, seed: int
) -> None:
    """Clients send the mutation to both processes at once, and repeat it until they receive a final response."""
    rng = random.Random(seed)
    throttled = refuse(400, "ProvisionedThroughputExceededException")
    # A response has to be stored in the end. The retry budget suffices, and no call fails at all of its attempts.
    # A call has two bodies if its retries send another request than its first attempt.
    faults = iter(range(CAPACITY // TIMEOUT_RETRY_COST - 1))
    faults_of: Counter[bytes] = Counter()

    async def faulty(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        fault, call = rng.choice((*[forward] * 6, lose_answer, throttled)), orjson.dumps(seen.body)
        if fault is forward or faults_of[call] == QUICK.attempts // 2 - 1 or next(faults, None) is None:
            return await forward(proxy, seen)
        faults_of[call] += 1
        return await fault(proxy, seen)

    proxy.always = faulty

    async def insist(user: str) -> set[bytes]:
        """Return the final responses. Before them a client may receive retryable errors."""
        final: set[bytes] = set()
        for _ in range(20):
            for got in await asyncio.gather(*[send_with_key(served, "k", user=user) for served in pair]):
                errors = orjson.loads(got.body).get("errors", ())
                if not any(error["extensions"].get("retryable") for error in errors):
                    final.add(got.body)
            if final:
                break
        return final

    users = [f"user{number}" for number in range(6)]
    outcomes = await asyncio.gather(*map(insist, users))
    proxy.always = None
    for user, final in zip(users, outcomes, strict=True):
        kept = await send_with_key(pair[1], "k", user=user)
        assert kept.replayed
        assert final == {kept.body}
        # The mutation was executed, or the response says that it may have been.
        assert kept.codes in ([], ["UNAVAILABLE"], ["TIMEOUT"], ["THROTTLED"])
        errors = orjson.loads(kept.body).get("errors", ())
        assert all(error["extensions"]["mayHaveBeenApplied"] for error in errors)
        assert await report_total(pair[0], user) <= 1
        assert kept.codes or await report_total(pair[0], user) == 1


async def test_a_store_that_fails_halfway_causes_no_second_sighting(pair: tuple[Served, Served], proxy: Proxy) -> None:
    """An error that would be retryable alone is final after another field has written."""

    async def no_queries(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        return await (plain_error(503) if seen.operation == "Query" else forward)(proxy, seen)

    proxy.always = no_queries
    both = REPORT.replace("}\n}", '}\n  confirmSighting(area: "Harbor", sightingId: "none") { sightingId }\n}')
    first = await send_with_key(pair[0], "both", both)
    alone = await send_with_key(pair[0], "alone", CONFIRM, {})
    assert first.codes == alone.codes == ["UNAVAILABLE"]
    proxy.always = None
    assert (await send_with_key(pair[1], "both", both)).body == first.body
    assert (await send_with_key(pair[1], "alone", CONFIRM, {})).codes == ["NOT_FOUND"]
    assert await report_total(pair[0]) == 1


@pytest.mark.parametrize("pair", [0.3], indirect=True)
@pytest.mark.parametrize("key", ["k", None])
async def test_a_deadline_that_passes_after_a_write_is_reported_as_ambiguous(
    pair: tuple[Served, Served], proxy: Proxy, key: str | None
) -> None:
    """With a key the response is repeated, and the mutation is not executed again."""

    async def written_in_silence(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        if seen.operation == "TransactWriteItems":
            await proxy.ask(seen)
            return await hang(proxy, seen)
        return await forward(proxy, seen)

    proxy.always = written_in_silence
    first = await send_with_key(pair[0], key, accept=GRAPHQL)
    (error,) = orjson.loads(first.body)["errors"]
    assert error["extensions"] == {"code": "TIMEOUT", "retryable": False, "mayHaveBeenApplied": True}
    proxy.always = None
    if key is not None:
        again = await send_with_key(pair[1], key, accept=GRAPHQL)
        assert (again.status, again.body, again.replayed) == (first.status, first.body, True)
    assert await report_total(pair[1]) == 1


@pytest.mark.parametrize("pair", [0.3], indirect=True)
async def test_a_deadline_that_passes_before_a_write_leaves_the_key_free(
    pair: tuple[Served, Served], proxy: Proxy
) -> None:
    async def no_reads(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        return await (hang if seen.operation == "GetItem" else forward)(proxy, seen)

    proxy.always = no_reads
    first = await send_with_key(pair[0], "k")
    assert (first.codes, b"mayHaveBeenApplied" in first.body) == (["TIMEOUT"], False)
    proxy.always = None
    again = await send_with_key(pair[1], "k")
    assert (again.codes, again.replayed) == ([], False)
    assert await report_total(pair[1]) == 1
