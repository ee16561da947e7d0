"""The wire client against the real engine, with a proxy in between that misbehaves on demand."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import boto3
import botocore.auth
import orjson
import pytest
from aiohttp import web
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from fault_proxy import (
    LOCAL,
    QUICK,
    Fault,
    Proxy,
    Seen,
    client_of,
    cut_body,
    cut_json,
    damage,
    dribble,
    forward,
    garble,
    hang,
    lose_answer,
    plain,
    refuse,
    reset,
    until,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from datastore.attributes import Item
from datastore.backoff import Backoff
from datastore.client import ITEM_OPERATIONS, Client, ConditionFailed, RequestRefused, TransactionCancelled
from datastore.database import Database, StoreMisconfigured, StoreOptions, open_database
from datastore.declarations import AccessPattern, Who
from datastore.errors import DomainError, Throttled, Timeout, Unavailable
from datastore.keyspace.parts import Key
from datastore.keyspace.sightings import BLIP
from datastore.metering import WRITE_PRICE, Deadline, Meter
from datastore.requests import Prepared
from datastore.signing import CONTENT_TYPE, CredentialSource, Signer
from datastore.store import Action, Store, Written
from datastore.wire import Limits

TARGET = "DynamoDB_20120810."
PUT_NEW = AccessPattern("T-1", "", BLIP, ("PutItem",), Who.ANY, condition="attribute_not_exists(PK)")
READ = AccessPattern("T-2", "", BLIP, ("GetItem",), Who.ANY)
CONSISTENT = replace(READ, consistent=True)


CONFLICT = refuse(
    400,
    "TransactionCanceledException",
    CancellationReasons=[{"Code": "None"}, {"Code": "TransactionConflict", "Message": "x"}],
)
TRANSIENT = {
    "throttled": refuse(400, "ThrottlingException"),
    "over provisioned throughput": refuse(400, "ProvisionedThroughputExceededException"),
    "over the account's limit": refuse(400, "RequestLimitExceeded"),
    "another transaction": refuse(400, "TransactionConflictException"),
    "the same transaction": refuse(400, "TransactionInProgressException"),
    "another region's write": refuse(400, "ReplicatedWriteConflictException"),
    "cancelled for a conflict": CONFLICT,
    "429": plain(429),
    "500": refuse(500, "InternalServerError"),
    "503": plain(503),
    "reset": reset,
    "wrong checksum": damage,
    "no checksum": garble,
    "cut body": cut_body,
    "cut JSON": cut_json,
}
FINAL = {
    "ValidationException": refuse(400, "ValidationException"),
    "ResourceNotFoundException": refuse(400, "ResourceNotFoundException"),
    "AccessDeniedException": refuse(400, "AccessDeniedException"),
    "UnrecognizedClientException": refuse(400, "UnrecognizedClientException"),
    "ItemCollectionSizeLimitExceededException": refuse(400, "ItemCollectionSizeLimitExceededException"),
    "IdempotentParameterMismatchException": refuse(400, "IdempotentParameterMismatchException"),
    "403": plain(403),
    "400": plain(400, "[]"),
    "302": plain(302, location="http://127.0.0.1:1/"),
}


@asynccontextmanager
async def taking(least: float, most: float) -> AsyncIterator[None]:
    """Measure the time, without that for which the machine kept the loop waiting."""
    lags: list[float] = []
    measuring = asyncio.create_task(_measure(lags))
    started = time.monotonic()
    yield
    took = time.monotonic() - started
    measuring.cancel()
    assert took >= least
    assert took - sum(lags) <= most


async def _measure(lags: list[float]) -> None:
    while True:
        due = time.monotonic() + 0.02
        await asyncio.sleep(0.02)
        lags.append(time.monotonic() - due)


def store_on(client: Client, database: Database, seconds: float = 10) -> Store:
    tokens = (f"{database.prefix}{number}" for number in range(1000))
    return Store(client, prefix=database.prefix, deadline=Deadline(seconds), token=lambda: next(tokens))


# --- Trying again -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", TRANSIENT.values(), ids=TRANSIENT.keys())
async def test_what_passes_is_tried_again_until_it_has(client: Client, proxy: Proxy, fault: Fault) -> None:
    proxy.faults.extend([fault, fault])
    meter = Meter()

    answer = await client.call("ListTables", {"Limit": 1}, meter=meter)

    assert list(answer)[:1] == ["TableNames"]
    assert proxy.operations() == ["ListTables"] * 3
    assert [call.attempts for call in meter.calls] == [3]


@pytest.mark.parametrize(("code", "fault"), FINAL.items(), ids=FINAL.keys())
async def test_what_was_refused_is_not_tried_again(client: Client, proxy: Proxy, code: str, fault: Fault) -> None:
    proxy.faults.append(fault)

    with pytest.raises(RequestRefused) as refused:
        await client.call("ListTables", {})

    assert refused.value.code == code
    assert proxy.operations() == ["ListTables"]


async def test_the_engines_own_refusals_keep_their_code_and_words(client: Client, proxy: Proxy) -> None:
    with pytest.raises(RequestRefused) as missing:
        await client.call("DescribeTable", {"TableName": "there-is-no-such-table"})
    with pytest.raises(RequestRefused) as invalid:
        await client.call("GetItem", {"TableName": "x"})

    assert missing.value.code == "ResourceNotFoundException"
    assert "not found" in missing.value.message
    assert invalid.value.code == "ValidationException"
    assert proxy.operations() == ["DescribeTable", "GetItem"]


async def test_a_prepared_request_is_sent_as_it_is_and_metered_like_any(
    client: Client, proxy: Proxy, database: Database
) -> None:
    table = database.prefix + BLIP.name
    payload = {"TableName": table, "IndexName": "TrendingIndex", "Limit": 1, "ReturnConsumedCapacity": "TOTAL"}
    meter, other = Meter(), Meter()

    answer = await client.call("Scan", Prepared(orjson.dumps(payload), (table,), "TrendingIndex"), meter=meter)

    assert answer == await client.call("Scan", payload, meter=other)
    assert [seen.body for seen in proxy.seen] == [payload, payload]
    told = [(call.tables, call.index, call.units, call.request) for call in meter.calls + other.calls]
    assert told == [((table,), "TrendingIndex", 0.5, payload)] * 2


async def test_what_json_cannot_hold_is_refused_before_it_is_sent(client: Client, proxy: Proxy) -> None:
    meter = Meter()

    with pytest.raises(RequestRefused, match="SerializationException"):
        await client.call("PutItem", {"Item": {"PK": {"S": "\ud800"}}}, meter=meter)

    assert (proxy.seen, meter.calls) == ([], [])


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (TRANSIENT["throttled"], Throttled),
        (CONFLICT, Throttled),
        (plain(429), Throttled),
        (plain(503), Unavailable),
        (reset, Unavailable),
        (damage, Unavailable),
        (cut_json, Unavailable),
    ],
)
async def test_when_the_tries_are_used_up_the_caller_learns_why(
    client: Client, proxy: Proxy, fault: Fault, error: type[DomainError]
) -> None:
    proxy.always = fault

    with pytest.raises(error) as problem:
        await client.call("ListTables", {})

    assert problem.value.extensions == {"code": error.code, "retryable": True}
    assert len(proxy.seen) == QUICK.tries


async def test_a_store_that_is_not_there_is_unavailable(proxy: Proxy, client: Client) -> None:
    await proxy.runner.cleanup()

    with pytest.raises(Unavailable):
        await client.call("ListTables", {})


@given(tries=st.integers(1, 12), draws=st.lists(st.floats(0, 1), min_size=12, max_size=12))
def test_delays_are_anything_up_to_twice_the_last_bound(tries: int, draws: list[float]) -> None:
    drawn = iter(draws)

    delays = list(Backoff(first=0.5, most=8, tries=tries).delays(lambda: next(drawn)))

    bounds = [0.5, 1, 2, 4, 8, 8, 8, 8, 8, 8, 8]
    assert delays == [draw * bound for draw, bound in zip(draws, bounds[: tries - 1], strict=False)]


# --- The deadline -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [hang, dribble])
async def test_a_store_that_hangs_is_given_up_at_the_deadline(client: Client, proxy: Proxy, fault: Fault) -> None:
    proxy.always = fault
    meter = Meter()

    async with taking(0.4, 0.8):
        with pytest.raises(Timeout) as late:
            await client.call("ListTables", {}, timeout=0.5, meter=meter)

    assert late.value.extensions == {"code": "TIMEOUT", "retryable": True}
    assert [(call.operation, call.attempts) for call in meter.calls] == [("ListTables", 1)]


async def test_a_try_that_hangs_is_cut_short_and_the_next_one_answers(proxy: Proxy) -> None:
    proxy.faults.append(hang)

    async with client_of(proxy, limits=Limits(silence=0.4)) as client, taking(0.3, 0.9):
        await client.call("ListTables", {}, timeout=5)

    assert len(proxy.seen) == 2


async def test_a_delay_that_would_outlast_the_deadline_is_not_begun(proxy: Proxy) -> None:
    proxy.always = TRANSIENT["throttled"]

    async with client_of(proxy, backoff=Backoff(first=1000, most=1000)) as client, taking(0, 0.5):
        with pytest.raises(Throttled):
            await client.call("ListTables", {}, timeout=0.5)

    assert len(proxy.seen) == 1


async def test_the_deadline_covers_all_tries_and_delays(proxy: Proxy) -> None:
    proxy.always = plain(500)

    async with client_of(proxy, backoff=Backoff(first=0.05, most=0.05, tries=1000)) as client, taking(0, 0.7):
        with pytest.raises((Unavailable, Timeout)):
            await client.call("ListTables", {}, timeout=0.4)

    assert len(proxy.seen) > 2


async def test_the_deadline_covers_the_wait_for_credentials(proxy: Proxy) -> None:
    released = threading.Event()
    slow = SimpleNamespace(get_frozen_credentials=lambda: released.wait(5) and LOCAL)

    async with client_of(proxy, credentials=slow) as client, taking(0.1, 0.6):
        with pytest.raises(Timeout):
            await client.call("ListTables", {}, timeout=0.2)
        released.set()

    assert proxy.seen == []


async def test_a_deadline_that_has_passed_sends_nothing(client: Client, proxy: Proxy) -> None:
    with pytest.raises(Timeout):
        await client.call("ListTables", {}, timeout=0)

    assert proxy.seen == []


# --- Connections ------------------------------------------------------------------------------------------------------


async def test_a_cancelled_call_leaves_no_connection_and_the_pool_goes_on(proxy: Proxy) -> None:
    async with client_of(proxy, limits=Limits(connections=1)) as client:
        for _ in range(3):
            proxy.faults.append(hang)
            call = asyncio.create_task(client.call("ListTables", {}))
            await until(lambda: not proxy.faults)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await until(lambda: proxy.connections == 0)

        assert list(await client.call("ListTables", {"Limit": 1}, timeout=2))[:1] == ["TableNames"]
        assert proxy.connections == 1


async def test_many_calls_share_few_connections_and_none_is_tried_twice(proxy: Proxy) -> None:
    async def slowly(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        await asyncio.sleep(0.025)
        return await forward(proxy, seen)

    proxy.always = slowly
    meter = Meter()
    async with client_of(proxy, limits=Limits(connections=4)) as client:
        calls = [client.call("ListTables", {"Limit": 1}, meter=meter, timeout=30) for _ in range(200)]
        answers = await asyncio.gather(*calls)

        assert len(answers) == len(proxy.seen) == 200
        assert {call.attempts for call in meter.calls} == {1}
        assert proxy.connections <= 4


# --- Writes whose answer is lost --------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [lose_answer, cut_body, damage])
async def test_a_transaction_whose_answer_is_lost_is_applied_once(
    client: Client, proxy: Proxy, database: Database, fault: Fault
) -> None:
    store = store_on(client, database)
    key = Key("COUNTER", "ONE")
    add = Action("Update", key=key, update="ADD hits :one", values={"one": 1})
    proxy.faults.extend([fault, fault])

    await store.transact(BLIP, [add])
    after_one = await store.get(CONSISTENT, key)
    await store.transact(BLIP, [add])

    assert after_one == {"PK": "COUNTER", "SK": "ONE", "hits": 1}
    assert await store.get(CONSISTENT, key) == {"PK": "COUNTER", "SK": "ONE", "hits": 2}
    tokens = [seen.body["ClientRequestToken"] for seen in proxy.seen if seen.operation == "TransactWriteItems"]
    assert tokens == [database.prefix + number for number in "0001"]


@pytest.mark.parametrize("fault", [lose_answer, cut_body, damage])
async def test_an_insert_whose_answer_is_lost_is_recognised_as_ours(
    client: Client, proxy: Proxy, database: Database, fault: Fault
) -> None:
    item = {"PK": "A", "SK": "B", "value": 1}
    proxy.faults.append(fault)

    written = await store_on(client, database).put(PUT_NEW, item)

    assert written == Written(False, item, repeated=True)
    assert proxy.operations() == ["PutItem", "PutItem"]


async def test_an_insert_that_was_throttled_before_it_failed_is_not_ours(
    client: Client, proxy: Proxy, database: Database
) -> None:
    item = {"PK": "A", "SK": "B", "value": 1}
    store = store_on(client, database)
    assert await store.put(PUT_NEW, item) == Written(True, item)
    proxy.faults.extend([TRANSIENT["throttled"], plain(429)])

    assert await store.put(PUT_NEW, item) == Written(False, item, repeated=False)


async def test_a_condition_that_fails_answers_the_item_that_is_there(
    client: Client, proxy: Proxy, database: Database
) -> None:
    store = store_on(client, database)
    await store.put(PUT_NEW, {"PK": "A", "SK": "B", "value": 1})

    written = await store.put(PUT_NEW, {"PK": "A", "SK": "B", "value": 2})

    assert written == Written(False, {"PK": "A", "SK": "B", "value": 1})
    assert proxy.operations() == ["PutItem", "PutItem"]


async def test_what_was_read_is_forgotten_when_a_write_of_it_fails(database: Database) -> None:
    store, other = store_on(database.client, database), store_on(database.client, database)
    key = Key("A", "B")
    assert await store.get(READ, key) is None
    await other.put(PUT_NEW, {"PK": "A", "SK": "B"})

    assert not (await store.put(PUT_NEW, {"PK": "A", "SK": "B"})).ok

    assert await store.get(READ, key) == {"PK": "A", "SK": "B"}


async def test_a_cancelled_transaction_tells_each_actions_reason_and_item(
    client: Client, proxy: Proxy, database: Database
) -> None:
    store = store_on(client, database)
    await store.put(PUT_NEW, {"PK": "A", "SK": "1"})
    puts = [
        Action("Put", item={"PK": "A", "SK": sort}, condition="attribute_not_exists(PK)") for sort in ("0", "1", "2")
    ]

    with pytest.raises(TransactionCancelled) as cancelled:
        await store.transact(BLIP, puts)

    assert cancelled.value.reasons == ["None", "ConditionalCheckFailed", "None"]
    assert cancelled.value.items == [None, {"PK": "A", "SK": "1"}, None]
    assert proxy.operations() == ["PutItem", "TransactWriteItems"]


async def test_a_transaction_cancelled_for_more_than_a_conflict_is_not_tried_again(
    client: Client, proxy: Proxy
) -> None:
    reasons = [{"Code": "TransactionConflict"}, {"Code": "ConditionalCheckFailed", "Item": {"PK": {"S": "A"}}}]
    proxy.always = refuse(400, "TransactionCanceledException", CancellationReasons=reasons)

    with pytest.raises(TransactionCancelled) as cancelled:
        await client.call("TransactWriteItems", {"TransactItems": []})

    assert cancelled.value.items == [None, {"PK": "A"}]
    assert len(proxy.seen) == 1


# --- The meter --------------------------------------------------------------------------------------------------------


def _requests(table: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Calls that cost different things: big and small items, an index, a batch, a transaction."""
    total = {"ReturnConsumedCapacity": "TOTAL"}
    key = {"PK": {"S": "A"}, "SK": {"S": "0"}}
    index = {"GSI1PK": {"S": "G"}, "GSI1SK": {"S": "0"}}
    big = {"text": {"S": "x" * 9000}}
    yield "PutItem", {"TableName": table, "Item": key | index | big, **total}
    yield "PutItem", {"TableName": table, "Item": key | {"SK": {"S": "1"}} | big, **total}
    yield "GetItem", {"TableName": table, "Key": key, **total}
    yield "GetItem", {"TableName": table, "Key": key, "ConsistentRead": True, **total}
    values = {":v": {"S": "A"}}
    by_key = {"KeyConditionExpression": "PK = :v", "ExpressionAttributeValues": values}
    yield "Query", {"TableName": table, **by_key, **total}
    in_index = {"IndexName": "TrendingIndex", "KeyConditionExpression": "GSI1PK = :v"}
    yield "Query", {"TableName": table, **in_index, "ExpressionAttributeValues": {":v": {"S": "G"}}, **total}
    yield "BatchGetItem", {"RequestItems": {table: {"Keys": [key, key | {"SK": {"S": "1"}}]}}, **total}
    change = {"UpdateExpression": "SET n = :v", "ExpressionAttributeValues": {":v": {"N": "1"}}}
    yield "UpdateItem", {"TableName": table, "Key": key, **change, **total}
    put = {"Put": {"TableName": table, "Item": key}}
    delete = {"Delete": {"TableName": table, "Key": key | {"SK": {"S": "1"}}}}
    yield "TransactWriteItems", {"TransactItems": [put, delete], **total}


