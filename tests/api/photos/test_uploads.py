"""Uploads (SPARKS-W1): `createPhoto`, the upload forms that it returns, and `completePhoto`."""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web

from datastore.dynamodb.retry.backoff import Backoff
from datastore.dynamodb.retry.budget import RetryBudget
from datastore.errors import DomainError
from datastore.keyspace.photos import uploads as keys
from datastore.keyspace.photos import users as user_keys
from datastore.model.access_patterns import consistently
from datastore.model.ids import uuid7
from datastore.photos.file_deletion_outbox import incoming_keys
from datastore.photos.image_types import PictureType
from datastore.photos.reservation_expiry import LIFETIME, ReservationExpiry
from datastore.photos.reservations import Reservation
from datastore.photos.upload_reservations import UploadReservations
from datastore.session.metering import Deadline
from datastore.session.store import Store
from pipelines.photos.janitor import Janitor
from runtime.container import Gateway, new_id
from tests.support.fault_proxy import Proxy, Seen, client_of, forward, refuse
from tests.support.photo_items import ADA, EVE, ask_as, photo, photo_user, put_library_items
from tests.support.pictures import claimed_png, jpeg, png
from tests.support.served import NOON, Served
from tests.support.upload_forms import (
    COMPLETE,
    CREATE,
    complete_photo,
    create_photo,
    post_form,
    size_and_color,
    upload_count,
)
from tests.support.upload_steps import files_of_gateway, files_without_hashes, items, reserved, upload_original

CONFLICT = refuse(400, "TransactionCanceledException", CancellationReasons=[{"Code": "TransactionConflict"}])

HIDDEN = (
    "must not contain U+0000: control characters, bidirectional overrides and invisible characters are not allowed."
)

OWN_ID = uuid7(NOON, "a client's own")


@pytest.fixture(autouse=True)
async def ada(served: Served) -> None:
    await put_library_items(served, photo_user(uploadCount=0, uploadLimit=10))


async def test_a_photo_is_reserved_uploaded_and_confirmed(served: Served) -> None:
    tags = [" Sea ", "SEA", "sun"]
    made = await create_photo(served, description=" At sea ", tags=tags, takenAt="2020-02-03T04:05:06+01:00")
    upload = made.data["createPhoto"]
    id, content = upload["imageId"], jpeg(600, 400)
    assert await post_form(served.http, upload["original"], content) == 204
    served.clock.forward(minutes=1)
    done = await complete_photo(served, id)

    assert (made.errors, done.errors) == (None, None)
    assert upload["expiresAt"] == "2026-06-25T13:00:00.000Z"
    assert {name: upload["original"][name] for name in ("method", "fileField", "contentType", "maxBytes")} == {
        "method": "POST",
        "fileField": "file",
        "contentType": "image/jpeg",
        "maxBytes": 26_214_400,
    }
    assert (upload["thumbnail"]["contentType"], upload["thumbnail"]["maxBytes"]) == ("image/jpeg", 524_288)
    assert upload["original"]["expiresAt"] == "2026-06-25T12:15:00.000Z"
    answered = done.data["completePhoto"]
    urls = answered.pop("originalUrl"), answered.pop("thumbnailUrl")
    assert answered == {
        "imageId": id,
        "takenAt": "2020-02-03T03:05:06.000Z",
        "createdAt": "2026-06-25T12:01:00.000Z",
        "description": "At sea",
        "tags": ["sea", "sun"],
        "contentType": "image/jpeg",
        "size": len(content),
        "width": 600,
        "height": 400,
        "email": ADA,
        "personIds": [],
    }
    for url, length in zip(urls, (len(content), None), strict=True):
        async with served.http.get(url) as response:
            body = await response.read()
        assert (response.status, response.content_type) == (200, "image/jpeg")
        assert length in (None, len(body))
    assert made.made == ["TransactWriteItems sparks"]
    assert done.made == ["GetItem sparks", "Query sparks", "TransactWriteItems sparks", "UpdateItem sparks"]
    assert files_without_hashes(served) == {f"originals/{id}.jpg", f"thumbnails/{id}.jpg"}
    assert (await upload_count(served), await items(served, "UPLOAD")) == (1, [])


