"""Photos: SPARKS-2, SPARKS-3, SPARKS-5, and the mutations that update and delete photos (SPARKS-W1)."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Unpack

import strawberry

from datastore.errors import BadUserInput
from datastore.items.updates import ItemChange
from datastore.keyspace.photos import photos as keys
from datastore.model.access_patterns import consistently
from datastore.model.identifiers import normal_tag
from datastore.model.timestamps import from_iso
from datastore.photos.faces import Face
from datastore.photos.photos import Photo
from datastore.photos.users import PhotoUser
from datastore.session.pagination import SortOrder, empty_page
from resolvers.photos.photo_access import (
    given_email,
    holds_email,
    list_of_type,
    may_see_email,
    moderator,
    uploader,
)
from resolvers.photos.users import Email, PhotoUserId
from resolvers.shared import validation as validate
from resolvers.shared.arguments import EXPECTED_VERSION, Consistent, argument, optional
from resolvers.shared.context import Info
from resolvers.shared.global_ids import GLOBAL_ID_PREFIX, global_id, key_of
from resolvers.shared.paging import Connection, Paging, connection_of, paged_in
from resolvers.shared.selected_fields import has_child_reads

PhotoId = Annotated[strawberry.ID, argument("The photo's `imageId` or `id`.")]
TakenAt = Annotated[
    datetime | None,
    argument(
        "The time at which the photo was taken, to the millisecond. By default an "
        "additional read finds the photo. The photo's global `id` contains it."
    ),
]
LONGEST_TAG, MAX_TAGS = 50, 20
# The parts of the key in a photo's global id.
PHOTO_PARTS = ("image_id", "moment")


async def photo(info: Info, id: PhotoId, taken_at: TakenAt = None, consistent: Consistent = False) -> Photo | None:
    image_id, time = photo_key("id", id, taken_at)
    return await info.context.photos.by_id(image_id, time, consistently(keys.PHOTO, consistent))


photos = list_of_type(keys.PHOTOS, Photo.decoder, keys.TYPE, SortOrder.DESCENDING)


@paged_in(SortOrder.DESCENDING)
async def photos_by_user(
    info: Info, email: Email = None, user_id: PhotoUserId = None, **paging: Unpack[Paging]
) -> Connection[Photo]:
    address = given_email(info.context, email=email, user_id=user_id)
    if address is None:  # no user can have this id
        connection = connection_of(info, keys.PHOTOS_BY_USER, Photo.decoder)
        return connection.of(empty_page(connection.span(**paging)))
    return await _by_user(info, address, paging)


@paged_in(SortOrder.DESCENDING)
async def photos_of_user(
    parent: strawberry.Parent[PhotoUser], info: Info, **paging: Unpack[Paging]
) -> Connection[Photo]:
    return await _by_user(info, parent.email, paging)


async def _by_user(info: Info, email: str, paging: Paging) -> Connection[Photo]:
    connection = connection_of(info, keys.PHOTOS_BY_USER, Photo.decoder, {"email": email}, replaces=("userId",))
    span = connection.span(**paging)
    page = await info.context.photos.by_user(email, span, has_child_reads=has_child_reads(info))
    return connection.of(page)


async def photo_of_face(parent: strawberry.Parent[Face], info: Info) -> Photo | None:
    return parent.photo or await info.context.photos.by_key(parent.image_id, parent.photo_sort)


def global_photo_id(parent: strawberry.Parent[Photo]) -> str:
    # The id contains the time as the table has it, so that the key is also exact for photos of other programs.
    return global_id("Photo", *keys.photo_parts(parent.key))


async def original_url(parent: strawberry.Parent[Photo], info: Info) -> str | None:
    has_metadata = info.context.services.keeps_metadata or parent.keeps_metadata
    if has_metadata and not may_see_email(info.context.identity, parent.email):
        return None
    return await _url(info, parent, parent.original_key)


async def thumbnail_url(parent: strawberry.Parent[Photo], info: Info) -> str | None:
    return await _url(info, parent, parent.thumbnail_key)


async def _url(info: Info, photo: Photo, key: str) -> str | None:
    """Return the address of a file, or None if its key may contain an email that the caller may not see."""
    objects = info.context.services.objects
    if objects.exposes_keys and holds_email(key) and not may_see_email(info.context.identity, photo.email):
        return None
    return await objects.url(key, now=info.context.now)


def tags(field: str, values: Sequence[str]) -> list[str]:
    """Return the tags in lower case, in their order, without duplicates. Raises `BadUserInput` beyond a limit."""
    if len(values) > MAX_TAGS:
        raise BadUserInput(f"`{field}` may contain at most {MAX_TAGS}, not {len(values)}.", field=field)
    return list(dict.fromkeys(_tag(f"{field}[{index}]", value) for index, value in enumerate(values)))


def _tag(field: str, value: str) -> str:
    validate.line(field, value, LONGEST_TAG)
    name = normal_tag(value.strip())
    if name is None:
        raise BadUserInput(f"`{field}` must not contain characters whose lower case is an ASCII letter.", field=field)
    # Some characters become longer in lower case.
    return validate.line(field, name, LONGEST_TAG)


OWN_CHECKS: dict[str, validate.Check] = {"tags": tags}


@strawberry.input(description="The fields of a photo to change. Omitted fields keep their values.")
class UpdatePhotoInput:
    description: strawberry.Maybe[str | None] = optional("The description, 1 to 1,000 characters. Null removes it.")
    tags: strawberry.Maybe[list[str] | None] = optional(
        "The tags, which replace the present ones: at most 20, each 1 to 50 characters. They are "
        "stored in lower case, each once."
    )
    expected_version: int | None = optional(EXPECTED_VERSION)


Changes = Annotated[UpdatePhotoInput, argument("The changes, at least one field.")]


async def update_photo(info: Info, id: PhotoId, input: Changes, taken_at: TakenAt = None) -> Photo:
    email = uploader(info.context.identity, keys.UPDATE_PHOTO)
    image_id, time = photo_key("id", id, taken_at)
    changes = validate.changes(input, Photo, own=OWN_CHECKS)
    change = ItemChange(Photo, changes, validate.version(input.expected_version))
    return await info.context.photo_updates.update(image_id, email, time, change)


async def delete_photo(info: Info, id: PhotoId, taken_at: TakenAt = None) -> Photo | None:
    email, is_admin = moderator(info.context.identity, keys.DELETE_PHOTO)
    image_id, time = photo_key("id", id, taken_at)
    return await info.context.photo_updates.delete(image_id, email, time, is_admin=is_admin)


def photo_key(field: str, id: str, taken_at: datetime | None = None) -> tuple[str, datetime | None]:
    """Return the `imageId` of a photo, and the time at which it was taken if an argument or the global id states it.

    `taken_at` precedes the time in a global id. Raises `BadUserInput`, also for a global id of another type.
    """
    time = None if taken_at is None else validate.timestamp("takenAt", taken_at)
    parts = key_of(field, id, "Photo") if id.startswith(GLOBAL_ID_PREFIX) else None
    if parts is None:
        return validate.id(field, id), time
    if len(parts) != len(PHOTO_PARTS):
        raise BadUserInput(f"`{field}` is not the global id of a photo.", field=field)
    image_id, moment = parts
    return validate.id(field, image_id), time or _time_in(moment)


def _time_in(moment: str) -> datetime | None:
    """Return the time in a global id, or None if it has no form that this gateway reads."""
    try:
        return from_iso(moment)
    except (ValueError, OverflowError):
        return None
