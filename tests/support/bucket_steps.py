"""A bucket on a local S3 server, with credentials that expire."""

from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any

import aiohttp
import pytest

from datastore.objects import s3
from datastore.objects.s3 import S3Objects
from tests.support.s3_server import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, S3Server

KEY, OTHER = "incoming/one/original", "originals/ada@example.com/ä b.jpg"


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[S3Server]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setattr(s3, "ATTEMPTS", 1)
    async with S3Server() as server:
        yield server


@pytest.fixture
def bucket(server: S3Server) -> Any:
    objects = S3Objects(BUCKET, url=server.url)
    objects.open()
    with closing(objects):
        yield objects


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session
