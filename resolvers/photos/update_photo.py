"""One's photos changed and deleted: their part of SPARKS-W1."""

from datetime import datetime
from typing import Annotated

import strawberry

from datastore.keyspace.photos import photos as keys
from datastore.photos.photos import Photo
from datastore.photos.update_photo import PhotoChange
from resolvers.photos import photo_validation as texts
from resolvers.photos.photo_access import moderator, uploader
from resolvers.photos.photos import TakenAt
from resolvers.shared import validation as validate
from resolvers.shared.arguments import EXPECTED_VERSION
from resolvers.shared.context import Info

CHECKS: dict[str, validate.Check] = {"description": texts.description, "tags": texts.tags}


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
OfPhoto = Annotated[strawberry.ID, strawberry.argument(description="The photo's `imageId`.")]


async def update_photo(info: Info, input: Changes, taken_at: TakenAt = None) -> Photo:
    me = uploader(info.context.identity, keys.UPDATE_PHOTO)
    image_id, moment = validate.id("imageId", input.image_id), moment_given(taken_at)
    changes = validate.changes(input, CHECKS, removable={"description"})
    change = PhotoChange(changes, validate.version(input.expected_version))
    return await info.context.photo_updates.update(image_id, me, moment, change)


async def delete_photo(info: Info, image_id: OfPhoto, taken_at: TakenAt = None) -> Photo | None:
    me, is_admin = moderator(info.context.identity, keys.DELETE_PHOTO)
    id, moment = validate.id("imageId", image_id), moment_given(taken_at)
    return await info.context.photo_updates.delete(id, me, moment, is_admin=is_admin)


def moment_given(taken_at: datetime | None) -> datetime | None:
    return None if taken_at is None else validate.timestamp("takenAt", taken_at)
