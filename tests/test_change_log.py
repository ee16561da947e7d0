"""The log of a table against a plain list: whoever goes on after any change gets all that came after it, or is told."""

import asyncio
import gc
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datastore import change_log
from datastore.change_log import Before, Entry, Log, PlaceRefused
from datastore.errors import BadUserInput, Unavailable
from datastore.places import Place, place_from
from datastore.streams import Change


def change(sequence: int) -> Change:
    return Change("t", "INSERT", {"pk": "k"}, None, {"n": sequence}, str(sequence), datetime.now(UTC), False)


async def no_older(stream: str, shard: str, after: int, before: Before) -> list[Change] | None:
    return None


def log(published: list[Entry], **bounds: float) -> Log:
    return Log(published.append, lambda _: None, no_older, **bounds)  # type: ignore[arg-type]


def told_after(log: Log, number: int) -> list[int] | None:
    """All that comes after, three at a time."""
    found: list[int] = []
    while entries := log.after(number, 3):
        found += [int(entry.change.sequence) for entry in entries]
        number = entries[-1].number
    return None if entries is None else found


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110 - a plain value
            await asyncio.sleep(0.002)


@settings(max_examples=200, deadline=None)
@given(
    shards=st.lists(st.integers(0, 2), max_size=40),
    is_single=st.booleans(),
    most=st.integers(1, 50),
    orders=st.sets(st.integers(0, 40)),
)
def test_what_follows_any_change_is_all_there_is_or_too_old(
    shards: list[int], is_single: bool, most: int, orders: set[int]
) -> None:
    published: list[Entry] = []
    kept = log(published, most_changes=most)
    kept.begin("o", "arn", single="s0" if is_single else None)
    for number, shard in enumerate(shards):
        if number in orders:
            kept.begin(f"o{number}", "arn", single="s0" if is_single else None)
        kept.tell("s0" if is_single else f"s{shard}", change(number * 7 + 1))
    sequences = [int(entry.change.sequence) for entry in published]
    assert sequences == [number * 7 + 1 for number in range(len(shards))]
    for index, entry in enumerate(published):
        place = kept.number_of(place_from(str(entry.place)))
        is_kept = index >= len(published) - most - 1
        assert (place is not None) is is_kept
        if place is not None:
            assert told_after(kept, place) == sequences[index + 1 :]


@pytest.mark.parametrize("bounds", [{"most_bytes": 2000}, {"kept_seconds": 10.0}])
def test_it_is_bounded_by_bytes_and_by_age(bounds: dict[str, float]) -> None:
    before = sum(isinstance(one, Change) for one in gc.get_objects())
    published: list[Entry] = []
    seconds = iter(range(1000))
    kept = log(published, clock=lambda: float(next(seconds)), **bounds)  # type: ignore[arg-type]
    kept.begin("o", "arn", single="s")
    for number in range(100):
        kept.tell("s", change(number + 1))
    assert kept.number_of(published[0].place) is None
    assert told_after(kept, published[-2].number) == [100]
    published.clear()
    assert sum(isinstance(one, Change) for one in gc.get_objects()) < 12 + before


def test_a_place_of_a_single_shard_is_good_whoever_gave_it_the_order() -> None:
    told: list[Entry] = []
    kept, elsewhere = log([]), log(told)
    for one, order in ((kept, "a"), (elsewhere, "b")):
        one.begin(order, "arn", single="s")
        for number in range(3, 9):
            one.tell("s", change(number))
    assert [kept.number_of(entry.place) for entry in told] == [3, 4, 5, 6, 7, 8]
    assert kept.number_of(told[0].place._replace(sequence=20)) == 20  # that process is further on
    assert kept.number_of(told[0].place._replace(sequence=2)) is None
    assert kept.number_of(Place("a", "0", 0)) == 0


@pytest.mark.parametrize("single", ["s", None])
def test_another_stream_knows_no_place_of_the_one_before(single: str | None) -> None:
    published: list[Entry] = []
    kept = log(published)
    kept.begin("o", "arn", single=single)
    kept.tell("s", change(5))
    kept.begin("p", "arn of another", single=single)
    kept.tell("s", change(1))
    assert kept.number_of(published[0].place) is None
    assert kept.number_of(published[1].place) == 1


def test_the_places_before_a_split_are_good_after_it() -> None:
    published: list[Entry] = []
    kept = log(published)
    kept.begin("o", "arn", single="s")
    kept.tell("s", change(5))
    kept.begin("o", "arn", single=None)
    kept.tell("child", change(7))
    kept.tell("other child", change(6))
    number = kept.number_of(published[0].place)
    assert number is not None
    assert told_after(kept, number) == [7, 6]


