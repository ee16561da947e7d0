"""Hostile WebSocket frames and messages: see `fuzzing`."""

import pytest

from tests.support.fuzzing.running import fuzz
from tests.support.fuzzing.sockets import HANDSHAKE
from tests.support.fuzzing.steps import Do, Send, Step, Steps, in_pieces
from tests.support.fuzzing.targets import RIGS, WEBSOCKET

# There are thousands of examples with limits of CPU time. Only a run that hangs takes this long.
pytestmark = pytest.mark.timeout(900)

EXAMPLES = 3_000
INIT = b"\x81\x9a\0\0\0\0" + b'{"type":"connection_init"}'


def text_frame(message: bytes) -> bytes:
    """Return a frame of a client, unmasked in effect."""
    length = len(message)
    size = bytes([0x80 | length]) if length < 126 else b"\xfe" + length.to_bytes(2, "big")
    return b"\x81" + size + b"\0\0\0\0" + message


def subscribe_frame(query: str, id: str = "1") -> bytes:
    """Return the frame that begins an operation."""
    return text_frame(b'{"id":"%b","type":"subscribe","payload":{"query":"%b"}}' % (id.encode(), query.encode()))


FOUND: dict[str, Steps] = {
    "a shutdown within a handshake": (Send(HANDSHAKE), Do("shutdown"), Send(INIT)),
    "a document without fields": (Send(HANDSHAKE + INIT + subscribe_frame("{}")),),
    "a field without fields": (Send(HANDSHAKE + INIT + subscribe_frame("subscription {events {}}")),),
    "a reset after a subscription": (Send(HANDSHAKE + INIT + subscribe_frame("subscription {held}")), Do("reset")),
    "a goodbye twice": (Send(HANDSHAKE + INIT + b"\x88\x80\0\0\0\0" * 2 + subscribe_frame("{hello}")),),
    "a client that stops reading": (Do("stop reading"), Send(HANDSHAKE + INIT + subscribe_frame("{hello}") * 3_000)),
}


@pytest.mark.parametrize("name", FOUND)
def test_regressions(name: str) -> None:
    RIGS.http.check(FOUND[name])


def test_frames_from_a_grammar() -> None:
    fuzz(WEBSOCKET, EXAMPLES)


def test_frames_mean_the_same_wherever_they_are_split() -> None:
    sent = INIT + subscribe_frame("{hello}") + b"\x89\x82\1\2\3\4\1\2" + subscribe_frame("subscription {count}", "2")
    at_once = said(Send(HANDSHAKE + sent))
    assert at_once.count(b'"type":"next"') == 4
    for at in range(len(sent)):
        assert said(Send(HANDSHAKE + sent[:at]), Send(sent[at:])) == at_once, sent[:at]
    assert said(Send(HANDSHAKE), *in_pieces(sent[at : at + 1] for at in range(len(sent)))) == at_once


def said(*steps: Step) -> bytes:
    return bytes(RIGS.http.check(steps).wire.said)
