"""What a process tells of a table's changes: each once, also where the bus has forgotten a shard and begins it anew."""

from collections.abc import Iterable
from typing import Any

import orjson
import pytest

from datastore.bus.connection import Relayed, State
from datastore.bus.told import Told
from datastore.positions import START, Reached
from datastore.streams import Change, decode_change


class Heard:
    """The sink: what it was told, by shard."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, str]] = []

    def begin(self, *_: Any, **__: Any) -> None: ...
    def lost(self, problem: Exception) -> None: ...

    def tell(self, shard: str, change: Change, *, is_past: bool = False) -> None:
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
def told(heard: Heard) -> Told:
    """Has told two changes of a shard that the bus has forgotten since."""
    told = Told("t", heard, lambda _, problem: pytest.fail(repr(problem)))
    told.begin("e", "arn", single=None)
    told.shards = {"parent": "9"}
    take(told, entry([100, 101]))
    told.agree({"parent": "9"}, dict(told.shards))
    assert told.shards == {"parent": "9"}
    heard.changes.clear()
    return told


def take(told: Told, relayed: Relayed) -> None:
    new = told.new_in(relayed)
    assert new is not None
    for one in new:
        told.take(relayed.shard, one)


def test_what_the_bus_brings_again_is_told_once(told: Told, heard: Heard) -> None:
    take(told, entry([100]))
    take(told, entry([101, 102], follows="100"))
    take(told, entry([103], follows="102"))
    assert heard.changes == [("child", "102"), ("child", "103")]


def test_what_is_new_after_it_was_brought_again_follows(told: Told, heard: Heard) -> None:
    take(told, entry([100, 101]))
    assert heard.changes == []
    assert told.shards["child"] == "101"
    assert told.new_in(entry([104], follows="103")) is None  # 103 is missing


def test_what_a_reader_brings_again_is_told_once(told: Told, heard: Heard) -> None:
    told.note(Reached("arn", {"parent": "9", "child": "100"}))
    for number in (100, 101, 102):
        told.tell("child", decode_change("t", record(number)))
    assert heard.changes == [("child", "102")]


def test_a_shard_of_another_stream_is_another(told: Told, heard: Heard) -> None:
    told.begin("e", "another", single=None)
    told.tell("child", decode_change("t", record(1)))
    assert heard.changes == [("child", "1")]


@pytest.mark.parametrize(("past", "at"), [([], 9), ([(7, 8), (9,)], 6), ([(7, 8)], None)])
async def test_the_log_hears_where_what_the_bus_has_begins(past: list[tuple[int, ...]], at: int | None) -> None:
    begun: list[int | None] = []

    class Begun(Heard):
        def begin(self, *_: Any, **said: Any) -> None:
            begun.append(said["at"])

    told = Told("t", Begun(), lambda _, problem: pytest.fail(repr(problem)))
    state = State("", "1-1", "e", "arn", "", "child", 9, {"child": "9"})
    await told.adopt(state, [entry(numbers, START if at is None else "6") for numbers in past])
    assert begun == [at]
