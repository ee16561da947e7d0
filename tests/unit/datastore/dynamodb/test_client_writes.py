"""Ambiguous writes, whose response was lost, and refused writes."""

import asyncio
from dataclasses import replace

import pytest

from datastore.database import Database
from datastore.dynamodb.client import Client, TransactionCancelled
from datastore.errors import Throttled, Timeout, Unavailable
from datastore.keyspace.sightings import BLIP
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.composite_keys import Key
from datastore.session.metering import Deadline, Meter
from datastore.session.store import Store
from datastore.session.writes import Action, WriteResult
from tests.support.client_faults import CONSISTENT, PUT_NEW, READ, TRANSIENT, store_on
from tests.support.fault_proxy import (
    Fault,
    Proxy,
    cut_body,
    damage,
    forget_token,
    hang,
    lose_answer,
    plain_error,
    refuse,
    reset,
)
from tests.support.served import NOON
from tests.support.time_jumps import jump
from tests.support.until import until

COUNTED = AccessPattern(
    "TEST-W9",
    "Change what is set, taken away and counted",
    BLIP,
    ("UpdateItem",),
    Who.INTERNAL,
    update="SET #name = :name, made = if_not_exists(made, :name) REMOVE gone ADD #version :one",
)


@pytest.mark.parametrize("fault", [lose_answer, cut_body, damage])
async def test_a_transaction_whose_response_is_lost_is_applied_once(
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


async def test_a_transaction_applied_before_the_engine_was_killed_is_recognised(
    client: Client, proxy: Proxy, database: Database
) -> None:
    store = store_on(client, database)
    post = Action("Put", item={"PK": "A", "SK": "B", "value": 1}, condition="attribute_not_exists(PK)")
    count = Action("Update", key=Key("COUNTER", "ONE"), update="ADD hits :one", values={"one": 1})
    proxy.faults.extend([lose_answer, forget_token])

    await store.transact(BLIP, [post, count])

    assert proxy.operations() == ["TransactWriteItems"] * 2
    assert await store.get(CONSISTENT, Key("COUNTER", "ONE")) == {"PK": "COUNTER", "SK": "ONE", "hits": 1}
    with pytest.raises(TransactionCancelled):  # no response was lost, so this is another transaction
        await store.transact(BLIP, [post, count])
    proxy.faults.extend([lose_answer, forget_token])
    with pytest.raises(TransactionCancelled):
        await store.transact(BLIP, [replace(post, item={"PK": "A", "SK": "B", "value": 2}), count])
    proxy.faults.extend([lose_answer, forget_token])
    with pytest.raises(TransactionCancelled):  # one of the two items of the other transaction is missing
        await store.transact(BLIP, [post, replace(post, item={"PK": "A", "SK": "C"}), count])


@pytest.mark.parametrize("fault", [lose_answer, cut_body, damage])
async def test_an_insert_whose_response_is_lost_is_recognised(
    client: Client, proxy: Proxy, database: Database, fault: Fault
) -> None:
    item = {"PK": "A", "SK": "B", "value": 1}
    proxy.faults.append(fault)

    written = await store_on(client, database).put(PUT_NEW, item)

    assert written == WriteResult(False, item, is_retry=True)
    assert proxy.operations() == ["PutItem", "PutItem"]


async def test_an_insert_that_was_throttled_before_it_failed_is_not_recognised(
    client: Client, proxy: Proxy, database: Database
) -> None:
    item = {"PK": "A", "SK": "B", "value": 1}
    store = store_on(client, database)
    assert await store.put(PUT_NEW, item) == WriteResult(True, item)
    proxy.faults.extend([TRANSIENT["throttled"], plain_error(429)])

    assert await store.put(PUT_NEW, item) == WriteResult(False, item, is_retry=False)


async def test_a_failed_condition_returns_the_stored_item(client: Client, proxy: Proxy, database: Database) -> None:
    store = store_on(client, database)
    await store.put(PUT_NEW, {"PK": "A", "SK": "B", "value": 1})

    written = await store.put(PUT_NEW, {"PK": "A", "SK": "B", "value": 2})

    assert written == WriteResult(False, {"PK": "A", "SK": "B", "value": 1})
    assert proxy.operations() == ["PutItem", "PutItem"]


async def test_a_cached_read_is_forgotten_when_a_write_of_it_fails(database: Database) -> None:
    store, other = store_on(database.client, database), store_on(database.client, database)
    key = Key("A", "B")
    assert await store.get(READ, key) is None
    await other.put(PUT_NEW, {"PK": "A", "SK": "B"})

    assert not (await store.put(PUT_NEW, {"PK": "A", "SK": "B"})).ok

    assert await store.get(READ, key) == {"PK": "A", "SK": "B"}


async def test_a_cancelled_transaction_has_the_reason_and_item_of_each_action(
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


@pytest.mark.breaks_rules("it is about refusals")
async def test_a_transaction_cancelled_for_more_than_a_conflict_is_not_retried(client: Client, proxy: Proxy) -> None:
    reasons = [{"Code": "TransactionConflict"}, {"Code": "ConditionalCheckFailed", "Item": {"PK": {"S": "A"}}}]
    proxy.always = refuse(400, "TransactionCanceledException", CancellationReasons=reasons)

    with pytest.raises(TransactionCancelled) as cancelled:
        await client.call("TransactWriteItems", {"TransactItems": []})

    assert cancelled.value.items == [None, {"PK": "A"}]
    assert len(proxy.seen) == 1


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

    request = {"TableName": database.prefix + BLIP.name, "Item" if operation == "PutItem" else "Key": item}
    call = asyncio.create_task(client.call(operation, request, timeout=100))
    if fault is hang:
        await until(lambda: proxy.seen)
        jump(100)
    with pytest.raises((Unavailable, Timeout, Throttled)) as failed:
        await call

    assert failed.value.extensions["retryable"] is safe
    assert failed.value.extensions.get("mayHaveBeenApplied", False) is not safe


async def test_each_call_records_whether_it_may_have_written(client: Client, proxy: Proxy, database: Database) -> None:
    meter = Meter()
    store = Store(client, prefix=database.prefix, deadline=Deadline(5), token=lambda: "", meter=meter, now=lambda: NOON)
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
    cancelled = asyncio.create_task(store.put(PUT_NEW, {**item, "SK": "F"}))
    await until(lambda: not proxy.faults)
    cancelled.cancel()
    await asyncio.wait([cancelled])

    # A read, a write, a failed condition, a write without a response, the same and then throttled, throttled, and one
    # that was cancelled in between.
    assert [call.may_have_written for call in meter.calls] == [False, True, False, True, True, False, True]
    assert caught.value.extensions["mayHaveBeenApplied"] is True


async def test_an_update_that_adds_is_applied_once_when_its_response_is_lost(
    client: Client, proxy: Proxy, database: Database
) -> None:
    store = store_on(client, database)
    key = Key("A", "B")
    first = await store.update(COUNTED, key, name="x", one=1)
    proxy.faults.append(lose_answer)
    lost = await store.update(COUNTED, key, name="y", one=1)
    # The request was lost, not the response.
    proxy.faults.append(reset)
    never_came = await store.update(COUNTED, key, name="z", one=1)

    assert [written.ok for written in (first, lost, never_came)] == [True] * 3
    versions = [(written.item or {})["version"] for written in (first, lost, never_came)]
    assert versions == [1, 2, 3]


async def test_an_update_whose_condition_fails_on_retry_succeeded_if_its_outcome_is_stored(
    client: Client, proxy: Proxy, database: Database
) -> None:
    store = store_on(client, database)
    once = replace(COUNTED, condition="attribute_not_exists(#name) OR #name = :was")
    await store.update(COUNTED, Key("A", "B"), name="x", one=1)
    proxy.faults.append(lose_answer)
    done = await store.update(once, Key("A", "B"), name="y", was="x", one=1)
    proxy.faults.append(lose_answer)
    refused = await store.update(once, Key("A", "B"), name="z", was="x", one=1)

    assert (done.ok, refused.ok) == (True, False)
    assert done.item == refused.item == {"PK": "A", "SK": "B", "name": "y", "made": "x", "version": 2}


async def test_only_one_of_several_concurrent_deletes_returns_the_item(database: Database) -> None:
    """The old item in the response shows, without a condition, that this call deleted the item."""
    for number in range(20):
        key = {"PK": {"S": f"POST#{number}"}, "SK": {"S": "META"}}
        table = {"TableName": database.prefix + BLIP.name}
        await database.client.call("PutItem", table | {"Item": key})
        request = table | {"Key": key, "ReturnValues": "ALL_OLD"}

        answers = await asyncio.gather(*[database.client.call("DeleteItem", request) for _ in range(20)])

        assert [answer["Attributes"] for answer in answers if "Attributes" in answer] == [key]