async def test_what_is_older_is_read_once_for_all_who_wait() -> None:
    asked: list[tuple[int, int | None]] = []

    async def read(stream: str, shard: str, after: int, before: Before) -> list[Change] | None:
        asked.append((after, before()))
        await asyncio.sleep(0)
        return [change(number) for number in range(after + 1, before() or 12)]

    published: list[Entry] = []
    kept = Log(published.append, lambda _: None, read)
    kept.begin("o", "arn", single="s")
    kept.tell("s", change(10))
    places = [published[0].place._replace(order="x", sequence=number) for number in (4, 5, 6, 4)]
    numbers = await asyncio.gather(*map(kept.reach, places))
    assert numbers == [4, 5, 6, 4]
    assert asked == [(4, 10)]
    kept.tell("s", change(11))
    assert [told_after(kept, number) for number in numbers if number] == [
        [5, 6, 7, 8, 9, 10, 11],
        [6, 7, 8, 9, 10, 11],
        [7, 8, 9, 10, 11],
        [5, 6, 7, 8, 9, 10, 11],
    ]


async def test_what_was_read_again_leads_on_to_what_is_kept_though_some_of_that_is_dropped() -> None:
    async def read(stream: str, shard: str, after: int, before: Before) -> list[Change] | None:
        return [change(number) for number in range(after + 1, before() or 0)]

    published: list[Entry] = []
    kept = Log(published.append, lambda _: None, read, most_changes=3)
    kept.begin("o", "arn", single="s")
    for number in (10, 11, 12):
        kept.tell("s", change(number))
    place = published[0].place._replace(sequence=8)
    assert await kept.reach(place) == 8
    assert told_after(kept, 8) == [9, 10, 11, 12]
    kept.tell("s", change(13))  # 10 is dropped, and was not among what was read
    assert kept.number_of(place) == 8
    assert told_after(kept, 8) == [9, 10, 11, 12, 13]


async def test_what_was_read_beyond_what_was_told_comes_once() -> None:
    async def read(stream: str, shard: str, after: int, before: Before) -> list[Change] | None:
        return [change(number) for number in range(after + 1, 8)]

    kept = Log(lambda _: None, lambda _: None, read)
    kept.begin("o", "arn", single="s")
    number = await kept.reach(Place("x", kept._hash("s"), 3))
    assert number == 3
    for sequence in (6, 7, 8):
        kept.tell("s", change(sequence))
    assert told_after(kept, number) == [4, 5, 6, 7, 8]


def big(sequence: int) -> Change:
    return Change("t", "INSERT", {"pk": "k"}, None, {"t": "x" * 1000}, str(sequence), datetime.now(UTC), False)


def holding(read: Any, **bounds: float) -> tuple[Log, Callable[[int], Place]]:
    """A log of a single shard that begins with change 100, and the places of that shard."""
    kept = Log(lambda _: None, lambda _: None, read, **bounds)  # type: ignore[arg-type]
    kept.begin("o", "arn", single="s")
    kept.tell("s", change(100))
    return kept, lambda sequence: kept.last_place._replace(sequence=sequence)


async def test_only_what_is_missing_is_read_again_for_who_wants_more() -> None:
    asked: list[tuple[int, int | None]] = []

    async def read(stream: str, shard: str, after: int, before: Before) -> list[Change] | None:
        asked.append((after, before()))
        return [change(number) for number in range(after + 1, before() or 0)]

    kept, place = holding(read)
    for sequence in (95, 90, 97, 85):
        assert await kept.reach(place(sequence)) == sequence
        assert told_after(kept, sequence) == [*range(sequence + 1, 101)]
    assert asked == [(95, 100), (90, 96), (85, 91)]


async def test_what_is_read_again_is_bounded_by_bytes() -> None:
    async def read(stream: str, shard: str, after: int, before: Before) -> list[Change] | None:
        return [big(number) for number in range(after + 1, before() or 0)]

    kept, place = holding(read, most_bytes=20_000)
    assert await kept.reach(place(95)) == 95
    assert await kept.reach(place(50)) is None
    assert told_after(kept, 95) == [*range(96, 101)]


async def test_a_place_that_is_too_old_spoils_no_other_and_is_read_for_once() -> None:
    asked: list[int] = []

    async def read(stream: str, shard: str, after: int, before: Before) -> list[Change] | None:
        asked.append(after)
        await asyncio.sleep(0)
        return None if after < 80 else [change(number) for number in range(after + 1, before() or 0)]

    kept, place = holding(read)
    wanted = [10, 90, 20, 85, 30]
    assert await asyncio.gather(*[kept.reach(place(sequence)) for sequence in wanted]) == [None, 90, None, 85, None]
    assert len(asked) < 2 * len(wanted)
    asked.clear()
    for sequence in range(30):
        assert await kept.reach(place(sequence)) is None
    assert asked == []


async def test_who_has_it_read_again_is_charged() -> None:
    kept, place = holding(no_older)
    charged: list[float] = []
    assert await kept.reach(place(100), charged.append) == 100
    assert charged == []
    assert await kept.reach(place(50), charged.append) is None
    assert len(charged) == 1


