"""Photos: SPARKS-2, SPARKS-3 and SPARKS-5."""

from datetime import datetime
from typing import Annotated

import strawberry

from datastore.errors import BadUserInput
from datastore.keyspace.photos import photos as keys
from datastore.photos.faces import Face
from datastore.photos.photos import Photo, photo_from
from datastore.photos.users import PhotoUser
from datastore.session.pagination import SortOrder
from resolvers.photos.photo_access import (
    Consistent,
    NotConsistent,
    check_index_read,
    given_email,
    holds_email,
    may_see_email,
)
from resolvers.photos.users import Email, PhotoUserId
from resolvers.shared import validation as validate
from resolvers.shared.arguments import After, Before, First, Last, Order
from resolvers.shared.context import Info
from resolvers.shared.paging import Connection, PagingArguments
from resolvers.shared.selected_fields import has_child_reads

# The fields of a photo that need point reads.
POINT_READS = ("user", "persons", "faces")

ImageId = Annotated[strawberry.ID, strawberry.argument(description="The photo's `imageId`, not the global `id`.")]
TakenAt = Annotated[
    datetime | None,
    strawberry.argument(
        description="The time at which the photo was taken. With it the photo is read by its key; without it an "
        "additional read finds the photo."
    ),
]


async def photo(info: Info, id: ImageId, taken_at: TakenAt = None, consistent: Consistent = False) -> Photo | None:
    time = None if taken_at is None else validate.timestamp("takenAt", taken_at)
    pattern = keys.PHOTO_CONSISTENT if consistent else keys.PHOTO
    return await info.context.photos.by_id(validate.id("id", id), time, pattern)


async def photos(
    info: Info,
    first: First = None,
    after: After = None,
    last: Last = None,
    before: Before = None,
    order: Order = SortOrder.DESCENDING,
    consistent: NotConsistent = False,
) -> Connection[Photo]:
    check_index_read(consistent)
    connection = Connection(
        info.context.services.cursors, keys.PHOTOS, "Query.photos", {"order": order.value}, photo_from
    )
    span = connection.span(first, after, last, before)
    page = await info.context.photos.all(span, order, has_child_reads=has_child_reads(info, *POINT_READS))
    return connection.of(page)


async def photos_by_user(
    info: Info,
    email: Email = None,
    user_id: PhotoUserId = None,
    first: First = None,
    after: After = None,
    last: Last = None,
    before: Before = None,
    order: Order = SortOrder.DESCENDING,
    consistent: NotConsistent = False,
) -> Connection[Photo]:
    check_index_read(consistent)
    address = given_email(info.context, email=email, user_id=user_id)
    if address is None:
        raise BadUserInput("`userId` is not the id of a photo user.", field="userId")
    return await _by_user(info, address, "Query.photosByUser", (first, after, last, before), order)


async def photos_of_user(
    parent: strawberry.Parent[PhotoUser],
    info: Info,
    first: First = None,
    after: After = None,
    last: Last = None,
    before: Before = None,
    order: Order = SortOrder.DESCENDING,
) -> Connection[Photo]:
    return await _by_user(info, parent.email, "PhotoUser.photos", (first, after, last, before), order)


async def _by_user(info: Info, email: str, field: str, paging: PagingArguments, order: SortOrder) -> Connection[Photo]:
    arguments = {"email": email, "order": order.value}
    connection = Connection(info.context.services.cursors, keys.PHOTOS_BY_USER, field, arguments, photo_from)
    span = connection.span(*paging)
    page = await info.context.photos.by_user(email, span, order, has_child_reads=has_child_reads(info, *POINT_READS))
    return connection.of(page)


async def photo_of_face(parent: strawberry.Parent[Face], info: Info) -> Photo | None:
    return parent.photo or await info.context.photos.by_key(parent.image_id, parent.photo_sort)


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
