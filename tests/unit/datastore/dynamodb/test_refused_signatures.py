"""Requests whose signature AWS refuses: credentials are loaded again, and the clock is corrected."""

import asyncio
import re
import threading
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from aiohttp import web
from botocore.credentials import Credentials

from datastore.database import StoreOptions, open_database
from datastore.dynamodb.client import Client, RequestRefused
from datastore.dynamodb.endpoints import STREAMS_VARIABLE, TABLES_VARIABLE
from datastore.dynamodb.retry.classify import SIGNATURE_CODES
from datastore.dynamodb.sigv4 import CredentialSource
from datastore.errors import Timeout
from datastore.session.metering import Meter
from tests.support.fault_proxy import Fault, Proxy, Seen, client_of, forward, plain_error, refuse
from tests.support.refused_signatures import clock_off_by, signed_at
from tests.support.time_jumps import jump
from tests.support.until import until

EXPIRED = refuse(400, "ExpiredTokenException")


def access_key(seen: Seen) -> str:
    found = re.search("Credential=([^/]+)/", seen.request.headers["authorization"])
    assert found is not None
    return found[1]


def accept_keys(*keys: str, code: str = "ExpiredTokenException") -> Fault:
    """Return a fault that accepts only requests with these access keys, as AWS does."""

    async def answer(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        return await (forward if access_key(seen) in keys else refuse(400, code))(proxy, seen)

    return answer


# --- Credentials ------------------------------------------------------------------------------------------------------


class Profile:
    """A file with credentials that another program or a person rewrites."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.become("FIRST")

    def become(self, key: str) -> None:
        self._file.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = secret\n")


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Profile:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return Profile(tmp_path / "credentials")


@pytest.fixture
async def aws(proxy: Proxy, profile: Profile, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    """Yield the client of a store in AWS, which is the proxy."""
    monkeypatch.setenv(TABLES_VARIABLE, proxy.url)
    monkeypatch.setenv(STREAMS_VARIABLE, proxy.url)
    async with open_database(StoreOptions("aws", region="eu-west-1")) as database:
        yield database.client


@pytest.mark.parametrize("code", sorted(SIGNATURE_CODES))
async def test_refused_credentials_are_loaded_again(aws: Client, proxy: Proxy, profile: Profile, code: str) -> None:
    await aws.call("ListTables", {"Limit": 1})
    profile.become("SECOND")
    proxy.always = accept_keys("SECOND", code=code)
    meter = Meter()

    for operation in ("ListTables", "ListStreams", "ListTables"):
        await aws.call(operation, {"Limit": 1}, meter=meter)

    assert [access_key(seen) for seen in proxy.seen] == ["FIRST", "FIRST", "SECOND", "SECOND", "SECOND"]
    assert [call.attempts for call in meter.calls] == [2, 1, 1]
    assert aws.budget.spent == 0


async def test_many_refused_calls_load_credentials_once(aws: Client, proxy: Proxy, profile: Profile) -> None:
    await aws.call("ListTables", {"Limit": 1})
    profile.become("SECOND")
    proxy.always = accept_keys("SECOND")
    meter = Meter()

    await asyncio.gather(*[aws.call("ListTables", {"Limit": 1}, meter=meter) for _ in range(50)])

    assert {call.attempts for call in meter.calls} <= {1, 2}
    assert {access_key(seen) for seen in proxy.seen} == {"FIRST", "SECOND"}


async def test_the_same_credentials_are_not_sent_twice(aws: Client, proxy: Proxy) -> None:
    proxy.always = EXPIRED
    for _ in range(3):
        with pytest.raises(RequestRefused, match="ExpiredTokenException"):
            await aws.call("ListTables", {})
    assert proxy.operations() == ["ListTables"] * 3


async def test_refused_credentials_are_not_replaced_without_end(aws: Client, proxy: Proxy, profile: Profile) -> None:
    await aws.call("ListTables", {"Limit": 1})
    profile.become("SECOND")
    proxy.always = accept_keys("THIRD")
    with pytest.raises(RequestRefused, match="ExpiredTokenException"):
        await aws.call("ListTables", {})
    assert [access_key(seen) for seen in proxy.seen][:3] == ["FIRST", "FIRST", "SECOND"]
    assert len(proxy.seen) <= 4


class Source:
    """A source of credentials. `finds` counts its calls."""

    def __init__(self) -> None:
        self.finds = 0
        self.problem: Exception | None = None

    def find(self) -> Credentials:
        self.finds += 1
        if self.problem is not None:
            raise self.problem
        return Credentials("SAME", "secret")


async def test_credentials_are_loaded_every_few_seconds_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [time.monotonic()]
    monkeypatch.setattr("datastore.dynamodb.sigv4.time.monotonic", lambda: now[0])
    source = Source()
    credentials = CredentialSource(source.find(), source.find)
    await credentials.current()

    assert [await credentials.renew() for _ in range(5)] == [False] * 5
    assert source.finds == 2
    now[0] += 6
    assert not await credentials.renew()
    assert source.finds == 3


async def test_the_refusal_is_raised_when_the_source_of_credentials_fails(
    proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source()
    source.problem = RuntimeError("no network")
    async with client_of(proxy, credentials=CredentialSource(Credentials("SAME", "secret"), source.find)) as client:
        proxy.always = EXPIRED
        with pytest.raises(RequestRefused, match="ExpiredTokenException"):
            await client.call("ListTables", {})
    assert "loading them again failed: no network" in caplog.text


async def test_the_deadline_covers_loading_credentials(proxy: Proxy) -> None:
    released, searching = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def find() -> Credentials:
        searching.set()
        asyncio.run_coroutine_threadsafe(released.wait(), loop).result()
        return Credentials("LATE", "secret")

    async with client_of(proxy, credentials=CredentialSource(Credentials("EARLY", "secret"), find)) as client:
        proxy.always = EXPIRED
        call = asyncio.create_task(client.call("ListTables", {}, timeout=100))
        await until(searching.is_set)
        jump(100)
        with pytest.raises(Timeout):
            await call
        released.set()
    assert proxy.operations() == ["ListTables"]


# --- The clock --------------------------------------------------------------------------------------------------------


@pytest.fixture(params=[timedelta(minutes=-20), timedelta(minutes=6), timedelta(days=400)], ids=str)
def offset(request: pytest.FixtureRequest) -> timedelta:
    return request.param  # type: ignore[no-any-return]


@pytest.mark.parametrize("code", ["InvalidSignatureException", "RequestTimeTooSkewed", "RequestExpired"])
async def test_a_wrong_clock_is_corrected_by_that_of_the_store(
    client: Client, proxy: Proxy, offset: timedelta, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.always = clock_off_by(offset, code)
    meter = Meter()

    for operation in ("ListTables", "ListStreams", "ListTables"):
        await client.call(operation, {"Limit": 1}, meter=meter)

    assert [call.attempts for call in meter.calls] == [2, 1, 1]
    assert caplog.text.count("synchronize the clock") == 1


async def test_calls_signed_before_the_correction_are_signed_again(client: Client, proxy: Proxy) -> None:
    proxy.always = clock_off_by(timedelta(hours=1))
    meter = Meter()
    await asyncio.gather(*[client.call("ListTables", {"Limit": 1}, meter=meter) for _ in range(30)])
    assert {call.attempts for call in meter.calls} <= {1, 2}


async def test_a_corrected_clock_is_followed(client: Client, proxy: Proxy) -> None:
    for offset in (timedelta(hours=1), timedelta(0), timedelta(hours=-1)):
        proxy.always = clock_off_by(offset)
        await client.call("ListTables", {"Limit": 1})
    assert len(proxy.seen) == 6


async def test_both_clock_and_credentials_may_be_wrong(aws: Client, proxy: Proxy, profile: Profile) -> None:
    await aws.call("ListTables", {"Limit": 1})
    profile.become("SECOND")
    proxy.always = clock_off_by(timedelta(hours=1), then=accept_keys("SECOND"))
    await aws.call("ListTables", {"Limit": 1})
    assert [access_key(seen) for seen in proxy.seen] == ["FIRST", "FIRST", "FIRST", "SECOND"]


@pytest.mark.parametrize("date", ["", "yesterday", "Wed, 99 Nov 2026 00:00:00 GMT"])
async def test_an_invalid_date_corrects_nothing(client: Client, proxy: Proxy, date: str) -> None:
    proxy.always = clock_off_by(timedelta(hours=1), date=date)
    with pytest.raises(RequestRefused, match="InvalidSignatureException"):
        await client.call("ListTables", {})
    assert proxy.operations() == ["ListTables"]


async def test_a_clock_that_is_nearly_right_is_not_corrected(client: Client, proxy: Proxy) -> None:
    proxy.always = clock_off_by(timedelta(minutes=3))
    await client.call("ListTables", {"Limit": 1})
    proxy.faults.append(plain_error(403, date=format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)))
    with pytest.raises(RequestRefused):
        await client.call("ListTables", {"Limit": 1})
    await client.call("ListTables", {"Limit": 1})
    assert all(abs(signed_at(seen) - datetime.now(UTC)) < timedelta(minutes=1) for seen in proxy.seen)


async def test_calls_to_a_store_whose_clock_jumps_are_not_retried_without_end(client: Client, proxy: Proxy) -> None:
    dates = iter([datetime(2030, 1, day, tzinfo=UTC) for day in range(1, 20)])

    async def answer(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        response = await EXPIRED(proxy, seen)
        response.headers["Date"] = format_datetime(next(dates), usegmt=True)
        return response

    proxy.always = answer
    with pytest.raises(RequestRefused):
        await client.call("ListTables", {})
    assert proxy.operations() == ["ListTables"] * 3
