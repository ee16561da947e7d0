"""Subscribers of a broadcast group that leave, fail or read slowly do not affect the others."""

import asyncio

import pytest

from datastore.errors import SlowSubscriber
from datastore.keyspace.sightings import BLIP
from datastore.queues import OverflowPolicy
from server.operations.outcome import domain_error
from server.subscriptions.result_stream import ResultStream
from tests.support.feed_items import post_item
from tests.support.feed_subscriptions import put_one_by_one as put_post
from tests.support.served import Served
from tests.support.shared_subscriptions import (
    REPORTED,
    RecordingListener,
    all_end,
    caller,
    follow_subscription,
    prepare_subscription,
    stop_following,
    subscriptions,
)
from tests.support.sightings import report_sighting as report_sighting

__all__ = ["all_end"]  # fixtures

COUNTS = 'subscription { postEngagement(postId: "p", whenSlow: CLOSE) { likeCount } }'


# --- Who leaves, and who is slow --------------------------------------------------------------------------------------


async def test_a_member_that_leaves_during_a_delivery_receives_no_more(served: Served) -> None:
    viewers: list[RecordingListener] = []

    def push_the_next(heard: RecordingListener) -> None:
        at = viewers.index(heard)
        if at == 1:
            stop_following(viewers[1], viewers[2])

    viewers += [await follow_subscription(served, REPORTED, heard=RecordingListener(push_the_next)) for _ in range(4)]
    await served.settle(BLIP, 4)
    await report_sighting(served)
    for viewer in (viewers[0], viewers[1], viewers[3]):
        await viewer.next()
    await report_sighting(served)
    await viewers[3].next()

    assert [len(viewer.outcomes) for viewer in viewers] == [2, 1, 0, 2]
    assert [viewer.last for viewer in viewers] == [[]] * 4
    stop_following(*viewers)


async def test_a_failing_listener_does_not_disturb_the_others(served: Served) -> None:
    def fail(_: RecordingListener) -> None:
        raise RuntimeError("broken inside")

    broken = await follow_subscription(served, REPORTED, heard=RecordingListener(fail))
    other = await follow_subscription(served, REPORTED)
    await served.settle(BLIP, 2)

    for _ in range(2):
        await report_sighting(served)
        await other.next()

    assert await broken.end() == "INTERNAL"
    assert len(broken.outcomes) == 1
    stop_following(other)


async def test_a_client_that_does_not_read_is_disconnected_and_delays_no_other(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datastore.queues.MAX_EVENTS", 3)
    await put_post(served, post_item("p", "bob"))
    latest = COUNTS.replace("CLOSE", "LATEST")
    slow = subscriptions(served).stream(await prepare_subscription(served, COUNTS, caller("ada")))
    slower = subscriptions(served).stream(await prepare_subscription(served, latest, caller("ada")))
    quick = await follow_subscription(served, COUNTS)
    quick_latest = await follow_subscription(served, latest)
    assert (await anext(slow)).data == (await anext(slower)).data == {"postEngagement": {"likeCount": 0}}
    assert quick.following is not None
    assert quick_latest.following is not None
    assert [quick.following.limits.policy, quick_latest.following.limits.policy] == [
        OverflowPolicy.CLOSE,
        OverflowPolicy.LATEST,
    ]
    await quick.next()

    for likes in range(1, 6):
        await put_post(served, post_item("p", "bob") | {"likes": likes})
        assert await quick.next() == {"postEngagement": {"likeCount": likes}}
    while (await quick_latest.next())["postEngagement"]["likeCount"] < 5:
        pass

    (error,) = (await anext(slow)).errors
    assert isinstance(domain_error(error), SlowSubscriber)
    assert (await anext(slower)).data == {"postEngagement": {"likeCount": 5}}
    await slow.aclose()
    await slower.aclose()
    await subscriptions(served).aclose()
    # Conflated events were not sent, nor events that waited for a disconnected client.
    received = [(report.events, report.codes) for report in served.reports]
    assert received == [(2, ["SLOW_SUBSCRIBER"]), (2, [])]
    stop_following(quick, quick_latest)


async def come_back(served: Served, query: str, after: str, *users: str) -> list[ResultStream]:
    """Return readers of streams that resumed after the same event and received the next one."""
    asked = [await prepare_subscription(served, query, caller(user)) for user in users]
    for request in asked:
        request.params.resume_after = after
    readers = [subscriptions(served).stream(request) for request in asked]
    await asyncio.gather(*map(anext, readers))
    return readers


async def missed_by_others(served: Served, many: int) -> tuple[RecordingListener, str]:
    """Return a listener that received all events, and the id of an event that is followed by `many` others."""
    present = await follow_subscription(served, REPORTED)
    await served.settle(BLIP)
    for _ in range(1 + many):
        await report_sighting(served)
        await present.next()
    event_id = present.outcomes[0].event_id
    assert event_id is not None
    return present, event_id


async def test_a_replay_is_as_fast_as_its_slowest_reader(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datastore.queues.MAX_EVENTS", 3)
    present, after = await missed_by_others(served, 12)
    quick, slow = await come_back(served, REPORTED, after, "ada", "bob")

    everything: list[str | None] = [None] * 11

    async def read(reader: ResultStream, turns: int) -> list[str | None]:
        received: list[str | None] = []
        for _ in range(11):
            for _ in range(turns):
                await asyncio.sleep(0)
            received.append((await anext(reader)).code)
        return received

    async with asyncio.timeout(50):
        received = await asyncio.gather(read(quick, 0), read(slow, 50))
    assert list(received) == [everything] * 2
    await quick.aclose()
    await slow.aclose()
    stop_following(present)


async def test_a_reader_of_a_replay_that_reads_nothing_delays_the_others_for_a_while(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datastore.queues.MAX_EVENTS", 3)
    monkeypatch.setattr("server.subscriptions.replay.MAX_SECONDS_PER_MEMBER", 0.05)
    present, after = await missed_by_others(served, 12)
    reader, idle = await come_back(served, REPORTED, after, "ada", "bob")
    async with asyncio.timeout(50):
        assert [(await anext(reader)).code for _ in range(11)] == [None] * 11
    (error,) = (await anext(idle)).errors
    assert isinstance(domain_error(error), SlowSubscriber)
    await reader.aclose()
    await idle.aclose()
    stop_following(present)
