"""The object stores: equal behaviour of a folder and a bucket, and the bucket's signatures and failures."""

import base64
import json
import os
import stat
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from datastore.database import StoreMisconfigured, StoreOptions
from datastore.errors import BadUserInput, DomainError, Timeout, Unavailable
from datastore.objects import NoObjects, ObjectStore, s3
from datastore.objects.factory import object_store
from datastore.objects.local import LocalObjects
from datastore.objects.s3 import S3Objects
from datastore.primitives.lru_cache import LruCache
from server.settings import Settings
from tests.support.bucket_steps import KEY, OTHER, bucket, http, server
from tests.support.photo_items import ADA, EVE, ask_as, photo, photo_user, put_library_items
from tests.support.pictures import jpeg
from tests.support.ports import free_port
from tests.support.s3_server import BUCKET, S3Server
from tests.support.served import SECRET, Served
from tests.support.upload_forms import complete_photo, create_photo, post_form, send_to, upload_count

__all__ = ["bucket", "http", "server"]

NOW = datetime.now(UTC)


@pytest.fixture
def settings(settings: Settings, server: S3Server) -> Settings:
    """Return settings of a gateway that stores photos in the bucket."""
    return replace(settings, photo_bucket=BUCKET, s3_url=server.url)


@pytest.mark.parametrize("kind", ["folder", "bucket"])
async def test_files_are_written_read_and_deleted(kind: str, bucket: S3Objects, tmp_path: Path) -> None:
    objects: ObjectStore = bucket if kind == "bucket" else LocalObjects(tmp_path, b"secret", lambda: "http://x")

    assert await objects.read(KEY, max_bytes=10) is None
    for key in (KEY, OTHER):
        await objects.write(key, b"first", content_type="image/png")
        await objects.write(key, b"0123456789", content_type="image/png")
        assert await objects.read(key, max_bytes=10) == b"0123456789"
    with pytest.raises(BadUserInput, match="more than 9 bytes"):
        await objects.read(KEY, max_bytes=9)
    await objects.delete([KEY, "not/there"])
    assert await objects.read(KEY, max_bytes=10) is None
    assert await objects.read(OTHER, max_bytes=10) == b"0123456789"
    with pytest.raises(ValueError, match="originals"):
        await objects.upload(OTHER, content_type="image/png", max_bytes=1, now=NOW)


