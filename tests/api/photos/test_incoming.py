"""The limits of files in `incoming/`, and the charge for uploads, whatever clients and processes do."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from datastore.database import StoreOptions
from datastore.errors import Throttled, Unavailable
from datastore.model.identity import Role
from datastore.model.ids import uuid7
from datastore.objects import STALE_AGE, UPLOAD_LIFETIME, UploadTarget
from datastore.objects.ledger import MIN_BYTES, IncomingLimits, Ledger
from datastore.objects.local import LocalObjects
from datastore.photos.file_deletion_outbox import incoming_keys
from server.admission.settings import Capacity
from server.settings import Settings
from tests.support.media import begin_upload
from tests.support.photo_items import ADA, EVE, ask_as, photo_user, put_library_items
from tests.support.photo_steps import DELETE
from tests.support.pictures import jpeg
from tests.support.ports import free_port
from tests.support.served import NOON, SECRET, Served
from tests.support.store_engines import ROOT
from tests.support.until import until
from tests.support.upload_forms import cancel, complete_photo, form_of, post_form
from tests.support.upload_steps import files_of_gateway, janitor, reserved, upload_original

OWN_ID = uuid7(NOON, "a client's own")
MEGABYTE = 2**20
LIMITS = IncomingLimits(total=4 * MEGABYTE, per_user=2 * MEGABYTE)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    capacity = replace(settings.capacity, incoming_bytes=LIMITS.total, incoming_bytes_per_caller=LIMITS.per_user)
    return replace(settings, capacity=capacity)


@pytest.fixture
def store_options(store_options: StoreOptions, tmp_path: Path) -> StoreOptions:
    """Options with files in a folder that processes can share."""
    return replace(store_options, data_dir=tmp_path / "data")


@pytest.fixture(autouse=True)
async def users(served: Served) -> None:
    emails = (ADA, EVE, "bob@example.com", "dan@example.com", "fay@example.com")
    await put_library_items(served, *[photo_user(email, uploadCount=0, uploadLimit=100) for email in emails])


@pytest.fixture
def objects(served: Served) -> LocalObjects:
    assert isinstance(served.gateway.objects, LocalObjects)
    return served.gateway.objects


async def send_upload(
    served: Served, target: Mapping[str, Any], content: bytes
) -> tuple[int, dict[str, Any], str | None]:
    """Upload a file. Return the status, the extensions of the error, and Retry-After."""
    fields = {field["name"]: field["value"] for field in target["fields"]}
    form = form_of(fields, content, target["contentType"])
    async with served.http.post(target["url"], data=form) as response:
        body = await response.json(content_type=None) if response.status != 204 else None
    details = body["errors"][0]["extensions"] if body else {}
    return response.status, details, response.headers.get("Retry-After")


def ledger_totals(objects: LocalObjects) -> tuple[int, int]:
    """Return the number of files in the ledger, and the bytes counted for them."""
    with sqlite3.connect(objects.ledger._path) as database:
        number, size = database.execute("SELECT count(*), total(bytes) FROM incoming").fetchone()
    database.close()
    return number, int(size)


# Tokens that outlive their reservation


async def test_a_token_is_invalid_once_its_upload_is_cancelled(served: Served, objects: LocalObjects) -> None:
    upload = await reserved(served)
    assert await post_form(served.http, upload["original"], jpeg()) == 204
    await cancel(served, upload["imageId"])
    assert (files_of_gateway(served), ledger_totals(objects)) == (set(), (0, 0))

    for target in (upload["original"], upload["thumbnail"]):
        status, details, _ = await send_upload(served, target, jpeg())
        assert (status, details["code"]) == (404, "NOT_FOUND")
    assert (files_of_gateway(served), ledger_totals(objects)) == (set(), (0, 0))


async def test_a_token_is_invalid_once_its_photo_exists(served: Served, objects: LocalObjects) -> None:
    upload = await reserved(served)
    assert await post_form(served.http, upload["original"], jpeg()) == 204
    assert (await complete_photo(served, upload["imageId"])).errors is None
    before = files_of_gateway(served)

    assert (await send_upload(served, upload["original"], jpeg()))[0] == 404
    assert (files_of_gateway(served), ledger_totals(objects)) == (before, (0, 0))


async def test_a_token_is_invalid_for_another_reservation_of_the_same_id(served: Served) -> None:
    first = await reserved(served, imageId=OWN_ID)
    await cancel(served, OWN_ID)
    second = await reserved(served, EVE, imageId=OWN_ID)

    assert (await send_upload(served, first["original"], jpeg()))[0] == 404
    assert files_of_gateway(served) == set()
    assert (await send_upload(served, second["original"], jpeg()))[0] == 204


async def test_an_expired_reservation_accepts_no_files(served: Served) -> None:
    upload = await reserved(served, imageId=OWN_ID)
    served.clock.forward(minutes=50)
    again = await reserved(served, imageId=OWN_ID)
    served.clock.forward(minutes=10)

    assert [await post_form(served.http, reservation["original"], jpeg()) for reservation in (upload, again)] == [
        403,
        403,
    ]


async def test_a_file_in_transfer_when_its_upload_is_cancelled_is_not_kept(
    served: Served, objects: LocalObjects
) -> None:
    upload = await reserved(served)
    fields = {field["name"]: field["value"] for field in upload["original"]["fields"]}
    payload = form_of(fields, b"x" * 100_000, "image/jpeg")()
    body = await payload.as_bytes()
    reader, writer = await begin_upload(served, payload.headers["Content-Type"], len(body))
    writer.write(body[:-300])
    await until(lambda: len(files_of_gateway(served)) == 1)
    await cancel(served, upload["imageId"])
    # Its bytes count until the transfer ends.
    assert ledger_totals(objects)[0] == 1
    writer.write(body[-300:])

    assert (await reader.readline()).startswith(b"HTTP/1.1 404")
    await until(lambda: ledger_totals(objects)[0] == 0)
    assert files_of_gateway(served) == set()
    writer.close()


async def test_the_urls_of_a_deleted_photo_are_not_found(served: Served) -> None:
    image_id = await upload_original(served, jpeg())
    photo = (await complete_photo(served, image_id)).data["completePhoto"]
    urls = [photo["originalUrl"], photo["thumbnailUrl"]]

    async def statuses() -> list[int]:
        found = []
        for url in urls:
            async with served.http.get(url) as response:
                found.append(response.status)
        return found

    assert await statuses() == [200, 200]
    deleted = await ask_as(served, DELETE, id=image_id)
    assert deleted.errors is None
    assert await statuses() == [404, 404]


# Bytes of unconfirmed uploads


async def test_the_uploads_of_a_user_share_a_limit_of_bytes(served: Served, objects: LocalObjects) -> None:
    uploads = [await reserved(served) for _ in range(3)]
    for upload in uploads[:2]:
        assert await post_form(served.http, upload["original"], b"x" * 900_000) == 204
    status, details, after = await send_upload(served, uploads[2]["original"], b"x" * 900_000)

    assert (status, details["code"], details["retryAfter"], after) == (429, "THROTTLED", 60, "60")
    assert ledger_totals(objects) == (2, 1_800_000)
    # Completing or cancelling an upload frees its bytes. Each user has a separate limit.
    await cancel(served, uploads[0]["imageId"])
    assert await post_form(served.http, uploads[2]["original"], b"x" * 900_000) == 204
    other = await reserved(served, EVE)
    assert await post_form(served.http, other["original"], b"x" * 900_000) == 204


async def test_all_uploads_share_a_limit_of_bytes(served: Served, objects: LocalObjects) -> None:
    accepted = 0
    for email in (ADA, EVE, "bob@example.com"):
        for _ in range(2):
            upload = await reserved(served, email)
            status, details, after = await send_upload(served, upload["original"], b"x" * 900_000)
            accepted += status == 204

    assert accepted == 4
    assert (status, details["code"], details["retryable"], after) == (503, "UNAVAILABLE", True, "60")
    assert ledger_totals(objects)[1] <= LIMITS.total


async def test_many_small_files_count_too(served: Served, objects: LocalObjects) -> None:
    uploads = [await reserved(served) for _ in range(LIMITS.per_user // MIN_BYTES + 1)]
    statuses = [await post_form(served.http, upload["original"], b"x") for upload in uploads]

    assert statuses == [204] * (len(uploads) - 1) + [429]


async def test_a_file_that_replaces_another_counts_once(served: Served, objects: LocalObjects) -> None:
    upload = await reserved(served)
    for size in (900_000, 700_000, 800_000):
        assert await post_form(served.http, upload["original"], b"x" * size) == 204

    assert ledger_totals(objects) == (1, 800_000)
    assert len(files_of_gateway(served)) == 1


async def test_concurrent_uploads_stay_within_the_limits(served: Served, objects: LocalObjects) -> None:
    uploads = [await reserved(served) for _ in range(12)]
    statuses = await asyncio.gather(*[post_form(served.http, upload["original"], b"x" * 900_000) for upload in uploads])

    assert sorted(statuses) == [204, 204] + [429] * 10
    assert ledger_totals(objects) == (2, 1_800_000)


ADD_ENTRIES = """
import sys
from pathlib import Path
from datastore.errors import DomainError
from datastore.objects.ledger import IncomingLimits, Ledger
ledger, accepted = Ledger(Path(sys.argv[1])), 0
for number in range(40):
    try:
        ledger.add(f"{sys.argv[2]} {number}", "me", 2**20, 2.0**33, IncomingLimits(per_user=25 * 2**20))
        accepted += 1
    except DomainError:
        pass
    if number % 10 == 9 and sys.argv[2] == "killed":
        import os, signal
        os.kill(os.getpid(), signal.SIGKILL)
