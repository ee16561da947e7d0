"""A server's HTTP protocol on a connection without a socket, and the invariants that hold for any client."""

import logging
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any
from urllib.parse import unquote

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from server.admission.connection_limits import Connections
from server.http.protocol import KEEP_ALIVE_SECONDS, UVICORN_OPTIONS
from tests.support.fuzzing.apps import APP_SECONDS, CallRecorder
from tests.support.fuzzing.clockwork import Clockwork, Endless
from tests.support.fuzzing.responses import Malformed, Response, read_responses
from tests.support.fuzzing.steps import DEEDS, SHUTDOWN, Do, Send, Step, Wait
from tests.support.fuzzing.wire import Wire, WorkLimit

# A client that does nothing more is gone by then: it was idle (65 s), or its body was late (10 s) or its answer was not
# read (10 s), and its last answer lingered (2 s). A WebSocket has three pings (36 s) and a goodbye (10 s).
SILENT_SECONDS = KEEP_ALIVE_SECONDS + 10.0 + 2.0 + 1.0
# All calls of the application that one connection may have waiting: 17, each with a body that is late.
BUSY_SECONDS = 17 * (APP_SECONDS + 11.0)
# What a connection keeps in memory: 17 heads of 32 KB, a body up to where reading pauses, and what came at once.
KEPT_BYTES = 17 * 32_768 + 65_536 + 2 * 262_144
# CPU until a request on another connection has been answered.
NEIGHBOUR_SECONDS = 0.1
# CPU that an example may take in all: a hundred times what the slowest takes. Beyond that it hangs.
HANG_SECONDS = 5.0
MOST_DETAIL = 2_000
# Of an entry in a list or the like.
ENTRY_BYTES = 16
# Where the classes of connections are, and which of them are the process's.
CARRYING = ("server.http", "server.websocket", "uvicorn.protocols", "websockets")
ONE_FOR_ALL = frozenset({"Service", "GraphQLWebSocket", "GraphQLHTTP"})
# Pieces smaller than that are handed over in one turn of the loop after another, and looked at when all have been.
MANY_BYTES = 4_096

# The address of the hostile client, and that of a client whose requests the server must still answer.
CLIENT, NEIGHBOUR = "192.0.2.1", "198.51.100.7"
HEALTHY = b"POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\n\r\nok"


class InvariantBroken(AssertionError):
    """An invariant does not hold: `kind` says which one."""

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(f"{kind}: {detail[:MOST_DETAIL]}" if detail else kind)
        self.kind = kind


class Hangs(BaseException):
    """Raised by a timer of CPU time, wherever the code is."""


class Conversation:
    """One connection, and what was said on it."""

    def __init__(self, wire: Wire, recorder: CallRecorder) -> None:
        self.wire = wire
        self.recorder = recorder
        self.responses: list[Response] = []
        self.kept = 0

    @property
    def calls(self) -> list[Any]:
        return self.recorder.calls

    @property
    def is_busy(self) -> bool:
        """Whether the client is connected and calls of the application are under way."""
        return self.recorder.is_busy and not self.wire.lost

    @property
    def statuses(self) -> list[int]:
        return [response.status for response in self.responses]

    @property
    def heard(self) -> list[tuple[Any, ...]]:
        """What the application was asked, and with which body."""
        return [call.heard for call in self.calls]


@dataclass
class FuzzedApplication:
    """What a rig serves, made anew after a failure.

    Without an `app`, a `Recorder` answers, and `sockets` is the application for its WebSockets. `at_the_end` is called
    when a connection has ended, and raises `Broken` where something is left; `busy_seconds` is how long the application
    may take for what was sent on one connection, and `during` is entered for each example. What it
    `streams` then goes on until the client leaves.
    """

    app: ASGIApp | None = None
    sockets: ASGIApp | None = None
    connections: Connections = field(default_factory=Connections)
    at_the_end: Callable[[], None] = lambda: None
    busy_seconds: float = BUSY_SECONDS
    streams: bool = False
    during: Callable[[], AbstractContextManager[Any]] = nullcontext


