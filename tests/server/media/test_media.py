"""Files over HTTP, as the gateway serves and takes them itself: `/media`."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given as given_any
from hypothesis import strategies as st
from msgspec import structs

from datastore.errors import Unavailable
from datastore.objects import UploadTarget
from datastore.objects.local import LocalObjects
from datastore.photos.image_types import PictureType
from datastore.photos.reservations import Reservation
from server.media import files as media
from server.media.multipart import Opening, UploadForm
from server.settings import Settings
from tests.support.media import begin_upload
from tests.support.photo_items import ADA, put_library_items
from tests.support.pictures import jpeg, png
from tests.support.served import NOON, Served
from tests.support.until import until
from tests.support.upload_forms import form_of, send_to

KEY = "incoming/one/original"
MOST = 5_000
RESERVATION = Reservation(
    image_id="one",
    email=ADA,
    content_type=PictureType.JPEG,
    description=None,
    tags=(),
    taken_at=NOON,
    created_at=NOON,
    expires_at=NOON + timedelta(hours=1),
    nonce="1",
)
HARMLESS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, allowed_origins=("https://app.example.com",))


@pytest.fixture
def objects(served: Served) -> LocalObjects:
    assert isinstance(served.gateway.objects, LocalObjects)
    return served.gateway.objects


@pytest.fixture
async def target(served: Served, objects: LocalObjects) -> UploadTarget:
    reservations = [structs.replace(RESERVATION, image_id=image_id) for image_id in ("one", "two")]
    await put_library_items(served, *[reservation.item() for reservation in reservations])
    return await objects.upload(KEY, content_type="image/jpeg", max_bytes=MOST, now=served.clock.now)


def stored_files(objects: LocalObjects) -> list[str]:
    return [str(path.relative_to(objects.folder)) for path in objects.folder.rglob("*") if path.is_file()]


async def post_media(served: Served, data: Any, **headers: str) -> tuple[int, Any]:
    async with served.http.post(f"{served.url}/media", data=data, headers=headers) as response:
        payload = await response.json(content_type=None) if response.status != 204 else None
    return response.status, payload and payload["errors"][0]["extensions"]["code"]


async def test_an_uploaded_file_is_kept_whole(served: Served, objects: LocalObjects, target: UploadTarget) -> None:
    for content in (jpeg(), b"x" * MOST, b"--boundary\r\n\r\n--"):
        assert await send_to(served.http, target, content) == 204
        assert await objects.read(KEY, max_bytes=MOST) == content
    assert stored_files(objects) == [KEY]


async def test_a_form_that_is_not_as_it_was_signed_is_refused(
    served: Served, objects: LocalObjects, target: UploadTarget
) -> None:
    good = dict(target.fields)
    forms: list[tuple[dict[str, str], str, int]] = [
        ({"token": "x" + good["token"]}, "image/jpeg", 403),
        ({"token": "ä€"}, "image/jpeg", 403),
        ({"token": ""}, "image/jpeg", 403),
        ({"token": "x" * 5_000}, "image/jpeg", 400),
        ({}, "image/jpeg", 400),
        ({"key": "originals/1.jpg", **good}, "image/jpeg", 400),
        (good | {"more": "x"}, "image/jpeg", 400),
        (good, "image/png", 415),
        (good, "text/html", 415),
    ]

    for fields, content_type, status in forms:
        code = "FORBIDDEN" if status == 403 else "BAD_USER_INPUT"
        assert await post_media(served, form_of(fields, jpeg(), content_type)) == (status, code), fields
    assert stored_files(objects) == []


async def test_a_file_of_a_wrong_length_leaves_the_previous_file(
    served: Served, objects: LocalObjects, target: UploadTarget
) -> None:
    await send_to(served.http, target, jpeg())

    for length, status in ((MOST + 1, 413), (10**6, 413), (0, 400)):
        form = form_of(target.fields, b"x" * length, target.content_type)
        assert await post_media(served, form) == (status, "BAD_USER_INPUT")
    assert await objects.read(KEY, max_bytes=MOST) == jpeg()
    assert stored_files(objects) == [KEY]


async def test_a_token_is_good_for_a_quarter_of_an_hour_and_for_nothing_else(
    served: Served, objects: LocalObjects, target: UploadTarget
) -> None:
    download = (await file_url(served, KEY)).rpartition("/")[2]
    elsewhere = {"key": "originals/1.jpg", "type": "image/jpeg", "most": MOST, "until": 2**33}
    for token in (download, objects.seal_token(elsewhere, b"upload")):
        assert await post_media(served, form_of({"token": token}, jpeg(), "image/jpeg")) == (403, "FORBIDDEN")
    async with served.http.get(f"{served.url}/media/{target.fields['token']}") as response:
        assert response.status == 403
    served.clock.forward(minutes=15)

    assert await send_to(served.http, target, jpeg()) == 403
    assert stored_files(objects) == []
    with pytest.raises(ValueError, match="originals"):
        await objects.upload("originals/1.jpg", content_type="image/jpeg", max_bytes=1, now=served.clock.now)


async def test_a_bad_form_is_refused(served: Served, objects: LocalObjects) -> None:
    form = "multipart/form-data"
    for data, content_type, status in (
        (b"hello", form, 415),
        (b"hello", "text/plain", 415),
        (b"x", f"{form}; boundary={'b' * 1000}", 415),
        (b"hello", f"{form}; boundary=b", 400),
        (b"", f"{form}; boundary=b", 400),
        (b"--b\r\n\r\n\r\n--b--\r\n", f"{form}; boundary=b", 400),
    ):
        assert await post_media(served, data, **{"Content-Type": content_type}) == (status, "BAD_USER_INPUT"), data
    assert stored_files(objects) == []


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (b"\r\n" * 100_000, "The file must begin within the first 16,384 bytes of the form."),
        (b"--b\r\nContent-Disposition: form-data; name=token\r\nX: " + b"x" * 200_000, "not a well-formed form"),
        (b"--b\r\n" + b"X: y\r\n" * 20_000, "not a well-formed form"),
        (b"--b\r\nContent-Disposition: form-data; name=token\r\n\r\n" + b"x" * 200_000, "`token` may have at most"),
        (b"--b\r\nContent-Disposition: form-data; name=" + b"x" * 4_000 + b"\r\n\r\n" + b"x" * 9_000, "and no other"),
        ((b"--b\r\nContent-Disposition: form-data; name=token\r\n\r\n\r\n") * 5_000, "and no other"),
    ],
    ids=["preamble", "header", "headers", "token", "name", "parts"],
)
async def test_the_preamble_of_a_file_is_bounded(served: Served, start: bytes, message: str) -> None:
    """It is refused before the rest of the announced 25 MB has arrived."""
    reader, writer = await begin_upload(served, "multipart/form-data; boundary=b", 25 * 2**20)
    writer.write(start)
    answer = await asyncio.wait_for(reader.readuntil(b"]}"), 50)

    assert answer.startswith(b"HTTP/1.1 400")
    assert message.encode() in answer
    writer.close()


@given_any(st.lists(st.integers(0, 700), max_size=8))
def test_a_form_is_read_the_same_however_it_is_cut(cuts: list[int]) -> None:
    content = b"--b\r\nContent-Disposition: form-data; name=token\r\n\r\nsecret\r\n--b\r\n" + (
        b"Content-Disposition: form-data; name=file; filename=x\r\nContent-Type: image/png\r\n\r\n"
    )
    content += b"x" * 300 + b"\r\n--b--\r\n"
    form, received = UploadForm("multipart/form-data; boundary=b"), bytearray()
    for start, end in itertools.pairwise([0, *sorted(cuts), len(content)]):
        form.feed(content[start:end])
        if form.opening is not None:
            assert form.opening == Opening("secret", "image/png")
            form.write_to(received.extend)
    form.end()

    assert received == b"x" * 300


async def test_a_form_says_how_long_it_is(served: Served, target: UploadTarget) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"--b\r\n"

    content_type = "multipart/form-data; boundary=b"
    assert await post_media(served, pieces(), **{"Content-Type": content_type}) == (411, "BAD_USER_INPUT")
    reader, writer = await begin_upload(served, content_type, 27_000_000)
    assert (await reader.readline()).startswith(b"HTTP/1.1 413")
    writer.close()


async def test_an_upload_that_breaks_off_leaves_nothing(
    served: Served, objects: LocalObjects, target: UploadTarget
) -> None:
    body, content_type = await encoded_form(target, jpeg())
    _, writer = await begin_upload(served, content_type, len(body))
    writer.write(body[:-300])
    await until(lambda: any(name.endswith(".part") for name in stored_files(objects)))
    writer.close()
    await until(lambda: not stored_files(objects))

    async with asyncio.timeout(50):
        # 409 while the first upload, which has deleted its file, is about to end.
        while (answer := await post_media(served, body[:-10], **{"Content-Type": content_type}))[0] == 409:
            pass
    assert (*answer, stored_files(objects)) == (400, "BAD_USER_INPUT", [])


async def test_a_file_is_uploaded_once_at_a_time(served: Served, objects: LocalObjects, target: UploadTarget) -> None:
    body, content_type = await encoded_form(target, jpeg())
    reader, writer = await begin_upload(served, content_type, len(body))
    writer.write(body[:-300])
    await until(lambda: len(stored_files(objects)) == 1)

    form = form_of(target.fields, jpeg(), target.content_type)
    assert await post_media(served, form) == (409, "CONFLICT")
    assert len(stored_files(objects)) == 1
    other = await objects.upload("incoming/two/original", content_type="image/jpeg", max_bytes=MOST, now=NOON)
    assert await send_to(served.http, other, jpeg()) == 204
    writer.write(body[-300:])
    assert (await reader.readline()).startswith(b"HTTP/1.1 204")
    writer.close()
    assert await send_to(served.http, target, jpeg()) == 204


async def test_a_disk_that_fails_at_the_end_is_reported(
    served: Served, objects: LocalObjects, target: UploadTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_opened: int) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", fails)

    assert await post_media(served, form_of(target.fields, jpeg(), "image/jpeg")) == (503, "UNAVAILABLE")
    assert stored_files(objects) == []


async def test_partial_files_of_a_killed_process_go_with_their_upload(objects: LocalObjects) -> None:
    await objects.write(KEY, jpeg(), content_type="image/jpeg")
    objects.path(KEY).with_name("original.0123.part").write_bytes(b"half")
    await objects.delete([KEY])

    assert [*(objects.folder / "incoming").iterdir()] == []


@pytest.mark.parametrize("limit", ["silence", "all in all"])
async def test_an_upload_that_takes_too_long_is_ended(
    served: Served, objects: LocalObjects, target: UploadTarget, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    if limit == "silence":
        monkeypatch.setattr(served.gateway.server.media, "_silence", 0.05)
    else:
        monkeypatch.setattr(media, "MAX_UPLOAD_SECONDS", 0.05)
    body, content_type = await encoded_form(target, jpeg())
    reader, writer = await begin_upload(served, content_type, len(body))
    writer.write(body[:-300])

    answer = await asyncio.wait_for(reader.read(), 50)
    assert answer.startswith(b"HTTP/1.1 408")
    assert stored_files(objects) == []
    writer.close()


async def encoded_form(target: UploadTarget, content: bytes) -> tuple[bytes, str]:
    """Return the body of a form and its Content-Type."""
    payload = form_of(target.fields, content, target.content_type)()
    return await payload.as_bytes(), payload.headers["Content-Type"]


async def test_a_full_disk_is_reported(
    served: Served, objects: LocalObjects, target: UploadTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects.folder.joinpath("incoming").write_bytes(b"in the way")

    assert await post_media(served, form_of(target.fields, jpeg(), "image/jpeg")) == (503, "UNAVAILABLE")
    assert stored_files(objects) == ["incoming"]


async def test_pages_of_allowed_origins_may_upload(served: Served, target: UploadTarget) -> None:
    async def shared(method: str, origin: str, **headers: str) -> tuple[int, str | None, str | None]:
        form = form_of(target.fields, jpeg(), target.content_type) if method == "POST" else None
        async with served.http.request(
            method, target.url, data=form, headers={"Origin": origin, **headers}
        ) as response:
            allowed = response.headers.get("Access-Control-Allow-Origin")
            return response.status, allowed, response.headers.get("Access-Control-Allow-Methods")

    asked = {"Access-Control-Request-Method": "POST"}
    ours, theirs = "https://app.example.com", "https://other.example.com"

    assert await shared("OPTIONS", ours, **asked) == (204, ours, "POST")
    assert await shared("POST", ours) == (204, ours, None)
    assert await shared("OPTIONS", theirs, **asked) == (204, None, None)
    assert await shared("POST", theirs) == (204, None, None)


async def test_pages_of_allowed_origins_may_read(served: Served, objects: LocalObjects) -> None:
    await objects.write("originals/1.png", b"0123456789", content_type="image/png")
    url = await file_url(served, "originals/1.png")
    ours, theirs = "https://app.example.com", "https://other.example.com"
    answers = [
        await got(served, url, Origin=ours),
        await got(served, url, Origin=ours, Range="bytes=99-"),
        await got(served, url, "OPTIONS", Origin=ours, **{"Access-Control-Request-Method": "GET"}),
        await got(served, f"{url}x", Origin=ours),
        await got(served, url, Origin=theirs),
        await got(served, url),
    ]

    assert [answer[0] for answer in answers] == [200, 416, 204, 403, 200, 200]
    allowed = [headers.get("Access-Control-Allow-Origin") for _, headers, _ in answers]
    assert allowed == [ours] * 4 + [None] * 2
    assert {headers["Vary"] for _, headers, _ in answers} == {"Origin"}
    assert answers[2][1]["Access-Control-Allow-Methods"] == "GET, HEAD"


async def test_a_part_that_is_none_is_passed_over_or_refused(served: Served, objects: LocalObjects) -> None:
    await objects.write("originals/1.png", b"0123456789", content_type="image/png")
    url = await file_url(served, "originals/1.png")
    for given in (
        "junk",
        "bytes",
        "bytes=",
        "bytes=-",
        "bytes=a-b",
        "bytes=4-2",
        "bytes=1-2,x",
        "lines=1-2",
        "bytes=+1-",
    ):
        assert (await got(served, url, Range=given))[::2] == (200, b"0123456789"), given
    assert (await got(served, url, Range="bytes=1-2,99-"))[::2] == (200, b"0123456789")
    assert (await got(served, url, Range="bytes=99-", **{"If-Range": '"another"'}))[0] == 200
    assert (await got(served, url, Range="bytes=-3"))[::2] == (206, b"789")
    assert (await got(served, url, Range="Bytes=8-99"))[::2] == (206, b"89")
    for given in ("bytes=999999999-", "bytes=10-", "bytes=-0", f"bytes={'9' * 40}-"):
        status, headers, body = await got(served, url, Range=given)
        assert (status, headers["Content-Type"], b"it has 10 bytes" in body) == (416, "application/json", True)
        assert {name: headers[name] for name in HARMLESS} == HARMLESS
        assert (headers["Content-Range"], headers["Cache-Control"]) == ("bytes */10", "no-store")


async def test_a_file_is_sent_with_its_own_type(served: Served, objects: LocalObjects) -> None:
    types = {"jpg": "image/jpeg", "png": "image/png", "webp": "image/webp", "html": "application/octet-stream"}
    for ending, content_type in types.items():
        await objects.write(f"originals/1.{ending}", b"0123456789", content_type="any")
        status, headers, content = await got(served, await file_url(served, f"originals/1.{ending}"))
        assert (status, headers["Content-Type"], content) == (200, content_type, b"0123456789")


async def test_a_file_is_shown_in_part_and_not_again(served: Served, objects: LocalObjects) -> None:
    await objects.write("originals/1.png", b"0123456789", content_type="image/png")
    url = await file_url(served, "originals/1.png")
    served.clock.forward(minutes=10)

    whole = await got(served, url)
    part = await got(served, url, Range="bytes=2-4")
    head = await got(served, url, "HEAD")
    unchanged = await got(served, url, **{"If-None-Match": whole[1]["ETag"]})

    assert [answer[0] for answer in (whole, part, head, unchanged)] == [200, 206, 200, 304]
    assert [answer[2] for answer in (whole, part, head, unchanged)] == [b"0123456789", b"234", b"", b""]
    for _, headers, _ in (whole, part, head, unchanged):
        assert {name: headers[name] for name in HARMLESS} == HARMLESS
        assert headers["Cache-Control"] == "private, max-age=3000"
    assert head[1]["Content-Length"] == "10"


async def file_url(served: Served, key: str) -> str:
    url = await served.gateway.objects.url(key, now=served.clock.now)
    assert url is not None
    return url


async def got(served: Served, url: str, method: str = "GET", **headers: str) -> tuple[int, Mapping[str, str], bytes]:
    async with served.http.request(method, url, headers=headers) as response:
        return response.status, response.headers, await response.read()


async def test_an_address_is_the_same_for_a_quarter_of_an_hour_and_good_for_three(
    served: Served, objects: LocalObjects
) -> None:
    await objects.write("originals/1.png", png(), content_type="image/png")
    served.clock.forward(minutes=14, seconds=59)
    url = await file_url(served, "originals/1.png")
    same = await objects.url("originals/1.png", now=served.clock.now.replace(minute=0))
    served.clock.forward(minutes=45)
    late = await got(served, url)
    served.clock.forward(seconds=1)
    too_late = await got(served, url)

    assert url == same
    assert (late[0], too_late[0]) == (200, 403)
    assert "originals" not in url


async def test_a_foreign_file_is_not_found(served: Served, objects: LocalObjects) -> None:
    await objects.write("originals/1.png", png(), content_type="image/png")

    for key in ("originals/none.jpg", "originals", "../../../../etc/passwd", "a\0b", "x" * 300):
        status, _, body = await got(served, await file_url(served, key))
        assert (status, b"NOT_FOUND" in body) == (404, True), key


async def test_invented_addresses_are_refused(served: Served, objects: LocalObjects) -> None:
    await objects.write("originals/1.png", png(), content_type="image/png")
    url = await file_url(served, "originals/1.png")
    # A file has only one address: decoders of base 64 ignore characters outside their alphabet.
    for other in (url + "!!", url + "=", url[:-3] + "xyz", f"{served.url}/media/x", f"{served.url}/media/%C3%A4"):
        status, _, body = await got(served, other)
        assert (status, b"FORBIDDEN" in body) == (403, True)
    assert (await got(served, url, "DELETE"))[0] == 405
    assert (await got(served, f"{served.url}/media", "GET"))[0] == 405


async def test_a_temporary_folder_goes_with_the_gateway(served: Served, objects: LocalObjects) -> None:
    await objects.write("originals/1.png", png(), content_type="image/png")
    folder = objects.folder
    objects.close()

    assert not folder.exists()
    with pytest.raises(Unavailable):
        await objects.write("originals/2.png", png(), content_type="image/png")
