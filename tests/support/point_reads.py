"""Point reads of numbered items."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from datastore.database import Database
from datastore.errors import DomainError
from datastore.keyspace.sightings import BLIP
from datastore.model.access_patterns import AccessPattern, Table, Who
from datastore.model.composite_keys import Key
from datastore.session.metering import Deadline
from datastore.session.store import Store
from tests.support.fault_proxy import Seen
from tests.support.served import NOON

BLIPS = AccessPattern("T-1", "", BLIP, ("GetItem", "BatchGetItem"), Who.ANY)


def blip(number: int) -> Key:
    return Key(f"P#{number % 7}", f"S#{number}")


def numbered_item(number: int, table: Table = BLIP) -> dict[str, Any]:
    key = blip(number)
    return {table.partition: key.partition, str(table.sort): key.sort, "number": number}


async def put_numbers(database: Database, numbers: Sequence[int], table: Table = BLIP) -> None:
    store = Store(database.client, prefix=database.prefix, deadline=Deadline(20), token=lambda: "", now=lambda: NOON)
    pattern = AccessPattern("T-4", "", table, ("PutItem",), Who.ANY)
    await asyncio.gather(*[store.put(pattern, numbered_item(number, table)) for number in numbers])


async def read_many(store: Store, numbers: Sequence[int], *, consistent: bool = False) -> list[Any]:
    """Return the items, or the exceptions in their places."""
    reads = [store.get(replace(BLIPS, consistent=consistent), blip(number)) for number in numbers]
    return await asyncio.gather(*reads, return_exceptions=True)


def keys_asked(seen: Seen, database: Database, table: Table = BLIP) -> list[str]:
    """Return the sort keys of a BatchGetItem."""
    return [key[table.sort]["S"] for key in seen.body["RequestItems"][database.prefix + table.name]["Keys"]]


def code_or_item(answer: Any) -> Any:
    return answer.code if isinstance(answer, DomainError) else answer
