"""A server with HTTP/2 over TLS, like APNs, whose responses and faults a test sets."""

import asyncio
import ipaddress
import ssl
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
import orjson
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

# Set while the server runs: its logs contain the tokens.
SERVING: ContextVar[bool] = ContextVar("serving", default=False)


class Fault(StrEnum):
    """A fault of the server instead of a response."""

    HANG = "hang"
    RESET = "reset"  # resets the stream
    GOAWAY = "goaway"  # and closes the connection
    CLOSE = "close"  # without a GOAWAY


@dataclass(frozen=True)
class ApnsAnswer:
    status: int = 200
    reason: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0


@dataclass(frozen=True)
class Request:
    """A received push."""

    token: str
    headers: dict[str, str]
    body: bytes

    @property
    def aps(self) -> dict[str, Any]:
        aps: dict[str, Any] = orjson.loads(self.body)["aps"]
        return aps

    @property
    def bearer(self) -> str:
        return self.headers["authorization"].removeprefix("bearer ")


class ApnsServer:
    """A server like APNs. `answer` returns each response; by default all pushes are delivered.

    `peak` is the maximum of concurrent requests.
    """

    def __init__(self, answer: Callable[[Request], ApnsAnswer | Fault] = lambda _: ApnsAnswer()) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self.connections = 0
        self.most_streams = 1000
        self.open = 0
        self.peak = 0
        self.url = ""
        self.trust = ssl.create_default_context()
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def delivered(self) -> Counter[str]:
        return Counter(request.token for request in self.requests)

    async def __aenter__(self) -> Self:
        context, self.trust = _contexts()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=context)
        self.url = f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.create_task(_Connection(self, reader, writer).serve())
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)


class _Connection:
    def __init__(self, server: ApnsServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        self._coming: dict[int, tuple[dict[str, str], bytearray]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._open: set[int] = set()

    async def serve(self) -> None:
        SERVING.set(True)
        most = {h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: self._server.most_streams}
        self._h2.local_settings = h2.settings.Settings(client=False, initial_values=most)
        self._h2.initiate_connection()
        self._flush()
        try:
            while data := await self._reader.read(65_536):
                for event in self._h2.receive_data(data):
                    self._take(event)
                self._flush()
        except (OSError, h2.exceptions.ProtocolError):
            pass
        finally:
            for task in self._answering:
                task.cancel()
            self._server.open -= len(self._open)
            self._writer.close()

    def _take(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            headers = {str(name): str(value) for name, value in event.headers or ()}
            self._coming[event.stream_id] = headers, bytearray()
            self._open.add(event.stream_id)
            self._server.open += 1
            self._server.peak = max(self._server.peak, self._server.open)
        elif isinstance(event, h2.events.DataReceived):
            self._coming[event.stream_id][1].extend(event.data or b"")
            self._h2.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            task = asyncio.create_task(self._answer(event.stream_id))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _answer(self, stream: int) -> None:
        headers, body = self._coming.pop(stream)
        assert (headers[":method"], headers[":path"][:10]) == ("POST", "/3/device/")
        request = Request(headers[":path"][10:], headers, bytes(body))
        self._server.requests.append(request)
        answer = self._server.answer(request)
        if isinstance(answer, Fault):
            self._fail(stream, answer)
            return
        if answer.delay:
            await asyncio.sleep(answer.delay)
        content = orjson.dumps({"reason": answer.reason}) if answer.reason else b""
        self._h2.send_headers(
            stream, [(":status", str(answer.status)), *answer.headers.items()], end_stream=not content
        )
        if content:
            self._h2.send_data(stream, content, end_stream=True)
        self._done(stream)

    def _fail(self, stream: int, fault: Fault) -> None:
        if fault is Fault.HANG:
            return
        if fault is Fault.RESET:
            self._h2.reset_stream(stream, h2.errors.ErrorCodes.INTERNAL_ERROR)
            self._done(stream)
            return
        if fault is Fault.GOAWAY:
            self._h2.close_connection(h2.errors.ErrorCodes.NO_ERROR, last_stream_id=max(0, stream - 2))
            self._flush()
        self._writer.close()

    def _done(self, stream: int) -> None:
        self._open.discard(stream)
        self._server.open -= 1
        self._flush()

    def _flush(self) -> None:
        if not self._writer.is_closing():
            self._writer.write(self._h2.data_to_send())


def _contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts of the server, with a new certificate, and of clients that trust it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "APNs of the tests")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, SHA256())
    )
    pem = certificate.public_bytes(Encoding.PEM).decode()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.set_alpn_protocols(["h2"])
    _load(server, pem + private)
    return server, ssl.create_default_context(cadata=pem)


def _load(context: ssl.SSLContext, chain: str) -> None:
    """Load a certificate and its key. `ssl` reads them only from a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chain.pem"
        path.write_text(chain)
        context.load_cert_chain(path)


@pytest.fixture
async def server() -> AsyncIterator[ApnsServer]:
    async with ApnsServer() as server:
        yield server