print(accepted)
"""


def test_several_processes_share_the_limits(tmp_path: Path) -> None:
    path = tmp_path / "uploads.sqlite"
    names = ("one", "two", "killed")
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", ADD_ENTRIES, str(path), name], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        for name in names
    ]
    accepted = [process.communicate(timeout=50)[0] for process in processes]
    with sqlite3.connect(path) as database:
        (entries,) = database.execute("SELECT count(*) FROM incoming").fetchone()
    database.close()

    assert entries == 25
    assert sum(int(number) for number in accepted if number) + 10 >= 25


async def test_partial_files_of_a_killed_gateway_count_until_they_are_swept(
    served: Served, objects: LocalObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = IncomingLimits(per_user=MEGABYTE)
    key = incoming_keys(OWN_ID)[0]
    dead = LocalObjects(objects.folder, SECRET.encode(), lambda: "")
    arriving = dead.incoming_file(key, owner=ADA, max_bytes=MEGABYTE, seconds=3_600, limits=limits)
    (await arriving.__aenter__()).write(b"x" * 1000)  # and stops here, as if its process were killed
    assert (len(files_of_gateway(served)), ledger_totals(objects)) == (1, (1, MEGABYTE))

    with pytest.raises(Throttled):
        async with objects.incoming_file(key, owner=ADA, max_bytes=1, seconds=1, limits=limits):
            pass
    assert ledger_totals(objects) == (1, MEGABYTE)
    real = time.time
    lifetime, more = UPLOAD_LIFETIME.total_seconds(), STALE_AGE.total_seconds()
    monkeypatch.setattr(time, "time", lambda: real() + lifetime + more - 10)
    assert (await objects.sweep(), len(files_of_gateway(served))) == (0, 1)
    monkeypatch.setattr(time, "time", lambda: real() + lifetime + more + 10)
    assert await objects.sweep() == 1
    assert (files_of_gateway(served), ledger_totals(objects)) == (set(), (0, 0))
    async with objects.incoming_file(key, owner=ADA, max_bytes=1, seconds=1, limits=limits):
        pass
    await arriving.__aexit__(None, None, None)


async def test_a_file_is_kept_as_long_as_its_reservation(
    served: Served, objects: LocalObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    await upload_original(served, jpeg())
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3_590)
    await janitor(served).clean_up()
    assert len(files_of_gateway(served)) == 1
    monkeypatch.setattr(time, "time", lambda: real() + 3_600 + 310)
    await janitor(served).clean_up()

    assert (files_of_gateway(served), ledger_totals(objects)) == (set(), (0, 0))


async def test_a_caller_that_leaves_at_once_leaves_no_entry(objects: LocalObjects) -> None:
    async def arrive() -> None:
        async with objects.incoming_file(incoming_keys(OWN_ID)[0], owner=ADA, max_bytes=9, seconds=9, limits=LIMITS):
            await asyncio.sleep(60)

    for turns in range(8):
        task = asyncio.create_task(arrive())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    assert not objects.ledger._path.exists() or ledger_totals(objects) == (0, 0)


async def test_a_damaged_ledger_is_recreated(served: Served, objects: LocalObjects) -> None:
    upload = await reserved(served)
    assert await post_form(served.http, upload["original"], jpeg()) == 204
    objects.ledger._path.write_bytes(b"no database" * 1000)

    assert (await send_upload(served, upload["original"], jpeg()))[:2][0] == 503
    assert await post_form(served.http, upload["original"], jpeg()) == 204
    assert ledger_totals(objects)[0] == 1
    # Files of the damaged ledger are swept by their age.
    lost = objects.path("incoming/lost/original")
    lost.parent.mkdir()
    lost.write_bytes(b"x")
    os.utime(lost, (time.time() - STALE_AGE.total_seconds() - 10,) * 2)
    assert await objects.sweep() == 1


def test_a_ledger_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(Unavailable):
        Ledger(tmp_path / "file" / "uploads.sqlite").add("a", "me", 1, 0.0, IncomingLimits())


async def test_the_ledger_contains_no_emails(served: Served, objects: LocalObjects) -> None:
    await upload_original(served, jpeg())
    content = objects.ledger._path.read_bytes()

    assert ADA.encode() not in content
    assert objects.ledger._path.stat().st_mode & 0o077 == 0


# Budgets


class TestBudgets:
    """Uploads are charged to the user who reserved them."""

    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        capacity = Capacity(budget_units=250, budget_units_per_second=0.001, lag_seconds=0)
        return replace(settings, capacity=capacity, port=free_port())

    async def left(self, served: Served, role: Role = Role.USER) -> float:
        """Return the read units that are left in the budget. This request is charged a quarter of a unit."""
        answer = await served.ask("{ __typename }", user="ada", role=role)
        return float(answer.headers["RateLimit-Remaining"])

    async def test_an_upload_is_charged_by_its_size(self, served: Served) -> None:
        upload = await reserved(served)
        before = await self.left(served)
        assert await post_form(served.http, upload["original"], b"x" * 640_000) == 204

        assert before - await self.left(served) == pytest.approx(11, abs=1)

    async def test_an_upload_requires_budget(self, served: Served) -> None:
        upload, statuses = await reserved(served), []
        for _ in range(24):
            status, details, after = await send_upload(served, upload["original"], b"x" * 640_000)
            statuses.append(status)

        assert set(statuses) == {204, 429}
        assert statuses == sorted(statuses)
        assert (details["code"], details["retryable"]) == ("THROTTLED", True)
        assert after is not None
        assert int(after) == details["retryAfter"] > 0

    async def test_a_refused_upload_is_charged_its_read_only(self, served: Served) -> None:
        upload = await reserved(served)
        await cancel(served, upload["imageId"])
        before = await self.left(served)
        for _ in range(5):
            assert (await send_upload(served, upload["original"], b"x" * 640_000))[0] == 404

        assert before - await self.left(served) == pytest.approx(5, abs=1)

    async def test_services_have_no_budget(self, served: Served) -> None:
        """A token of an earlier version, which names no user, has none either."""
        objects = served.gateway.objects
        upload = await reserved(served, imageId=OWN_ID)
        before = await self.left(served)
        target: UploadTarget = await objects.upload(
            incoming_keys(OWN_ID)[0], content_type="image/jpeg", max_bytes=MEGABYTE, now=NOON
        )
        token = {"fields": [{"name": "token", "value": target.fields["token"]}]}
        assert (await send_upload(served, upload["original"] | token, b"x" * 640_000))[0] == 204

        assert before - await self.left(served) < 2


def test_totals_are_the_sums_of_the_entries(tmp_path: Path) -> None:
    ledger, none = Ledger(tmp_path / "uploads.sqlite"), IncomingLimits()
    for number in range(20):
        ledger.add(f"part {number}", f"user {number % 3}", number * 20_000, 9.0, none)
    for number in range(10):
        ledger.rename(f"part {number}", f"file {number % 4}", number * 10_000, 9.0)
    ledger.remove([f"part {number}" for number in range(12)] + ["unknown"])

    with sqlite3.connect(ledger._path) as database:
        totals = dict(database.execute("SELECT whose, bytes FROM totals"))
        added = dict(database.execute("SELECT whose, sum(bytes) FROM incoming GROUP BY whose"))
    database.close()
    assert totals == added | {"": sum(added.values())}
    ledger.remove(ledger.expirations())
    with sqlite3.connect(ledger._path) as database:
        assert database.execute("SELECT whose, bytes FROM totals").fetchall() == [("", 0)]
    database.close()
