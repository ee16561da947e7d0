"""`livestreamChanged`: changes of livestreams, and their scheduled starts and ends (SPARKS-S1)."""

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

FIELDS = "{ title status startTime endTime }"


@pytest.fixture(autouse=True)
def short_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the sleeps of schedules, as tests move the clock instead of waiting."""
    monkeypatch.setattr(livestreams, "MAX_SLEEP_SECONDS", 0.02)


async def listen(served: Served, id: str | None = None, when_slow: str = "CLOSE", followers: int = 1) -> Listener:
    only = "" if id is None else f'id: "{id}", '
    listener = await served.listen(f"subscription {{ livestreamChanged({only}whenSlow: {when_slow}) {FIELDS} }}")
    await served.settle(SPARKS, followers)
    return listener


async def next_title_and_state(listener: Listener) -> tuple[str, str]:
    event = (await listener.event())["livestreamChanged"]
    return event["title"], event["status"]


async def all_ready(served: Served, *listeners: Listener) -> None:
    """Wait until each listener has read the initial livestreams. The clock may be moved only then."""
    await announce(served, title="Ready", startTime=iso_after_noon(days=300), endTime=None)
    assert [await next_title_and_state(listener) for listener in listeners] == [("Ready", "UPCOMING")] * len(listeners)


async def remaining_events(served: Served, *listeners: Listener) -> list[tuple[str, str]]:
    """Announce a last livestream. Return the events that the listeners receive before it."""
    await announce(served, title="Last", startTime=iso_after_noon(days=300), endTime=None)
    found = []
    for listener in listeners:
        while (event := await next_title_and_state(listener)) != ("Last", "UPCOMING"):
            found.append(event)
    return found


async def test_a_livestream_with_an_unescaped_sign_in_its_key_is_sent(served: Served) -> None:
    listener = await listen(served)

    await put_library_items(served, livestream("a#b"))

    assert await next_title_and_state(listener) == ("Livestream a#b", "LIVE")


async def test_a_livestream_is_sent_when_it_is_announced_changed_and_ended(served: Served) -> None:
    listener = await listen(served)

    created = await announce(served)
    events = [(await listener.event())["livestreamChanged"]]
    await change_livestream(served, created["livestreamId"], title="Closing", startTime=iso_after_noon(minutes=-1))
    events.append((await listener.event())["livestreamChanged"])
    await admin(served, END, id=created["livestreamId"])
    events.append((await listener.event())["livestreamChanged"])

    first = {
        "title": "Opening",
        "status": "UPCOMING",
        "startTime": iso_after_noon(hours=1),
        "endTime": iso_after_noon(hours=2),
    }
    second = first | {"title": "Closing", "status": "LIVE", "startTime": iso_after_noon(minutes=-1)}
    assert events == [first, second, second | {"status": "ENDED", "endTime": iso_after_noon()}]


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
        for listener, received in zip(listeners, events, strict=True):
            received.append(await next_title_and_state(listener))

    expected = [
        ("Opening", "UPCOMING"),
        ("Livestream a", "LIVE"),
        ("Opening", "LIVE"),
        ("Livestream a", "ENDED"),
        ("Opening", "ENDED"),
    ]
    assert events == [expected, expected]
    assert await remaining_events(served, *listeners) == []


async def test_only_the_end_of_a_livestream_is_sent_if_its_start_has_passed_too(served: Served) -> None:
    await put_library_items(served, livestream("a", NOON + timedelta(hours=1), NOON + timedelta(hours=2)))
    listener = await listen(served)
    await all_ready(served, listener)

    served.clock.forward(hours=3)

    assert await next_title_and_state(listener) == ("Livestream a", "ENDED")
    assert await remaining_events(served, listener) == []


async def test_the_former_times_of_a_changed_livestream_are_not_sent(served: Served) -> None:
    await put_library_items(served, livestream("a", NOON + timedelta(hours=1), NOON + timedelta(hours=2)))
    listener = await listen(served)
    await change_livestream(served, "a", startTime=iso_after_noon(hours=5), endTime=iso_after_noon(hours=6))
    events = [await next_title_and_state(listener)]

    served.clock.forward(hours=3)
    events += await remaining_events(served, listener)
    served.clock.forward(hours=2)
    events.append(await next_title_and_state(listener))
    await change_livestream(served, "a", endTime=None)
    events.append(await next_title_and_state(listener))
    served.clock.forward(hours=2)
    events += await remaining_events(served, listener)

    assert events == [("Livestream a", state) for state in ("UPCOMING", "LIVE", "LIVE")]


async def test_a_subscriber_of_one_livestream_receives_its_state_changes_start_and_end(served: Served) -> None:
    created = await announce(served)
    listener = await listen(served, created["livestreamId"])
    await announce(served, title="Other")

    events = [await next_title_and_state(listener)]
    served.clock.forward(hours=1)
    events.append(await next_title_and_state(listener))
    await change_livestream(served, created["livestreamId"], title="Still on")
    events.append(await next_title_and_state(listener))
    served.clock.forward(hours=1)
    events.append(await next_title_and_state(listener))

    assert events == [("Opening", "UPCOMING"), ("Opening", "LIVE"), ("Still on", "LIVE"), ("Still on", "ENDED")]


async def test_an_unknown_livestream_is_not_found(served: Served) -> None:
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

    buffered = {"CLOSE": ["Fourth", "Fifth"], "LATEST": ["Fifth"]}[when_slow]
    assert events == [*[(title, "UPCOMING") for title in ("Third", *buffered, "Sixth")], ("Sixth", "LIVE")]


async def test_a_livestream_is_read_again_when_the_change_after_the_read_is_lost(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first read returns a state that no change matches. The first repetition of the read fails."""
    id = (await announce(served))["livestreamId"]
    read, reads, has_failed = livestreams.Livestreams.one_at_start, 0, asyncio.Event()

    async def read_otherwise(self: livestreams.Livestreams, livestream_id: str) -> Any:
        nonlocal reads
        reads += 1
        if reads == 2:
            has_failed.set()
            raise Unavailable("The store is unavailable.")
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

    assert await remaining_events(served, listener) == []
    assert "secret" not in caplog.text
    assert ["damaged" in line for line in caplog.messages if "cannot be read" in line] == [True]