async def test_a_file_is_on_the_disk_before_the_write_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables refer to the file, and survive a loss of power."""
    done: list[str] = []
    sync, replace = os.fsync, Path.replace

    def synced(opened: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(opened).st_mode) else f"file of {os.fstat(opened).st_size}")
        sync(opened)

    def replaced(path: Path, place: Path) -> Path:
        done.append("name")
        return replace(path, place)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    await LocalObjects(tmp_path, b"secret", lambda: "http://x").write(KEY, b"12345", content_type="image/png")

    assert done == ["file of 5", "name", "folder"]


async def test_a_form_may_be_valid_for_less_than_a_quarter_of_an_hour(
    server: S3Server, bucket: S3Objects, http: aiohttp.ClientSession
) -> None:
    lifetime = timedelta(minutes=5)
    target = await bucket.upload(KEY, content_type="image/jpeg", max_bytes=9, now=NOW, lifetime=lifetime)

    assert (await bucket.sweep(), target.expires_at) == (0, NOW + lifetime)
    server.later = timedelta(minutes=4, seconds=50)
    assert await send_to(http, target, b"x") == 204
    server.later = timedelta(minutes=5, seconds=10)
    assert await send_to(http, target, b"x") == 403


async def test_a_form_uploads_only_the_file_it_was_signed_for(
    server: S3Server, bucket: S3Objects, http: aiohttp.ClientSession
) -> None:
    target = await bucket.upload(KEY, content_type="image/jpeg", max_bytes=1000, now=NOW)
    assert (target.expires_at, target.max_bytes) == (NOW + timedelta(minutes=15), 1000)

    assert await send_to(http, target, b"x" * 1000) == 204
    assert server.objects == {KEY: (b"x" * 1000, "image/jpeg")}
    assert await send_to(http, target, b"x" * 1001) == 400
    assert await send_to(http, target, b"") == 400
    policy = json.loads(base64.b64decode(target.fields["policy"]))
    policy["conditions"] = [["starts-with", "$key", ""]]
    forged = base64.b64encode(json.dumps(policy).encode()).decode()
    for changed in (
        {"key": "originals/1.jpg"},
        {"Content-Type": "text/html"},
        {"policy": forged},
        {"x-amz-meta-more": "x"},
    ):
        assert await send_to(http, replace(target, fields={**target.fields, **changed}), b"y") == 403, changed
    server.later = timedelta(minutes=14, seconds=50)
    assert await send_to(http, target, b"late") == 204
    server.later = timedelta(minutes=15, seconds=10)
    assert await send_to(http, target, b"too late") == 403
    assert server.objects == {KEY: (b"late", "image/jpeg")}


async def test_a_url_is_valid_for_an_hour(server: S3Server, bucket: S3Objects, http: aiohttp.ClientSession) -> None:
    await bucket.write(OTHER, b"a picture", content_type="image/webp")
    await bucket.write(KEY, b"another", content_type="image/webp")
    url = await bucket.url(OTHER, now=NOW)
    assert url is not None

    async with http.get(url) as response:
        assert (response.status, response.content_type, await response.read()) == (200, "image/webp", b"a picture")
    for changed in (url.replace("%20b", "%20c"), url.replace("Expires=3600", "Expires=9999"), url.partition("?")[0]):
        async with http.get(changed) as response:
            assert response.status == 403
    async with http.put(url, data=b"mine") as response:
        assert response.status == 403
    server.later = timedelta(minutes=61)
    async with http.get(url) as response:
        assert response.status == 403


async def test_a_url_is_signed_once_in_a_quarter_of_an_hour(bucket: S3Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket, "_urls", LruCache(3))
    signed: list[str] = []
    sign = bucket._presigned_url

    def recording_sign(key: str, seconds: int) -> str:
        signed.append(key)
        return sign(key, seconds)

    monkeypatch.setattr(bucket, "_presigned_url", recording_sign)
    start = NOW.replace(minute=0, second=0, microsecond=0)

    for minute in (0, 7, 14):
        await bucket.url("a", now=start.replace(minute=minute))
    assert signed == ["a"]
    await bucket.url("a", now=start.replace(minute=16))
    assert signed == ["a", "a"]
    for key in ("b", "c", "d", "d", "a"):
        await bucket.url(key, now=start.replace(minute=16))
    assert signed == ["a", "a", "b", "c", "d", "a"]


async def test_failures_are_reported_without_internal_details(
    server: S3Server, bucket: S3Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    for fault in ("SlowDown", "AccessDenied", "NoSuchBucket"):
        server.fault = fault
        for work in (
            bucket.read(KEY, max_bytes=1),
            bucket.write(KEY, b"x", content_type="image/png"),
            bucket.delete([KEY]),
        ):
            with pytest.raises(Unavailable, match=r"^The object store reports an error at the moment; try again\.$"):
                await work
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    server.fault = None
    assert await write_failure(server.url) == (
        Unavailable,
        "The object store reports an error at the moment; try again.",
    )
    assert server.objects == {}


async def test_an_unreachable_store_is_reported(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    assert await write_failure(nowhere) == (Unavailable, "The object store cannot be reached at the moment; try again.")
    monkeypatch.setattr(s3, "READ_SECONDS", 0.2)
    server.stuck = True
    assert await write_failure(server.url) == (Timeout, "The object store did not respond in time.")


async def write_failure(url: str) -> tuple[type[DomainError], str]:
    """Return the type and message of the failure to write to a store at that URL."""
    objects = S3Objects(BUCKET, url=url)
    objects.open()
    with closing(objects), pytest.raises(DomainError) as caught:
        await objects.write(KEY, b"x", content_type="image/png")
    return type(caught.value), str(caught.value)


def test_the_choice_of_the_object_store(tmp_path: Path) -> None:
    def chosen(bucket: str | None = None, **options: Any) -> ObjectStore:
        given = {"s3_url": None, "secret": SECRET.encode(), "base_url": lambda: "http://x"}
        return object_store(StoreOptions(**options), bucket=bucket, **given)  # type: ignore[arg-type]

    assert isinstance(chosen(store="aws"), NoObjects)
    assert isinstance(chosen("photos", store="aws"), S3Objects)
    assert isinstance(chosen("photos", data_dir=tmp_path), S3Objects)
    for options in ({"store": "embedded"}, {"store": "http://127.0.0.1:8000"}):
        kept = chosen(data_dir=tmp_path, **options)
        assert isinstance(kept, LocalObjects)
        assert kept.folder == tmp_path / "objects"
    for temporary in (chosen(), chosen(data_dir=tmp_path, memory=True)):
        assert isinstance(temporary, LocalObjects)
        assert tmp_path not in temporary.folder.parents
        temporary.close()


async def test_urls_in_aws_name_the_bucket_and_its_region(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = S3Objects("photos", region="eu-north-1")
    objects.open()
    with closing(objects):
        assert objects.origin() == "https://photos.s3.eu-north-1.amazonaws.com"
        target = await objects.upload(KEY, content_type="image/png", max_bytes=1, now=NOW)
    assert target.url == "https://photos.s3.eu-north-1.amazonaws.com/"
    for name, host in (("photos", "photos.s3.us-east-1"), ("photos.example.com", "s3.us-east-1")):
        objects = S3Objects(name, region="us-east-1")
        objects.open()
        with closing(objects):
            assert objects.origin() == f"https://{host}.amazonaws.com"
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    with pytest.raises(StoreMisconfigured, match="AWS_REGION"):
        S3Objects("photos").open()


def test_a_bucket_needs_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    with pytest.raises(StoreMisconfigured, match="AWS_ACCESS_KEY_ID"):
        S3Objects("photos", region="eu-north-1").open()


async def test_a_photo_is_uploaded_through_the_bucket(served: Served, server: S3Server) -> None:
    await put_library_items(served, photo_user(uploadCount=0))
    upload = (await create_photo(served)).data["createPhoto"]
    id = upload["imageId"]
    early = await complete_photo(served, id)
    assert await post_form(served.http, upload["original"], jpeg(80, 60)) == 204
    server.fault = "SlowDown"
    during = await complete_photo(served, id)
    server.fault = None
    done = await complete_photo(served, id)

    assert (early.codes, during.codes, done.errors) == (["BAD_USER_INPUT"], ["UNAVAILABLE"], None)
    assert sorted(key.rpartition("-")[0] for key in server.objects) == [f"originals/{id}", f"thumbnails/{id}"]
    assert {content_type for _, content_type in server.objects.values()} == {"image/jpeg"}
    for name in ("originalUrl", "thumbnailUrl"):
        async with served.http.get(done.data["completePhoto"][name]) as response:
            assert (response.status, response.content_type) == (200, "image/jpeg")


async def test_a_url_that_contains_an_email_is_shown_only_to_its_owner(served: Served, server: S3Server) -> None:
    await put_library_items(served, photo("a"))
    query = "{ photos { nodes { originalUrl } } }"

    own, others = [await ask_as(served, query, email) for email in (ADA, EVE)]

    assert "originals/ada%40example.com/a.jpg" in own.data["photos"]["nodes"][0]["originalUrl"]
    assert (others.data["photos"]["nodes"], others.errors) == ([{"originalUrl": None}], None)


async def test_without_a_bucket_photos_have_no_urls_and_no_uploads(served: Served) -> None:
    object.__setattr__(served.gateway.services, "objects", NoObjects())
    await put_library_items(served, photo_user(uploadCount=0), photo("a"))

    shown = await ask_as(served, "{ photos { nodes { imageId originalUrl thumbnailUrl } } }")
    refused = await create_photo(served)

    assert shown.errors is None
    assert shown.data["photos"]["nodes"] == [{"imageId": "a", "originalUrl": None, "thumbnailUrl": None}]
    assert refused.errors is not None
    assert refused.errors[0]["message"] == "This gateway stores no files: no bucket for photos is configured."
    assert refused.errors[0]["extensions"]["code"] == "UNAVAILABLE"
    assert refused.errors[0]["extensions"]["retryable"] is False
    assert (refused.made, await upload_count(served)) == ([], 0)