def _boto_units(answer: Any) -> float:
    consumed = answer["ConsumedCapacity"]
    return float(sum(entry["CapacityUnits"] for entry in (consumed if isinstance(consumed, list) else [consumed])))


async def test_the_units_are_those_that_boto3_is_told(database: Database, store_options: StoreOptions) -> None:
    twin = StoreOptions(store=store_options.store, prefix=f"{store_options.prefix}twin_")
    meter = Meter()
    told: list[tuple[str, float]] = []

    async with open_database(twin) as other:
        await other.create_tables()
        admin = boto3.client("dynamodb", endpoint_url=twin.store, region_name="local", **_keys())
        for operation, request in _requests(f"{twin.prefix}blip"):
            method = {"BatchGetItem": "batch_get_item", "TransactWriteItems": "transact_write_items"}.get(
                operation, operation.replace("Item", "_item").lower()
            )
            told.append((operation, _boto_units(await asyncio.to_thread(getattr(admin, method), **request))))
    for operation, request in _requests(f"{database.prefix}blip"):
        await database.client.call(operation, request, meter=meter)

    assert [(call.operation, call.units) for call in meter.calls] == told
    assert meter.units == sum(units for _, units in told) > 20


def _keys() -> dict[str, str]:
    return {"aws_access_key_id": "local", "aws_secret_access_key": "local"}


