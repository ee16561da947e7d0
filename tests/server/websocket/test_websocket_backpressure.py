"""Events that wait for a client that does not read: by the subscription's policy, in turn, and not for long."""

import asyncio
import json
from collections.abc import AsyncIterator, Hashable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from graphql.language import OperationType

from datastore.model.identity import Identity, Role
from datastore.queues import MAX_EVENTS, OverflowPolicy, QueueLimits
from server.admission.callers import Caller
from server.admission.quotas import KeyedQuota
from server.documents.request import GraphQLParams
from server.operations.outcome import Outcome, failure
from server.operations.request import Request, Transport
from server.operations.runner import Runner
from server.request_identity import RequestIdentity
from server.subscriptions.manager import SubscriptionManager
from server.subscriptions.subscriber import Listener
from server.websocket.endpoint import GraphQLWebSocket
from server.websocket.socket import Socket
from server.websocket.transport import CLOSE_SECONDS, SocketLimits
from tests.support.until import until
from tests.support.virtual_time import in_virtual_time

NOW = 1_800_000_000.0


@dataclass
class RecordingPeer:
    """A transport that records what was sent on a socket, and how the socket ended."""

    writable: bool = True
    held: bool = False
    said: list[Any] = field(default_factory=list)
    ended: tuple[int, str] | None = None
    ends_in: float | None = None

    def send(self, *parts: bytes) -> None:
        self.said.append(json.loads(b"".join(parts)))

    def close(self, code: int, reason: str, seconds: float = CLOSE_SECONDS) -> None:
        self.ended, self.ends_in = (code, reason), seconds

    def abort(self) -> None:
        self.ended = (1006, "")

    def hold(self) -> None:
        self.held = True

    def release(self) -> None:
        self.held = False

    def results(self) -> list[tuple[Any, Any]]:
        """Return the data and the extensions of the events sent since the last call."""
        said, self.said = self.said, []
        return [(one["payload"]["data"], one["payload"].get("extensions")) for one in said]

    def events(self) -> list[tuple[str, Any]]:
        """Return what was sent since the last call: the data of each event, or the type of another message."""
        said, self.said = self.said, []
        return [(one["id"], one["payload"]["data"] if one["type"] == "next" else one["type"]) for one in said]


@dataclass
class Feed:
    """A running subscription."""

    listener: Listener
    limits: QueueLimits
    withdrawn: list[Any] = field(default_factory=list)
    stopped: bool = False

    def tell(self, data: Any, key: Hashable = None) -> None:
        self.listener.deliver(Outcome(data), key)

    def tell_event(self, key: Hashable, *, stands_for: int, event_id: str) -> None:
        outcome = Outcome({})
        outcome.set_event_id(event_id, 1)
        outcome.set_dropped(stands_for)
        self.listener.deliver(outcome, key)

    def stop(self, problem: Exception | None = None) -> None:
        self.stopped = True
        if problem is not None:
            self.listener.finish(failure(problem))

    def withdraw(self, outcome: Outcome) -> None:
        self.withdrawn.append(outcome.data)


class FeedRunner:
    """A runner of subscriptions; the query of each is its policy."""

    def __init__(self) -> None:
        self.feeds: list[Feed] = []
        self.kind = OperationType.SUBSCRIPTION

    async def prepare(self, asked: GraphQLParams, caller: Caller, transport: Transport) -> Request:
        return Request(asked, caller, transport, cast(Any, SimpleNamespace(kind=self.kind)), 1.0)

    async def run(self, _request: Request) -> Outcome:
        return Outcome(cast(Any, "an answer"))

    async def follow(self, request: Request, listener: Listener) -> Feed:
        self.feeds.append(Feed(listener, QueueLimits.of(OverflowPolicy(request.params.query or ""), 3)))
        return self.feeds[-1]