class Rig:
    """Runs examples, one after another, on one loop.

    `check` raises `Broken` where an invariant does not hold. `counts` has the function calls of the protocol counted.
    `after_switch` is given what the server says after a 101, and raises `Broken` too.
    """

    def __init__(
        self,
        serve: Callable[[Clockwork], FuzzedApplication] = lambda _: FuzzedApplication(),
        *,
        options: Mapping[str, Any] = UVICORN_OPTIONS,
        counts: bool = True,
        after_switch: Callable[[bytes], None] = lambda _: None,
    ) -> None:
        self.work = WorkLimit() if counts else None
        self.most_cpu = self.most_kept = 0.0
        self._serve = serve
        self._options = options
        self._after_switch = after_switch
        self._errors = _Errors()
        self._hung = False
        unquote("%C3%A9")  # which makes a table when it is first used
        self._begin()

    def _begin(self) -> None:
        """Make everything anew, so that an example that fails has no part in the next."""
        self.loop = Clockwork()
        self._served = self._serve(self.loop)
        self._recorders: dict[str, CallRecorder] = {}
        self._config = uvicorn.Config(
            self._dispatch, log_config=None, lifespan="off", access_log=False, interface="asgi3", **self._options
        )
        self._config.load()
        self._state = ServerState()
        self._state.default_headers = [(b"date", b"Thu, 25 Jun 2026 12:00:00 GMT")]
        self._errors.messages.clear()
        if self.work is not None:
            self.work.excess = None

    def close(self) -> None:
        """End what is under way, so that nothing is left to be collected while something else runs."""
        self.loop.clear()

    def _new_recorder(self) -> CallRecorder:
        return CallRecorder(self._served.app, self._served.sockets)

    async def _dispatch(self, scope: Any, receive: Any, send: Any) -> None:
        await self._recorders[scope["client"][0]](scope, receive, send)

    def connect(self, address: str = CLIENT, *, counts: bool = True) -> Wire:
        """Return a new connection. Whatever follows from it has been done."""
        wire = Wire(self.loop, address, self.work if counts else None)
        state: Any = self._served.connections.lifespan_state()
        protocol: Any = self._config.http_protocol_class
        self.loop.act(
            lambda: wire.connect(
                protocol(config=self._config, server_state=self._state, app_state=state, _loop=self.loop)
            )
        )
        return wire

    @property
    def open(self) -> int:
        """The connections that are counted as open."""
        return self._served.connections.open

    def kept(self, wire: Wire) -> int:
        """Return the bytes that the connection keeps in memory."""
        return kept_bytes(wire.get_protocol())

    # Examples

    def check(self, steps: Sequence[Step]) -> Conversation:
        """Run an example. Raises `Broken` with what does not hold."""
        return self.check_together([steps])[0]

    def check_together(self, clients: Sequence[Sequence[Step]]) -> list[Conversation]:
        """Run the examples of several clients at once, a step of each in turn. Raises `Broken` like `check`."""
        for _ in range(3):
            conversations, cpu = self._checked(clients)
            if cpu < NEIGHBOUR_SECONDS:  # a busy machine is no reason to fail
                return conversations
        raise InvariantBroken("others wait", f"a request on another connection took {cpu * 1000:.0f} ms of CPU")

    def _checked(self, clients: Sequence[Sequence[Step]]) -> tuple[list[Conversation], float]:
        self._recorders.clear()
        self._hung = False
        self.loop.longest = 0.0
        with self._errors, self._served.during(), self._hard_stop():
            try:
                conversations, cpu = self._run(clients)
            except Endless as endless:
                raise InvariantBroken("endless turns", str(endless)) from None
            except Hangs as hangs:
                raise InvariantBroken("hang", f"{HANG_SECONDS:g} s of CPU do not suffice") from hangs
            self._check_quiet()
        return conversations, cpu

    def _run(self, clients: Sequence[Sequence[Step]]) -> tuple[list[Conversation], float]:
        conversations = [self._begin_conversation(f"192.0.2.{1 + number}") for number in range(len(clients))]
        for round_of_steps in zip_longest(*clients):
            for conversation, step in zip(conversations, round_of_steps, strict=True):
                if step is not None:
                    self._do(step, conversation)
        for conversation in conversations:
            self._look(conversation)
        cpu = self.loop.longest + self._ask_on_another_connection()
        self.most_cpu = max(self.most_cpu, cpu)
        self._be_silent(conversations)
        for conversation in conversations:
            conversation.responses = self._read(conversation)
            check_answers(conversation)
        self._check_nothing_is_left()
        self._served.at_the_end()
        return conversations, cpu

    def _begin_conversation(self, address: str) -> Conversation:
        recorder = self._recorders[address] = self._new_recorder()
        return Conversation(self.connect(address), recorder)

    def _do(self, step: Step, conversation: Conversation) -> None:
        self.take(step, conversation.wire)
        if not isinstance(step, Send) or len(step.data) >= MANY_BYTES:
            self._look(conversation)

    def take(self, step: Step, wire: Wire) -> None:
        """Do a step of a client. What is sent is handed over when the loop runs."""
        match step:
            case Send(data):
                wire.send(data)
            case Wait(seconds):
                self.loop.run_ready()
                self.loop.advance(seconds)
            case Do(deed) if deed == SHUTDOWN:
                self.loop.act(self._shut_down)
            case Do(deed):
                self.loop.act(lambda: DEEDS[deed](wire))

    def _look(self, conversation: Conversation) -> None:
        """Have done what there is to do, and look at it."""
        self.loop.run_ready()
        if conversation.wire.taken >= MANY_BYTES:  # little that came is little that is kept
            self._check_memory(conversation)
        self._check_quiet()
        if conversation.wire.lost and any(call.listens and not call.is_over for call in conversation.calls):
            raise InvariantBroken(
                "end not reported", "the application waits for more of a request whose client has gone"
            )

    def _shut_down(self) -> None:
        for connection in tuple(self._state.connections):
            connection.shutdown()

    def _be_silent(self, conversations: Sequence[Conversation]) -> None:
        """Let all calls end, then let the clients stay silent until their timeouts."""
        waited = 0.0
        while waited < self._served.busy_seconds and any(conversation.is_busy for conversation in conversations):
            self.loop.advance(1.0)
            waited += 1.0
        for conversation in conversations:
            if self._served.streams and conversation.recorder.is_busy:
                self.loop.act(conversation.wire.leave)
        self.loop.advance(SILENT_SECONDS)
        if not all(conversation.wire.lost for conversation in conversations):
            raise InvariantBroken(
                "no deadline", f"the connection is there {SILENT_SECONDS:g} s after its client fell silent"
            )
        self.loop.advance(APP_SECONDS + 10.0)

    # What has to hold

    def _check_quiet(self) -> None:
        work = self.work
        if work is not None and work.excess is not None:
            excess, work.excess = work.excess, None
            raise InvariantBroken("unbounded work", excess)
        if self._hung:
            raise InvariantBroken("hang", f"{HANG_SECONDS:g} s of CPU do not suffice")
        if self.loop.complaints:
            complaints, self.loop.complaints = self.loop.complaints, []
            raise InvariantBroken("unhandled exception", "\n".join(complaints))
        if self._errors.messages:
            received, self._errors.messages = self._errors.messages, []
            raise InvariantBroken("error logged", "\n".join(received))

    def _check_memory(self, conversation: Conversation) -> None:
        conversation.kept = kept = kept_bytes(conversation.wire.get_protocol())
        self.most_kept = max(self.most_kept, kept)
        if kept > KEPT_BYTES:
            raise InvariantBroken(
                "unbounded memory", f"the connection keeps {kept:,} bytes, and {KEPT_BYTES:,} are allowed"
            )

    def _ask_on_another_connection(self) -> float:
        """Return the seconds of CPU that a well-formed request takes there."""
        recorder = self._recorders[NEIGHBOUR] = CallRecorder(None, None)
        began = time.process_time()
        wire = self.connect(NEIGHBOUR, counts=False)
        self.loop.act(lambda: wire.send(HEALTHY))
        took = time.process_time() - began
        (answer,) = read_responses(bytes(wire.said), lambda _: False, lambda _: None)
        if (answer.status, answer.body, len(recorder.calls)) != (200, b"2", 1):
            raise InvariantBroken("others suffer", f"a request on another connection was answered with {answer}")
        self.loop.act(wire.reset)
        return took

    def _read(self, conversation: Conversation) -> list[Response]:
        def is_to_head(response: Response) -> bool:
            number = response.values(b"x-call")
            return bool(number) and conversation.calls[int(number[0])].method == "HEAD"

        try:
            return read_responses(bytes(conversation.wire.said), is_to_head, self._after_switch)
        except Malformed as malformed:
            raise InvariantBroken("malformed answer", str(malformed)) from None

    def _check_nothing_is_left(self) -> None:
        left: dict[str, list[Any]] = {
            "tasks": self.loop.tasks(),
            "timers": self.loop.timers(),
            "connections of the server": [*self._state.connections],
            "tasks of the server": [*self._state.tasks],
            "places taken": [None] * self._served.connections.open,
        }
        for what, found in left.items():
            if found:
                raise InvariantBroken(f"{what} left", f"{len(found)} after the connection has ended: {found[:3]}")

    @contextmanager
    def _hard_stop(self) -> Iterator[None]:
        """Interrupt what hangs, again and again, until it ends."""

        def interrupt(*_: Any) -> None:
            self._hung = True
            raise Hangs

        before = signal.signal(signal.SIGVTALRM, interrupt)
        signal.setitimer(signal.ITIMER_VIRTUAL, HANG_SECONDS, 0.2)
        try:
            yield
        except BaseException:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            self.loop.clear()
            self._begin()
            raise
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)


