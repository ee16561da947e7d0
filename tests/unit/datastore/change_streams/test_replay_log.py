"""The log of a table against a plain list: a client that resumes gets all changes after its position, or an error."""

import asyncio
import gc
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datastore.change_streams.change import Change
from datastore.change_streams.replay import replay_log as change_log
from datastore.change_streams.replay.backfill import Backfill
from datastore.change_streams.replay.replay_log import MissingRange, ReplayLog, ResumeTokenRefused
from datastore.change_streams.replay.resume_token import MAX_SHARDS, MOVES, ResumeToken, decode, idle, key_of
from datastore.change_streams.replay.runs import LogEntry
from datastore.change_streams.shards.checkpoints import joined
from datastore.errors import Unavailable
from tests.support.until import until

NOW = 1_790_000_000
STREAM = key_of("arn", "")
S = key_of("arn", "s")


def numbered_change(sequence: int) -> Change:
    return Change("t", "INSERT", {"pk": "k"}, None, {"n": sequence}, str(sequence), datetime.now(UTC), False)


def big(sequence: int) -> Change:
    return Change("t", "INSERT", {"pk": "k"}, None, {"t": "x" * 1000}, str(sequence), datetime.now(UTC), False)


Read = Callable[[MissingRange], Any]


class Older(Backfill):
    """A backfill that reads the shard `s` with the function `read`."""

    def __init__(self, read: Read) -> None:
        self._changes = read
        self.asked: list[tuple[int, int | None]] = []

    async def shards(self, stream: str) -> dict[str, str | None]:
        return {"s": None}

    async def read(self, stream: str, ranges: list[MissingRange]) -> list[tuple[str, Change]] | None:
        await asyncio.sleep(0)
        (wanted,) = ranges
        self.asked.append((int(wanted.start), wanted.before()))
        found = self._changes(wanted)
        found = await found if asyncio.iscoroutine(found) else found
        return None if found is None else [(wanted.shard, change) for change in found]


def all_before(missing: MissingRange) -> list[Change]:
    return [numbered_change(number) for number in range(int(missing.start) + 1, missing.before() or 100)]


def nothing(_: MissingRange) -> None:
    return None


def replay_log(published: list[LogEntry], **bounds: float) -> ReplayLog:
    return ReplayLog(Older(nothing), on_publish=published.append, **bounds)


def token_at(sequence: int) -> ResumeToken:
    return ResumeToken.at(STREAM, NOW + sequence, {S: str(sequence)})


def replayed_after(log: ReplayLog, place: ResumeToken) -> list[int] | None:
    """Return all later changes that are not in `seen`, read three at a time."""
    number, seen = log.number_of(place), log.seen_by(place)
    if number is None:
        return None
    found: list[int] = []
    while entries := log.after(number, 3, log.generation):
        for entry in entries:
            if log.is_news(seen, entry):
                seen.move(entry.shard, entry.change.sequence)
                found.append(entry.sequence)
        number = entries[-1].number
    return None if entries is None else found


def started_log(read: Read = nothing, **bounds: float) -> tuple[ReplayLog, Older]:
    """Return a log that joined a single shard at its end and begins with change 100."""
    older = Older(read)
    kept = ReplayLog(older, **bounds)
    kept.start_epoch("arn", {"s": joined("o", "iterator")}, {"s": None}, NOW)
    kept.deliver("s", numbered_change(100))
    return kept, older