async def test_no_key_and_no_url_contains_an_email(served: Served) -> None:
    await complete_photo(served, await upload_original(served, jpeg()))

    answer = await served.ask("{ photos { nodes { id email originalUrl thumbnailUrl } } }")

    assert answer.errors is None
    assert "ada" not in str(answer.data)
    assert not any("ada" in name for name in files_of_gateway(served))


async def test_fifty_concurrent_uploads_leave_reservations_up_to_the_limit(served: Served) -> None:
    answers = await asyncio.gather(*[create_photo(served) for _ in range(50)])

    refused = [answer for answer in answers if answer.errors]
    assert len(refused) == 40
    assert {answer.errors[0]["message"] for answer in refused if answer.errors} == {
        "You may have at most 10 photos, including uploads in progress."
    }
    assert {code for answer in refused for code in answer.codes} == {"CONFLICT"}
    assert (await upload_count(served), len(await items(served, "UPLOAD"))) == (10, 10)


async def test_concurrent_uploads_with_conflicting_transactions_reach_the_limit(served: Served, proxy: Proxy) -> None:
    """As in DynamoDB, one of concurrent transactions on an item proceeds, and the others have to be retried."""
    await put_library_items(served, photo_user(uploadCount=5, uploadLimit=10))
    going = asyncio.Lock()

    async def one_at_a_time(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        if going.locked():
            return await CONFLICT(proxy, seen)
        async with going:
            return await forward(proxy, seen)

    proxy.always = one_at_a_time
    async with client_of(
        proxy, backoff=Backoff(initial=0.01, maximum=0.3, attempts=1000), budget=RetryBudget(1_000_000)
    ) as client:

        async def reserve(number: int) -> str:
            prefix = served.gateway.store_options.prefix
            store = Store(client, prefix=prefix, deadline=Deadline(30), token=new_id, now=lambda: NOON)
            reservations = UploadReservations(store, served.gateway.objects, NOON)
            reservation = Reservation(
                image_id=uuid7(NOON, str(number)),
                email=ADA,
                content_type=PictureType.JPEG,
                description=None,
                tags=(),
                taken_at=NOON,
                created_at=NOON,
                expires_at=NOON + LIFETIME,
                nonce=new_id(),
            )
            try:
                await reservations.reserve(reservation, is_client_id=False)
            except DomainError as problem:
                return problem.code
            return "RESERVED"

        outcomes = Counter(await asyncio.gather(*[reserve(number) for number in range(15)]))

    assert outcomes == {"RESERVED": 5, "CONFLICT": 10}
    assert (await upload_count(served), len(await items(served, "UPLOAD"))) == (10, 5)


async def test_photos_of_another_program_are_counted_at_the_first_upload(served: Served) -> None:
    written = photo_user(EVE)
    del written["uploadLimit"]
    await put_library_items(served, written, photo("a", EVE), photo("b", EVE), photo("c"))

    first, _ = await asyncio.gather(create_photo(served, EVE), create_photo(served, EVE))
    again = await create_photo(served, EVE)

    assert (first.errors, again.errors) == (None, None)
    assert again.made == ["TransactWriteItems sparks"]
    assert await upload_count(served, EVE) == 5


@pytest.mark.parametrize("given", [{"uploadLimit": None}, {"uploadCount": None, "uploadLimit": None}, {}])
async def test_a_null_or_missing_count_or_limit_is_replaced(served: Served, given: dict[str, Any]) -> None:
    written = {"uploadCount": 2} | photo_user(EVE) | given
    if not given:
        del written["uploadLimit"]
    await put_library_items(served, written, photo("a", EVE), photo("b", EVE))

    assert (await create_photo(served, EVE)).errors is None
    kept = await served.store().get(consistently(user_keys.PHOTO_USER), user_keys.user(EVE))
    assert kept is not None
    assert (kept["uploadCount"], kept["uploadLimit"]) == (3, 100)


async def test_photos_of_another_program_are_counted_when_a_profile_is_created(served: Served) -> None:
    await put_library_items(served, photo("a", EVE), photo("b", EVE))
    create_user = 'mutation { createPhotoUser(input: {displayName: "Eve"}) { uploadCount } }'

    user = await ask_as(served, create_user, EVE)
    await create_photo(served, EVE)

    assert user.data["createPhotoUser"] == {"uploadCount": None}
    assert await upload_count(served, EVE) == 3


async def test_a_lagging_index_does_not_exceed_the_limit(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    await put_library_items(served, photo_user(uploadCount=10, uploadLimit=10))

    async def lagging(_self: ReservationExpiry, _email: str) -> bool:
        return True

    monkeypatch.setattr(ReservationExpiry, "release_of_user", lagging)
    refused = await create_photo(served)

    assert refused.errors is not None
    assert refused.errors[0]["message"] == "You may have at most 10 photos, including uploads in progress."
    assert refused.errors[0]["extensions"] == {"code": "CONFLICT", "limit": 10, "retryable": True}


async def test_a_limit_of_one_is_reported_in_the_singular(served: Served) -> None:
    await put_library_items(served, photo_user(uploadCount=1, uploadLimit=1))
    refused = await create_photo(served)

    assert refused.errors is not None
    assert refused.errors[0]["message"] == "You may have at most 1 photo, including uploads in progress."
    assert refused.errors[0]["extensions"] == {"code": "CONFLICT", "limit": 1}


async def test_an_upload_requires_a_profile_in_the_library(served: Served) -> None:
    answer = await create_photo(served, EVE)

    assert answer.codes == ["NOT_FOUND"]
    assert "createPhotoUser" in str(answer.errors)
    assert await items(served, "UPLOAD") == []


async def test_only_a_caller_with_an_email_uploads(served: Served) -> None:
    signed_out = await served.ask(CREATE, {"input": {"contentType": "image/png"}})
    nameless = await create_photo(served, None)
    neither = await served.ask(COMPLETE, {"id": OWN_ID})

    assert (signed_out.codes, nameless.codes) == (["UNAUTHENTICATED"], ["FORBIDDEN"])
    assert neither.codes == ["UNAUTHENTICATED"]
    assert await upload_count(served) == 0


async def test_invalid_values_of_a_photo_are_refused(served: Served) -> None:
    ahead = uuid7(NOON + timedelta(hours=1), "")
    limits = "at most a day ago and at most five minutes ahead"
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"description": "x" * 1001}, "`description` must have between 1 and 1000 characters."),
        ({"description": " "}, "`description` must have between 1 and 1000 characters."),
        ({"tags": ["x"] * 21}, "`tags` may contain at most 20, not 21."),
        ({"tags": ["x", "x" * 51]}, "`tags[1]` must have between 1 and 50 characters."),
        ({"tags": ["a\0b"]}, f"`tags[0]` {HIDDEN}"),
        ({"description": "a\0b"}, f"`description` {HIDDEN}"),
        ({"takenAt": "0999-01-01"}, "`takenAt` must lie in the years 1000 to 9000 (UTC)."),
        ({"contentType": "JPEG"}, "`contentType` must be one of: image/jpeg, image/png, image/webp."),
        ({"imageId": "mine"}, "`imageId` must be a UUID of version 7, in lower case and with hyphens."),
        ({"imageId": ahead}, f"`imageId` must have a time {limits}."),
    ]
    for given, message in refusals:
        answer = await create_photo(served, **given)
        assert (answer.codes, answer.errors and answer.errors[0]["message"]) == (["BAD_USER_INPUT"], message)
        assert answer.made == []
    assert await upload_count(served) == 0