async def test_invisible_changes_and_deletions_are_not_sent(served: Served) -> None:
    stored = livestream("a", NOON + timedelta(hours=1))
    await put_library_items(served, stored, livestream("b", NOON + timedelta(hours=1)))
    listener = await listen(served)

    await put_library_items(served, stored | {"note": "of another program"})
    await served.store().write_all(SPARKS, deletes=[Key("LIVESTREAM#b", f"LIVESTREAM#{WRITTEN}")])
    assert await remaining_events(served, listener) == []
    served.clock.forward(hours=1)

    assert await next_title_and_state(listener) == ("Livestream a", "LIVE")
    assert await remaining_events(served, listener) == []


async def test_a_slow_subscriber_is_disconnected_or_gets_the_newest_event_of_each_livestream(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first reads of two subscribers are delayed, so that their queues fill up."""
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
    assert await remaining_events(served, latest) == []


async def test_no_stream_is_read_and_no_task_waits_after_the_last_subscriber_leaves(served: Served) -> None:
    before = asyncio.all_tasks()
    listener = await listen(served)
    await all_ready(served, listener)

    services = served.gateway.services
    assert services is not None
    services.changes._linger = 0
    await listener.socket.close()

    async with asyncio.timeout(50):
        while services.changes.followers(SPARKS) or asyncio.all_tasks() - before:  # noqa: ASYNC110 - no event signals it
            await asyncio.sleep(0.01)


async def test_the_schedule_is_not_checked_while_no_start_or_end_is_due(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[LivestreamSchedule] = []

    def record(schedule: LivestreamSchedule) -> list[Livestream]:
        checks.append(schedule)
        return []

    monkeypatch.setattr(LivestreamSchedule, "due", record)
    monkeypatch.setattr(livestreams, "MAX_SLEEP_SECONDS", 60.0)
    listener = await listen(served)

    events = []
    for title in "AB":
        await announce(served, title=title, startTime=iso_after_noon(minutes=-1), endTime=None)
        events.append(await next_title_and_state(listener))

    assert (events, checks) == ([("A", "LIVE"), ("B", "LIVE")], [])


def stream(start: float, end: float | None = None) -> Livestream:
    """Return a livestream that begins and ends this number of minutes after noon."""
    ends = None if end is None else NOON + timedelta(minutes=end)
    return Livestream("a", "A", None, "https://example.com", NOON + timedelta(minutes=start), ends, NOON)


def test_a_schedule_without_a_start_or_end_ahead_has_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(livestreams, "MAX_SLEEP_SECONDS", 60.0)
    clock = Clock()
    sleeps = []
    for start, end in ((-1, None), (-2, 0), (0.5, None), (-1, 0.25), (10, 20)):
        schedule = LivestreamSchedule(clock)
        schedule.publish(stream(start, end))
        sleeps.append(schedule.sleep_seconds())

    assert sleeps == [None, None, 30, 15, 60]


def test_a_clock_that_is_set_back_repeats_no_event() -> None:
    clock = Clock()
    schedule = LivestreamSchedule(clock)
    states = [schedule.publish(stream(1, 2)).status(clock.now)]

    for minutes in (1.0, -0.5, 0.5, 1.0, -1.5):
        clock.forward(minutes=minutes)
        states += [record.status(clock.now) for record in schedule.due()]

    assert states == ["upcoming", "live", "ended"]
    assert schedule.sleep_seconds() is None