class Stream:
    """The changes of a stream's shards, and the children of each split shard."""

    def __init__(self, rng: random.Random, many: int) -> None:
        self.open = ["a", "b"]
        self.parents: dict[str, str | None] = {"a": None, "b": None}
        self.written: list[tuple[str, int]] = []
        for number in range(1, many):
            if rng.random() < 0.15:
                ended = self.open.pop(rng.randrange(len(self.open)))
                self.open += [f"{ended}{child}" for child in "xy"]
                self.parents |= dict.fromkeys(self.open[-2:], ended)
            self.written.append((rng.choice(self.open), number))

    def deliver_to(self, log: ReplayLog, rng: random.Random) -> None:
        """Deliver all changes as a reader does: children start after their parent ends, before their first record."""
        for shard, number in self._shuffled(rng):
            for ended in reversed(self._ancestors(shard)):
                log.start_shard(f"{ended}x", ended)
                log.start_shard(f"{ended}y", ended)
            log.deliver(shard, numbered_change(number), parent=self.parents[shard])

    def _shuffled(self, rng: random.Random) -> list[tuple[str, int]]:
        """Return another order that a reader may have: each shard in order, and parents before their children."""
        left, found = list(self.written), list[tuple[str, int]]()
        while left:
            first: dict[str, int] = {}
            for index, (shard, _) in enumerate(left):
                first.setdefault(shard, index)
            free = [shard for shard in first if not any(parent in first for parent in self._ancestors(shard))]
            found.append(left.pop(first[rng.choice(free)]))
        return found

    def _ancestors(self, shard: str) -> list[str]:
        parent = self.parents[shard]
        return [] if parent is None else [parent, *self._ancestors(parent)]


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 1_000_000), many=st.integers(2, 60), most=st.integers(1, 60))
def test_any_position_of_any_process_is_followed_by_all_changes_or_too_old(seed: int, many: int, most: int) -> None:
    rng = random.Random(seed)
    stream = Stream(rng, many)
    here, elsewhere = list[LogEntry](), list[LogEntry]()
    kept, other = replay_log(here, max_changes=most), replay_log(elsewhere)
    for one in (kept, other):
        one.start_epoch("arn", {"a": "", "b": ""}, {"a": None, "b": None}, NOW)
        stream.deliver_to(one, rng)
    everything = {number for _, number in stream.written}
    for count, entry in enumerate(elsewhere, 1):
        seen = {one.sequence for one in elsewhere[:count]}
        found = replayed_after(kept, decode(entry.token.encode()))
        dropped = {one.sequence for one in here[:-most]}
        if found is None:
            assert dropped - seen
        else:
            assert set(found) == everything - seen
            assert len(found) == len(set(found))
    assert [replayed_after(kept, entry.token) for entry in here[-most:]] == [
        [one.sequence for one in here[index:]] for index in range(len(here) - len(here[-most:]) + 1, len(here) + 1)
    ]


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 1_000_000), many=st.integers(2, 4 * MOVES))
def test_a_token_does_not_depend_on_the_time_at_which_it_is_encoded(seed: int, many: int) -> None:
    """Subscribers encode tokens later than they arrive, and in another order: some execute events faster."""
    rng = random.Random(seed)
    expected, published = list[bytes](), list[LogEntry]()
    early = ReplayLog(Older(nothing), on_publish=lambda entry: expected.append(entry.token.encode()))
    late = replay_log(published)
    for log in (early, late):
        log.start_epoch("arn", {"a": "", "b": ""}, {"a": None, "b": None}, NOW)
    started = early.last_token.encode(), late.last_token
    for number in range(1, many):
        shard, change = rng.choice("ab"), numbered_change(number)
        early.deliver(shard, change)
        late.deliver(shard, change)
    order = list(zip(published, expected, strict=True))
    rng.shuffle(order)
    assert all(entry.token.encode() == token for entry, token in order)
    assert started[1].encode() == started[0]


@settings(max_examples=200, deadline=None)
@given(
    positions=st.dictionaries(
        st.binary(min_size=6, max_size=6),
        st.one_of(
            st.just(""),
            st.text("0123456789", min_size=1, max_size=40),
            st.builds(idle, st.text(max_size=8), st.integers(0, 2**32 - 1)),
        ),
        max_size=MAX_SHARDS,
    ),
    time=st.integers(0, 2**32 - 1),
)
def test_a_position_is_decoded_to_what_was_encoded(positions: dict[bytes, str], time: int) -> None:
    place = ResumeToken.at(STREAM, time, positions)
    again = decode(place.encode())
    assert (again.stream, again.time, again.positions) == (STREAM, time, positions)
    assert again == place
    assert hash(again) == hash(place)