class SocketTalk:
    """A socket, its transport and its clock."""

    def __init__(self, **limits: float) -> None:
        self.now = NOW
        self.runner = FeedRunner()
        self.places = KeyedQuota("WebSockets", 0, 0)
        self.places.acquire("address:unknown")
        endpoint = GraphQLWebSocket(
            cast(Runner, self.runner),
            self._identify,
            subscriptions=cast(SubscriptionManager, self.runner),
            limits=SocketLimits(**limits),  # type: ignore[arg-type]
            clock=lambda: self.now,
            quota=self.places,
        )
        self.socket = Socket(endpoint, "", None, RequestIdentity(b"1"))
        self.peer = RecordingPeer()
        self.socket.begin(self.peer)

    async def _identify(self, _token: str | None) -> Identity:
        return Identity("ann", Role.USER, expires_at=NOW + 60)

    def hear(self, **message: Any) -> None:
        self.socket.received(json.dumps(message))

    async def feed(self, id: str, policy: OverflowPolicy) -> Feed:
        self.hear(type="subscribe", id=id, payload={"query": str(policy)})
        await settle_loop()
        return self.runner.feeds[-1]

    def read(self) -> None:
        """Let the client read everything."""
        self.peer.writable = True
        self.socket.drained()


async def settle_loop() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def acknowledged_talk(**limits: float) -> SocketTalk:
    talk = SocketTalk(**limits)
    talk.hear(type="connection_init")
    await settle_loop()
    assert talk.peer.said.pop() == {"type": "connection_ack"}
    return talk


@pytest.fixture
async def talk() -> AsyncIterator[SocketTalk]:
    talk = await acknowledged_talk()
    yield talk
    talk.socket.closing()
    assert talk.places.total == 1  # as long as the connection exists
    talk.socket.lost()
    talk.socket.lost()
    assert not talk.places.total


async def test_of_each_key_the_newest_waits_in_the_order_in_which_they_came(talk: SocketTalk) -> None:
    feed = await talk.feed("1", OverflowPolicy.LATEST)
    talk.peer.writable = False
    for data, key in ((1, "a"), (2, "b"), (3, "a"), (4, "c"), (5, "b")):
        feed.tell(data, key)
    assert talk.peer.events() == []
    assert feed.withdrawn == [1, 2]
    talk.read()
    assert talk.peer.events() == [("1", 3), ("1", 4), ("1", 5)]
    feed.tell(6, "a")
    assert talk.peer.events() == [("1", 6)]


async def test_events_that_may_not_be_dropped_wait_and_the_end_follows_them(talk: SocketTalk) -> None:
    feed = await talk.feed("1", OverflowPolicy.CLOSE)
    talk.peer.writable = False
    for number in range(3):
        feed.tell(number, "a")
    feed.listener.finish(None)
    talk.read()
    assert talk.peer.events() == [("1", 0), ("1", 1), ("1", 2), ("1", "complete")]


@pytest.mark.parametrize("policy", [OverflowPolicy.CLOSE, OverflowPolicy.LATEST])
async def test_too_many_end_the_socket(talk: SocketTalk, policy: OverflowPolicy) -> None:
    feed = await talk.feed("1", policy)
    talk.peer.writable = False
    for number in range(MAX_EVENTS):
        feed.tell(number, number)
    assert talk.peer.ended is None
    feed.tell("one too many", "other")
    assert feed.stopped
    assert talk.peer.ended is not None
    assert talk.peer.ended[0] == 4410
    assert talk.peer.ended[1].startswith(f"Too slow: This subscription fell {MAX_EVENTS + 1} changes behind")


async def test_the_next_event_has_the_count_of_dropped_ones(talk: SocketTalk) -> None:
    feed = await talk.feed("1", OverflowPolicy.LATEST)
    feed.tell(0, "a")
    talk.peer.writable = False
    for data, key in ((1, "a"), (2, "b"), (3, "a"), (4, "a")):
        feed.tell(data, key)
    talk.read()
    feed.tell(5, "a")
    assert talk.peer.results() == [(0, None), (2, None), (4, {"conflated": 2}), (5, None)]


async def test_the_newest_events_of_a_buffer_wait_and_the_first_counts_the_dropped_ones(talk: SocketTalk) -> None:
    feed = await talk.feed("1", OverflowPolicy.BUFFER)
    talk.peer.writable = False
    for number in range(7):
        feed.tell(number)
    talk.read()
    feed.tell(7)
    assert talk.peer.results() == [(4, {"dropped": 4}), (5, None), (6, None), (7, None)]
    assert feed.withdrawn == [0, 1, 2, 3]
    assert not feed.stopped


