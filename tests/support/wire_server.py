"""A scripted server for tests of the HTTP client, which sends given bytes on each connection."""

import asyncio
import datetime
import functools
import inspect
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def on_both_loops(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test on asyncio's loop and on the loop on which the gateway is served."""

    def run(loop: str, **arguments: Any) -> None:
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(_bounded(test(**arguments)))

    functools.update_wrapper(run, test)
    own = inspect.Parameter("loop", inspect.Parameter.KEYWORD_ONLY)
    parameters = [*inspect.signature(test).parameters.values(), own]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    both: Callable[..., None] = pytest.mark.parametrize("loop", LOOPS)(run)
    return both


async def _bounded(work: Awaitable[None]) -> None:
    async with asyncio.timeout(50):
        await work


class ServerTalk:
    """One connection on the server's side."""

    def __init__(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.number = number
        self.reader = reader
        self.writer = writer

    async def asked(self) -> Any:
        """Return the payload of the next request. Raises `IncompleteReadError` if the client has closed."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        assert lines[0] == "POST / HTTP/1.1"
        headers = dict(line.split(": ", 1) for line in lines[1:-2])
        return orjson.loads(await self.reader.readexactly(int(headers["content-length"])))

    async def say(self, *pieces: bytes, pause: float = 0.0) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(pause)

    def reset(self) -> None:
        """Close with a reset."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Script = Callable[[ServerTalk], Awaitable[None]]


class Server:
    """`connections` counts all connections, `open` the current ones, `most` the most at once."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.url = ""
        self.connections = 0
        self.most = 0
        self.open = 0

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                await self._script(ServerTalk(self.connections - 1, reader, writer))
        finally:
            self.open -= 1
            writer.close()


@asynccontextmanager
async def serve_script(
    script: Script, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[Server]:
    """A server whose connections follow the script. They are closed when it ends."""
    server = Server(script)
    talks: set[asyncio.Task[None]] = set()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.get_running_loop().create_task(server.talk(reader, writer))
        talks.add(talk)
        talk.add_done_callback(talks.discard)

    listening = await asyncio.start_server(begin, host, 0, ssl=tls)
    port = listening.sockets[0].getsockname()[1]
    server.url = f"http{'s' if tls else ''}://{host}:{port}"
    try:
        yield server
    finally:
        listening.close()
        for talk in tuple(talks):
            talk.cancel()
        await asyncio.gather(*talks, return_exceptions=True)


def whole_answer(payload: Any, *headers: str, status: str = "200 OK", version: str = "1.1") -> bytes:
    """Return a whole response with its content length."""
    content = orjson.dumps(payload)
    lines = [f"HTTP/{version} {status}", f"Content-Length: {len(content)}", *headers]
    return "\r\n".join([*lines, "\r\n"]).encode() + content


def chunked_answer(payload: Any, size: int) -> bytes:
    content = orjson.dumps(payload)
    chunks = [content[start : start + size] for start in range(0, len(content), size)]
    body = b"".join(b"%x;odd=yes\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-amz-crc32\r\n\r\n"
    return head + body + b"0\r\nx-amz-crc32: 1\r\n\r\n"


async def echo(talk: ServerTalk) -> None:
    """Answer every request with what it asked."""
    while True:
        await talk.say(whole_answer(await talk.asked()))


def self_signed_certificate(folder: Path, name: str) -> tuple[Path, ssl.SSLContext]:
    """A certificate that signs itself, for one name: its file, and how a server uses it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    public, private = folder / f"{name}.pem", folder / f"{name}.key"
    public.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(public, private)
    return public, context