def test_a_position_is_small() -> None:
    key = bytes(5)
    of_aws = {key + bytes((number,)): "4" * 21 for number in range(MAX_SHARDS)}
    assert len(ResumeToken.at(STREAM, NOW, of_aws).encode()) == 11 + 16 * MAX_SHARDS
    assert len(ResumeToken.at(STREAM, NOW, {**of_aws, b"others": "1"}).encode()) == 11


@pytest.mark.parametrize("cut", range(1, 40))
def test_truncated_bytes_are_refused_or_another_position(cut: int) -> None:
    whole = ResumeToken.at(STREAM, NOW, {b"shard1": "0" * 17 + "4309", b"shard2": "7"}).encode()
    try:
        place = decode(whole[:-cut])
    except ValueError:
        return
    assert place.encode() == whole[:-cut]


@pytest.mark.parametrize("bounds", [{"max_bytes": 2000}, {"kept_seconds": 10.0}])
def test_the_log_is_bounded_by_bytes_and_age(bounds: dict[str, float]) -> None:
    before = sum(type(value) is Change for value in gc.get_objects())
    published: list[LogEntry] = []
    seconds = iter(range(1000))
    kept = replay_log(published, clock=lambda: float(next(seconds)), **bounds)  # type: ignore[arg-type]
    kept.start_epoch("arn", {"s": ""}, {"s": None}, NOW)
    for number in range(100):
        kept.deliver("s", numbered_change(number + 1))
    assert replayed_after(kept, published[0].token) is None
    assert replayed_after(kept, published[-2].token) == [100]
    published.clear()
    assert sum(type(value) is Change for value in gc.get_objects()) < 12 + before


def test_positions_of_the_previous_stream_are_unknown() -> None:
    published: list[LogEntry] = []
    kept = replay_log(published)
    kept.start_epoch("arn", {"s": ""}, {"s": None}, NOW)
    kept.deliver("s", numbered_change(5))
    kept.start_epoch("arn of another", {"s": ""}, {"s": None}, NOW)
    kept.deliver("s", numbered_change(1))
    assert kept.number_of(published[0].token) is None
    assert replayed_after(kept, published[1].token) == []


def test_an_ended_shard_is_not_named_after_a_child_has_started() -> None:
    kept = replay_log([])
    kept.start_epoch("arn", {"s": "3"}, {"s": None}, NOW)
    kept.start_shard("c", "s")
    kept.start_shard("d", "s")
    assert kept.last_token.positions == {key_of("arn", "c"): "", key_of("arn", "d"): ""}
    kept.deliver("d", numbered_change(9), parent="s")
    assert kept.last_token.positions == {key_of("arn", "c"): "", key_of("arn", "d"): "9"}


async def test_older_changes_are_read_once_for_all_waiters() -> None:
    kept, older = started_log(all_before)
    sequences = (94, 95, 96, 94)
    await asyncio.gather(*[kept.load_from(token_at(sequence)) for sequence in sequences])
    assert older.asked == [(94, 100)]
    kept.deliver("s", numbered_change(101))
    for sequence in sequences:
        assert replayed_after(kept, token_at(sequence)) == [*range(sequence + 1, 102)]


async def test_a_backfill_joins_the_log_although_some_of_its_entries_are_dropped() -> None:
    kept, _ = started_log(all_before, max_changes=3)
    for number in (101, 102):
        kept.deliver("s", numbered_change(number))
    assert await kept.load_from(token_at(98)) is not None
    assert replayed_after(kept, token_at(98)) == [99, 100, 101, 102]
    kept.deliver("s", numbered_change(103))  # 100 is dropped, and the backfill did not include it
    assert replayed_after(kept, token_at(98)) == [99, 100, 101, 102, 103]


