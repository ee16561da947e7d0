"""An idempotent consumer's effects: records are delivered at least once, their effects applied exactly once.

Each effect has a name. One transaction writes a mark of that name, on the condition that it does not exist, and the
effect's changes: a repeat changes nothing. Marks are kept longer than a stream keeps records (24 hours) and than dead
letters, which may be stored a day late and are deleted up to some days after they expire.

The marks of the effects of one item's changes are in one partition, in the order of the changes. A mark may contain the
outcome of its change, so that the latest mark shows which state of the item the effects contain.
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from datastore.change_streams.consumer_table import ConsumerTable
from datastore.dynamodb.client import TransactionCancelled
from datastore.model.access_patterns import Table
from datastore.model.composite_keys import Key
from datastore.model.timestamps import to_seconds
from datastore.session.store import Store
from datastore.session.writes import Action

MARK_LIFETIME = timedelta(days=20)
MAX_ACTIONS = 100  # of a transaction

Address = tuple[Table, Key]


@dataclass(frozen=True, slots=True)
class Write:
    """An effect's change of one item. A missing item is created.

    All writes to one item must have the same `only_if` and `newest`, since they are merged into one.
    """

    table: Table
    key: Key
    #: Numbers to ADD.
    add: Mapping[str, int] = field(default_factory=dict)
    #: Values to SET.
    set: Mapping[str, Any] = field(default_factory=dict)
    #: A condition without values. If it does not hold, the write is dropped.
    only_if: str = ""
    #: The name of one of the values to SET. An item with a later value keeps all its values; only numbers are added.
    newest: str = ""


@dataclass(frozen=True, slots=True)
class Effect:
    """Changes that are applied exactly once."""

    #: The same at each delivery of the record.
    name: str
    writes: tuple[Write, ...]
    #: The position of the change if `name` is that of its item (see `name_of`).
    position: str = ""
    #: Attributes of the mark.
    outcome: Mapping[str, Any] = field(default_factory=dict)


def name_of(handler: str, table: str, key: Key) -> str:
    """Return the name of a handler's effects of the changes of an item, which differ in their positions."""
    text = "\0".join((table, *key))
    return f"{handler}:{sha256(text.encode()).hexdigest()[:32]}"


async def apply(store: Store, table: ConsumerTable, effects: Sequence[Effect], now: datetime) -> None:
    """Apply the effects that were not applied before, in few transactions: writes to one item are merged.

    Only the first of several effects with the same name and position is applied.

    Raises: the store's error of the first transaction that fails; later transactions are not sent. The next call skips
    the effects that were applied.
    """
    unique: dict[tuple[str, str], Effect] = {}
    for effect in effects:
        unique.setdefault((effect.name, effect.position), effect)
    for pack in _packs(unique.values()):
        await _apply(store, table, pack, now)


def _packs(effects: Iterable[Effect]) -> Iterator[list[Effect]]:
    """Yield groups of effects, in order, each as large as a transaction allows."""
    pack: list[Effect] = []
    touched: set[Address] = set()
    for effect in effects:
        addresses = {(write.table, write.key) for write in effect.writes}
        if pack and len(pack) + 1 + len(touched | addresses) > MAX_ACTIONS:
            yield pack
            pack, touched = [], set()
        pack.append(effect)
        touched |= addresses
    if pack:
        yield pack


async def _apply(store: Store, table: ConsumerTable, pack: list[Effect], now: datetime) -> None:
    missing: set[Address] = set()
    newer: set[Address] = set()  # items that have a later value
    while pack:
        remaining = [write for write in _merged(pack) if _address(write) not in missing]
        writes = [_numbers_alone(write) if _address(write) in newer else write for write in remaining]
        actions = [_mark(table, effect, now) for effect in pack] + [_action(write) for write in writes]
        try:
            await store.transact(table.apply_effects, actions)
            return
        except TransactionCancelled as cancelled:
            failed = [index for index, reason in enumerate(cancelled.reasons) if reason == "ConditionalCheckFailed"]
            if not failed:
                raise
        skipped = [remaining[index - len(pack)] for index in failed if index >= len(pack)]
        missing |= {_address(write) for write in skipped if not write.newest}
        # If the item was deleted since, the whole write applies again.
        newer ^= {_address(write) for write in skipped if write.newest}
        pack = [effect for index, effect in enumerate(pack) if index not in failed]


def _address(write: Write) -> Address:
    return write.table, write.key


def _numbers_alone(write: Write) -> Write:
    """Return the part of a write that applies to an item with later values: the numbers to add."""
    return Write(write.table, write.key, write.add, only_if=f"attribute_exists({write.table.partition})")


def _merged(pack: Sequence[Effect]) -> list[Write]:
    """Merge writes into one for each item. Numbers are summed; the last or the `newest` values replace others."""
    merged: dict[Address, Write] = {}
    for write in (write for effect in pack for write in effect.writes):
        address = write.table, write.key
        before = merged.get(address)
        if before is None:
            merged[address] = write
            continue
        assert (before.only_if, before.newest) == (write.only_if, write.newest), (
            "Writes to one item have one condition."
        )
        add = {name: before.add.get(name, 0) + write.add.get(name, 0) for name in {**before.add, **write.add}}
        is_older = write.newest and write.set[write.newest] < before.set[write.newest]
        values = {**write.set, **before.set} if is_older else {**before.set, **write.set}
        merged[address] = Write(write.table, write.key, add, values, write.only_if, write.newest)
    return [write for write in merged.values() if write.set or any(write.add.values())]


def _mark(table: ConsumerTable, effect: Effect, now: datetime) -> Action:
    key = table.change_effect(effect.name, effect.position) if effect.position else table.effect(effect.name)
    item = {**effect.outcome, "PK": key.partition, "SK": key.sort, "expiresAt": to_seconds(now + MARK_LIFETIME)}
    return Action("Put", item=item, condition=table.apply_effects.condition)


def _action(write: Write) -> Action:
    add = {name: number for name, number in write.add.items() if number}
    clauses = []
    if write.set:
        clauses.append("SET " + ", ".join(f"#{name} = :{name}" for name in write.set))
    if add:
        clauses.append("ADD " + ", ".join(f"#{name} :{name}" for name in add))
    not_older = f"attribute_not_exists(#{write.newest}) OR #{write.newest} <= :{write.newest}" if write.newest else ""
    return Action(
        "Update",
        key=write.key,
        update=" ".join(clauses),
        condition=write.only_if or not_older,
        values={**write.set, **add},
        table=write.table,
    )