async def test_a_repeated_reservation_takes_no_second_place(served: Served) -> None:
    served.clock.forward(milliseconds=-400)  # a reservation expires at a whole second
    first = await reserved(served, imageId=OWN_ID, contentType="image/png", takenAt="2026-01-01T00:00:00Z")
    served.clock.forward(minutes=20, milliseconds=400)
    again = await reserved(served, imageId=OWN_ID, contentType="image/png")

    assert (again["imageId"], again["expiresAt"]) == (first["imageId"], first["expiresAt"])
    assert again["original"]["contentType"] == "image/png"
    assert again["original"]["expiresAt"] == "2026-06-25T12:35:00.000Z"
    assert await post_form(served.http, first["original"], png()) == 403
    assert await post_form(served.http, again["original"], png()) == 204
    assert await upload_count(served) == 1


async def test_a_repeated_reservation_with_other_values_is_a_conflict(served: Served) -> None:
    values: dict[str, Any] = {"description": "At sea", "tags": ["Sea"], "takenAt": "2026-01-01T00:00:00.123456Z"}
    await reserved(served, imageId=OWN_ID, **values)
    served.clock.forward(minutes=1)
    others: dict[str, Any] = {
        "contentType": "image/png",
        "description": "On land",
        "tags": [],
        "takenAt": "2026-01-02T00:00:00Z",
    }
    refused = [await create_photo(served, imageId=OWN_ID, **{name: value}) for name, value in others.items()]
    repeated = [await create_photo(served, imageId=OWN_ID, **given) for given in ({}, values, {"tags": [" sea "]})]

    assert [(answer.codes, answer.errors and answer.errors[0]["extensions"]["field"]) for answer in refused] == [
        (["CONFLICT"], name) for name in others
    ]
    assert "is reserved with another `tags`." in str(refused[2].errors)
    assert [answer.errors for answer in repeated] == [None] * 3
    assert await upload_count(served) == 1