async def test_only_missing_changes_are_read_for_a_client_further_back() -> None:
    kept, older = started_log(all_before)
    for sequence in (95, 90, 97, 85):
        assert await kept.load_from(token_at(sequence)) is not None
        assert replayed_after(kept, token_at(sequence)) == [*range(sequence + 1, 101)]
    assert older.asked == [(95, 100), (90, 96), (85, 91)]


async def test_a_client_behind_continues_while_older_changes_are_read_for_another() -> None:
    kept, _ = started_log(all_before)
    number = await kept.load_from(token_at(95))
    assert number is not None
    generation, first = kept.generation, kept.after(number, 2, kept.generation)
    assert first is not None
    await kept.load_from(token_at(90))
    assert kept.after(first[-1].number, 2, generation) is None
    assert replayed_after(kept, token_at(97)) == [98, 99, 100]


async def test_changes_read_again_are_bounded_by_bytes() -> None:
    def read(one: MissingRange) -> list[Change]:
        return [big(number) for number in range(int(one.start) + 1, one.before() or 0)]

    kept, _ = started_log(read, max_bytes=20_000)
    assert await kept.load_from(token_at(95)) is not None
    assert await kept.load_from(token_at(50)) is None
    assert replayed_after(kept, token_at(95)) == [*range(96, 101)]


async def test_a_position_that_is_too_old_affects_no_other_and_is_read_for_once() -> None:
    kept, older = started_log(lambda one: None if int(one.start) < 80 else all_before(one))
    sequences = [10, 90, 20, 85, 30]
    found = await asyncio.gather(*[kept.load_from(token_at(sequence)) for sequence in sequences])
    assert [number is not None for number in found] == [False, True, False, True, False]
    assert len(older.asked) < 2 * len(sequences)
    older.asked.clear()
    for sequence in range(30):
        assert await kept.load_from(token_at(sequence)) is None
    assert older.asked == []


async def test_the_subscriber_pays_for_changes_read_again() -> None:
    kept, _ = started_log()
    charged: list[float] = []
    assert await kept.load_from(token_at(100), charged.append) is not None
    assert charged == []
    assert await kept.load_from(token_at(50), charged.append) is None
    assert len(charged) == 1


async def wait_forever() -> None:
    await asyncio.Event().wait()


async def test_a_closed_log_ends_all_waits() -> None:
    kept, older = started_log(lambda _: wait_forever())
    waiting = asyncio.create_task(kept.load_from(token_at(50)))
    await until(lambda: bool(older.asked))
    await kept.aclose()
    async with asyncio.timeout(50):
        with pytest.raises(Unavailable):
            await waiting
    with pytest.raises(Unavailable):
        await kept.load_from(token_at(50))


async def test_a_subscriber_that_waits_for_the_stream_keeps_the_position() -> None:
    is_away = True

    def read(one: MissingRange) -> list[Change]:
        if is_away:
            raise Unavailable("It is away.")
        return all_before(one)

    kept, _ = started_log(read)
    outcomes = await asyncio.gather(
        *[kept.load_from(token_at(sequence)) for sequence in (50, 60)], return_exceptions=True
    )
    assert [type(problem) for problem in outcomes] == [Unavailable, Unavailable]
    is_away = False
    assert await kept.load_from(token_at(50)) is not None  # the log has forgotten the shard


async def test_a_subscriber_that_waits_too_long_keeps_the_position(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log, "REACH_SECONDS", 0.02)
    kept, _ = started_log(lambda _: wait_forever())
    with pytest.raises(Unavailable):
        await kept.load_from(token_at(50))
    await kept.aclose()


async def test_positions_that_the_stream_refuses_affect_no_others() -> None:
    def read(one: MissingRange) -> list[Change]:
        if int(one.start) in range(60, 100):
            raise ResumeTokenRefused(one.key)
        return all_before(one)

    kept, _ = started_log(read)
    refused = [kept.load_from(token_at(sequence)) for sequence in range(60, 100)]
    assert await asyncio.gather(*refused) == [None] * 40
    async with asyncio.timeout(20):
        assert await kept.load_from(token_at(50)) is not None


