"""Expired items are absent from point reads, pages, counts, updates and conditions, although they are still stored."""

from dataclasses import replace
from typing import Any

import pytest

from datastore.database import Database
from datastore.items.stored_item import StoredItem
from datastore.keyspace import PATTERNS
from datastore.keyspace.sightings import BLIP
from datastore.model.access_patterns import RESERVED_TIMES, AccessPattern, Expiry, Table, Who
from datastore.model.composite_keys import Key
from datastore.session.metering import Deadline
from datastore.session.store import Store
from datastore.stored_items import item_classes
from tests.support.request_rules import RESERVED, reserved_words_of
from tests.support.served import NOON, Clock

AT = int(NOON.timestamp())
LIST = AccessPattern(
    id="T-1",
    question="The items of a partition",
    table=BLIP,
    operations=("Query",),
    who=Who.INTERNAL,
    key="PK = :partition",
    expiry=Expiry.SOMETIMES,
)
READ = replace(LIST, id="T-2", operations=("GetItem",), consistent=True)
UPDATE = replace(
    LIST, id="T-3", operations=("UpdateItem",), condition="attribute_exists(PK)", update="SET word = :word"
)
PUT = replace(LIST, id="T-4", operations=("PutItem",), condition="attribute_not_exists(PK)")
DELETE = replace(LIST, id="T-5", operations=("DeleteItem",))
SCAN = replace(LIST, id="T-6", operations=("Scan",), key="")
# Of these the second expires at this moment.
LIFETIMES = {"lasting": None, "expired": AT, "alive": AT + 1}


def seeing(pattern: AccessPattern) -> AccessPattern:
    return replace(pattern, sees_expired=True)


def expiring(name: str, word: str = "old") -> dict[str, Any]:
    expires_at = LIFETIMES[name]
    return {"PK": "P", "SK": name, "word": word} | ({} if expires_at is None else {"expiresAt": expires_at})


@pytest.fixture
async def store(database: Database, clock: Clock) -> Store:
    tokens = iter(range(1000))
    opened = Store(
        database.client,
        prefix=database.prefix,
        deadline=Deadline(20),
        token=lambda: f"{database.prefix}{next(tokens)}",
        now=clock,
    )
    await opened.write_all(BLIP, puts=[expiring(name) for name in LIFETIMES])
    return opened


async def names(store: Store, pattern: AccessPattern) -> list[str]:
    return [item["SK"] async for item in store.query_all(pattern, {"partition": "P"})]


async def test_an_expired_item_is_in_no_point_read(store: Store, clock: Clock) -> None:
    assert await store.get(READ, Key("P", "expired")) is None
    assert await store.get(READ, Key("P", "alive")) == expiring("alive")
    assert await store.get(READ, Key("P", "lasting")) == expiring("lasting")
    assert await store.get(seeing(READ), Key("P", "expired")) == expiring("expired")

    clock.forward(seconds=1)
    assert await store.get(READ, Key("P", "alive")) is None


async def test_an_expired_item_is_in_no_page_count_or_scan(store: Store) -> None:
    assert await names(store, LIST) == ["alive", "lasting"]
    assert await names(store, replace(LIST, expiry=Expiry.ALWAYS)) == ["alive"]
    assert await names(store, seeing(LIST)) == ["alive", "expired", "lasting"]
    assert await store.count(LIST, {"partition": "P"}) == 2
    assert await store.count(seeing(LIST), {"partition": "P"}) == 3
    assert sorted(item["SK"] for item in await store.scan(SCAN)) == ["alive", "lasting"]


async def test_an_expired_item_is_not_updated(store: Store) -> None:
    refused = await store.update(UPDATE, Key("P", "expired"), word="new")

    assert (refused.ok, refused.item) == (False, None)
    assert await store.get(seeing(READ), Key("P", "expired")) == expiring("expired")
    for name in ("alive", "lasting"):
        written = await store.update(UPDATE, Key("P", name), word="new")
        assert (written.ok, written.item) == (True, expiring(name, "new"))
    assert (await store.update(seeing(UPDATE), Key("P", "expired"), word="new")).ok


