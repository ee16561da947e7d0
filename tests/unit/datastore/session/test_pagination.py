"""Pages against a model: for any data, page size and direction, the pages together are the list."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import ceil, log
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from datastore.database import Database
from datastore.dynamodb.codec import Item, Raw, encode_item
from datastore.errors import BadCursor
from datastore.keyspace.sightings import ACTIVE_IN_AREA, BLIP, SIGHTINGS_END, sighting
from datastore.model.access_patterns import AccessPattern, Who
from datastore.session.cursors import Cursors, binding
from datastore.session.metering import Deadline
from datastore.session.pagination import Page, Span, read_page
from datastore.session.store import Store
from resolvers.shared.paging import Connection
from tests.support.served import NOON

NOW = 1_782_388_800
CURSORS = Cursors(b"secret")
HERE = binding("the list", {})
ENGINE_SETTINGS = settings(
    deadline=None,
    max_examples=50,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def _of_category(pattern_id: str, *, descending: bool) -> AccessPattern:
    return AccessPattern(
        pattern_id,
        "",
        BLIP,
        ("Query",),
        Who.ANY,
        index="TrendingIndex",
        key="GSI1PK = :partition",
        filter=("expiresAt > :now",),
        descending=descending,
    )


# One partition of the table, and many partitions of its index in both directions.
PATTERNS = (ACTIVE_IN_AREA, _of_category("T-1", descending=True), _of_category("T-2", descending=False))


@dataclass
class PagedItems:
    """Items in the table and in a model. Each instance has partitions of its own."""

    database: Database
    pattern: AccessPattern
    partitions: list[str]
    living: dict[str, dict[int, bool]] = field(default_factory=dict)
    calls: int = 0

    async def put(self, items: Mapping[str, Mapping[int, bool]]) -> None:
        """Put items, given as numbers by partition. True is an item that lives, False one that has expired."""
        requests = []
        for partition, numbers in items.items():
            self.living.setdefault(partition, {}).update(numbers)
            requests += [{"PutRequest": {"Item": self._item(partition, *one)}} for one in numbers.items()]
        await self._write(requests)

    async def grow(self, partition: str, number: int, text: str) -> None:
        item = self._item(partition, number, True) | encode_item({"text": text})
        await self._write([{"PutRequest": {"Item": item}}])

    async def delete(self, partition: str, number: int) -> None:
        del self.living[partition][number]
        item = self._item(partition, number, True)
        await self._write([{"DeleteRequest": {"Key": {"PK": item["PK"], "SK": item["SK"]}}}])

    async def _write(self, requests: Sequence[Any]) -> None:
        name = f"{self.database.prefix}blip"
        for at in range(0, len(requests), 25):
            await self.database.client.call("BatchWriteItem", {"RequestItems": {name: requests[at : at + 25]}})

    def _item(self, partition: str, number: int, lives: bool) -> dict[str, Any]:
        sort = f"{sighting.prefix}{number:06}"
        keys = {"PK": partition, "SK": sort, "GSI1PK": f"C{partition}", "GSI1SK": f"{number:06}"}
        return encode_item(keys | {"number": number, "place": partition, "expiresAt": NOW + (60 if lives else 0)})

    def model(self) -> list[tuple[str, int]]:
        """Return the whole list."""
        return [
            (partition, number)
            for partition in self.partitions
            for number, lives in sorted(self.living.get(partition, {}).items(), reverse=self.pattern.descending)
            if lives
        ]

    async def page(self, size: int, *, backward: bool = False, cursor: str | None = None) -> Page:
        """Read a page in a request of its own."""
        client, prefix = self.database.client, self.database.prefix
        store = Store(client, prefix=prefix, deadline=Deadline(20), token=lambda: "", now=lambda: NOON)
        span = Span(size, backward, None if cursor is None else CURSORS.open(cursor, HERE))
        page = await read_page(store, self.pattern, [self._values(name) for name in self.partitions], span)
        self.calls = len(store.meter.calls)
        assert {call.operation for call in store.meter.calls} == {"Query"}
        return page

    def _values(self, partition: str) -> dict[str, Any]:
        values = {"partition": f"C{partition}" if self.pattern.index else partition, "now": NOW}
        return values if self.pattern.index else values | {"oldest": sighting.prefix, "end": SIGHTINGS_END}

    def cursor(self, item: Item) -> str:
        names = BLIP.key_attributes(self.pattern.index)
        return CURSORS.seal({name: item[name] for name in names}, HERE)

    def most_calls(self, page: Page) -> int:
        """Return the limit of calls: a Query for each partition, and some more to pass expired items."""
        scanned = sum(map(len, self.living.values()))
        return page.partitions + 4 * (2 + ceil(log(scanned + 1, 4)))


def places_and_numbers(page: Page) -> list[tuple[str, int]]:
    return [(item["place"], item["number"]) for item in page.items]


NUMBERS = count()
LIVES = st.dictionaries(st.integers(0, 60), st.booleans(), max_size=40)
MOSTLY_EXPIRED = st.dictionaries(st.integers(0, 60), st.sampled_from([False] * 5 + [True]), max_size=40)
CONTENTS = st.lists(LIVES | MOSTLY_EXPIRED, min_size=1, max_size=6)


async def paged_items(database: Database, pattern: AccessPattern, contents: Sequence[Mapping[int, bool]]) -> PagedItems:
    """Write items with these contents. The pattern of the table itself uses only the first partition."""
    used = contents if pattern.index else contents[:1]
    names = [f"{next(NUMBERS)}-{number}" for number in range(len(used))]
    paged = PagedItems(database, pattern, names)
    await paged.put(dict(zip(names, used, strict=True)))
    return paged


# --- A list that does not change --------------------------------------------------------------------------------------


@ENGINE_SETTINGS
@given(pattern=st.sampled_from(PATTERNS), contents=CONTENTS, size=st.integers(1, 15))
@example(pattern=PATTERNS[0], contents=[{}], size=1)
@example(pattern=PATTERNS[1], contents=[dict.fromkeys(range(10), True)] * 3, size=10)
@example(pattern=PATTERNS[2], contents=[{}, {}, {1: True}, {}, {2: True}, {}], size=1)
@example(pattern=PATTERNS[1], contents=[dict.fromkeys(range(40), False)] * 6, size=5)
async def test_pages_are_the_list_in_both_directions(
    database: Database, pattern: AccessPattern, contents: list[dict[int, bool]], size: int
) -> None:
    here = await paged_items(database, pattern, contents)
    model = here.model()

    await _walk_forward(here, model, size)
    await _walk_backward(here, model, size)


async def _walk_forward(here: PagedItems, model: list[tuple[str, int]], size: int) -> None:
    seen = 0
    before: Page | None = None
    cursor: str | None = None
    while True:
        page = await here.page(size, cursor=cursor)
        assert places_and_numbers(page) == model[seen : seen + size]
        assert (page.has_next, page.has_previous) == (seen + size < len(model), seen > 0)
        assert here.calls <= here.most_calls(page)
        if before is not None:
            back = await here.page(size, backward=True, cursor=here.cursor(page.items[0]))
            assert places_and_numbers(back) == places_and_numbers(before)
            assert (back.has_next, back.has_previous) == (True, seen > size)
        if not page.has_next:
            return
        seen += size
        before, cursor = page, here.cursor(page.items[-1])


async def _walk_backward(here: PagedItems, model: list[tuple[str, int]], size: int) -> None:
    left = len(model)
    cursor: str | None = None
    while True:
        page = await here.page(size, backward=True, cursor=cursor)
        assert places_and_numbers(page) == model[max(left - size, 0) : left]
        assert (page.has_next, page.has_previous) == (left < len(model), left > size)
        assert here.calls <= here.most_calls(page)
        if not page.has_previous:
            return
        left -= size
        cursor = here.cursor(page.items[0])


@ENGINE_SETTINGS
@given(contents=CONTENTS, size=st.integers(1, 15), where=st.integers(0, 1000))
async def test_a_page_may_begin_at_any_item(
    database: Database, contents: list[dict[int, bool]], size: int, where: int
) -> None:
    here = await paged_items(database, PATTERNS[1], contents)
    model = here.model()
    whole = await here.page(1000)
    assert places_and_numbers(whole) == model
    if not model:
        return
    at = where % len(model)
    cursor = here.cursor(whole.items[at])

    after, before = await here.page(size, cursor=cursor), await here.page(size, backward=True, cursor=cursor)

    assert [*places_and_numbers(before), model[at], *places_and_numbers(after)] == model[
        max(at - size, 0) : at + 1 + size
    ]


# --- A list that changes ----------------------------------------------------------------------------------------------

CHANGES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60), st.booleans()), max_size=6)


@ENGINE_SETTINGS
@given(
    pattern=st.sampled_from(PATTERNS),
    contents=CONTENTS,
    size=st.integers(1, 10),
    backward=st.booleans(),
    changes=st.lists(CHANGES, max_size=12),
)
async def test_items_that_stay_are_seen_once_while_others_come_and_go(
    database: Database,
    pattern: AccessPattern,
    contents: list[dict[int, bool]],
    size: int,
    backward: bool,
    changes: list[list[tuple[int, int, bool]]],
) -> None:
    # Even numbers stay as they are; odd ones come and go between the pages.
    here = await paged_items(
        database, pattern, [{2 * number: lives for number, lives in one.items()} for one in contents]
    )
    staying = here.model()
    between = iter(changes)
    seen: list[tuple[str, int]] = []
    cursor: str | None = None
    for _ in range(1000):
        page = await here.page(size, backward=backward, cursor=cursor)
        more = page.has_previous if backward else page.has_next
        assert len(page.items) == size or not more
        seen = places_and_numbers(page) + seen if backward else seen + places_and_numbers(page)
        if not more:
            break
        cursor = here.cursor(page.items[0 if backward else -1])
        await _change(here, next(between, []))

    assert [one for one in seen if one[1] % 2 == 0] == staying
    assert len(seen) == len(set(seen))


async def _change(here: PagedItems, changes: list[tuple[int, int, bool]]) -> None:
    for where, number, lives in changes:
        partition, odd = here.partitions[where % len(here.partitions)], 2 * number + 1
        if odd in here.living[partition]:
            await here.delete(partition, odd)
        else:
            await here.put({partition: {odd: lives}})


async def test_a_page_continues_from_a_deleted_item(database: Database) -> None:
    here = await paged_items(database, PATTERNS[1], [dict.fromkeys(range(10), True)])
    first = await here.page(3)
    partition, number = places_and_numbers(first)[-1]
    await here.delete(partition, number)

    after = await here.page(3, cursor=here.cursor(first.items[-1]))
    before = await here.page(3, backward=True, cursor=here.cursor(first.items[-1]))

    assert [number for _, number in places_and_numbers(after)] == [6, 5, 4]
    assert [number for _, number in places_and_numbers(before)] == [9, 8]


# --- Cost -------------------------------------------------------------------------------------------------------------


async def test_a_full_page_of_one_partition_is_one_query(database: Database) -> None:
    here = await paged_items(database, ACTIVE_IN_AREA, [dict.fromkeys(range(30), True)])

    assert len((await here.page(25)).items) == 25
    assert here.calls == 1


async def test_a_long_tail_of_expired_items_takes_few_queries(database: Database) -> None:
    """The newest items live and the others have expired: an area looks so until DynamoDB has deleted them."""
    here = await paged_items(database, ACTIVE_IN_AREA, [dict.fromkeys(range(1500), False)])
    for living in range(28):
        page = await here.page(25)

        assert places_and_numbers(page) == here.model()[:25]
        assert page.has_next is (living > 25)
        assert here.calls <= 7
        await here.put({here.partitions[0]: {1500 + living: True}})


async def test_living_items_far_apart_take_few_queries(database: Database) -> None:
    here = await paged_items(database, ACTIVE_IN_AREA, [{number: number % 50 == 0 for number in range(1500)}])

    page = await here.page(25)

    assert places_and_numbers(page) == here.model()[:25]
    assert here.calls <= 7


async def test_a_page_larger_than_the_response_of_a_query_is_full(database: Database) -> None:
    here = await paged_items(database, ACTIVE_IN_AREA, [dict.fromkeys(range(9), True)])
    for number in range(9):
        await here.grow(here.partitions[0], number, "x" * 300_000)

    page = await here.page(8)

    assert places_and_numbers(page) == here.model()[:8]
    assert page.has_next
    assert 2 < here.calls <= 5


async def test_only_the_partitions_of_a_page_are_read(database: Database) -> None:
    here = await paged_items(database, PATTERNS[1], [dict.fromkeys(range(10), True)] * 40)

    page = await here.page(25)

    assert places_and_numbers(page) == here.model()[:25]
    assert page.partitions <= 6
    assert here.calls <= 6


async def test_only_requested_attributes_and_the_keys_of_cursors_are_read(database: Database) -> None:
    here = await paged_items(database, PATTERNS[1], [dict.fromkeys(range(3), True)])
    store = Store(database.client, prefix=database.prefix, deadline=Deadline(20), token=lambda: "", now=lambda: NOON)
    values = [{"partition": f"C{here.partitions[0]}", "now": NOW}]

    page = await read_page(store, here.pattern, values, Span(2), ["number"])

    place = here.partitions[0]
    shown = [
        {"PK": place, "SK": f"{sighting.prefix}{number:06}", "GSI1PK": f"C{place}", "GSI1SK": f"{number:06}"}
        | {"number": number}
        for number in (2, 1)
    ]
    assert (page.items, page.has_next, page.has_previous, page.partitions) == (shown, True, False, 1)


async def test_a_start_in_no_partition_of_the_list_is_a_bad_cursor(database: Database) -> None:
    here, other = await asyncio.gather(
        paged_items(database, PATTERNS[1], [{1: True}]), paged_items(database, PATTERNS[1], [{1: True}])
    )
    cursor = here.cursor((await here.page(1)).items[0])

    with pytest.raises(BadCursor):
        await other.page(1, cursor=cursor)


async def test_a_list_without_partitions_is_empty(database: Database) -> None:
    store = Store(database.client, prefix=database.prefix, deadline=Deadline(20), token=lambda: "", now=lambda: NOON)

    page = await read_page(store, PATTERNS[1], [], Span(5))

    assert (page.items, page.has_next, page.has_previous) == ([], False, False)
    assert store.meter.calls == []


def test_a_list_in_memory_has_the_cursors_of_a_list_that_was_read_and_encodes_only_keys() -> None:
    items: list[Item] = [{"PK": "AREA#a", "SK": f"SIGHTING#{number}", "likes": 10**40 + number} for number in range(3)]
    keys: list[Raw] = [encode_item({"PK": item["PK"], "SK": item["SK"]}) for item in items]
    of_field = CURSORS, ACTIVE_IN_AREA, "Query.list", dict[str, Any]()

    in_memory = Connection(*of_field, itemgetter("likes")).of(Page(items, has_next=True, has_previous=False))
    read = Connection(*of_field, itemgetter("SK")).of(Page(None, has_next=True, has_previous=False, raw=keys))

    assert in_memory.nodes == [item["likes"] for item in items]  # numbers that DynamoDB cannot store
    assert [edge.cursor for edge in in_memory.edges] == [edge.cursor for edge in read.edges]
    assert in_memory.last_evaluated_key == in_memory.page_info.end_cursor == read.edges[-1].cursor