async def test_calls_that_fail_are_calls_too(client: Client, proxy: Proxy) -> None:
    heard: list[tuple[str, tuple[str, ...], float, int]] = []
    client.on_call = lambda call: heard.append((call.operation, call.tables, call.units, call.attempts))
    proxy.faults.extend([FINAL["ValidationException"], *[plain(500)] * QUICK.tries, hang])
    put = {"TableName": "t", "Item": {}}
    transaction = {"TransactItems": [{"Put": put}, {"Delete": {"TableName": "u"}}, {"Put": put}]}
    meter = Meter()

    with pytest.raises(RequestRefused):
        await client.call("PutItem", put, meter=meter)
    with pytest.raises(Unavailable):
        await client.call("TransactWriteItems", transaction, meter=meter)
    with pytest.raises(Timeout):
        await client.call("BatchGetItem", {"RequestItems": {"t": {}, "u": {}}}, meter=meter, timeout=0.1)

    assert heard == [
        ("PutItem", ("t",), 0.0, 1),
        ("TransactWriteItems", ("t", "u"), 0.0, QUICK.tries),
        ("BatchGetItem", ("t", "u"), 0.0, 1),
    ]
    assert [call.operation for call in meter.calls] == [operation for operation, *_ in heard]
    assert all(call.seconds >= 0 for call in meter.calls)