def check_answers(conversation: Conversation) -> None:
    """Hold that each call has one answer, in order, that nothing else is answered but refusals, and scopes stay."""
    for call in conversation.calls:
        if changed := call.changed():
            raise InvariantBroken("request changed later", "; ".join(changed))
    answered = -1
    for place, response in enumerate(conversation.responses):
        number = response.values(b"x-call")
        is_last = place == len(conversation.responses) - 1
        if number:
            if len(number) > 1 or int(number[0]) <= answered:
                raise InvariantBroken("answers out of order", f"{number} after {answered}")
            answered = int(number[0])
        elif response.status != 101:
            _check_refusal(response, is_last=is_last)
        if not response.whole and not is_last:
            raise InvariantBroken("answer cut short", "and another follows")


def _check_refusal(response: Response, *, is_last: bool) -> None:
    """The protocol's own answer: an error in JSON, the last one but for a method that is not allowed."""
    if response.status < 400 or response.status == 500:
        raise InvariantBroken("strange refusal", f"the protocol answers by itself with {response.status}")
    if b'"errors"' not in response.body and response.body:
        raise InvariantBroken("strange refusal", f"it says no error: {response}")
    if response.status == 405 and not response.values(b"allow"):
        raise InvariantBroken("strange refusal", "a 405 does not say which methods are allowed")
    if not is_last and response.status != 405:
        raise InvariantBroken("answer after refusal", str(response))


