"""Signatures equal those of botocore, and credentials are refreshed."""

import asyncio
import logging
import threading
import time
from datetime import UTC, datetime
from typing import Any

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st

from datastore.database import StoreOptions
from datastore.dynamodb.sigv4 import CONTENT_TYPE, CredentialSource, Signer
from datastore.errors import Unavailable
from tests.support.fault_proxy import Proxy, client_of

TARGET = "DynamoDB_20120810."
IDS = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", min_size=1, max_size=20)
SECRETS = st.text("abcXYZ019/+=", min_size=1, max_size=40)


def _botocores(credentials: Credentials, target: str, body: bytes, now: float) -> dict[str, str]:
    """Return the headers that botocore adds to sign the same request."""
    headers = {"Content-Type": CONTENT_TYPE, "X-Amz-Target": target, "Host": "db.example:8000"}
    request = AWSRequest("POST", "http://db.example:8000/", data=body, headers=headers)
    moment = datetime.fromtimestamp(now, UTC)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.auth, "get_current_datetime", lambda: moment)
        botocore.auth.SigV4Auth(credentials, "dynamodb", "eu-north-1").add_auth(request)
    return {name.lower(): value for name, value in request.headers.items()}


def _headers(head: bytes) -> dict[str, str]:
    first, *lines = head.decode().removesuffix("\r\n\r\n").split("\r\n")
    assert first == "POST / HTTP/1.1"
    return dict(line.split(": ", 1) for line in lines)


@settings(deadline=None, max_examples=80)
@given(
    access=IDS,
    secret=SECRETS,
    token=st.none() | SECRETS,
    operation=st.sampled_from(["Query", "PutItem", "GetRecords"]),
    body=st.binary(max_size=200),
    now=st.integers(0, 4_000_000_000),
)
def test_signatures_are_botocores(
    access: str, secret: str, token: str | None, operation: str, body: bytes, now: int
) -> None:
    credentials = Credentials(access, secret, token)

    head = Signer("eu-north-1").request_head(
        credentials.get_frozen_credentials(), "db.example:8000", TARGET + operation, body, now
    )

    assert _headers(head) == {"content-length": str(len(body))} | _botocores(credentials, TARGET + operation, body, now)


def test_a_signer_follows_the_day_and_the_credentials() -> None:
    signer = Signer("eu-north-1")
    midnight = 1_782_432_000
    first, second = Credentials("ONE", "first", None), Credentials("TWO", "second", "token")
    signed = [
        (first, midnight - 1),
        (first, midnight),
        (second, midnight),
        (first, midnight - 1),
        (second, midnight + 86_400),
    ]

    answers = [
        _headers(
            signer.request_head(credentials.get_frozen_credentials(), "db.example:8000", TARGET + "Query", b"{}", now)
        )
        for credentials, now in signed
    ]

    expected = [
        {"content-length": "2"} | _botocores(credentials, TARGET + "Query", b"{}", now) for credentials, now in signed
    ]
    assert answers == expected
    assert len({answer["authorization"] for answer in answers}) == 4


class Rotating:
    """A source of credentials that takes a while, changes, and sometimes fails."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.access = "FIRST"
        self.problem: Exception | None = None
        self.released = threading.Event()
        self.released.set()

    def get_frozen_credentials(self) -> Any:
        self.asked.append(threading.get_ident())
        self.released.wait(50)
        if self.problem:
            raise self.problem
        return Credentials(self.access, "secret").get_frozen_credentials()


async def test_rotated_credentials_are_used(
    monkeypatch: pytest.MonkeyPatch, proxy: Proxy, store_options: StoreOptions
) -> None:
    rotating = Rotating()
    async with client_of(proxy, credentials=rotating) as client:
        await client.call("ListTables", {})
        rotating.access = "SECOND"
        await client.call("ListTables", {})
        later = time.monotonic() + 61
        monkeypatch.setattr("datastore.dynamodb.sigv4.time.monotonic", lambda: later)
        await client.call("ListTables", {})

    used = [seen.request.headers["authorization"].split("=")[1].split("/")[0] for seen in proxy.seen]
    assert used == ["FIRST", "FIRST", "SECOND"]
    assert len(rotating.asked) == 2


async def test_credentials_are_fetched_once_in_a_thread_while_the_loop_runs() -> None:
    rotating = Rotating()
    rotating.released.clear()
    source = CredentialSource(rotating)
    waiting = [asyncio.create_task(source.current()) for _ in range(20)]
    turns = 0
    while not all(task.done() for task in waiting):
        turns += 1
        await asyncio.sleep(0.005)
        waiting[0].cancel()
        if turns > 3:
            rotating.released.set()

    answers = await asyncio.gather(*waiting, return_exceptions=True)

    assert turns > 3
    assert [getattr(answer, "access_key", None) for answer in answers] == [None, *["FIRST"] * 19]
    assert len(rotating.asked) == 1
    assert threading.get_ident() not in rotating.asked


async def test_old_credentials_are_used_while_new_ones_are_unavailable(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rotating = Rotating()
    rotating.problem = RuntimeError("no network")
    source = CredentialSource(rotating)
    now = [time.monotonic()]
    monkeypatch.setattr("datastore.dynamodb.sigv4.time.monotonic", lambda: now[0])
    caplog.set_level(logging.CRITICAL)

    with pytest.raises(Unavailable):
        await source.current()
    rotating.problem = None
    first = await source.current()
    now[0] += 61
    rotating.problem, rotating.access = RuntimeError("no network"), "SECOND"
    second = await source.current()
    now[0] += 6
    rotating.problem = None
    third = await source.current()

    assert [credentials.access_key for credentials in (first, second, third)] == ["FIRST", "FIRST", "SECOND"]
