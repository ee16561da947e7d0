"""A gateway with the demo's tools, and the official SDK's client of it."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, ClientSession
from mcp.client.streamable_http import streamable_http_client

from pipelines.demo import DOCUMENTS
from server.documents.settings import DocumentSettings, DocumentsMode
from server.settings import Settings
from tests.support.served import Served

PROTOCOL = "2025-11-25"


@pytest.fixture
def tools_manifest(tmp_path: Path) -> Path:
    """A copy of the demo's manifest, which a test may change."""
    path = tmp_path / "documents.json"
    path.write_text(DOCUMENTS.read_text())
    return path


@pytest.fixture
def settings(settings: Settings, tools_manifest: Path) -> Settings:
    return replace(settings, documents=DocumentSettings(DocumentsMode.PREFER, str(tools_manifest)))


def load_manifest(served: Served, manifest: Path, text: str) -> None:
    """Replace the manifest, and have the gateway read it."""
    manifest.write_text(text)
    served.gateway.server.persisted_documents.load()


def with_tools(*operations: Mapping[str, Any]) -> str:
    """Return a manifest of these operations."""
    return json.dumps({"format": "apollo-persisted-query-manifest", "version": 1, "operations": operations})


@asynccontextmanager
async def connected(served: Served, headers: Mapping[str, str] | None = None) -> AsyncIterator[ClientSession]:
    """Connect the client, which begins with `initialize`, as most clients do."""
    async with (
        httpx2.AsyncClient(headers=dict(headers or {}), timeout=30) as http,
        streamable_http_client(f"{served.url}/mcp", http_client=http) as (reading, writing),
        ClientSession(reading, writing) as session,
    ):
        await session.initialize()
        yield session


@asynccontextmanager
async def mcp_client_at(url: str, headers: Mapping[str, str]) -> AsyncIterator[Client]:
    """Connect the client that begins without a handshake if the server supports this."""
    async with (
        httpx2.AsyncClient(headers=dict(headers), timeout=30) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client,
    ):
        yield client


async def send_message(served: Served, method: str, params: Any = None, **headers: str) -> tuple[int, Any, Any]:
    """POST a message as it is. Return the status, the decoded body and the headers of the response."""
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
    return await send_body(served, json.dumps(message).encode(), **headers)


async def send_body(served: Served, body: bytes, **headers: str) -> tuple[int, Any, Any]:
    """POST a body. Return the status, the decoded body and the headers of the response."""
    usual = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": PROTOCOL,
    }
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with served.http.post(f"{served.url}/mcp", data=body, headers=usual | named) as response:
        text = await response.text()
        return response.status, json.loads(text) if text else None, response.headers