def kept_bytes(protocol: Any) -> int:
    """Return the bytes of all texts and buffers that a protocol holds, by its attributes and what they hold.

    Looks into containers and objects of `CARRYING` modules, but not into what the process has one of.
    """
    seen: set[int] = set()
    waiting: list[Any] = [protocol]
    size = 0
    while waiting:
        found = waiting.pop()
        kind = type(found)
        if kind in _SKIPPED or id(found) in seen:
            continue
        seen.add(id(found))
        if kind in _TEXTS:
            size += len(found)
        elif kind in _CONTAINERS:
            size += ENTRY_BYTES * len(found)
            waiting += found
        elif kind is dict:
            waiting += found.keys()
            waiting += found.values()
        else:
            waiting += _attributes(found)
    return size


_SKIPPED = frozenset({int, float, bool, type(None)})
_TEXTS = frozenset({bytes, bytearray, str})
_CONTAINERS = frozenset({list, tuple, set, frozenset, deque})


def _attributes(thing: Any) -> Iterator[Any]:
    kind = type(thing)
    slots = _SLOTS.get(kind)
    if slots is None:
        slots = _SLOTS[kind] = _slots(kind)
    yield from [getattr(thing, name, None) for name in slots]
    if slots or kind.__module__.startswith(CARRYING):
        yield from getattr(thing, "__dict__", {}).values()


def _slots(kind: type) -> tuple[str, ...]:
    if not kind.__module__.startswith(CARRYING) or kind.__name__ in ONE_FOR_ALL:
        return ()
    named = [getattr(base, "__slots__", ()) for base in kind.__mro__]
    return tuple(name for names in named for name in ((names,) if isinstance(names, str) else names))


_SLOTS: dict[type, tuple[str, ...]] = {}


DELIBERATE = "RuntimeError: the password is swordfish"


class _Errors(logging.Handler):
    """Collects what is logged as an error while it is entered, but for the failures that `toy_sockets` is there for."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        received = logging.Formatter("%(name)s: %(message)s").format(record)
        if DELIBERATE not in received:
            self.messages.append(received)

    def __enter__(self) -> None:
        logging.getLogger().addHandler(self)

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self)
