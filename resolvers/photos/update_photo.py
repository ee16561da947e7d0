"""Mutations that update and delete photos (SPARKS-W1)."""

from datetime import datetime
from typing import Annotated

import strawberry

from datastore.keyspace.photos import photos as keys
from datastore.photos.photos import Photo
from datastore.photos.update_photo import PhotoChange
from resolvers.photos import photo_validation
from resolvers.photos.photo_access import moderator, uploader
from resolvers.photos.photos import TakenAt
from resolvers.shared import validation as validate
from resolvers.shared.arguments import EXPECTED_VERSION
from resolvers.shared.context import Info

CHECKS: dict[str, validate.Check] = {"description": photo_validation.description, "tags": photo_validation.tags}


@strawberry.input(description="The fields of a photo to change. Omitted fields keep their values.")
class UpdatePhotoInput:
    image_id: strawberry.ID = strawberry.field(description="The photo's `imageId`.")
    description: strawberry.Maybe[str | None] = strawberry.field(
        description="The description, 1 to 1,000 characters. Null removes it.", default=None
    )
    tags: strawberry.Maybe[list[str] | None] = strawberry.field(
        description="The tags, which replace the present ones: at most 20, each 1 to 50 characters. They are "
        "stored in lower case, each once.",
        default=None,
    )
    expected_version: int | None = strawberry.field(description=EXPECTED_VERSION, default=None)


Changes = Annotated[UpdatePhotoInput, strawberry.argument(description="The changes, at least one field.")]
ImageId = Annotated[strawberry.ID, strawberry.argument(description="The photo's `imageId`.")]


async def update_photo(info: Info, input: Changes, taken_at: TakenAt = None) -> Photo:
    email = uploader(info.context.identity, keys.UPDATE_PHOTO)
    image_id, time = validate.id("imageId", input.image_id), given_time(taken_at)
    changes = validate.changes(input, CHECKS, removable={"description"})
    change = PhotoChange(changes, validate.version(input.expected_version))
    return await info.context.photo_updates.update(image_id, email, time, change)


async def delete_photo(info: Info, image_id: ImageId, taken_at: TakenAt = None) -> Photo | None:
    email, is_admin = moderator(info.context.identity, keys.DELETE_PHOTO)
    id, time = validate.id("imageId", image_id), given_time(taken_at)
    return await info.context.photo_updates.delete(id, email, time, is_admin=is_admin)


def given_time(taken_at: datetime | None) -> datetime | None:
    return None if taken_at is None else validate.timestamp("takenAt", taken_at)
