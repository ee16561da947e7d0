"""`livestreamChanged`: livestreams as they are changed, and as they begin and end by the clock (SPARKS-S1)."""

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest

from datastore.errors import Unavailable
from datastore.keyspace.photos.table import SPARKS
from datastore.model.composite_keys import Key
from datastore.photos import livestreams
from datastore.photos.livestreams import Livestream, LivestreamSchedule
from tests.support.livestreams import END, admin, announce, change_livestream, iso_after_noon
from tests.support.photo_items import WRITTEN, face, livestream, person, photo, photo_user, put_library_items
from tests.support.served import NOON, Clock, Listener, Served

FIELDS = "{ title state startTime endTime }"


@pytest.fixture(autouse=True)
def watchful(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the tests is moved, and not waited for."""
    monkeypatch.setattr(livestreams, "MAX_SLEEP_SECONDS", 0.02)


async def listen(served: Served, id: str | None = None, when_slow: str = "CLOSE", followers: int = 1) -> Listener:
    only = "" if id is None else f'id: "{id}", '
    listener = await served.listen(f"subscription {{ livestreamChanged({only}whenSlow: {when_slow}) {FIELDS} }}")
    await served.settle(SPARKS, followers)
    return listener


async def next_title_and_state(listener: Listener) -> tuple[str, str]:
    event = (await listener.event())["livestreamChanged"]
    return event["title"], event["state"]


async def all_ready(served: Served, *listeners: Listener) -> None:
    """Wait until what was there at the start is known to all: only then the clock may be moved."""
    await announce(served, title="Ready", startTime=iso_after_noon(days=300), endTime=None)
    assert [await next_title_and_state(listener) for listener in listeners] == [("Ready", "UPCOMING")] * len(listeners)


async def rest(served: Served, *listeners: Listener) -> list[tuple[str, str]]:
    """What is told until a livestream that is announced now comes last: that one left out."""
    await announce(served, title="Last", startTime=iso_after_noon(days=300), endTime=None)
    found = []
    for listener in listeners:
        while (event := await next_title_and_state(listener)) != ("Last", "UPCOMING"):
            found.append(event)
    return found


async def test_a_livestream_is_sent_when_it_is_announced_changed_and_ended(served: Served) -> None:
    listener = await listen(served)

    made = await announce(served)
    events = [(await listener.event())["livestreamChanged"]]
    await change_livestream(served, made["livestreamId"], title="Closing", startTime=iso_after_noon(minutes=-1))
    events.append((await listener.event())["livestreamChanged"])
    await admin(served, END, id=made["livestreamId"])
    events.append((await listener.event())["livestreamChanged"])

    first = {
        "title": "Opening",
        "state": "UPCOMING",
        "startTime": iso_after_noon(hours=1),
        "endTime": iso_after_noon(hours=2),
    }
    second = first | {"title": "Closing", "state": "LIVE", "startTime": iso_after_noon(minutes=-1)}
    assert events == [first, second, second | {"state": "ENDED", "endTime": iso_after_noon()}]


async def test_each_subscriber_receives_the_start_and_the_end_of_a_livestream_once(
    served: Served,
) -> None:
    await put_library_items(
        served,
        livestream("a", NOON + timedelta(hours=1), NOON + timedelta(hours=3)),
        livestream("over", NOON - timedelta(hours=1), NOON),
        livestream("open", NOON - timedelta(hours=1)),
    )
    listeners = [await listen(served), await listen(served, followers=2)]
    await announce(served, startTime=iso_after_noon(hours=2), endTime=iso_after_noon(hours=4))
    events = [[await next_title_and_state(listener)] for listener in listeners]

    for _ in range(4):
        served.clock.forward(hours=1)
        for listener, heard in zip(listeners, events, strict=True):
            heard.append(await next_title_and_state(listener))

    expected = [
        ("Opening", "UPCOMING"),
        ("Livestream a", "LIVE"),
        ("Opening", "LIVE"),
        ("Livestream a", "ENDED"),
        ("Opening", "ENDED"),
    ]
    assert events == [expected, expected]
    assert await rest(served, *listeners) == []


async def test_of_a_livestream_that_began_and_ended_between_reads_the_end_is_sent(served: Served) -> None:
    await put_library_items(served, livestream("a", NOON + timedelta(hours=1), NOON + timedelta(hours=2)))
    listener = await listen(served)
    await all_ready(served, listener)

    served.clock.forward(hours=3)

    assert await next_title_and_state(listener) == ("Livestream a", "ENDED")
    assert await rest(served, listener) == []


async def test_the_times_before_a_change_are_not_sent(served: Served) -> None:
    await put_library_items(served, livestream("a", NOON + timedelta(hours=1), NOON + timedelta(hours=2)))
    listener = await listen(served)
    await change_livestream(served, "a", startTime=iso_after_noon(hours=5), endTime=iso_after_noon(hours=6))
    events = [await next_title_and_state(listener)]

    served.clock.forward(hours=3)
    events += await rest(served, listener)
    served.clock.forward(hours=2)
    events.append(await next_title_and_state(listener))
    await change_livestream(served, "a", endTime=None)
    events.append(await next_title_and_state(listener))
    served.clock.forward(hours=2)
    events += await rest(served, listener)

    assert events == [("Livestream a", state) for state in ("UPCOMING", "LIVE", "LIVE")]


async def test_one_alone_comes_as_it_stands_and_then_as_it_changes_and_passes(served: Served) -> None:
    made = await announce(served)
    listener = await listen(served, made["livestreamId"])
    await announce(served, title="Other")

    events = [await next_title_and_state(listener)]
    served.clock.forward(hours=1)
    events.append(await next_title_and_state(listener))
    await change_livestream(served, made["livestreamId"], title="Still on")
    events.append(await next_title_and_state(listener))
    served.clock.forward(hours=1)
    events.append(await next_title_and_state(listener))

    assert events == [("Opening", "UPCOMING"), ("Opening", "LIVE"), ("Still on", "LIVE"), ("Still on", "ENDED")]


async def test_an_unknown_one_is_not_found(served: Served) -> None:
    listener = await served.listen(f'subscription {{ livestreamChanged(id: "gone") {FIELDS} }}')

    message = await listener.message()

    assert (message["type"], message["payload"][0]["extensions"]["code"]) == ("error", "NOT_FOUND")


@pytest.mark.parametrize("when_slow", ["CLOSE", "LATEST"])
async def test_a_change_during_a_read_is_sent_once(
    served: Served, when_slow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The subscriber follows, two changes are published, then the livestream is read, then two more are published."""
    id = (await announce(served))["livestreamId"]
    read = livestreams.Livestreams.one_at_start
    may_read, has_read, may_begin = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def read_late(self: livestreams.Livestreams, livestream_id: str) -> Any:
        await may_read.wait()
        found = await read(self, livestream_id)
        has_read.set()
        await may_begin.wait()
        return found

    async def publish(*titles: str) -> None:
        for title in titles:
            await change_livestream(served, id, title=title)
        assert [await next_title_and_state(witness) for _ in titles] == [(title, "UPCOMING") for title in titles]

    monkeypatch.setattr(livestreams.Livestreams, "one_at_start", read_late)
    witness = await listen(served)
    listener = await listen(served, id, when_slow, followers=2)
    await publish("Second", "Third")
    may_read.set()
    await has_read.wait()
    await publish("Fourth", "Fifth")
    may_begin.set()

    events = [await next_title_and_state(listener)]
    while events[-1] != ("Fifth", "UPCOMING"):
        events.append(await next_title_and_state(listener))
    await publish("Sixth")
    events.append(await next_title_and_state(listener))
    served.clock.forward(hours=1)
    events.append(await next_title_and_state(listener))

    waited = {"CLOSE": ["Fourth", "Fifth"], "LATEST": ["Fifth"]}[when_slow]
    assert events == [*[(title, "UPCOMING") for title in ("Third", *waited, "Sixth")], ("Sixth", "LIVE")]


async def test_a_livestream_is_read_again_when_the_change_after_the_read_is_lost(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is read at first is as no change will find it; the first time that it is read anew, that fails."""
    id = (await announce(served))["livestreamId"]
    read, reads, has_failed = livestreams.Livestreams.one_at_start, 0, asyncio.Event()

    async def read_otherwise(self: livestreams.Livestreams, livestream_id: str) -> Any:
        nonlocal reads
        reads += 1
        if reads == 2:
            has_failed.set()
            raise Unavailable("Not now.")
        item, found = await read(self, livestream_id)
        return (item | {"title": "Lost"}, found) if reads == 1 else (item, found)

    async def publish(*titles: str) -> None:
        for title in titles:
            await change_livestream(served, id, title=title)
        assert [(await next_title_and_state(witness))[0] for _ in titles] == list(titles)

    monkeypatch.setattr(livestreams.Livestreams, "one_at_start", read_otherwise)
    witness = await listen(served)
    listener = await listen(served, id, followers=2)
    assert await next_title_and_state(listener) == ("Opening", "UPCOMING")

    for title in "123":
        await publish(title)
    await asyncio.wait_for(has_failed.wait(), 50)
    for title in "456":
        await publish(title)
    events = [await next_title_and_state(listener)]
    await publish("7")
    served.clock.forward(hours=1)
    events += [await next_title_and_state(listener), await next_title_and_state(listener)]

    assert events == [("6", "UPCOMING"), ("7", "UPCOMING"), ("7", "LIVE")]
    assert (reads, "could not be read for its subscriber (UNAVAILABLE)" in caplog.text) == (3, True)


async def test_changes_of_other_items_are_neither_sent_nor_logged(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    listener = await listen(served)
    await all_ready(served, listener)

    await put_library_items(
        served,
        photo_user("secret@example.com"),
        photo("i1", "secret@example.com"),
        person("p1"),
        face("f1", "i1", "p1"),
    )
    await put_library_items(served, livestream("damaged", startTime="soon"))

    assert await rest(served, listener) == []
    assert "secret" not in caplog.text
    assert ["damaged" in line for line in caplog.messages if "cannot be read" in line] == [True]


async def test_invisible_changes_and_deletions_are_not_sent(served: Served) -> None:
    there = livestream("a", NOON + timedelta(hours=1))
    await put_library_items(served, there, livestream("b", NOON + timedelta(hours=1)))
    listener = await listen(served)

    await put_library_items(served, there | {"note": "of another program"})
    await served.store().write_all(SPARKS, deletes=[Key("LIVESTREAM#b", f"LIVESTREAM#{WRITTEN}")])
    assert await rest(served, listener) == []
    served.clock.forward(hours=1)

    assert await next_title_and_state(listener) == ("Livestream a", "LIVE")
    assert await rest(served, listener) == []


async def test_a_slow_subscriber_is_disconnected_or_gets_the_newest_of_each(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two subscribers are held up while they begin, and fall behind meanwhile."""
    released, read = asyncio.Event(), livestreams.Livestreams.at_start
    quick = await listen(served)
    await all_ready(served, quick)

    async def read_late(self: livestreams.Livestreams) -> list[Livestream]:
        await released.wait()
        return await read(self)

    monkeypatch.setattr(livestreams.Livestreams, "at_start", read_late)
    monkeypatch.setattr("datastore.queues.MAX_EVENTS", 3)
    slow = await listen(served, followers=2)
    latest = await listen(served, when_slow="LATEST", followers=3)
    id = (await announce(served))["livestreamId"]
    await announce(served, title="Other")
    for title in "ABC":
        await change_livestream(served, id, title=title)
    assert [(await next_title_and_state(quick))[0] for _ in range(5)] == ["Opening", "Other", "A", "B", "C"]
    released.set()

    closing = await slow.message()
    assert (closing["type"], closing["payload"][0]["extensions"]["code"]) == ("error", "SLOW_SUBSCRIBER")
    assert [await next_title_and_state(latest) for _ in range(2)] == [("Other", "UPCOMING"), ("C", "UPCOMING")]
    assert await rest(served, latest) == []


async def test_a_subscriber_that_leaves_stops_the_reading_and_the_waiting(served: Served) -> None:
    before = asyncio.all_tasks()
    listener = await listen(served)
    await all_ready(served, listener)

    services = served.gateway.services
    assert services is not None
    services.changes._linger = 0
    await listener.socket.close()

    async with asyncio.timeout(50):
        while services.changes.followers(SPARKS) or asyncio.all_tasks() - before:  # noqa: ASYNC110 - it tells no event
            await asyncio.sleep(0.01)


async def test_a_subscriber_looks_at_no_clock_while_nothing_is_to_begin_or_end(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[LivestreamSchedule] = []

    def passed(schedule: LivestreamSchedule) -> list[Livestream]:
        looks.append(schedule)
        return []

    monkeypatch.setattr(LivestreamSchedule, "due", passed)
    monkeypatch.setattr(livestreams, "MAX_SLEEP_SECONDS", 60.0)
    listener = await listen(served)

    events = []
    for title in "AB":
        await announce(served, title=title, startTime=iso_after_noon(minutes=-1), endTime=None)
        events.append(await next_title_and_state(listener))

    assert (events, looks) == ([("A", "LIVE"), ("B", "LIVE")], [])


def stream(start: float, end: float | None = None) -> Livestream:
    """One that begins, and ends, so many minutes after noon."""
    ends = None if end is None else NOON + timedelta(minutes=end)
    return Livestream("a", "A", None, "https://example.com", NOON + timedelta(minutes=start), ends, NOON)


def test_no_timer_waits_for_what_only_a_change_can_bring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(livestreams, "MAX_SLEEP_SECONDS", 60.0)
    clock = Clock()
    naps = []
    for start, end in ((-1, None), (-2, 0), (0.5, None), (-1, 0.25), (10, 20)):
        schedule = LivestreamSchedule(clock)
        schedule.publish(stream(start, end))
        naps.append(schedule.sleep_seconds())

    assert naps == [None, None, 30, 15, 60]


def test_a_clock_that_is_set_back_tells_nothing_again() -> None:
    clock = Clock()
    schedule = LivestreamSchedule(clock)
    states = [schedule.publish(stream(1, 2)).state(clock.now)]

    for minutes in (1.0, -0.5, 0.5, 1.0, -1.5):
        clock.forward(minutes=minutes)
        states += [passed.state(clock.now) for passed in schedule.due()]

    assert states == ["upcoming", "live", "ended"]
    assert schedule.sleep_seconds() is None
