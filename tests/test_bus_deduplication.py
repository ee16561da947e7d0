"""What a process tells of a table's changes: each once, also where the bus has forgotten a shard and begins it anew."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from datastore.bus.connection import Relayed, State
from datastore.bus.deduplication import Deduplicator
from datastore.change_log import Log
from datastore.places import key_of
from datastore.positions import START, Reached
from datastore.streams import Change, decode_change


def now() -> datetime:
    return datetime.now(UTC)


class Heard:
    """The sink: what it was told, by shard."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, str]] = []

    def begin(self, *_: Any) -> None: ...
    def start(self, *_: Any) -> None: ...
    def answered(self, *_: Any) -> None: ...
    def lost(self, problem: Exception) -> None: ...

    def tell(self, shard: str, change: Change, **_: Any) -> None:
        self.changes.append((shard, change.sequence))


def record(number: int) -> dict[str, Any]:
    body = {"SequenceNumber": str(number), "Keys": {"pk": {"S": "k"}}, "ApproximateCreationDateTime": 1_790_000_000}
    return {"eventName": "INSERT", "dynamodb": body}


def entry(numbers: Iterable[int], follows: str = START) -> Relayed:
    return Relayed("1-1", "e", "child", follows, 0, orjson.dumps([record(number) for number in numbers]))


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def told(heard: Heard) -> Deduplicator:
    """Has told two changes of a shard that the bus has forgotten since."""
    told = Deduplicator("t", heard, lambda _, problem: pytest.fail(repr(problem)), now)
    told.begin("arn", {}, {}, 0)
    told.shards = {"parent": "9"}
    take(told, entry([100, 101]))
    told.agree(State("", "1-1", "e", "arn", "", 2, {"parent": "9"}), dict(told.shards))
    assert told.shards == {"parent": "9"}
    heard.changes.clear()
    return told


def take(told: Deduplicator, relayed: Relayed) -> None:
    new = told.new_in(relayed)
    assert new is not None
    for one in new:
        told.take(relayed.shard, relayed.parent, one)


def test_what_the_bus_brings_again_is_told_once(told: Deduplicator, heard: Heard) -> None:
    take(told, entry([100]))
    take(told, entry([101, 102], follows="100"))
    take(told, entry([103], follows="102"))
    assert heard.changes == [("child", "102"), ("child", "103")]


def test_what_is_new_after_it_was_brought_again_follows(told: Deduplicator, heard: Heard) -> None:
    take(told, entry([100, 101]))
    assert heard.changes == []
    assert told.shards["child"] == "101"
    assert told.new_in(entry([104], follows="103")) is None  # 103 is missing


def test_what_a_reader_brings_again_is_told_once(told: Deduplicator, heard: Heard) -> None:
    told.note(Reached("arn", {"parent": "9", "child": "100"}))
    for number in (100, 101, 102):
        told.tell("child", decode_change("t", record(number)))
    assert heard.changes == [("child", "102")]


def test_a_shard_of_another_stream_is_another(told: Deduplicator, heard: Heard) -> None:
    told.begin("another", {}, {}, 0)
    told.tell("child", decode_change("t", record(1)))
    assert heard.changes == [("child", "1")]


@pytest.mark.parametrize(
    ("past", "begun"), [([], "9"), ([(7, 8), (9,)], "6"), ([(7, 8)], START)], ids=["none", "some", "from its start"]
)
async def test_the_log_hears_where_what_the_bus_has_begins(past: list[tuple[int, ...]], begun: str) -> None:
    told = Heard()
    positions: list[dict[str, str]] = []
    told.begin = lambda stream, at, parents, since: positions.append(at)  # type: ignore[method-assign, misc]
    state = State("", "1-1", "e", "arn", "", 9, {"child": "9"})
    sink = Deduplicator("t", told, lambda _, problem: pytest.fail(repr(problem)), now)
    await sink.adopt(state, [entry(numbers, begun) for numbers in past])
    assert positions == [{"child": begun}]


async def test_children_begin_when_their_parent_was_told_to_its_end() -> None:
    """As the entries of the bus have them, of which some have shown no record yet."""
    log = Log(lambda _: None, lambda _: None, None)  # type: ignore[arg-type]
    told = Deduplicator("t", log, lambda _, problem: pytest.fail(repr(problem)), now)
    parents = {"child": "parent", "other": "parent"}
    state = State("", "1-1", "e", "arn", "", 3, {"parent": "9", "child": "11", "other": START}, parents)
    of_parent = Relayed("1-1", "e", "parent", "7", 0, orjson.dumps([record(8), record(9)]))
    await told.adopt(state, [of_parent, replace(entry([10, 11]), parent="parent")])
    first, *_ = log._recent.entries
    keys = {shard: key_of("arn", shard) for shard in ("parent", "child", "other")}
    assert first.place.positions == {keys["parent"]: "8"}
    assert log.last_place.positions == {keys["child"]: "11", keys["other"]: START}