@pytest.mark.parametrize("is_delivered", [True, False])
async def test_a_subscriber_behind_the_replay_log_learns_when_it_is_trimmed(is_delivered: bool) -> None:
    kept = ReplayLog(Older(all_before), kept_seconds=0.02)
    kept.start_epoch("arn", {"s": "99"}, {"s": None}, NOW)
    if is_delivered:
        kept.deliver("s", numbered_change(100))
    assert await kept.load_from(token_at(50)) is not None
    generation = kept.generation
    await until(lambda: kept._older is None)
    assert kept.after(-40, 5, generation) is None
    assert replayed_after(kept, token_at(53)) is None
    assert replayed_after(kept, token_at(99)) == [100] * is_delivered
    assert await kept.load_from(token_at(50)) is not None
    assert replayed_after(kept, token_at(53)) == [*range(54, 100), *[100] * is_delivered]


async def test_a_joined_shard_takes_the_position_of_other_processes_once_it_has_answered() -> None:
    """Otherwise a client that resumes there would receive the records before the first answer twice."""
    kept = ReplayLog(Older(lambda _: []))
    kept.start_epoch("arn", {"s": joined("o", "iterator")}, {"s": None}, NOW)
    waiting = asyncio.create_task(kept.load_from(token_at(50)))
    for _ in range(change_log.EMPTY_READS):
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        kept.read_empty("s")
    assert await waiting is not None
    assert kept.last_token.positions == {S: "50"}


async def test_a_reader_that_begins_before_the_position_of_others_delivers_nothing_twice() -> None:
    """A reader does so when the iterator of a shard that it joined at the end has expired."""
    published: list[LogEntry] = []
    kept = ReplayLog(Older(lambda _: []), on_publish=published.append)
    kept.start_epoch("arn", {"s": joined("o", "iterator")}, {"s": None}, NOW)
    waiting = asyncio.create_task(kept.load_from(token_at(50)))
    while not waiting.done():
        await asyncio.sleep(0)
        kept.read_empty("s")
    for number in (49, 50, 51):
        kept.deliver("s", numbered_change(number))
    assert [entry.sequence for entry in published] == [51]


async def test_records_of_a_joined_shard_before_its_first_answer_are_delivered_once() -> None:
    kept = ReplayLog(Older(lambda _: [numbered_change(51)]))
    kept.start_epoch("arn", {"s": joined("o", "iterator")}, {"s": None}, NOW)
    waiting = asyncio.create_task(kept.load_from(token_at(50)))
    for _ in range(20):
        await asyncio.sleep(0)
    kept.deliver("s", numbered_change(51))
    assert await waiting is not None
    assert replayed_after(kept, token_at(50)) == [51]


async def test_a_shard_that_is_newer_than_the_last_listing_is_no_reason_to_start_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(change_log, "LISTED_SECONDS", 0.01)
    listed: dict[str, str | None] = {"s": None}
    older = Older(nothing)
    monkeypatch.setattr(older, "shards", lambda stream: asyncio.sleep(0, dict(listed)))
    kept = ReplayLog(older)
    kept.start_epoch("arn", {"s": "99"}, {"s": None}, NOW)
    unknown = ResumeToken.at(STREAM, NOW, {key_of("arn", "child"): "100"})
    assert await kept.load_from(unknown) is None
    listed["child"] = "s"
    waiting = asyncio.create_task(kept.load_from(unknown))
    await until(lambda: key_of("arn", "child") in kept.parents)
    assert not waiting.done()  # the process has not read so far
    kept.start_shard("child", "s")
    for number in (100, 101):
        kept.deliver("child", numbered_change(number))
    assert await waiting is not None
    assert replayed_after(kept, unknown) == [101]