async def test_a_condition_that_fails_carries_no_item_unless_asked(client: Client, proxy: Proxy) -> None:
    proxy.faults.append(refuse(400, "ConditionalCheckFailedException"))

    with pytest.raises(ConditionFailed) as failed:
        await client.call("PutItem", {"TableName": "t"})

    assert (failed.value.item, failed.value.repeated) == (None, False)


async def test_a_condition_that_fails_is_billed_by_the_item_that_is_there(client: Client, database: Database) -> None:
    """DynamoDB reports no units for it."""
    store = store_on(client, database)
    small: Item = {"PK": "A", "SK": "1"}
    large: Item = {"PK": "A", "SK": "2", "value": b"x" * 20_000, "more": ["y" * 5000, {"z": 1}]}
    items = small, large, {"PK": "A", "SK": "3"}
    conditional = [Action("Put", item=item, condition="attribute_not_exists(PK)") for item in items]
    for item in (small, large):
        await store.put(PUT_NEW, item)
    store.meter.take()

    for item in (small, large):
        assert not (await store.put(PUT_NEW, item)).ok
    with pytest.raises(TransactionCancelled):
        await store.transact(BLIP, conditional)

    calls = store.meter.calls
    assert [call.unreported for call in calls] == [1, 25, 27]
    assert [call.units for call in calls] == [0, 0, 0]
    assert store.meter.price == (1 + 25 + 27) * WRITE_PRICE
    assert not any(call.wrote for call in calls)