async def test_concurrent_uploads_with_one_id_are_one_reservation_even_at_the_limit(served: Served) -> None:
    await put_library_items(served, photo_user(uploadCount=9, uploadLimit=10))

    answers = await asyncio.gather(*[create_photo(served, imageId=OWN_ID) for _ in range(5)])
    later = await create_photo(served, imageId=OWN_ID)

    assert [answer.errors for answer in [*answers, later]] == [None] * 6
    assert await upload_count(served) == 10


async def test_the_id_of_another_user_or_of_a_photo_is_taken(served: Served) -> None:
    await put_library_items(served, photo_user(EVE, uploadCount=0))
    await upload_original(served, jpeg(), imageId=OWN_ID)
    while_reserved = await create_photo(served, EVE, imageId=OWN_ID)
    await complete_photo(served, OWN_ID)
    as_a_photo = await create_photo(served, EVE, imageId=OWN_ID)
    own = await create_photo(served, imageId=OWN_ID)

    assert [answer.codes for answer in (while_reserved, as_a_photo, own)] == [["CONFLICT"]] * 3
    assert (await upload_count(served), await upload_count(served, EVE)) == (1, 0)


async def test_an_id_with_files_to_be_removed_is_taken(served: Served) -> None:
    removal = keys.outbox_entry(OWN_ID)
    note = {"PK": removal.partition, "SK": removal.sort, "entityType": "REMOVAL", "imageId": OWN_ID, "objectKeys": []}
    await put_library_items(served, note)

    refused = await create_photo(served, imageId=OWN_ID)
    assert (refused.codes, refused.errors and refused.errors[0]["extensions"].get("retryable")) == (["CONFLICT"], True)
    assert await upload_count(served) == 0


async def test_repeated_and_concurrent_confirmations_create_one_photo(served: Served) -> None:
    id = await upload_original(served, jpeg())
    answers = await asyncio.gather(*[complete_photo(served, id) for _ in range(12)])
    answers.append(await complete_photo(served, id))

    assert [answer.errors for answer in answers] == [None] * 13
    assert len({str(answer.data) for answer in answers}) == 1
    assert (await upload_count(served), len(await items(served, "IMAGE"))) == (1, 1)
    assert files_without_hashes(served) == {f"originals/{id}.jpg", f"thumbnails/{id}.jpg"}


async def test_only_the_uploader_confirms_an_upload(served: Served) -> None:
    await put_library_items(served, photo_user(EVE, uploadCount=0))
    id = await upload_original(served, jpeg())
    before = await complete_photo(served, id, EVE)
    await complete_photo(served, id)
    after = await complete_photo(served, id, EVE)

    assert (before.codes, after.codes) == (["NOT_FOUND"], ["NOT_FOUND"])
    assert before.errors == after.errors
    assert (await complete_photo(served, OWN_ID)).codes == ["NOT_FOUND"]


