"""Frames of RFC 6455: anything else ends the connection with the right close code."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.websocket.frames import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, Fault, Frame, close_frame, read_frame
from server.websocket.frames import frame as unmasked
from server.websocket.transport import SocketLimits
from tests.support.logs import unexpected_errors
from tests.support.toy_sockets import ServedSockets, serve_websockets, upgrade

INIT = b'{"type":"connection_init"}'


def framed(
    opcode: int, data: bytes = b"", *, final: bool = True, reserved: int = 0, mask: bytes = b"\1\2\3\4"
) -> bytes:
    """Return a frame of a client."""
    length = len(data)
    if length < 126:
        size = bytes([length])
    else:
        size = b"\x7e" + length.to_bytes(2, "big") if length < 65_536 else b"\x7f" + length.to_bytes(8, "big")
    masked = bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))
    return bytes([final << 7 | reserved | opcode, 0x80 | size[0]]) + size[1:] + mask + masked


@pytest.fixture
async def server(caplog: pytest.LogCaptureFixture) -> AsyncIterator[ServedSockets]:
    async with serve_websockets(limits=SocketLimits()) as served:
        yield served
    assert not unexpected_errors(caplog)


async def bytes_until_closed(server: ServedSockets, *sent: bytes) -> bytes:
    """Return everything that the server sends until it closes the connection. Each argument is sent separately."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        async with asyncio.timeout(50):
            writer.write(upgrade("here"))
            await reader.readuntil(b"\r\n\r\n")
            for part in sent:
                writer.write(part)
                await asyncio.sleep(0)
            return await reader.read()
    finally:
        writer.close()


def code_in(said: bytes) -> int:
    """Return the code of the only frame, which closes the connection."""
    assert said[0] == 0x80 | CLOSE
    assert len(said) == 2 + said[1]
    return int.from_bytes(said[2:4], "big")


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ([framed(TEXT, b"{}", reserved=0x40)], 1002),
        ([framed(PING, reserved=0x10)], 1002),
        ([framed(0x3)], 1002),
        ([framed(0xB)], 1002),
        ([unmasked(TEXT, b"{}")], 1002),
        ([framed(PING, b"x" * 126)], 1002),
        ([framed(PING, final=False)], 1002),
        ([framed(CONTINUATION, b"{}")], 1002),
        ([framed(TEXT, b"{", final=False), framed(TEXT, b"}")], 1002),
        ([framed(TEXT, b"{", final=False), framed(BINARY, b"}")], 1002),
        ([framed(CLOSE, b"\x03")], 1002),
        *(([framed(CLOSE, code.to_bytes(2, "big"))], 1002) for code in (0, 999, 1004, 1005, 1006, 1015, 2999, 5000)),
        ([framed(CLOSE, b"\x03\xe8\xff")], 1007),
        ([framed(TEXT, b"\xff")], 1007),
        ([framed(TEXT, b"\xc3", final=False), framed(CONTINUATION, b"(")], 1007),
        ([framed(TEXT, b"x" * 65_537)], 1009),
        ([framed(TEXT, b"x" * 65_536, final=False), framed(CONTINUATION, b"x")], 1009),
        ([b"\x81\xff\x7f" + b"\xff" * 7], 1009),
        # 5.2: the shortest form of a length has to be used, and its 64th bit is 0.
        ([b"\x81\xff" + b"\xff" * 8], 1002),
        ([b"\x81\xff\x80" + bytes(7)], 1002),
        *(([b"\x81\xfe" + length.to_bytes(2, "big")], 1002) for length in (0, 1, 125)),
        *(([b"\x81\xff" + length.to_bytes(8, "big")], 1002) for length in (0, 125, 126, 65_535)),
        ([framed(TEXT, b"{", final=False), b"\x80\xfe\0\1"], 1002),
        ([framed(BINARY, b"{}"), framed(CLOSE)], 4400),
    ],
)
async def test_forbidden_frames_of_clients(server: ServedSockets, sent: list[bytes], code: int) -> None:
    assert code_in(await bytes_until_closed(server, *sent)) == code


