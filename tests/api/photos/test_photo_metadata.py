"""The metadata of uploaded pictures: the location is not stored, the time and the camera are shown to every caller."""

import struct
import zlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from PIL import Image

from datastore.model.identity import Role
from datastore.photos.metadata import MAX_PARTS
from server.settings import Misconfigured, Settings, from_environment
from tests.support.marked_pictures import KINDS, MARKER, TEXT, chunk, decoded_frames, encode_image, exif_block, noise
from tests.support.photo_items import ADA, EVE, ask_as, photo, photo_user, put_library_items
from tests.support.pictures import jpeg, png
from tests.support.s3_server import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, S3Server
from tests.support.served import NOON, Served
from tests.support.upload_forms import complete_photo, create_photo, post_form
from tests.support.upload_steps import reserved, upload_original

ONE = "query($id: ID!) { photo(id: $id) { originalUrl thumbnailUrl takenAt camera size width height } }"


@pytest.fixture(autouse=True)
async def ada(served: Served) -> None:
    await put_library_items(served, photo_user(uploadCount=0, uploadLimit=100), photo_user(EVE, uploadCount=0))


async def photo_of_picture(served: Served, content: bytes, **given: Any) -> Any:
    """Upload a picture. Return its photo as an anonymous caller sees it."""
    image_id = await upload_original(served, content, **given)
    answer = await complete_photo(served, image_id)
    assert answer.errors is None, answer.errors
    return (await served.ask(ONE, {"id": image_id})).data["photo"]


async def fetch_file(served: Served, url: str) -> bytes:
    async with served.http.get(url) as response:
        assert response.status == 200
        return await response.read()


def taken(moment: str, offset: str | None = None) -> bytes:
    exif = Image.Exif()
    exif[0x010F], exif[0x0110] = "Box", "Box 1"
    exif.get_ifd(0x8769)[0x9003] = moment
    if offset is not None:
        exif.get_ifd(0x8769)[0x9011] = offset
    return jpeg(exif=exif)


