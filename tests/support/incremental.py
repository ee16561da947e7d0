"""Incremental responses: settings with `@defer` and `@stream`, payloads on the wire, and their merged response."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp

from server.settings import Settings
from tests.support.served import Served

IDS = "multipart/mixed;incrementalSpec=v0.2"
PATHS = "multipart/mixed;deferSpec=20220824"
DELIMITER = b"\r\n--graphql"
PART = b"\r\ncontent-type: application/json; charset=utf-8\r\n\r\n"


def with_increments(settings: Settings) -> Settings:
    """Return settings with `GATEWAY_INCREMENTAL=on`."""
    return replace(settings, documents=replace(settings.documents, incremental=True))


@asynccontextmanager
async def asked(served: Served, query: str, accept: str, **how: Any) -> AsyncIterator[aiohttp.ClientResponse]:
    """POST an operation. `user` signs it in, `variables` and `headers` are added."""
    headers = {"accept": accept} | how.pop("headers", {})
    if user := how.pop("user", None):
        headers["authorization"] = f"Bearer {served.token(user)}"
    async with served.http.post(f"{served.url}/graphql", json={"query": query, **how}, headers=headers) as response:
        yield response


async def payloads_of(response: aiohttp.ClientResponse) -> AsyncIterator[Any]:
    """Yield the payloads of a multipart response as clients read them: up to the delimiter after each."""
    assert response.status == 200, await response.text()
    assert response.headers["content-type"].startswith('multipart/mixed; boundary="graphql"; ')
    assert await response.content.readexactly(len(DELIMITER)) == DELIMITER
    async with asyncio.timeout(50):
        while (head := await response.content.readexactly(2)) != b"--":
            part = head + await response.content.readuntil(DELIMITER)
            assert part.startswith(PART)
            yield json.loads(part.removeprefix(PART).removesuffix(DELIMITER))
        assert await response.content.read() == b"\r\n"


async def all_payloads(served: Served, query: str, accept: str = IDS, **how: Any) -> list[Any]:
    """Return the payloads of an operation."""
    async with asked(served, query, accept, **how) as response:
        payloads = [payload async for payload in payloads_of(response)]
    assert [payload["hasNext"] for payload in payloads] == [True] * (len(payloads) - 1) + [False]
    return payloads


def merged(payloads: list[Any]) -> Any:
    """Return the data of the whole response, from payloads in either format."""
    data = payloads[0]["data"]
    paths: dict[str, Any] = {}
    for payload in payloads:
        paths |= {pending["id"]: pending["path"] for pending in payload.get("pending", ())}
        for part in payload.get("incremental", ()):
            path = part["path"] if "path" in part else [*paths[part["id"]], *part.get("subPath", ())]
            if "items" in part:
                items = _at(data, path[:-1] if "path" in part else path)
                assert "path" not in part or path[-1] == len(items)
                items += part["items"]
            else:
                _merge(_at(data, path), part["data"])
    return data


def _at(data: Any, path: list[Any]) -> Any:
    for key in path:
        data = data[key]
    return data


def _merge(target: Any, addition: Any) -> None:
    for key in addition if isinstance(addition, dict) else range(len(addition)):
        if isinstance(target, dict) and key not in target:
            target[key] = addition[key]
        elif isinstance(addition[key], dict | list):
            _merge(target[key], addition[key])