@pytest.mark.parametrize("code", [1000, 1001, 1003, 1014, 3000, 4999])
async def test_a_goodbye_is_said_back(server: ServedSockets, code: int) -> None:
    goodbye = code.to_bytes(2, "big") + "schön".encode()
    assert await bytes_until_closed(server, framed(CLOSE, goodbye)) == unmasked(CLOSE, goodbye)


async def test_a_goodbye_without_a_code(server: ServedSockets) -> None:
    assert await bytes_until_closed(server, framed(CLOSE), framed(PING)) == unmasked(CLOSE, b"")


async def test_control_frames_come_between_the_parts_of_a_message(server: ServedSockets) -> None:
    parts = [framed(TEXT, INIT[:9], final=False), framed(PING, b"?"), framed(CONTINUATION, b"", final=False)]
    parts += [framed(PONG, b"unasked"), framed(CONTINUATION, INIT[9:])]
    said = await bytes_until_closed(server, *parts, framed(TEXT, b"{"), framed(CLOSE))
    assert said.startswith(unmasked(PONG, b"?") + unmasked(TEXT, b'{"type":"connection_ack"}'))
    assert code_in(said[said.index(b"}") + 1 :]) == 4400


@pytest.mark.parametrize("place", [-60, 0, 1, 5, 20, 31, 39, 100])
async def test_frames_may_come_with_the_handshake(server: ServedSockets, place: int) -> None:
    """All in one packet (100), or cut at a place near the end of the handshake."""
    head = upgrade("here")
    sent = head + framed(TEXT, INIT) + framed(PING, b"?")
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    async with asyncio.timeout(50):
        writer.write(sent[: len(head) + place])
        await asyncio.sleep(0.02)
        writer.write(sent[len(head) + place :])
        await reader.readuntil(b"\r\n\r\n")
        ack, pong = unmasked(TEXT, b'{"type":"connection_ack"}'), unmasked(PONG, b"?")
        assert await reader.readexactly(len(ack) + len(pong)) in (ack + pong, pong + ack)
        writer.write(framed(CLOSE))
        assert await reader.read() == unmasked(CLOSE, b"")
    writer.close()


async def test_a_letter_may_be_parted(server: ServedSockets) -> None:
    ping = '{"type":"ping","payload":{"ö":1}}'.encode()
    cut = ping.index("ö".encode()) + 1
    whole = framed(TEXT, ping[:cut], final=False) + framed(CONTINUATION, ping[cut:])
    said = await bytes_until_closed(server, *(bytes([byte]) for byte in whole), framed(CLOSE))
    assert said == unmasked(TEXT, '{"type":"pong","payload":{"ö":1}}'.encode()) + unmasked(CLOSE, b"")


@pytest.mark.proof
async def test_a_peer_that_does_not_say_goodbye_back_is_let_go(
    server: ServedSockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.websocket.connection.CLOSE_SECONDS", 0.05)
    assert code_in(await bytes_until_closed(server, framed(TEXT, b"{"), framed(PING), b"\xff" * 100)) == 4400


FRAMES = st.tuples(
    st.sampled_from([CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG]),
    st.binary(max_size=60) | st.binary(min_size=120, max_size=130),
    st.sampled_from([1, 1, 500]),
    st.booleans(),
    st.binary(min_size=4, max_size=4),
)


@given(FRAMES, st.integers(0, 200))
def test_a_frame_is_read_as_it_was_sent_once_all_of_it_has_come(
    sent_frame: tuple[int, bytes, int, bool, bytes], missing: int
) -> None:
    opcode, part, times, final, mask = sent_frame
    data = part * times
    sent = b"before" + framed(opcode, data, final=final, mask=mask) + b"after"
    end = len(sent) - 5
    if opcode >= CLOSE and (len(data) > 125 or not final):
        with pytest.raises(Fault, match="a control frame"):
            read_frame(bytearray(sent), 6, len(sent), 100_000)
    else:
        assert read_frame(bytearray(sent), 6, len(sent), 100_000) == Frame(opcode, final, data, end)
        assert read_frame(bytearray(sent), 6, max(6, end - 1 - missing), 100_000) is None


def test_reasons_are_cut_between_letters() -> None:
    assert len(close_frame(4410, "é" * 100)) == 2 + 2 + 122
    assert close_frame(4410, "x" + "é" * 100)[4:].decode() == "x" + "é" * 61
