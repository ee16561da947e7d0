"""Signatures for a bucket, with credentials that expire and with clocks that differ."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest

from datastore.dynamodb.store_clock import StoreClock
from datastore.errors import Unavailable
from datastore.objects import s3
from datastore.objects.s3 import S3Objects
from tests.support.bucket_steps import KEY, bucket, http, server
from tests.support.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server
from tests.support.upload_forms import send_to

__all__ = ["bucket", "http", "server"]

# botocore starts another program, which prints credentials.
pytestmark = pytest.mark.process


# --- Credentials that expire ------------------------------------------------------------------------------------------


class Helper:
    """A program that prints credentials for botocore. `gives` sets its next output."""

    def __init__(self, folder: Path) -> None:
        self._answer = folder / "answer.json"
        self.config = folder / "config"
        self.config.write_text(f"[default]\ncredential_process = cat {self._answer}\n")

    def gives(self, expires_at: datetime, access_key: str = ACCESS_KEY) -> None:
        keys = {"AccessKeyId": access_key, "SecretAccessKey": SECRET_KEY, "Expiration": expires_at.isoformat()}
        self._answer.write_text(json.dumps({"Version": 1, **keys}))


@pytest.fixture
def helper(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Helper:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    helper = Helper(tmp_path)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(helper.config))
    return helper


@pytest.fixture
async def temporary(helper: Helper, server: S3Server) -> AsyncIterator[S3Objects]:
    """Yield a bucket whose credentials expire in 20 minutes."""
    helper.gives(datetime.now(UTC) + timedelta(minutes=20))
    objects = S3Objects(BUCKET, url=server.url)
    objects.open()
    with closing(objects):
        yield objects


def lifetime_of(url: str) -> int:
    return int(parse_qs(urlsplit(url).query)["X-Amz-Expires"][0])


async def test_a_url_is_valid_no_longer_than_its_credentials(temporary: S3Objects) -> None:
    now = datetime.now(UTC)
    url = await temporary.url(KEY, now=now)
    assert url is not None
    assert 19 * 60 < lifetime_of(url) <= 20 * 60

    # It is reused only while it is valid for ten more minutes, even if the quarter of an hour is not over.
    start = now.timestamp() // 900 * 900
    for minutes in (1, 9, 11):
        later = now + timedelta(minutes=minutes)
        kept = minutes < 10 and later.timestamp() < start + 900
        again = await temporary.url(KEY, now=later)
        assert again is not None
        assert (lifetime_of(again) == lifetime_of(url)) == kept


async def test_a_form_is_valid_no_longer_than_its_credentials(temporary: S3Objects) -> None:
    now = datetime.now(UTC) + timedelta(minutes=15)
    target = await temporary.upload(KEY, content_type="image/jpeg", max_bytes=9, now=now)
    assert timedelta(minutes=4) < target.expires_at - now <= timedelta(minutes=5)


async def test_nothing_is_signed_with_credentials_that_have_expired(
    temporary: S3Objects, caplog: pytest.LogCaptureFixture
) -> None:
    late = datetime.now(UTC) + timedelta(minutes=21)
    with pytest.raises(Unavailable):
        await temporary.url(KEY, now=late)
    with pytest.raises(Unavailable):
        await temporary.upload(KEY, content_type="image/jpeg", max_bytes=9, now=late)
    assert "The credentials for S3 expired at" in caplog.text


async def test_urls_are_signed_again_with_new_credentials(helper: Helper, server: S3Server) -> None:
    now = datetime.now(UTC)
    helper.gives(now + timedelta(minutes=14))  # botocore requests new ones at once
    objects = S3Objects(BUCKET, url=server.url)
    objects.open()
    with closing(objects):
        helper.gives(now + timedelta(hours=6))
        url = await objects.url(KEY, now=now)
    assert url is not None
    assert lifetime_of(url) == 3600


@pytest.mark.proof
async def test_a_bucket_that_refuses_credentials_is_retried_with_new_ones(helper: Helper, server: S3Server) -> None:
    helper.gives(datetime.now(UTC) + timedelta(hours=1), "AKIDREVOKED")
    objects = S3Objects(BUCKET, url=server.url)
    objects.open()
    with closing(objects):
        with pytest.raises(Unavailable):
            await objects.write(KEY, b"x", content_type="image/png")
        assert server.requests == [f"PUT {KEY}"]
    objects.open()
    helper.gives(datetime.now(UTC) + timedelta(hours=1))
    with closing(objects):
        await objects.write(KEY, b"x", content_type="image/png")
        assert await objects.read(KEY, max_bytes=1) == b"x"
    assert server.requests == [f"PUT {KEY}"] * 3 + [f"GET {KEY}"]


# --- Clocks -----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=[timedelta(minutes=-20), timedelta(minutes=20)], ids=["clock ahead", "clock behind"])
def far(request: pytest.FixtureRequest, server: S3Server) -> timedelta:
    """Return the time by which S3's clock is ahead of this machine's."""
    server.later = request.param
    return server.later


async def test_requests_are_signed_at_the_time_of_the_bucket(
    server: S3Server, bucket: S3Objects, far: timedelta, caplog: pytest.LogCaptureFixture
) -> None:
    await bucket.write(KEY, b"x", content_type="image/png")
    assert await bucket.read(KEY, max_bytes=1) == b"x"
    await bucket.delete([KEY])
    assert server.requests == [f"PUT {KEY}"] * 2 + [f"GET {KEY}", f"DELETE {KEY}"]
    assert caplog.text.count("synchronize the clock") == 1


async def test_requests_signed_before_the_correction_are_signed_again(
    server: S3Server, bucket: S3Objects, far: timedelta
) -> None:
    await asyncio.gather(*[bucket.write(f"incoming/{n}", b"x", content_type="image/png") for n in range(s3.THREADS)])
    assert len(server.objects) == s3.THREADS


async def test_urls_and_forms_use_the_time_of_the_tables_before_the_bucket_has_answered(
    server: S3Server, http: aiohttp.ClientSession, far: timedelta
) -> None:
    tables = StoreClock()
    tables.observe(format_datetime(datetime.now(UTC) + far, usegmt=True))
    server.objects[KEY] = (b"x", "image/png")
    objects = S3Objects(BUCKET, url=server.url)
    objects.open(tables)
    with closing(objects):
        url = await objects.url(KEY, now=datetime.now(UTC))
        target = await objects.upload(KEY, content_type="image/jpeg", max_bytes=9, now=datetime.now(UTC))
    assert url is not None
    async with http.get(url) as response:
        assert response.status == 200
    assert await send_to(http, target, b"y") == 204
    server.later = far + timedelta(minutes=14, seconds=50)
    assert await send_to(http, target, b"y") == 204
    server.later = far + timedelta(minutes=15, seconds=10)
    assert await send_to(http, target, b"y") == 403
    server.later = far + timedelta(minutes=61)
    async with http.get(url) as response:
        assert response.status == 403


async def test_urls_use_the_time_of_the_bucket_once_it_has_answered(
    server: S3Server, bucket: S3Objects, http: aiohttp.ClientSession, far: timedelta
) -> None:
    await bucket.write(KEY, b"x", content_type="image/png")
    url = await bucket.url(KEY, now=datetime.now(UTC))
    assert url is not None
    async with http.get(url) as response:
        assert response.status == 200


async def test_requests_to_a_bucket_that_refuses_every_time_are_not_retried_without_end(
    server: S3Server, bucket: S3Objects
) -> None:
    server.fault = "RequestTimeTooSkewed"
    with pytest.raises(Unavailable):
        await bucket.write(KEY, b"x", content_type="image/png")
    assert server.requests == [f"PUT {KEY}"]


async def test_a_url_is_valid_no_longer_than_its_credentials_by_the_time_of_the_bucket(
    helper: Helper, server: S3Server, far: timedelta
) -> None:
    tables = StoreClock()
    tables.observe(format_datetime(datetime.now(UTC) + far, usegmt=True))
    helper.gives(datetime.now(UTC) + timedelta(minutes=50))
    objects = S3Objects(BUCKET, url=server.url)
    objects.open(tables)
    with closing(objects):
        url = await objects.url(KEY, now=datetime.now(UTC))
    assert url is not None
    left = timedelta(minutes=50) - far
    assert abs(lifetime_of(url) - min(3600, left.total_seconds())) < 5