async def test_conflated_counts_add_up_while_events_wait(talk: SocketTalk) -> None:
    feed = await talk.feed("1", OverflowPolicy.LATEST)
    talk.peer.writable = False
    feed.tell_event("a", stands_for=2, event_id="1")
    feed.tell_event("a", stands_for=0, event_id="2")
    feed.tell_event("b", stands_for=3, event_id="3")
    feed.tell_event("b", stands_for=4, event_id="4")
    feed.tell_event("c", stands_for=5, event_id="5")
    talk.read()
    assert [extensions for _, extensions in talk.peer.results()] == [
        {"eventId": "2", "conflated": 3},
        {"eventId": "4", "conflated": 8},
        {"eventId": "5", "conflated": 5},
    ]


@pytest.mark.parametrize("policy", [OverflowPolicy.CLOSE, OverflowPolicy.LATEST])
async def test_too_many_bytes_end_the_socket_over_all_its_operations(policy: OverflowPolicy) -> None:
    talk = await acknowledged_talk(waiting_bytes=1000)
    one, other = await talk.feed("1", policy), await talk.feed("2", policy)
    talk.peer.writable = False
    one.tell("x" * 500, "a")
    other.tell("x" * 400, "a")
    assert (one.stopped, other.stopped, talk.socket.byte_budget.used) == (False, False, 900 + 2 * len('{"data":""}'))
    other.tell("x" * 100, "b")
    assert other.stopped
    assert talk.peer.ended is not None
    assert talk.peer.ended[0] == 4410
    assert talk.peer.ended[1].startswith("Too slow: This subscription left more than 1,000 bytes unread")
    assert talk.socket.byte_budget.used == 0


async def test_an_event_larger_than_the_budget_is_sent_when_nothing_else_waits() -> None:
    talk = await acknowledged_talk(waiting_bytes=1000)
    one, other = await talk.feed("1", OverflowPolicy.BUFFER), await talk.feed("2", OverflowPolicy.BUFFER)
    talk.peer.writable = False
    one.tell("x" * 5000)
    other.tell("no place")
    one.tell("y" * 6000)
    talk.read()
    other.tell("next")
    assert talk.peer.results() == [("y" * 6000, {"dropped": 1}), ("next", {"dropped": 1})]
    other.tell("last")
    assert talk.peer.results() == [("last", None)]
    talk.socket.lost()


async def test_nothing_is_heard_while_an_answer_waits_that_was_asked_for(talk: SocketTalk) -> None:
    talk.peer.writable = False
    talk.runner.kind = OperationType.QUERY
    talk.hear(type="subscribe", id="1", payload={"query": "close"})
    await settle_loop()
    assert talk.peer.held
    talk.read()
    assert talk.peer.events() == [("1", "an answer"), ("1", "complete")]
    assert not talk.peer.held


async def test_operations_take_turns_once_the_peer_reads(talk: SocketTalk) -> None:
    one, other = await talk.feed("1", OverflowPolicy.CLOSE), await talk.feed("2", OverflowPolicy.CLOSE)
    talk.peer.writable = False
    for number in range(3):
        one.tell(number)
    other.tell("x")
    talk.hear(type="ping")
    assert talk.peer.held
    talk.read()
    assert talk.peer.said.pop(0) == {"type": "pong"}
    assert talk.peer.events() == [("1", 0), ("2", "x"), ("1", 1), ("1", 2)]
    assert not talk.peer.held