class RecordingDict(dict[str, tuple[bytes, str]]):
    """The objects of a bucket, and everything that was ever written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[str, bytes]] = []

    def __setitem__(self, key: str, value: tuple[bytes, str]) -> None:
        self.written.append((key, value[0]))
        super().__setitem__(key, value)


@pytest.mark.parametrize("kind", ["JPEG of several pictures", "PNG animated", "WebP lossless"])
async def test_every_caller_sees_an_original_without_metadata(served: Served, kind: str) -> None:
    content = KINDS[kind](6)
    answer = await photo_of_picture(served, content, contentType=f"image/{kind.split()[0].lower()}")
    original = await fetch_file(served, answer["originalUrl"])

    assert MARKER not in original
    assert list(decoded_frames(original)) == list(decoded_frames(content))
    assert (answer["width"], answer["height"], answer["size"]) == (32, 48, len(original))
    assert MARKER not in await fetch_file(served, answer["thumbnailUrl"])
    folder = served.gateway.objects.folder  # type: ignore[attr-defined]
    assert [path for path in folder.rglob("*") if path.is_file() and MARKER in path.read_bytes()] == []


class TestBucket:
    @pytest.fixture
    async def server(self, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[S3Server]:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
        async with S3Server() as server:
            server.objects = RecordingDict()
            yield server

    @pytest.fixture
    def settings(self, settings: Settings, server: S3Server) -> Settings:
        return replace(settings, photo_bucket=BUCKET, s3_url=server.url)

    async def test_a_bucket_holds_no_original_with_metadata_at_any_time(self, served: Served, server: S3Server) -> None:
        answer = await photo_of_picture(served, KINDS["JPEG"](6))

        assert isinstance(server.objects, RecordingDict)
        assert {key.partition("/")[0] for key, content in server.objects.written if MARKER in content} == {"incoming"}
        assert {key.partition("/")[0] for key in server.objects} == {"originals", "thumbnails"}
        assert MARKER not in await fetch_file(served, answer["originalUrl"])


class TestKeptMetadata:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return replace(settings, photo_metadata="keep")

    async def test_an_original_with_metadata_is_for_its_owner_and_admins(self, served: Served) -> None:
        content = KINDS["JPEG"](6)
        image_id = await upload_original(served, content)
        await put_library_items(served, photo("old", EVE, originalKey="originals/old.jpg"))

        owner = (await complete_photo(served, image_id)).data["completePhoto"]["originalUrl"]
        admin = (await ask_as(served, ONE, "root@example.com", Role.ADMIN, id=image_id)).data["photo"]["originalUrl"]
        others = [await ask_as(served, ONE, email, role, id=id) for email, role, id in strangers(image_id)]
        others.append(await served.ask(ONE, {"id": image_id}))

        assert await fetch_file(served, owner) == await fetch_file(served, admin) == content
        assert [answer.data["photo"]["originalUrl"] for answer in others] == [None] * len(others)
        assert MARKER not in await fetch_file(served, others[0].data["photo"]["thumbnailUrl"])

    async def test_kept_metadata_stays_hidden_when_the_setting_changes(self, served: Served) -> None:
        image_id = await upload_original(served, KINDS["JPEG"](6))
        await complete_photo(served, image_id)
        listed = "{ photos { nodes { originalUrl } } }"
        gateway = served.gateway
        assert gateway.services is not None
        gateway.services = replace(gateway.services, keeps_metadata=False)

        for answer in (await served.ask(listed), await ask_as(served, listed, EVE)):
            assert answer.data == {"photos": {"nodes": [{"originalUrl": None}]}}
        assert (await ask_as(served, listed)).data["photos"]["nodes"][0]["originalUrl"] is not None


def strangers(image_id: str) -> list[tuple[str | None, Role, str]]:
    return [
        (None, Role.USER, image_id),
        (EVE, Role.USER, image_id),
        (None, Role.SYSTEM, image_id),
        (ADA, Role.USER, "old"),
    ]


async def test_time_and_camera_come_from_the_picture_if_the_client_gives_none(served: Served) -> None:
    picture = taken("2024:05:06 07:08:09", "+02:00")
    cases: list[tuple[bytes, dict[str, str], str, str | None]] = [
        (picture, {}, "2024-05-06T05:08:09.000Z", "Box 1"),
        (picture, {"takenAt": "2020-01-01T00:00:00Z"}, "2020-01-01T00:00:00.000Z", "Box 1"),
        (picture, {"camera": " Pinhole "}, "2024-05-06T05:08:09.000Z", "Pinhole"),
        (taken("2024:05:06 07:08:09"), {}, "2024-05-06T07:08:09.000Z", "Box 1"),
        (taken("2026:06:25 12:05:00", "+00:00"), {}, "2026-06-25T12:05:00.000Z", "Box 1"),
        (taken("2026:06:25 12:05:01", "+00:00"), {}, "2026-06-25T12:00:00.000Z", "Box 1"),
        (taken("0000:00:00 00:00:00"), {}, "2026-06-25T12:00:00.000Z", "Box 1"),
        (taken("0001:01:01 00:00:00"), {}, "2026-06-25T12:00:00.000Z", "Box 1"),
        (taken("0999:12:31 23:59:59"), {}, "2026-06-25T12:00:00.000Z", "Box 1"),
        (taken("1000:01:01 00:00:00"), {}, "1000-01-01T00:00:00.000Z", "Box 1"),
        (jpeg(), {}, "2026-06-25T12:00:00.000Z", None),
    ]
    for content, given, moment, camera in cases:
        answer = await photo_of_picture(served, content, **given)
        assert (answer["takenAt"], answer["camera"]) == (moment, camera), (given, moment)


CAMERAS = [
    ("a" + "\u0301" * 60, "\u00e1" + "\u0301" * 30),
    ("a" + "\u20dd" * 60, "a" + "\u20dd" * 30),
    ("a" + "\ufe0f" * 60 + "b", "a b"),
    ("\U0001f600" * 150, "\U0001f600" * 100),
    ("\u20ac" * 99 + "x\u20ac", "\u20ac" * 99 + "x"),
    ("Bo\u034fx\u115f \U000e0100\uffffOne", "Bo x One"),
    ("a\u202eb\x1b[31m\nc", "a b [31m c"),
    ("\u034f\u200b", None),
]


@pytest.mark.parametrize(("stated", "camera"), CAMERAS, ids=ascii)
async def test_a_camera_in_a_picture_has_the_form_of_a_given_one(
    served: Served, stated: str, camera: str | None
) -> None:
    exif = Image.Exif()
    exif[0x010F] = stated.encode()

    answer = (await photo_of_picture(served, jpeg(exif=exif)))["camera"]

    assert answer == camera
    assert camera is None or (await create_photo(served, camera=answer)).errors is None


async def test_a_picture_with_a_side_that_is_too_long_is_refused(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    for width, height in ((1, 65_536), (1, 1_000_000), (1, 40_000_000), (65_536, 1)):
        rows = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
        rows += chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
        image_id = await upload_original(served, b"\x89PNG\r\n\x1a\n" + rows, contentType="image/png")

        answer = await complete_photo(served, image_id)

        assert answer.codes == ["BAD_USER_INPUT"]
        assert (answer.errors or [])[0]["extensions"]["reason"] == "TOO_MANY_PIXELS"
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_photo_is_read_by_the_time_of_its_metadata(served: Served) -> None:
    image_id = await upload_original(served, taken("2024:05:06 07:08:09", "-01:00"))
    await complete_photo(served, image_id)
    by_key = 'query($id: ID!) { photo(id: $id, takenAt: "2024-05-06T08:08:09Z") { imageId } }'

    answer = await ask_as(served, by_key, id=image_id)

    assert (answer.data["photo"], answer.made) == ({"imageId": image_id}, ["GetItem sparks"])
    assert (await complete_photo(served, image_id)).data["completePhoto"]["takenAt"] == "2024-05-06T08:08:09.000Z"


async def test_a_time_in_the_future_is_refused(served: Served) -> None:
    ahead = [(NOON + timedelta(minutes=5, milliseconds=extra)).isoformat() for extra in (0, 1)]
    near, far = [await create_photo(served, takenAt=moment) for moment in ahead]

    assert near.errors is None
    assert far.errors is not None
    assert far.errors[0]["message"] == "`takenAt` must not lie more than 5 minutes in the future."
    assert far.errors[0]["extensions"] == {"code": "BAD_USER_INPUT", "field": "takenAt"}
    assert far.made == []


async def test_the_name_of_a_camera_has_a_limited_length(served: Served) -> None:
    for camera in ("", "x" * 101, "a\0b"):
        refused = await create_photo(served, camera=camera)
        assert refused.codes == ["BAD_USER_INPUT"]
        assert refused.errors is not None
        assert refused.errors[0]["extensions"]["field"] == "camera"


async def test_a_repeated_reservation_must_name_the_same_camera(served: Served) -> None:
    first = await reserved(served, camera="Box 1")
    again = [await create_photo(served, imageId=first["imageId"], **given) for given in ({}, {"camera": "Box 1"})]
    other = await create_photo(served, imageId=first["imageId"], camera="Box 2")

    assert [answer.errors for answer in again] == [None, None]
    assert other.codes == ["CONFLICT"]


async def test_a_picture_of_too_many_chunks_is_refused(served: Served) -> None:
    upload = await reserved(served, contentType="image/png")
    content = png()
    await post_form(served.http, upload["original"], content[:33] + chunk(b"abCd", b"") * MAX_PARTS + content[33:])

    refused = await complete_photo(served, upload["imageId"])

    assert refused.errors is not None
    assert refused.errors[0]["message"] == "The original must have at most 10000 chunks."
    assert refused.errors[0]["extensions"]["file"] == "original"


async def test_a_thumbnail_of_the_client_is_rotated_and_stripped(served: Served) -> None:
    upload = await reserved(served)
    await post_form(served.http, upload["original"], jpeg(40, 60))
    small = encode_image(noise(), "JPEG", exif=exif_block(6), comment=MARKER)
    await post_form(served.http, upload["thumbnail"], small)

    done = await complete_photo(served, upload["imageId"])

    assert done.errors is None
    assert MARKER not in await fetch_file(served, done.data["completePhoto"]["thumbnailUrl"])
    assert TEXT in str(small)


def test_the_setting_is_strip_or_keep() -> None:
    assert Settings("s" * 40).photo_metadata == "strip"
    assert from_environment({"GATEWAY_PHOTO_METADATA": "keep"})["photo_metadata"] == "keep"
    with pytest.raises(Misconfigured, match="GATEWAY_PHOTO_METADATA must be strip or keep, not 'none'"):
        from_environment({"GATEWAY_PHOTO_METADATA": "none"})