async def test_an_expired_item_is_absent_for_the_condition_of_a_put(store: Store) -> None:
    assert (await store.put(PUT, expiring("expired", "new"))).ok
    refused = await store.put(PUT, expiring("alive", "new"))

    assert (refused.ok, refused.item) == (False, expiring("alive"))
    assert not (await store.put(seeing(PUT), expiring("expired", "newer"))).ok
    assert await store.get(seeing(READ), Key("P", "expired")) == expiring("expired", "new")


async def test_an_expired_item_that_is_deleted_was_not_there(store: Store) -> None:
    written = await store.delete(DELETE, Key("P", "expired"))

    assert (written.ok, written.item) == (True, None)
    assert await store.get(seeing(READ), Key("P", "expired")) is None
    assert (await store.delete(DELETE, Key("P", "alive"))).item == expiring("alive")


async def test_a_ttl_that_is_no_number_does_not_expire(store: Store) -> None:
    damaged = expiring("lasting") | {"expiresAt": "soon"}
    await store.write_all(BLIP, puts=[damaged])

    assert await store.get(READ, Key("P", "lasting")) == damaged


def test_the_patterns_of_a_table_with_a_ttl_leave_out_expired_items_unless_declared_otherwise() -> None:
    notes = Table("notes", "PK", "SK", ttl="ttl")

    assert replace(LIST, table=notes, expiry=None).filters == ("#ttl > :now",)
    assert replace(LIST, table=notes, expiry=Expiry.NEVER).filters == ()
    assert replace(LIST, table=notes, expiry=None, sees_expired=True).filters == ()
    assert replace(LIST, table=replace(notes, expiry=Expiry.NEVER), expiry=None).filters == ()
    assert replace(LIST, table=replace(notes, ttl=None), expiry=None).filters == ()
    with pytest.raises(TypeError, match="T-3: `:now` is the time with which the TTL is compared"):
        replace(UPDATE, update="SET seen = :now")


@pytest.mark.parametrize("expiry", [Expiry.ALWAYS, Expiry.SOMETIMES])
def test_a_ttl_with_the_name_of_a_reserved_word_has_an_alias(expiry: Expiry) -> None:
    for name in ("ttl", "TTL", "Timestamp", "until", "expiresAt"):
        pattern = replace(LIST, table=Table("notes", "pk", ttl=name), expiry=expiry)

        assert name in pattern.is_live
        assert reserved_words_of(pattern.is_live, pattern.has_expired) == []


def test_the_reserved_names_of_times_are_reserved() -> None:
    assert RESERVED_TIMES <= RESERVED


def test_the_point_reads_of_items_with_a_ttl_leave_out_expired_ones() -> None:
    expiring = [item.__declaration__ for item in item_classes() if has_ttl(item)]
    forms = {(declaration.key.table, declaration.key.documented) for declaration in expiring}
    reads = [pattern for pattern in PATTERNS if (pattern.table, pattern.key) in forms]

    assert {pattern.id for pattern in reads} == {"BLIP-N1", "FEED-N4", "AM-1", "CRIC-S1", "FOL-1", "DSC-1", "LA-N1"}
    assert [pattern.id for pattern in reads if not (pattern.hidden_ttl or pattern.sees_expired)] == []


def has_ttl(item: type[StoredItem]) -> bool:
    declaration = item.__declaration__
    names = {attribute.name for attribute in declaration.attributes.values()}
    return declaration.key.table.ttl in names


def test_no_pattern_compares_a_ttl_by_hand() -> None:
    """Except transactions, whose actions have conditions of their own, and patterns that look for expired items."""
    by_hand = {
        pattern.id
        for pattern in PATTERNS
        for clause in (*pattern.filter, pattern.condition)
        if pattern.table.ttl and f"{pattern.table.ttl} >" in clause
    }

    assert by_hand == {"BLIP-5", "FEED-P3"}