async def test_no_more_is_sent_than_is_writable(talk: SocketTalk, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = await talk.feed("1", OverflowPolicy.CLOSE)
    talk.peer.writable = False
    for number in range(3):
        feed.tell(number)

    def send(*_parts: bytes) -> None:
        sent.append(None)
        talk.peer.writable = False

    sent: list[None] = []
    monkeypatch.setattr(talk.peer, "send", send)
    talk.read()
    assert len(sent) == 1
    talk.read()
    assert len(sent) == 2


async def test_waiting_events_are_withdrawn_when_the_client_completes(talk: SocketTalk) -> None:
    feed = await talk.feed("1", OverflowPolicy.CLOSE)
    talk.peer.writable = False
    feed.tell(1)
    talk.hear(type="complete", id="1")
    assert (feed.stopped, feed.withdrawn) == (True, [1])
    talk.read()
    feed.tell(2)
    assert talk.peer.events() == []


async def test_nothing_is_said_once_the_token_has_expired(talk: SocketTalk) -> None:
    feed = await talk.feed("1", OverflowPolicy.CLOSE)
    talk.peer.writable = False
    feed.tell(1)
    talk.now += 60
    talk.read()
    assert (talk.peer.events(), talk.peer.ended) == ([], (4403, "Token expired"))
    assert feed.stopped


def test_a_client_that_does_not_read_is_dropped_however_little_waits() -> None:
    async def work() -> None:
        talk = SocketTalk(init_timeout=5, ping_every=600, send_timeout=10)
        talk.hear(type="connection_init")
        await settle_loop()
        feed = await talk.feed("1", OverflowPolicy.LATEST)
        talk.peer.writable = False
        await asyncio.sleep(100)
        assert talk.peer.ended is None
        feed.tell(1)
        await asyncio.sleep(9)
        assert talk.peer.ended is None
        await asyncio.sleep(2)
        assert talk.peer.ended == (1006, "")
        assert feed.stopped

    in_virtual_time(work)


def test_a_client_that_learns_that_it_is_too_slow_has_no_more_time_for_that() -> None:
    async def work() -> None:
        talk = SocketTalk(init_timeout=5, ping_every=600, send_timeout=10, waiting_bytes=1000)
        talk.hear(type="connection_init")
        await settle_loop()
        feed = await talk.feed("1", OverflowPolicy.CLOSE)
        talk.peer.writable = False
        talk.socket.filled()
        await asyncio.sleep(8)
        feed.tell("x" * 900)
        feed.tell("x" * 900)
        assert talk.peer.ended is not None
        assert talk.peer.ended[0] == 4410
        assert talk.peer.ends_in == pytest.approx(2)

    in_virtual_time(work)


def test_a_client_that_has_not_read_what_was_sent_is_dropped_although_nothing_waits() -> None:
    async def work() -> None:
        talk = SocketTalk(init_timeout=5, ping_every=600, send_timeout=10)
        talk.hear(type="connection_init")
        await settle_loop()
        talk.peer.writable = False
        talk.socket.filled()
        await asyncio.sleep(9)
        assert talk.peer.ended is None
        await asyncio.sleep(2)
        assert talk.peer.ended == (1006, "")

    in_virtual_time(work)


def test_a_peer_that_answers_pings_stays_until_it_does_not() -> None:
    async def work() -> None:
        talk = SocketTalk(init_timeout=5, ping_every=12, unanswered_pings=2)
        talk.hear(type="connection_init")
        await asyncio.sleep(11)
        assert [message["type"] for message in talk.peer.said] == ["connection_ack"]
        for count in range(2, 8):
            await asyncio.sleep(12)
            assert [message["type"] for message in talk.peer.said[1:]] == ["ping"] * (count - 1)
            talk.hear(type="pong")
        await asyncio.sleep(24)
        assert talk.peer.ended is None
        await asyncio.sleep(2)
        assert talk.peer.ended == (4411, "2 pings went unanswered")

    in_virtual_time(work)


def test_a_peer_that_does_not_introduce_itself_goes() -> None:
    async def work() -> None:
        talk = SocketTalk(init_timeout=5)
        talk.hear(type="ping")
        await asyncio.sleep(4)
        assert talk.peer.ended is None
        await asyncio.sleep(2)
        assert talk.peer.ended == (4408, "Connection initialisation timeout")

    in_virtual_time(work)


async def test_tasks_that_ended_before_the_connection_are_not_reported_as_stuck(
    caplog: pytest.LogCaptureFixture,
) -> None:
    talk = SocketTalk(send_timeout=0.01)
    talk.hear(type="connection_init")
    talk.socket.closing()
    assert talk.socket.tasks
    await until(lambda: not talk.socket.tasks)
    assert talk.places.total == 1
    talk.socket.lost()
    assert talk.places.total == 0
    assert not caplog.records


async def test_nothing_follows_the_end_of_a_socket_whose_token_expired_meanwhile(talk: SocketTalk) -> None:
    feed = await talk.feed("1", OverflowPolicy.CLOSE)
    talk.peer.writable = False
    feed.tell(1)
    feed.listener.finish(None)
    talk.now = NOW + 61
    talk.read()
    assert talk.peer.ended == (4403, "Token expired")
    assert talk.peer.events() == []
