"""Resuming members of a broadcast group: their charge, their waiting events, and when they have caught up."""

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, cast

import aiohttp
import pytest

from datastore.change_streams.replay.backfill import Backfill
from datastore.change_streams.replay.resume_token import UNKNOWN, ResumeToken, key_of
from datastore.change_streams.replay.signed_resume_ids import ResumeIds, ResumeRequest
from datastore.change_streams.shards.stream_reader import ChangesLost
from datastore.change_streams.subscriptions.delivery import ResumePosition
from datastore.change_streams.subscriptions.event_source import SourceReader
from datastore.errors import SlowSubscriber, Throttled
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.keyspace.feeds.table import FEED
from datastore.model.identity import Role
from datastore.queues import ByteBudget, QueueLimits
from resolvers.matches.join_filters import ScoresJoinFilter
from resolvers.matches.match_update import LiveScores
from resolvers.matches.version_sequence import VersionSequence
from server.admission.callers import Caller
from server.documents.request import Stage
from server.http.streams.response_stream import ResponseStreams, StreamLimits
from server.http.streams.sse import ServerSentEvents
from server.operations.billing import MISSED_EVENT_UNITS, Billing
from server.operations.outcome import Outcome, failure
from server.operations.report import Report
from server.subscriptions.broadcast_group import BroadcastGroup
from server.subscriptions.group_member import GroupMember
from server.subscriptions.manager import SubscriptionManager
from server.subscriptions.replay import ReplayGroup, ReplaySet
from tests.support.active_matches import active_match_state, matches
from tests.support.earthquake_samples import put_raw
from tests.support.match_updates import advance, register_at_version_1
from tests.support.notifications import notification_item
from tests.support.resume import QUAKES, told_all
from tests.support.resuming_clients import SocketClient
from tests.support.served import SECRET, Served
from tests.support.until import until

SCORES = "subscription { liveScores { isSnapshot removedMatchIds updates { matchId version } } }"


def group_of(served: Served) -> BroadcastGroup:
    (group,) = served.gateway.server.subscriptions._groups.values()
    return group


