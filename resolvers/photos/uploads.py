"""Uploads of photos (SPARKS-W1)."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import strawberry

from datastore.errors import BadUserInput
from datastore.keyspace.photos import uploads as keys
from datastore.objects import FILE_FIELD, UploadTarget
from datastore.photos.image_types import PictureType
from datastore.photos.photos import Photo
from datastore.photos.reservation_expiry import LIFETIME
from datastore.photos.reservations import Reservation, check_past, uploader_claims
from datastore.photos.upload_reservations import PhotoUpload
from resolvers.photos.photo_access import uploader
from resolvers.photos.photos import OWN_CHECKS
from resolvers.shared import validation as validate
from resolvers.shared.arguments import argument, optional, required
from resolvers.shared.authorization import require
from resolvers.shared.client_ids import CLIENT_ID, new_object_id
from resolvers.shared.context import Info

ReservationId = Annotated[
    strawberry.ID, argument("The `imageId` of the reservation, or the `id` of its `PhotoUpload`.")
]


@strawberry.input(description="A photo to upload.")
class CreatePhotoInput:
    content_type: str = required("The media type of the original: `image/jpeg`, `image/png` or `image/webp`.")
    description: str | None = optional("The description, 1 to 1,000 characters; by default none.")
    tags: list[str] | None = optional(
        "The tags, at most 20, each 1 to 50 characters; by default none. They are stored in lower case, each once."
    )
    taken_at: datetime | None = optional(
        "The time at which the photo was taken, at most five minutes ahead of the gateway's clock. By "
        "default the time in the original's metadata (EXIF DateTimeOriginal with OffsetTimeOriginal, or UTC "
        "without an offset), or the time of the reservation if there is none."
    )
    camera: str | None = optional(
        "The maker and model of the camera, 1 to 100 characters; by default those in the original's metadata."
    )
    image_id: strawberry.ID | None = optional(CLIENT_ID)


NewPhoto = Annotated[CreatePhotoInput, argument("The photo.")]


@dataclass(frozen=True, slots=True)
class UploadField:
    """A field of a form."""

    name: str
    value: str


async def create_photo(info: Info, input: NewPhoto) -> PhotoUpload:
    context = info.context
    email = uploader(context.identity, keys.CREATE_PHOTO)
    values = validate.fields(input, Reservation, own=OWN_CHECKS)
    if values["taken_at"] is not None:
        check_past("takenAt", values["taken_at"], context.now)
    reservation = Reservation(
        image_id=new_object_id(info, "imageId", input.image_id),
        email=email,
        content_type=_picture_type(input.content_type),
        description=values["description"],
        tags=tuple(values["tags"] or ()),
        taken_at=values["taken_at"] or context.now,
        created_at=context.now,
        expires_at=context.now + LIFETIME,
        # The nonce is not derived from the Idempotency-Key: a repeated reservation must not share files with an earlier
        # reservation, whose files may be deleted later.
        nonce=context.services.new_id(),
        camera=values["camera"],
        has_stated_time=values["taken_at"] is not None,
    )
    stated = ["content_type", *(name for name, value in values.items() if value is not None)]
    has_client_id = input.image_id is not None or context.is_retry
    identity = require(context.identity, keys.CREATE_PHOTO)
    claims = uploader_claims(identity.user_id, identity.role.value)
    return await context.upload_reservations.reserve(
        reservation, is_client_id=has_client_id, stated=stated, uploader=claims
    )


def _picture_type(value: str) -> PictureType:
    """Return the media type. Raises `BadUserInput` for one that the library does not store."""
    if value not in set(PictureType):
        raise BadUserInput(f"`contentType` must be one of: {', '.join(PictureType)}.", field="contentType")
    return PictureType(value)


async def complete_photo(info: Info, id: ReservationId) -> Photo:
    email = uploader(info.context.identity, keys.COMPLETE_PHOTO)
    return await info.context.uploads.complete(validate.id("id", id, of=("PhotoUpload",)), email)


async def cancel_photo_upload(info: Info, id: ReservationId) -> bool:
    email = uploader(info.context.identity, keys.CANCEL_PHOTO_UPLOAD)
    return await info.context.upload_reservations.cancel(validate.id("id", id, of=("PhotoUpload",)), email)


def reserved_id(parent: strawberry.Parent[PhotoUpload]) -> strawberry.ID:
    return strawberry.ID(parent.reservation.image_id)


def reserved_until(parent: strawberry.Parent[PhotoUpload]) -> datetime:
    return parent.reservation.expires_at


def method() -> str:
    return "POST"


def file_field() -> str:
    return FILE_FIELD


def form_fields(parent: strawberry.Parent[UploadTarget]) -> list[UploadField]:
    return [UploadField(name=name, value=value) for name, value in parent.fields.items()]
