"""A hand-written DynamoDB client: signed requests over persistent connections, on aiohttp or on an own protocol."""

import asyncio
import hashlib
import hmac
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson

from benchmarks import ENGINE_KEY
from benchmarks.connection import Connection

CONNECTIONS = 128
REGION = "local"
ACCESS_KEY, SECRET_KEY = ENGINE_KEY, "local"
CONTENT_TYPE = "application/x-amz-json-1.0"
SIGNED = "content-type;host;x-amz-date;x-amz-target"

# Takes an operation and its request. Returns the parsed response.
Call = Callable[[str, Any], Awaitable[Any]]


class Signing:
    """Signature Version 4 for requests to DynamoDB. The signing key is derived once a day."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._day = ""
        self._key = b""

    def headers(self, operation: str, body: bytes) -> dict[str, str]:
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        target = f"DynamoDB_20120810.{operation}"
        canonical = (
            f"POST\n/\n\ncontent-type:{CONTENT_TYPE}\nhost:{self._host}\nx-amz-date:{stamp}\nx-amz-target:{target}\n\n"
            f"{SIGNED}\n{hashlib.sha256(body).hexdigest()}"
        )
        scope = f"{stamp[:8]}/{REGION}/dynamodb/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        signature = hmac.digest(self._signing_key(stamp[:8]), text.encode(), "sha256").hex()
        return {
            "host": self._host,
            "content-type": CONTENT_TYPE,
            "x-amz-date": stamp,
            "x-amz-target": target,
            "authorization": f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{scope}, SignedHeaders={SIGNED}, "
            f"Signature={signature}",
        }

    def _signing_key(self, day: str) -> bytes:
        if day != self._day:
            key = f"AWS4{SECRET_KEY}".encode()
            for part in (day, REGION, "dynamodb", "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._day, self._key = day, key
        return self._key


class AiohttpWire:
    """A client on aiohttp's connections."""

    def __init__(self, store_url: str) -> None:
        self._url = store_url
        self._signing = Signing(urlsplit(store_url).netloc)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONNECTIONS, keepalive_timeout=60),
            auto_decompress=False,
            skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def call(self, operation: str, request: Any) -> Any:
        body = orjson.dumps(request)
        headers = self._signing.headers(operation, body)
        async with self._session.post(self._url, data=body, headers=headers) as response:
            return _answer(operation, response.status, await response.read())


class ProtocolWire:
    """A client on its own persistent connections, for one call at a time each. Calls wait while all are busy."""

    def __init__(self, store_url: str) -> None:
        parts = urlsplit(store_url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._address = parts.hostname, parts.port
        self._signing = Signing(parts.netloc)
        self._idle: list[Connection] = []
        self._waiting: deque[asyncio.Future[Connection]] = deque()
        self._open = 0

    async def call(self, operation: str, request: Any) -> Any:
        body = orjson.dumps(request)
        heads = "".join([f"{name}: {value}\r\n" for name, value in self._signing.headers(operation, body).items()])
        head = f"POST / HTTP/1.1\r\n{heads}content-length: {len(body)}\r\n\r\n".encode()
        connection = self._idle.pop() if self._idle else await self._connection()
        try:
            status, content = await connection.ask(head + body)
        except BaseException:
            self._open -= 1
            connection.close()
            raise
        self._release(connection)
        return _answer(operation, status, content)

    async def _connection(self) -> Connection:
        loop = asyncio.get_running_loop()
        if self._open >= CONNECTIONS:
            waiting: asyncio.Future[Connection] = loop.create_future()
            self._waiting.append(waiting)
            return await waiting
        self._open += 1
        _, connection = await loop.create_connection(Connection, *self._address)
        return connection

    def _release(self, connection: Connection) -> None:
        if self._waiting:
            self._waiting.popleft().set_result(connection)
        else:
            self._idle.append(connection)


def _answer(operation: str, status: int, content: bytes) -> Any:
    if status != 200:
        raise RuntimeError(f"{operation} returned status {status}: {content[:300].decode(errors='replace')}")
    return orjson.loads(content)


WIRES: dict[str, type[AiohttpWire] | type[ProtocolWire]] = {"aiohttp": AiohttpWire, "protocol": ProtocolWire}
