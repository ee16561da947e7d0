"""How photos come into the library: the uploads' part of SPARKS-W1."""

from datetime import datetime, timedelta
from typing import Annotated

import strawberry

from datastore.errors import BadUserInput
from datastore.ids import uuid7, uuid7_moment
from datastore.keyspace.photos import uploads as keys
from datastore.objects import FILE_FIELD, UploadTarget
from datastore.photos.library import Photo
from datastore.photos.pictures import PictureType
from datastore.photos.releases import LIFETIME, MOST_AHEAD
from datastore.photos.uploads import PhotoUpload, Reservation
from resolvers import bounds
from resolvers.context import Context, Info
from resolvers.photos.callers import uploader

strawberry.enum(PictureType, description="What a picture is encoded as.")

LONGEST_DESCRIPTION, LONGEST_TAG, MOST_TAGS = 1000, 50, 20
# A client's clock may be ahead of ours, and it may send again what it could not, but nobody's photo shall stay the
# newest for long.
MOST_BEHIND = timedelta(days=1)

ImageId = Annotated[strawberry.ID, strawberry.argument(description="The `imageId` of the reservation.")]


def description(field: str, value: str) -> str:
    return bounds.text(field, value, LONGEST_DESCRIPTION)


def tags(field: str, values: list[str]) -> tuple[str, ...]:
    """The tags trimmed, in lower case, each once. Raises `BadUserInput` for too many, or one of a wrong length."""
    if len(values) > MOST_TAGS:
        raise BadUserInput(f"`{field}` may hold at most {MOST_TAGS}, not {len(values)}.", field=field)
    return tuple(dict.fromkeys(bounds.text(field, value.lower(), LONGEST_TAG) for value in values))


CHECKS: dict[str, bounds.Check] = {"description": description, "tags": tags, "taken_at": bounds.moment}


@strawberry.input(description="The photo that is to be uploaded.")
class CreatePhotoInput:
    content_type: PictureType = strawberry.field(description="What the original is encoded as.")
    description: str | None = strawberry.field(
        description="What it shows, in words, 1 to 1000 characters.", default=None
    )
    tags: list[str] | None = strawberry.field(
        description="Words to find it by, at most 20, each 1 to 50 characters; kept in lower case, each once.",
        default=None,
    )
    taken_at: datetime | None = strawberry.field(description="When it was taken, now if nothing is said.", default=None)
    image_id: strawberry.ID | None = strawberry.field(
        description="An id of one's own, with which the same can be asked for again: a UUID of version 7, lower case, "
        "whose time is at most a day ago and at most five minutes ahead. One is made if nothing is said.",
        default=None,
    )


NewPhoto = Annotated[CreatePhotoInput, strawberry.argument(description="The photo.")]


@strawberry.type(description="A field of a form.")
class UploadField:
    name: str = strawberry.field(description="Its name.")
    value: str = strawberry.field(description="Its value.")


async def create_photo(info: Info, input: NewPhoto) -> PhotoUpload:
    context = info.context
    email = uploader(context.identity, keys.CREATE_PHOTO)
    given = bounds.checked(input, CHECKS)
    wanted = Reservation(
        image_id=_image_id(context, input.image_id),
        email=email,
        content_type=input.content_type,
        description=given["description"],
        tags=given["tags"] or (),
        taken_at=given["taken_at"] or context.now,
        created_at=context.now,
        expires_at=context.now + LIFETIME,
    )
    return await context.uploads.reserve(wanted, chosen=input.image_id is not None)


def _image_id(context: Context, given: str | None) -> str:
    if given is None:
        return uuid7(context.now, context.services.new_id())
    moment = uuid7_moment(given)
    if moment is None:
        raise BadUserInput("`imageId` must be a UUID of version 7, in lower case.", field="imageId")
    if not context.now - MOST_BEHIND <= moment <= context.now + MOST_AHEAD:
        limits = "at most a day ago and at most five minutes ahead"
        raise BadUserInput(f"`imageId` must have a time {limits}.", field="imageId")
    return given


async def complete_photo(info: Info, image_id: ImageId) -> Photo:
    email = uploader(info.context.identity, keys.COMPLETE_PHOTO)
    return await info.context.uploads.complete(bounds.id("imageId", image_id), email)


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