@pytest.mark.parametrize("alone", [True, False])
async def test_a_client_that_resumes_and_leaves_is_charged_and_no_other(
    served: Served, monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    paid, reads, may_go_on = Counter[str | None](), asyncio.Event(), asyncio.Event()
    really = Backfill.read

    async def settle(_: Billing, request: Any, units: float) -> None:
        paid[request.caller.identity and request.caller.identity.user_id] += cast(int, units)

    async def read(*arguments: Any) -> Any:
        reads.set()
        await may_go_on.wait()
        return await really(*arguments)

    monkeypatch.setattr(Billing, "settle", settle)
    monkeypatch.setattr(Backfill, "read", read)
    for number in range(5):
        await put_raw(served, f"q{number}")
    stays = await served.listen(QUAKES, user="victim")
    await served.settle(EARTHQUAKES)
    await put_raw(served, "last")
    await stays.event()
    streams = served.gateway.server.subscriptions
    assert served.gateway.services is not None
    log = next(iter(served.gateway.services.changes._tables.values())).log
    (key,) = log.last_token.positions
    if alone:
        await stays.socket.close()
        await until(lambda: not streams._groups)
    client = SocketClient(served.http, QUAKES, served.headers("eve", Role.USER))
    before = ResumeToken.at(key_of(log.stream, ""), 1, {key: "1"})
    client.last = ResumeIds(SECRET.encode()).sealer(b"earthquakeDetected?{}")(before, "")
    async with client.connected(served.url):
        await asyncio.wait_for(reads.wait(), 50)
        group = group_of(served)
    await until(lambda: len(group._members) == (not alone))
    may_go_on.set()
    await until(lambda: not group._replays and not streams._tasks)
    assert paid["eve"] > 9
    assert paid["victim"] < 1


async def test_a_member_catches_up_although_a_match_left_meanwhile(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_at_version_1(served, "m1", "m2")
    stays = await served.listen(SCORES)
    await stays.event()
    client = SocketClient(served.http, SCORES, {})
    async with client.connected(served.url) as events:
        await anext(events)
    await advance(served, "m2")
    await told_all(served)
    inside, may_go_on, really = asyncio.Event(), asyncio.Event(), BroadcastGroup.deliver_missed

    async def deliver_missed(group: BroadcastGroup, members: list[GroupMember], received: Any) -> None:
        inside.set()
        await may_go_on.wait()
        await really(group, members, received)

    monkeypatch.setattr(BroadcastGroup, "deliver_missed", deliver_missed)
    versions, ended = dict[str, int](), list[str]()
    async with client.connected(served.url) as events:
        await asyncio.wait_for(inside.wait(), 50)
        await matches(served).set_idle("m1", (await active_match_state(served, "m1")).fence)
        await told_all(served)
        may_go_on.set()
        while not ended or versions["m2"] < 5:
            scores = (await anext(events))["data"]["liveScores"]
            versions |= {update["matchId"]: update["version"] for update in scores["updates"]}
            ended += scores["removedMatchIds"]
            if ended and versions["m2"] < 5:
                await advance(served, "m2")
        group = group_of(served)
        await until(lambda: not group._replays)
        assert not any(member.is_waiting for member in group._members)
    assert ended == ["m1"]


def test_what_left_before_one_came_so_far_is_reached() -> None:
    sequence = VersionSequence(SourceReader(None), lambda _: True, {"m1": 4, "m2": 7}, only_live=True)
    since = ScoresJoinFilter(sequence.seen)
    assert not since.is_reached({"m2": 7}, {})
    assert not since.is_reached({"m2": 7}, {"m1": 3})
    assert not since.is_reached({"m1": 3, "m2": 7}, {})
    assert since.is_reached({"m1": 4, "m2": 7}, {})
    assert since.is_reached({"m2": 8}, {"m1": 4})
    since.resume_from({"m2": 8})
    assert not since.accepts(LiveScores(False, [], ["m1"]))


class Alone:
    """A group of one member, with its listener."""

    def __init__(self, at: int = 0, most_bytes: int = 0) -> None:
        self.limits = QueueLimits()
        self.at = at
        self.byte_budget = ByteBudget(most_bytes)
        self.outcomes: list[Outcome | None] = []
        self.finished: Outcome | None = None
        self.member = GroupMember(cast(Any, self), cast(Any, _Anyone()), cast(Any, self))

    def settled_position(self) -> ResumePosition:
        return ResumePosition(self.at, UNKNOWN)

    def leave(self, _: GroupMember) -> None: ...

    def deliver(self, outcome: Outcome, _: Any) -> None:
        self.outcomes.append(outcome)

    def finish(self, outcome: Outcome | None) -> None:
        self.finished = outcome


class _Anyone:
    class report:
        events = sent = 0

    class request:
        class caller:
            identity = None

    def note(self, _: Outcome) -> None: ...
    def leave(self) -> None: ...


def numbered_outcome(number: int) -> Outcome:
    outcome = Outcome({"number": number})
    outcome.set_event_id(f"a.b.{number}", number)
    return outcome


def test_a_client_ahead_of_this_process_receives_no_older_position() -> None:
    group = Alone(at=95)
    group.member.begin_replay()
    group.member.wait()
    group.member.go_live_after(100, {})
    assert group.member.settled_position() is None
    group.at = 100
    assert group.member.settled_position() == group.settled_position()


def test_what_waits_for_one_who_joins_takes_the_room_of_its_reader() -> None:
    size = len(numbered_outcome(1).body)
    group = Alone(most_bytes=size * 3)
    group.member.wait()
    for number in range(3):
        group.member.offer(None, numbered_outcome(number), None)
    assert group.byte_budget.used == size * 3
    group.member.offer(None, numbered_outcome(3), None)
    assert group.member.is_over
    assert group.finished is not None
    assert group.finished.code == SlowSubscriber.code
    assert group.byte_budget.used == 0


async def test_no_event_waits_for_a_member_that_receives_it_otherwise(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    stays = await served.listen(QUAKES)
    await served.settle(EARTHQUAKES)
    client = SocketClient(served.http, QUAKES, {})
    async with client.connected(served.url) as events:
        await anext(events)
        await put_raw(served, "q0")
        await anext(events)
        await stays.event()
    await put_raw(served, "q1")
    await stays.event()
    inside, may_go_on, really = asyncio.Event(), asyncio.Event(), BroadcastGroup.deliver_missed

    async def deliver_missed(group: BroadcastGroup, members: list[GroupMember], received: Any) -> None:
        inside.set()
        await may_go_on.wait()
        await really(group, members, received)

    monkeypatch.setattr(BroadcastGroup, "deliver_missed", deliver_missed)
    monkeypatch.setattr("datastore.queues.MAX_EVENTS", 3)
    async with client.connected(served.url) as events:
        await asyncio.wait_for(inside.wait(), 50)
        for number in range(2, 8):
            await put_raw(served, f"q{number}")
            await stays.event()
        may_go_on.set()
        had = [(await anext(events))["data"]["earthquakeDetected"]["eventId"] for _ in range(7)]
        await put_raw(served, "q8")
        had.append((await anext(events))["data"]["earthquakeDetected"]["eventId"])
    assert had == [f"q{number}" for number in range(1, 9)]


async def test_a_client_that_joins_after_the_first_missed_event_has_a_replay_of_its_own() -> None:
    resume = ResumeRequest(UNKNOWN, "")
    replays = ReplaySet(cast(Any, None), cast(Any, None))
    for _ in range(2):
        replays.add(Alone().member, resume, now=False)
    assert len(replays) == 1
    replays._latest[resume].is_open = False
    replays.add(Alone().member, resume, now=False)
    assert len(replays) == 2


async def test_replays_from_the_same_event_may_end_in_any_order(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def replay(group: ReplayGroup) -> None:
        await ends[group].wait()

    def spawn(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.create_task(work)

    ends = defaultdict[ReplayGroup, asyncio.Event](asyncio.Event)
    resume, replays = ResumeRequest(UNKNOWN, ""), ReplaySet(cast(Any, None), spawn)
    monkeypatch.setattr(ReplayGroup, "run", replay)
    for _ in range(2):
        replays.add(Alone().member, resume, now=True)
        replays._latest[resume].is_open = False
    first, second = replays._tasks
    for ended in (second, first):
        ends[ended].set()
        await until(lambda ended=ended: ended not in replays._tasks)  # type: ignore[misc]
    await replays.finish()
    assert len(replays) == 0
    assert not replays._latest
    assert not caplog.records  # the loop logs errors of callbacks


async def test_a_member_whose_start_fails_receives_an_error_and_others_are_not_affected(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_at_version_1(served, "m1")
    stays = await served.listen(SCORES)
    await stays.event()
    really, failed = GroupMember.begin, list[GroupMember]()

    def begin(member: GroupMember, *arguments: Any) -> None:
        if not failed:
            failed.append(member)
            raise RuntimeError("broken")
        really(member, *arguments)

    monkeypatch.setattr(GroupMember, "begin", begin)
    received = await (await served.listen(SCORES)).message()
    assert received["type"] == "error"
    assert received["payload"][0]["extensions"]["code"] == "INTERNAL"
    assert (await (await served.listen(SCORES)).event())["liveScores"]["isSnapshot"]
    await advance(served)
    assert (await stays.event())["liveScores"]["updates"] == [{"matchId": "m1", "version": 2}]


async def test_a_subscription_that_we_are_behind_with_does_not_end_the_socket(served: Served) -> None:
    stays = await served.listen(QUAKES)
    await served.settle(EARTHQUAKES)
    (member,) = group_of(served)._members
    member.stop(SlowSubscriber("This subscription fell behind.", behind=1))
    received = await stays.message()
    assert received["type"] == "error"
    assert received["payload"][0]["extensions"]["code"] == "SLOW_SUBSCRIBER"
    await stays.socket.send_json({"id": "2", "type": "subscribe", "payload": {"query": "{ __typename }"}})
    assert (await stays.message())["payload"] == {"data": {"__typename": "Query"}}


async def test_a_resumable_stream_is_not_reported_as_complete(served: Served) -> None:
    """The client resumes after the last position that it received."""
    headers = {"accept": "text/event-stream"}
    async with served.http.post(f"{served.url}/graphql", json={"query": QUAKES}, headers=headers) as response:
        await served.settle(EARTHQUAKES)
        received = b""
        while b"id:" not in received:
            received += await response.content.readany()
        assert served.gateway.services is not None
        (followed,) = served.gateway.services.changes._tables.values()
        followed.source.problem = ChangesLost("lost")
        followed.log.lost(followed.source.problem)
        received += await asyncio.wait_for(response.content.read(), 50)
    assert b'"UNAVAILABLE"' in received
    assert b"complete" not in received
    assert received.count(b"id:") == 1


@pytest.mark.parametrize("is_subscription", [True, False])
async def test_a_throttled_subscription_does_not_complete_and_states_the_delay(is_subscription: bool) -> None:
    sent = b""

    async def outcomes() -> AsyncGenerator[Outcome, None]:
        yield failure(Throttled("Too much.", retryAfter=2), Stage.ADMISSION)

    async def send(message: Any) -> None:
        nonlocal sent
        sent += message.get("body", b"")

    streams = ResponseStreams(StreamLimits())
    arguments: Any = (outcomes(), ServerSentEvents(), Caller(None, "::1"), asyncio.Event().wait, send)
    await streams.serve(*arguments, is_subscription=is_subscription)
    assert (b"complete" in sent) == (b"id:" in sent) != is_subscription
    assert (b"retry: 2000" in sent) == is_subscription


async def test_all_positions_are_sent_although_an_operation_hangs(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = SocketClient(served.http, QUAKES, {})
    async with first.connected(served.url) as events:
        await anext(events)
    stays = await served.listen(SCORES)
    await stays.event()
    for id, after in (("2", None), ("3", first.last)):
        payload = {"query": QUAKES, "extensions": {"resumeAfter": after}}
        await stays.socket.send_json({"id": id, "type": "subscribe", "payload": payload})
    await until(lambda: len(served.gateway.server.subscriptions._groups) == 2)
    quakes = [*served.gateway.server.subscriptions._groups.values()][1]
    await until(lambda: len(quakes._members) == 2 and not quakes._replays and quakes._start is not None)

    async def hang(*_: Any) -> None:
        hangs.set()
        await asyncio.Event().wait()

    hangs = asyncio.Event()
    monkeypatch.setattr(SubscriptionManager, "follow", hang)
    await stays.socket.send_json({"id": "4", "type": "subscribe", "payload": {"query": QUAKES}})
    await asyncio.wait_for(hangs.wait(), 50)
    await served.gateway.server.end_streams(random.Random(8), 0.1)
    received = dict[str, str]()
    while (message := await stays.socket.receive()).type is aiohttp.WSMsgType.TEXT:
        received |= message.json().get("payload", {}).get("resume", {})
    assert stays.socket.close_code == 1012
    assert received.keys() == {"2", "3"}


@pytest.mark.parametrize("query", [QUAKES, 'subscription { notificationReceived(userId: "ada") { notificationId } }'])
async def test_each_event_that_was_missed_costs_something(
    served: Served, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    async def write(number: int) -> None:
        await put_raw(served, f"q{number}")
        await served.store().write_all(FEED, puts=[notification_item(f"n{number}")])

    client = SocketClient(served.http, query, served.headers("ada", Role.USER))
    async with client.connected(served.url) as events:
        await anext(events)
        await write(0)
        await anext(events)
    for number in range(30):
        await write(number + 1)
    await told_all(served)
    charged: list[float] = []

    def count(_: Report, calls: Any, price: float, among: int, knows_all: bool) -> float:
        charged.append(price)
        return 0.0

    monkeypatch.setattr(Report, "_count", count)
    async with client.connected(served.url) as events:
        for _ in range(30):
            await anext(events)
    await served.gateway.server.subscriptions.aclose()
    assert 30 * MISSED_EVENT_UNITS <= sum(charged) < 30 * MISSED_EVENT_UNITS + 1