async def test_nobody_waits_for_a_log_that_is_closed() -> None:
    async def hanging(stream: str, shard: str, after: int, before: Before) -> list[Change] | None:
        await asyncio.Event().wait()
        return None

    kept, place = holding(hanging)
    waiting = asyncio.create_task(kept.reach(place(50)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await kept.aclose()
    async with asyncio.timeout(5):
        with pytest.raises(Unavailable):
            await waiting
    with pytest.raises(Unavailable):
        await kept.reach(place(50))


async def test_who_waits_while_the_stream_cannot_be_read_keeps_the_place() -> None:
    is_away = True

    async def read(stream: str, shard: str, after: int, before: Before) -> list[Change] | None:
        if is_away:
            raise Unavailable("It is away.")
        return await all_before(stream, shard, after, before)

    kept, place = holding(read)
    told = await asyncio.gather(*[kept.reach(place(sequence)) for sequence in (50, 60)], return_exceptions=True)
    assert [type(problem) for problem in told] == [Unavailable, Unavailable]
    is_away = False
    assert await kept.reach(place(50)) == 50  # nothing is remembered of it


async def test_who_waits_too_long_keeps_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hanging(stream: str, shard: str, after: int, before: Before) -> list[Change] | None:
        await asyncio.Event().wait()
        return None

    monkeypatch.setattr(change_log, "REACH_SECONDS", 0.02)
    kept, place = holding(hanging)
    with pytest.raises(Unavailable):
        await kept.reach(place(50))
    await kept.aclose()


async def test_an_invented_place_spoils_no_older_one() -> None:
    async def read(stream: str, shard: str, after: int, before: Before) -> list[Change] | None:
        await asyncio.sleep(0)
        if after in range(60, 100):
            raise PlaceRefused
        return await all_before(stream, shard, after, before)

    kept, place = holding(read)
    invented = [kept.reach(place(sequence)) for sequence in range(60, 100)]
    assert await asyncio.gather(*invented, return_exceptions=True) == [None] * 40
    async with asyncio.timeout(0.5):
        assert await kept.reach(place(50)) == 50


@pytest.mark.parametrize("text", ["", "a", "a.b", "a..c", "a.b.C", "a.b.c.d", "a.b.-1", "a.b.c ", "a.b." + "z" * 40])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(BadUserInput):
        place_from(text)


async def all_before(stream: str, shard: str, after: int, before: Before) -> list[Change] | None:
    return [change(number) for number in range(after + 1, before() or 100)]


@pytest.mark.parametrize("is_told", [True, False])
async def test_who_is_behind_in_what_was_read_again_is_told_when_that_is_forgotten(is_told: bool) -> None:
    kept = Log(lambda _: None, lambda _: None, all_before, kept_seconds=0.02)
    kept.begin("o", "arn", single="s")
    place = Place("x", kept._hash("s"), 50)
    assert await kept.reach(place) == 50
    if is_told:
        kept.tell("s", change(100))
    await until(lambda: kept._older is None)
    assert kept.after(53, 5) is None
    assert told_after(kept, 99) == [100] * is_told
    assert await kept.reach(place) == 50
    assert told_after(kept, 53) == [*range(54, 100), *[100] * is_told]


async def test_what_is_read_for_one_more_leaves_the_others_where_they_are() -> None:
    kept, place = holding(all_before)
    assert await kept.reach(place(95)) == 95
    assert await kept.reach(place(90)) == 90
    assert told_after(kept, 95) == [96, 97, 98, 99, 100]


@pytest.mark.parametrize("is_adopted", [True, False])
def test_where_an_order_began_stays_where_it_was_when_a_shard_ends(is_adopted: bool) -> None:
    kept = log([])
    kept.begin("o", "arn", single="s", is_new=not is_adopted)
    began = Place("o", "0", 0)
    for sequence in range(3, 9):
        kept.tell("s", change(sequence))
    kept.begin("o", "arn", single=None)
    kept.tell("child", change(9))
    assert kept.number_of(began) == (None if is_adopted else 0)
    if not is_adopted:
        assert told_after(kept, 0) == [*range(3, 10)]


async def test_a_log_that_is_told_where_it_begins_names_that_place_and_is_read_up_to_it() -> None:
    asked: list[int | None] = []

    async def read(stream: str, shard: str, after: int, before: Before) -> list[Change] | None:
        asked.append(before())
        return await all_before(stream, shard, after, before)

    kept = Log(lambda _: None, lambda _: None, read)
    kept.begin("o", "arn", single="s", is_new=False, at=50)
    began = kept.last_place
    assert (began.sequence, kept.number_of(began)) == (50, 50)
    kept.begin("p", "arn", single="s")  # as the bus is away
    assert kept.last_place == began
    assert await kept.reach(began._replace(order="x", sequence=47)) == 47
    kept.tell("s", change(51))
    assert told_after(kept, 47) == [48, 49, 50, 51]
    assert asked == [51]


async def test_who_comes_first_to_a_log_that_begins_in_the_middle_is_known_elsewhere() -> None:
    here, elsewhere = log([]), log([])
    here.begin("o", "arn", single="s", is_new=False, at=50)
    elsewhere.begin("q", "arn", single="s", at=50)
    assert elsewhere.number_of(here.last_place) == 50
    for sequence in (51, 52):
        elsewhere.tell("s", change(sequence))
    assert told_after(elsewhere, 50) == [51, 52]