# --- Signatures -------------------------------------------------------------------------------------------------------

IDS = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", min_size=1, max_size=20)
SECRETS = st.text("abcXYZ019/+=", min_size=1, max_size=40)


def _botocores(credentials: Credentials, target: str, body: bytes, now: float) -> dict[str, str]:
    """The headers that botocore signs the same request with."""
    headers = {"Content-Type": CONTENT_TYPE, "X-Amz-Target": target, "Host": "db.example:8000"}
    request = AWSRequest("POST", "http://db.example:8000/", data=body, headers=headers)
    moment = datetime.fromtimestamp(now, UTC)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.auth, "get_current_datetime", lambda: moment)
        botocore.auth.SigV4Auth(credentials, "dynamodb", "eu-north-1").add_auth(request)
    return {name.lower(): value for name, value in request.headers.items()}


def _headers(head: bytes) -> dict[str, str]:
    first, *lines = head.decode().removesuffix("\r\n\r\n").split("\r\n")
    assert first == "POST / HTTP/1.1"
    return dict(line.split(": ", 1) for line in lines)


@settings(deadline=None, max_examples=80)
@given(
    access=IDS,
    secret=SECRETS,
    token=st.none() | SECRETS,
    operation=st.sampled_from(["Query", "PutItem", "GetRecords"]),
    body=st.binary(max_size=200),
    now=st.integers(0, 4_000_000_000),
)
def test_signatures_are_botocores(
    access: str, secret: str, token: str | None, operation: str, body: bytes, now: int
) -> None:
    credentials = Credentials(access, secret, token)

    head = Signer("eu-north-1").head(
        credentials.get_frozen_credentials(), "db.example:8000", TARGET + operation, body, now
    )

    assert _headers(head) == {"content-length": str(len(body))} | _botocores(credentials, TARGET + operation, body, now)


