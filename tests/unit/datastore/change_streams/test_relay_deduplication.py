"""Deduplication of a table's changes: each is passed on once, even if the bus has forgotten a shard and repeats it."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from datastore.change_streams.change import Change, decode_change
from datastore.change_streams.relay.commands import Relayed, RelayState
from datastore.change_streams.relay.deduplication import Deduplicator
from datastore.change_streams.replay.replay_log import ReplayLog
from datastore.change_streams.replay.resume_token import key_of
from datastore.change_streams.shards.checkpoints import START, Reached
from tests.support.moments import utc_now


class SequenceSink:
    """A sink that records the sequence of each change with its shard."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, str]] = []

    def start_epoch(self, *_: Any) -> None: ...
    def start_shard(self, *_: Any) -> None: ...
    def read_empty(self, *_: Any) -> None: ...
    def lost(self, problem: Exception) -> None: ...

    def deliver(self, shard: str, change: Change, **_: Any) -> None:
        self.changes.append((shard, change.sequence))


def relayed_record(number: int) -> dict[str, Any]:
    body = {"SequenceNumber": str(number), "Keys": {"pk": {"S": "k"}}, "ApproximateCreationDateTime": 1_790_000_000}
    return {"eventName": "INSERT", "dynamodb": body}


def relayed_entry(numbers: Iterable[int], follows: str = START) -> Relayed:
    return Relayed("1-1", "e", "child", follows, 0, orjson.dumps([relayed_record(number) for number in numbers]))


@pytest.fixture
def heard() -> SequenceSink:
    return SequenceSink()


@pytest.fixture
def deduplicator(heard: SequenceSink) -> Deduplicator:
    """Return a deduplicator that passed on two changes of a shard, which the bus has forgotten since."""
    deduplicator = Deduplicator("t", heard, lambda _, problem: pytest.fail(repr(problem)), utc_now)
    deduplicator.start_epoch("arn", {}, {}, 0)
    deduplicator.shards = {"parent": "9"}
    take_relayed(deduplicator, relayed_entry([100, 101]))
    deduplicator.reconcile(RelayState("", "1-1", "e", "arn", "", 2, {"parent": "9"}), dict(deduplicator.shards))
    assert deduplicator.shards == {"parent": "9"}
    heard.changes.clear()
    return deduplicator


def take_relayed(deduplicator: Deduplicator, relayed: Relayed) -> None:
    new = deduplicator.undelivered_records(relayed)
    assert new is not None
    for record in new:
        deduplicator.deliver_record(relayed.shard, relayed.parent, record)


def test_changes_that_the_bus_delivers_again_are_passed_on_once(
    deduplicator: Deduplicator, heard: SequenceSink
) -> None:
    take_relayed(deduplicator, relayed_entry([100]))
    take_relayed(deduplicator, relayed_entry([101, 102], follows="100"))
    take_relayed(deduplicator, relayed_entry([103], follows="102"))
    assert heard.changes == [("child", "102"), ("child", "103")]


def test_new_changes_follow_those_that_the_bus_delivered_again(deduplicator: Deduplicator, heard: SequenceSink) -> None:
    take_relayed(deduplicator, relayed_entry([100, 101]))
    assert heard.changes == []
    assert deduplicator.shards["child"] == "101"
    assert deduplicator.undelivered_records(relayed_entry([104], follows="103")) is None  # 103 is missing


def test_changes_that_a_reader_delivers_again_are_passed_on_once(
    deduplicator: Deduplicator, heard: SequenceSink
) -> None:
    deduplicator.set_position(Reached("arn", {"parent": "9", "child": "100"}))
    for number in (100, 101, 102):
        deduplicator.deliver("child", decode_change("t", relayed_record(number)))
    assert heard.changes == [("child", "102")]


def test_a_shard_of_another_stream_is_a_different_shard(deduplicator: Deduplicator, heard: SequenceSink) -> None:
    deduplicator.start_epoch("another", {}, {}, 0)
    deduplicator.deliver("child", decode_change("t", relayed_record(1)))
    assert heard.changes == [("child", "1")]


@pytest.mark.parametrize(
    ("past", "begun"), [([], "9"), ([(7, 8), (9,)], "6"), ([(7, 8)], START)], ids=["none", "some", "from its start"]
)
async def test_the_log_begins_at_the_first_entry_of_the_bus(past: list[tuple[int, ...]], begun: str) -> None:
    heard = SequenceSink()
    positions: list[dict[str, str]] = []
    heard.start_epoch = lambda stream, at, parents, since: positions.append(at)  # type: ignore[method-assign, misc]
    state = RelayState("", "1-1", "e", "arn", "", 9, {"child": "9"})
    sink = Deduplicator("t", heard, lambda _, problem: pytest.fail(repr(problem)), utc_now)
    await sink.start_from(state, [relayed_entry(numbers, begun) for numbers in past])
    assert positions == [{"child": begun}]


async def test_children_begin_after_the_last_entry_of_their_parent() -> None:
    """The bus has entries of one child, and none of the other."""
    log = ReplayLog(None)  # type: ignore[arg-type]
    deduplicator = Deduplicator("t", log, lambda _, problem: pytest.fail(repr(problem)), utc_now)
    parents = {"child": "parent", "other": "parent"}
    state = RelayState("", "1-1", "e", "arn", "", 3, {"parent": "9", "child": "11", "other": START}, parents)
    of_parent = Relayed("1-1", "e", "parent", "7", 0, orjson.dumps([relayed_record(8), relayed_record(9)]))
    await deduplicator.start_from(state, [of_parent, replace(relayed_entry([10, 11]), parent="parent")])
    first, *_ = log._recent.entries
    keys = {shard: key_of("arn", shard) for shard in ("parent", "child", "other")}
    assert first.token.positions == {keys["parent"]: "8"}
    assert log.last_token.positions == {keys["child"]: "11", keys["other"]: START}