async def test_a_late_upload_changes_no_photo(served: Served) -> None:
    upload = await reserved(served)
    first = jpeg(60, 40)
    await post_form(served.http, upload["original"], first)
    url = (await complete_photo(served, upload["imageId"])).data["completePhoto"]["originalUrl"]
    assert await post_form(served.http, upload["original"], jpeg(600, 400)) == 404

    async with served.http.get(url) as response:
        assert await response.read() == first
    assert (await complete_photo(served, upload["imageId"])).data["completePhoto"]["width"] == 60


async def test_a_thumbnail_of_the_client_is_checked_and_scaled_down(served: Served) -> None:
    upload = await reserved(served, contentType="image/png")
    await post_form(served.http, upload["original"], png(40, 40, "red"))
    await post_form(served.http, upload["thumbnail"], b"not a picture")
    refused = await complete_photo(served, upload["imageId"])
    await post_form(served.http, upload["thumbnail"], jpeg(960, 900, "blue"))
    other_shape = await complete_photo(served, upload["imageId"])
    await post_form(served.http, upload["thumbnail"], jpeg(960, 960, "blue", comment=b"a secret"))
    done = await complete_photo(served, upload["imageId"])

    assert [answer.errors and answer.errors[0]["extensions"] for answer in (refused, other_shape)] == [
        {"code": "BAD_USER_INPUT", "reason": "NOT_A_PICTURE", "file": "thumbnail"},
        {"code": "BAD_USER_INPUT", "reason": "WRONG_SHAPE", "file": "thumbnail"},
    ]
    async with served.http.get(done.data["completePhoto"]["thumbnailUrl"]) as response:
        thumbnail = await response.read()
    assert size_and_color(thumbnail) == ((480, 480), "blue")
    assert b"a secret" not in thumbnail


async def test_after_a_file_that_is_no_picture_another_can_be_uploaded(served: Served) -> None:
    upload = await reserved(served)
    id = upload["imageId"]
    damaged = "The original is no picture that can be read: it is damaged, or something else."
    refusals = [
        (None, "NOT_UPLOADED", "The original has not been uploaded yet."),
        (png(), "WRONG_TYPE", "The original was announced as JPEG, and is PNG."),
        (jpeg()[:-40], "NOT_A_PICTURE", damaged),
        (b"hello", "NOT_A_PICTURE", damaged),
        (claimed_png(50_000, 50_000), "TOO_MANY_PIXELS", "The original must have at most 40 megapixels."),
    ]
    for content, reason, message in refusals:
        if content is not None:
            assert await post_form(served.http, upload["original"], content) == 204
        refused = await complete_photo(served, id)
        assert refused.errors is not None
        extensions = {"code": "BAD_USER_INPUT", "reason": reason, "file": "original"}
        assert (refused.errors[0]["message"], refused.errors[0]["extensions"]) == (message, extensions)
        assert files_of_gateway(served) == ({incoming_keys(id)[0]} if content else set())
        assert (await upload_count(served), await items(served, "IMAGE")) == (1, [])
    await post_form(served.http, upload["original"], jpeg())

    assert (await complete_photo(served, id)).errors is None
    assert await upload_count(served) == 1


async def test_a_file_beyond_the_limit_of_its_form_is_too_large(served: Served) -> None:
    id = await upload_original(served, jpeg())
    await served.gateway.objects.write(incoming_keys(id)[1], bytes(512 * 2**10 + 1), content_type="image/jpeg")
    refused = await complete_photo(served, id)

    assert refused.errors is not None
    assert refused.errors[0]["message"] == "The thumbnail may have at most 524,288 bytes."
    assert refused.errors[0]["extensions"] == {"code": "BAD_USER_INPUT", "reason": "TOO_LARGE", "file": "thumbnail"}


async def test_a_serving_gateway_has_a_janitor(served: Served) -> None:
    jobs = [getattr(job, "__self__", None) for job in Gateway._jobs(served.gateway)]

    assert [type(job) for job in jobs if isinstance(job, Janitor)] == [Janitor]