def test_one_signer_follows_the_day_and_the_credentials() -> None:
    signer = Signer("eu-north-1")
    midnight = 1_782_432_000
    first, second = Credentials("ONE", "first", None), Credentials("TWO", "second", "token")
    signed = [
        (first, midnight - 1),
        (first, midnight),
        (second, midnight),
        (first, midnight - 1),
        (second, midnight + 86_400),
    ]

    answers = [
        _headers(signer.head(one.get_frozen_credentials(), "db.example:8000", TARGET + "Query", b"{}", now))
        for one, now in signed
    ]

    wanted = [{"content-length": "2"} | _botocores(one, TARGET + "Query", b"{}", now) for one, now in signed]
    assert answers == wanted
    assert len({answer["authorization"] for answer in answers}) == 4


class Rotating:
    """Credentials whose source takes a while, changes, and sometimes fails."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.access = "FIRST"
        self.problem: Exception | None = None
        self.seconds = 0.0

    def get_frozen_credentials(self) -> Any:
        self.asked.append(threading.get_ident())
        time.sleep(self.seconds)
        if self.problem:
            raise self.problem
        return Credentials(self.access, "secret").get_frozen_credentials()


async def test_credentials_that_rotate_are_picked_up(
    monkeypatch: pytest.MonkeyPatch, proxy: Proxy, store_options: StoreOptions
) -> None:
    rotating = Rotating()
    async with client_of(proxy, credentials=rotating) as client:
        await client.call("ListTables", {})
        rotating.access = "SECOND"
        await client.call("ListTables", {})
        later = time.monotonic() + 61
        monkeypatch.setattr("datastore.signing.time.monotonic", lambda: later)
        await client.call("ListTables", {})

    used = [seen.request.headers["authorization"].split("=")[1].split("/")[0] for seen in proxy.seen]
    assert used == ["FIRST", "FIRST", "SECOND"]
    assert len(rotating.asked) == 2


async def test_credentials_are_fetched_once_in_a_thread_while_the_loop_goes_on() -> None:
    rotating = Rotating()
    rotating.seconds = 0.2
    source = CredentialSource(rotating)
    waiting = [asyncio.create_task(source.current()) for _ in range(20)]
    turns = 0
    while not all(task.done() for task in waiting):
        turns += 1
        await asyncio.sleep(0.005)
        waiting[0].cancel()

    answers = await asyncio.gather(*waiting, return_exceptions=True)

    assert turns > 3
    assert [getattr(answer, "access_key", None) for answer in answers] == [None, *["FIRST"] * 19]
    assert len(rotating.asked) == 1
    assert threading.get_ident() not in rotating.asked


async def test_old_credentials_serve_on_while_new_ones_cannot_be_had(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rotating = Rotating()
    rotating.problem = RuntimeError("no network")
    source = CredentialSource(rotating)
    now = [time.monotonic()]
    monkeypatch.setattr("datastore.signing.time.monotonic", lambda: now[0])
    caplog.set_level(logging.CRITICAL)

    with pytest.raises(Unavailable):
        await source.current()
    rotating.problem = None
    first = await source.current()
    now[0] += 61
    rotating.problem, rotating.access = RuntimeError("no network"), "SECOND"
    second = await source.current()
    now[0] += 6
    rotating.problem = None
    third = await source.current()

    assert [one.access_key for one in (first, second, third)] == ["FIRST", "FIRST", "SECOND"]


# --- Where the store is -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "store",
    ["localhost:8000", "ftp://localhost", "http://", "http://localhost:8000/path", "http://user@localhost", "here"],
)
async def test_a_store_that_is_no_address_is_refused_by_name(store: str) -> None:
    with pytest.raises(StoreMisconfigured, match="or a URL like"):
        async with open_database(StoreOptions(store=store, region="local")):
            pass


async def test_a_slash_at_the_end_of_an_address_does_no_harm(engine: str) -> None:
    async with open_database(StoreOptions(store=f"{engine}/")) as database:
        assert list(await database.client.call("ListTables", {"Limit": 1}))[:1] == ["TableNames"]


async def test_a_table_that_comes_back_in_a_moment_is_waited_for(proxy: Proxy, database: Database) -> None:
    async with client_of(proxy, tables_come_back=True) as client:
        proxy.faults.extend([refuse(400, "ResourceNotFoundException")] * 2)

        answer = await client.call("Scan", {"TableName": database.prefix + BLIP.name})

        assert answer["Count"] == 0
        assert proxy.operations() == ["Scan"] * 3
        with pytest.raises(Unavailable, match="it lacks a table"):
            await client.call("Scan", {"TableName": "there-is-no-such-table"}, timeout=1)


async def test_a_table_that_nobody_makes_is_not_waited_for(client: Client, proxy: Proxy) -> None:
    with pytest.raises(RequestRefused) as refused:
        await client.call("Scan", {"TableName": "there-is-no-such-table"})

    assert refused.value.code == "ResourceNotFoundException"
    assert proxy.operations() == ["Scan"]


@pytest.mark.parametrize(
    ("fault", "operation", "safe"),
    [
        (reset, "PutItem", False),
        (hang, "PutItem", False),
        (reset, "GetItem", True),
        (hang, "GetItem", True),
        (refuse(400, "ThrottlingException"), "PutItem", True),
    ],
)
async def test_a_write_that_may_have_been_applied_is_not_called_retryable(
    client: Client, proxy: Proxy, database: Database, fault: Fault, operation: str, safe: bool
) -> None:
    proxy.always = fault
    item = {"PK": {"S": "a"}, "SK": {"S": "b"}}

    with pytest.raises((Unavailable, Timeout, Throttled)) as failed:
        await client.call(
            operation,
            {"TableName": database.prefix + BLIP.name, "Item" if operation == "PutItem" else "Key": item},
            # Only what hangs is given up; of the others the last try is to be heard, however busy the machine is.
            timeout=0.5 if fault is hang else 10,
        )

    assert failed.value.extensions["retryable"] is safe
    assert failed.value.extensions.get("mayHaveBeenApplied", False) is not safe


async def test_of_each_call_it_is_known_whether_it_may_have_changed_something(
    client: Client, proxy: Proxy, database: Database
) -> None:
    meter = Meter()
    store = Store(client, prefix=database.prefix, deadline=Deadline(5), token=lambda: "", meter=meter)
    item = {"PK": "A", "SK": "B"}

    await store.get(CONSISTENT, Key("A", "B"))
    await store.put(PUT_NEW, item)
    await store.put(PUT_NEW, item)
    proxy.faults.append(lose_answer)
    await store.put(PUT_NEW, {**item, "SK": "C"})
    proxy.faults.extend([lose_answer, *[TRANSIENT["throttled"]] * 10])
    with pytest.raises(Throttled) as caught:
        await store.put(PUT_NEW, {**item, "SK": "D"})
    proxy.faults.clear()
    proxy.faults.extend([TRANSIENT["throttled"]] * 10)
    with pytest.raises(Throttled):
        await store.put(PUT_NEW, {**item, "SK": "E"})
    proxy.faults.clear()
    proxy.faults.append(hang)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await store.put(PUT_NEW, {**item, "SK": "F"})

    # Read, written, found there, written without an answer, the same and throttled then, throttled, left in between.
    assert [call.wrote for call in meter.calls] == [False, True, False, True, True, False, True]
    assert caught.value.extensions["mayHaveBeenApplied"] is True


async def test_every_operation_is_spoken_and_metered(client: Client, database: Database) -> None:
    name = database.prefix + BLIP.name
    key = {"PK": {"S": "a"}, "SK": {"S": "b"}}
    capacity = {"ReturnConsumedCapacity": "TOTAL"}
    asked: dict[str, dict[str, Any]] = {
        "PutItem": {"TableName": name, "Item": key},
        "BatchWriteItem": {"RequestItems": {name: [{"PutRequest": {"Item": key}}]}},
        "UpdateItem": {"TableName": name, "Key": key, "UpdateExpression": "REMOVE x"},
        "GetItem": {"TableName": name, "Key": key},
        "BatchGetItem": {"RequestItems": {name: {"Keys": [key]}}},
        "Query": {
            "TableName": name,
            "KeyConditionExpression": "PK = :p",
            "ExpressionAttributeValues": {":p": {"S": "a"}},
        },
        "Scan": {"TableName": name},
        "TransactGetItems": {"TransactItems": [{"Get": {"TableName": name, "Key": key}}]},
        "TransactWriteItems": {"TransactItems": [{"Delete": {"TableName": name, "Key": key}}]},
        "DeleteItem": {"TableName": name, "Key": key},
    }
    meter = Meter()

    for operation, payload in asked.items():
        await client.call(operation, payload | capacity, meter=meter)

    assert set(asked) == ITEM_OPERATIONS
    assert [(call.operation, call.tables) for call in meter.calls] == [(operation, (name,)) for operation in asked]
    assert [call.operation for call in meter.calls if call.units <= 0] == []
